//! Common interface of networks: images or tokens in, scores out.

use anyhow::Result;
use tch::{Kind, Reduction, Tensor};

/// A network on its device. Its tensors are also in a [`NamedTensors`](super::named_tensors::NamedTensors).
pub trait Network {
    /// Returns the scores of every class, `[batch, classes]`, for images `[batch, channels, size, size]`.
    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor>;

    /// Returns the mean cross entropy of the scores of `inputs` with `labels`.
    fn loss(&self, inputs: &Tensor, labels: &Tensor, label_smoothing: f64, mode: Mode) -> Result<Tensor> {
        let scores = self.forward(inputs, mode)?;
        Ok(scores.f_cross_entropy_loss(labels, None::<&Tensor>, Reduction::Mean, -100, label_smoothing)?)
    }

    /// Returns probabilities in fp32: of every class, `[batch, classes]`, or of each of the `targets` that follow
    /// tokens, `[batch, length]`.
    fn probabilities(&self, inputs: &Tensor, _targets: &Tensor, mode: Mode) -> Result<Tensor> {
        Ok(self.forward(inputs, mode)?.f_softmax(-1, Kind::Float)?)
    }
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
