//! The update of a rank whose servers send back sums: each part when its sum has come, while others are on their way.

use std::ops::Range;

use anyhow::Result;
use tch::Device;

use crate::exchange::kv_store::plan::PlannedPart;
use crate::exchange::optimizer::Optimizer;

/// This rank's.
pub struct OwnUpdate {
    optimizer: Optimizer,
    /// Empty where all is updated at once: on a device, whose sums come by one copy, and with a loss scaler. Every rank of a host
    /// cuts alike, whether its own links bring the sums or another's: the ends of a range may round otherwise than its middle.
    parts: Vec<Range<usize>>,
    /// The update whose parts are done.
    done: Option<u32>,
}

impl OwnUpdate {
    /// By the sums that servers send of `parts`.
    pub fn new(optimizer: Optimizer, parts: &[PlannedPart]) -> OwnUpdate {
        let is_by_parts = optimizer.loss_scaler().is_none() && optimizer.device() == Device::Cpu;
        let parts = parts.iter().filter(|_| is_by_parts).map(|part| part.elements.clone()).collect();
        OwnUpdate { optimizer, parts, done: None }
    }

    /// Does parts of update number `update` as they arrive, all of them, where it goes by parts.
    pub fn begin(&mut self, update: u32, mut arrivals: impl Iterator<Item = Range<usize>>) -> Result<()> {
        if self.parts.is_empty() {
            return Ok(());
        }
        self.done = Some(update);
        arrivals.try_for_each(|elements| self.optimizer.step_of(elements, update))
    }

    /// Does what is left of it, when all sums are there.
    pub fn complete(&mut self, update: u32) -> Result<()> {
        if self.done.take() == Some(update) {
            return Ok(());
        }
        match self.parts.is_empty() {
            true => self.optimizer.step(update),
            false => self.parts.iter().try_for_each(|elements| self.optimizer.step_of(elements.clone(), update)),
        }
    }
}
