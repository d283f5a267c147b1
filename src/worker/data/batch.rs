//! Batches of images and labels, or of tokens.

use std::ops::Range;

use anyhow::Result;
use ringmark_core::benchmark::data_input::{DataInputConfig, DataSource};
use ringmark_core::dimension::{Layout, Model, SampleSize};
use tch::Tensor;

use crate::data::assignment::Assignment;

/// Description of a batch, for any benchmark.
#[derive(Debug, Clone, Copy)]
pub struct BatchRequest<'a> {
    pub source: DataSource<'a>,
    /// Seed; rank r uses `seed + r` for a synthetic batch, and all ranks use the same seed for images that are read.
    pub seed: i64,
    /// Images or sequences per rank.
    pub samples: u32,
    /// Number of the rank's first image in the global batch.
    pub first: u32,
    pub size: SampleSize,
    /// Model that determines channels, classes and vocabulary.
    pub model: Model,
    pub layout: Layout,
}

/// Source and processing of images that are read.
#[derive(Debug, Clone)]
pub struct ReadRequest {
    /// Data of this rank.
    pub assignment: Assignment,
    pub config: DataInputConfig,
    pub threads: u32,
    /// Images of all ranks in a step.
    pub global_batch: u64,
    /// Number of earlier steps, counted over all epochs.
    pub steps_before: u64,
    /// True for validation: each image unchanged, in storage order.
    pub is_validation: bool,
}

pub struct Batch {
    /// Images, fp32 `[batch, channels, size, size]` in the run's memory layout, or tokens, int64 `[batch, length]`.
    pub inputs: Tensor,
    /// Class numbers, int64 `[batch]`, or the next token of each token, int64 `[batch, length]`.
    pub targets: Tensor,
}

impl Batch {
    /// Returns these samples of the batch, without a copy.
    pub fn part(&self, samples: &Range<i64>) -> Result<Batch> {
        let part = |tensor: &Tensor| tensor.f_narrow(0, samples.start, samples.end - samples.start);
        Ok(Batch { inputs: part(&self.inputs)?, targets: part(&self.targets)? })
    }
}

/// Returns the same values with the strides of `layout`: channels_last or contiguous.
pub fn in_layout(images: &Tensor, layout: Layout) -> Result<Tensor> {
    Ok(match layout {
        Layout::Nhwc => images.f_permute([0, 2, 3, 1])?.f_contiguous()?.f_permute([0, 3, 1, 2])?,
        Layout::Nchw => images.f_contiguous()?,
    })
}
