//! What a step computes with: images and labels.

use tch::Tensor;

/// One batch on its device.
pub struct Batch {
    /// fp32 `[batch, 3, size, size]` in the run's memory layout.
    pub images: Tensor,
    /// int64 `[batch]`, class numbers.
    pub labels: Tensor,
}
