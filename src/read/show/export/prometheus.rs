//! Prometheus's text format 0.0.4 (<https://prometheus.io/docs/instrumenting/exposition_formats/>), also valid as
//! OpenMetrics 1.0: `# UNIT` and `# EOF` are comments to the former. Every figure is a gauge. There are no time stamps,
//! because node_exporter's textfile collector rejects them; a run's start is a figure instead.

use ringmark_core::line::prometheus::{MetricFamily, MetricKind, Sample};

use crate::read::show::export::figure::{ExportedSeries, Figure, FigureKind, INFO, Scope};

pub fn text(all: &[ExportedSeries]) -> String {
    let mut text = String::new();
    for scope in [Scope::Case, Scope::Run, Scope::Message] {
        let of_scope: Vec<&ExportedSeries> = all.iter().filter(|series| series.scope == scope).collect();
        let info =
            |series: &&ExportedSeries| Sample { labels: [&series.labels[..], &series.details].concat(), value: 1.0 };
        text.push_str(&family(scope, &INFO, of_scope.iter().map(info).collect()).to_string());
        for kind in kinds(&of_scope) {
            let of_series = of_scope.iter().flat_map(|series| {
                let figures = series.figures.iter().filter(|figure| figure.kind == kind);
                figures.map(|figure| sample(series, figure))
            });
            text.push_str(&family(scope, kind, of_series.collect()).to_string());
        }
    }
    text + "# EOF\n"
}

/// Returns the distinct kinds in order of appearance: all samples of a family must be contiguous.
fn kinds(all: &[&ExportedSeries]) -> Vec<&'static FigureKind> {
    let mut kinds: Vec<&'static FigureKind> = Vec::new();
    for figure in all.iter().flat_map(|series| &series.figures) {
        if !kinds.contains(&figure.kind) {
            kinds.push(figure.kind);
        }
    }
    kinds
}

fn family(scope: Scope, kind: &FigureKind, samples: Vec<Sample>) -> MetricFamily {
    MetricFamily {
        name: format!("{}_{}", scope.prefix(), kind.name()),
        help: format!("{}.", kind.meaning),
        unit: Some(kind.unit).filter(|unit| !unit.is_empty()),
        kind: MetricKind::Gauge,
        samples,
    }
}

fn sample(series: &ExportedSeries, figure: &Figure) -> Sample {
    let part = figure.part.map(|(name, value)| (name, value.to_owned()));
    Sample { labels: series.labels.iter().cloned().chain(part).collect(), value: figure.value.number() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::show::export::figure::{IMAGES_PER_SECOND, RELIABLE};

    #[test]
    fn samples_are_grouped_by_family_and_labels_are_complete() {
        let series = |result: &str| {
            let mut series = ExportedSeries::new(Scope::Case, vec![("result", result.to_owned())], None);
            series.add(&IMAGES_PER_SECOND, Some(12.5));
            series.add(&RELIABLE, Some(true));
            series
        };
        let expected = r#"# HELP ringmark_info Environment as labels; the value is 1.
# TYPE ringmark_info gauge
ringmark_info{result="a"} 1
ringmark_info{result="\"\\\n"} 1
# HELP ringmark_images_per_second Images per second of all ranks, median over the runs of a case.
# TYPE ringmark_images_per_second gauge
# UNIT ringmark_images_per_second images_per_second
ringmark_images_per_second{result="a"} 12.5
ringmark_images_per_second{result="\"\\\n"} 12.5
# HELP ringmark_reliable 1 if the figures are reliable, 0 if a warning marks them as unreliable.
# TYPE ringmark_reliable gauge
ringmark_reliable{result="a"} 1
ringmark_reliable{result="\"\\\n"} 1
# EOF
"#;
        assert_eq!(text(&[series("a"), series("\"\\\n")]), expected);
    }
}
