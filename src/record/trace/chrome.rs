//! The Trace Event Format, which Perfetto, `chrome://tracing` and Speedscope open: a process for each rank, a thread for each
//! lane, times in microseconds (Trace Event Format, Google, 2016: complete events `X` and metadata `M`).

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::trace::span::{RankTrace, Span};
use crate::trace::timeline::Timeline;

/// An event of the format.
#[derive(Serialize)]
struct Event<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<String>,
    ph: &'static str,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    args: Value,
}

/// Writes an aligned timeline, an event a line.
pub fn write(timeline: &Timeline, output: &mut impl Write) -> Result<()> {
    write!(output, r#"{{"displayTimeUnit":"ms","otherData":{},"traceEvents":["#, about(timeline))?;
    let mut separator = "\n";
    for rank in &timeline.ranks {
        for event in metadata(rank).iter().chain(&rank.spans.iter().map(|span| event(rank, span)).collect::<Vec<_>>()) {
            write!(output, "{separator}")?;
            serde_json::to_writer(&mut *output, event)?;
            separator = ",\n";
        }
    }
    writeln!(output, "\n]}}")?;
    Ok(())
}

/// What the file says of itself; values are texts, as the format wants them.
fn about(timeline: &Timeline) -> Value {
    let mut about = Map::from_iter([
        ("ringmark".to_owned(), json!(env!("CARGO_PKG_VERSION"))),
        ("run".to_owned(), json!(timeline.title)),
        ("exchange".to_owned(), json!(timeline.exchange)),
        ("clock".to_owned(), json!("CLOCK_MONOTONIC of rank 0; residual: at most so far off")),
        ("began_unix_seconds".to_owned(), json!(format!("{:.6}", timeline.began_unix_seconds))),
    ]);
    for RankTrace { rank, host, clock, .. } in &timeline.ranks {
        let [first, last] = [clock.first, clock.last].map(|reading| reading.ahead_ns as f64 / 1e3);
        let text = format!(
            "host {host}, {}, ahead of rank 0 by {first:.3} us before and {last:.3} us after, residual {:.3} us",
            clock.method,
            clock.residual_ns() as f64 / 1e3
        );
        about.insert(format!("clock of rank {rank}"), json!(text));
    }
    Value::Object(about)
}

/// Names of the rank and of its lanes, and their order.
fn metadata(rank: &RankTrace) -> Vec<Event<'static>> {
    let event = |name, tid, args| Event { name, cat: None, ph: "M", pid: rank.rank, tid, ts: None, dur: None, args };
    let mut events = vec![
        event("process_name", None, json!({ "name": format!("rank {} on {}", rank.rank, rank.host) })),
        event("process_sort_index", None, json!({ "sort_index": rank.rank })),
    ];
    let lanes: BTreeMap<u32, String> = rank.spans.iter().map(|span| (span.lane.order(), span.lane.title())).collect();
    for (order, title) in lanes {
        events.push(event("thread_name", Some(order), json!({ "name": title })));
        events.push(event("thread_sort_index", Some(order), json!({ "sort_index": order })));
    }
    events
}

fn event<'a>(rank: &RankTrace, span: &'a Span) -> Event<'a> {
    let mut args = Map::from_iter([("iteration".to_owned(), json!(span.iteration))]);
    if let Some(bucket) = span.bucket {
        args.insert("bucket".to_owned(), json!(bucket));
    }
    if let Some(pass) = &span.layer {
        args.insert("kind".to_owned(), json!(pass.kind));
        args.insert("direction".to_owned(), json!(pass.direction));
        args.insert("gigamultiply_adds".to_owned(), json!(pass.multiply_adds as f64 / 1e9));
        args.insert("bytes".to_owned(), json!(pass.bytes.0));
    }
    let category = span.layer.map_or_else(|| span.lane.title(), |pass| pass.direction.to_string());
    Event {
        name: &span.name,
        cat: Some(category),
        ph: "X",
        pid: rank.rank,
        tid: Some(span.lane.order()),
        ts: Some(span.begin_ns as f64 / 1e3),
        dur: Some(span.length_ns as f64 / 1e3),
        args: Value::Object(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::timeline::tests::timeline;

    #[test]
    fn a_timeline_is_a_process_a_rank_and_a_thread_a_lane() {
        let mut timeline = timeline();
        timeline.align();
        let mut text = Vec::new();
        write(&timeline, &mut text).expect("written");
        let file: Value = serde_json::from_slice(&text).expect("JSON");
        assert_eq!(file["otherData"]["run"], "LeNet training");
        assert!(file["otherData"]["clock of rank 1"].as_str().expect("text").contains("same-host"), "{file}");
        let events = file["traceEvents"].as_array().expect("events");
        let names = |phase: &str| -> Vec<&str> {
            events.iter().filter(|event| event["ph"] == phase).filter_map(|event| event["name"].as_str()).collect()
        };
        assert_eq!(names("M").iter().filter(|name| **name == "thread_name").count(), 8);
        assert_eq!(names("X").len(), 12);
        let sum = events.iter().find(|event| event["name"] == "all-reduce" && event["pid"] == 1).expect("there");
        assert_eq!((&sum["ts"], &sum["dur"], &sum["args"]["bucket"]), (&json!(12.0), &json!(2.0), &json!(0)));
        let layer = events.iter().find(|event| event["name"] == "conv1").expect("there");
        assert_eq!((&layer["cat"], &layer["args"]["kind"]), (&json!("forward"), &json!("convolution")));
    }
}
