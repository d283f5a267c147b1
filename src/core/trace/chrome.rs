//! Trace Event Format (Google, 2016), which Perfetto, `chrome://tracing` and Speedscope open: a process per rank, a
//! thread per lane, times in microseconds, complete events `X` and metadata `M`.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::dimension::Bytes;
use crate::trace::clock::RankClock;
use crate::trace::span::{Direction, Lane, LayerKind, LayerPass, RankTrace, Span};
use crate::trace::timeline::Timeline;

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

/// Writes an aligned timeline, one event per line.
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

/// Returns the metadata of the file; values are strings, as the format requires.
fn about(timeline: &Timeline) -> Value {
    let mut about = Map::from_iter([
        ("ringmark".to_owned(), json!(env!("CARGO_PKG_VERSION"))),
        ("run".to_owned(), json!(timeline.title)),
        ("exchange".to_owned(), json!(timeline.exchange)),
        ("clock".to_owned(), json!("CLOCK_MONOTONIC of rank 0; residual: largest error")),
        ("began_unix_seconds".to_owned(), json!(format!("{:.6}", timeline.began_unix_seconds))),
    ]);
    about.extend(timeline.strategy.map(|strategy| ("strategy".to_owned(), json!(strategy))));
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

/// Returns the process number of a rank; Perfetto uses 0 for the kernel.
fn process(rank: &RankTrace) -> u32 {
    rank.rank + 1
}

/// Returns the thread number of a lane, which Perfetto requires to differ from those of other ranks' lanes and from
/// process numbers.
fn thread(rank: &RankTrace, order: u32) -> u32 {
    process(rank) * Lane::COUNT + order
}

/// Returns the names of the rank and of its lanes, and their order.
fn metadata(rank: &RankTrace) -> Vec<Event<'static>> {
    let event = |name, order: Option<u32>, args| Event {
        name,
        cat: None,
        ph: "M",
        pid: process(rank),
        tid: order.map(|order| thread(rank, order)),
        ts: None,
        dur: None,
        args,
    };
    let mut events = vec![
        event(
            "process_name",
            None,
            json!({ "name": format!("rank {} on {}", rank.rank, rank.host), "rank": rank.rank, "host": rank.host, "clock": rank.clock }),
        ),
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
    let (begin, end) = (span.begin_ns as f64 / 1e3, span.end_ns() as f64 / 1e3);
    let mut duration = span.length_ns as f64 / 1e3;
    // Speedscope adds both. If rounding moved the end of a span past the start of the next one, it would nest the next
    // one.
    while begin + duration > end {
        duration = duration.next_down();
    }
    let category = span.layer.map_or_else(|| span.lane.title(), |pass| pass.direction.to_string());
    Event {
        name: &span.name,
        cat: Some(category),
        ph: "X",
        pid: process(rank),
        tid: Some(thread(rank, span.lane.order())),
        ts: Some(begin),
        dur: Some(duration),
        args: Value::Object(args),
    }
}

/// Event as it is read, without fields that only other programs write.
#[derive(Deserialize)]
struct ReadEvent {
    #[serde(default)]
    name: String,
    ph: String,
    #[serde(default)]
    pid: u32,
    #[serde(default)]
    tid: u32,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: ReadArgs,
}

#[derive(Deserialize, Default)]
struct ReadArgs {
    name: Option<String>,
    rank: Option<u32>,
    host: Option<String>,
    clock: Option<RankClock>,
    iteration: Option<u32>,
    bucket: Option<u32>,
    kind: Option<LayerKind>,
    direction: Option<Direction>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReadFile {
    #[serde(default)]
    other_data: BTreeMap<String, String>,
    trace_events: Vec<ReadEvent>,
}

/// Reads the output of [`write()`], except for arrays, gradients and the work of layers.
///
/// # Errors
///
/// Fails if the input is not JSON of this form, or contains no rank.
pub fn read(input: impl Read) -> Result<Timeline> {
    let ReadFile { other_data, trace_events } = serde_json::from_reader(input).context("not a trace")?;
    let about = |key: &str| other_data.get(key).cloned().unwrap_or_default();
    let mut ranks: BTreeMap<u32, RankTrace> = BTreeMap::new();
    let mut lanes: BTreeMap<u32, Lane> = BTreeMap::new();
    for ReadEvent { name, ph, pid, tid, ts, dur, args } in trace_events {
        match (ph.as_str(), name.as_str()) {
            ("M", "process_name") => {
                let (Some(rank), Some(host), Some(clock)) = (args.rank, args.host, args.clock) else { continue };
                ranks.insert(pid, RankTrace { rank, host, clock, spans: Vec::new(), gradients: Vec::new() });
            }
            ("M", "thread_name") => {
                lanes.extend(args.name.and_then(|title| Lane::from_title(&title)).map(|lane| (tid, lane)))
            }
            ("X", _) => {
                let (Some(rank), Some(lane)) = (ranks.get_mut(&pid), lanes.get(&tid)) else { continue };
                let pass =
                    |(kind, direction)| LayerPass { layer: 0, kind, direction, multiply_adds: 0, bytes: Bytes(0) };
                rank.spans.push(Span {
                    lane: *lane,
                    name,
                    iteration: args.iteration.unwrap_or(0),
                    begin_ns: (ts * 1e3).round() as i64,
                    length_ns: (dur * 1e3).round() as i64,
                    layer: args.kind.zip(args.direction).map(pass),
                    bucket: args.bucket,
                });
            }
            _ => {}
        }
    }
    ensure!(!ranks.is_empty(), "trace without ranks: it may be from another program");
    Ok(Timeline {
        title: about("run"),
        began_unix_seconds: about("began_unix_seconds").parse().unwrap_or(0.0),
        strategy: [about("strategy"), about("kv_store")].iter().find_map(|name| name.parse().ok()),
        exchange: about("exchange"),
        arrays: Vec::new(),
        ranks: ranks.into_values().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::timeline::tests::timeline;

    #[test]
    fn ranks_are_processes_and_lanes_are_threads() {
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
        let sum = events.iter().find(|event| event["name"] == "all-reduce" && event["pid"] == 2).expect("there");
        assert_eq!((&sum["ts"], &sum["dur"], &sum["args"]["bucket"]), (&json!(12.0), &json!(2.0), &json!(0)));
        let layer = events.iter().find(|event| event["name"] == "conv1").expect("there");
        assert_eq!((&layer["cat"], &layer["args"]["kind"]), (&json!("forward"), &json!("convolution")));
    }

    #[test]
    fn trace_round_trips() {
        let mut timeline = timeline();
        timeline.align();
        let mut text = Vec::new();
        write(&timeline, &mut text).expect("written");
        let read = read(&text[..]).expect("read");
        let about = |timeline: &Timeline| (timeline.title.clone(), timeline.exchange.clone(), timeline.strategy);
        assert_eq!(about(&read), about(&timeline));
        for (read, written) in read.ranks.iter().zip(&timeline.ranks) {
            assert_eq!((read.rank, &read.host, read.spans.len()), (written.rank, &written.host, written.spans.len()));
            for (read, written) in read.spans.iter().zip(&written.spans) {
                let described =
                    |span: &Span| (span.lane, span.name.clone(), span.iteration, span.begin_ns, span.length_ns);
                assert_eq!((described(read), read.bucket), (described(written), written.bucket));
            }
        }
        for text in ["[]", r#"{"traceEvents":[]}"#, "x"] {
            super::read(text.as_bytes()).expect_err(text);
        }
    }

    #[test]
    fn rounding_does_not_extend_spans() {
        let mut begin_ns = 1_234_567_891;
        for length_ns in (1..2000).map(|step| step * 7919 % 1_000_003) {
            let mut timeline = timeline();
            let rank = &mut timeline.ranks[0];
            rank.spans.truncate(1);
            (rank.spans[0].begin_ns, rank.spans[0].length_ns) = (begin_ns, length_ns);
            let event = event(rank, &rank.spans[0]);
            let end = event.ts.zip(event.dur).map(|(begin, duration)| begin + duration).expect("both");
            begin_ns += length_ns;
            assert!(end <= begin_ns as f64 / 1e3, "{end} is behind {begin_ns} ns");
            assert!(begin_ns as f64 / 1e3 - end < 1e-6, "{end} is far before {begin_ns} ns");
        }
    }
}
