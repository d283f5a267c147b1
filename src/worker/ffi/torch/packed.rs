//! Fused layers for inference, without gradients: oneDNN's with prepacked weights, and cuDNN's convolution with ReLU.
//! Implemented in `packed.cpp`.

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

use anyhow::Result;
use tch::Tensor;

use crate::ffi::torch::shim::{self, RawTensor, new_tensor, raw, raw_or_null};

unsafe extern "C" {
    fn ringmark_computes_bf16(result: *mut c_int) -> *mut c_char;
    fn ringmark_pack_convolution(
        weight: RawTensor,
        images: RawTensor,
        geometry: ConvolutionArguments,
        result: *mut RawTensor,
    ) -> *mut c_char;
    fn ringmark_packed_convolution(
        images: RawTensor,
        weight: RawTensor,
        bias: RawTensor,
        geometry: ConvolutionArguments,
        sum: RawTensor,
        relu: bool,
        result: *mut RawTensor,
    ) -> *mut c_char;
    fn ringmark_rectified_convolution(
        images: RawTensor,
        weight: RawTensor,
        bias: RawTensor,
        geometry: ConvolutionArguments,
        sum: RawTensor,
        result: *mut RawTensor,
    ) -> *mut c_char;
    fn ringmark_pack_linear(weight: RawTensor, rows: i64, result: *mut RawTensor) -> *mut c_char;
    fn ringmark_packed_linear(
        features: RawTensor,
        weight: RawTensor,
        bias: RawTensor,
        sum: RawTensor,
        gelu: c_int,
        result: *mut RawTensor,
    ) -> *mut c_char;
}

/// Returns true if oneDNN has bf16 kernels for this processor. They need AVX-512 or AVX-NE-CONVERT.
pub fn has_bf16_kernels() -> Result<bool> {
    let mut result = 0;
    // SAFETY: the pointer is to a live int.
    shim::check(unsafe { ringmark_computes_bf16(&raw mut result) })?;
    Ok(result != 0)
}

/// Geometry of a convolution.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ConvolutionArguments {
    /// Vertical and horizontal padding.
    pub padding: [i64; 2],
    pub stride: i64,
    pub groups: i64,
}

/// Reorders `weight` for oneDNN's kernel for images of this shape. The result is only for [`packed_convolution`].
pub fn pack_convolution(weight: &Tensor, images: &Tensor, arguments: ConvolutionArguments) -> Result<Tensor> {
    // SAFETY: both tensors are alive.
    new_tensor(|result| unsafe { ringmark_pack_convolution(raw(weight), raw(images), arguments, result) })
}

/// Computes convolution, bias, optional sum and, if `relu`, ReLU in one pass. With `sum`, the result is in its memory.
pub fn packed_convolution(
    images: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    arguments: ConvolutionArguments,
    sum: Option<&Tensor>,
    relu: bool,
) -> Result<Tensor> {
    let (bias, sum) = (raw_or_null(bias), raw_or_null(sum));
    // SAFETY: all tensors are alive.
    new_tensor(|result| unsafe {
        ringmark_packed_convolution(raw(images), raw(weight), bias, arguments, sum, relu, result)
    })
}

/// Computes convolution, bias, optional sum and ReLU in one cuDNN kernel. Fails if cuDNN has no such kernel.
///
/// tch's binding panics on that error: it drops a `Scalar` before it reads the error.
pub fn rectified_convolution(
    images: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    arguments: ConvolutionArguments,
    sum: Option<&Tensor>,
) -> Result<Tensor> {
    let (bias, sum) = (raw_or_null(bias), raw_or_null(sum));
    // SAFETY: all tensors are alive.
    new_tensor(|result| unsafe {
        ringmark_rectified_convolution(raw(images), raw(weight), bias, arguments, sum, result)
    })
}

/// Formula of the Gaussian error linear unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gelu {
    Exact,
    /// Approximation by the hyperbolic tangent, of BERT and GPT-2.
    Tanh,
}

impl Gelu {
    /// Returns libtorch's name of the approximation.
    fn approximation(self) -> &'static str {
        match self {
            Gelu::Exact => "none",
            Gelu::Tanh => "tanh",
        }
    }
}

/// Operation that a linear layer applies to its result in the same pass.
#[derive(Debug, Clone, Copy)]
pub enum Epilogue<'sum> {
    Nothing,
    /// Gaussian error linear unit.
    Gelu(Gelu),
    /// Sum with this tensor.
    Add(&'sum Tensor),
}

impl Epilogue<'_> {
    /// Applies the operation to `result` in a separate pass.
    pub fn apply(self, result: Tensor) -> Result<Tensor> {
        Ok(match self {
            Epilogue::Nothing => result,
            Epilogue::Gelu(gelu) => result.f_gelu(gelu.approximation())?,
            Epilogue::Add(sum) => result.f_add(sum)?,
        })
    }
}

/// Reorders `weight`, `[output, input]`, for oneDNN's kernel for this number of rows of features. The result is only
/// for [`packed_linear`].
pub fn pack_linear(weight: &Tensor, rows: i64) -> Result<Tensor> {
    // SAFETY: the tensor is alive.
    new_tensor(|result| unsafe { ringmark_pack_linear(raw(weight), rows, result) })
}

/// Computes a linear layer of `features`, `[.., input]`, bias and the operation `epilogue` in one pass.
pub fn packed_linear(features: &Tensor, weight: &Tensor, bias: Option<&Tensor>, epilogue: Epilogue) -> Result<Tensor> {
    let sum = if let Epilogue::Add(sum) = epilogue { raw(sum) } else { null_mut() };
    let gelu = match epilogue {
        Epilogue::Gelu(Gelu::Exact) => 1,
        Epilogue::Gelu(Gelu::Tanh) => 2,
        _ => 0,
    };
    // SAFETY: all tensors are alive.
    new_tensor(|result| unsafe {
        ringmark_packed_linear(raw(features), raw(weight), raw_or_null(bias), sum, gelu, result)
    })
}
