//! Where a batch comes from: [`synthetic`] by default, or a [`file`]. Made once on the device and used in every
//! iteration, so that no input pipeline stands between the devices and the figure.

pub mod batch;
mod file;
mod synthetic;

use anyhow::Result;
use ringmark_record::dimension::layout::Layout;
use tch::{Device, Tensor};

use crate::data::batch::{Batch, BatchRequest};

/// Rank `rank`'s batch. What the rank draws after it, dropout, follows from the same seed.
pub fn batch(request: &BatchRequest, rank: u32, device: Device) -> Result<Batch> {
    tch::manual_seed(request.seed.wrapping_add(i64::from(rank)));
    let batch = match request.file {
        Some(path) => file::batch(path, request, rank, device)?,
        None => synthetic::batch(request, device)?,
    };
    Ok(Batch { images: in_layout(&batch.images, request.layout)?, ..batch })
}

/// The same values with the strides of `layout`: channels_last or contiguous.
pub fn in_layout(images: &Tensor, layout: Layout) -> Result<Tensor> {
    Ok(match layout {
        Layout::Nhwc => images.f_permute([0, 2, 3, 1])?.f_contiguous()?.f_permute([0, 3, 1, 2])?,
        Layout::Nchw => images.f_contiguous()?,
    })
}
