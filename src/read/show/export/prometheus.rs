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
