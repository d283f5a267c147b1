//! The expected weights after steps of an optimizer, as measure.py checks them: a copy that takes the same steps with the
//! expected sums, by the plain formulas in fp64. The expected sums repeat with a period, so one period of weights is
//! enough.

use anyhow::Result;
use tch::{Kind, Tensor};

use crate::benchmark::bandwidth::values::{Comparison, Values, periods};
use crate::exchange::memory::narrow;
use crate::exchange::request::UpdateStep;
use crate::ffi::torch::update::{AdamStep, SgdStep};

/// Relative rounding of one operation in fp32.
const ROUNDING: f64 = 1.0 / (1 << 24) as f64;

/// One period of the weights, fp64.
pub struct CopiedWeights {
    step: UpdateStep,
    weights: Tensor,
    /// Momenta, or Adam's first moments.
    first: Tensor,
    /// Adam's second moments.
    second: Tensor,
    /// Largest difference of each weight that rounding explains.
    tolerance: Tensor,
    ranks: u32,
    steps: u32,
}

impl CopiedWeights {
    /// Returns weights of zero, their initial value.
    pub fn new(values: &Values, step: UpdateStep, ranks: u32) -> Result<CopiedWeights> {
        let zeros = || Ok::<_, anyhow::Error>(values.period(0)?.f_zeros_like()?.f_to_kind(Kind::Double)?);
        let (weights, first, second, tolerance) = (zeros()?, zeros()?, zeros()?, zeros()?);
        Ok(CopiedWeights { step, weights, first, second, tolerance, ranks, steps: 0 })
    }

    pub fn step(&mut self, values: &Values, iteration: usize) -> Result<()> {
        self.steps += 1;
        let gradients = values.period(iteration)?.f_to_kind(Kind::Double)?;
        match self.step {
            UpdateStep::Sgd(step) => self.descend(&step, &gradients, values.tolerance()),
            UpdateStep::Adam(step) => self.adapt(&step, &gradients, values.tolerance()),
        }
    }

    fn descend(&mut self, step: &SgdStep, gradients: &Tensor, error: f64) -> Result<()> {
        let SgdStep { learning_rate, momentum, is_nesterov, weight_decay } = *step;
        let gradients = gradients + &self.weights * weight_decay;
        self.first = &self.first * momentum + &gradients;
        let change = if is_nesterov { gradients + &self.first * momentum } else { self.first.shallow_clone() };
        self.weights -= change * learning_rate;
        // Each step adds the error of its sum, whose effect is `gain` times as large. Servers that do not wait for every
        // rank also round the weights, at most `rate x ranks x steps` by then, once for each rank; momenta round too.
        let (ranks, steps, gain) = (f64::from(self.ranks), f64::from(self.steps), 1.0 / (1.0 - momentum));
        let weights = ROUNDING * ranks * ranks * (2.0 * steps + 1.0) * gain;
        let momenta = 2.0 * ROUNDING * ranks * (gain - 1.0);
        self.tolerance += learning_rate * gain * (error + momenta + weights);
        Ok(())
    }

    fn adapt(&mut self, step: &AdamStep, gradients: &Tensor, error: f64) -> Result<()> {
        let AdamStep { learning_rate, betas: [beta1, beta2], epsilon, weight_decay, is_decoupled } = *step;
        let decay = if is_decoupled { 1.0 - learning_rate * weight_decay } else { 1.0 };
        let gradients = gradients + &self.weights * if is_decoupled { 0.0 } else { weight_decay };
        self.first = &self.first * beta1 + &gradients * (1.0 - beta1);
        self.second = &self.second * beta2 + gradients.square() * (1.0 - beta2);
        let correction = |beta: f64| 1.0 - beta.powi(self.steps as i32);
        let root = (&self.second / correction(beta2)).sqrt();
        let change = &self.first / correction(beta1) / (&root + epsilon);
        self.weights = &self.weights * decay - &change * learning_rate;
        // Both moments are means of the gradients or of their squares: neither differs by more than the gradients do,
        // plus its own rounding in every step, which the decay forgets. No change is larger than `most`.
        let (ranks, steps) = (f64::from(self.ranks), f64::from(self.steps));
        let forgotten = |beta: f64| steps.min(1.0 / (1.0 - beta));
        let first = error + 4.0 * ROUNDING * ranks * forgotten(beta1);
        let second = &root * (2.0 * ROUNDING * forgotten(beta2)) + error;
        let most = ((1.0 - beta1) / (1.0 - beta2).sqrt()).max(1.0);
        let moved = (change.abs() * &second + first) / ((&root - &second).clamp_min(0.0) + epsilon);
        let rounded = 4.0 * ROUNDING * most * (steps + 1.0);
        self.tolerance += (moved.clamp_max(2.0 * most) + rounded) * learning_rate;
        Ok(())
    }

    /// Compares `weights` that have taken the same number of steps.
    pub fn check(&self, weights: &Tensor) -> Result<Comparison> {
        let mut compared = Comparison::default();
        for (place, part) in periods(0..weights.numel(), 0) {
            let tolerance = narrow(&self.tolerance, &part)?;
            compared.add(&narrow(weights, &place)?, &narrow(&self.weights, &part)?, &tolerance)?;
        }
        Ok(compared)
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;
    use crate::exchange::optimizer::UpdateArrays;
    use crate::ffi::group::GroupRank;
    use crate::ffi::torch::update::Adjustment;

    fn sgd(momentum: f64, is_nesterov: bool) -> UpdateStep {
        UpdateStep::Sgd(SgdStep { learning_rate: 0.01, momentum, is_nesterov, weight_decay: 0.0 })
    }

    fn adam(weight_decay: f64) -> UpdateStep {
        let (betas, epsilon) = ([0.9, 0.999], 1e-8);
        UpdateStep::Adam(AdamStep { learning_rate: 0.001, betas, epsilon, weight_decay, is_decoupled: true })
    }

    /// The weights of ranks that push one after the other, as to asynchronous servers.
    #[test]
    fn missing_step_or_rank_is_detected() {
        let elements = 1_500_000;
        let values =
            |rank| Values::random(elements, GroupRank { rank, ranks: 2 }, Kind::Float, Device::Cpu).expect("made");
        let mut copy = CopiedWeights::new(&values(0), sgd(0.0, false), 2).expect("made");
        let floats = || Tensor::zeros([elements as i64], (Kind::Float, Device::Cpu));
        let (mut weights, gradient) = (floats(), floats());
        for iteration in 0..10 {
            copy.step(&values(0), iteration).expect("taken");
            let check = |weights: &Tensor| copy.check(weights).expect("compared").deviation();
            assert!(check(&weights).wrong as usize > elements / 2, "a step is missing");
            values(0).fill(&gradient, elements, iteration).expect("filled");
            weights -= &gradient * 0.01;
            assert!(check(&weights).wrong as usize > elements / 2, "a rank is missing");
            values(1).fill(&gradient, elements, iteration).expect("filled");
            weights -= &gradient * 0.01;
            let sound = check(&weights);
            assert!(sound.wrong == 0 && sound.error < 1e-6, "{sound:?}");
        }
    }

    #[test]
    fn every_rule_is_checked() {
        let elements = 100_000;
        let wires = [(Kind::Float, 1e-5), (Kind::BFloat16, 0.05)];
        let rules = [sgd(0.0, false), sgd(0.9, false), sgd(0.9, true), adam(0.0), adam(0.01)];
        for ((wire, error), step) in wires.into_iter().flat_map(|wire| rules.map(|step| (wire, step))) {
            let values =
                |rank| Values::random(elements, GroupRank { rank, ranks: 2 }, wire, Device::Cpu).expect("made");
            let both = [values(0), values(1)];
            let mut copy = CopiedWeights::new(&both[0], step, 2).expect("made");
            let floats = || Tensor::zeros([elements as i64], (Kind::Float, Device::Cpu));
            let states = match step {
                UpdateStep::Sgd(step) if step.momentum == 0.0 => 0,
                UpdateStep::Sgd(_) => 1,
                UpdateStep::Adam(_) => 2,
            };
            let states = (0..states).map(|_| floats()).collect();
            let arrays = UpdateArrays { weights: floats(), gradients: floats(), states };
            for iteration in 0..12 {
                let _ = arrays.gradients.shallow_clone().zero_();
                for values in &both {
                    let own = floats();
                    values.fill(&own, elements, iteration).expect("filled");
                    let _ = arrays.gradients.shallow_clone().g_add_(&own);
                }
                copy.step(&both[0], iteration).expect("taken");
                let check = || copy.check(&arrays.weights).expect("compared").deviation();
                // The rounding of halves adds up to a step.
                let is_missed = wire != Kind::Float || check().wrong as usize > elements / 2;
                assert!(is_missed, "{step:?}: a step is missing");
                let updates = Tensor::from_slice(&[(iteration + 1) as f32]);
                arrays.update(Some(step), &updates, Adjustment::default()).expect("updated");
                let sound = check();
                assert!(sound.wrong == 0 && sound.error < error, "{step:?} {wire:?}: {sound:?}");
            }
        }
    }
}
