//! Random images and labels, identical to PyTorch's: `manual_seed(seed + rank)`, `randn`, then `randint`.

use anyhow::Result;
use ringmark_core::dimension::ImageRule;
use tch::{Device, Kind, Tensor};

use crate::data::batch::{Batch, BatchRequest};

/// Draws a batch on `device` itself, because generators of different devices differ.
pub fn batch(request: &BatchRequest, device: Device) -> Result<Batch> {
    let (count, size) = (i64::from(request.images), i64::from(request.image_size));
    let ImageRule { channels, classes, .. } = request.model.facts().images;
    Ok(Batch {
        images: Tensor::f_randn([count, i64::from(channels), size, size], (Kind::Float, device))?,
        labels: Tensor::f_randint(i64::from(classes), [count], (Kind::Int64, device))?,
    })
}
