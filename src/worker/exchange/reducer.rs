//! Counts a bucket's gradients as backward completes them and starts its all-reduce with the last one.
//!
//! Buckets start strictly in the plan's order, on every rank, whatever order the gradients come in.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ringmark_record::config::Switch;
use ringmark_record::heartbeat::Phase;
use ringmark_record::units::Bytes;
use tch::Tensor;

use crate::exchange::backend::Collective;
use crate::exchange::bucket::{Bucket, BucketPlan};
use crate::ffi::shim::{self, GradientObserver};
use crate::job::heartbeat;
use crate::measure::mark::Mark;

/// What is reduced, by whom, and how far the current step is.
pub struct GradientReducer {
    state: Mutex<State>,
}

struct State {
    plan: BucketPlan,
    /// In backward order, as the plan counts them.
    parameters: Vec<Tensor>,
    /// Every parameter's place in the wire.
    destinations: Vec<Tensor>,
    collective: Box<dyn Collective>,
    /// Sums that were done when the plan was made.
    earlier_sums: usize,
    overlap: bool,

    /// Gradients that each bucket still waits for.
    missing: Vec<usize>,
    /// Buckets whose gradients are on the wire.
    filled: usize,
    /// Time that backward was held up by sums in this step.
    blocked: Duration,
    /// When this step's first sum was about to start; nothing that waits for another rank comes before it.
    joined: Option<Mark>,
    /// A failure inside backward, where it cannot be returned.
    failure: Option<anyhow::Error>,
}

impl GradientReducer {
    /// `destinations` are the parameters' places in the wire of `collective`, which leaves the sums where the optimizer
    /// reads. Lives as long as the process, because backward calls it.
    pub fn new(
        overlap: Switch,
        plan: BucketPlan,
        parameters: Vec<Tensor>,
        destinations: Vec<Tensor>,
        collective: Box<dyn Collective>,
    ) -> Result<&'static GradientReducer> {
        let state = State {
            missing: Vec::new(),
            filled: 0,
            blocked: Duration::ZERO,
            joined: None,
            failure: None,
            overlap: overlap == Switch::On,
            plan,
            parameters,
            destinations,
            collective,
            earlier_sums: 0,
        };
        let reducer: &'static GradientReducer = Box::leak(Box::new(GradientReducer { state: Mutex::new(state) }));
        shim::observe_gradients(&reducer.state().parameters, reducer)?;
        Ok(reducer)
    }

    /// Reduces in other buckets, and other pieces of MPI calls, from the next step on; none is under way.
    pub fn set_sizes(&self, plan: BucketPlan, piece_kb: u32) -> Result<()> {
        let state = &mut *self.state();
        state.earlier_sums = state.collective.check()?;
        state.plan = plan;
        state.collective.set_piece(piece_kb);
        Ok(())
    }

    /// Sizes of the buckets as fp32, in the order of backward.
    pub fn bucket_sizes(&self) -> Vec<Bytes> {
        self.state().plan.sizes()
    }

    /// Whether the length of an MPI call matters.
    pub fn calls_mpi(&self) -> bool {
        self.state().collective.calls_mpi()
    }

    /// Looks for errors of sums that are under way; the bucket that is being summed.
    pub fn check(&self) -> Result<u32> {
        let state = &mut *self.state();
        let done = state.collective.check()? - state.earlier_sums;
        Ok((done % state.plan.buckets.len().max(1)) as u32)
    }

    /// Before backward.
    pub fn begin(&self) {
        let mut state = self.state();
        state.missing = state.plan.buckets.iter().map(|bucket| bucket.parameters.len()).collect();
        state.filled = 0;
        state.blocked = Duration::ZERO;
        state.joined = None;
    }

    /// After backward: time that the sums held it up, and when the first of them was about to start, if one was.
    pub fn after_backward(&self) -> (Duration, Option<Mark>) {
        let mut state = self.state();
        (state.blocked, state.joined.take())
    }

    /// Starts what has not been started, waits as [`Collective::finish`] does.
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
                heartbeat::enter(Phase::AllReduce { bucket: number as u32 });
                state.collective.start(bucket.elements.clone())?;
            }
        }
        // An engine that knows better which one it waits for says so.
        heartbeat::enter(Phase::AllReduce { bucket: buckets.len().saturating_sub(1) as u32 });
        state.collective.finish()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    fn gradient_ready(&mut self, parameter: usize) -> Result<()> {
        let holds = |bucket: &Bucket| bucket.parameters.contains(&parameter);
        let Some(bucket) = self.plan.buckets.iter().position(holds) else {
            bail!("parameter {parameter} is in no bucket");
        };
        heartbeat::piece_is_through();
        self.missing[bucket] -= 1;
        while self.missing.get(self.filled) == Some(&0) {
            let Bucket { parameters, elements } = self.plan.buckets[self.filled].clone();
            shim::take_gradients(&self.parameters[parameters.clone()], &self.destinations[parameters])?;
            if self.overlap {
                if self.joined.is_none() {
                    // On CUDA an event behind this bucket's copies, in the stream that the engine has its sum wait for.
                    self.joined = Some(Mark::set(self.destinations[0].device())?);
                }
                let started = Instant::now();
                heartbeat::enter(Phase::AllReduce { bucket: self.filled as u32 });
                self.collective.start(elements)?;
                heartbeat::enter(Phase::Backward);
                self.blocked += started.elapsed();
            }
            self.filled += 1;
        }
        Ok(())
    }
}
