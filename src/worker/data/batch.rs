//! What a step computes with: images and labels.

use anyhow::Result;
use ringmark_core::benchmark::image_input::{DataSource, ImageInputConfig};
use ringmark_core::dimension::{Layout, Model};
use tch::Tensor;

use crate::data::assignment::Assignment;

/// What a batch is to be, whatever benchmark wants it.
#[derive(Debug, Clone, Copy)]
pub struct BatchRequest<'a> {
    /// Where its images come from.
    pub source: DataSource<'a>,
    /// Of a synthetic batch, for which rank r takes `seed + r`; of images that are read, for all ranks the same.
    pub seed: i64,
    /// Images of a rank.
    pub images: u32,
    /// Number of the rank's first image in the joined batch of all ranks: where its part begins.
    pub first: u32,
    /// Height and width of an image in pixels.
    pub image_size: u32,
    /// Whose images and classes.
    pub model: Model,
    /// Memory layout.
    pub layout: Layout,
}

/// How images are read.
#[derive(Debug, Clone)]
pub struct ImageRequest {
    /// What is read.
    pub assignment: Assignment,
    /// What was asked.
    pub config: ImageInputConfig,
    /// Threads that decode.
    pub threads: u32,
    /// Images of all ranks in a step.
    pub joined: u64,
    /// Steps, counted over all epochs, that come before the first one.
    pub steps_before: u64,
    /// Whether they are to be predicted alone: each as it is, in the order in which they are stored.
    pub is_validation: bool,
}

/// One batch on its device.
pub struct Batch {
    /// fp32 `[batch, channels, size, size]` in the run's memory layout.
    pub images: Tensor,
    /// int64 `[batch]`, class numbers.
    pub labels: Tensor,
}

/// The same values with the strides of `layout`: channels_last or contiguous.
pub fn in_layout(images: &Tensor, layout: Layout) -> Result<Tensor> {
    Ok(match layout {
        Layout::Nhwc => images.f_permute([0, 2, 3, 1])?.f_contiguous()?.f_permute([0, 3, 1, 2])?,
        Layout::Nchw => images.f_contiguous()?,
    })
}
