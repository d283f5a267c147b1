//! Keeps what goes on in the traced iterations. Hooks of autograd, layers and backends tell it, on whatever thread they run;
//! where nothing is traced each asks one atomic and goes on.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::Result;
use ringmark_core::dimension::{Bytes, Phases};
use ringmark_core::trace::{Lane, LayerKind};
use ringmark_input::loader::stage::{ImageStage, StageSpan};
use tch::Device;

use crate::ffi::torch::nodes::NodeObserver;
use crate::measure::mark::Mark;

/// Whether the iteration that goes on is traced.
static IS_ON: AtomicBool = AtomicBool::new(false);

static RECORDER: Mutex<Option<Recorder>> = Mutex::new(None);

/// What is kept, its times still marks.
pub struct Recorder {
    device: Device,
    traced: RangeInclusive<u32>,
    /// That goes on.
    iteration: u32,
    /// Layers that its forward pass has come to.
    layers_passed: u32,
    /// Whose exchange is being started, if one's is.
    bucket: Option<u32>,
    /// Where this iteration's messages between hosts are kept, which are one span in each lane.
    messages: BTreeMap<Lane, usize>,
    /// Nodes of backward that have begun and not ended: one runs inside another where hooks call back.
    open_nodes: Vec<(u64, Mark)>,
    /// A mark that could not be set.
    failure: Option<anyhow::Error>,
    /// What was kept.
    pub kept: Kept,
}

/// What was kept.
#[derive(Default)]
pub struct Kept {
    pub spans: Vec<MarkedSpan>,
    pub layers: Vec<MarkedLayer>,
    pub nodes: Vec<MarkedNode>,
    /// Iteration, number of the gradient, when it was ready.
    pub gradients: Vec<(u32, u32, Mark)>,
    /// Iteration, bucket, when it was filled.
    pub filled: Vec<(u32, u32, Mark)>,
    pub phases: Vec<MarkedPhases>,
}

/// A span.
pub struct MarkedSpan {
    pub lane: Lane,
    pub name: Cow<'static, str>,
    pub iteration: u32,
    pub bucket: Option<u32>,
    pub begin: Mark,
    pub end: Mark,
}

/// A layer's forward pass.
pub struct MarkedLayer {
    /// Its place in the forward pass.
    pub number: u32,
    pub name: String,
    pub kind: LayerKind,
    pub iteration: u32,
    /// Numbers of the nodes that it made for backward.
    pub nodes: std::ops::Range<u64>,
    pub multiply_adds: u64,
    pub forward_bytes: Bytes,
    pub backward_bytes: Bytes,
    /// Whether backward also makes the gradient of its input.
    pub has_input_gradient: bool,
    pub begin: Mark,
    pub end: Mark,
}

/// A node of backward.
pub struct MarkedNode {
    pub iteration: u32,
    pub number: u64,
    pub begin: Mark,
    pub end: Mark,
}

/// An iteration's phases, each from the end of the one before.
pub struct MarkedPhases {
    pub iteration: u32,
    pub start: Mark,
    pub ends: Phases<Option<Mark>>,
}

/// A span that has begun: of the iteration that goes on then, however late it ends.
pub struct OpenSpan {
    lane: Lane,
    name: Cow<'static, str>,
    iteration: u32,
    bucket: Option<u32>,
    begin: Mark,
}

/// From now on these iterations are traced.
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
        kept: Kept::default(),
    });
}

/// Iteration `iteration` begins. Whether it is traced.
pub fn begin_iteration(iteration: u32) -> bool {
    let mut recorder = recorder();
    let Some(recorder) = &mut *recorder else { return false };
    let is_traced = recorder.traced.contains(&iteration);
    (recorder.iteration, recorder.layers_passed) = (iteration, 0);
    recorder.messages.clear();
    IS_ON.store(is_traced, Ordering::Relaxed);
    is_traced
}

/// The iteration is over: what follows until the next one is none of it.
pub fn end_iteration() {
    IS_ON.store(false, Ordering::Relaxed);
}

/// Nothing is traced any more. What was kept; fails with the first mark that could not be set.
pub fn stop() -> Result<Kept> {
    end_iteration();
    match recorder().take() {
        Some(Recorder { failure: Some(failure), .. }) => Err(failure),
        Some(Recorder { kept, .. }) => Ok(kept),
        None => Ok(Kept::default()),
    }
}

/// Whether the iteration that goes on is traced.
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Begins a span of the stream that this thread computes in; `None` where nothing is traced.
pub fn begin(lane: Lane, name: impl Into<Cow<'static, str>>, bucket: Option<u32>) -> Option<OpenSpan> {
    if !is_on() {
        return None;
    }
    let mut recorder = recorder();
    let recorder = recorder.as_mut()?;
    let begin = recorder.mark()?;
    Some(OpenSpan { lane, name: name.into(), iteration: recorder.iteration, bucket, begin })
}

/// The same of what this thread does on the host.
pub fn begin_on_host(lane: Lane, name: &'static str, bucket: Option<u32>) -> Option<OpenSpan> {
    if !is_on() {
        return None;
    }
    let begin = Mark::Host(Instant::now());
    Some(OpenSpan { lane, name: name.into(), iteration: recorder().as_ref()?.iteration, bucket, begin })
}

impl OpenSpan {
    /// Ends it where it began: in the stream, or on the host.
    pub fn end(self) {
        let OpenSpan { lane, name, iteration, bucket, begin } = self;
        let now = Instant::now();
        if let Some(recorder) = recorder().as_mut() {
            let end = match begin {
                Mark::Host(_) => Some(Mark::Host(now)),
                Mark::Device(_) => recorder.mark(),
            };
            let span = |end| MarkedSpan { lane, name, iteration, bucket, begin, end };
            recorder.kept.spans.extend(end.map(span));
        }
    }
}

/// `body`, which starts the exchange of bucket `number`: what a backend tells of meanwhile is of that.
pub fn of_bucket<Value>(number: u32, body: impl FnOnce() -> Value) -> Value {
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

/// Whose exchange is being started; `None` where it is no bucket's, and where nothing is traced.
pub fn bucket() -> Option<u32> {
    if is_on() { recorder().as_ref()?.bucket } else { None }
}

/// What a backend did in a stream of its own.
pub fn take_exchange(name: &'static str, begin: Mark, end: Mark) {
    with(|recorder| {
        let (iteration, bucket) = (recorder.iteration, recorder.bucket);
        let (lane, name) = (Lane::Exchange, name.into());
        recorder.kept.spans.push(MarkedSpan { lane, name, iteration, bucket, begin, end });
        Some(())
    });
}

/// A message of this bucket, or of none, that left at `begin` and has come now. Those of one iteration are under way side by
/// side: from the first to the last they are one span.
pub fn take_message(bucket: Option<u32>, begin: Instant) {
    let (lane, begin, end) =
        (bucket.map_or(Lane::BetweenHosts, Lane::Bucket), Mark::Host(begin), Mark::Host(Instant::now()));
    with(|Recorder { iteration, messages, kept: Kept { spans, .. }, .. }| {
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

/// What decode thread `thread` did to an image.
pub fn take_image(thread: u32, stages: &[StageSpan]) {
    for StageSpan { stage, begin, end } in stages {
        let name = match stage {
            ImageStage::Read => "read",
            ImageStage::Decode => "decode",
            ImageStage::Augment => "augment",
        };
        let (lane, begin, end) = (Lane::Decode(thread), Mark::Host(*begin), Mark::Host(*end));
        with(|Recorder { iteration, kept, .. }| {
            kept.spans.push(MarkedSpan { lane, name: name.into(), iteration: *iteration, bucket: None, begin, end });
            Some(())
        });
    }
}

/// The gradient of array `array` is ready.
pub fn gradient_ready(array: u32) {
    with(|recorder| {
        let mark = recorder.mark()?;
        recorder.kept.gradients.push((recorder.iteration, array, mark));
        Some(())
    });
}

/// The last gradient of bucket `bucket` is ready.
pub fn bucket_filled(bucket: u32) {
    with(|recorder| {
        let mark = recorder.mark()?;
        recorder.kept.filled.push((recorder.iteration, bucket, mark));
        Some(())
    });
}

/// The phases of an iteration that is over.
pub fn take_phases(iteration: u32, start: Mark, ends: Phases<Option<Mark>>) {
    let mut recorder = recorder();
    if let Some(recorder) = recorder.as_mut().filter(|recorder| recorder.traced.contains(&iteration)) {
        recorder.kept.phases.push(MarkedPhases { iteration, start, ends });
    }
}

/// A mark behind what this thread has given to the device; `None` where nothing is traced.
pub fn mark() -> Option<Mark> {
    if is_on() { recorder().as_mut()?.mark() } else { None }
}

/// A layer of the forward pass, in turn; its number is filled in.
pub fn take_layer(layer: MarkedLayer) {
    with(|recorder| {
        let (iteration, number) = (recorder.iteration, recorder.layers_passed);
        recorder.layers_passed += 1;
        recorder.kept.layers.push(MarkedLayer { iteration, number, ..layer });
        Some(())
    });
}

/// Hears of the nodes of backward.
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
            recorder.kept.nodes.push(MarkedNode { iteration: recorder.iteration, number, begin, end });
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

/// What `body` does with the recorder, where something is traced.
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

    /// One test: there is one recorder in a process.
    #[test]
    fn spans_are_of_the_iteration_that_they_began_in() {
        start(Device::Cpu, 1..=2);
        let message = |bucket| take_message(bucket, Instant::now());
        // Two sizes of a benchmark, which both count their iterations from 1.
        for _ in 0..2 {
            assert!(begin_iteration(1));
            let late = begin_on_host(Lane::Push(0), "push", Some(3)).expect("it is traced");
            (0..3).for_each(|_| message(Some(0)));
            message(None);
            assert_eq!((bucket(), of_bucket(4, bucket), bucket()), (None, Some(4), None));
            end_iteration();
            message(Some(0));
            assert!(begin_on_host(Lane::Push(0), "push", None).is_none());
            late.end();
        }
        assert!(begin_iteration(2) && !begin_iteration(3));
        let kept = stop().expect("every mark was set");
        let told = |span: &MarkedSpan| (span.lane, span.iteration, span.bucket);
        let of_size = [(Lane::Bucket(0), 1, Some(0)), (Lane::BetweenHosts, 1, None), (Lane::Push(0), 1, Some(3))];
        assert_eq!(kept.spans.iter().map(told).collect::<Vec<_>>(), [of_size, of_size].concat());
        assert!(begin_on_host(Lane::Push(0), "push", None).is_none());
    }
}
