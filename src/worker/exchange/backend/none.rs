//! Backend without exchange: for a single rank, or as the baseline that shows the cost of communication.

use anyhow::Result;
use ringmark_core::dimension::{BackendName, Reduction, Wire};

use crate::exchange::backend::Backend;
use crate::exchange::collective::{Collective, Target};
use crate::exchange::memory::{Memory, UncopiedSums, narrow};

/// Leaves every value as it is.
pub struct NoExchange {
    name: BackendName,
    memory: Memory,
    uncopied: UncopiedSums,
}

impl NoExchange {
    pub fn new(name: BackendName, memory: Memory) -> NoExchange {
        NoExchange { name, memory, uncopied: UncopiedSums::default() }
    }
}

impl Backend for NoExchange {
    fn name(&self) -> BackendName {
        self.name
    }

    fn sum_dtype(&self, _wire: Wire) -> Option<Wire> {
        None
    }

    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// The sum, maximum and mean of one rank are its own values.
    fn set_reduction(&mut self, _reduction: Reduction) {}

    fn start_collective(&mut self, collective: &Collective) -> Result<()> {
        if let Collective::Broadcast { target: Target::Tensor(_), .. }
        | Collective::AllGather { target: Target::Tensor(_), .. } = collective
        {
            return Ok(());
        }
        let (elements, Memory { wire, sums, in_place }) = (collective.span(), &self.memory);
        if !in_place && wire.kind() == sums.kind() {
            narrow(sums, &elements)?.f_copy_(&narrow(wire, &elements)?)?;
        }
        self.uncopied.add(0, collective);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.uncopied.copy(&self.memory, 0)
    }
}
