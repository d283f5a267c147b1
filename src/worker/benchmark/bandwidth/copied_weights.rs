//! The expected weights after steps of MXNet's `sgd`, as measure.py checks them: a copy that takes the same steps with
//! the expected sums. The expected sums repeat with a period, so one period of weights is enough.

use anyhow::Result;
use tch::Tensor;

use crate::benchmark::bandwidth::values::{Comparison, Values, periods};
use crate::exchange::memory::narrow;

/// One period of the weights.
pub struct CopiedWeights {
    copy: Tensor,
    learning_rate: f64,
    ranks: u32,
    steps: u32,
}

impl CopiedWeights {
    /// Returns weights of zero, their initial value.
    pub fn new(values: &Values, learning_rate: f64, ranks: u32) -> Result<CopiedWeights> {
        Ok(CopiedWeights { copy: values.period(0)?.f_zeros_like()?, learning_rate, ranks, steps: 0 })
    }

    pub fn step(&mut self, values: &Values, iteration: usize) -> Result<()> {
        let step = values.period(iteration)? * self.learning_rate;
        let _ = self.copy.f_sub_(&step)?;
        self.steps += 1;
        Ok(())
    }

    /// Compares `weights` that have taken the same number of steps.
    pub fn check(&self, values: &Values, weights: &Tensor) -> Result<Comparison> {
        let (steps, ranks) = (f64::from(self.steps), f64::from(self.ranks));
        // Each step adds the error of its sum. Servers that do not wait for every rank also round the weights, at most
        // `rate x ranks x steps` by then, once for each rank.
        let rounded = 2f64.powi(-24) * ranks * ranks * (steps + 2.0);
        let tolerance = steps * self.learning_rate * (values.tolerance() + rounded);
        let mut compared = Comparison::default();
        for (place, part) in periods(0..weights.numel(), 0) {
            compared.add(&narrow(weights, &place)?, &narrow(&self.copy, &part)?, tolerance)?;
        }
        Ok(compared)
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;
    use crate::ffi::group::GroupRank;

    #[test]
    fn missing_step_or_rank_is_detected() {
        let elements = 1_500_000;
        let values =
            |rank| Values::random(elements, GroupRank { rank, ranks: 2 }, Kind::Float, Device::Cpu).expect("made");
        let mut copy = CopiedWeights::new(&values(0), 0.01, 2).expect("made");
        let floats = || Tensor::zeros([elements as i64], (Kind::Float, Device::Cpu));
        let (mut weights, gradient) = (floats(), floats());
        for iteration in 0..10 {
            copy.step(&values(0), iteration).expect("taken");
            let check = |weights: &Tensor| copy.check(&values(0), weights).expect("compared").deviation();
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
}
