//! Linear layers.

use anyhow::Result;
use tch::Tensor;

use crate::model::named_tensors::{Draws, NamedTensors};

/// A linear layer.
pub struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    /// Makes its tensors, under `name`.
    pub fn new(tensors: &mut NamedTensors, name: &str, [input, output]: [i64; 2], draws: Draws) -> Linear {
        let (weight, bias) = tensors.weight_and_bias(name, &[output, input], draws);
        Linear { weight, bias }
    }

    /// The same under names of their own.
    pub fn under_names(
        tensors: &mut NamedTensors,
        names: [&str; 2],
        [input, output]: [i64; 2],
        draws: Draws,
    ) -> Linear {
        let (weight, bias) = tensors.weight_and_bias_as(names, &[output, input], draws);
        Linear { weight, bias }
    }

    /// Of features `[.., input]`.
    pub fn forward(&self, features: &Tensor) -> Result<Tensor> {
        Ok(features.f_linear(&self.weight, self.bias.as_ref())?)
    }
}
