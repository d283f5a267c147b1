//! Counts a bucket's gradients as backward completes them and starts its all-reduce with the last one.
//!
//! Buckets start strictly in the plan's order, on every rank, whatever order the gradients come in.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ringmark_record::config::{Switch, TrainConfig};
use tch::{Kind, Tensor};

use crate::collective::Collective;
use crate::collective::bucket::{Bucket, BucketPlan};
use crate::ffi::shim::{self, GradientObserver};

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
    /// Every bucket's stretch of the wire.
    stretches: Vec<Tensor>,
    wire: Tensor,
    /// Where the optimizer reads: the wire itself, unless that is of half precision.
    gradients: Tensor,
    collective: Box<dyn Collective>,
    overlap: bool,

    /// Gradients that each bucket still waits for.
    missing: Vec<usize>,
    /// Buckets whose gradients are on the wire.
    filled: usize,
    /// Time that backward was held up by sums in this step.
    blocked: Duration,
    /// A failure inside backward, where it cannot be returned.
    failure: Option<anyhow::Error>,
}

impl GradientReducer {
    /// `wire` and `destinations` are the memory that is exchanged and every parameter's view of it, fp32 or fp16;
    /// `gradients` are the flat fp32 gradients. Lives as long as the process, because backward calls it.
    pub fn new(
        config: &TrainConfig,
        plan: BucketPlan,
        parameters: Vec<Tensor>,
        (wire, destinations): (Tensor, Vec<Tensor>),
        gradients: Tensor,
        collective: Box<dyn Collective>,
    ) -> Result<&'static GradientReducer> {
        let stretch = |bucket: &Bucket| wire.f_narrow(0, bucket.elements.start as i64, bucket.elements.len() as i64);
        let stretches = plan.buckets.iter().map(stretch).collect::<Result<_, _>>()?;
        let observed: Vec<Tensor> = parameters.iter().map(Tensor::shallow_clone).collect();
        let state = State {
            missing: Vec::new(),
            filled: 0,
            blocked: Duration::ZERO,
            failure: None,
            overlap: config.overlap == Switch::On,
            plan,
            parameters,
            destinations,
            stretches,
            wire,
            gradients,
            collective,
        };
        let reducer: &'static GradientReducer = Box::leak(Box::new(GradientReducer { state: Mutex::new(state) }));
        shim::observe_gradients(&observed, reducer)?;
        Ok(reducer)
    }

    /// Before backward.
    pub fn begin(&self) {
        let mut state = self.state();
        state.missing = state.plan.buckets.iter().map(|bucket| bucket.parameters.len()).collect();
        state.filled = 0;
        state.blocked = Duration::ZERO;
    }

    /// After backward: time that the sums held it up.
    pub fn blocked(&self) -> Duration {
        self.state().blocked
    }

    /// Starts what has not been started, waits as [`Collective::finish`] does, and leaves the summed gradients in the
    /// flat fp32 tensor.
    pub fn finish(&self) -> Result<()> {
        let state = &mut *self.state();
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        if state.filled < state.stretches.len() {
            bail!("backward filled {} of {} gradient buckets", state.filled, state.stretches.len());
        }
        if !state.overlap {
            for stretch in &state.stretches {
                state.collective.start(stretch)?;
            }
        }
        state.collective.finish()?;
        if state.wire.kind() != Kind::Float {
            state.gradients.f_copy_(&state.wire)?;
        }
        Ok(())
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
        self.missing[bucket] -= 1;
        while self.missing.get(self.filled) == Some(&0) {
            let parameters = self.plan.buckets[self.filled].parameters.clone();
            shim::take_gradients(&self.parameters[parameters.clone()], &self.destinations[parameters])?;
            if self.overlap {
                let started = Instant::now();
                self.collective.start(&self.stretches[self.filled])?;
                self.blocked += started.elapsed();
            }
            self.filled += 1;
        }
        Ok(())
    }
}
