//! Convolutions, alone and fused with the following normalization.

use std::cell::{OnceCell, RefCell};

use anyhow::Result;
use ringmark_core::trace::LayerKind;
use tch::{Device, Kind, Tensor};

use crate::ffi::torch::norm::{self, Fork};
use crate::ffi::torch::packed::ConvolutionArguments;
use crate::ffi::torch::shim;
use crate::measure::trace::layers::{self, LayerLabel, LayerWork};
use crate::model::layers::norm::{BatchNorm, BatchNormKind, Epilogue};
use crate::model::layers::packed::PackedConvolution;
use crate::model::layers::pool::Pool;
use crate::model::network::{Initializers, Mode, NamedTensors};

/// Color channels of the input images.
const COLORS: i64 = 3;

/// Channels, kernel size, stride, padding and groups.
#[derive(Debug, Clone, Copy)]
pub struct ConvolutionShape {
    pub input: i64,
    pub output: i64,
    /// Height and width in pixels.
    pub kernel: [i64; 2],
    pub stride: i64,
    /// Vertical and horizontal padding in pixels.
    pub padding: [i64; 2],
    pub groups: i64,
}

impl ConvolutionShape {
    /// Creates a kernel of `height` x `width` pixels, padded so that it keeps the image size.
    pub const fn new(input: i64, output: i64, [height, width]: [i64; 2]) -> ConvolutionShape {
        let padding = [height / 2, width / 2];
        ConvolutionShape { input, output, kernel: [height, width], stride: 1, padding, groups: 1 }
    }

    pub const fn square(input: i64, output: i64, kernel: i64) -> ConvolutionShape {
        ConvolutionShape::new(input, output, [kernel; 2])
    }

    pub const fn stride(self, stride: i64) -> ConvolutionShape {
        ConvolutionShape { stride, ..self }
    }

    /// Sets the padding in pixels.
    pub const fn padding(self, padding: i64) -> ConvolutionShape {
        ConvolutionShape { padding: [padding; 2], ..self }
    }

    /// Sets the number of groups of channels, which are convolved separately.
    pub const fn groups(self, groups: i64) -> ConvolutionShape {
        ConvolutionShape { groups, ..self }
    }

    fn arguments(&self) -> ConvolutionArguments {
        ConvolutionArguments { padding: self.padding, stride: self.stride, groups: self.groups }
    }

    fn is_pointwise(&self) -> bool {
        self.kernel == [1, 1] && self.groups == 1
    }
}

/// A convolution, with or without bias.
pub struct Convolution {
    weight: Tensor,
    bias: Option<Tensor>,
    shape: ConvolutionShape,
    packed: OnceCell<PackedConvolution>,
    /// Memory for the rearranged input of the first convolution, for cuDNN.
    arranged: RefCell<Option<Tensor>>,
    label: LayerLabel,
}

impl Convolution {
    /// Creates the tensors under `name`.
    pub fn new(
        tensors: &mut NamedTensors,
        name: &str,
        shape: ConvolutionShape,
        initializers: Initializers,
    ) -> Convolution {
        let ConvolutionShape { input, output, kernel: [height, width], groups, .. } = shape;
        let (weight, bias) = tensors.weight_and_bias(name, &[output, input / groups, height, width], initializers);
        let label = LayerLabel::new(LayerKind::Convolution, name);
        Convolution { weight, bias, shape, packed: OnceCell::new(), arranged: RefCell::default(), label }
    }

    /// Convolves images `[batch, input, height, width]`.
    pub fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        self.pass(images, None, || match mode {
            Mode::Folded => self.packed(images, None)?.forward(images, None, false),
            _ => self.plain(images),
        })
    }

    pub fn rectified(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        self.pass(images, None, || match mode {
            Mode::Folded => self.packed(images, None)?.forward(images, None, true),
            _ => Ok(self.plain(images)?.f_relu_()?),
        })
    }

    fn pass(&self, images: &Tensor, added: Option<&Tensor>, body: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        layers::pass(&self.label, self.work(images, added), body)
    }

    fn work<'a>(&'a self, images: &'a Tensor, added: Option<&'a Tensor>) -> LayerWork<'a> {
        let ConvolutionShape { input, kernel: [height, width], groups, .. } = self.shape;
        LayerWork::product(images, &self.weight, input / groups * height * width).adding(added)
    }

    /// Returns weights packed for images of this shape with `norm` folded in. Packs them once.
    fn packed(&self, images: &Tensor, norm: Option<&BatchNorm>) -> Result<&PackedConvolution> {
        if let Some(packed) = self.packed.get() {
            return Ok(packed);
        }
        let _no_gradient = tch::no_grad_guard();
        let kind = self.weight.kind();
        let weight = self.weight.f_to_kind(Kind::Float)?;
        let bias = self.bias.as_ref().map(Tensor::shallow_clone);
        let (weight, bias) = match norm {
            Some(norm) => norm.folded_into(&weight, bias.as_ref())?,
            None => (weight, bias),
        };
        let packed = PackedConvolution::new(&weight, bias.as_ref(), self.shape.arguments(), kind, images)?;
        Ok(self.packed.get_or_init(|| packed))
    }

    fn plain(&self, images: &Tensor) -> Result<Tensor> {
        let ConvolutionShape { stride, padding, groups, .. } = self.shape;
        let on_cpu = images.device() == Device::Cpu;
        if self.shape.is_pointwise() && padding == [0, 0] && on_cpu && self.weight.kind() == Kind::BFloat16 {
            let pixels = images.f_permute([0, 2, 3, 1])?;
            if pixels.is_contiguous() {
                let pixels = if stride == 1 { pixels } else { strided(images, stride)?.f_permute([0, 2, 3, 1])? };
                return self.as_product(&pixels);
            }
        }
        // MXNet's ResNets normalize the images with parameters, whose gradients come from those of the images.
        if self.shape.input == COLORS && norm::are_kernels_loaded(&self.weight) && !images.requires_grad() {
            return self.convolve_colors(images);
        }
        // Dilation has no effect on a kernel of one pixel. On the CPU libtorch computes undilated ones of a small batch
        // on one thread by a plain matrix product that first copies channels_last images; dilated ones always use
        // oneDNN.
        let dilation = if self.shape.is_pointwise() && on_cpu { 2 } else { 1 };
        Ok(images.f_conv2d(&self.weight, self.bias.as_ref(), [stride; 2], padding, [dilation; 2], groups)?)
    }

    /// Convolves images with three channels, which are slow in cuDNN, without gradients for the images. In fp16 and fp32 a fourth channel of zeros is
    /// added, as in MLPerf's networks. In bf16 and TF32 each block of 2x2 pixels is folded into one pixel of 12
    /// channels, so that a 7x7 convolution with stride 2 becomes an equivalent 4x4 one with stride 1; bf16 adds four
    /// channels of zeros. Milliseconds of forward and weight gradient, batch size 128, on an H200
    /// (scripts/dev/gpu_kernels.py --parts first_convolution):
    ///
    /// | channels | fp16 | bf16 | tf32 |
    /// |---|---|---|---|
    /// | 3 | 0.58 | 1.47 | 1.69 |
    /// | 4 | **0.42** | 1.46 | 1.55 |
    /// | 12 | 0.67 | 0.73 | **1.21** |
    /// | 16 | 0.57 | **0.57** | 1.24 |
    fn convolve_colors(&self, images: &Tensor) -> Result<Tensor> {
        let ConvolutionShape { kernel, stride, padding, groups, .. } = self.shape;
        let size = images.size();
        let is_stem = (kernel, stride, padding) == ([7, 7], 2, [3, 3]) && size[2..].iter().all(|side| side % 2 == 0);
        let bias = self.bias.as_ref();
        let pixels = images.detach().f_permute([0, 2, 3, 1])?;
        let is_folded = match self.weight.kind() {
            Kind::BFloat16 => true,
            Kind::Float => shim::allows_tf32(),
            _ => false,
        };
        if !(is_folded && is_stem) {
            let arranged = self.arranged([size[0], size[2], size[3], COLORS + 1])?;
            arranged.f_narrow(3, 0, COLORS)?.f_copy_(&pixels)?;
            let weight = self.weight.f_constant_pad_nd([0, 0, 0, 0, 0, 1])?;
            let images = arranged.f_permute([0, 3, 1, 2])?;
            return Ok(images.f_conv2d(&weight, bias, [stride; 2], padding, [1; 2], groups)?);
        }
        let channels = 4 * COLORS;
        let zeros = if self.weight.kind() == Kind::BFloat16 { 4 } else { 0 };
        let [height, width] = [size[2] / 2, size[3] / 2];
        // Output pixel i reads pixels 2i - 3 to 2i + 3. With 2i - 4, whose weight is zero, these are blocks i - 2 to i
        // + 1.
        let arranged = self.arranged([size[0], height + 3, width + 3, channels + zeros])?;
        let inner = arranged.f_narrow(1, 2, height)?.f_narrow(2, 2, width)?.f_narrow(3, 0, channels)?;
        let blocks = pixels.f_view([size[0], height, 2, width, 2, COLORS])?.f_permute([0, 1, 3, 2, 4, 5])?;
        inner.f_unflatten(3, [2, 2, COLORS])?.f_copy_(&blocks)?;
        let weight = self.weight.f_constant_pad_nd([1, 0, 1, 0])?.f_view([-1, COLORS, 4, 2, 4, 2])?;
        let weight = weight.f_permute([0, 2, 4, 3, 5, 1])?.f_reshape([-1, 4, 4, channels])?;
        let weight = weight.f_constant_pad_nd([0, zeros])?.f_permute([0, 3, 1, 2])?;
        Ok(arranged.f_permute([0, 3, 1, 2])?.f_conv2d(&weight, bias, [1; 2], [0; 2], [1; 2], groups)?)
    }

    /// Returns reused memory of this shape in the weight's type, initially zero.
    fn arranged(&self, shape: [i64; 4]) -> Result<Tensor> {
        let mut kept = self.arranged.borrow_mut();
        if kept.as_ref().is_none_or(|kept| kept.size() != shape) {
            *kept = Some(Tensor::f_zeros(shape, (self.weight.kind(), self.weight.device()))?);
        }
        Ok(kept.as_ref().expect("made above").detach())
    }

    /// Computes a 1x1 convolution as a matrix product over the channels of `pixels`, `[batch, height, width,
    /// channels]`. oneDNN's bf16 product is faster than its bf16 convolution by an eighth; in fp32 it is slower.
    fn as_product(&self, pixels: &Tensor) -> Result<Tensor> {
        let scores = pixels.f_linear(&self.weight.f_flatten(1, -1)?, self.bias.as_ref())?;
        Ok(scores.f_permute([0, 3, 1, 2])?)
    }
}

/// Selects every `stride`-th pixel in both directions, with a kernel that keeps channels last and whose gradient is one
/// pass. oneDNN has no AMX kernels for the gradients of a strided 1x1 convolution, which took 17 % of its time in a
/// bf16 step of ResNet-50 on a Xeon.
fn strided(images: &Tensor, stride: i64) -> Result<Tensor> {
    Ok(images.f_avg_pool2d([1; 2], [stride; 2], [0; 2], false, true, None)?)
}

pub struct ConvolutionNorm {
    convolution: Convolution,
    norm: BatchNorm,
}

impl ConvolutionNorm {
    /// Creates the tensors of both, under the two names.
    pub fn new(
        tensors: &mut NamedTensors,
        names: [&str; 2],
        shape: ConvolutionShape,
        initializers: Initializers,
        kind: BatchNormKind,
    ) -> ConvolutionNorm {
        ConvolutionNorm {
            convolution: Convolution::new(tensors, names[0], shape, initializers),
            norm: BatchNorm::new(tensors, names[1], shape.output, kind),
        }
    }

    /// Convolves, normalizes and applies ReLU.
    pub fn rectified(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        Ok(self.forward(images, Epilogue::Relu, false, mode)?.first)
    }

    pub fn linear(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        Ok(self.forward(images, Epilogue::Nothing, false, mode)?.first)
    }

    /// Convolves, normalizes, adds `shortcut` and applies ReLU, for two consumers. The result may reuse the shortcut's
    /// memory.
    pub fn added(&self, images: &Tensor, shortcut: &Tensor, mode: Mode) -> Result<Fork> {
        self.forward(images, Epilogue::SumAndRelu(shortcut), true, mode)
    }

    /// Convolves, normalizes, applies ReLU and pools, for two consumers.
    pub fn pooled(&self, images: &Tensor, pool: Pool, mode: Mode) -> Result<Fork> {
        self.forward(images, Epilogue::ReluAndMaxPool(pool), true, mode)
    }

    fn forward(&self, images: &Tensor, epilogue: Epilogue, is_fork: bool, mode: Mode) -> Result<Fork> {
        if mode == Mode::Folded {
            let (shortcut, relu) = (epilogue.shortcut(), !matches!(epilogue, Epilogue::Nothing));
            let folded = || self.convolution.packed(images, Some(&self.norm))?.forward(images, shortcut, relu);
            let mut result = self.convolution.pass(images, shortcut, folded)?;
            if let Epilogue::ReluAndMaxPool(pool) = epilogue {
                result = pool.max_pool(&result)?;
            }
            return Ok(Fork { second: result.shallow_clone(), first: result });
        }
        if self.is_for_pointwise(images, epilogue, mode) {
            let convolution = &self.convolution;
            let work = convolution.work(images, epilogue.shortcut());
            let body = || self.norm.pointwise(images, &convolution.weight, epilogue, is_fork);
            return self.norm.done(layers::pass_fork(&convolution.label, work, body)?);
        }
        self.norm.forward(&self.convolution.forward(images, mode)?, epilogue, is_fork, mode)
    }
}

impl ConvolutionNorm {
    /// Returns true if one kernel computes convolution and normalization together.
    fn is_for_pointwise(&self, images: &Tensor, epilogue: Epilogue, mode: Mode) -> bool {
        let Convolution { weight, bias, shape, .. } = &self.convolution;
        mode.has_batch_statistics()
            && shape.is_pointwise()
            && shape.stride == 1
            && bias.is_none()
            && matches!(epilogue, Epilogue::Nothing | Epilogue::SumAndRelu(_))
            && norm::has_pointwise_kernels(images, weight, epilogue.shortcut().is_some())
    }
}

#[cfg(test)]
mod tests {
    use ringmark_core::dimension::Source;

    use super::*;
    use crate::testing::seeded;

    #[test]
    fn strided_product_matches_stride_two_convolution() {
        let _generator = seeded(5);
        let random = |shape: &[i64]| Tensor::randn(shape, (Kind::BFloat16, Device::Cpu));
        for size in [8, 9] {
            let shape = ConvolutionShape::square(16, 24, 1).padding(0).stride(2);
            let weight = random(&[24, 16, 1, 1]).set_requires_grad(true);
            let images = random(&[2, size, size, 16]).permute([0, 3, 1, 2]).detach().set_requires_grad(true);
            let label = LayerLabel::new(LayerKind::Convolution, "conv");
            let unit = Convolution {
                weight: weight.shallow_clone(),
                bias: None,
                shape,
                packed: OnceCell::new(),
                arranged: RefCell::default(),
                label,
            };
            let run = |result: Tensor| {
                let gradients =
                    Tensor::run_backward(&[result.square().sum(Kind::Float)], &[&images, &weight], false, false);
                std::iter::once(result).chain(gradients).collect::<Vec<Tensor>>()
            };
            let ours = run(unit.forward(&images, Mode::Training).expect("a result"));
            let theirs = run(images.conv2d(&weight, None::<Tensor>, [2, 2], [0, 0], [1, 1], 1));
            for (ours, theirs) in ours.iter().zip(&theirs) {
                let difference = (ours - theirs).to_kind(Kind::Float).norm() / theirs.to_kind(Kind::Float).norm();
                let difference = difference.double_value(&[]);
                assert!(difference < 1e-2 && ours.size() == theirs.size(), "{size}: {difference}");
            }
            assert!(ours[0].permute([0, 2, 3, 1]).is_contiguous(), "channels stay last");
        }
    }

    #[test]
    fn folded_unit_matches_separate_layers() {
        let _generator = seeded(3);
        let random = |shape: &[i64]| Tensor::randn(shape, (Kind::Float, Device::Cpu));
        let last = |tensor: Tensor| tensor.permute([0, 2, 3, 1]).contiguous().permute([0, 3, 1, 2]);
        let shapes = [
            ConvolutionShape::square(16, 16, 1),
            ConvolutionShape::square(16, 16, 3).groups(4),
            ConvolutionShape::new(16, 16, [1, 7]),
            ConvolutionShape::square(16, 16, 3).stride(2),
        ];
        for (is_fixed, shape) in [false, true].into_iter().flat_map(|is_fixed| shapes.map(|shape| (is_fixed, shape))) {
            for arranged in [|tensor: Tensor| tensor, last] {
                let mut tensors = NamedTensors::new(Source::Torchvision, Device::Cpu);
                let kind = BatchNormKind { epsilon: 1e-3, fixed_scale: is_fixed };
                let unit = ConvolutionNorm::new(&mut tensors, ["conv", "bn"], shape, Initializers::PYTORCH, kind);
                tensors.initialize();
                let _no_gradient = tch::no_grad_guard();
                for named in &tensors.buffers {
                    named.tensor.shallow_clone().copy_(&random(&[16]).abs());
                }
                let images = arranged(random(&[2, 16, 9, 9]));
                let plain = unit.linear(&images, Mode::Inference).expect("a result");
                let shortcut = arranged(random(&plain.size()));
                let plain = unit.added(&images, &shortcut, Mode::Inference).expect("a result").first;
                let folded = unit.added(&images, &shortcut.copy(), Mode::Folded).expect("a result").first;
                let difference = (&plain - &folded).abs().max().double_value(&[]);
                assert!(difference < 1e-5, "{shape:?}, fixed {is_fixed}: {difference}");
                let again = unit.rectified(&images, Mode::Folded).expect("a result");
                let plain = unit.rectified(&images, Mode::Inference).expect("a result");
                assert!((plain - again).abs().max().double_value(&[]) < 1e-5, "{shape:?}, fixed {is_fixed}");
            }
        }
    }
}
