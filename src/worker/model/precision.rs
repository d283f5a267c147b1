//! Effect of `--dtype` on the network: autocast and the kind of fp32. The loss scale of fp16 belongs to the exchange.
//!
//! fp32 is IEEE fp32; tf32 allows CUDA to round the inputs of products; fp16 and bf16 are autocast with fp32 weights.

use anyhow::{Result, ensure};
use ringmark_core::dimension::Dtype;
use tch::{Device, Kind, Tensor};

use crate::ffi::memory::element::Element;
use crate::ffi::torch::shim;

pub struct Precision {
    autocast: Option<Element>,
    is_cuda: bool,
}

impl Precision {
    pub fn new(dtype: Dtype, device: Device) -> Result<Precision> {
        let is_cuda = device.is_cuda();
        ensure!(
            dtype != Dtype::Tf32 || is_cuda,
            "--dtype tf32 needs a GPU of compute capability 8.0 or higher, but this rank uses the CPU: use fp32 or bf16"
        );
        shim::allow_tf32(dtype == Dtype::Tf32)?;
        let autocast = Some(Element::from(dtype)).filter(|element| *element != Element::Float);
        Ok(Precision { autocast, is_cuda })
    }

    /// Returns the type in which convolutions and matrix products compute, if it is not fp32.
    pub fn compute(&self) -> Option<Kind> {
        self.autocast.map(Element::kind)
    }

    pub fn forward(&self, body: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        shim::with_autocast(self.is_cuda, self.autocast, body)
    }
}
