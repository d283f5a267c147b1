//! Collection of gradients into buckets: counts a bucket's gradients as backward completes them and starts its exchange
//! after the last one.
//!
//! Buckets start strictly in the plan's order on every rank, regardless of the order in which gradients complete.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, bail};
use ringmark_core::benchmark::exchange::{ExchangeConfig, Switch};
use ringmark_core::dimension::{Bytes, Operation};
use ringmark_core::host::Stage;
use ringmark_core::trace::Lane;
use ringmark_core::trace::span::EXCHANGE_OF_CALLER;
use tch::Tensor;

use crate::exchange::backend::Backend;
use crate::exchange::bucket::{Bucket, BucketPlan};
use crate::exchange::compression::facts::CompressionFacts;
use crate::ffi::torch::shim::{self, GradientObserver};
use crate::job::heartbeat;
use crate::measure::mark::Mark;
use crate::measure::step_timer::InBackward;
use crate::measure::trace::recorder::{self, OpenSpan};

/// Destination of complete buckets, which sums them over the ranks.
pub trait GradientSink: Send {
    fn facts(&self) -> SinkFacts;

    /// Returns the flat tensor that receives the gradients, one parameter after the other.
    fn wire(&mut self) -> Tensor;

    /// Starts the exchange of these elements of the wire, which are complete and remain unchanged until the next step.
    /// Every rank starts the same ranges in the same order.
    fn start(&mut self, elements: Range<usize>) -> Result<()>;

    /// Makes work that the caller does next depend on everything started so far; on the CPU, waits for its completion.
    fn finish(&mut self) -> Result<()>;

    /// Calls `action` with the backend; does nothing if servers exchange the buckets.
    fn with_backend(&mut self, _action: &mut dyn FnMut(&mut dyn Backend)) {}

    /// Checks pending work for errors without waiting; returns the number of ranges completed since the start.
    fn check(&mut self) -> Result<usize> {
        let mut done = Ok(0);
        self.with_backend(&mut |backend| done = backend.check());
        done
    }

    /// Returns code sizes and residual norm if gradients are compressed.
    fn compression(&self) -> Option<CompressionFacts> {
        None
    }
}

/// Constant properties of a sink.
#[derive(Debug, Clone, Copy)]
pub struct SinkFacts {
    /// Collective that exchanges a bucket; `None` with servers.
    pub operation: Option<Operation>,
    /// True if started work runs concurrently with the caller.
    pub is_asynchronous: bool,
    /// True if the length of an MPI call matters.
    pub has_chunks: bool,
}

impl SinkFacts {
    pub fn for_backend(backend: &dyn Backend, operation: Operation) -> SinkFacts {
        SinkFacts {
            operation: Some(operation),
            is_asynchronous: backend.is_asynchronous(),
            has_chunks: backend.has_chunks(),
        }
    }
}

/// Source of the signal that a gradient is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadyFrom {
    /// Backward; gradients are copied from the parameters to the wire.
    Backward,
    /// The caller, which has written the gradients to the wire.
    Caller,
}

pub struct GradientSource {
    pub parameters: Vec<Tensor>,
    pub ready_from: ReadyFrom,
}

/// State of the gradient reduction in the current step.
pub struct GradientReducer {
    state: Mutex<State>,
}

struct State {
    plan: BucketPlan,
    /// Parameters in the order of the plan, which is that of backward.
    parameters: Vec<Tensor>,
    /// View of each parameter's range of the wire.
    destinations: Vec<Tensor>,
    ready_from: ReadyFrom,
    sink: Box<dyn GradientSink>,
    facts: SinkFacts,
    /// Number of sums completed before the current plan.
    earlier_sums: usize,
    overlap: bool,

    /// True during a capture, when the device does not run what is started.
    is_capturing: bool,
    /// True if the current step is a replay, whose completed buckets are unknown.
    is_replayed: bool,
    missing: Vec<usize>,
    /// Number of buckets whose gradients are on the wire.
    filled: usize,
    in_backward: InBackward,
    /// Error inside backward, which cannot return it.
    failure: Option<anyhow::Error>,
}

impl GradientReducer {
    /// Creates a reducer that exchanges the gradients of `source` through `sink`, in buckets of `sizes`. It is never
    /// freed, because backward calls it.
    pub fn new(
        overlap: Switch,
        sizes: &ExchangeConfig,
        GradientSource { parameters, ready_from }: GradientSource,
        mut sink: Box<dyn GradientSink>,
    ) -> Result<&'static GradientReducer> {
        let destinations = views(&parameters, &sink.wire())?;
        let state = State {
            missing: Vec::new(),
            filled: 0,
            in_backward: InBackward::default(),
            failure: None,
            is_capturing: false,
            is_replayed: false,
            overlap: overlap == Switch::On,
            plan: plan(&parameters, sizes),
            parameters,
            destinations,
            ready_from,
            facts: sink.facts(),
            sink,
            earlier_sums: 0,
        };
        let reducer: &'static GradientReducer = Box::leak(Box::new(GradientReducer { state: Mutex::new(state) }));
        if ready_from == ReadyFrom::Backward {
            shim::observe_gradients(&reducer.state().parameters, reducer)?;
        }
        Ok(reducer)
    }

    /// Uses other buckets and other chunks of MPI calls from the next step on. No sum may be pending.
    pub fn set_sizes(&self, sizes: &ExchangeConfig) -> Result<()> {
        let state = &mut *self.state();
        state.earlier_sums = state.sink.check()?;
        state.plan = plan(&state.parameters, sizes);
        state.sink.with_backend(&mut |backend| backend.set_chunk(sizes.chunk_kb));
        Ok(())
    }

    /// Returns the wire, for callers that fill it without backward.
    pub fn wire(&self) -> Tensor {
        self.state().sink.wire()
    }

    pub fn buckets(&self) -> Vec<Range<usize>> {
        self.state().plan.buckets.iter().map(|bucket| bucket.elements.clone()).collect()
    }

    /// Returns the sizes of the buckets as fp32, in the order of backward.
    pub fn bucket_sizes(&self) -> Vec<Bytes> {
        self.state().plan.sizes()
    }

    pub fn sink_facts(&self) -> SinkFacts {
        self.state().facts
    }

    /// Returns code sizes and residual norm if gradients are compressed.
    pub fn compression(&self) -> Option<CompressionFacts> {
        self.state().sink.compression()
    }

    /// Checks pending sums for errors; returns the stage of the wait for the next one.
    pub fn check(&self) -> Result<Stage> {
        let state = &mut *self.state();
        let done = state.sink.check()? - state.earlier_sums;
        let bucket = (done % state.plan.buckets.len().max(1)) as u32;
        Ok(state.stage(Some(bucket).filter(|_| !state.is_replayed)).unwrap_or(Stage::Pulling))
    }

    /// Begins a step; called before backward.
    pub fn begin(&self) {
        let mut state = self.state();
        state.missing = state.plan.buckets.iter().map(|bucket| bucket.parameters.len()).collect();
        state.filled = 0;
        state.in_backward = InBackward::default();
        state.is_replayed = false;
    }

    /// Announces the start of a capture, or its end even if it failed.
    pub fn set_capturing(&self, is_capturing: bool) {
        let state = &mut *self.state();
        state.is_capturing = is_capturing;
        state.sink.with_backend(&mut |backend| backend.set_capturing(is_capturing));
        if !is_capturing {
            state.failure = None;
        }
    }

    /// Records a step whose backward and sums were replayed.
    pub fn replayed(&self) -> InBackward {
        let mut state = self.state();
        state.is_replayed = true;
        heartbeat::count_progress();
        InBackward { has_replayed_sums: state.facts.is_asynchronous, ..InBackward::default() }
    }

    /// Returns the effect of this step's sums on backward; called after backward.
    pub fn in_backward(&self) -> InBackward {
        std::mem::take(&mut self.state().in_backward)
    }

    /// Starts the remaining buckets, then waits like [`GradientSink::finish`].
    pub fn finish(&self) -> Result<()> {
        let state = &mut *self.state();
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        let buckets = &state.plan.buckets;
        if state.filled < buckets.len() {
            bail!("backward filled {} of {} gradient buckets", state.filled, buckets.len());
        }
        if !state.overlap {
            for (number, bucket) in buckets.iter().enumerate() {
                state.enter(number);
                start(&mut *state.sink, state.facts, number, bucket.elements.clone())?;
            }
        }
        // A sink with more precise information reports another bucket.
        state.enter(buckets.len().saturating_sub(1));
        // The computing stream waits for work on the exchange stream.
        let lane = if state.facts.is_asynchronous { Lane::Layers } else { Lane::Exchange };
        let span = recorder::begin(lane, "wait for the rest", None);
        state.sink.finish()?;
        span.into_iter().for_each(OpenSpan::end);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the exchange of bucket `number`. An asynchronous sink records its own spans.
fn start(sink: &mut dyn GradientSink, facts: SinkFacts, number: usize, elements: Range<usize>) -> Result<()> {
    let span = (!facts.is_asynchronous)
        .then(|| recorder::begin(Lane::Exchange, EXCHANGE_OF_CALLER, Some(number as u32)))
        .flatten();
    recorder::with_bucket(number as u32, || sink.start(elements))?;
    span.into_iter().for_each(OpenSpan::end);
    Ok(())
}

pub fn plan(parameters: &[Tensor], sizes: &ExchangeConfig) -> BucketPlan {
    let lengths: Vec<usize> = parameters.iter().map(Tensor::numel).collect();
    BucketPlan::new(&lengths, sizes.bucket(), sizes.tail())
}

/// Returns a view of each parameter's range of `flat`, shaped and strided like the parameter. The ranges are
/// consecutive.
fn views(parameters: &[Tensor], flat: &Tensor) -> Result<Vec<Tensor>> {
    let mut offset = 0;
    let place = |parameter: &Tensor| {
        let length = parameter.numel() as i64;
        let range = flat.f_narrow(0, offset, length)?;
        offset += length;
        Ok(range.f_as_strided(parameter.size(), parameter.stride(), None)?)
    };
    parameters.iter().map(place).collect()
}

impl GradientObserver for GradientReducer {
    fn gradient_ready(&self, parameter: usize) {
        let state = &mut *self.state();
        if state.failure.is_none() {
            state.failure = state.gradient_ready(parameter).err();
        }
    }
}

impl State {
    /// Returns the stage of waiting for the exchange of this bucket; `None` is any bucket.
    fn stage(&self, bucket: Option<u32>) -> Option<Stage> {
        let operation = self.facts.operation?;
        Some(Stage::Exchange { operation, bucket })
    }

    fn enter(&self, bucket: usize) {
        if let Some(stage) = self.stage(Some(bucket as u32)) {
            heartbeat::enter(stage);
        }
    }

    fn gradient_ready(&mut self, parameter: usize) -> Result<()> {
        let holds = |bucket: &Bucket| bucket.parameters.contains(&parameter);
        let Some(bucket) = self.plan.buckets.iter().position(holds) else {
            bail!("no bucket contains parameter {parameter}");
        };
        heartbeat::count_progress();
        recorder::gradient_ready(parameter as u32);
        self.missing[bucket] -= 1;
        while self.missing.get(self.filled) == Some(&0) {
            let Bucket { parameters, elements } = self.plan.buckets[self.filled].clone();
            recorder::bucket_filled(self.filled as u32);
            if self.ready_from == ReadyFrom::Backward {
                let copy = recorder::begin(Lane::Layers, "copy gradients", Some(self.filled as u32));
                shim::take_gradients(&self.parameters[parameters.clone()], &self.destinations[parameters])?;
                copy.into_iter().for_each(OpenSpan::end);
            }
            if self.overlap {
                self.enter(self.filled);
                self.start(elements)?;
                if self.ready_from == ReadyFrom::Backward {
                    heartbeat::enter(Stage::Backward);
                }
            }
            self.filled += 1;
        }
        Ok(())
    }

    /// Starts a sum inside backward. The mark on CUDA is an event after this bucket's copies, on the stream that the
    /// sum waits for: it excludes the host's time to enqueue the sum.
    fn start(&mut self, elements: Range<usize>) -> Result<()> {
        let device = self.destinations[0].device();
        let is_asynchronous = self.facts.is_asynchronous;
        // A mark inside a capture has no time.
        if self.is_capturing || is_asynchronous && self.in_backward.first_sum.is_some() {
            return start(&mut *self.sink, self.facts, self.filled, elements);
        }
        let before = Mark::set(device)?;
        start(&mut *self.sink, self.facts, self.filled, elements)?;
        if is_asynchronous {
            self.in_backward.first_sum = Some(before);
        } else {
            self.in_backward.blocking_sums.push((before, Mark::set(device)?));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    #[test]
    fn views_have_parameter_shape_and_strides() {
        let floats = (Kind::Float, Device::Cpu);
        let nhwc = Tensor::zeros([4, 3, 3, 2], floats).permute([0, 3, 1, 2]);
        let parameters = [Tensor::zeros([5], floats), nhwc, Tensor::zeros([2, 7], floats)];
        let flat = Tensor::arange(5 + 72 + 14, floats);
        let places = views(&parameters, &flat).expect("they fit");
        let mut first = 0.0;
        for (place, parameter) in places.iter().zip(&parameters) {
            assert_eq!((place.size(), place.stride()), (parameter.size(), parameter.stride()));
            assert_eq!(place.f_min().expect("a number").double_value(&[]), first);
            first += parameter.numel() as f64;
            assert_eq!(place.f_max().expect("a number").double_value(&[]), first - 1.0);
        }
    }
}
