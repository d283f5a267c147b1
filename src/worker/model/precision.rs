//! What `--dtype` means for the step: which autocast, which loss scale, which fp32.
//!
//! fp32 is IEEE fp32; tf32 lets CUDA round the inputs of products; fp16 and bf16 are autocast over fp32 weights, fp16
//! with dynamic loss scaling that lives on the device, so that no step waits for the host.

use anyhow::{Result, ensure};
use ringmark_record::config::{Dtype, TrainConfig};
use tch::{Device, Kind, Tensor};

use crate::ffi::shim::{self, AutocastType};

/// PyTorch's GradScaler: double after 2000 steps without an overflow, halve at every one.
const GROWTH: f64 = 2.0;
const BACKOFF: f64 = 0.5;
const GROWTH_INTERVAL: i64 = 2000;

/// The rounding of one run.
pub struct Precision {
    autocast: Option<AutocastType>,
    is_cuda: bool,
    /// Only fp16 has one.
    pub loss_scaler: Option<LossScaler>,
}

impl Precision {
    /// Sets the process up for `config.dtype`.
    pub fn new(config: &TrainConfig, device: Device) -> Result<Precision> {
        let is_cuda = device.is_cuda();
        ensure!(
            config.dtype != Dtype::Tf32 || is_cuda,
            "--dtype tf32 needs a GPU of compute capability 8.0 or higher, this rank trains on the CPU: choose fp32 or bf16"
        );
        shim::allow_tf32(config.dtype == Dtype::Tf32)?;
        let autocast = match config.dtype {
            Dtype::Fp32 | Dtype::Tf32 => None,
            Dtype::Fp16 => Some(AutocastType::Half),
            Dtype::Bf16 => Some(AutocastType::BFloat16),
        };
        let loss_scaler =
            (config.dtype == Dtype::Fp16).then(|| LossScaler::new(config.loss_scale, device)).transpose()?;
        Ok(Precision { autocast, is_cuda, loss_scaler })
    }

    /// Type that convolutions and products compute in, where it is not fp32.
    pub fn compute(&self) -> Option<Kind> {
        self.autocast.map(|kind| match kind {
            AutocastType::Half => Kind::Half,
            AutocastType::BFloat16 => Kind::BFloat16,
        })
    }

    /// Runs the forward pass as the dtype wants it.
    pub fn forward(&self, body: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        shim::with_autocast(self.is_cuda, self.autocast, body)
    }

    /// What backward starts with: the loss scale where there is one.
    pub fn loss_gradient(&self) -> Option<&Tensor> {
        self.loss_scaler.as_ref().map(|scaler| &scaler.scale)
    }
}

/// Dynamic loss scaling; every member is a device tensor of one element.
pub struct LossScaler {
    /// What the loss is multiplied by.
    pub scale: Tensor,
    /// 1 where the last gradient was not finite and its step is skipped, otherwise 0.
    pub found_inf: Tensor,
    growth_tracker: Tensor,
}

impl LossScaler {
    fn new(first: f64, device: Device) -> Result<LossScaler> {
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

    /// Moves the scale for the next step.
    pub fn update(&mut self) -> Result<()> {
        let LossScaler { scale, found_inf, growth_tracker } = self;
        let _ = scale.f_internal_amp_update_scale_(growth_tracker, found_inf, GROWTH, BACKOFF, GROWTH_INTERVAL)?;
        Ok(())
    }
}
