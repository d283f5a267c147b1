//! What `--dtype` means for the network: which autocast, which fp32. The loss scale of fp16 is the exchange's.
//!
//! fp32 is IEEE fp32; tf32 lets CUDA round the inputs of products; fp16 and bf16 are autocast over fp32 weights.

use anyhow::{Result, ensure};
use ringmark_core::dimension::Dtype;
use tch::{Device, Kind, Tensor};

use crate::ffi::memory::element::Element;
use crate::ffi::torch::shim;

/// The rounding of one run.
pub struct Precision {
    autocast: Option<Element>,
    is_cuda: bool,
}

impl Precision {
    /// Sets the process up for `dtype`.
    pub fn new(dtype: Dtype, device: Device) -> Result<Precision> {
        let is_cuda = device.is_cuda();
        ensure!(
            dtype != Dtype::Tf32 || is_cuda,
            "--dtype tf32 needs a GPU of compute capability 8.0 or higher, this rank computes on the CPU: choose fp32 or bf16"
        );
        shim::allow_tf32(dtype == Dtype::Tf32)?;
        let autocast = Some(Element::from(dtype)).filter(|element| *element != Element::Float);
        Ok(Precision { autocast, is_cuda })
    }

    /// Type that convolutions and products compute in, where it is not fp32.
    pub fn compute(&self) -> Option<Kind> {
        self.autocast.map(Element::kind)
    }

    /// Runs the forward pass as the dtype wants it.
    pub fn forward(&self, body: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        shim::with_autocast(self.is_cuda, self.autocast, body)
    }
}
