//! VGG: Very Deep Convolutional Networks for Large-Scale Image Recognition (Simonyan and Zisserman, 2014), with
//! torchvision's names. At 224 pixels MXNet's networks without normalization are the same.

use crate::model::layers::{
    BatchNormKind, Convolution, ConvolutionNorm, ConvolutionShape, Layer, Linear, Pool, Sequence,
};
use crate::model::network::{Initializer, Initializers, NamedTensors};

const CONVOLUTION: Initializers =
    Initializers { weight: Initializer::FanOutNormal, bias: Some(Initializer::Constant(0.0)) };
const LINEAR: Initializers = Initializers { weight: Initializer::Normal(0.01), bias: Some(Initializer::Constant(0.0)) };

/// Numbers of convolutions in the groups of each network; max pooling ends each group.
pub const VGG11: [usize; 5] = [1, 1, 2, 2, 2];
pub const VGG16: [usize; 5] = [2, 2, 3, 3, 3];

/// Builds the network and adds its tensors to `tensors`. `is_normalized` adds batch normalization after every
/// convolution.
pub fn vgg(
    tensors: &mut NamedTensors,
    groups: [usize; 5],
    is_normalized: bool,
    classes: i64,
    dropout: f64,
) -> Sequence {
    let mut layers = Vec::new();
    let mut input = 3;
    // torchvision numbers every layer, including ReLU and pooling.
    let mut number = 0;
    for (count, output) in groups.into_iter().zip([64, 128, 256, 512, 512]) {
        for _ in 0..count {
            let shape = ConvolutionShape::square(input, output, 3);
            let name = format!("features.{number}");
            if is_normalized {
                let names = [name.as_str(), &format!("features.{}", number + 1)];
                let unit = ConvolutionNorm::new(tensors, names, shape, CONVOLUTION, BatchNormKind::PYTORCH);
                layers.push(Layer::Unit(unit));
            } else {
                layers.push(Layer::Rectified(Convolution::new(tensors, &name, shape, CONVOLUTION)));
            }
            number += if is_normalized { 3 } else { 2 };
            input = output;
        }
        layers.push(Layer::MaxPool(Pool::new(2, 2)));
        number += 1;
    }
    layers.extend([Layer::AdaptiveAveragePool(7), Layer::Flatten]);
    for (number, shape) in [(0, [512 * 7 * 7, 4096]), (3, [4096, 4096])] {
        layers.push(Layer::Linear(Linear::new(tensors, &format!("classifier.{number}"), shape, LINEAR)));
        layers.extend([Layer::Relu, Layer::Dropout(dropout)]);
    }
    layers.push(Layer::Linear(Linear::new(tensors, "classifier.6", [4096, classes], LINEAR)));
    Sequence(layers)
}
