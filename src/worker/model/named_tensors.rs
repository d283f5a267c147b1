//! The tensors of a model under the names that its source gives them: parameters, which are trained, and buffers, which
//! are not.

use ringmark_core::dimension::Source;
use tch::{Device, Kind, Tensor};

/// What a tensor is to its layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Of a convolution or a linear layer.
    Weight,
    /// Of a convolution or a linear layer.
    Bias,
    /// What a normalization multiplies by.
    Scale,
    /// What a normalization adds.
    Offset,
    /// Running mean of batch normalization.
    Mean,
    /// Running variance of batch normalization.
    Variance,
    /// Of no layer: what a transformer learns beside them.
    Embedding,
}

/// What `source` calls the tensor of `layer` that is this to it: `layer1.0.conv1.weight` as in torchvision's `state_dict`,
/// `stage1_unit1_conv1_weight` as the arguments of MXNet's symbols.
fn name(source: Source, layer: &str, role: Role) -> String {
    let suffix = match (source, role) {
        (Source::Torchvision, Role::Weight | Role::Scale) => ".weight",
        (Source::Torchvision, Role::Bias | Role::Offset) => ".bias",
        (Source::Torchvision, Role::Mean) => ".running_mean",
        (Source::Torchvision, Role::Variance) => ".running_var",
        (Source::Mxnet, Role::Weight) => "_weight",
        (Source::Mxnet, Role::Bias) => "_bias",
        (Source::Mxnet, Role::Scale) => "_gamma",
        (Source::Mxnet, Role::Offset) => "_beta",
        (Source::Mxnet, Role::Mean) => "_moving_mean",
        (Source::Mxnet, Role::Variance) => "_moving_var",
        (_, Role::Embedding) => "",
    };
    format!("{layer}{suffix}")
}

const FLOAT_ON_CPU: (Kind, Device) = (Kind::Float, Device::Cpu);

/// How first values are drawn. A weight is `[output, input, ..]`: its fan in is what one output sums, its fan out what one
/// input goes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Draw {
    /// Normal with variance `2 / fan out`: torchvision's choice for ReLU.
    FanOutNormal,
    /// Normal with variance `gain / fan in`.
    FanInNormal(f64),
    /// Uniform in `+-1 / sqrt(fan in)`, PyTorch's default, for biases too.
    FanInUniform,
    /// Uniform in `+-sqrt(6 / (fan in + fan out))`: Xavier's.
    XavierUniform,
    /// Normal with this deviation.
    Normal(f64),
    /// One value.
    Constant(f64),
}

impl Draw {
    /// Values of `shape` for a layer whose weight is of shape `weight`, by the CPU's generator.
    fn values(self, shape: &[i64], weight: &[i64]) -> Tensor {
        let area: i64 = weight.iter().skip(2).product();
        let fan = |side: usize| (weight.get(side).copied().unwrap_or(1) * area) as f64;
        let normal = |deviation: f64| Tensor::randn(shape, FLOAT_ON_CPU) * deviation;
        let uniform = |bound: f64| Tensor::empty(shape, FLOAT_ON_CPU).uniform_(-bound, bound);
        match self {
            Draw::FanOutNormal => normal((2.0 / fan(0)).sqrt()),
            Draw::FanInNormal(gain) => normal((gain / fan(1)).sqrt()),
            Draw::FanInUniform => uniform(1.0 / fan(1).sqrt()),
            Draw::XavierUniform => uniform((6.0 / (fan(0) + fan(1))).sqrt()),
            Draw::Normal(deviation) => normal(deviation),
            Draw::Constant(value) => Tensor::full(shape, value, FLOAT_ON_CPU),
        }
    }
}

/// First values of a layer's weight, and of its bias where it has one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draws {
    pub weight: Draw,
    pub bias: Option<Draw>,
}

impl Draws {
    /// PyTorch's for a convolution or a linear layer.
    pub const PYTORCH: Draws = Draws { weight: Draw::FanInUniform, bias: Some(Draw::FanInUniform) };
    /// MXNet's `Xavier(rnd_type="gaussian", factor_type="in", magnitude=2)`.
    pub const MXNET: Draws = Draws { weight: Draw::FanInNormal(2.0), bias: Some(Draw::Constant(0.0)) };

    /// Without a bias.
    pub const fn unbiased(self) -> Draws {
        Draws { bias: None, ..self }
    }
}

/// A tensor and its name.
pub struct Named {
    /// As its source calls it.
    pub name: String,
    /// What it is to its layer.
    pub role: Role,
    /// Shared with the model that uses it.
    pub tensor: Tensor,
}

/// All of a model's tensors, each list in the order the model is written in.
pub struct NamedTensors {
    /// Trained.
    pub parameters: Vec<Named>,
    /// Running statistics of batch normalization.
    pub buffers: Vec<Named>,
    source: Source,
    device: Device,
    is_drawn: bool,
}

impl NamedTensors {
    /// None yet. New ones go to `device`; the CPU draws them, so that a seed gives the same weights on every device.
    pub fn new(source: Source, device: Device) -> NamedTensors {
        NamedTensors { parameters: Vec::new(), buffers: Vec::new(), source, device, is_drawn: true }
    }

    /// For names and shapes alone: no memory of a tensor is touched.
    pub fn without_values(source: Source) -> NamedTensors {
        NamedTensors { is_drawn: false, ..NamedTensors::new(source, Device::Cpu) }
    }

    /// Where they are made.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Number of trained values.
    pub fn elements(&self) -> usize {
        self.parameters.iter().map(|named| named.tensor.numel()).sum()
    }

    /// The weight of `layer`, and its bias of one value an output where `draws` has one.
    pub fn weight_and_bias(&mut self, layer: &str, shape: &[i64], draws: Draws) -> (Tensor, Option<Tensor>) {
        let names = [Role::Weight, Role::Bias].map(|role| name(self.source, layer, role));
        self.weight_and_bias_as([&names[0], &names[1]], shape, draws)
    }

    /// The same under names of their own.
    pub fn weight_and_bias_as(&mut self, names: [&str; 2], shape: &[i64], draws: Draws) -> (Tensor, Option<Tensor>) {
        let weight = self.parameter(names[0], Role::Weight, shape, shape, draws.weight);
        let bias = draws.bias.map(|draw| self.parameter(names[1], Role::Bias, &shape[..1], shape, draw));
        (weight, bias)
    }

    /// Scale and offset of a normalization, `layer`: 1 and 0.
    pub fn scale_and_offset(&mut self, layer: &str, channels: i64) -> (Tensor, Tensor) {
        let mut constant = |role, value| {
            let name = name(self.source, layer, role);
            self.parameter(&name, role, &[channels], &[], Draw::Constant(value))
        };
        (constant(Role::Scale, 1.0), constant(Role::Offset, 0.0))
    }

    /// Running mean and variance of batch normalization, `layer`: 0 and 1.
    pub fn running_statistics(&mut self, layer: &str, channels: i64) -> (Tensor, Tensor) {
        let mut buffer = |role, value| {
            let tensor = Tensor::full([channels], value, (Kind::Float, self.device));
            self.buffers.push(Named { name: name(self.source, layer, role), role, tensor: tensor.shallow_clone() });
            tensor
        };
        (buffer(Role::Mean, 0.0), buffer(Role::Variance, 1.0))
    }

    /// A parameter of no layer, under its whole name.
    pub fn embedding(&mut self, name: &str, shape: &[i64], draw: Draw) -> Tensor {
        self.parameter(name, Role::Embedding, shape, shape, draw)
    }

    fn parameter(&mut self, name: &str, role: Role, shape: &[i64], weight: &[i64], draw: Draw) -> Tensor {
        let tensor = match self.is_drawn {
            true => draw.values(shape, weight).to_device(self.device),
            false => Tensor::empty(shape, (Kind::Float, self.device)),
        };
        let tensor = tensor.set_requires_grad(true);
        self.parameters.push(Named { name: name.to_owned(), role, tensor: tensor.shallow_clone() });
        tensor
    }
}
