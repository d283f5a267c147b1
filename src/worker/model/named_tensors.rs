//! The tensors of a model under torchvision's names: parameters, which are trained, and buffers, which are not.

use tch::{Device, Kind, Tensor};

/// A tensor and its name.
pub struct Named {
    /// As in torchvision's `state_dict`: `layer1.0.conv1.weight`.
    pub name: String,
    /// Shared with the model that uses it.
    pub tensor: Tensor,
}

/// All of a model's tensors, each list in the order the model is written in.
pub struct NamedTensors {
    /// Trained.
    pub parameters: Vec<Named>,
    /// Running statistics of batch normalization.
    pub buffers: Vec<Named>,
    device: Device,
}

impl NamedTensors {
    /// None yet; new ones are made on `device`.
    pub fn new(device: Device) -> NamedTensors {
        NamedTensors { parameters: Vec::new(), buffers: Vec::new(), device }
    }

    /// Where they are made.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Number of trained values.
    pub fn elements(&self) -> usize {
        self.parameters.iter().map(|named| named.tensor.numel()).sum()
    }

    /// A convolution's weight: normal with variance `2 / (output channels x kernel area)`, torchvision's choice for ReLU.
    pub fn convolution(&mut self, name: String, shape: [i64; 4]) -> Tensor {
        let deviation = (2.0 / (shape[0] * shape[2] * shape[3]) as f64).sqrt();
        let tensor = Tensor::randn(shape, (Kind::Float, self.device)) * deviation;
        self.parameter(name, tensor)
    }

    /// A linear layer's weight or bias: uniform in `+-1/sqrt(inputs)`, PyTorch's default.
    pub fn linear(&mut self, name: String, shape: &[i64], inputs: i64) -> Tensor {
        let bound = 1.0 / (inputs as f64).sqrt();
        let mut tensor = Tensor::empty(shape, (Kind::Float, self.device));
        let _ = tensor.uniform_(-bound, bound);
        self.parameter(name, tensor)
    }

    /// A parameter that starts as one value.
    pub fn constant(&mut self, name: String, length: i64, value: f64) -> Tensor {
        let tensor = Tensor::full([length], value, (Kind::Float, self.device));
        self.parameter(name, tensor)
    }

    /// A buffer that starts as one value.
    pub fn buffer(&mut self, name: String, length: i64, value: f64) -> Tensor {
        let tensor = Tensor::full([length], value, (Kind::Float, self.device));
        self.buffers.push(Named { name, tensor: tensor.shallow_clone() });
        tensor
    }

    fn parameter(&mut self, name: String, tensor: Tensor) -> Tensor {
        let tensor = tensor.set_requires_grad(true);
        self.parameters.push(Named { name, tensor: tensor.shallow_clone() });
        tensor
    }
}
