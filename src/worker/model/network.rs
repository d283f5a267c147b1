//! What every network is: images in, scores out.

use anyhow::Result;
use tch::Tensor;

/// A network on its device, whose tensors others know by name.
pub trait Network {
    /// Scores of every class, `[batch, classes]`, for images `[batch, 3, size, size]`.
    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor>;
}

/// What the layers go by that compute otherwise when they are trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Batch normalization by the batch's statistics, which also move the running ones.
    Train,
    /// Training with batch normalization by the running statistics, which stay as they are.
    FrozenBatchNorm,
}
