//! What every network is: images in, scores out.

use anyhow::Result;
use tch::Tensor;

/// A network on its device, whose tensors others know by name.
pub trait Network {
    /// Scores of every class, `[batch, classes]`, for images `[batch, 3, size, size]`.
    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor>;
}

/// What batch normalization goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The batch's statistics, which also move the running ones.
    BatchStatistics,
    /// The running statistics, which stay as they are: inference, and training that freezes them.
    RunningStatistics,
}
