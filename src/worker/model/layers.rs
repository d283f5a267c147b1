//! The layers that networks are made of: convolution, batch normalization with what follows it, linear. On the CPU each
//! takes the fastest path that libtorch and the shim have for it; what it computes is torchvision's.

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use crate::ffi::shim::{self, BatchNormVectors};
use crate::model::named_tensors::NamedTensors;
use crate::model::network::Mode;

/// A convolution without bias.
pub struct Convolution {
    weight: Tensor,
    stride: i64,
    padding: i64,
}

/// Channels, and a square kernel of `kernel` pixels, padded so that a stride of 1 keeps the size.
#[derive(Debug, Clone, Copy)]
pub struct ConvolutionShape {
    pub input: i64,
    pub output: i64,
    pub kernel: i64,
    pub stride: i64,
}

impl Convolution {
    /// Makes its weight, under `name`.
    pub fn new(tensors: &mut NamedTensors, name: &str, shape: ConvolutionShape) -> Convolution {
        let ConvolutionShape { input, output, kernel, stride } = shape;
        let weight = tensors.convolution(format!("{name}.weight"), [output, input, kernel, kernel]);
        Convolution { weight, stride, padding: kernel / 2 }
    }

    /// Of images `[batch, input, height, width]`.
    pub fn forward(&self, images: &Tensor) -> Result<Tensor> {
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

/// Batch normalization with the sum and the ReLU that follow it.
pub struct BatchNorm {
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_variance: Tensor,
}

impl BatchNorm {
    /// Of `channels`, under `name`.
    pub fn new(tensors: &mut NamedTensors, name: &str, channels: i64) -> BatchNorm {
        BatchNorm {
            weight: tensors.constant(format!("{name}.weight"), channels, 1.0),
            bias: tensors.constant(format!("{name}.bias"), channels, 0.0),
            running_mean: tensors.buffer(format!("{name}.running_mean"), channels, 0.0),
            running_variance: tensors.buffer(format!("{name}.running_var"), channels, 1.0),
        }
    }

    /// Normalizes, adds `shortcut`, and rectifies if `relu`.
    pub fn forward(&self, images: &Tensor, shortcut: Option<&Tensor>, relu: bool, mode: Mode) -> Result<Tensor> {
        const MOMENTUM: f64 = 0.1;
        const EPSILON: f64 = 1e-5;
        if mode == Mode::BatchStatistics && is_for_one_pass(images) {
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
            mode == Mode::BatchStatistics,
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

/// A linear layer with bias.
pub struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    /// Makes weight and bias, under `name`.
    pub fn new(tensors: &mut NamedTensors, name: &str, input: i64, output: i64) -> Linear {
        Linear {
            weight: tensors.linear(format!("{name}.weight"), &[output, input], input),
            bias: tensors.linear(format!("{name}.bias"), &[output], input),
        }
    }

    /// Of features `[batch, input]`.
    pub fn forward(&self, features: &Tensor) -> Result<Tensor> {
        Ok(features.f_linear(&self.weight, Some(&self.bias))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::seeded;

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
        let output = leaves.forward(&images, shortcut.as_ref(), relu, Mode::BatchStatistics).expect("sound shapes");
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
