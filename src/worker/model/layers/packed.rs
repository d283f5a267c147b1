//! Convolutions and linear layers of inference: weights that stay as they are, in the order that the fastest kernel wants.

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use crate::ffi::packed::{self, After, Moves};

/// A convolution whose weight does not change.
pub struct PackedConvolution {
    /// In oneDNN's order if `is_packed`.
    weight: Tensor,
    bias: Option<Tensor>,
    moves: Moves,
    is_packed: bool,
}

impl PackedConvolution {
    /// For images of the shape and on the device of these. Weight and bias are fp32; it computes in `kind`.
    pub fn new(
        weight: &Tensor,
        bias: Option<&Tensor>,
        moves: Moves,
        kind: Kind,
        images: &Tensor,
    ) -> Result<PackedConvolution> {
        let bias = bias.map(|bias| bias.f_to_kind(kind)).transpose()?;
        let weight = weight.f_to_kind(kind)?;
        let is_packed = can_pack(images.device(), kind)?;
        let weight = match is_packed {
            true => packed::pack_convolution(&weight, images, moves)?,
            false => weight,
        };
        Ok(PackedConvolution { weight, bias, moves, is_packed })
    }

    /// With `sum` added, whose memory the result takes, and ReLU if `relu`.
    pub fn forward(&self, images: &Tensor, sum: Option<&Tensor>, relu: bool) -> Result<Tensor> {
        let PackedConvolution { weight, bias, moves, is_packed } = self;
        let images = images.f_to_kind(weight.kind())?;
        if *is_packed {
            return packed::packed_convolution(&images, weight, bias.as_ref(), *moves, sum, relu);
        }
        let Moves { padding, stride, groups } = *moves;
        let mut result = images.f_conv2d(weight, bias.as_ref(), [stride; 2], padding, [1, 1], groups)?;
        if let Some(sum) = sum {
            result = result.f_add_(sum)?;
        }
        if relu {
            result = result.f_relu_()?;
        }
        Ok(result)
    }
}

/// A linear layer whose weight does not change.
pub struct PackedLinear {
    /// In oneDNN's order if `is_packed`.
    weight: Tensor,
    bias: Option<Tensor>,
    is_packed: bool,
}

impl PackedLinear {
    /// For features of the shape and on the device of these.
    pub fn new(weight: &Tensor, bias: Option<&Tensor>, features: &Tensor) -> Result<PackedLinear> {
        let is_packed = can_pack(features.device(), weight.kind())?;
        let rows = features.size().iter().rev().skip(1).product();
        let packed = if is_packed { packed::pack_linear(weight, rows)? } else { weight.shallow_clone() };
        Ok(PackedLinear { weight: packed, bias: bias.map(Tensor::shallow_clone), is_packed })
    }

    /// Of features `[.., input]`.
    pub fn forward(&self, features: &Tensor, after: After) -> Result<Tensor> {
        let PackedLinear { weight, bias, is_packed } = self;
        let features = features.f_to_kind(weight.kind())?;
        if !is_packed {
            return after.of(features.f_linear(weight, bias.as_ref())?);
        }
        match after {
            // The kernel adds its own type alone.
            After::Add(sum) if sum.kind() != weight.kind() => {
                after.of(packed::packed_linear(&features, weight, bias.as_ref(), After::Nothing)?)
            }
            _ => packed::packed_linear(&features, weight, bias.as_ref(), after),
        }
    }
}

/// Whether oneDNN has kernels that take weights in their own order.
fn can_pack(device: Device, kind: Kind) -> Result<bool> {
    match (device, kind) {
        (Device::Cpu, Kind::Float) => Ok(true),
        (Device::Cpu, Kind::BFloat16) => packed::computes_bf16(),
        _ => Ok(false),
    }
}
