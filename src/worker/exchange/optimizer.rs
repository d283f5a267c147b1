//! Nesterov stochastic gradient descent, DLPerf's recipe, as one fused call over the flat tensors.
//!
//! `g = sum over ranks / ranks + decay x w; m = momentum x m + g; w -= rate x (g + momentum x m)`.
//!
//! Both sides times the number of ranks: `G = sum + ranks x decay x w; M = momentum x M + G; w -= rate / ranks x (G +
//! momentum x M)`. The flat momenta hold M, and nobody has to divide the gradients, which would write all of them again.

use anyhow::{Result, ensure};
use ringmark_record::benchmark::train::config::TrainConfig;
use ringmark_record::dimension::dtype::Dtype;
use tch::Tensor;

use crate::exchange::loss_scaler::LossScaler;
use crate::ffi::shim::{self, SgdStep};

/// The flat tensors of the update, all fp32 and of equal length, and its constants.
pub struct Optimizer {
    config: TrainConfig,
    ranks: RankCounts,
    weights: Tensor,
    /// Summed over the ranks.
    gradients: Tensor,
    /// Zero at first.
    momenta: Tensor,
    /// Only fp16 has one.
    loss_scaler: Option<LossScaler>,
}

/// How many ranks there are.
#[derive(Debug, Clone, Copy)]
pub struct RankCounts {
    /// In the job: the learning rate goes with them.
    pub all: u32,
    /// Those whose gradients are summed.
    pub summed: u32,
}

impl Optimizer {
    /// Updates `weights` by `gradients`.
    pub fn new(config: &TrainConfig, ranks: RankCounts, weights: Tensor, gradients: Tensor) -> Result<Optimizer> {
        let (length, wanted) = (gradients.numel(), weights.numel());
        ensure!(length == wanted, "{length} gradients for {wanted} parameters");
        let has_scaler = config.dtype == Dtype::Fp16;
        Ok(Optimizer {
            config: config.clone(),
            ranks,
            momenta: weights.f_zeros_like()?,
            loss_scaler: has_scaler.then(|| LossScaler::new(config.loss_scale, weights.device())).transpose()?,
            weights,
            gradients,
        })
    }

    /// Update number `update`, from 1; skipped on the device where the loss scaler found an overflow.
    pub fn step(&mut self, update: u32) -> Result<()> {
        let summed = f64::from(self.ranks.summed);
        let step = SgdStep {
            learning_rate: self.config.learning_rate_at(update, self.ranks.all) / summed,
            momentum: self.config.momentum,
            weight_decay: self.config.weight_decay * summed,
        };
        if let Some(scaler) = &mut self.loss_scaler {
            scaler.unscale(&self.gradients)?;
        }
        let found_inf = self.loss_scaler.as_ref().map(|scaler| &scaler.found_inf);
        shim::sgd(&self.weights, &self.gradients, &self.momenta, step, found_inf)?;
        if let Some(scaler) = &mut self.loss_scaler {
            scaler.update()?;
        }
        Ok(())
    }

    /// The scale of the loss, where there is one.
    pub fn loss_scaler(&self) -> Option<&LossScaler> {
        self.loss_scaler.as_ref()
    }
}
