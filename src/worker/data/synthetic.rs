//! Random images and labels, the same that PyTorch makes: `manual_seed(seed + rank)`, `randn`, then `randint`.

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use crate::data::batch::{Batch, BatchRequest};

/// Drawn on `device` itself: generators of different devices differ.
pub fn batch(request: &BatchRequest, rank: u32, device: Device) -> Result<Batch> {
    let (count, size) = (i64::from(request.images), i64::from(request.image_size));
    tch::manual_seed(request.seed.wrapping_add(i64::from(rank)));
    Ok(Batch {
        images: Tensor::f_randn([count, 3, size, size], (Kind::Float, device))?,
        labels: Tensor::f_randint(i64::from(request.classes), [count], (Kind::Int64, device))?,
    })
}
