//! Collection of gradients into buckets: counts a bucket's gradients as backward completes them and starts its exchange
//! after the last one.
//!
//! Buckets start strictly in the plan's order on every rank, regardless of the order in which gradients complete.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, bail, ensure};
use ringmark_core::benchmark::exchange::{ExchangeConfig, Switch};
use ringmark_core::dimension::{Bytes, Operation, Phase};
use ringmark_core::host::Stage;
use ringmark_core::trace::Lane;
use ringmark_core::trace::span::EXCHANGE_OF_CALLER;
use tch::{Kind, Tensor};

use crate::exchange::backend::Backend;
use crate::exchange::bucket::{Bucket, BucketPlan};
use crate::exchange::compression::facts::CompressionFacts;
use crate::ffi::torch::shim::{self, GradientObserver};
use crate::job::heartbeat;
use crate::measure::mark::Mark;
use crate::measure::step_timer::{Blocked, InBackward};
use crate::measure::trace::recorder::{self, OpenSpan};

/// Destination of complete buckets, which sums them over the ranks.
pub trait GradientSink: Send {
    fn facts(&self) -> SinkFacts;

    /// Returns the flat tensor that receives the gradients of a bucket, one parameter after the other.
    fn wire(&mut self) -> Tensor;

    /// Returns the first element of the wire for the bucket with these elements of the gradients.
    fn place(&self, elements: &Range<usize>) -> usize {
        elements.start
    }

    /// Begins a backward pass of a step.
    fn begin(&mut self, _pass: BackwardPass) {}

    /// Makes the next bucket's place on the wire free: earlier gradients there are exchanged. Returns true if this
    /// waited.
    fn prepare(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// Starts the exchange of the bucket with these elements, which are complete and remain unchanged until the next
    /// step, or until another bucket has their place.
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
    /// True if the wire does not keep the gradients of a step's passes, so that each pass exchanges its own.
    pub exchanges_passes: bool,
}

impl SinkFacts {
    pub fn for_backend(backend: &dyn Backend, operation: Operation) -> SinkFacts {
        SinkFacts {
            exchanges_passes: false,
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

/// Position of a backward pass among those of a step, whose gradients are exchanged together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackwardPass {
    pub is_first: bool,
    /// True if the gradients are exchanged.
    pub is_last: bool,
}

impl BackwardPass {
    pub const ONLY: BackwardPass = BackwardPass { is_first: true, is_last: true };
}

/// Sums of the gradients of a step's backward passes, for a wire that would round them.
struct GradientSums {
    flat: Tensor,
    /// View of each parameter's range.
    views: Vec<Tensor>,
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
    pass: BackwardPass,
    /// `None` until a step has several passes, and if their gradients are added on the wire.
    sums: Option<GradientSums>,
    missing: Vec<usize>,
    /// Number of buckets whose gradients are on the wire.
    filled: usize,
    in_backward: InBackward,
    /// Error inside backward, which cannot return it.
    failure: Option<anyhow::Error>,
}

impl GradientReducer {
    /// Creates a reducer that exchanges the gradients of `source` through `sink`, in the buckets of `plan`. It is never
    /// freed, because backward calls it.
    pub fn new(
        overlap: Switch,
        plan: BucketPlan,
        GradientSource { parameters, ready_from }: GradientSource,
        mut sink: Box<dyn GradientSink>,
    ) -> Result<&'static GradientReducer> {
        let wire = sink.wire();
        let place = |Bucket { parameters: own, elements }: &Bucket| {
            views(&parameters[own.clone()], &wire, sink.place(elements))
        };
        let destinations = plan.buckets.iter().map(place).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
        let state = State {
            missing: Vec::new(),
            filled: 0,
            in_backward: InBackward::default(),
            failure: None,
            is_capturing: false,
            is_replayed: false,
            pass: BackwardPass::ONLY,
            sums: None,
            overlap: overlap == Switch::On,
            plan,
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

    /// Begins a backward pass of a step.
    pub fn begin(&self, pass: BackwardPass) -> Result<()> {
        let state = &mut *self.state();
        state.pass = if state.facts.exchanges_passes { BackwardPass::ONLY } else { pass };
        if !state.pass.is_last {
            state.allocate_sums()?;
        }
        state.sink.begin(pass);
        state.missing = state.plan.buckets.iter().map(|bucket| bucket.parameters.len()).collect();
        state.filled = 0;
        if pass.is_first {
            state.in_backward = InBackward::default();
        }
        state.is_replayed = false;
        Ok(())
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

    /// Ends a backward pass that is not the step's last: all its gradients must be complete. Finishes their exchange if
    /// each pass has its own.
    pub fn end_of_pass(&self) -> Result<()> {
        if self.sink_facts().exchanges_passes {
            return self.finish();
        }
        self.state().check_filled()
    }

    /// Returns the effect of this step's sums on backward; called after backward.
    pub fn in_backward(&self) -> InBackward {
        std::mem::take(&mut self.state().in_backward)
    }

    /// Starts the remaining buckets, then waits like [`GradientSink::finish`].
    pub fn finish(&self) -> Result<()> {
        let state = &mut *self.state();
        state.check_filled()?;
        let buckets = &state.plan.buckets;
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
/// consecutive, from element `first`.
pub fn views(parameters: &[Tensor], flat: &Tensor, first: usize) -> Result<Vec<Tensor>> {
    let mut offset = first as i64;
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

    fn check_filled(&mut self) -> Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let buckets = self.plan.buckets.len();
        ensure!(self.filled == buckets, "backward filled {} of {buckets} gradient buckets", self.filled);
        Ok(())
    }

    /// Allocates the sums of gradients if the wire has less precision than fp32.
    fn allocate_sums(&mut self) -> Result<()> {
        let wire = self.sink.wire();
        if self.sums.is_none() && matches!(wire.kind(), Kind::Half | Kind::BFloat16) {
            let flat = wire.f_empty_like()?.f_to_kind(Kind::Float)?;
            self.sums = Some(GradientSums { views: views(&self.parameters, &flat, 0)?, flat });
        }
        Ok(())
    }

    /// Moves the gradients of a complete bucket to the wire, or adds them to those of earlier passes.
    fn collect(&mut self, Bucket { parameters, elements }: Bucket) -> Result<()> {
        let BackwardPass { is_first, is_last } = self.pass;
        let sums = self.sums.as_ref().filter(|_| self.pass != BackwardPass::ONLY);
        let places = sums.map_or(&self.destinations, |sums| &sums.views);
        shim::take_gradients(&self.parameters[parameters.clone()], &places[parameters], !is_first)?;
        if let Some(sums) = sums.filter(|_| is_last) {
            let range = |flat: &Tensor| flat.f_narrow(0, elements.start as i64, elements.len() as i64);
            range(&self.sink.wire())?.f_copy_(&range(&sums.flat)?)?;
        }
        Ok(())
    }

    fn gradient_ready(&mut self, parameter: usize) -> Result<()> {
        let holds = |bucket: &Bucket| bucket.parameters.contains(&parameter);
        let Some(bucket) = self.plan.buckets.iter().position(holds) else {
            bail!("no bucket contains parameter {parameter}");
        };
        heartbeat::count_progress();
        let is_last = self.pass.is_last;
        if is_last {
            recorder::gradient_ready(parameter as u32);
        }
        self.missing[bucket] -= 1;
        while self.missing.get(self.filled) == Some(&0) {
            let bucket = self.plan.buckets[self.filled].clone();
            if is_last {
                recorder::bucket_filled(self.filled as u32);
            }
            if self.facts.exchanges_passes {
                self.prepare()?;
            }
            if self.ready_from == ReadyFrom::Backward {
                let copy = recorder::begin(Lane::Layers, "copy gradients", Some(self.filled as u32));
                self.collect(bucket.clone())?;
                copy.into_iter().for_each(OpenSpan::end);
            }
            if self.overlap && is_last {
                self.enter(self.filled);
                self.start(bucket.elements)?;
                if self.ready_from == ReadyFrom::Backward {
                    heartbeat::enter(Stage::Backward);
                }
            }
            self.filled += 1;
        }
        Ok(())
    }

    /// Waits for the place of a bucket, if an earlier one still has it.
    fn prepare(&mut self) -> Result<()> {
        let device = self.destinations[0].device();
        self.enter(self.filled);
        let begin = Mark::set(device)?;
        if self.sink.prepare()? {
            let wait = Blocked { phase: Phase::Backward, begin, end: Mark::set(device)? };
            self.in_backward.blocking_sums.push(wait);
        }
        heartbeat::enter(Stage::Backward);
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
            let sum = Blocked { phase: Phase::Backward, begin: before, end: Mark::set(device)? };
            self.in_backward.blocking_sums.push(sum);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;
    use crate::testing::seeded;

    /// A sink for a single rank.
    struct Alone(Tensor);

    impl GradientSink for Alone {
        fn facts(&self) -> SinkFacts {
            SinkFacts { operation: None, is_asynchronous: false, has_chunks: false, exchanges_passes: false }
        }

        fn wire(&mut self) -> Tensor {
            self.0.shallow_clone()
        }

        fn start(&mut self, _elements: Range<usize>) -> Result<()> {
            Ok(())
        }

        fn finish(&mut self) -> Result<()> {
            Ok(())
        }
    }

    /// Returns what is on a wire of type `kind` after backward of each loss, in buckets of one parameter.
    fn exchanged(kind: Kind, parameters: Vec<Tensor>, losses: &[Tensor]) -> Tensor {
        let elements: usize = parameters.iter().map(Tensor::numel).sum();
        let wire = Tensor::full([elements as i64], 7.0, (kind, Device::Cpu));
        let sizes = ExchangeConfig { bucket_mb: 0.0, ..ExchangeConfig::default() };
        let plan = plan(&parameters, &sizes);
        let source = GradientSource { parameters, ready_from: ReadyFrom::Backward };
        let sink = Box::new(Alone(wire.shallow_clone()));
        let reducer = GradientReducer::new(Switch::On, plan, source, sink).expect("hooks");
        for (index, loss) in losses.iter().enumerate() {
            let pass = BackwardPass { is_first: index == 0, is_last: index + 1 == losses.len() };
            reducer.begin(pass).expect("memory");
            shim::backward(loss, None).expect("gradients");
            reducer.end_of_pass().expect("every bucket");
        }
        reducer.finish().expect("every bucket");
        wire
    }

    #[test]
    fn gradients_of_parts_add_up_to_those_of_the_whole_batch() {
        let doubles = (Kind::Double, Device::Cpu);
        let _generator = seeded(3);
        let images = Tensor::randn([12, 5], doubles);
        let start = [Tensor::randn([7, 5], doubles), Tensor::randn([7], doubles), Tensor::randn([7], doubles)];
        let gradients = |lengths: &[i64]| {
            let parameters: Vec<Tensor> = start.iter().map(|tensor| tensor.copy().set_requires_grad(true)).collect();
            let mut first = 0;
            let loss = |length: i64| {
                let part = images.narrow(0, first, length);
                first += length;
                let hidden = part.linear(&parameters[0], Some(&parameters[1])).tanh();
                hidden.matmul(&parameters[2]).square().mean(Kind::Double) * (length as f64 / 12.0)
            };
            let losses: Vec<Tensor> = lengths.iter().copied().map(loss).collect();
            exchanged(Kind::Double, parameters, &losses)
        };
        let whole = gradients(&[12]);
        for lengths in [&[6, 6][..], &[4, 4, 4], &[5, 1, 5, 1]] {
            let difference = (gradients(lengths) - &whole).norm().double_value(&[]);
            assert!(difference < 1e-13 * whole.norm().double_value(&[]), "{lengths:?}: {difference}");
        }
        assert!((gradients(&[6]) - &whole).norm().double_value(&[]) > 0.1, "a part alone differs");
    }

    #[test]
    fn narrow_wire_carries_a_sum_rounded_once() {
        let parameter = Tensor::zeros([1], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        // fp16 has no number between 2048 and 2050: added one by one there, the ones would be lost.
        let losses = [2048.0, 1.0, 1.0, 1.0].map(|factor| parameter.sum(Kind::Float) * factor);
        let wire = exchanged(Kind::Half, vec![parameter.shallow_clone()], &losses);
        assert_eq!(wire.double_value(&[0]), 2052.0);
    }

    #[test]
    fn views_have_parameter_shape_and_strides() {
        let floats = (Kind::Float, Device::Cpu);
        let nhwc = Tensor::zeros([4, 3, 3, 2], floats).permute([0, 3, 1, 2]);
        let parameters = [Tensor::zeros([5], floats), nhwc, Tensor::zeros([2, 7], floats)];
        let flat = Tensor::arange(5 + 72 + 14, floats);
        let places = views(&parameters, &flat, 0).expect("they fit");
        let mut first = 0.0;
        for (place, parameter) in places.iter().zip(&parameters) {
            assert_eq!((place.size(), place.stride()), (parameter.size(), parameter.stride()));
            assert_eq!(place.f_min().expect("a number").double_value(&[]), first);
            first += parameter.numel() as f64;
            assert_eq!(place.f_max().expect("a number").double_value(&[]), first - 1.0);
        }
    }
}
