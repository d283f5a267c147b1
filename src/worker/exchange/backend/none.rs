//! No exchange: one rank alone, or the base line of what communication costs.

use std::ops::Range;

use anyhow::Result;

use crate::exchange::backend::Collective;
use crate::exchange::memory::Memory;

/// Leaves every value as it is.
pub struct Solo {
    name: &'static str,
    memory: Memory,
}

impl Solo {
    pub fn new(name: &'static str, memory: Memory) -> Solo {
        Solo { name, memory }
    }
}

impl Collective for Solo {
    fn name(&self) -> &'static str {
        self.name
    }

    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn start(&mut self, elements: Range<usize>) -> Result<()> {
        let Memory { wire, sums, in_place } = &self.memory;
        if !in_place && wire.kind() == sums.kind() {
            let stretch = |tensor: &tch::Tensor| tensor.f_narrow(0, elements.start as i64, elements.len() as i64);
            stretch(sums)?.f_copy_(&stretch(wire)?)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.memory.settle()
    }
}
