//! Fused weight updates: `shim.cpp`, and `update_cuda.cpp` on GPUs.

use std::ffi::{c_char, c_int};
use std::ptr::{null, null_mut};

use anyhow::Result;
use tch::Tensor;

use crate::ffi::torch::shim::{RawTensor, check, raw, raw_or_null};

unsafe extern "C" {
    fn ringmark_sgd(
        weights: *const RawTensor,
        gradients: *const RawTensor,
        momenta: *const RawTensor,
        count: usize,
        step: SgdStep,
        divisor: RawTensor,
        found_inf: RawTensor,
    ) -> *mut c_char;
    fn ringmark_adam(
        weights: *const RawTensor,
        gradients: *const RawTensor,
        first_moments: *const RawTensor,
        second_moments: *const RawTensor,
        count: usize,
        updates: RawTensor,
        step: AdamStep,
        divisor: RawTensor,
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
        step: SgdStep,
    ) -> *mut c_char;
    fn ringmark_unscale(gradients: RawTensor, found_inf: RawTensor, inverse_scale: RawTensor) -> *mut c_char;
}

/// Constants of one step of gradient descent with momentum.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct SgdStep {
    pub learning_rate: f64,
    /// Factor of the momenta; 0 needs none.
    pub momentum: f64,
    pub is_nesterov: bool,
    /// L2 penalty.
    pub weight_decay: f64,
}

/// Tensors of one element that change an update.
#[derive(Debug, Clone, Copy, Default)]
pub struct Adjustment<'a> {
    /// Divisor of the gradients.
    pub divisor: Option<&'a Tensor>,
    /// Nothing changes if it is not zero.
    pub found_inf: Option<&'a Tensor>,
}

/// Runs one fused step over flat tensors. The lists have equal lengths, as have the tensors at the same place in them;
/// without momentum, there are no momenta.
pub fn sgd(
    [weights, gradients]: [&[&Tensor]; 2],
    momenta: Option<&[&Tensor]>,
    step: SgdStep,
    adjustment: Adjustment,
) -> Result<()> {
    let [weights, gradients] = [weights, gradients].map(list);
    let momenta = momenta.map(list);
    let (momenta, count) = (momenta.as_ref().map_or(null(), Vec::as_ptr), weights.len());
    let (divisor, found_inf) = (raw_or_null(adjustment.divisor), raw_or_null(adjustment.found_inf));
    // SAFETY: all tensors are alive, and so are the lists of `count` tensors; null means none.
    check(unsafe { ringmark_sgd(weights.as_ptr(), gradients.as_ptr(), momenta, count, step, divisor, found_inf) })
}

fn list(tensors: &[&Tensor]) -> Vec<RawTensor> {
    tensors.iter().map(|tensor| raw(tensor)).collect()
}

/// Constants of one step of Adam.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
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

/// Runs one fused step over flat tensors. The lists have equal lengths, as have the tensors at the same place in them.
/// `updates` is the number of updates including this one, an fp32 tensor of one element on their device.
pub fn adam(
    [weights, gradients]: [&[&Tensor]; 2],
    [first_moments, second_moments]: [&[&Tensor]; 2],
    updates: &Tensor,
    step: AdamStep,
    adjustment: Adjustment,
) -> Result<()> {
    let lists = [weights, gradients, first_moments, second_moments].map(list);
    let [weights, gradients, first, second] = lists.each_ref().map(Vec::as_ptr);
    let (divisor, found_inf) = (raw_or_null(adjustment.divisor), raw_or_null(adjustment.found_inf));
    let (count, updates) = (lists[0].len(), raw(updates));
    // SAFETY: all tensors are alive, and so are the lists of `count` tensors; null means none.
    check(unsafe { ringmark_adam(weights, gradients, first, second, count, updates, step, divisor, found_inf) })
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
        let [weights, gradients, momenta] = [self.weights, self.gradients, self.momenta].map(raw);
        // SAFETY: all tensors are alive; null means no copy.
        unsafe { ringmark_has_update_kernel(weights, gradients, momenta, raw_or_null(self.rounded)) != 0 }
    }

    /// Runs one step of weights, momenta and copy in one pass. With a loss `scale`, sets `found_inf` to 1 and
    /// changes nothing else if a gradient is not finite.
    pub fn run(&self, step: SgdStep, scale_and_found_inf: Option<(&Tensor, &Tensor)>) -> Result<()> {
        let (scale, found_inf) = scale_and_found_inf.map_or((null_mut(), null_mut()), |(a, b)| (raw(a), raw(b)));
        let [weights, gradients, momenta] = [self.weights, self.gradients, self.momenta].map(raw);
        let rounded = raw_or_null(self.rounded);
        // SAFETY: all tensors are alive and compatible, see `has_kernel`; null means no copy and no loss scaling.
        check(unsafe { ringmark_update(weights, gradients, momenta, rounded, scale, found_inf, step) })
    }
}

/// Multiplies `gradients` by `inverse_scale` and sets `found_inf` to 1 if one of them is not finite.
pub fn unscale(gradients: &Tensor, found_inf: &Tensor, inverse_scale: &Tensor) -> Result<()> {
    // SAFETY: all tensors are alive.
    check(unsafe { ringmark_unscale(raw(gradients), raw(found_inf), raw(inverse_scale)) })
}
