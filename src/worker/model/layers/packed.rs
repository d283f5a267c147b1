//! Convolutions and linear layers for inference, with constant weights in the order that the fastest kernel requires.

use std::cell::Cell;

use anyhow::Result;
use ringmark_core::benchmark::score::RectifiedConvolutions;
use tch::{Device, Kind, Tensor};

use crate::ffi::torch::graph;
use crate::ffi::torch::packed::{self, ConvolutionArguments, Epilogue};
use crate::measure::mark::Mark;

/// A convolution with a constant weight.
pub struct PackedConvolution {
    /// Reordered for oneDNN if `is_packed`.
    weight: Tensor,
    bias: Option<Tensor>,
    arguments: ConvolutionArguments,
    is_packed: bool,
    /// True if cuDNN computes it with ReLU and sum in one kernel; `None` before the first pass with ReLU.
    is_fused: Cell<Option<bool>>,
}

impl PackedConvolution {
    /// Prepares for images of this shape and device. Weight and bias are fp32; the computation is in `kind`.
    pub fn new(
        weight: &Tensor,
        bias: Option<&Tensor>,
        arguments: ConvolutionArguments,
        kind: Kind,
        images: &Tensor,
    ) -> Result<PackedConvolution> {
        let bias = bias.map(|bias| bias.f_to_kind(kind)).transpose()?;
        let weight = weight.f_to_kind(kind)?;
        let is_packed = can_pack(images.device(), kind)?;
        let weight = match is_packed {
            true => packed::pack_convolution(&weight, images, arguments)?,
            false => weight,
        };
        Ok(PackedConvolution { weight, bias, arguments, is_packed, is_fused: Cell::new(None) })
    }

    /// Computes the convolution, adds `sum`, whose memory the result may reuse, and applies ReLU if `relu`.
    pub fn forward(&self, images: &Tensor, sum: Option<&Tensor>, relu: bool) -> Result<Tensor> {
        let PackedConvolution { weight, bias, arguments, is_packed, .. } = self;
        let images = images.f_to_kind(weight.kind())?;
        if *is_packed {
            return packed::packed_convolution(&images, weight, bias.as_ref(), *arguments, sum, relu);
        }
        if relu && images.device().is_cuda() && self.is_fused(&images, sum) {
            return self.fused(&images, sum);
        }
        self.plain(&images, sum, relu)
    }

    fn is_fused(&self, images: &Tensor, sum: Option<&Tensor>) -> bool {
        if let Some(known) = self.is_fused.get() {
            return known;
        }
        // Separate kernels are also used if the check itself fails, for lack of memory for example.
        let found = self.can_fuse(images, sum).unwrap_or(false);
        self.is_fused.set(Some(found));
        let (fused, requested) = FUSED.get();
        FUSED.set((fused + u32::from(found), requested + 1));
        found
    }

    /// Returns true if cuDNN has a fused kernel for these images that is correct and not slower than separate kernels.
    ///
    /// Without a sum libtorch passes the uninitialized output as a sum of weight 0, so the check includes an output
    /// full of NaN.
    fn can_fuse(&self, images: &Tensor, sum: Option<&Tensor>) -> Result<bool> {
        /// Relative error of the norm. Separate kernels round several times, in bf16 to 3 digits.
        const TOLERANCE: f64 = 0.03;
        let plain = self.plain(images, sum, true)?;
        // cuDNN's heuristics choose the engine. A benchmark would compile every candidate, at up to a second each.
        tch::Cuda::cudnn_set_benchmark(false);
        let first = self.fused(images, sum);
        tch::Cuda::cudnn_set_benchmark(true);
        let first = first?;
        // The allocator reuses this block for the next tensor of its size.
        drop(plain.f_full_like(f64::NAN)?);
        let second = self.fused(images, sum)?;
        let plain = plain.f_to_kind(Kind::Float)?;
        let most = TOLERANCE * plain.f_norm()?.f_double_value(&[])?;
        for fused in [first, second] {
            let apart = (fused.f_to_kind(Kind::Float)? - &plain).f_norm()?.f_double_value(&[])?;
            if apart.is_nan() || apart > most {
                return Ok(false);
            }
        }
        let device = images.device();
        Ok(device_time(device, || self.fused(images, sum))? <= device_time(device, || self.plain(images, sum, true))?)
    }

    fn fused(&self, images: &Tensor, sum: Option<&Tensor>) -> Result<Tensor> {
        packed::rectified_convolution(images, &self.weight, self.bias.as_ref(), self.arguments, sum)
    }

    /// Computes convolution, bias, sum and ReLU with separate kernels.
    fn plain(&self, images: &Tensor, sum: Option<&Tensor>, relu: bool) -> Result<Tensor> {
        let PackedConvolution { weight, bias, arguments: ConvolutionArguments { padding, stride, groups }, .. } = self;
        let mut result = images.f_conv2d(weight, bias.as_ref(), [*stride; 2], padding, [1, 1], *groups)?;
        if let Some(sum) = sum {
            result = result.f_add_(sum)?;
        }
        if relu {
            result = result.f_relu_()?;
        }
        Ok(result)
    }
}

/// Measures the device time of a few calls, independent of the host's launch overhead.
fn device_time(device: Device, call: impl Fn() -> Result<Tensor>) -> Result<f64> {
    const CALLS: u32 = 8;
    graph::hold()?;
    let start = Mark::set(device)?;
    for _ in 0..CALLS {
        drop(call()?);
    }
    let end = Mark::set(device)?;
    end.wait(|| Ok(()))?;
    end.seconds_since(&start)
}

thread_local! {
    /// Number of fused convolutions, and of all convolutions with ReLU, that this thread has computed on CUDA.
    static FUSED: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// Counts the folded convolutions with ReLU that this thread has computed on CUDA.
pub fn rectified_convolutions() -> Option<RectifiedConvolutions> {
    let (fused, all) = FUSED.get();
    (all > 0).then_some(RectifiedConvolutions { all, fused })
}

/// A linear layer with a constant weight.
pub struct PackedLinear {
    /// Reordered for oneDNN if `is_packed`.
    weight: Tensor,
    bias: Option<Tensor>,
    is_packed: bool,
}

impl PackedLinear {
    /// Prepares for features of this shape and device.
    pub fn new(weight: &Tensor, bias: Option<&Tensor>, features: &Tensor) -> Result<PackedLinear> {
        let is_packed = can_pack(features.device(), weight.kind())?;
        let rows = features.size().iter().rev().skip(1).product();
        let packed = if is_packed { packed::pack_linear(weight, rows)? } else { weight.shallow_clone() };
        // Cast once: autocast would cast the bias in every pass. oneDNN's kernel takes it in fp32.
        let kind = |bias: &Tensor| if is_packed { bias.kind() } else { weight.kind() };
        let bias = bias.map(|bias| bias.f_to_kind(kind(bias))).transpose()?;
        Ok(PackedLinear { weight: packed, bias, is_packed })
    }

    /// Computes the layer of features `[.., input]`.
    pub fn forward(&self, features: &Tensor, epilogue: Epilogue) -> Result<Tensor> {
        let PackedLinear { weight, bias, is_packed } = self;
        let features = features.f_to_kind(weight.kind())?;
        if !is_packed {
            return epilogue.apply(features.f_linear(weight, bias.as_ref())?);
        }
        match epilogue {
            // The kernel can only add a tensor of its own type.
            Epilogue::Add(sum) if sum.kind() != weight.kind() => {
                epilogue.apply(packed::packed_linear(&features, weight, bias.as_ref(), Epilogue::Nothing)?)
            }
            _ => packed::packed_linear(&features, weight, bias.as_ref(), epilogue),
        }
    }
}

/// Returns true if oneDNN has kernels for weights in its own order.
fn can_pack(device: Device, kind: Kind) -> Result<bool> {
    match (device, kind) {
        (Device::Cpu, Kind::Float) => Ok(true),
        (Device::Cpu, Kind::BFloat16) => packed::has_bf16_kernels(),
        _ => Ok(false),
    }
}
