//! Prometheus' text format, version 0.0.4: <https://prometheus.io/docs/instrumenting/exposition_formats>.

use std::fmt;

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only increases; its name ends with `_total`.
    Counter,
    /// May increase and decrease.
    Gauge,
}

/// A metric with all of its samples. Its name contains its unit: `ringmark_<what>_<unit>`.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricFamily {
    /// Name of letters, digits and `_`.
    pub name: String,
    /// Description in one sentence.
    pub help: String,
    /// Unit for OpenMetrics, if it has one: the last part of the name.
    pub unit: Option<&'static str>,
    /// Metric type.
    pub kind: MetricKind,
    /// Samples, no two of which have the same labels.
    pub samples: Vec<Sample>,
}

/// A value with the labels that distinguish it within its family.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Labels with names of letters, digits and `_`, and values of any text.
    pub labels: Vec<(&'static str, String)>,
    /// Value in the unit of the name.
    pub value: f64,
}

impl fmt::Display for MetricFamily {
    /// Formats its lines; nothing if it has no sample.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MetricFamily { name, help, unit, kind, samples } = self;
        if samples.is_empty() {
            return Ok(());
        }
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        write!(formatter, "# HELP {name} {help}\n# TYPE {name} {kind}\n")?;
        if let Some(unit) = unit {
            writeln!(formatter, "# UNIT {name} {unit}")?;
        }
        for Sample { labels, value } in samples {
            formatter.write_str(name)?;
            for (index, (label, text)) in labels.iter().enumerate() {
                let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                write!(formatter, "{}{label}=\"{text}\"", if index == 0 { '{' } else { ',' })?;
            }
            formatter.write_str(if labels.is_empty() { " " } else { "} " })?;
            match value.is_infinite() {
                true => writeln!(formatter, "{}Inf", if *value > 0.0 { '+' } else { '-' })?,
                false => writeln!(formatter, "{value}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_follow_the_text_format() {
        let sample = |labels: &[(&'static str, &str)], value| Sample {
            labels: labels.iter().map(|(name, text)| (*name, (*text).to_owned())).collect(),
            value,
        };
        let family = MetricFamily {
            name: "ringmark_step_seconds".to_owned(),
            help: "A\\B\nC".to_owned(),
            unit: None,
            kind: MetricKind::Gauge,
            samples: vec![
                sample(&[], 0.25),
                sample(&[("host", "a\"b\\c\nd"), ("rank", "0")], f64::NEG_INFINITY),
                sample(&[("rank", "1")], f64::NAN),
            ],
        };
        assert_eq!(
            family.to_string(),
            "# HELP ringmark_step_seconds A\\\\B\\nC\n# TYPE ringmark_step_seconds gauge\nringmark_step_seconds 0.25\n\
             ringmark_step_seconds{host=\"a\\\"b\\\\c\\nd\",rank=\"0\"} -Inf\nringmark_step_seconds{rank=\"1\"} NaN\n"
        );
        let counter = MetricFamily {
            name: "ringmark_runs_finished_total".to_owned(),
            help: "Runs.".to_owned(),
            unit: None,
            kind: MetricKind::Counter,
            samples: vec![sample(&[], 3.0)],
        };
        assert!(
            counter
                .to_string()
                .ends_with("# TYPE ringmark_runs_finished_total counter\nringmark_runs_finished_total 3\n")
        );
        assert_eq!(MetricFamily { samples: Vec::new(), ..counter }.to_string(), "");
    }
}
