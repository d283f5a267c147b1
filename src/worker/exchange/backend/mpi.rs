//! Sums by MPI_Allreduce over host memory, on the thread that runs backward.
//!
//! Open MPI moves data only inside its calls, and on the CPU the cores are all busy with backward: a second thread
//! could hide the wait for a slower rank, but not the copying (measured: results/README.md).

use std::ops::Range;

use anyhow::Result;
use tch::{Device, Tensor};

use crate::exchange::backend::Backend;
use crate::exchange::memory::Memory;
use crate::ffi::mpi::Sums;
use crate::job::heartbeat;

/// Every range is done when [`start`](Backend::start) returns.
pub struct Mpi {
    sums: Sums,
    chunk_kb: u32,
    memory: Memory,
}

impl Mpi {
    pub fn new(chunk_kb: u32, memory: Memory) -> Result<Mpi> {
        Ok(Mpi { sums: Sums::new()?, chunk_kb, memory })
    }

    /// In chunks: longer messages fall out of the caches of Open MPI's shared-memory transport, at half the speed.
    fn all_reduce(&self, input: &Tensor, output: &Tensor, elements: Range<usize>) -> Result<()> {
        chunks(elements, self.chunk_kb, input.kind().elt_size_in_bytes())
            .try_for_each(|chunk| self.sums.all_reduce(input, output, chunk).inspect(|()| heartbeat::count_progress()))
    }
}

/// `elements` of `bytes` each in chunks of at most `kilobytes`; 0 is one chunk.
pub fn chunks(elements: Range<usize>, kilobytes: u32, bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let length = match kilobytes {
        0 => elements.len().max(1),
        _ => (kilobytes as usize * 1000 / bytes).max(1),
    };
    elements.clone().step_by(length).map(move |start| start..elements.end.min(start + length))
}

impl Backend for Mpi {
    fn name(&self) -> &'static str {
        "mpi"
    }

    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn start(&mut self, elements: Range<usize>) -> Result<()> {
        let (input, output) = self.memory.of_one_type();
        if input.device() == Device::Cpu {
            return self.all_reduce(input, output, elements);
        }
        let range = |tensor: &Tensor| tensor.f_narrow(0, elements.start as i64, elements.len() as i64);
        let host = range(input)?.f_to_device(Device::Cpu)?;
        self.all_reduce(&host, &host, 0..elements.len())?;
        range(output)?.f_copy_(&host)?;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.memory.settle()
    }

    fn has_chunks(&self) -> bool {
        true
    }

    fn set_chunk(&mut self, kilobytes: u32) {
        self.chunk_kb = kilobytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_everything_once() {
        let list = |elements, kilobytes| chunks(elements, kilobytes, 4).collect::<Vec<_>>();
        assert_eq!(list(100..1200, 1), [100..350, 350..600, 600..850, 850..1100, 1100..1200]);
        assert_eq!(list(100..1200, 0), [100..1200; 1]);
        assert_eq!(list(7..7, 0), [0..0; 0]);
    }
}
