//! A backend whose collectives are numbered from 1 in the order of their start.

use anyhow::Result;
use tch::Tensor;

use crate::exchange::backend::Backend;
use crate::exchange::collective::Collective;

pub struct Collectives {
    pub backend: Box<dyn Backend>,
    /// Sums of the backend's memory.
    pub sums: Tensor,
    started: usize,
}

impl Collectives {
    /// Numbers the collectives of `backend`, which has started none.
    pub fn new(mut backend: Box<dyn Backend>) -> Collectives {
        let sums = backend.memory().sums.shallow_clone();
        Collectives { backend, sums, started: 0 }
    }

    /// Returns the number of the collective.
    pub fn start(&mut self, collective: &Collective) -> Result<usize> {
        self.backend.start_collective(collective)?;
        self.started += 1;
        Ok(self.started)
    }

    /// Orders the collectives up to `number` before the caller's next work.
    pub fn finish_first(&mut self, number: usize) -> Result<()> {
        self.backend.finish_first(number)
    }
}
