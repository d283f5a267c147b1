//! AlexNet: ImageNet Classification with Deep Convolutional Neural Networks (Krizhevsky et al., 2012), in one group,
//! with normalization after pooling.

use crate::model::layers::{Convolution, ConvolutionShape, Layer, Linear, Pool, Sequence};
use crate::model::network::{Initializers, NamedTensors};

pub fn alexnet(tensors: &mut NamedTensors, classes: i64, dropout: f64) -> Sequence {
    let mut layers = Vec::new();
    let convolutions = [
        (ConvolutionShape::square(3, 96, 11).stride(4).padding(0), true, true),
        (ConvolutionShape::square(96, 256, 5), true, true),
        (ConvolutionShape::square(256, 384, 3), false, false),
        (ConvolutionShape::square(384, 384, 3), false, false),
        (ConvolutionShape::square(384, 256, 3), true, false),
    ];
    for (number, (shape, is_pooled, is_normalized)) in convolutions.into_iter().enumerate() {
        let name = format!("convolution{number}");
        layers.push(Layer::Rectified(Convolution::new(tensors, &name, shape, Initializers::MXNET)));
        if is_pooled {
            layers.push(Layer::MaxPool(Pool::new(3, 2)));
        }
        if is_normalized {
            layers.push(Layer::LocalResponseNorm);
        }
    }
    layers.push(Layer::Flatten);
    for (number, shape) in [[256 * 5 * 5, 4096], [4096, 4096]].into_iter().enumerate() {
        layers.push(Layer::Linear(Linear::new(
            tensors,
            &format!("fullyconnected{number}"),
            shape,
            Initializers::MXNET,
        )));
        layers.extend([Layer::Relu, Layer::Dropout(dropout)]);
    }
    layers.push(Layer::Linear(Linear::new(tensors, "fullyconnected2", [4096, classes], Initializers::MXNET)));
    Sequence(layers)
}
