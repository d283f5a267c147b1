//! Update of the weights by gradient descent with momentum, or by Adam, as one fused call over the flat tensors.
//!
//! | rule | update of a weight `w` with the mean gradient `g`, rate `r`, decay `d` |
//! |---|---|
//! | `sgd` | `g += d w; m = momentum m + g; w -= r m` |
//! | `nag` | `g += d w; m = momentum m + g; w -= r (g + momentum m)`: DLPerf's recipe, PyTorch's `nesterov=True` |
//! | `adam` | `g += d w`, then as `adamw` without its first step |
//! | `adamw` | `w -= r d w; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g g; w -= r m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + e)` |
//!
//! The gradients are sums over `n` ranks. The states hold the values of the sums instead of the mean: `n m` and `n n v`.
//! So `sgd` and `nag` use `r / n` and `n d`; Adam uses `n e`, and `n d` in the gradient. This saves the division of the
//! gradients, which would write all of them again.

use std::ops::Range;

use anyhow::{Result, bail, ensure};
use tch::{Device, Kind, Tensor};

use crate::exchange::loss_scaler::LossScaler;
use crate::exchange::memory::narrow;
use crate::exchange::request::{RankCounts, UpdateRule, UpdateStep};
use crate::ffi::torch::update::{self, FlatUpdate, SgdStep};

/// Arrays of an update: fp32, flat and of equal length.
pub struct UpdateArrays {
    pub weights: Tensor,
    /// Sums over the ranks.
    pub gradients: Tensor,
    /// States of the rule, initially zero: see [`UpdateRule::state_names`].
    pub states: Vec<Tensor>,
}

impl UpdateArrays {
    fn narrow(&self, elements: &Range<usize>) -> Result<UpdateArrays> {
        Ok(UpdateArrays {
            weights: narrow(&self.weights, elements)?,
            gradients: narrow(&self.gradients, elements)?,
            states: self.states.iter().map(|state| narrow(state, elements)).collect::<Result<_>>()?,
        })
    }

    /// Updates the weights; without a step they become the gradients. `updates` is the number of updates including this
    /// one, a tensor of one element. Nothing changes if `found_inf` is not zero.
    pub fn update(&self, step: Option<UpdateStep>, updates: &Tensor, found_inf: Option<&Tensor>) -> Result<()> {
        let UpdateArrays { weights, gradients, states } = self;
        match (step, &states[..]) {
            (None, _) => Ok(weights.shallow_clone().f_copy_(gradients).map(drop)?),
            (Some(UpdateStep::Sgd(step)), [] | [_]) => {
                update::sgd([weights, gradients], states.first(), step, found_inf)
            }
            (Some(UpdateStep::Adam(step)), [first, second]) => {
                update::adam([weights, gradients], [first, second], updates, step, found_inf)
            }
            (Some(step), states) => bail!("{} states for {step:?}", states.len()),
        }
    }
}

/// Flat tensors of the update, and its rule.
pub struct FusedOptimizer {
    rule: UpdateRule,
    ranks: RankCounts,
    arrays: UpdateArrays,
    /// Number of updates, without those that the loss scaler skipped: one element on the device. Counted only for rules
    /// that depend on it.
    updates: Tensor,
    /// Copy of the weights in a lower precision, updated with the weights if possible.
    rounded: Option<Tensor>,
    loss_scaler: Option<LossScaler>,
}

impl FusedOptimizer {
    pub fn new(rule: &UpdateRule, ranks: RankCounts, weights: Tensor, gradients: Tensor) -> Result<FusedOptimizer> {
        let (length, wanted) = (gradients.numel(), weights.numel());
        ensure!(length == wanted, "{length} gradients for {wanted} parameters");
        let states = rule.state_names().iter().map(|_| Ok(weights.f_zeros_like()?)).collect::<Result<_>>()?;
        Ok(FusedOptimizer {
            rule: rule.clone(),
            ranks,
            updates: Tensor::f_zeros([1], (Kind::Float, weights.device()))?,
            loss_scaler: rule.loss_scale().map(|scale| LossScaler::new(scale, weights.device())).transpose()?,
            arrays: UpdateArrays { weights, gradients, states },
            rounded: None,
        })
    }

    /// Adds a copy of the weights in the type of convolutions and matrix products.
    pub fn with_rounded(self, rounded: Option<Tensor>) -> FusedOptimizer {
        FusedOptimizer { rounded, ..self }
    }

    /// Returns true if [`step`](FusedOptimizer::step) also writes the rounded copy.
    pub fn has_rounded(&self) -> bool {
        self.rounded.is_some() && self.kernel(self.rule.step(1, self.ranks)).is_some()
    }

    /// Returns the update by our own kernel, if it has one for `step`.
    fn kernel(&self, step: Option<UpdateStep>) -> Option<(FlatUpdate<'_>, SgdStep)> {
        let UpdateArrays { weights, gradients, states } = &self.arrays;
        let (Some(UpdateStep::Sgd(step @ SgdStep { is_nesterov: true, .. })), [momenta]) = (step, &states[..]) else {
            return None;
        };
        let update = FlatUpdate { weights, gradients, momenta, rounded: self.rounded.as_ref() };
        update.has_kernel().then_some((update, step))
    }

    /// Applies update number `update`, counted from 1, or the assignment that replaces it. The device skips it if the
    /// loss scaler found an overflow.
    pub fn step(&mut self, update: u32) -> Result<()> {
        let step = self.rule.step(update, self.ranks);
        if let Some((flat, step)) = self.kernel(step) {
            let scaler = self.loss_scaler.as_ref().map(|scaler| (&scaler.scale, &scaler.found_inf));
            flat.run(step, scaler)?;
        } else if let Some(scaler) = &mut self.loss_scaler {
            scaler.unscale(&self.arrays.gradients)?;
            let is_counted = step.is_some_and(|step| step.is_counted());
            if is_counted {
                let _ = self.updates.f_add_scalar_(1.0)?;
            }
            self.arrays.update(step, &self.updates, Some(&scaler.found_inf))?;
            if is_counted {
                let _ = self.updates.f_sub_(&scaler.found_inf)?;
            }
        } else {
            self.step_range(0..self.arrays.weights.numel(), update)?;
        }
        if let Some(scaler) = &mut self.loss_scaler {
            scaler.update()?;
        }
        Ok(())
    }

    /// Applies an update to these elements alone, whose sums may be complete before the others'. A loss scaler needs
    /// all gradients first.
    pub fn step_range(&self, elements: Range<usize>, update: u32) -> Result<()> {
        let step = self.rule.step(update, self.ranks);
        if step.is_some_and(|step| step.is_counted()) {
            let _ = self.updates.shallow_clone().f_fill_(i64::from(update))?;
        }
        self.arrays.narrow(&elements)?.update(step, &self.updates, None)
    }

    /// Returns the named tensors that, besides weights and gradients, determine the next update.
    pub fn state(&self) -> Vec<(&'static str, Tensor)> {
        let states = self.rule.state_names().iter().zip(&self.arrays.states);
        let states = states.map(|(name, state)| (*name, state.shallow_clone()));
        let is_counted = self.rule.step(1, self.ranks).is_some_and(|step| step.is_counted());
        let updates = is_counted.then(|| ("updates", self.updates.shallow_clone()));
        states.chain(updates).chain(self.loss_scaler.iter().flat_map(LossScaler::state)).collect()
    }

    pub fn device(&self) -> Device {
        self.arrays.weights.device()
    }

    pub fn loss_scaler(&self) -> Option<&LossScaler> {
        self.loss_scaler.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use ringmark_core::benchmark::optimizer::Optimizer as Rule;
    use ringmark_core::benchmark::train::TrainConfig;
    use ringmark_core::dimension::Dtype;

    use super::*;

    const RATE: f64 = 0.0625;
    const DECAY: f64 = 0.125;
    const RANKS: u32 = 3;

    fn rule(optimizer: Rule, momentum: f64) -> UpdateRule {
        UpdateRule::Training(Box::new(TrainConfig {
            optimizer,
            momentum,
            learning_rate: RATE / f64::from(RANKS),
            learning_rate_warmup: Some(0),
            weight_decay: DECAY,
            ..TrainConfig::default()
        }))
    }

    const RULES: [(Rule, f64); 6] = [
        (Rule::Sgd, 0.0),
        (Rule::Sgd, 0.875),
        (Rule::Nag, 0.0),
        (Rule::Nag, 0.875),
        (Rule::Adam, 0.875),
        (Rule::AdamW, 0.875),
    ];

    /// Numbers without a pattern.
    fn number(index: usize, update: usize) -> f64 {
        (1.7 * index as f64 + 0.9 * update as f64).sin()
    }

    const LENGTH: usize = 67;

    /// Returns the weights after `updates` updates with the mean gradients `number(index, update)`, in fp64, by the
    /// formulas in PyTorch's documentation of `SGD`, `Adam` and `AdamW`.
    fn by_formula(optimizer: Rule, momentum: f64, updates: usize) -> Vec<f64> {
        let weight = |index| {
            let (mut weight, mut first, mut second) = (number(index, 0), 0.0, 0.0);
            for update in 1..=updates {
                let mut gradient = number(index, update);
                if optimizer == Rule::AdamW {
                    weight -= RATE * DECAY * weight;
                } else {
                    gradient += DECAY * weight;
                }
                if matches!(optimizer, Rule::Adam | Rule::AdamW) {
                    let power = update as i32;
                    first = 0.9 * first + 0.1 * gradient;
                    second = 0.999 * second + 0.001 * gradient * gradient;
                    let (mean, square) = (first / (1.0 - 0.9f64.powi(power)), second / (1.0 - 0.999f64.powi(power)));
                    weight -= RATE * mean / (square.sqrt() + 1e-8);
                } else {
                    first = momentum * first + gradient;
                    weight -= RATE * if optimizer == Rule::Nag { gradient + momentum * first } else { first };
                }
            }
            weight
        };
        (0..LENGTH).map(weight).collect()
    }

    fn floats(value: impl Fn(usize) -> f64) -> Tensor {
        Tensor::from_slice(&(0..LENGTH).map(|index| value(index) as f32).collect::<Vec<_>>())
    }

    /// An optimizer, its weights, and its gradients: the sums over all ranks.
    fn optimizer(rule: &UpdateRule) -> (FusedOptimizer, Tensor, Tensor) {
        let (weights, sums) = (floats(|index| number(index, 0)), floats(|_| 0.0));
        let ranks = RankCounts { all: RANKS, summed: RANKS, averaged: RANKS };
        let optimizer =
            FusedOptimizer::new(rule, ranks, weights.shallow_clone(), sums.shallow_clone()).expect("as long");
        (optimizer, weights, sums)
    }

    fn fill(sums: &Tensor, update: usize, scale: f64) {
        sums.shallow_clone().copy_(&floats(|index| scale * f64::from(RANKS) * number(index, update)));
    }

    fn check_close(weights: &Tensor, expected: &[f64], what: &str) {
        let weights = Vec::<f32>::try_from(weights).expect("fp32");
        for (index, (weight, expected)) in weights.iter().zip(expected).enumerate() {
            assert!((f64::from(*weight) - expected).abs() < 2e-5, "{what}, weight {index}: {weight}, not {expected}");
        }
    }

    #[test]
    fn rules_follow_pytorch_formulas() {
        for (optimizer_name, momentum) in RULES {
            let rule = rule(optimizer_name, momentum);
            let (mut whole, weights, sums) = optimizer(&rule);
            let (parts, weights_of_parts, sums_of_parts) = optimizer(&rule);
            for update in 1..=7 {
                fill(&sums, update, 1.0);
                whole.step(update as u32).expect("an update");
                fill(&sums_of_parts, update, 1.0);
                // Multiples of a vector register: the end of a range is rounded differently.
                for elements in [32..LENGTH, 0..16, 16..32] {
                    parts.step_range(elements, update as u32).expect("an update");
                }
                let what = format!("{optimizer_name} with momentum {momentum}, update {update}");
                check_close(&weights, &by_formula(optimizer_name, momentum, update), &what);
                assert!(weights_of_parts.equal(&weights), "{what}");
            }
            let names: Vec<_> = whole.state().iter().map(|(name, _)| *name).collect();
            let expected: &[&str] = match optimizer_name {
                Rule::Adam | Rule::AdamW => &["first_moments", "second_moments", "updates"],
                _ if momentum == 0.0 => &[],
                _ => &["momenta"],
            };
            assert_eq!(names, expected, "{optimizer_name}");
        }
    }

    #[test]
    fn overflow_skips_update_and_its_count() {
        const SCALE: f64 = 8.0;
        for (optimizer_name, momentum) in RULES {
            let UpdateRule::Training(config) = rule(optimizer_name, momentum) else { panic!("a training rule") };
            let config = TrainConfig { dtype: Dtype::Fp16, loss_scale: SCALE, ..*config };
            let (mut scaled, weights, sums) = optimizer(&UpdateRule::Training(Box::new(config)));
            let mut counted = 0;
            for update in 1..=5 {
                let before = weights.copy();
                // The overflow of update 2 halves the scale.
                let (is_overflow, scale) = (update == 2, if update <= 2 { SCALE } else { SCALE / 2.0 });
                counted += usize::from(!is_overflow);
                fill(&sums, counted, scale);
                if is_overflow {
                    let _ = sums.narrow(0, 5, 1).fill_(f64::INFINITY);
                }
                scaled.step(update).expect("an update");
                let what = format!("{optimizer_name} with momentum {momentum}, update {update}");
                assert_eq!(weights.equal(&before), is_overflow, "{what}");
                check_close(&weights, &by_formula(optimizer_name, momentum, counted), &what);
            }
        }
    }
}
