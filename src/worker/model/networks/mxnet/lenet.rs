//! LeNet for digits of 28x28 pixels, with tanh: Gradient-Based Learning Applied to Document Recognition (LeCun et al.,
//! 1998).

use crate::model::layers::{Convolution, ConvolutionShape, Layer, Linear, Pool, Sequence};
use crate::model::network::{Initializers, NamedTensors};

pub fn lenet(tensors: &mut NamedTensors, classes: i64) -> Sequence {
    let mut layers = Vec::new();
    for (number, (input, output)) in [(1, 20), (20, 50)].into_iter().enumerate() {
        let (name, shape) = (format!("convolution{number}"), ConvolutionShape::square(input, output, 5).padding(0));
        layers.push(Layer::Convolution(Convolution::new(tensors, &name, shape, Initializers::MXNET)));
        layers.extend([Layer::Tanh, Layer::MaxPool(Pool::new(2, 2))]);
    }
    layers.push(Layer::Flatten);
    layers.push(Layer::Linear(Linear::new(tensors, "fullyconnected0", [50 * 4 * 4, 500], Initializers::MXNET)));
    layers.push(Layer::Tanh);
    layers.push(Layer::Linear(Linear::new(tensors, "fullyconnected1", [500, classes], Initializers::MXNET)));
    Sequence(layers)
}
