//! Dynamic loss scaling for fp16: PyTorch's GradScaler on the device, so that no step waits for the host.

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use crate::ffi::torch::update;

/// GradScaler's defaults: the scale doubles after 2000 steps without an overflow and halves at every overflow.
const GROWTH: f64 = 2.0;
const BACKOFF: f64 = 0.5;
const GROWTH_INTERVAL: i64 = 2000;

/// Dynamic loss scaler. Every member is a device tensor of one element.
pub struct LossScaler {
    /// Factor of the loss.
    pub scale: Tensor,
    /// 1 if the last gradient was not finite and its step is skipped, otherwise 0.
    pub found_inf: Tensor,
    growth_tracker: Tensor,
}

impl LossScaler {
    pub fn new(first: f64, device: Device) -> Result<LossScaler> {
        Ok(LossScaler {
            scale: Tensor::f_full([] as [i64; 0], first, (Kind::Float, device))?,
            found_inf: Tensor::f_zeros([] as [i64; 0], (Kind::Float, device))?,
            growth_tracker: Tensor::f_zeros([] as [i64; 0], (Kind::Int, device))?,
        })
    }

    /// Returns a scaler with the same tensors.
    pub fn shared(&self) -> LossScaler {
        let LossScaler { scale, found_inf, growth_tracker } = self;
        let [scale, found_inf, growth_tracker] = [scale, found_inf, growth_tracker].map(Tensor::shallow_clone);
        LossScaler { scale, found_inf, growth_tracker }
    }

    /// Divides `gradients` by the scale and sets [`found_inf`](LossScaler::found_inf). They are summed over all ranks: a
    /// rank that has all of them gets the same result as the others.
    pub fn unscale<'a>(&mut self, gradients: impl IntoIterator<Item = &'a Tensor>) -> Result<()> {
        let _ = self.found_inf.f_zero_()?;
        let inverse = self.scale.f_reciprocal()?;
        gradients.into_iter().try_for_each(|gradients| update::unscale(gradients, &self.found_inf, &inverse))
    }

    /// Returns the named tensors that determine the next step.
    pub fn state(&self) -> [(&'static str, Tensor); 2] {
        [("loss_scale", self.scale.shallow_clone()), ("growth_tracker", self.growth_tracker.shallow_clone())]
    }

    pub fn update(&mut self) -> Result<()> {
        let LossScaler { scale, found_inf, growth_tracker } = self;
        let _ = scale.f_internal_amp_update_scale_(growth_tracker, found_inf, GROWTH, BACKOFF, GROWTH_INTERVAL)?;
        Ok(())
    }
}
