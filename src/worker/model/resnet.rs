//! ResNet50-v1b, leaf to whole: Deep Residual Learning for Image Recognition (He et al., 2015) with the stride of a
//! bottleneck on its 3x3 convolution. The same network as v1.5 and torchvision's `resnet50`, names included.
//!
//! 25,557,032 parameters in 161 tensors, 102,228,128 bytes of fp32; 4.089 G multiply-adds forward at 224 pixels.

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use crate::ffi::shim::{self, BatchNormVectors};
use crate::model::named_tensors::NamedTensors;

/// Classes of ImageNet-1k.
pub const CLASSES: i64 = 1000;

struct Convolution {
    weight: Tensor,
    stride: i64,
    padding: i64,
}

impl Convolution {
    /// A square kernel of `kernel` pixels, without bias.
    fn new(tensors: &mut NamedTensors, name: &str, [input, output]: [i64; 2], kernel: i64, stride: i64) -> Convolution {
        let weight = tensors.convolution(format!("{name}.weight"), [output, input, kernel, kernel]);
        Convolution { weight, stride, padding: kernel / 2 }
    }

    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let (stride, padding) = ([self.stride; 2], [self.padding; 2]);
        let is_pointwise = self.padding == 0;
        let on_cpu = images.device() == Device::Cpu;
        if is_pointwise && self.stride == 1 && on_cpu && self.weight.kind() == Kind::BFloat16 {
            let pixels = images.f_permute([0, 2, 3, 1])?;
            if pixels.is_contiguous() {
                return self.as_product(&pixels);
            }
        }
        // A kernel of one pixel has nothing to dilate. On the CPU libtorch gives undilated ones of a small batch on one
        // thread to a plain matrix product that first copies channels_last images; dilated ones always go to oneDNN.
        let dilation = if is_pointwise && on_cpu { 2 } else { 1 };
        Ok(images.f_conv2d(&self.weight, None::<&Tensor>, stride, padding, [dilation; 2], 1)?)
    }

    /// A convolution of one pixel is a product over the channels of `pixels`, `[batch, height, width, channels]`.
    /// oneDNN's bf16 product is faster than its bf16 convolution by an eighth; in fp32 it is slower.
    fn as_product(&self, pixels: &Tensor) -> Result<Tensor> {
        let scores = pixels.f_linear(&self.weight.f_flatten(1, -1)?, None::<&Tensor>)?;
        Ok(scores.f_permute([0, 3, 1, 2])?)
    }
}

struct BatchNorm {
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_variance: Tensor,
}

impl BatchNorm {
    fn new(tensors: &mut NamedTensors, name: &str, channels: i64) -> BatchNorm {
        BatchNorm {
            weight: tensors.constant(format!("{name}.weight"), channels, 1.0),
            bias: tensors.constant(format!("{name}.bias"), channels, 0.0),
            running_mean: tensors.buffer(format!("{name}.running_mean"), channels, 0.0),
            running_variance: tensors.buffer(format!("{name}.running_var"), channels, 1.0),
        }
    }

    /// Normalizes, adds `shortcut`, and rectifies if `relu`.
    fn forward(&self, images: &Tensor, shortcut: Option<&Tensor>, relu: bool, mode: Mode) -> Result<Tensor> {
        const MOMENTUM: f64 = 0.1;
        const EPSILON: f64 = 1e-5;
        if mode == Mode::Train && is_for_one_pass(images) {
            let vectors = BatchNormVectors {
                weight: &self.weight,
                bias: &self.bias,
                running_mean: &self.running_mean,
                running_variance: &self.running_variance,
                momentum: MOMENTUM,
                epsilon: EPSILON,
            };
            return shim::batch_norm(images, &vectors, shortcut, relu);
        }
        let mut result = images.f_batch_norm(
            Some(&self.weight),
            Some(&self.bias),
            Some(&self.running_mean),
            Some(&self.running_variance),
            mode == Mode::Train,
            MOMENTUM,
            EPSILON,
            true,
        )?;
        if let Some(shortcut) = shortcut {
            result = result.f_add_(shortcut)?;
        }
        if relu {
            result = result.f_relu_()?;
        }
        Ok(result)
    }
}

/// Whether normalization, sum and ReLU can be one pass: on the CPU, in channels_last, fp32 or bf16.
fn is_for_one_pass(images: &Tensor) -> bool {
    images.device() == Device::Cpu
        && matches!(images.kind(), Kind::Float | Kind::BFloat16)
        && images.permute([0, 2, 3, 1]).is_contiguous()
}

/// 1x1, 3x3 and 1x1 convolutions around a shortcut: `inner` channels inside, `4 x inner` outside.
struct Bottleneck {
    conv1: Convolution,
    bn1: BatchNorm,
    conv2: Convolution,
    bn2: BatchNorm,
    conv3: Convolution,
    bn3: BatchNorm,
    downsample: Option<(Convolution, BatchNorm)>,
}

impl Bottleneck {
    fn new(tensors: &mut NamedTensors, name: &str, input: i64, inner: i64, stride: i64) -> Bottleneck {
        let output = 4 * inner;
        Bottleneck {
            conv1: Convolution::new(tensors, &format!("{name}.conv1"), [input, inner], 1, 1),
            bn1: BatchNorm::new(tensors, &format!("{name}.bn1"), inner),
            conv2: Convolution::new(tensors, &format!("{name}.conv2"), [inner, inner], 3, stride),
            bn2: BatchNorm::new(tensors, &format!("{name}.bn2"), inner),
            conv3: Convolution::new(tensors, &format!("{name}.conv3"), [inner, output], 1, 1),
            bn3: BatchNorm::new(tensors, &format!("{name}.bn3"), output),
            downsample: (stride != 1 || input != output).then(|| {
                (
                    Convolution::new(tensors, &format!("{name}.downsample.0"), [input, output], 1, stride),
                    BatchNorm::new(tensors, &format!("{name}.downsample.1"), output),
                )
            }),
        }
    }

    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        let inside = self.bn1.forward(&self.conv1.forward(images)?, None, true, mode)?;
        let inside = self.bn2.forward(&self.conv2.forward(&inside)?, None, true, mode)?;
        let inside = self.conv3.forward(&inside)?;
        let shortcut = match &self.downsample {
            Some((convolution, norm)) => norm.forward(&convolution.forward(images)?, None, false, mode)?,
            None => images.shallow_clone(),
        };
        self.bn3.forward(&inside, Some(&shortcut), true, mode)
    }
}

/// What batch normalization goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The batch's statistics, which also move the running ones.
    Train,
    /// The running statistics, which stay as they are.
    FrozenBatchNorm,
}

/// The whole network.
pub struct ResNet50 {
    conv1: Convolution,
    bn1: BatchNorm,
    blocks: Vec<Bottleneck>,
    fc_weight: Tensor,
    fc_bias: Tensor,
}

impl ResNet50 {
    /// Makes the weights, drawn from the device's generator, and leaves each in `tensors` under its name.
    pub fn new(tensors: &mut NamedTensors) -> ResNet50 {
        let conv1 = Convolution::new(tensors, "conv1", [3, 64], 7, 2);
        let bn1 = BatchNorm::new(tensors, "bn1", 64);
        let mut blocks = Vec::new();
        let mut input = 64;
        for (layer, (count, inner, stride)) in
            [(3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)].into_iter().enumerate()
        {
            for block in 0..count {
                let name = format!("layer{}.{block}", layer + 1);
                blocks.push(Bottleneck::new(tensors, &name, input, inner, if block == 0 { stride } else { 1 }));
                input = 4 * inner;
            }
        }
        let fc_weight = tensors.linear("fc.weight".to_owned(), &[CLASSES, 2048], 2048);
        let fc_bias = tensors.linear("fc.bias".to_owned(), &[CLASSES], 2048);
        ResNet50 { conv1, bn1, blocks, fc_weight, fc_bias }
    }

    /// Scores of every class, `[batch, 1000]`, for images `[batch, 3, size, size]`.
    pub fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        let stem = self.bn1.forward(&self.conv1.forward(images)?, None, true, mode)?;
        let mut features = stem.f_max_pool2d([3, 3], [2, 2], [1, 1], [1, 1], false)?;
        for block in &self.blocks {
            features = block.forward(&features, mode)?;
        }
        let pooled = features.f_adaptive_avg_pool2d([1, 1])?.f_flatten(1, -1)?;
        Ok(pooled.f_linear(&self.fc_weight, Some(&self.fc_bias))?)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tch::Reduction;

    use super::*;
    use crate::model::named_tensors::Named;
    use crate::testing::seeded;

    #[test]
    fn it_has_torchvision_s_size() {
        let _generator = seeded(0);
        let mut tensors = NamedTensors::new(Device::Cpu);
        ResNet50::new(&mut tensors);
        assert_eq!((tensors.parameters.len(), tensors.elements()), (161, 25_557_032));
        assert_eq!(tensors.buffers.len(), 2 * 53);
        assert_eq!(tensors.parameters[3].name, "layer1.0.conv1.weight");
    }

    /// The numbers were made by `tests/golden/model_reference.py`, which says how and why from such weights.
    #[test]
    fn a_step_is_torchvision_s_in_both_layouts() {
        let golden: Value =
            serde_json::from_str(include_str!("../../../tests/golden/model_reference.json")).expect("JSON");
        let golden = &golden["step"];
        let _generator = seeded(8);
        for layout in ["nchw", "nhwc"] {
            let strided = |images: &Tensor| match layout {
                "nhwc" => images.permute([0, 2, 3, 1]).contiguous().permute([0, 3, 1, 2]),
                _ => images.contiguous(),
            };
            let mut tensors = NamedTensors::new(Device::Cpu);
            let model = ResNet50::new(&mut tensors);
            tch::manual_seed(8);
            for named in tensors.parameters.iter_mut().chain(&mut tensors.buffers) {
                let value = drawn(named);
                named.tensor.set_data(&if value.dim() == 4 { strided(&value) } else { value });
            }
            let images = strided(&Tensor::randn([2, 3, 64, 64], (Kind::Float, Device::Cpu)));
            let scores = model.forward(&images, Mode::Train).expect("scores");
            let labels = Tensor::from_slice(&[3i64, 977]);
            let loss = scores.cross_entropy_loss(&labels, None::<&Tensor>, Reduction::Mean, -100, 0.0);
            loss.backward();

            let check = |what: &str, actual: f64, expected: &Value| {
                let expected = expected.as_f64().expect("a number");
                let difference = (actual - expected).abs() / expected.abs();
                assert!(difference < 1e-4, "{layout}, {what}: {actual}, torchvision {expected}");
            };
            check("loss", loss.double_value(&[]), &golden["loss"]);
            for image in 0..2 {
                for (place, class) in [0, 3, 500, 977, 999].into_iter().enumerate() {
                    let score = scores.double_value(&[image, class]);
                    check(&format!("score {class} of {image}"), score, &golden["scores"][image as usize][place]);
                }
            }
            let norms = |key: &str, list: &[Named], norm: fn(&Tensor) -> Tensor| {
                for (name, expected) in golden[key].as_object().expect("norms by name") {
                    let named = list.iter().find(|named| &named.name == name).expect("a known name");
                    check(name, norm(&named.tensor).to_kind(Kind::Double).norm().double_value(&[]), expected);
                }
            };
            norms("gradient_norms", &tensors.parameters, Tensor::grad);
            norms("running_norms", &tensors.buffers, Tensor::shallow_clone);
        }
    }

    /// `drawn` of `tests/golden/model_reference.py`.
    fn drawn(named: &Named) -> Tensor {
        let (name, shape) = (&named.name, named.tensor.size());
        let (deviation, mean) = match shape[..] {
            [output, _, height, width] => ((2.0 / (output * height * width) as f64).sqrt(), 0.0),
            _ if name.starts_with("fc.") => (0.005, 0.0),
            _ if name.ends_with("bias") => (0.1, 2.0),
            _ if name.ends_with("running_mean") => (0.1, 0.0),
            _ if name.ends_with("bn3.weight") => (0.1, 0.25),
            _ => (0.1, 1.0),
        };
        Tensor::randn(&shape[..], (Kind::Float, Device::Cpu)) * deviation + mean
    }

    /// Output, gradients of images, shortcut, scale and offset, and moved running statistics of one normalization, the
    /// output's own gradient being `gradient`.
    fn normalized(
        norm: &BatchNorm,
        images: &Tensor,
        shortcut: Option<&Tensor>,
        relu: bool,
        gradient: &Tensor,
    ) -> Vec<Tensor> {
        let leaf = |tensor: &Tensor| tensor.detach().copy().set_requires_grad(true);
        let leaves = BatchNorm {
            weight: leaf(&norm.weight),
            bias: leaf(&norm.bias),
            running_mean: norm.running_mean.copy(),
            running_variance: norm.running_variance.copy(),
        };
        let (images, shortcut) = (leaf(images), shortcut.map(leaf));
        let output = leaves.forward(&images, shortcut.as_ref(), relu, Mode::Train).expect("sound shapes");
        (output.to_kind(Kind::Float) * gradient).sum(Kind::Float).backward();
        let mut all = vec![output, images.grad(), leaves.weight.grad(), leaves.bias.grad()];
        all.extend(shortcut.map(|shortcut| shortcut.grad()));
        all.extend([leaves.running_mean, leaves.running_variance]);
        all.iter().map(|tensor| tensor.detach().to_kind(Kind::Float).contiguous()).collect()
    }

    #[test]
    fn one_pass_gives_what_libtorch_gives_step_by_step() {
        let _generator = seeded(5);
        // The sums of two threads meet.
        tch::set_num_threads(2);
        let random = |shape: &[i64]| Tensor::randn(shape, (Kind::Float, Device::Cpu));
        for (channels, kind, tolerance) in [(37, Kind::Float, 2e-5), (64, Kind::BFloat16, 5e-3)] {
            let norm = BatchNorm {
                weight: random(&[channels]),
                bias: random(&[channels]),
                running_mean: random(&[channels]),
                running_variance: random(&[channels]).abs(),
            };
            // A mean far from zero, where careless sums lose digits; more rows than one block holds.
            let images = (random(&[3, channels, 23, 29]) + 10.0).to_kind(kind);
            let shortcut = random(&[3, channels, 23, 29]).to_kind(kind);
            let last = |tensor: &Tensor| tensor.permute([0, 2, 3, 1]).contiguous().permute([0, 3, 1, 2]);
            for (shortcut, relu) in [(None, false), (None, true), (Some(&shortcut), true)] {
                assert!(is_for_one_pass(&last(&images)) && !is_for_one_pass(&images));
                let exact = |tensor: &Tensor| tensor.to_kind(Kind::Float);
                let ramp = Tensor::linspace(-1.0, 1.0, images.numel() as i64, (Kind::Float, Device::Cpu));
                let ramp = ramp.view_as(&images);
                // Rounding decides on which side of ReLU's corner a value near it falls: no gradient comes in there.
                let before = &normalized(&norm, &exact(&images), shortcut.map(exact).as_ref(), false, &ramp)[0];
                let gradient = ramp * before.abs().gt(1e-3);
                let ours = normalized(&norm, &last(&images), shortcut.map(last).as_ref(), relu, &gradient);
                let theirs = normalized(&norm, &exact(&images), shortcut.map(exact).as_ref(), relu, &gradient);
                for (index, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                    let distance = ((ours - theirs).norm() / theirs.norm()).double_value(&[]);
                    assert!(distance < tolerance, "{kind:?}, relu {relu}, tensor {index}: {distance}");
                }
            }
        }
    }
}
