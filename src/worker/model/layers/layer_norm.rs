//! Layer normalization over the last dimension.

use anyhow::Result;
use ringmark_core::trace::LayerKind;
use tch::Tensor;

use crate::measure::trace::layers::{self, LayerLabel, LayerWork};
use crate::model::named_tensors::NamedTensors;

pub struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
    epsilon: f64,
    label: LayerLabel,
}

impl LayerNorm {
    /// Adds a normalization of `width` features, named `name`.
    pub fn new(tensors: &mut NamedTensors, name: &str, width: i64, epsilon: f64) -> LayerNorm {
        let (weight, bias) = tensors.scale_and_offset(name, width);
        LayerNorm { weight, bias, epsilon, label: LayerLabel::new(LayerKind::Norm, name) }
    }

    pub fn forward(&self, features: &Tensor) -> Result<Tensor> {
        let width = self.weight.size();
        layers::pass(&self.label, LayerWork::without_product(features), || {
            Ok(features.f_layer_norm(width, Some(&self.weight), Some(&self.bias), self.epsilon, true)?)
        })
    }
}
