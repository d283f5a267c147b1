//! Prometheus's text format 0.0.4 (<https://prometheus.io/docs/instrumenting/exposition_formats/>), which is OpenMetrics 1.0
//! as well: `# UNIT` and `# EOF` are comments to the former. Every figure is a gauge. Without time stamps, which node_exporter's
//! textfile collector refuses: when a run began is a figure of it.

use std::fmt::Write;

use crate::read::show::export::figure::{Figure, FigureKind, INFO, Scope, Series, Value};

/// A whole exposition.
pub fn text(all: &[Series]) -> String {
    let mut text = String::new();
    for scope in [Scope::Case, Scope::Run, Scope::Message] {
        let of_scope: Vec<&Series> = all.iter().filter(|series| series.scope == scope).collect();
        if of_scope.is_empty() {
            continue;
        }
        head(&mut text, scope, &INFO);
        for series in &of_scope {
            let labels = series.labels.iter().chain(&series.details);
            sample(&mut text, scope, &INFO, labels.map(|(name, value)| (*name, value.as_str())), Value::Integer(1));
        }
        for kind in kinds(&of_scope) {
            head(&mut text, scope, kind);
            for series in &of_scope {
                for Figure { part, value, .. } in series.figures.iter().filter(|figure| figure.kind == kind) {
                    let labels = series.labels.iter().map(|(name, value)| (*name, value.as_str()));
                    sample(&mut text, scope, kind, labels.chain(*part), *value);
                }
            }
        }
    }
    text + "# EOF\n"
}

/// Each once, in the order in which they come: all samples of a family stand together.
fn kinds(all: &[&Series]) -> Vec<&'static FigureKind> {
    let mut kinds: Vec<&'static FigureKind> = Vec::new();
    for figure in all.iter().flat_map(|series| &series.figures) {
        if !kinds.contains(&figure.kind) {
            kinds.push(figure.kind);
        }
    }
    kinds
}

fn name(scope: Scope, kind: &FigureKind) -> String {
    format!("{}_{}", scope.prefix(), kind.name())
}

fn head(text: &mut String, scope: Scope, kind: &FigureKind) {
    let name = name(scope, kind);
    // Writing to a text does not fail.
    let _ = write!(text, "# HELP {name} {}.\n# TYPE {name} gauge\n", kind.meaning);
    if !kind.unit.is_empty() {
        let _ = writeln!(text, "# UNIT {name} {}", kind.unit);
    }
}

fn sample<'a>(
    text: &mut String,
    scope: Scope,
    kind: &FigureKind,
    labels: impl Iterator<Item = (&'a str, &'a str)>,
    value: Value,
) {
    let labels: Vec<String> = labels.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    let value = match value {
        Value::Float(number) => number.to_string(),
        Value::Integer(number) => number.to_string(),
        Value::Flag(flag) => u8::from(flag).to_string(),
    };
    let _ = writeln!(text, "{}{{{}}} {value}", name(scope, kind), labels.join(","));
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::show::export::figure::{IMAGES_PER_SECOND, QUOTABLE};

    #[test]
    fn samples_of_a_family_stand_together_and_every_label_is_whole() {
        let series = |result: &str| {
            let mut series = Series::new(Scope::Case, vec![("result", result.to_owned())], None);
            series.add(&IMAGES_PER_SECOND, Some(12.5));
            series.add(&QUOTABLE, Some(true));
            series
        };
        let expected = r#"# HELP ringmark_info What it ran on, as labels, and the value is 1.
# TYPE ringmark_info gauge
ringmark_info{result="a"} 1
ringmark_info{result="\"\\\n"} 1
# HELP ringmark_images_per_second Images of all ranks over time, of a case the median over its runs.
# TYPE ringmark_images_per_second gauge
# UNIT ringmark_images_per_second images_per_second
ringmark_images_per_second{result="a"} 12.5
ringmark_images_per_second{result="\"\\\n"} 12.5
# HELP ringmark_quotable Whether nothing speaks against quoting the figures, 1 or 0.
# TYPE ringmark_quotable gauge
ringmark_quotable{result="a"} 1
ringmark_quotable{result="\"\\\n"} 1
# EOF
"#;
        assert_eq!(text(&[series("a"), series("\"\\\n")]), expected);
    }
}
