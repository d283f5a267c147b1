//! AlexNet as in One Weird Trick for Parallelizing Convolutional Neural Networks (Krizhevsky, 2014), with torchvision's
//! names.

use crate::model::layers::{Convolution, ConvolutionShape, Layer, Linear, Pool, Sequence};
use crate::model::network::{Initializers, NamedTensors};

pub fn alexnet(tensors: &mut NamedTensors, classes: i64, dropout: f64) -> Sequence {
    let mut layers = Vec::new();
    let convolutions = [
        (0, ConvolutionShape::square(3, 64, 11).stride(4).padding(2), true),
        (3, ConvolutionShape::square(64, 192, 5), true),
        (6, ConvolutionShape::square(192, 384, 3), false),
        (8, ConvolutionShape::square(384, 256, 3), false),
        (10, ConvolutionShape::square(256, 256, 3), true),
    ];
    for (number, shape, is_pooled) in convolutions {
        let name = format!("features.{number}");
        layers.push(Layer::Rectified(Convolution::new(tensors, &name, shape, Initializers::PYTORCH)));
        if is_pooled {
            layers.push(Layer::MaxPool(Pool::new(3, 2)));
        }
    }
    layers.extend([Layer::AdaptiveAveragePool(6), Layer::Flatten]);
    for (number, shape) in [(1, [256 * 6 * 6, 4096]), (4, [4096, 4096])] {
        layers.push(Layer::Dropout(dropout));
        layers.push(Layer::Linear(Linear::new(tensors, &format!("classifier.{number}"), shape, Initializers::PYTORCH)));
        layers.push(Layer::Relu);
    }
    layers.push(Layer::Linear(Linear::new(tensors, "classifier.6", [4096, classes], Initializers::PYTORCH)));
    Sequence(layers)
}
