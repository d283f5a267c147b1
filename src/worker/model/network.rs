//! Common interface of networks: images in, scores out.

use anyhow::Result;
use tch::Tensor;

/// A network on its device. Its tensors are also in a [`NamedTensors`](super::named_tensors::NamedTensors).
pub trait Network {
    /// Returns the scores of every class, `[batch, classes]`, for images `[batch, channels, size, size]`.
    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor>;
}

/// Purpose of a forward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Training: batch normalization uses the batch's statistics and updates the running ones; dropout is active.
    Training,
    /// Training with running statistics, which do not change, in batch normalization.
    FrozenStatistics,
    /// Inference with running statistics and without dropout.
    Inference,
    /// Inference with each batch normalization folded into the preceding convolution by the first pass: for constant
    /// weights, without gradients.
    Folded,
}

impl Mode {
    pub fn has_batch_statistics(self) -> bool {
        self == Mode::Training
    }

    /// Returns true if dropout is active.
    pub fn has_dropout(self) -> bool {
        matches!(self, Mode::Training | Mode::FrozenStatistics)
    }
}
