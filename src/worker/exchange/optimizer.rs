//! Nesterov stochastic gradient descent, DLPerf's recipe, as one fused call over the flat tensors.
//!
//! `g = sum over ranks / ranks + decay x w; m = momentum x m + g; w -= rate x (g + momentum x m)`.
//!
//! Both sides times the number of ranks: `G = sum + ranks x decay x w; M = momentum x M + G; w -= rate / ranks x (G +
//! momentum x M)`. The flat momenta hold M, and nobody has to divide the gradients, which would write all of them again.

use anyhow::Result;
use ringmark_record::config::TrainConfig;

use crate::ffi::shim::{self, SgdStep};
use crate::model::flat_parameters::FlatParameters;
use crate::model::precision::Precision;

/// What the update needs beside the tensors.
pub struct Optimizer {
    config: TrainConfig,
    ranks: u32,
    /// The number of ranks whose gradients were summed.
    summed: f64,
}

impl Optimizer {
    /// For gradients summed over `summed` of `ranks` ranks.
    pub fn new(config: &TrainConfig, ranks: u32, summed: u32) -> Optimizer {
        Optimizer { config: config.clone(), ranks, summed: f64::from(summed) }
    }

    /// Update number `iteration`, from 1; skipped on the device where the loss scaler found an overflow.
    pub fn step(&self, iteration: u32, flat: &FlatParameters, precision: &mut Precision) -> Result<()> {
        let step = SgdStep {
            learning_rate: self.config.learning_rate_at(iteration, self.ranks) / self.summed,
            momentum: self.config.momentum,
            weight_decay: self.config.weight_decay * self.summed,
        };
        let scaler = &mut precision.loss_scaler;
        if let Some(scaler) = scaler {
            scaler.unscale(&flat.gradients)?;
        }
        let found_inf = scaler.as_ref().map(|scaler| &scaler.found_inf);
        shim::sgd(&flat.weights, &flat.gradients, &flat.momenta, step, found_inf)?;
        if let Some(scaler) = scaler {
            scaler.update()?;
        }
        Ok(())
    }
}
