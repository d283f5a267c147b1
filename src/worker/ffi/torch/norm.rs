//! Fused batch normalization, pooling and 1x1 convolutions: `batch_norm.cpp`, and `pointwise_cuda.cpp` on GPUs.

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

use anyhow::Result;
use tch::Tensor;

use crate::ffi::torch::shim::{RawTensor, check, new_tensor, raw, raw_or_null};

unsafe extern "C" {
    fn ringmark_batch_norm(
        images: RawTensor,
        shortcut: RawTensor,
        vectors: RawVectors,
        relu: bool,
        first: *mut RawTensor,
        second: *mut RawTensor,
    ) -> *mut c_char;
    fn ringmark_batch_norm_max_pool(
        images: RawTensor,
        vectors: RawVectors,
        window: PoolWindow,
        first: *mut RawTensor,
        second: *mut RawTensor,
    ) -> *mut c_char;
    fn ringmark_has_pointwise_kernels(images: RawTensor, weight: RawTensor, has_shortcut: bool) -> c_int;
    fn ringmark_pointwise_norm(
        images: RawTensor,
        convolution: RawTensor,
        vectors: RawVectors,
        shortcut: RawTensor,
        first: *mut RawTensor,
        second: *mut RawTensor,
    ) -> *mut c_char;
    fn ringmark_max_pool(images: RawTensor, window: PoolWindow, result: *mut RawTensor) -> *mut c_char;
    fn ringmark_has_kernels(images: RawTensor) -> c_int;
    fn ringmark_are_kernels_loaded(images: RawTensor) -> c_int;
}

/// Vectors of one batch normalization, fp32, one value per channel, and its constants.
pub struct BatchNormVectors<'a> {
    pub weight: &'a Tensor,
    pub bias: &'a Tensor,
    pub running_mean: &'a Tensor,
    pub running_variance: &'a Tensor,
    /// Weight of the batch's statistics in the update.
    pub momentum: f64,
    /// Added to the variance.
    pub epsilon: f64,
}

/// [`BatchNormVectors`] as C++ takes them.
#[repr(C)]
struct RawVectors {
    weight: RawTensor,
    bias: RawTensor,
    running_mean: RawTensor,
    running_variance: RawTensor,
    momentum: f64,
    epsilon: f64,
}

impl BatchNormVectors<'_> {
    fn raw(&self) -> RawVectors {
        let BatchNormVectors { weight, bias, running_mean, running_variance, momentum, epsilon } = *self;
        let [weight, bias, running_mean, running_variance] = [weight, bias, running_mean, running_variance].map(raw);
        RawVectors { weight, bias, running_mean, running_variance, momentum, epsilon }
    }
}

/// An activation with two consumers. Autograd passes both gradients to its producer separately, and one kernel adds
/// them in the pass that it runs anyway; on the CPU autograd adds them.
pub struct Fork {
    pub first: Tensor,
    pub second: Tensor,
}

/// Returns the tensors that `call` creates unless it returns a message: two if `is_fork`, otherwise one.
fn new_fork(is_fork: bool, call: impl FnOnce(*mut RawTensor, *mut RawTensor) -> *mut c_char) -> Result<Fork> {
    let (mut first, mut second) = (null_mut(), null_mut());
    check(call(&raw mut first, if is_fork { &raw mut second } else { null_mut() }))?;
    // SAFETY: tensors on the heap, owned by the caller alone; the second is created only for a fork.
    let (first, second) = unsafe {
        let first = Tensor::from_ptr(first.cast());
        let second = if is_fork { Tensor::from_ptr(second.cast()) } else { first.shallow_clone() };
        (first, second)
    };
    Ok(Fork { first, second })
}

/// Returns true if `tensor` is channels_last and on a GPU with active kernels for its type.
pub fn are_kernels_loaded(tensor: &Tensor) -> bool {
    // SAFETY: the tensor is alive.
    unsafe { ringmark_are_kernels_loaded(raw(tensor)) != 0 }
}

/// Returns true if `images` are on a GPU with active kernels for their type, layout and channels.
pub fn has_kernels(images: &Tensor) -> bool {
    // SAFETY: the tensor is alive.
    unsafe { ringmark_has_kernels(raw(images)) != 0 }
}

/// Computes batch normalization with the batch's statistics, the sum with `shortcut` and ReLU, fused and
/// differentiable. Supports channels_last fp32 or bf16 images on the CPU, and images for which [`has_kernels`] is true.
pub fn batch_norm(
    images: &Tensor,
    vectors: &BatchNormVectors,
    shortcut: Option<&Tensor>,
    relu: bool,
    is_fork: bool,
) -> Result<Fork> {
    // SAFETY: all tensors are alive, null means no shortcut, and the results are written unless there is a message.
    new_fork(is_fork, |first, second| unsafe {
        ringmark_batch_norm(raw(images), raw_or_null(shortcut), vectors.raw(), relu, first, second)
    })
}

/// Square window of a pooling layer; kernels support a width of at most 15.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct PoolWindow {
    pub kernel: i64,
    pub stride: i64,
    pub padding: i64,
}

/// Computes batch normalization, ReLU and max pooling in one pass. [`has_kernels`] must be true for the images.
pub fn batch_norm_max_pool(
    images: &Tensor,
    vectors: &BatchNormVectors,
    window: PoolWindow,
    is_fork: bool,
) -> Result<Fork> {
    // SAFETY: all tensors are alive, and the results are written unless there is a message.
    new_fork(is_fork, |first, second| unsafe {
        ringmark_batch_norm_max_pool(raw(images), vectors.raw(), window, first, second)
    })
}

/// Returns true if there are active kernels for a 1x1 convolution of `images` by `weight` with its normalization and,
/// if `has_shortcut`, its sum and ReLU.
pub fn has_pointwise_kernels(images: &Tensor, weight: &Tensor, has_shortcut: bool) -> bool {
    // SAFETY: both tensors are alive.
    unsafe { ringmark_has_pointwise_kernels(raw(images), raw(weight), has_shortcut) != 0 }
}

/// Computes a 1x1 convolution and batch normalization with the batch's statistics; with `shortcut` also the sum and
/// ReLU. [`has_pointwise_kernels`] must be true for the arguments.
pub fn pointwise_norm(
    images: &Tensor,
    convolution: &Tensor,
    vectors: &BatchNormVectors,
    shortcut: Option<&Tensor>,
    is_fork: bool,
) -> Result<Fork> {
    // SAFETY: all tensors are alive, null means no shortcut, and the results are written unless there is a message.
    new_fork(is_fork, |first, second| unsafe {
        let shortcut = raw_or_null(shortcut);
        ringmark_pointwise_norm(raw(images), raw(convolution), vectors.raw(), shortcut, first, second)
    })
}

/// Computes max pooling. [`has_kernels`] must be true for the images.
pub fn max_pool(images: &Tensor, window: PoolWindow) -> Result<Tensor> {
    // SAFETY: the tensor is alive, and the result is written unless there is a message.
    new_tensor(|result| unsafe { ringmark_max_pool(raw(images), window, result) })
}
