//! Dynamic loss scaling, for fp16: PyTorch's GradScaler on the device, so that no step waits for the host.

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use crate::ffi::torch::shim;

/// GradScaler's: double after 2000 steps without an overflow, halve at every one.
const GROWTH: f64 = 2.0;
const BACKOFF: f64 = 0.5;
const GROWTH_INTERVAL: i64 = 2000;

/// Every member is a device tensor of one element.
pub struct LossScaler {
    /// What the loss is multiplied by.
    pub scale: Tensor,
    /// 1 where the last gradient was not finite and its step is skipped, otherwise 0.
    pub found_inf: Tensor,
    growth_tracker: Tensor,
}

impl LossScaler {
    /// Starts at the scale `first`.
    pub fn new(first: f64, device: Device) -> Result<LossScaler> {
        Ok(LossScaler {
            scale: Tensor::f_full([] as [i64; 0], first, (Kind::Float, device))?,
            found_inf: Tensor::f_zeros([] as [i64; 0], (Kind::Float, device))?,
            growth_tracker: Tensor::f_zeros([] as [i64; 0], (Kind::Int, device))?,
        })
    }

    /// Takes the scale out of `gradients` and sets [`found_inf`](LossScaler::found_inf). The gradients are those summed
    /// over all ranks, so that all come to the same answer.
    pub fn unscale(&mut self, gradients: &Tensor) -> Result<()> {
        let _ = self.found_inf.f_zero_()?;
        shim::unscale(gradients, &self.found_inf, &self.scale.f_reciprocal()?)
    }

    /// What the next step follows from, by name.
    pub fn state(&self) -> [(&'static str, Tensor); 2] {
        [("loss_scale", self.scale.shallow_clone()), ("growth_tracker", self.growth_tracker.shallow_clone())]
    }

    /// Moves the scale for the next step.
    pub fn update(&mut self) -> Result<()> {
        let LossScaler { scale, found_inf, growth_tracker } = self;
        let _ = scale.f_internal_amp_update_scale_(growth_tracker, found_inf, GROWTH, BACKOFF, GROWTH_INTERVAL)?;
        Ok(())
    }
}
