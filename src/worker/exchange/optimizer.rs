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
//! gradients, which would write all of them again. A limit of the norm (`--clip-norm`) applies to `g` before the decay.

use std::ops::Range;
use std::slice;

use anyhow::{Result, bail, ensure};
use ringmark_core::dimension::Operation;
use ringmark_core::host::Stage;
use tch::{Device, Kind, Tensor};

use crate::exchange::UpdateState;
use crate::exchange::loss_scaler::LossScaler;
use crate::exchange::memory::narrow;
use crate::exchange::request::{RankCounts, UpdateRule, UpdateStep};
use crate::ffi::torch::update::{self, Adjustment, FlatUpdate, SgdStep};
use crate::job::heartbeat;
use crate::job::session::Session;
use crate::job::world::{RankSums, World};

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
    /// one, a tensor of one element.
    pub fn update(&self, step: Option<UpdateStep>, updates: &Tensor, adjustment: Adjustment) -> Result<()> {
        update_all(slice::from_ref(self), step, updates, adjustment)
    }
}

/// Updates all weights in one call: see [`UpdateArrays::update`].
fn update_all(
    parts: &[UpdateArrays],
    step: Option<UpdateStep>,
    updates: &Tensor,
    adjustment: Adjustment,
) -> Result<()> {
    let Some(step) = step else {
        return parts
            .iter()
            .try_for_each(|part| Ok(part.weights.shallow_clone().f_copy_(&part.gradients).map(drop)?));
    };
    let weights: Vec<&Tensor> = parts.iter().map(|part| &part.weights).collect();
    let gradients: Vec<&Tensor> = parts.iter().map(|part| &part.gradients).collect();
    let states = |number: usize| parts.iter().filter_map(|part| part.states.get(number)).collect::<Vec<_>>();
    let number = parts.first().map_or(0, |part| part.states.len());
    match (step, number) {
        (UpdateStep::Sgd(step), 0) => update::sgd([&weights, &gradients], None, step, adjustment),
        (UpdateStep::Sgd(step), 1) => update::sgd([&weights, &gradients], Some(&states(0)), step, adjustment),
        (UpdateStep::Adam(step), 2) => {
            update::adam([&weights, &gradients], [&states(0), &states(1)], updates, step, adjustment)
        }
        (step, states) => bail!("{states} states for {step:?}"),
    }
}

/// Consecutive parameters that all decay, or none of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecayRange {
    pub elements: Range<usize>,
    pub decays: bool,
}

/// Divides flat memory, which contains `parameters` one after the other, by the decay of `rule`.
pub fn decay_ranges(rule: &UpdateRule, parameters: &[Tensor]) -> Vec<DecayRange> {
    let mut ranges: Vec<DecayRange> = Vec::new();
    for parameter in parameters {
        let start = ranges.last().map_or(0, |range| range.elements.end);
        let (end, decays) = (start + parameter.numel(), rule.decays(parameter.dim()));
        match ranges.last_mut() {
            Some(last) if last.decays == decays => last.elements.end = end,
            _ => ranges.push(DecayRange { elements: start..end, decays }),
        }
    }
    ranges
}

/// Arrays with the same decay, which one call updates.
struct DecayGroup {
    decays: bool,
    parts: Vec<UpdateArrays>,
}

/// Flat tensors of the update, and its rule.
pub struct FusedOptimizer {
    rule: UpdateRule,
    ranks: RankCounts,
    arrays: UpdateArrays,
    /// Views of the arrays.
    groups: Vec<DecayGroup>,
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
        let arrays = UpdateArrays { weights, gradients, states };
        Ok(FusedOptimizer {
            rule: rule.clone(),
            ranks,
            updates: Tensor::f_zeros([1], (Kind::Float, arrays.weights.device()))?,
            loss_scaler: rule.loss_scale().map(|scale| LossScaler::new(scale, arrays.weights.device())).transpose()?,
            groups: vec![DecayGroup { decays: true, parts: vec![arrays.narrow(&(0..length))?] }],
            arrays,
            rounded: None,
        })
    }

    /// Restricts the decay to some of the weights, whose first one is element `first` of `ranges`.
    pub fn with_decay(mut self, ranges: &[DecayRange], first: usize) -> Result<FusedOptimizer> {
        let own = first..first + self.arrays.weights.numel();
        self.groups.clear();
        for decays in [true, false] {
            let elements = ranges.iter().filter(|range| range.decays == decays).map(|range| &range.elements);
            let elements = elements.map(|range| range.start.max(own.start)..range.end.min(own.end));
            let parts = elements.filter(|range| !range.is_empty());
            let parts = parts.map(|range| self.arrays.narrow(&(range.start - first..range.end - first)));
            let parts = parts.collect::<Result<Vec<_>>>()?;
            if !parts.is_empty() {
                self.groups.push(DecayGroup { decays, parts });
            }
        }
        Ok(self)
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
        if self.is_clipped() || self.groups.iter().any(|group| !group.decays) {
            return None;
        }
        let update = FlatUpdate { weights, gradients, momenta, rounded: self.rounded.as_ref() };
        update.has_kernel().then_some((update, step))
    }

    /// Returns true if an update depends on the norm of the gradients.
    pub fn is_clipped(&self) -> bool {
        self.rule.clip_norm().is_some()
    }

    /// Applies update number `update`, counted from 1, or the assignment that replaces it. The device skips it if the
    /// loss scaler found an overflow.
    pub fn step(&mut self, update: u32) -> Result<()> {
        if let Some((flat, step)) = self.kernel(self.rule.step(update, self.ranks)) {
            let scaler = self.loss_scaler.as_ref().map(|scaler| (&scaler.scale, &scaler.found_inf));
            flat.run(step, scaler)?;
        } else {
            if let Some(scaler) = &mut self.loss_scaler {
                scaler.unscale([&self.arrays.gradients])?;
            }
            let norm = self.is_clipped().then(|| self.gradient_norm()).transpose()?;
            self.step_with_norm(update, norm.as_ref())?;
        }
        if let Some(scaler) = &mut self.loss_scaler {
            scaler.update()?;
        }
        Ok(())
    }

    /// Applies an update with gradients that are not scaled. `norm` is that of the sums of all owners if an update is
    /// clipped.
    pub fn step_with_norm(&mut self, update: u32, norm: Option<&Tensor>) -> Result<()> {
        let step = self.rule.step(update, self.ranks);
        let is_counted = step.is_some_and(|step| step.is_counted());
        let found_inf = self.loss_scaler.as_ref().map(|scaler| &scaler.found_inf);
        match found_inf {
            _ if !is_counted => {}
            Some(_) => drop(self.updates.f_add_scalar_(1.0)?),
            None => drop(self.updates.f_fill_(i64::from(update))?),
        }
        let divisor = match (self.rule.clip_norm(), norm) {
            (Some(limit), Some(norm)) => Some(clip_divisor(norm, limit * f64::from(self.ranks.averaged))?),
            _ => None,
        };
        let adjustment = Adjustment { divisor: divisor.as_ref(), found_inf };
        for DecayGroup { decays, parts } in &self.groups {
            let step = if *decays { step } else { step.map(UpdateStep::without_decay) };
            update_all(parts, step, &self.updates, adjustment)?;
        }
        if let (true, Some(found_inf)) = (is_counted, found_inf) {
            let _ = self.updates.f_sub_(found_inf)?;
        }
        Ok(())
    }

    /// Returns the L2 norm of the sums of gradients, in fp64: one element on their device.
    pub fn gradient_norm(&self) -> Result<Tensor> {
        let gradients = &self.arrays.gradients;
        let rows = gradients.numel() / NORM_ROW;
        let norm = |values: Tensor| values.f_norm_scalaropt_dim(2.0, [-1i64].as_slice(), false);
        let (of_rows, rest) = (0..rows * NORM_ROW, rows * NORM_ROW..gradients.numel());
        let of_rows = norm(narrow(gradients, &of_rows)?.f_view([rows as i64, NORM_ROW as i64])?)?;
        let rest = norm(narrow(gradients, &rest)?)?;
        Ok(norm(Tensor::f_cat(&[of_rows, rest.f_view([1])?], 0)?.f_to_kind(Kind::Double)?)?)
    }

    /// Applies an update to these elements alone, whose sums may be complete before the others'. A loss scaler needs
    /// all gradients first.
    pub fn step_range(&self, elements: Range<usize>, update: u32) -> Result<()> {
        let step = self.rule.step(update, self.ranks);
        if step.is_some_and(|step| step.is_counted()) {
            let _ = self.updates.shallow_clone().f_fill_(i64::from(update))?;
        }
        self.arrays.narrow(&elements)?.update(step, &self.updates, Adjustment::default())
    }

    /// Returns the named tensors that, besides weights and gradients, determine the next update.
    pub fn state(&self) -> UpdateState {
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

/// Optimizers of the parts of the weights that a rank owns. An update that depends on all gradients, because it limits
/// their norm or skips an overflow, adds over the ranks.
pub struct OwnedParts {
    optimizers: Vec<FusedOptimizer>,
    /// Elements of each part in the flat weights.
    elements: Vec<Range<usize>>,
    state_names: &'static [&'static str],
    is_clipped: bool,
    loss_scaler: Option<LossScaler>,
    sums: Option<RankSums>,
}

impl OwnedParts {
    /// Creates the optimizers of `parts`: weights, sums of their gradients, and the first element in the flat weights.
    /// The parts of `owners` are all weights. All ranks call this together.
    pub fn new(
        rule: &UpdateRule,
        parameters: &[Tensor],
        parts: impl Iterator<Item = Result<(Tensor, Tensor, usize)>>,
        owners: &World,
        session: &Session,
    ) -> Result<OwnedParts> {
        let ranks = session.world.ranks();
        let counts = RankCounts { all: ranks, summed: ranks, averaged: ranks };
        let decay = decay_ranges(rule, parameters);
        let scaler = rule.loss_scale().map(|scale| LossScaler::new(scale, session.device())).transpose()?;
        let mut elements = Vec::new();
        let optimizer = |part: Result<(Tensor, Tensor, usize)>| -> Result<FusedOptimizer> {
            let (weights, gradients, first) = part?;
            elements.push(first..first + weights.numel());
            let optimizer = FusedOptimizer::new(rule, counts, weights, gradients)?.with_decay(&decay, first)?;
            Ok(FusedOptimizer { loss_scaler: scaler.as_ref().map(LossScaler::shared), ..optimizer })
        };
        Ok(OwnedParts {
            optimizers: parts.map(optimizer).collect::<Result<_>>()?,
            elements,
            state_names: rule.state_names(),
            is_clipped: rule.clip_norm().is_some(),
            sums: (rule.clip_norm().is_some() || scaler.is_some()).then(|| owners.rank_sums()),
            loss_scaler: scaler,
        })
    }

    pub fn loss_scaler(&self) -> Option<&LossScaler> {
        self.loss_scaler.as_ref()
    }

    /// Returns the state of the updates of all parts: `share` sends each rank's parts of an array to all. Every array is
    /// as long as `weights` and on its device. All ranks call this together, also those without a part.
    pub fn state(&self, weights: &Tensor, mut share: impl FnMut(&Tensor) -> Result<()>) -> Result<UpdateState> {
        let mut state = UpdateState::new();
        for (number, name) in self.state_names.iter().enumerate() {
            let whole = weights.f_zeros_like()?;
            for (optimizer, elements) in self.optimizers.iter().zip(&self.elements) {
                narrow(&whole, elements)?.f_copy_(&optimizer.arrays.states[number])?;
            }
            share(&whole)?;
            state.push((name, whole));
        }
        let updates = self.optimizers.first().map(|first| first.updates.copy());
        state.push(("updates", updates.unwrap_or_else(|| Tensor::zeros([1], (Kind::Float, Device::Cpu)))));
        state.extend(self.loss_scaler.iter().flat_map(LossScaler::state));
        Ok(state)
    }

    /// Takes this rank's parts of `state`, which [`state`](OwnedParts::state) returned. The loss scaler has changed with
    /// it.
    pub fn set_state(&self, state: &UpdateState) -> Result<()> {
        for (optimizer, elements) in self.optimizers.iter().zip(&self.elements) {
            for (own, (_, whole)) in optimizer.arrays.states.iter().zip(state) {
                own.shallow_clone().f_copy_(&narrow(whole, elements)?)?;
            }
            optimizer.updates.shallow_clone().f_copy_(&state[self.state_names.len()].1)?;
        }
        Ok(())
    }

    /// Applies update number `update`, counted from 1. All ranks call this together.
    pub fn step(&mut self, update: u32) -> Result<()> {
        let OwnedParts { optimizers, loss_scaler, sums, is_clipped, .. } = self;
        let Some(sums) = sums else {
            return optimizers.iter_mut().try_for_each(|optimizer| optimizer.step(update));
        };
        let stage = Stage::Exchange { operation: Operation::AllReduce, bucket: None };
        if let Some(scaler) = loss_scaler {
            scaler.unscale(optimizers.iter().map(|optimizer| &optimizer.arrays.gradients))?;
            heartbeat::enter(stage);
            let found = sums.sum(scaler.found_inf.f_double_value(&[])?);
            let _ = scaler.found_inf.f_fill_(f64::from(found > 0.0))?;
        }
        // Also on a rank without parts: all ranks add.
        let norm = match is_clipped {
            true => {
                let norm = |optimizer: &FusedOptimizer| Ok(f64::try_from(optimizer.gradient_norm()?)?);
                let own = optimizers.iter().map(norm).collect::<Result<Vec<f64>>>()?;
                heartbeat::enter(stage);
                let squares = sums.sum(own.iter().map(|norm| norm * norm).sum());
                let device = optimizers.first().map_or(Device::Cpu, FusedOptimizer::device);
                Some(Tensor::from(squares.sqrt()).f_to_device(device)?)
            }
            false => None,
        };
        heartbeat::enter(Stage::Optimizer);
        optimizers.iter_mut().try_for_each(|optimizer| optimizer.step_with_norm(update, norm.as_ref()))?;
        loss_scaler.as_mut().map_or(Ok(()), LossScaler::update)
    }
}

/// Elements whose squares are added in fp32; the rows of a gradient are added in fp64.
const NORM_ROW: usize = 1 << 12;

/// Term added to the norm, as in PyTorch's `clip_grad_norm_`.
const NORM_TERM: f64 = 1e-6;

/// Returns the divisor that scales gradients of this norm to at most `limit`, in fp32.
fn clip_divisor(norm: &Tensor, limit: f64) -> Result<Tensor> {
    Ok(norm.f_add_scalar(NORM_TERM)?.f_div_scalar(limit)?.f_clamp_min(1.0)?.f_to_kind(Kind::Float)?)
}

#[cfg(test)]
mod tests {
    use ringmark_core::benchmark::optimizer::{DecayedWeights, Optimizer as Rule};
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
        by_clipped_formula(optimizer, momentum, updates, None, &|_| true)
    }

    /// Also by the formula of `clip_grad_norm_`, and with decay of some weights alone.
    fn by_clipped_formula(
        optimizer: Rule,
        momentum: f64,
        updates: usize,
        limit: Option<f64>,
        decays: &dyn Fn(usize) -> bool,
    ) -> Vec<f64> {
        let factor = |update| {
            let norm = (0..LENGTH).map(|index| number(index, update).powi(2)).sum::<f64>().sqrt();
            limit.map_or(1.0, |limit| (limit / (norm + 1e-6)).min(1.0))
        };
        let weight = |index| {
            let (mut weight, mut first, mut second) = (number(index, 0), 0.0, 0.0);
            let decay = if decays(index) { DECAY } else { 0.0 };
            for update in 1..=updates {
                let mut gradient = number(index, update) * factor(update);
                if optimizer == Rule::AdamW {
                    weight -= RATE * decay * weight;
                } else {
                    gradient += decay * weight;
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

    /// Norms of the gradients are between 5.7 and 5.9, so one limit clips all of them and the other one none.
    #[test]
    fn norm_is_limited_and_only_matrices_decay() {
        let matrix = |elements: i64| Tensor::zeros([elements / 2, 2], (Kind::Float, Device::Cpu));
        let bias = |elements: i64| Tensor::zeros([elements], (Kind::Float, Device::Cpu));
        let parameters = [matrix(10), bias(7), bias(6), matrix(30), bias(14)];
        let decays = |index: usize| index < 10 || (23..53).contains(&index);
        for ((optimizer_name, momentum), limit) in RULES.into_iter().flat_map(|rule| [2.0, 7.0].map(|it| (rule, it))) {
            let UpdateRule::Training(config) = rule(optimizer_name, momentum) else { panic!("a training rule") };
            let config = TrainConfig { decayed_weights: DecayedWeights::Matrices, clip_norm: Some(limit), ..*config };
            let rule = UpdateRule::Training(Box::new(config));
            let ranges = decay_ranges(&rule, &parameters);
            assert_eq!(ranges.iter().map(|range| range.elements.end).collect::<Vec<_>>(), [10, 23, 53, 67]);
            let (whole, weights, sums) = optimizer(&rule);
            let mut whole = whole.with_decay(&ranges, 0).expect("ranges of the weights");
            // Owners of parts, which share the norm of all gradients.
            let (owned_weights, owned_sums) = (weights.copy(), sums.copy());
            let owner = |part: Range<usize>| {
                let arrays = [&owned_weights, &owned_sums].map(|array| narrow(array, &part).expect("inside"));
                let [weights, sums] = arrays;
                let counts = RankCounts { all: RANKS, summed: RANKS, averaged: RANKS };
                let optimizer = FusedOptimizer::new(&rule, counts, weights, sums).expect("as long");
                optimizer.with_decay(&ranges, part.start).expect("ranges of the weights")
            };
            let mut owners = [owner(0..16), owner(16..32), owner(32..LENGTH)];
            for update in 1..=5 {
                fill(&sums, update, 1.0);
                fill(&owned_sums, update, 1.0);
                let norm = whole.gradient_norm().expect("a norm");
                whole.step(update as u32).expect("an update");
                for owner in &mut owners {
                    owner.step_with_norm(update as u32, Some(&norm)).expect("an update");
                }
                let what = format!("{optimizer_name} with momentum {momentum}, limit {limit}, update {update}");
                let expected = by_clipped_formula(optimizer_name, momentum, update, Some(limit), &decays);
                check_close(&weights, &expected, &what);
                check_close(&owned_weights, &expected, &format!("owners, {what}"));
            }
        }
    }

    #[test]
    fn norm_of_many_values_is_accurate() {
        let length = 40_000_003;
        let values = Tensor::full([length], 0.001, (Kind::Float, Device::Cpu));
        let optimizer = FusedOptimizer::new(&UpdateRule::Assign, RankCounts::UNDIVIDED, values.copy(), values);
        let norm = f64::try_from(optimizer.expect("as long").gradient_norm().expect("a norm")).expect("one value");
        let expected = f64::from(0.001f32) * (length as f64).sqrt();
        assert!((norm / expected - 1.0).abs() < 1e-5, "{norm}, not {expected}");
    }

    #[test]
    fn overflow_skips_update_and_its_count() {
        const SCALE: f64 = 8.0;
        for (optimizer_name, momentum) in RULES {
            let UpdateRule::Training(config) = rule(optimizer_name, momentum) else { panic!("a training rule") };
            // The limit does not change the gradients, but an overflow makes their norm infinite.
            let config = TrainConfig { dtype: Dtype::Fp16, loss_scale: SCALE, clip_norm: Some(7.0), ..*config };
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
