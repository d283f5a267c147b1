//! Layers in sequence and in parallel branches.

use anyhow::Result;
use ringmark_core::trace::LayerKind;
use tch::Tensor;

use crate::measure::trace::layers::pass_plain;
use crate::model::layers::convolution::{Convolution, ConvolutionNorm};
use crate::model::layers::linear::Linear;
use crate::model::layers::pool::{Pool, adaptive_mean, local_response_norm};
use crate::model::network::{Mode, Network};

pub enum Layer {
    Convolution(Convolution),
    Rectified(Convolution),
    Unit(ConvolutionNorm),
    Linear(Linear),
    Relu,
    Tanh,
    MaxPool(Pool),
    AveragePool(Pool),
    /// Reduction to this number of pixels per side, each the mean of a part of the image.
    AdaptiveAveragePool(i64),
    LocalResponseNorm,
    /// Drops values with this probability and scales up the others.
    Dropout(f64),
    Flatten,
    /// Applies each sequence to the same images and concatenates the channels in this order.
    Branches(Vec<Sequence>),
}

/// Layers, each applied to the previous one's output.
pub struct Sequence(pub Vec<Layer>);

impl Layer {
    fn forward(&self, input: &Tensor, mode: Mode) -> Result<Tensor> {
        Ok(match self {
            Layer::Convolution(convolution) => convolution.forward(input, mode)?,
            Layer::Rectified(convolution) => convolution.rectified(input, mode)?,
            Layer::Unit(unit) => unit.rectified(input, mode)?,
            Layer::Linear(linear) => linear.forward(input, mode)?,
            // In place: the preceding layer does not need its output.
            Layer::Relu => pass_plain(LayerKind::Activation, "relu", input, || Ok(input.shallow_clone().f_relu_()?))?,
            Layer::Tanh => pass_plain(LayerKind::Activation, "tanh", input, || Ok(input.f_tanh()?))?,
            Layer::MaxPool(pool) => pool.max_pool(input)?,
            Layer::AveragePool(pool) => pool.mean(input)?,
            Layer::AdaptiveAveragePool(size) => adaptive_mean(input, *size)?,
            Layer::LocalResponseNorm => local_response_norm(input)?,
            Layer::Dropout(probability) => pass_plain(LayerKind::Other, "dropout", input, || {
                Ok(input.f_dropout(*probability, mode.has_dropout())?)
            })?,
            Layer::Flatten => input.f_flatten(1, -1)?,
            Layer::Branches(branches) => {
                let outputs = branches.iter().map(|branch| branch.forward(input, mode));
                Tensor::f_cat(&outputs.collect::<Result<Vec<Tensor>>>()?, 1)?
            }
        })
    }
}

impl Network for Sequence {
    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        self.0.iter().try_fold(images.shallow_clone(), |output, layer| layer.forward(&output, mode))
    }
}
