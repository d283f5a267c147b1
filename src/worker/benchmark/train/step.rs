//! The body of the hot loop: forward, backward with the all-reduce inside it, update.

use anyhow::Result;
use ringmark_record::config::{Fault, TrainConfig};
use ringmark_record::heartbeat::Phase;
use tch::{Device, Kind, Reduction, Tensor};

use crate::data::batch::Batch;
use crate::exchange::optimizer::Optimizer;
use crate::exchange::reducer::GradientReducer;
use crate::ffi::shim;
use crate::job::heartbeat;
use crate::measure::step_timer::StepTimer;
use crate::model::flat_parameters::FlatParameters;
use crate::model::precision::Precision;
use crate::model::resnet::{Mode, ResNet50};

/// Everything that one iteration touches.
pub struct Step {
    pub model: ResNet50,
    pub flat: FlatParameters,
    pub batch: Batch,
    pub precision: Precision,
    pub reducer: &'static GradientReducer,
    pub optimizer: Optimizer,
    mode: Mode,
    /// What stands in the timer's values where there is no loss scaler.
    one: Tensor,
    zero: Tensor,
    /// Iteration whose gradient is to overflow on this rank.
    overflow: Option<u32>,
    /// What this rank's forward is to take longer, as a share of it.
    slower: Option<f64>,
}

impl Step {
    /// Puts the parts together for `rank`.
    pub fn new(
        config: &TrainConfig,
        rank: u32,
        device: Device,
        (model, flat, batch): (ResNet50, FlatParameters, Batch),
        precision: Precision,
        (reducer, optimizer): (&'static GradientReducer, Optimizer),
    ) -> Result<Step> {
        let scalar = |value: f64| Tensor::f_full([] as [i64; 0], value, (Kind::Float, device));
        Ok(Step {
            model,
            flat,
            batch,
            precision,
            reducer,
            optimizer,
            mode: if config.freeze_batch_norm { Mode::FrozenBatchNorm } else { Mode::Train },
            one: scalar(1.0)?,
            zero: scalar(0.0)?,
            overflow: match config.inject {
                Some(Fault::Overflow { iteration }) if rank == 0 => Some(iteration),
                _ => None,
            },
            slower: match config.inject {
                Some(Fault::Slow { rank: slow, percent }) if slow == rank => Some(f64::from(percent) / 100.0),
                _ => None,
            },
        })
    }

    /// Iteration `iteration`, from 1. On CUDA this returns when everything is enqueued.
    pub fn run(&mut self, iteration: u32, timer: &mut StepTimer) -> Result<()> {
        let mut marks = timer.begin()?;
        heartbeat::enter_in(iteration, Phase::Forward);
        let loss = self.forward()?;
        if let Some(share) = self.slower {
            marks.spin(share)?;
        }
        marks.set()?;

        heartbeat::enter(Phase::Backward);
        self.reducer.begin();
        self.backward(&loss, iteration)?;
        marks.set()?;
        let joining = self.reducer.after_backward();

        self.reducer.finish()?;
        marks.set()?;

        heartbeat::enter(Phase::Optimizer);
        self.optimizer.step(iteration, &self.flat, &mut self.precision)?;
        marks.set()?;

        let (scale, found_inf) = match &self.precision.loss_scaler {
            Some(scaler) => (&scaler.scale, &scaler.found_inf),
            None => (&self.one, &self.zero),
        };
        timer.end(marks, joining, [&loss, scale, found_inf])
    }

    /// Forward, backward and all-reduce, without the update: only running statistics change.
    pub fn rehearse(&self) -> Result<()> {
        heartbeat::enter(Phase::Forward);
        let loss = self.forward()?;
        heartbeat::enter(Phase::Backward);
        self.reducer.begin();
        self.backward(&loss, 0)?;
        self.reducer.finish()
    }

    /// Mean cross entropy over the batch.
    fn forward(&self) -> Result<Tensor> {
        self.flat.round()?;
        self.precision.forward(|| {
            let scores = self.model.forward(&self.batch.images, self.mode)?;
            Ok(scores.f_cross_entropy_loss(&self.batch.labels, None::<&Tensor>, Reduction::Mean, -100, 0.0)?)
        })
    }

    fn backward(&self, loss: &Tensor, iteration: u32) -> Result<()> {
        if self.overflow == Some(iteration) {
            return shim::backward(loss, Some(&loss.f_full_like(f64::INFINITY)?));
        }
        shim::backward(loss, self.precision.loss_gradient())
    }
}
