//! Fused weight updates: `shim.cpp`, and `update_cuda.cpp` on GPUs.

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

use anyhow::Result;
use tch::Tensor;

use crate::ffi::torch::shim::{RawTensor, check, raw};

unsafe extern "C" {
    fn ringmark_sgd(
        weights: RawTensor,
        gradients: RawTensor,
        momenta: RawTensor,
        learning_rate: f64,
        momentum: f64,
        is_nesterov: c_int,
        weight_decay: f64,
        found_inf: RawTensor,
    ) -> *mut c_char;
    fn ringmark_adam(
        weights: RawTensor,
        gradients: RawTensor,
        first_moments: RawTensor,
        second_moments: RawTensor,
        updates: RawTensor,
        learning_rate: f64,
        beta1: f64,
        beta2: f64,
        epsilon: f64,
        weight_decay: f64,
        is_decoupled: c_int,
        found_inf: RawTensor,
    ) -> *mut c_char;
    fn ringmark_has_update_kernel(
        weights: RawTensor,
        gradients: RawTensor,
        momenta: RawTensor,
        rounded: RawTensor,
    ) -> c_int;
    fn ringmark_update(
        weights: RawTensor,
        gradients: RawTensor,
        momenta: RawTensor,
        rounded: RawTensor,
        scale: RawTensor,
        found_inf: RawTensor,
        rate: f64,
        momentum: f64,
        decay: f64,
    ) -> *mut c_char;
    fn ringmark_unscale(gradients: RawTensor, found_inf: RawTensor, inverse_scale: RawTensor) -> *mut c_char;
}

/// Constants of one step of gradient descent with momentum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdStep {
    pub learning_rate: f64,
    /// Factor of the momenta; 0 needs none.
    pub momentum: f64,
    pub is_nesterov: bool,
    /// L2 penalty.
    pub weight_decay: f64,
}

/// Runs one fused step over flat tensors of equal length. Nothing changes if `found_inf` is not zero.
pub fn sgd(
    [weights, gradients]: [&Tensor; 2],
    momenta: Option<&Tensor>,
    step: SgdStep,
    found_inf: Option<&Tensor>,
) -> Result<()> {
    // SAFETY: all tensors are alive; null means no momenta and no found_inf.
    check(unsafe {
        ringmark_sgd(
            raw(weights),
            raw(gradients),
            momenta.map_or(null_mut(), raw),
            step.learning_rate,
            step.momentum,
            step.is_nesterov.into(),
            step.weight_decay,
            found_inf.map_or(null_mut(), raw),
        )
    })
}

/// Constants of one step of Adam.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamStep {
    pub learning_rate: f64,
    /// Decay rates of the moments.
    pub betas: [f64; 2],
    /// Added to the square root of the corrected second moment.
    pub epsilon: f64,
    pub weight_decay: f64,
    /// True if the weights decay directly (AdamW), false if the decay is an L2 penalty in the gradient.
    pub is_decoupled: bool,
}

/// Runs one fused step over flat tensors of equal length. `updates` is the number of updates including this one, an
/// fp32 tensor of one element on their device. Nothing changes if `found_inf` is not zero.
pub fn adam(
    [weights, gradients]: [&Tensor; 2],
    [first_moments, second_moments]: [&Tensor; 2],
    updates: &Tensor,
    step: AdamStep,
    found_inf: Option<&Tensor>,
) -> Result<()> {
    // SAFETY: all tensors are alive; null means no found_inf.
    check(unsafe {
        ringmark_adam(
            raw(weights),
            raw(gradients),
            raw(first_moments),
            raw(second_moments),
            raw(updates),
            step.learning_rate,
            step.betas[0],
            step.betas[1],
            step.epsilon,
            step.weight_decay,
            step.is_decoupled.into(),
            found_inf.map_or(null_mut(), raw),
        )
    })
}

/// Flat tensors of a Nesterov update on a GPU. They have equal length and are fp32 except for the copy.
pub struct FlatUpdate<'a> {
    pub weights: &'a Tensor,
    pub gradients: &'a Tensor,
    pub momenta: &'a Tensor,
    /// Copy of the weights in the type of convolutions and matrix products, if that is not fp32.
    pub rounded: Option<&'a Tensor>,
}

impl FlatUpdate<'_> {
    pub fn has_kernel(&self) -> bool {
        let rounded = self.rounded.map_or(null_mut(), raw);
        // SAFETY: all tensors are alive; null means no copy.
        unsafe { ringmark_has_update_kernel(raw(self.weights), raw(self.gradients), raw(self.momenta), rounded) != 0 }
    }

    /// Runs one step of weights, momenta and copy in one pass. With a loss `scale`, sets `found_inf` to 1 and
    /// changes nothing else if a gradient is not finite.
    pub fn run(&self, step: SgdStep, scale_and_found_inf: Option<(&Tensor, &Tensor)>) -> Result<()> {
        let (scale, found_inf) = scale_and_found_inf.map_or((null_mut(), null_mut()), |(a, b)| (raw(a), raw(b)));
        // SAFETY: all tensors are alive and compatible, see `has_kernel`; null means no copy and no loss scaling.
        check(unsafe {
            ringmark_update(
                raw(self.weights),
                raw(self.gradients),
                raw(self.momenta),
                self.rounded.map_or(null_mut(), raw),
                scale,
                found_inf,
                step.learning_rate,
                step.momentum,
                step.weight_decay,
            )
        })
    }
}

/// Multiplies `gradients` by `inverse_scale` and sets `found_inf` to 1 if one of them is not finite.
pub fn unscale(gradients: &Tensor, found_inf: &Tensor, inverse_scale: &Tensor) -> Result<()> {
    // SAFETY: all tensors are alive.
    check(unsafe { ringmark_unscale(raw(gradients), raw(found_inf), raw(inverse_scale)) })
}
