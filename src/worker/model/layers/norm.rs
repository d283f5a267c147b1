//! Batch normalization with the operations fused into it, and layer normalization.

use anyhow::Result;
use ringmark_core::trace::LayerKind;
use tch::{Device, Kind, Tensor};

use crate::ffi::torch::norm::{self, BatchNormVectors, Fork};
use crate::measure::trace::layers::{self, LayerLabel, LayerWork};
use crate::model::layers::pool::Pool;
use crate::model::network::{Mode, NamedTensors};

/// Differences between the batch normalizations of networks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchNormKind {
    /// Added to the variance.
    pub epsilon: f64,
    /// True if the scale is 1 whatever its parameter is: MXNet's `fix_gamma`. The parameter's gradient is 0.
    pub fixed_scale: bool,
}

impl BatchNormKind {
    pub const PYTORCH: BatchNormKind = BatchNormKind { epsilon: 1e-5, fixed_scale: false };
}

/// Weight of the batch in the update of the running statistics.
const MOMENTUM: f64 = 0.1;

pub struct BatchNorm {
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_variance: Tensor,
    kind: BatchNormKind,
    label: LayerLabel,
}

impl BatchNorm {
    /// Adds a normalization of `channels` channels, named `name`.
    pub fn new(tensors: &mut NamedTensors, name: &str, channels: i64, kind: BatchNormKind) -> BatchNorm {
        let (weight, bias) = tensors.scale_and_offset(name, channels);
        let (running_mean, running_variance) = tensors.running_statistics(name, channels);
        let label = LayerLabel::new(LayerKind::BatchNorm, name);
        BatchNorm { weight, bias, running_mean, running_variance, kind, label }
    }

    /// Folds this normalization, with its running statistics, into a convolution with `weight` and `bias`; returns the
    /// weight and bias of the equivalent convolution, in fp32.
    pub fn folded_into(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<(Tensor, Option<Tensor>)> {
        let mut scale = self.running_variance.f_add_scalar(self.kind.epsilon)?.f_rsqrt()?;
        if !self.kind.fixed_scale {
            scale = scale.f_mul(&self.weight)?;
        }
        let weight = weight.f_mul(&scale.f_view([-1, 1, 1, 1])?)?;
        let bias = match bias {
            Some(bias) => bias.f_sub(&self.running_mean)?,
            None => self.running_mean.f_neg()?,
        };
        Ok((weight, Some(bias.f_mul(&scale)?.f_add(&self.bias)?)))
    }

    /// Normalizes `images` and applies `epilogue`. With `is_fork` the result has two consumers.
    pub fn forward(&self, images: &Tensor, epilogue: Epilogue, is_fork: bool, mode: Mode) -> Result<Fork> {
        let shortcut = epilogue.shortcut();
        let work = LayerWork::without_product(images).adding(shortcut);
        let Fork { first, second } =
            layers::pass_fork(&self.label, work, || self.normalized(images, epilogue, is_fork, mode))?;
        match epilogue {
            Epilogue::ReluAndMaxPool(pool) if !(has_kernels(images, mode) && pool.is_stem_window()) => {
                let pooled = pool.max_pool(&first)?;
                Ok(Fork { second: pooled.shallow_clone(), first: pooled })
            }
            Epilogue::ReluAndMaxPool(pool) => Ok(Fork { first: pool.done(&first)?, second }),
            _ => Ok(Fork { first, second }),
        }
    }

    /// Computes the 1x1 convolution of `images` by `convolution`, its normalization and `epilogue` in fused kernels.
    pub fn pointwise(&self, images: &Tensor, convolution: &Tensor, epilogue: Epilogue, is_fork: bool) -> Result<Fork> {
        let weight = self.scale();
        norm::pointwise_norm(images, convolution, &self.vectors(&weight), epilogue.shortcut(), is_fork)
    }

    /// Records a normalization that the kernels of the preceding convolution have computed, for its row in a layer
    /// profile.
    pub fn done(&self, fork: Fork) -> Result<Fork> {
        let work = LayerWork::without_product(&fork.first);
        let first = layers::pass(&self.label, work, || Ok(fork.first.shallow_clone()))?;
        Ok(Fork { first, ..fork })
    }

    fn scale(&self) -> Tensor {
        // A product, so that the parameter still has a gradient: the exchange waits for it.
        if self.kind.fixed_scale { &self.weight * 0.0 + 1.0 } else { self.weight.shallow_clone() }
    }

    fn vectors<'a>(&'a self, weight: &'a Tensor) -> BatchNormVectors<'a> {
        BatchNormVectors {
            weight,
            bias: &self.bias,
            running_mean: &self.running_mean,
            running_variance: &self.running_variance,
            momentum: MOMENTUM,
            epsilon: self.kind.epsilon,
        }
    }

    fn normalized(&self, images: &Tensor, epilogue: Epilogue, is_fork: bool, mode: Mode) -> Result<Fork> {
        let weight = self.scale();
        let (shortcut, relu) = (epilogue.shortcut(), !matches!(epilogue, Epilogue::Nothing));
        if has_kernels(images, mode) || is_for_one_pass(images, mode) {
            let vectors = self.vectors(&weight);
            return match epilogue {
                Epilogue::ReluAndMaxPool(pool) if images.device() != Device::Cpu && pool.is_stem_window() => {
                    norm::batch_norm_max_pool(images, &vectors, pool.window(), is_fork)
                }
                _ => norm::batch_norm(images, &vectors, shortcut, relu, is_fork),
            };
        }
        let mut result = images.f_batch_norm(
            Some(&weight),
            Some(&self.bias),
            Some(&self.running_mean),
            Some(&self.running_variance),
            mode.has_batch_statistics(),
            MOMENTUM,
            self.kind.epsilon,
            true,
        )?;
        if let Some(shortcut) = shortcut {
            result = result.f_add_(shortcut)?;
        }
        if relu {
            result = result.f_relu_()?;
        }
        Ok(Fork { second: result.shallow_clone(), first: result })
    }
}

/// Operation fused into a normalization.
#[derive(Debug, Clone, Copy)]
pub enum Epilogue<'a> {
    Nothing,
    Relu,
    SumAndRelu(&'a Tensor),
    ReluAndMaxPool(Pool),
}

impl<'a> Epilogue<'a> {
    pub fn shortcut(self) -> Option<&'a Tensor> {
        match self {
            Epilogue::SumAndRelu(shortcut) => Some(shortcut),
            _ => None,
        }
    }
}

/// Returns true if a GPU has kernels that normalize `images` with the batch's statistics.
fn has_kernels(images: &Tensor, mode: Mode) -> bool {
    mode.has_batch_statistics() && norm::has_kernels(images)
}

/// Returns true if the CPU normalizes `images` with the batch's statistics in one pass: in channels_last, fp32 or bf16.
fn is_for_one_pass(images: &Tensor, mode: Mode) -> bool {
    mode.has_batch_statistics()
        && images.device() == Device::Cpu
        && matches!(images.kind(), Kind::Float | Kind::BFloat16)
        && images.permute([0, 2, 3, 1]).is_contiguous()
}

/// Layer normalization, or RMS normalization (Zhang and Sennrich, 2019), which subtracts no mean and has no offset.
pub struct LayerNorm {
    weight: Tensor,
    /// `None` for RMS normalization.
    bias: Option<Tensor>,
    epsilon: f64,
    label: LayerLabel,
}

impl LayerNorm {
    /// Adds a layer normalization of `width` features, named `name`.
    pub fn new(tensors: &mut NamedTensors, name: &str, width: i64, epsilon: f64) -> LayerNorm {
        let (weight, bias) = tensors.scale_and_offset(name, width);
        LayerNorm { weight, bias: Some(bias), epsilon, label: LayerLabel::new(LayerKind::Norm, name) }
    }

    /// Adds an RMS normalization of `width` features, named `name`.
    pub fn root_mean_square(tensors: &mut NamedTensors, name: &str, width: i64, epsilon: f64) -> LayerNorm {
        let weight = tensors.scale(name, width);
        LayerNorm { weight, bias: None, epsilon, label: LayerLabel::new(LayerKind::Norm, name) }
    }

    pub fn forward(&self, features: &Tensor) -> Result<Tensor> {
        let (width, weight) = (self.weight.size(), Some(&self.weight));
        layers::pass(&self.label, LayerWork::without_product(features), || {
            Ok(match &self.bias {
                Some(bias) => features.f_layer_norm(width, weight, Some(bias), self.epsilon, true)?,
                None => features.f_rms_norm(width, weight, self.epsilon)?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::seeded;

    /// Returns the output, the gradients of images, shortcut, scale and offset, and the updated running statistics of
    /// one normalization whose output has the gradient `gradient`.
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
            kind: norm.kind,
            label: norm.label.clone(),
        };
        let (images, shortcut) = (leaf(images), shortcut.map(leaf));
        let epilogue = match (&shortcut, relu) {
            (Some(shortcut), _) => Epilogue::SumAndRelu(shortcut),
            (None, true) => Epilogue::Relu,
            (None, false) => Epilogue::Nothing,
        };
        let output = leaves.forward(&images, epilogue, false, Mode::Training).expect("sound shapes").first;
        (output.to_kind(Kind::Float) * gradient).sum(Kind::Float).backward();
        let mut all = vec![output, images.grad(), leaves.weight.grad(), leaves.bias.grad()];
        all.extend(shortcut.map(|shortcut| shortcut.grad()));
        all.extend([leaves.running_mean, leaves.running_variance]);
        all.iter().map(|tensor| tensor.detach().to_kind(Kind::Float).contiguous()).collect()
    }

    #[test]
    fn fused_batch_norm_matches_libtorch() {
        let _generator = seeded(5);
        // Two threads, so that their partial sums are combined.
        tch::set_num_threads(2);
        let random = |shape: &[i64]| Tensor::randn(shape, (Kind::Float, Device::Cpu));
        for (channels, kind, tolerance) in [(37, Kind::Float, 2e-5), (64, Kind::BFloat16, 5e-3)] {
            let norm = BatchNorm {
                weight: random(&[channels]),
                bias: random(&[channels]),
                running_mean: random(&[channels]),
                running_variance: random(&[channels]).abs(),
                kind: BatchNormKind::PYTORCH,
                label: LayerLabel::new(LayerKind::BatchNorm, "norm"),
            };
            // A mean far from zero, at which naive sums lose digits; more rows than fit in one block.
            let images = (random(&[3, channels, 23, 29]) + 10.0).to_kind(kind);
            let shortcut = random(&[3, channels, 23, 29]).to_kind(kind);
            let last = |tensor: &Tensor| tensor.permute([0, 2, 3, 1]).contiguous().permute([0, 3, 1, 2]);
            for (shortcut, relu) in [(None, false), (None, true), (Some(&shortcut), true)] {
                let is_for_one_pass = |images: &Tensor| is_for_one_pass(images, Mode::Training);
                assert!(is_for_one_pass(&last(&images)) && !is_for_one_pass(&images));
                let exact = |tensor: &Tensor| tensor.to_kind(Kind::Float);
                let ramp = Tensor::linspace(-1.0, 1.0, images.numel() as i64, (Kind::Float, Device::Cpu));
                let ramp = ramp.view_as(&images);
                // Rounding decides on which side of ReLU's corner a value near it is, so such values get no gradient.
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
