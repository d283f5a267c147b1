//! Sums by MPI_Allreduce over host memory, on the thread that runs backward.
//!
//! Open MPI moves data only inside its calls, and on the CPU the cores are all busy with backward: a second thread
//! could hide the wait for a slower rank, but not the copying (measured: results/README.md).

use std::ops::Range;

use anyhow::Result;
use tch::{Device, Tensor};

use crate::exchange::backend::Collective;
use crate::exchange::memory::Memory;
use crate::ffi::mpi::Sums;
use crate::job::heartbeat;

/// Every stretch is done when [`start`](Collective::start) returns.
pub struct Mpi {
    sums: Sums,
    piece_kb: u32,
    memory: Memory,
}

impl Mpi {
    pub fn new(piece_kb: u32, memory: Memory) -> Result<Mpi> {
        Ok(Mpi { sums: Sums::new()?, piece_kb, memory })
    }

    /// In pieces: longer messages fall out of the caches of Open MPI's shared-memory transport, at half the speed.
    fn all_reduce(&self, input: &Tensor, output: &Tensor, elements: Range<usize>) -> Result<()> {
        pieces(elements, self.piece_kb, input.kind().elt_size_in_bytes()).try_for_each(|piece| {
            self.sums.all_reduce(input, output, piece).inspect(|()| heartbeat::piece_is_through())
        })
    }
}

/// `elements` of `bytes` each in stretches of at most `kilobytes`; 0 is one stretch.
pub fn pieces(elements: Range<usize>, kilobytes: u32, bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let length = match kilobytes {
        0 => elements.len().max(1),
        _ => (kilobytes as usize * 1000 / bytes).max(1),
    };
    elements.clone().step_by(length).map(move |start| start..elements.end.min(start + length))
}

impl Collective for Mpi {
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
        let stretch = |tensor: &Tensor| tensor.f_narrow(0, elements.start as i64, elements.len() as i64);
        let host = stretch(input)?.f_to_device(Device::Cpu)?;
        self.all_reduce(&host, &host, 0..elements.len())?;
        stretch(output)?.f_copy_(&host)?;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.memory.settle()
    }

    fn calls_mpi(&self) -> bool {
        true
    }

    fn set_piece(&mut self, kilobytes: u32) {
        self.piece_kb = kilobytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_everything_once() {
        let list = |elements, kilobytes| pieces(elements, kilobytes, 4).collect::<Vec<_>>();
        assert_eq!(list(100..1200, 1), [100..350, 350..600, 600..850, 850..1100, 1100..1200]);
        assert_eq!(list(100..1200, 0), [100..1200; 1]);
        assert_eq!(list(7..7, 0), [0..0; 0]);
    }
}
