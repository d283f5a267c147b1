//! Batches of images and labels.

use std::ops::Range;

use anyhow::Result;
use ringmark_core::benchmark::image_input::{DataSource, ImageInputConfig};
use ringmark_core::dimension::{Layout, Model};
use tch::Tensor;

use crate::data::assignment::Assignment;

/// Description of a batch, for any benchmark.
#[derive(Debug, Clone, Copy)]
pub struct BatchRequest<'a> {
    pub source: DataSource<'a>,
    /// Seed; rank r uses `seed + r` for a synthetic batch, and all ranks use the same seed for images that are read.
    pub seed: i64,
    /// Images per rank.
    pub images: u32,
    /// Number of the rank's first image in the global batch.
    pub first: u32,
    /// Height and width of an image in pixels.
    pub image_size: u32,
    /// Model that determines channels and classes.
    pub model: Model,
    pub layout: Layout,
}

/// Source and processing of images that are read.
#[derive(Debug, Clone)]
pub struct ImageRequest {
    /// Data of this rank.
    pub assignment: Assignment,
    pub config: ImageInputConfig,
    pub threads: u32,
    /// Images of all ranks in a step.
    pub global_batch: u64,
    /// Number of earlier steps, counted over all epochs.
    pub steps_before: u64,
    /// True for validation: each image unchanged, in storage order.
    pub is_validation: bool,
}

pub struct Batch {
    /// fp32 `[batch, channels, size, size]` in the run's memory layout.
    pub images: Tensor,
    /// int64 `[batch]`, class numbers.
    pub labels: Tensor,
}

impl Batch {
    /// Returns these images of the batch, without a copy.
    pub fn part(&self, images: &Range<i64>) -> Result<Batch> {
        let part = |tensor: &Tensor| tensor.f_narrow(0, images.start, images.end - images.start);
        Ok(Batch { images: part(&self.images)?, labels: part(&self.labels)? })
    }
}

/// Returns the same values with the strides of `layout`: channels_last or contiguous.
pub fn in_layout(images: &Tensor, layout: Layout) -> Result<Tensor> {
    Ok(match layout {
        Layout::Nhwc => images.f_permute([0, 2, 3, 1])?.f_contiguous()?.f_permute([0, 3, 1, 2])?,
        Layout::Nchw => images.f_contiguous()?,
    })
}
