//! MPI_Allreduce over host memory, called on the thread that runs backward.
//!
//! Open MPI moves data only inside its calls, and on the CPU all cores are busy with backward: a second thread could
//! hide the wait for a slower rank, but not the copying (measured: results/README.md).

use std::ops::Range;

use anyhow::{Result, ensure};
use ringmark_core::dimension::{BackendName, Reduction};
use tch::{Device, Tensor};

use crate::exchange::backend::Backend;
use crate::exchange::collective::{Collective, Target};
use crate::exchange::memory::{Memory, UncopiedSums, narrow};
use crate::ffi::group::Buffers;
use crate::ffi::mpi::Communicator;
use crate::job::heartbeat;
use crate::job::world::World;

/// MPI backend. A collective is complete when [`start_collective`](Backend::start_collective) returns.
pub struct Mpi {
    communicator: Communicator,
    chunk_kb: u32,
    memory: Memory,
    rank: u32,
    ranks: u32,
    reduction: Reduction,
    uncopied: UncopiedSums,
}

impl Mpi {
    pub fn new(chunk_kb: u32, memory: Memory, world: &World) -> Result<Mpi> {
        Ok(Mpi {
            communicator: Communicator::new(world.communicator())?,
            chunk_kb,
            memory,
            rank: world.rank(),
            ranks: world.ranks(),
            reduction: Reduction::Sum,
            uncopied: UncopiedSums::default(),
        })
    }

    /// Runs a collective in chunks: longer messages exceed the caches of Open MPI's shared-memory transport, at half
    /// the speed. The buffers are in host memory and start at element `first` of the backend's memory.
    fn call(&self, collective: &Collective, buffers: Buffers, first: usize) -> Result<()> {
        let Buffers { input, output } = buffers;
        let (rank, bytes) = (self.rank, input.kind().elt_size_in_bytes());
        let here = |elements: &Range<usize>| elements.start - first..elements.end - first;
        let chunks = |elements: &Range<usize>| chunks(here(elements), self.chunk_kb, bytes);
        let done = |result: Result<()>| result.inspect(|()| heartbeat::count_progress());
        match collective {
            Collective::AllReduce { elements } => {
                chunks(elements).try_for_each(|chunk| done(self.communicator.all_reduce(buffers, chunk)))?
            }
            Collective::Reduce { elements, root, .. } => {
                chunks(elements).try_for_each(|chunk| done(self.communicator.reduce(buffers, chunk, *root)))?;
            }
            Collective::ReduceScatter { parts } => slices(parts, self.chunk_kb, bytes)
                .try_for_each(|slice| done(self.communicator.reduce_scatter(buffers, &shifted(&slice, first))))?,
            Collective::Broadcast { elements, root, .. } => {
                let tensor = if rank == *root { input } else { output };
                chunks(elements).try_for_each(|chunk| done(self.communicator.broadcast(tensor, chunk, *root)))?;
                if rank == *root && input.data_ptr() != output.data_ptr() {
                    let own = here(elements);
                    narrow(output, &own)?.f_copy_(&narrow(input, &own)?)?;
                }
            }
            Collective::AllGather { parts, .. } => slices(parts, self.chunk_kb, bytes)
                .try_for_each(|slice| done(self.communicator.all_gather(buffers, &shifted(&slice, first))))?,
            Collective::AllToAll { parts } => slices(parts, self.chunk_kb, bytes)
                .try_for_each(|slice| done(self.communicator.all_to_all(buffers, &shifted(&slice, first))))?,
            Collective::SendReceive { elements, neighbors } => {
                chunks(elements)
                    .try_for_each(|chunk| done(self.communicator.send_receive(buffers, chunk, *neighbors)))?;
            }
        }
        self.divide(collective, output, first)
    }

    /// Divides this rank's sums by the number of ranks if the reduction is a mean.
    fn divide(&self, collective: &Collective, output: &Tensor, first: usize) -> Result<()> {
        if self.reduction != Reduction::Avg || !collective.operation().reduces() {
            return Ok(());
        }
        let own = match collective {
            Collective::ReduceScatter { parts } => parts[self.rank as usize].clone(),
            Collective::Reduce { root, .. } if *root != self.rank => return Ok(()),
            _ => collective.span(),
        };
        let _ = narrow(output, &(own.start - first..own.end - first))?.f_mul_scalar_(1.0 / f64::from(self.ranks))?;
        Ok(())
    }
}

fn shifted(parts: &[Range<usize>], first: usize) -> Vec<Range<usize>> {
    parts.iter().map(|part| part.start - first..part.end - first).collect()
}

/// Divides all parts into chunks, like [`chunks`]: each chunk has a slice of every part, which may be empty.
fn slices(parts: &[Range<usize>], kilobytes: u32, bytes: usize) -> impl Iterator<Item = Vec<Range<usize>>> {
    let longest = parts.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
    let length = match kilobytes {
        0 => longest.max(1),
        _ => (kilobytes as usize * 1000 / bytes / parts.len().max(1)).max(1),
    };
    (0..longest).step_by(length).map(move |start| {
        let within = |part: &Range<usize>, offset: usize| (part.start + offset).min(part.end);
        parts.iter().map(|part| within(part, start)..within(part, start + length)).collect()
    })
}

/// Divides `elements` of `bytes` bytes each into chunks of at most `kilobytes` kB; 0 is one chunk.
pub fn chunks(elements: Range<usize>, kilobytes: u32, bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let length = match kilobytes {
        0 => elements.len().max(1),
        _ => (kilobytes as usize * 1000 / bytes).max(1),
    };
    elements.clone().step_by(length).map(move |start| start..elements.end.min(start + length))
}

impl Backend for Mpi {
    fn name(&self) -> BackendName {
        BackendName::Mpi
    }

    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn set_reduction(&mut self, reduction: Reduction) {
        self.reduction = reduction;
        self.communicator.set_reduction(reduction);
    }

    fn start_collective(&mut self, collective: &Collective) -> Result<()> {
        let needs_separate_buffers = matches!(collective, Collective::AllToAll { .. } | Collective::SendReceive { .. });
        ensure!(!needs_separate_buffers || !self.memory.in_place, "send and receive buffers must not overlap");
        let buffers = match collective {
            Collective::Broadcast { target: Target::Tensor(tensor), .. }
            | Collective::AllGather { target: Target::Tensor(tensor), .. } => Buffers::in_place(tensor),
            _ => self.memory.single_type_buffers(),
        };
        self.uncopied.add(0, collective);
        let Buffers { input, output } = buffers;
        if input.device() == Device::Cpu {
            return self.call(collective, buffers, 0);
        }
        let span = collective.span();
        let on_host = |tensor: &Tensor| Ok::<_, anyhow::Error>(narrow(tensor, &span)?.f_to_device(Device::Cpu)?);
        let to = on_host(output)?;
        let from = if input.data_ptr() == output.data_ptr() { to.shallow_clone() } else { on_host(input)? };
        self.call(collective, Buffers { input: &from, output: &to }, span.start)?;
        narrow(output, &span)?.f_copy_(&to)?;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.uncopied.copy(&self.memory, 0)
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
    fn chunks_cover_the_range_once() {
        let list = |elements, kilobytes| chunks(elements, kilobytes, 4).collect::<Vec<_>>();
        assert_eq!(list(100..1200, 1), [100..350, 350..600, 600..850, 850..1100, 1100..1200]);
        assert_eq!(list(100..1200, 0), [100..1200; 1]);
        assert_eq!(list(7..7, 0), [0..0; 0]);
    }

    #[test]
    fn slices_contain_a_piece_of_every_part() {
        let list = |kilobytes| slices(&[0..200, 200..400, 400..450], kilobytes, 4).collect::<Vec<_>>();
        assert_eq!(list(0), [[0..200, 200..400, 400..450]]);
        assert_eq!(
            list(1),
            [[0..83, 200..283, 400..450], [83..166, 283..366, 450..450], [166..200, 366..400, 450..450]]
        );
    }
}
