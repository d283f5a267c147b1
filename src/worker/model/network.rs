//! Common interface of networks, images or tokens in, scores out; and their tensors under the source's names:
//! parameters, which are trained, and buffers, which are not.

use anyhow::Result;
use ringmark_core::dimension::Source;
use tch::{Device, Kind, Reduction, Tensor};

use crate::model::unit::{Provider, Unit};

/// Number of classes of the second accuracy of a validation.
pub const TOP: i64 = 5;

/// A network on its device. Its tensors are also in a [`NamedTensors`].
pub trait Network {
    /// Returns the scores of every class, `[batch, classes]`, for images `[batch, channels, size, size]`.
    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor>;

    /// Returns the mean cross entropy of the scores of `inputs` with `labels`.
    fn loss(&self, inputs: &Tensor, labels: &Tensor, label_smoothing: f64, mode: Mode) -> Result<Tensor> {
        let scores = self.forward(inputs, mode)?;
        Ok(scores.f_cross_entropy_loss(labels, None::<&Tensor>, Reduction::Mean, -100, label_smoothing)?)
    }

    /// Returns sums over the samples of `labels`, which are the first of `inputs`, in fp64 `[3]`: of the cross entropy,
    /// of samples whose class is the most likely one, and of those whose class is among the [`TOP`] most likely ones.
    fn validation_sums(&self, inputs: &Tensor, labels: &Tensor) -> Result<Tensor> {
        let counted = labels.size1()?;
        let scores = self.forward(inputs, Mode::Inference)?.f_narrow(0, 0, counted)?.f_to_kind(Kind::Float)?;
        let loss = scores.f_cross_entropy_loss(labels, None::<&Tensor>, Reduction::Sum, -100, 0.0)?;
        let (_, likely) = scores.f_topk(TOP, 1, true, true)?;
        let hits = likely.f_eq_tensor(&labels.f_unsqueeze(1)?)?.f_to_kind(Kind::Double)?;
        let first = hits.f_narrow(1, 0, 1)?.f_sum(Kind::Double)?;
        Ok(Tensor::f_stack(&[loss.f_to_kind(Kind::Double)?, first, hits.f_sum(Kind::Double)?], 0)?)
    }

    /// Returns probabilities in fp32: of every class, `[batch, classes]`, or of each of the `targets` that follow
    /// tokens, `[batch, length]`.
    fn probabilities(&self, inputs: &Tensor, _targets: &Tensor, mode: Mode) -> Result<Tensor> {
        Ok(self.forward(inputs, mode)?.f_softmax(-1, Kind::Float)?)
    }
}

/// Purpose of a forward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Training: batch normalization uses the batch's statistics and updates the running ones; dropout is active.
    Training,
    /// Training with running statistics, which do not change, in batch normalization.
    FrozenStatistics,
    /// Inference with running statistics and without dropout.
    Inference,
    /// Inference with each batch normalization folded into the preceding convolution by the first pass: for constant
    /// weights, without gradients.
    Folded,
}

impl Mode {
    pub fn has_batch_statistics(self) -> bool {
        self == Mode::Training
    }

    /// Returns true if dropout is active.
    pub fn has_dropout(self) -> bool {
        matches!(self, Mode::Training | Mode::FrozenStatistics)
    }
}

/// Role of a tensor in its layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Weight,
    Bias,
    Scale,
    Offset,
    Mean,
    Variance,
    /// Trained tensor of a transformer outside of its layers.
    Embedding,
}

/// Returns the name in `source` of the tensor with this role in `layer`: `layer1.0.conv1.weight` as in torchvision's
/// `state_dict`, `stage1_unit1_conv1_weight` as in the arguments of MXNet's symbols. Hugging Face's models are modules of
/// PyTorch, as torchvision's are.
fn name(source: Source, layer: &str, role: Role) -> String {
    let suffix = match (source, role) {
        (Source::Torchvision | Source::HuggingFace, Role::Weight | Role::Scale) => ".weight",
        (Source::Torchvision | Source::HuggingFace, Role::Bias | Role::Offset) => ".bias",
        (Source::Torchvision | Source::HuggingFace, Role::Mean) => ".running_mean",
        (Source::Torchvision | Source::HuggingFace, Role::Variance) => ".running_var",
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

/// Distribution of initial values. A weight is `[output, input, ..]`: its fan in is the number of values that one
/// output sums, its fan out the number of outputs that one input contributes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Initializer {
    /// Normal with variance `2 / fan out`: torchvision's choice for ReLU.
    FanOutNormal,
    /// Normal with variance `gain / fan in`.
    FanInNormal(f64),
    /// Uniform in `+-1 / sqrt(fan in)`: PyTorch's default, also for biases.
    FanInUniform,
    /// Uniform in `+-sqrt(6 / (fan in + fan out))` (Xavier).
    XavierUniform,
    /// Normal with this standard deviation.
    Normal(f64),
    Constant(f64),
}

impl Initializer {
    /// Draws values of `shape` for a layer with a weight of shape `weight`, with the CPU's generator.
    fn values(self, shape: &[i64], weight: &[i64]) -> Tensor {
        let area: i64 = weight.iter().skip(2).product();
        let fan = |side: usize| (weight.get(side).copied().unwrap_or(1) * area) as f64;
        let normal = |deviation: f64| Tensor::randn(shape, FLOAT_ON_CPU) * deviation;
        let uniform = |bound: f64| Tensor::empty(shape, FLOAT_ON_CPU).uniform_(-bound, bound);
        match self {
            Initializer::FanOutNormal => normal((2.0 / fan(0)).sqrt()),
            Initializer::FanInNormal(gain) => normal((gain / fan(1)).sqrt()),
            Initializer::FanInUniform => uniform(1.0 / fan(1).sqrt()),
            Initializer::XavierUniform => uniform((6.0 / (fan(0) + fan(1))).sqrt()),
            Initializer::Normal(deviation) => normal(deviation),
            Initializer::Constant(value) => Tensor::full(shape, value, FLOAT_ON_CPU),
        }
    }
}

/// Distributions of a layer's weight and, if it has one, its bias.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Initializers {
    pub weight: Initializer,
    pub bias: Option<Initializer>,
}

impl Initializers {
    /// PyTorch's defaults for convolutions and linear layers.
    pub const PYTORCH: Initializers =
        Initializers { weight: Initializer::FanInUniform, bias: Some(Initializer::FanInUniform) };
    /// MXNet's `Xavier(rnd_type="gaussian", factor_type="in", magnitude=2)`.
    pub const MXNET: Initializers =
        Initializers { weight: Initializer::FanInNormal(2.0), bias: Some(Initializer::Constant(0.0)) };

    pub const fn unbiased(self) -> Initializers {
        Initializers { bias: None, ..self }
    }
}

pub struct NamedTensor {
    /// Name in the source.
    pub name: String,
    pub role: Role,
    /// Unit of the network; 0 for a buffer.
    pub unit: usize,
    /// Shared with the model that uses it.
    pub tensor: Tensor,
}

/// Tensors of a model, each list in the order of the model's definition.
pub struct NamedTensors {
    /// Trained tensors. They share one element in memory until [`FlatParameters`](crate::model::flat_parameters) places
    /// them: a network may be larger than the machine.
    pub parameters: Vec<NamedTensor>,
    /// Distribution of the initial values of each parameter, and the shape of its layer's weight.
    initial: Vec<(Initializer, Vec<i64>)>,
    /// Running statistics of batch normalization.
    pub buffers: Vec<NamedTensor>,
    source: Source,
    device: Device,
    /// Unit of the next parameters; `None` if the network began none.
    unit: Option<usize>,
    /// Unit whose weights later units also use.
    pub kept_unit: Option<usize>,
    pub provider: Provider,
}

impl NamedTensors {
    /// Creates an empty list whose tensors are created on `device`.
    pub fn new(source: Source, device: Device) -> NamedTensors {
        NamedTensors {
            parameters: Vec::new(),
            initial: Vec::new(),
            buffers: Vec::new(),
            source,
            device,
            unit: None,
            kept_unit: None,
            provider: Provider::default(),
        }
    }

    /// Draws the initial values of one parameter after the other, in host memory, and calls `take` with the parameter's
    /// index and its values. The CPU draws them, so that a seed gives the same weights on every device.
    pub fn draw(&self, mut take: impl FnMut(usize, Tensor) -> Result<()>) -> Result<()> {
        let mut parameters = self.parameters.iter().zip(&self.initial).enumerate();
        parameters.try_for_each(|(index, (named, (initializer, weight)))| {
            take(index, initializer.values(&named.tensor.size(), weight))
        })
    }

    /// Gives every parameter memory of its own with initial values.
    #[cfg(test)]
    pub fn initialize(&self) {
        let set = |index: usize, values: Tensor| {
            self.parameters[index].tensor.shallow_clone().set_data(&values);
            Ok(())
        };
        self.draw(set).expect("values");
    }

    /// Begins a unit with the next parameters.
    pub fn begin_unit(&mut self) -> Unit {
        let number = self.parameters.last().map_or(0, |last| last.unit + 1);
        self.unit = Some(number);
        Unit { number, provider: self.provider.clone() }
    }

    /// Returns the unit of all parameters if the network began none.
    pub fn only_unit(&self) -> Option<Unit> {
        self.unit.is_none().then(|| Unit { number: 0, provider: self.provider.clone() })
    }

    pub fn device(&self) -> Device {
        self.device
    }

    pub fn source(&self) -> Source {
        self.source
    }

    pub fn elements(&self) -> usize {
        self.parameters.iter().map(|named| named.tensor.numel()).sum()
    }

    /// Adds the weight of `layer`, and a bias with one value per output if `initializers` has one.
    pub fn weight_and_bias(
        &mut self,
        layer: &str,
        shape: &[i64],
        initializers: Initializers,
    ) -> (Tensor, Option<Tensor>) {
        let names = [Role::Weight, Role::Bias].map(|role| name(self.source, layer, role));
        self.weight_and_bias_as([&names[0], &names[1]], shape, shape[0], initializers)
    }

    /// Adds a weight, and a bias of `outputs` values if `initializers` has one, under these full names.
    pub fn weight_and_bias_as(
        &mut self,
        names: [&str; 2],
        shape: &[i64],
        outputs: i64,
        initializers: Initializers,
    ) -> (Tensor, Option<Tensor>) {
        let weight = self.parameter(names[0], Role::Weight, shape, shape, initializers.weight);
        let bias =
            initializers.bias.map(|initializer| self.parameter(names[1], Role::Bias, &[outputs], shape, initializer));
        (weight, bias)
    }

    /// Adds scale and offset of the normalization `layer`, initially 1 and 0.
    pub fn scale_and_offset(&mut self, layer: &str, channels: i64) -> (Tensor, Tensor) {
        (self.scale(layer, channels), self.vector(layer, channels, Role::Offset, 0.0))
    }

    /// Adds the scale of the normalization `layer`, initially 1.
    pub fn scale(&mut self, layer: &str, channels: i64) -> Tensor {
        self.vector(layer, channels, Role::Scale, 1.0)
    }

    fn vector(&mut self, layer: &str, channels: i64, role: Role, value: f64) -> Tensor {
        let name = name(self.source, layer, role);
        self.parameter(&name, role, &[channels], &[], Initializer::Constant(value))
    }

    /// Adds running mean and variance of the batch normalization `layer`, initially 0 and 1.
    pub fn running_statistics(&mut self, layer: &str, channels: i64) -> (Tensor, Tensor) {
        let mut buffer = |role, value| {
            let tensor = Tensor::full([channels], value, (Kind::Float, self.device));
            self.buffers.push(NamedTensor {
                name: name(self.source, layer, role),
                role,
                unit: 0,
                tensor: tensor.shallow_clone(),
            });
            tensor
        };
        (buffer(Role::Mean, 0.0), buffer(Role::Variance, 1.0))
    }

    /// Adds a parameter that belongs to no layer, under its full name.
    pub fn embedding(&mut self, name: &str, shape: &[i64], initializer: Initializer) -> Tensor {
        self.parameter(name, Role::Embedding, shape, shape, initializer)
    }

    fn parameter(&mut self, name: &str, role: Role, shape: &[i64], weight: &[i64], initializer: Initializer) -> Tensor {
        let one = Tensor::empty([] as [i64; 0], (Kind::Float, self.device));
        let tensor = one.expand(shape, false).set_requires_grad(true);
        self.initial.push((initializer, weight.to_vec()));
        let unit = self.unit.unwrap_or(0);
        self.parameters.push(NamedTensor { name: name.to_owned(), role, unit, tensor: tensor.shallow_clone() });
        tensor
    }
}
