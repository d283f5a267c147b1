//! Random batches, identical to PyTorch's: after `manual_seed(seed + rank)`, images are `randn` and their labels
//! `randint`; sequences are a single `randint` of one more token on the CPU, whose last tokens are the targets.

use anyhow::Result;
use ringmark_core::dimension::{ImageRule, ModelInput};
use tch::{Device, Kind, Tensor};

use crate::data::batch::{Batch, BatchRequest};

/// Draws images on `device` itself, because the CPU would take long, and tokens on the CPU, so that they are the same on
/// every device.
pub fn batch(request: &BatchRequest, device: Device) -> Result<Batch> {
    let count = i64::from(request.samples);
    let integers =
        |limit: u32, shape: &[i64], device| Tensor::f_randint(i64::from(limit), shape, (Kind::Int64, device));
    let size = i64::from(request.size.number());
    Ok(match request.model.facts().input {
        ModelInput::Images(ImageRule { channels, classes, .. }) => Batch {
            inputs: Tensor::f_randn([count, i64::from(channels), size, size], (Kind::Float, device))?,
            targets: integers(classes, &[count], device)?,
        },
        ModelInput::Tokens(shape) => {
            let tokens = integers(shape.vocabulary, &[count, size + 1], Device::Cpu)?.f_to_device(device)?;
            let part = |first: i64| tokens.f_narrow(1, first, size)?.f_contiguous();
            Batch { inputs: part(0)?, targets: part(1)? }
        }
    })
}
