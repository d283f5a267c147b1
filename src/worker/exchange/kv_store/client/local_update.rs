//! The update on a worker whose servers send sums: part by part, as the sums arrive.

use std::ops::Range;

use anyhow::Result;
use tch::Device;

use crate::exchange::kv_store::plan::PlannedPart;
use crate::exchange::optimizer::FusedOptimizer;

/// Optimizer and progress of the update.
pub struct LocalUpdate {
    optimizer: FusedOptimizer,
    /// Empty if all is updated at once: on a GPU, which receives the sums by one copy, and with a loss scaler. All
    /// ranks of a host use the same parts, because the end of a range is rounded differently.
    parts: Vec<Range<usize>>,
    /// The last update that was done by parts.
    partial_update: Option<u32>,
}

impl LocalUpdate {
    /// Creates the update by `parts`.
    pub fn new(optimizer: FusedOptimizer, parts: &[PlannedPart]) -> LocalUpdate {
        let is_by_parts = optimizer.loss_scaler().is_none() && optimizer.device() == Device::Cpu;
        let parts = parts.iter().filter(|_| is_by_parts).map(|part| part.elements.clone()).collect();
        LocalUpdate { optimizer, parts, partial_update: None }
    }

    /// Updates each part of update number `update` as it arrives, unless all is updated at once.
    pub fn begin(&mut self, update: u32, mut arrivals: impl Iterator<Item = Range<usize>>) -> Result<()> {
        if self.parts.is_empty() {
            return Ok(());
        }
        self.partial_update = Some(update);
        arrivals.try_for_each(|elements| self.optimizer.step_range(elements, update))
    }

    /// Completes update number `update`; all sums have arrived.
    pub fn complete(&mut self, update: u32) -> Result<()> {
        if self.partial_update.take() == Some(update) {
            return Ok(());
        }
        match self.parts.is_empty() {
            true => self.optimizer.step(update),
            false => self.parts.iter().try_for_each(|elements| self.optimizer.step_range(elements.clone(), update)),
        }
    }
}

#[cfg(test)]
mod tests {
    use ringmark_core::benchmark::optimizer::Optimizer;
    use ringmark_core::benchmark::train::config::TrainConfig;
    use ringmark_core::dimension::Dtype;
    use tch::Tensor;

    use super::*;
    use crate::exchange::request::{RankCounts, UpdateRule};

    /// Numbers without a pattern.
    fn values(factor: f32) -> Tensor {
        Tensor::from_slice(&(0..64).map(|index| (factor * index as f32).sin()).collect::<Vec<f32>>())
    }

    const PARTS: [Range<usize>; 3] = [0..5, 5..21, 21..64];

    /// Weights after two updates, with the momenta of the first in the second; `arrivals` of the first, if it is begun.
    fn updated(optimizer: Optimizer, arrivals: Option<[usize; 3]>) -> Tensor {
        let (weights, sums) = (values(1.7), values(2.3));
        let config = TrainConfig { dtype: Dtype::Fp32, optimizer, ..TrainConfig::default() };
        let rule = UpdateRule::Training(Box::new(config));
        let counts = RankCounts { all: 2, summed: 2, averaged: 2 };
        let optimizer = FusedOptimizer::new(&rule, counts, weights.shallow_clone(), sums).expect("as long");
        let mut own = LocalUpdate { optimizer, parts: PARTS.to_vec(), partial_update: None };
        if let Some(arrivals) = arrivals {
            own.begin(1, arrivals.into_iter().map(|part| PARTS[part].clone())).expect("the first update");
        }
        for update in 1..=2 {
            own.complete(update).expect("an update");
        }
        assert!(!weights.equal(&values(1.7)), "nothing has changed");
        weights
    }

    #[test]
    fn update_does_not_depend_on_arrival_order() {
        for optimizer in [Optimizer::Nag, Optimizer::AdamW] {
            let at_once = updated(optimizer, None);
            for arrivals in [[0, 1, 2], [2, 0, 1]] {
                assert!(updated(optimizer, Some(arrivals)).equal(&at_once), "{optimizer} {arrivals:?}");
            }
        }
    }
}
