//! Normalization over the last dimension.

use anyhow::Result;
use ringmark_core::trace::LayerKind;
use tch::Tensor;

use crate::measure::trace::layers::{self, LayerLabel, LayerWork};
use crate::model::named_tensors::NamedTensors;

/// Layer normalization, or RMS normalization (Zhang and Sennrich, 2019), which subtracts no mean and has no offset.
pub struct LayerNorm {
    weight: Tensor,
    /// `None` for RMS normalization.
    bias: Option<Tensor>,
    epsilon: f64,
    label: LayerLabel,
}

impl LayerNorm {
    /// Adds a layer normalization of `width` features, named `name`.
    pub fn new(tensors: &mut NamedTensors, name: &str, width: i64, epsilon: f64) -> LayerNorm {
        let (weight, bias) = tensors.scale_and_offset(name, width);
        LayerNorm { weight, bias: Some(bias), epsilon, label: LayerLabel::new(LayerKind::Norm, name) }
    }

    /// Adds an RMS normalization of `width` features, named `name`.
    pub fn root_mean_square(tensors: &mut NamedTensors, name: &str, width: i64, epsilon: f64) -> LayerNorm {
        let weight = tensors.scale(name, width);
        LayerNorm { weight, bias: None, epsilon, label: LayerLabel::new(LayerKind::Norm, name) }
    }

    pub fn forward(&self, features: &Tensor) -> Result<Tensor> {
        let (width, weight) = (self.weight.size(), Some(&self.weight));
        layers::pass(&self.label, LayerWork::without_product(features), || {
            Ok(match &self.bias {
                Some(bias) => features.f_layer_norm(width, weight, Some(bias), self.epsilon, true)?,
                None => features.f_rms_norm(width, weight, self.epsilon)?,
            })
        })
    }
}
