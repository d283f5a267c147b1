//! What every network is: images in, scores out.

use anyhow::Result;
use tch::Tensor;

/// A network on its device, whose tensors others know by name.
pub trait Network {
    /// Scores of every class, `[batch, classes]`, for images `[batch, channels, size, size]`.
    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor>;
}

/// What a forward pass is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Training: batch normalization goes by the batch's statistics, which also move the running ones; dropout drops.
    Training,
    /// Training in which batch normalization goes by its running statistics, which stay as they are.
    FrozenStatistics,
    /// Running statistics, and nothing is dropped.
    Inference,
    /// The same with each normalization taken into the convolution before it, once, by the first pass: for weights that
    /// stay as they are, and without gradients.
    Folded,
}

impl Mode {
    /// Whether batch normalization goes by the batch's statistics.
    pub fn has_batch_statistics(self) -> bool {
        self == Mode::Training
    }

    /// Whether dropout drops.
    pub fn drops(self) -> bool {
        matches!(self, Mode::Training | Mode::FrozenStatistics)
    }
}
