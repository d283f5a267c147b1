//! Stochastic gradient descent with Nesterov momentum, DLPerf's recipe, as one fused call over the flat tensors.
//!
//! `g = sum over ranks / ranks + decay x w; m = momentum x m + g; w -= rate x (g + momentum x m)`.
//!
//! Both sides multiplied by the number of ranks: `G = sum + ranks x decay x w; M = momentum x M + G; w -= rate / ranks
//! x (G + momentum x M)`. The flat momenta hold M. This saves the division of the gradients, which would write all of
//! them again.

use std::ops::Range;

use anyhow::{Result, ensure};
use tch::{Device, Tensor};

use crate::exchange::loss_scaler::LossScaler;
use crate::exchange::memory;
use crate::exchange::request::{RankCounts, UpdateRule};
use crate::ffi::torch::shim::{self, FlatUpdate, SgdStep};

/// Flat fp32 tensors of the update, and its rule.
pub struct Optimizer {
    rule: UpdateRule,
    ranks: RankCounts,
    weights: Tensor,
    /// Sums over the ranks.
    gradients: Tensor,
    /// Initially zero; empty if the rule has no momentum.
    momenta: Tensor,
    /// Copy of the weights in a lower precision, updated with the weights if possible.
    rounded: Option<Tensor>,
    loss_scaler: Option<LossScaler>,
}

impl Optimizer {
    pub fn new(rule: &UpdateRule, ranks: RankCounts, weights: Tensor, gradients: Tensor) -> Result<Optimizer> {
        let (length, wanted) = (gradients.numel(), weights.numel());
        ensure!(length == wanted, "{length} gradients for {wanted} parameters");
        Ok(Optimizer {
            rule: rule.clone(),
            ranks,
            momenta: if rule.has_momentum() { weights.f_zeros_like()? } else { weights.f_narrow(0, 0, 0)? },
            loss_scaler: rule.loss_scale().map(|scale| LossScaler::new(scale, weights.device())).transpose()?,
            weights,
            gradients,
            rounded: None,
        })
    }

    /// Adds a copy of the weights in the type of convolutions and matrix products.
    pub fn with_rounded(self, rounded: Option<Tensor>) -> Optimizer {
        Optimizer { rounded, ..self }
    }

    /// Returns true if [`step`](Optimizer::step) also writes the rounded copy.
    pub fn has_rounded(&self) -> bool {
        self.rounded.is_some() && self.flat().has_kernel()
    }

    fn flat(&self) -> FlatUpdate<'_> {
        let Optimizer { weights, gradients, momenta, rounded, .. } = self;
        FlatUpdate { weights, gradients, momenta, rounded: rounded.as_ref() }
    }

    /// Applies update number `update`, counted from 1, or the assignment that replaces it. The device skips it if the
    /// loss scaler found an overflow.
    pub fn step(&mut self, update: u32) -> Result<()> {
        match self.rule.step(update, self.ranks) {
            Some(step) if self.flat().has_kernel() => {
                let scaler = self.loss_scaler.as_ref().map(|scaler| (&scaler.scale, &scaler.found_inf));
                self.flat().run(step, scaler)?;
            }
            _ => {
                if let Some(scaler) = &mut self.loss_scaler {
                    scaler.unscale(&self.gradients)?;
                }
                self.step_range(0..self.weights.numel(), update)?;
            }
        }
        if let Some(scaler) = &mut self.loss_scaler {
            scaler.update()?;
        }
        Ok(())
    }

    /// Applies an update to these elements alone, whose sums may be complete before the others'. A loss scaler needs
    /// all gradients first.
    pub fn step_range(&self, elements: Range<usize>, update: u32) -> Result<()> {
        let arrays = [&self.weights, &self.gradients, &self.momenta];
        let found_inf = self.loss_scaler.as_ref().map(|scaler| &scaler.found_inf);
        update_elements(arrays, &elements, self.rule.step(update, self.ranks), found_inf)
    }

    /// Returns the named tensors that, besides weights and gradients, determine the next update.
    pub fn state(&self) -> Vec<(&'static str, Tensor)> {
        let scaler_state = self.loss_scaler.iter().flat_map(LossScaler::state);
        [("momenta", self.momenta.shallow_clone())].into_iter().chain(scaler_state).collect()
    }

    pub fn device(&self) -> Device {
        self.weights.device()
    }

    pub fn loss_scaler(&self) -> Option<&LossScaler> {
        self.loss_scaler.as_ref()
    }
}

/// Updates a range of the flat weights from the gradients and momenta; without a step the gradients are assigned.
/// Momenta are empty if the rule has none. Nothing changes if `found_inf` is not zero.
pub fn update_elements(
    [weights, gradients, momenta]: [&Tensor; 3],
    elements: &Range<usize>,
    step: Option<SgdStep>,
    found_inf: Option<&Tensor>,
) -> Result<()> {
    let (mut weights, gradients) = (memory::narrow(weights, elements)?, memory::narrow(gradients, elements)?);
    let Some(step) = step else { return Ok(weights.f_copy_(&gradients).map(drop)?) };
    let momenta_range = if momenta.numel() == 0 { 0..0 } else { elements.clone() };
    shim::sgd(&weights, &gradients, &memory::narrow(momenta, &momenta_range)?, step, found_inf)
}
