//! What a step computes with: images and labels.

use std::path::Path;

use ringmark_record::dimension::layout::Layout;
use ringmark_record::dimension::model::Model;
use tch::Tensor;

/// What a batch is to be, whatever benchmark wants it.
#[derive(Debug, Clone, Copy)]
pub struct BatchRequest<'a> {
    /// Safetensors with `images` and `labels`; a synthetic batch without.
    pub file: Option<&'a Path>,
    /// Of a synthetic batch; rank r takes `seed + r`.
    pub seed: i64,
    /// Images of a rank.
    pub images: u32,
    /// Number of the rank's first image in the joined batch of all ranks: where its part of a file begins.
    pub first: u32,
    /// Height and width of an image in pixels.
    pub image_size: u32,
    /// Whose images and classes.
    pub model: Model,
    /// Memory layout.
    pub layout: Layout,
}

/// One batch on its device.
pub struct Batch {
    /// fp32 `[batch, channels, size, size]` in the run's memory layout.
    pub images: Tensor,
    /// int64 `[batch]`, class numbers.
    pub labels: Tensor,
}
