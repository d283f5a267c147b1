//! InfluxDB's line protocol, `measurement,tags fields time`: a line per case, run and message size. Times are the start
//! of the run, in nanoseconds since 1970 UTC.
//! See <https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/>.

use ringmark_core::untrusted_text::is_unprintable;

use crate::read::load::problem::Problem;
use crate::read::show::export::figure::{ExportedSeries, Figure, Scope, Value};

fn measurement(scope: Scope) -> &'static str {
    match scope {
        Scope::Case => "ringmark_case",
        Scope::Run => "ringmark_run",
        Scope::Message => "ringmark_bandwidth",
    }
}

/// Returns the lines, and a problem for each series without a start time: the server would insert the current time.
pub fn lines(all: &[ExportedSeries]) -> (String, Vec<Problem>) {
    let (mut text, mut problems) = (String::new(), Vec::new());
    for series in all {
        match line(series) {
            Some(line) => text += &line,
            None => {
                let labels: Vec<&str> = series.labels.iter().map(|(_, value)| value.as_str()).collect();
                let what = "start time unknown, and a line without a timestamp would get the current \
                    time: not exported";
                problems.push(Problem::in_file(labels.join(" "), what));
            }
        }
    }
    (text, problems)
}

fn line(series: &ExportedSeries) -> Option<String> {
    let nanoseconds = (1e9 * series.started?.0).round() as i64;
    let mut tags: Vec<&(&str, String)> = series.labels.iter().collect();
    // The server is faster if tags are sorted.
    tags.sort();
    let tags: String = tags.iter().map(|(name, value)| format!(",{name}={}", escaped(value))).collect();
    let figures = series.figures.iter().map(|figure| format!("{}={}", figure.name(), value(figure)));
    let details = series.details.iter().map(|(name, text)| format!("{name}={}", quoted(text)));
    let fields: Vec<String> = figures.chain(details).collect();
    Some(format!("{}{tags} {} {nanoseconds}\n", measurement(series.scope), fields.join(",")))
}

fn value(figure: &Figure) -> String {
    match figure.value {
        Value::Float(number) => number.to_string(),
        Value::Integer(number) => format!("{number}i"),
        Value::Flag(flag) => flag.to_string(),
    }
}

/// Escapes a tag value. Commas, equals signs and spaces would end it. Backslashes and line breaks are replaced: the
/// meaning of a backslash depends on the next character, and a line break cannot be escaped.
fn escaped(value: &str) -> String {
    let mut text = String::new();
    for letter in value.chars() {
        match letter {
            ',' | '=' | ' ' => text.extend(['\\', letter]),
            '\\' => text.push('/'),
            letter if is_unprintable(letter) => text.push('_'),
            letter => text.push(letter),
        }
    }
    text
}

/// Quotes the text value of a field.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace(is_unprintable, " "))
}

#[cfg(test)]
mod tests {
    use ringmark_core::dimension::Seconds;

    use super::*;
    use crate::read::show::export::figure::{IMAGES_PER_SECOND, PHASE, RANKS, RELIABLE};

    #[test]
    fn tags_are_sorted_and_fields_have_types() {
        let labels = vec![("result", "a b,c=\\".to_owned()), ("case", "1n1g".to_owned())];
        let mut series = ExportedSeries::new(Scope::Run, labels, Some(Seconds(1.7e9)));
        series.add(&IMAGES_PER_SECOND, Some(12.5));
        series.add_part(&PHASE, Some(("phase", "forward")), Some(0.25));
        series.add(&RANKS, Some(2_u32));
        series.add(&RELIABLE, Some(false));
        series.details.push(("host", "\"x\"\n".to_owned()));
        let expected = r#"ringmark_run,case=1n1g,result=a\ b\,c\=/ images_per_second=12.5,phase_forward_seconds=0.25,ranks=2i,reliable=false,host="\"x\" " 1700000000000000000
"#;
        let (text, problems) = lines(&[series.clone()]);
        assert_eq!((text.as_str(), problems), (expected, Vec::new()));
        let (text, problems) = lines(&[ExportedSeries { started: None, ..series }]);
        assert_eq!((text.as_str(), problems.len()), ("", 1));
    }
}
