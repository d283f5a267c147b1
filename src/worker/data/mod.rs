//! Where a batch comes from: [`synthetic`] by default, or a [`file`]. Made once on the device and used in every
//! iteration, so that no input pipeline stands between the devices and the figure.

pub mod batch;
mod file;
mod synthetic;

use anyhow::Result;
use ringmark_record::dimension::model::Layout;
use tch::{Device, Tensor};

use crate::data::batch::{Batch, BatchRequest};

/// Rank `rank`'s batch.
pub fn batch(request: &BatchRequest, rank: u32, device: Device) -> Result<Batch> {
    let batch = match request.file {
        Some(path) => file::batch(path, request, rank, device)?,
        None => synthetic::batch(request, rank, device)?,
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
