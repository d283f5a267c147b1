//! Random images and labels, the same that PyTorch makes: `manual_seed(seed + rank)`, `randn`, then `randint`.

use anyhow::Result;
use ringmark_record::benchmark::train::config::TrainConfig;
use tch::{Device, Kind, Tensor};

use crate::data::batch::Batch;

/// Drawn on `device` itself: generators of different devices differ.
pub fn batch(config: &TrainConfig, rank: u32, device: Device) -> Result<Batch> {
    let (count, size) = (i64::from(config.batch_size), i64::from(config.image_size));
    tch::manual_seed(config.seed.wrapping_add(i64::from(rank)));
    Ok(Batch {
        images: Tensor::f_randn([count, 3, size, size], (Kind::Float, device))?,
        labels: Tensor::f_randint(i64::from(config.model.facts().classes), [count], (Kind::Int64, device))?,
    })
}
