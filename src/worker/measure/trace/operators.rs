//! Spans of libtorch's operators and of kernels in the traced iterations.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use ringmark_core::trace::{Lane, Span, iteration_ranges};

use crate::ffi::torch::profiler::ProfiledEvent;
use crate::measure::trace::clock;

/// Converts the events that lie inside an iteration; `known` are the iterations' spans.
pub fn spans(mut events: Vec<ProfiledEvent>, known: &[Span]) -> Result<Vec<Span>> {
    let iterations = iteration_ranges(known);
    // The profiler's times count from 1970.
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as i64 - clock::now_ns()?;
    events.sort_by_key(|event| event.begin_ns);
    let mut threads: Vec<u64> = Vec::new();
    let mut spans = Vec::new();
    for ProfiledEvent { name, begin_ns, end_ns, thread, is_on_device } in events {
        let begin = begin_ns - since_1970;
        let Some((iteration, _)) = iterations.iter().find(|(_, range)| range.contains(&begin)) else { continue };
        let lane = if is_on_device {
            Lane::Kernels(thread as u32)
        } else {
            let known = threads.iter().position(|known| *known == thread);
            let number = known.unwrap_or(threads.len());
            if known.is_none() {
                threads.push(thread);
            }
            Lane::Operators(number as u32)
        };
        let length_ns = end_ns - begin_ns;
        spans.push(Span { lane, name, iteration: *iteration, begin_ns: begin, length_ns, layer: None, bucket: None });
    }
    Ok(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_belong_to_the_iteration_in_which_they_begin() {
        let now = clock::now_ns().expect("a time");
        let step = |iteration: u32, begin: i64| Span {
            lane: Lane::Step,
            name: "forward".to_owned(),
            iteration,
            begin_ns: now + begin,
            length_ns: 1_000_000_000,
            layer: None,
            bucket: None,
        };
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).expect("later").as_nanos() as i64;
        let event = |begin: i64, thread| ProfiledEvent {
            name: "aten::mm".to_owned(),
            begin_ns: since_1970 + begin,
            end_ns: since_1970 + begin + 7,
            thread,
            is_on_device: thread == 0,
        };
        // Half a second is more than the clocks may differ.
        let events = [(2_500_000_000, 99), (500_000_000, 42), (1_500_000_000, 42), (2_500_000_000, 0)]
            .map(|(begin, thread)| event(begin, thread));
        let found = spans(events.to_vec(), &[step(3, 0), step(4, 2_000_000_000)]).expect("converted");
        let found: Vec<_> = found.iter().map(|span| (span.lane, span.iteration, span.length_ns)).collect();
        assert_eq!(found, [(Lane::Operators(0), 3, 7), (Lane::Operators(1), 4, 7), (Lane::Kernels(0), 4, 7)]);
    }
}
