//! Horovod's timeline (horovod/common/timeline.cc, v0.28), for tools that read it: an array of events in which each
//! array of gradients is a process, with whole microseconds. ringmark does not negotiate: its NEGOTIATE_ALLREDUCE is
//! the time from the first rank whose gradient is ready to the last.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use serde_json::{Value, json};

use crate::dimension::Wire;
use crate::trace::span::{GradientReady, Lane};
use crate::trace::timeline::{GradientArray, Timeline};

/// Writes an aligned timeline, one event per line.
pub fn write(timeline: &Timeline, output: &mut impl Write) -> Result<()> {
    let mut events = vec![
        json!({ "name": "process_name", "ph": "M", "pid": 0,
                "args": { "start_time_since_epoch_in_micros": (timeline.began_unix_seconds * 1e6).round() as i64 } }),
        json!({ "name": "process_sort_index", "ph": "M", "pid": 0, "args": { "sort_index": 0 } }),
    ];
    for (array, GradientArray { name, .. }) in (0u32..).zip(&timeline.arrays) {
        let process = array + 1;
        events.push(json!({ "name": "process_name", "ph": "M", "pid": process, "args": { "name": name } }));
        events.push(
            json!({ "name": "process_sort_index", "ph": "M", "pid": process, "args": { "sort_index": process } }),
        );
    }
    let index = TimelineIndex::new(timeline);
    let mut timed: Vec<(i64, Value)> =
        index.ready.iter().flat_map(|(key, ready)| index.exchange_events(*key, ready)).collect();
    // A stable sort keeps the order of events at the same time.
    timed.sort_by_key(|(microseconds, _)| *microseconds);
    events.extend(timed.into_iter().map(|(_, event)| event));
    writeln!(output, "[")?;
    for (number, event) in events.iter().enumerate() {
        let separator = if number + 1 < events.len() { "," } else { "" };
        writeln!(output, "{event}{separator}")?;
    }
    writeln!(output, "]")?;
    Ok(())
}

/// Work of a rank on a bucket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    /// Copying gradients to the buffer of the exchange.
    Copy,
    /// Summing gradients, here or on a server.
    Sum,
    /// Whole exchange of the bucket.
    Whole,
}

impl Work {
    fn from_lane(lane: Lane) -> Option<Work> {
        match lane {
            Lane::Layers => Some(Work::Copy),
            Lane::Exchange | Lane::Push(_) | Lane::Pull(_) => Some(Work::Sum),
            Lane::Bucket(_) => Some(Work::Whole),
            Lane::Step | Lane::BetweenHosts | Lane::Decode(_) | Lane::Operators(_) | Lane::Kernels(_) => None,
        }
    }
}

/// Timeline indexed by iteration.
struct TimelineIndex<'a> {
    timeline: &'a Timeline,
    /// Ranks and the times at which the gradient of an array was ready, by iteration and array.
    ready: BTreeMap<(u32, u32), Vec<(i64, u32)>>,
    /// Start and end of rank 0's work, by iteration and bucket.
    work: BTreeMap<(u32, u32, Work), (i64, i64)>,
    /// Number of arrays in each bucket.
    arrays: BTreeMap<u32, usize>,
}

impl<'a> TimelineIndex<'a> {
    fn new(timeline: &'a Timeline) -> TimelineIndex<'a> {
        let mut index =
            TimelineIndex { timeline, ready: BTreeMap::new(), work: BTreeMap::new(), arrays: BTreeMap::new() };
        for rank in &timeline.ranks {
            for GradientReady { iteration, array, at_ns } in &rank.gradients {
                index.ready.entry((*iteration, *array)).or_default().push((*at_ns, rank.rank));
            }
        }
        index.ready.values_mut().for_each(|ready| ready.sort_unstable());
        for span in timeline.ranks.first().iter().flat_map(|rank| &rank.spans) {
            if let Some((bucket, work)) = span.bucket.zip(Work::from_lane(span.lane)) {
                let (begin, end) = index.work.entry((span.iteration, bucket, work)).or_insert((i64::MAX, i64::MIN));
                (*begin, *end) = (span.begin_ns.min(*begin), span.end_ns().max(*end));
            }
        }
        timeline.arrays.iter().for_each(|array| *index.arrays.entry(array.bucket).or_default() += 1);
        index
    }

    /// Returns the events of one array in one iteration with their times; none if a rank's gradient is missing.
    fn exchange_events(&self, (iteration, array): (u32, u32), ready: &[(i64, u32)]) -> Vec<(i64, Value)> {
        let (Some(GradientArray { shape, wire, bucket, .. }), Some((first, _)), Some((last, _))) =
            (self.timeline.arrays.get(array as usize), ready.first(), ready.last())
        else {
            return Vec::new();
        };
        if ready.len() < self.timeline.ranks.len() {
            return Vec::new();
        }
        let of_bucket = |work: Work| self.work.get(&(iteration, *bucket, work)).copied();
        let (copied, summed) = (of_bucket(Work::Copy), of_bucket(Work::Sum));
        let end = of_bucket(Work::Whole).map_or(*last, |(_, end)| end);

        let mut events = Events { process: array + 1, now: 0, opened: 0, events: Vec::new() };
        events.begin(*first, "NEGOTIATE_ALLREDUCE");
        for (at, rank) in ready {
            events.mark(*at, &rank.to_string());
        }
        events.end(*last, None);
        events.begin(*last, "ALLREDUCE");
        let is_fused = self.arrays.get(bucket).is_some_and(|arrays| *arrays > 1);
        if let (Some((begin, copied)), true) = (copied, is_fused) {
            events.activity("WAIT_FOR_OTHER_TENSOR_DATA", *last, begin);
            events.activity("MEMCPY_IN_FUSION_BUFFER", begin, copied);
        }
        let sum = format!("{}_ALLREDUCE", self.timeline.exchange.to_uppercase().replace('-', "_"));
        let (begin, _) = summed.unwrap_or((end, end));
        events.activity(&sum, begin, end);
        let shape = shape.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        events.end(end, Some(json!({ "dtype": horovod_dtype(*wire), "shape": format!("[{shape}]") })));
        events.events
    }
}

fn horovod_dtype(wire: Wire) -> &'static str {
    match wire {
        Wire::Fp32 => "float32",
        Wire::Fp16 => "float16",
        Wire::Bf16 => "bfloat16",
    }
}

/// Events of a process, in an order in which times never decrease.
struct Events {
    process: u32,
    now: i64,
    /// Time of the last begin or mark.
    opened: i64,
    events: Vec<(i64, Value)>,
}

impl Events {
    fn at(&mut self, nanoseconds: i64) -> i64 {
        self.now = self.now.max(nanoseconds / 1000);
        self.now
    }

    fn begin(&mut self, nanoseconds: i64, name: &str) {
        self.opened = self.at(nanoseconds);
        self.push(json!({ "name": name, "ph": "B", "ts": self.now, "pid": self.process }));
    }

    fn mark(&mut self, nanoseconds: i64, name: &str) {
        self.opened = self.at(nanoseconds);
        self.push(json!({ "name": name, "ph": "X", "ts": self.now, "pid": self.process, "dur": 0 }));
    }

    /// Ends at least a microsecond after the last begin or mark. Perfetto nests events without a length and takes an
    /// end at their time for their own, so that each later end would close the wrong event.
    fn end(&mut self, nanoseconds: i64, args: Option<Value>) {
        let at = self.at(nanoseconds.max((self.opened + 1) * 1000));
        let mut event = json!({ "ph": "E", "ts": at, "pid": self.process });
        if let Some(args) = args {
            event["args"] = args;
        }
        self.push(event);
    }

    fn push(&mut self, event: Value) {
        self.events.push((self.now, event));
    }

    fn activity(&mut self, name: &str, begin: i64, end: i64) {
        self.begin(begin, name);
        self.end(end, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::timeline::tests::timeline;

    #[test]
    fn array_is_negotiated_then_reduced() {
        let mut timeline = timeline();
        timeline.align();
        let mut text = Vec::new();
        write(&timeline, &mut text).expect("written");
        let events: Vec<Value> = serde_json::from_slice(&text).expect("an array");
        assert_eq!(events[0]["args"]["start_time_since_epoch_in_micros"], 1_700_000_000_000_000i64);
        assert_eq!(events[2]["args"]["name"], "conv1.weight");
        let described: Vec<String> = events[4..]
            .iter()
            .map(|event| format!("{} {} {}", event["ts"], event["ph"], event["name"]).replace(['"'], ""))
            .collect();
        let expected = [
            "9 B NEGOTIATE_ALLREDUCE",
            "9 X 0",
            "11 X 1",
            "12 E null",
            "12 B ALLREDUCE",
            "12 B SHARED_MEMORY_ALLREDUCE",
            "14 E null",
            "14 E null",
        ];
        assert_eq!(described, expected);
        assert_eq!(events[11]["args"], json!({ "dtype": "float16", "shape": "[8, 1, 5, 5]" }));
    }

    #[test]
    fn server_exchange_spans_push_to_pull() {
        let mut timeline = timeline();
        timeline.align();
        "tcp".clone_into(&mut timeline.exchange);
        for span in timeline.ranks[0].spans.iter_mut().filter(|span| span.lane == Lane::Exchange) {
            span.lane = Lane::Push(0);
        }
        let mut text = Vec::new();
        write(&timeline, &mut text).expect("written");
        let events: Vec<Value> = serde_json::from_slice(&text).expect("an array");
        let sum = events.iter().position(|event| event["name"] == "TCP_ALLREDUCE").expect("there");
        assert_eq!((&events[sum]["ts"], &events[sum + 1]["ts"]), (&json!(12), &json!(14)));
    }
}
