//! Convolutions of inference: weights that stay as they are, in the order that the fastest kernel wants.

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use crate::ffi::shim::{self, Moves};

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
        let is_packed = images.device() == Device::Cpu && matches!(kind, Kind::Float | Kind::BFloat16);
        let weight = match is_packed {
            true => shim::pack_convolution(&weight, images, moves)?,
            false => weight,
        };
        Ok(PackedConvolution { weight, bias, moves, is_packed })
    }

    /// With `sum` added, whose memory the result takes, and ReLU if `relu`.
    pub fn forward(&self, images: &Tensor, sum: Option<&Tensor>, relu: bool) -> Result<Tensor> {
        let PackedConvolution { weight, bias, moves, is_packed } = self;
        let images = images.f_to_kind(weight.kind())?;
        if *is_packed {
            return shim::packed_convolution(&images, weight, bias.as_ref(), *moves, sum, relu);
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
