//! Blocks of transformers.

use anyhow::Result;
use ringmark_core::trace::LayerKind;
use tch::Tensor;

use crate::ffi::torch::packed::{Epilogue, Gelu};
use crate::measure::trace::layers::pass_plain;
use crate::model::layers::attention::{Attention, Rotation};
use crate::model::layers::linear::Linear;
use crate::model::layers::norm::LayerNorm;
use crate::model::network::Mode;

/// Attention and a perceptron, each with a preceding normalization and a residual connection. Features are
/// `[batch, tokens, width]`.
pub struct TransformerBlock {
    pub first_norm: LayerNorm,
    pub attention: Attention,
    pub second_norm: LayerNorm,
    pub perceptron: Perceptron,
    /// Probability that a value is dropped after attention and after each layer of the perceptron.
    pub dropout: f64,
}

/// A perceptron with one hidden layer.
pub enum Perceptron {
    Gelu {
        wide: Linear,
        narrow: Linear,
        gelu: Gelu,
    },
    /// SwiGLU (Shazeer, 2020): the hidden layer is `silu(gate) up`.
    Gated {
        gate: Linear,
        up: Linear,
        down: Linear,
    },
}

impl Perceptron {
    /// Returns the hidden layer and the layer that follows it.
    fn hidden(&self, features: &Tensor, mode: Mode) -> Result<(Tensor, &Linear)> {
        Ok(match self {
            Perceptron::Gelu { wide, narrow, gelu } => (wide.followed(features, Epilogue::Gelu(*gelu), mode)?, narrow),
            Perceptron::Gated { gate, up, down } => {
                let (gate, up) = (gate.forward(features, mode)?, up.forward(features, mode)?);
                let hidden = pass_plain(LayerKind::Activation, "swiglu", &gate, || Ok(gate.f_silu()?.f_mul(&up)?))?;
                (hidden, down)
            }
        })
    }
}

impl TransformerBlock {
    /// Applies the block, rotating queries and keys by `rotation` if given.
    pub fn forward(&self, features: &Tensor, rotation: Option<&Rotation>, mode: Mode) -> Result<Tensor> {
        let normalized = self.first_norm.forward(features)?;
        let attention = |epilogue: Epilogue| self.attention.forward(&normalized, rotation, epilogue, mode);
        let features = &self.add(features, mode, attention)?;
        let (hidden, last) = self.perceptron.hidden(&self.second_norm.forward(features)?, mode)?;
        let hidden = if self.drops(mode) { hidden.f_dropout(self.dropout, true)? } else { hidden };
        self.add(features, mode, |epilogue| last.followed(&hidden, epilogue, mode))
    }

    fn drops(&self, mode: Mode) -> bool {
        self.dropout != 0.0 && mode.has_dropout()
    }

    /// Adds the output of `layer`, with dropout, to `features`.
    fn add(&self, features: &Tensor, mode: Mode, layer: impl FnOnce(Epilogue) -> Result<Tensor>) -> Result<Tensor> {
        if !self.drops(mode) {
            return layer(Epilogue::Add(features));
        }
        Ok(features.f_add(&layer(Epilogue::Nothing)?.f_dropout(self.dropout, true)?)?)
    }
}
