//! Recorder of the traced iterations. Hooks of autograd, layers and backends call it on their threads; outside of
//! traced iterations each call reads one atomic and returns.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::Result;
use ringmark_core::dimension::{Bytes, Phase};
use ringmark_core::trace::{Lane, LayerKind};
use ringmark_input::loader::stage::{ImageStage, StageSpan};
use tch::Device;

use crate::ffi::torch::nodes::NodeObserver;
use crate::measure::mark::Mark;

static IS_ON: AtomicBool = AtomicBool::new(false);

static RECORDER: Mutex<Option<Recorder>> = Mutex::new(None);

/// Recorded marks and the state of the current iteration.
pub struct Recorder {
    device: Device,
    traced: RangeInclusive<u32>,
    iteration: u32,
    /// Number of layers that forward has passed in this iteration.
    layers_passed: u32,
    /// Bucket whose exchange is being started.
    bucket: Option<u32>,
    /// Index of the span of this iteration's messages between hosts, by lane.
    messages: BTreeMap<Lane, usize>,
    /// Nodes of backward that have started and not ended; they nest if hooks call back.
    open_nodes: Vec<(u64, Mark)>,
    failure: Option<anyhow::Error>,
    pub marks: RecordedMarks,
}

#[derive(Default)]
pub struct RecordedMarks {
    pub spans: Vec<MarkedSpan>,
    pub layers: Vec<MarkedLayer>,
    pub nodes: Vec<MarkedNode>,
    /// Iteration, index of the gradient, and mark of its completion.
    pub gradients: Vec<(u32, u32, Mark)>,
    /// Iteration, bucket, and mark of its completion.
    pub filled: Vec<(u32, u32, Mark)>,
    pub phases: Vec<MarkedPhases>,
}

pub struct MarkedSpan {
    pub lane: Lane,
    pub name: Cow<'static, str>,
    pub iteration: u32,
    pub bucket: Option<u32>,
    pub begin: Mark,
    pub end: Mark,
}

pub struct MarkedLayer {
    /// Index in the forward pass.
    pub number: u32,
    pub name: String,
    pub kind: LayerKind,
    pub iteration: u32,
    /// Numbers of the autograd nodes that it created.
    pub nodes: std::ops::Range<u64>,
    pub multiply_adds: u64,
    pub forward_bytes: Bytes,
    pub backward_bytes: Bytes,
    /// True if backward also computes the gradient of its input.
    pub has_input_gradient: bool,
    pub begin: Mark,
    pub end: Mark,
}

pub struct MarkedNode {
    pub iteration: u32,
    pub number: u64,
    pub begin: Mark,
    pub end: Mark,
}

/// Phases of an iteration; each starts at the end of the previous one.
pub struct MarkedPhases {
    pub iteration: u32,
    pub start: Mark,
    pub ends: Vec<(Phase, Mark)>,
}

/// A span that has started. It belongs to the iteration of its start, even if it ends later.
pub struct OpenSpan {
    lane: Lane,
    name: Cow<'static, str>,
    iteration: u32,
    bucket: Option<u32>,
    begin: Mark,
}

/// Starts the recorder; it records the iterations `traced`.
pub fn start(device: Device, traced: RangeInclusive<u32>) {
    *recorder() = Some(Recorder {
        device,
        traced,
        iteration: 0,
        layers_passed: 0,
        bucket: None,
        messages: BTreeMap::new(),
        open_nodes: Vec::new(),
        failure: None,
        marks: RecordedMarks::default(),
    });
}

/// Begins iteration `iteration`; returns true if it is traced.
pub fn begin_iteration(iteration: u32) -> bool {
    let mut recorder = recorder();
    let Some(recorder) = &mut *recorder else { return false };
    let is_traced = recorder.traced.contains(&iteration);
    (recorder.iteration, recorder.layers_passed) = (iteration, 0);
    recorder.messages.clear();
    IS_ON.store(is_traced, Ordering::Relaxed);
    is_traced
}

/// Ends the iteration: later events until the next one are not recorded.
pub fn end_iteration() {
    IS_ON.store(false, Ordering::Relaxed);
}

/// Stops the recorder and returns its marks. Fails with the first mark that could not be set.
pub fn stop() -> Result<RecordedMarks> {
    end_iteration();
    match recorder().take() {
        Some(Recorder { failure: Some(failure), .. }) => Err(failure),
        Some(Recorder { marks, .. }) => Ok(marks),
        None => Ok(RecordedMarks::default()),
    }
}

/// Returns true if the current iteration is traced.
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Begins a span on this thread's current stream; `None` outside of traced iterations.
pub fn begin(lane: Lane, name: impl Into<Cow<'static, str>>, bucket: Option<u32>) -> Option<OpenSpan> {
    if !is_on() {
        return None;
    }
    let mut recorder = recorder();
    let recorder = recorder.as_mut()?;
    let begin = recorder.mark()?;
    Some(OpenSpan { lane, name: name.into(), iteration: recorder.iteration, bucket, begin })
}

/// Begins a span of host time; `None` outside of traced iterations.
pub fn begin_on_host(lane: Lane, name: &'static str, bucket: Option<u32>) -> Option<OpenSpan> {
    if !is_on() {
        return None;
    }
    let begin = Mark::Host(Instant::now());
    Some(OpenSpan { lane, name: name.into(), iteration: recorder().as_ref()?.iteration, bucket, begin })
}

impl OpenSpan {
    /// Ends the span with a mark of the same kind as its start: on the stream or on the host.
    pub fn end(self) {
        let OpenSpan { lane, name, iteration, bucket, begin } = self;
        let now = Instant::now();
        if let Some(recorder) = recorder().as_mut() {
            let end = match begin {
                Mark::Host(_) => Some(Mark::Host(now)),
                Mark::Device(_) => recorder.mark(),
            };
            let span = |end| MarkedSpan { lane, name, iteration, bucket, begin, end };
            recorder.marks.spans.extend(end.map(span));
        }
    }
}

/// Runs `body`, which starts the exchange of bucket `number`: spans that a backend records meanwhile belong to it.
pub fn with_bucket<Value>(number: u32, body: impl FnOnce() -> Value) -> Value {
    let set = |bucket| {
        with(|recorder| {
            recorder.bucket = bucket;
            Some(())
        });
    };
    set(Some(number));
    let value = body();
    set(None);
    value
}

/// Returns the bucket whose exchange is being started; `None` if there is none, and outside of traced iterations.
pub fn bucket() -> Option<u32> {
    if is_on() { recorder().as_ref()?.bucket } else { None }
}

/// Records an operation on a backend's own stream.
pub fn record_exchange(name: &'static str, begin: Mark, end: Mark) {
    with(|recorder| {
        let (iteration, bucket) = (recorder.iteration, recorder.bucket);
        let (lane, name) = (Lane::Exchange, name.into());
        recorder.marks.spans.push(MarkedSpan { lane, name, iteration, bucket, begin, end });
        Some(())
    });
}

/// Records a message of `bucket`, if any, that was sent at `begin` and has arrived now. Messages of one iteration
/// overlap, so they form one span from the first to the last.
pub fn record_message(bucket: Option<u32>, begin: Instant) {
    let (lane, begin, end) =
        (bucket.map_or(Lane::BetweenHosts, Lane::Bucket), Mark::Host(begin), Mark::Host(Instant::now()));
    with(|Recorder { iteration, messages, marks: RecordedMarks { spans, .. }, .. }| {
        match messages.get(&lane) {
            Some(known) => spans[*known].end = end,
            None => {
                messages.insert(lane, spans.len());
                spans.push(MarkedSpan {
                    lane,
                    name: "between hosts".into(),
                    iteration: *iteration,
                    bucket,
                    begin,
                    end,
                });
            }
        }
        Some(())
    });
}

pub fn record_image(thread: u32, stages: &[StageSpan]) {
    for StageSpan { stage, begin, end } in stages {
        let name = match stage {
            ImageStage::Read => "read",
            ImageStage::Decode => "decode",
            ImageStage::Augment => "augment",
        };
        let (lane, begin, end) = (Lane::Decode(thread), Mark::Host(*begin), Mark::Host(*end));
        with(|Recorder { iteration, marks, .. }| {
            marks.spans.push(MarkedSpan { lane, name: name.into(), iteration: *iteration, bucket: None, begin, end });
            Some(())
        });
    }
}

pub fn gradient_ready(array: u32) {
    with(|recorder| {
        let mark = recorder.mark()?;
        recorder.marks.gradients.push((recorder.iteration, array, mark));
        Some(())
    });
}

pub fn bucket_filled(bucket: u32) {
    with(|recorder| {
        let mark = recorder.mark()?;
        recorder.marks.filled.push((recorder.iteration, bucket, mark));
        Some(())
    });
}

pub fn record_phases(iteration: u32, start: Mark, ends: Vec<(Phase, Mark)>) {
    let mut recorder = recorder();
    if let Some(recorder) = recorder.as_mut().filter(|recorder| recorder.traced.contains(&iteration)) {
        recorder.marks.phases.push(MarkedPhases { iteration, start, ends });
    }
}

/// Records a mark on this thread's current stream; `None` outside of traced iterations.
pub fn mark() -> Option<Mark> {
    if is_on() { recorder().as_mut()?.mark() } else { None }
}

/// Records the next layer of the forward pass and sets its number.
pub fn record_layer(layer: MarkedLayer) {
    with(|recorder| {
        let (iteration, number) = (recorder.iteration, recorder.layers_passed);
        recorder.layers_passed += 1;
        recorder.marks.layers.push(MarkedLayer { iteration, number, ..layer });
        Some(())
    });
}

pub struct Nodes;

impl NodeObserver for Nodes {
    fn node_begins(node: u64) {
        with(|recorder| {
            let begin = recorder.mark()?;
            recorder.open_nodes.push((node, begin));
            Some(())
        });
    }

    fn node_ends(node: u64) {
        with(|recorder| {
            let end = recorder.mark()?;
            let (number, begin) = recorder.open_nodes.pop_if(|(open, _)| *open == node)?;
            recorder.marks.nodes.push(MarkedNode { iteration: recorder.iteration, number, begin, end });
            Some(())
        });
    }
}

impl Recorder {
    fn mark(&mut self) -> Option<Mark> {
        match Mark::set(self.device) {
            Ok(mark) => Some(mark),
            Err(failure) => {
                self.failure.get_or_insert(failure);
                None
            }
        }
    }
}

/// Calls `body` with the recorder in a traced iteration.
fn with(body: impl FnOnce(&mut Recorder) -> Option<()>) {
    if is_on() {
        recorder().as_mut().and_then(body);
    }
}

fn recorder() -> MutexGuard<'static, Option<Recorder>> {
    RECORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A single test, because a process has only one recorder.
    #[test]
    fn spans_belong_to_the_iteration_of_their_start() {
        start(Device::Cpu, 1..=2);
        let message = |bucket| record_message(bucket, Instant::now());
        // Two message sizes of a benchmark, each counting iterations from 1.
        for _ in 0..2 {
            assert!(begin_iteration(1));
            let late = begin_on_host(Lane::Push(0), "push", Some(3)).expect("it is traced");
            (0..3).for_each(|_| message(Some(0)));
            message(None);
            assert_eq!((bucket(), with_bucket(4, bucket), bucket()), (None, Some(4), None));
            end_iteration();
            message(Some(0));
            assert!(begin_on_host(Lane::Push(0), "push", None).is_none());
            late.end();
        }
        assert!(begin_iteration(2) && !begin_iteration(3));
        let marks = stop().expect("every mark was set");
        let summary = |span: &MarkedSpan| (span.lane, span.iteration, span.bucket);
        let expected = [(Lane::Bucket(0), 1, Some(0)), (Lane::BetweenHosts, 1, None), (Lane::Push(0), 1, Some(3))];
        assert_eq!(marks.spans.iter().map(summary).collect::<Vec<_>>(), [expected, expected].concat());
        assert!(begin_on_host(Lane::Push(0), "push", None).is_none());
    }
}
