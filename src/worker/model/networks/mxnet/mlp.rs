//! A perceptron with three layers for digits of 28x28 pixels: MXNet's first example.

use crate::model::layers::{Layer, Linear, Sequence};
use crate::model::network::{Initializers, NamedTensors};

pub fn mlp(tensors: &mut NamedTensors, classes: i64) -> Sequence {
    let linear =
        |tensors: &mut NamedTensors, name, shape| Layer::Linear(Linear::new(tensors, name, shape, Initializers::MXNET));
    Sequence(vec![
        Layer::Flatten,
        linear(tensors, "fc1", [28 * 28, 128]),
        Layer::Relu,
        linear(tensors, "fc2", [128, 64]),
        Layer::Relu,
        linear(tensors, "fc3", [64, classes]),
    ])
}
