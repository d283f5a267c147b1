//! Horovod's timeline (horovod/common/timeline.cc, v0.28), for tools that read it: an array of events in which each array of
//! gradients is a process, with whole microseconds. ringmark negotiates nothing: its NEGOTIATE_ALLREDUCE is the time from the
//! first rank whose gradient is ready to the last.

use std::io::Write;

use anyhow::Result;
use serde_json::{Value, json};

use crate::trace::span::{GradientReady, Lane, RankTrace, Span};
use crate::trace::timeline::{GradientArray, Timeline};

/// Writes an aligned timeline, an event a line.
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
    let mut iterations: Vec<u32> =
        timeline.ranks.iter().flat_map(|rank| &rank.gradients).map(|ready| ready.iteration).collect();
    iterations.sort_unstable();
    iterations.dedup();
    let mut timed = Vec::new();
    for iteration in iterations {
        for array in 0..timeline.arrays.len() as u32 {
            timed.extend(exchange_of(timeline, iteration, array));
        }
    }
    // Stable: what begins and ends at one time stays in its order.
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

/// The events of one array in one iteration, each with its time; none where a rank's gradient is missing.
fn exchange_of(timeline: &Timeline, iteration: u32, array: u32) -> Vec<(i64, Value)> {
    let GradientArray { shape, bucket, .. } = &timeline.arrays[array as usize];
    let ready = |rank: &RankTrace| {
        let of_array = |ready: &&GradientReady| (ready.iteration, ready.array) == (iteration, array);
        Some((rank.rank, rank.gradients.iter().find(of_array)?.at_ns))
    };
    let Some(mut ready) = timeline.ranks.iter().map(ready).collect::<Option<Vec<(u32, i64)>>>() else {
        return Vec::new();
    };
    ready.sort_by_key(|(_, at)| *at);
    let (Some((_, first)), Some((_, last)), Some(rank_0)) = (ready.first(), ready.last(), timeline.ranks.first())
    else {
        return Vec::new();
    };
    let of_bucket = |lane: fn(Lane) -> bool| -> Option<(i64, i64)> {
        let is_one = |span: &&Span| lane(span.lane) && span.iteration == iteration && span.bucket == Some(*bucket);
        let spans = || rank_0.spans.iter().filter(is_one);
        Some((spans().map(|span| span.begin_ns).min()?, spans().map(Span::end_ns).max()?))
    };
    let copied = of_bucket(|lane| lane == Lane::Layers);
    let summed = of_bucket(|lane| lane == Lane::Exchange);
    let end = of_bucket(|lane| matches!(lane, Lane::Bucket(_))).map_or(*last, |(_, end)| end);

    let mut events = Events { process: array + 1, now: 0, events: Vec::new() };
    events.begin(*first, "NEGOTIATE_ALLREDUCE");
    for (rank, at) in &ready {
        events.mark(*at, &rank.to_string());
    }
    events.end(*last, None);
    events.begin(*last, "ALLREDUCE");
    let is_fused = timeline.arrays.iter().filter(|other| other.bucket == *bucket).count() > 1;
    if let (Some((begin, copied)), true) = (copied, is_fused) {
        events.activity("WAIT_FOR_OTHER_TENSOR_DATA", *last, begin);
        events.activity("MEMCPY_IN_FUSION_BUFFER", begin, copied);
    }
    let sum = format!("{}_ALLREDUCE", timeline.exchange.to_uppercase().replace('-', "_"));
    let (begin, _) = summed.unwrap_or((end, end));
    events.activity(&sum, begin, end);
    let shape = shape.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    events.end(end, Some(json!({ "dtype": "float32", "shape": format!("[{shape}]") })));
    events.events
}

/// Events of a process, of which none is before the one that was written before it.
struct Events {
    process: u32,
    now: i64,
    events: Vec<(i64, Value)>,
}

impl Events {
    fn at(&mut self, nanoseconds: i64) -> i64 {
        self.now = self.now.max(nanoseconds / 1000);
        self.now
    }

    fn begin(&mut self, nanoseconds: i64, name: &str) {
        let at = self.at(nanoseconds);
        self.events.push((at, json!({ "name": name, "ph": "B", "ts": at, "pid": self.process })));
    }

    fn mark(&mut self, nanoseconds: i64, name: &str) {
        let at = self.at(nanoseconds);
        self.events.push((at, json!({ "name": name, "ph": "X", "ts": at, "pid": self.process, "dur": 0 })));
    }

    fn end(&mut self, nanoseconds: i64, args: Option<Value>) {
        let at = self.at(nanoseconds);
        let mut event = json!({ "ph": "E", "ts": at, "pid": self.process });
        if let Some(args) = args {
            event["args"] = args;
        }
        self.events.push((at, event));
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
    fn an_array_is_negotiated_from_the_first_rank_to_the_last_and_then_summed() {
        let mut timeline = timeline();
        timeline.align();
        let mut text = Vec::new();
        write(&timeline, &mut text).expect("written");
        let events: Vec<Value> = serde_json::from_slice(&text).expect("an array");
        assert_eq!(events[0]["args"]["start_time_since_epoch_in_micros"], 1_700_000_000_000_000i64);
        assert_eq!(events[2]["args"]["name"], "conv1.weight");
        let told: Vec<String> = events[4..]
            .iter()
            .map(|event| format!("{} {} {}", event["ts"], event["ph"], event["name"]).replace(['"'], ""))
            .collect();
        let expected = [
            "9 B NEGOTIATE_ALLREDUCE",
            "9 X 0",
            "11 X 1",
            "11 E null",
            "11 B ALLREDUCE",
            "11 B SHARED_MEMORY_ALLREDUCE",
            "14 E null",
            "14 E null",
        ];
        assert_eq!(told, expected);
        assert_eq!(events[11]["args"]["shape"], "[8, 1, 5, 5]");
    }
}
