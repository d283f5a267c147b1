//! Nesterov stochastic gradient descent, DLPerf's recipe, as one fused call over the flat tensors.
//!
//! `g = sum over ranks / ranks + decay x w; m = momentum x m + g; w -= rate x (g + momentum x m)`.

use anyhow::Result;
use ringmark_record::config::TrainConfig;
use tch::{Device, Kind, Tensor};

use crate::ffi::shim::{self, SgdStep};
use crate::flat_parameters::FlatParameters;
use crate::precision::Precision;

/// What the update needs beside the tensors.
pub struct Optimizer {
    config: TrainConfig,
    ranks: u32,
    /// The number of ranks whose gradients were summed: the fused call divides by it on the way.
    gradient_scale: Tensor,
}

impl Optimizer {
    /// For gradients summed over `summed` of `ranks` ranks.
    pub fn new(config: &TrainConfig, ranks: u32, summed: u32, device: Device) -> Result<Optimizer> {
        let gradient_scale = Tensor::f_full([] as [i64; 0], f64::from(summed), (Kind::Float, device))?;
        Ok(Optimizer { config: config.clone(), ranks, gradient_scale })
    }

    /// Update number `iteration`, from 1; skipped on the device where the loss scaler found an overflow.
    pub fn step(&self, iteration: u32, flat: &FlatParameters, precision: &mut Precision) -> Result<()> {
        let step = SgdStep {
            learning_rate: self.config.learning_rate_at(iteration, self.ranks),
            momentum: self.config.momentum,
            weight_decay: self.config.weight_decay,
        };
        let scaler = &mut precision.loss_scaler;
        if let Some(scaler) = scaler {
            scaler.unscale(&flat.gradients)?;
        }
        let found_inf = scaler.as_ref().map(|scaler| &scaler.found_inf);
        shim::sgd(&flat.weights, &flat.gradients, &flat.momenta, step, &self.gradient_scale, found_inf)?;
        if let Some(scaler) = scaler {
            scaler.update()?;
        }
        Ok(())
    }
}
