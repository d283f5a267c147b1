//! The backends that sum gradients over the ranks, behind one trait. Not for what is summed, or when.

mod mpi;
mod nccl;
pub mod nccl_log;
mod none;
pub mod select;
pub mod shared_memory;

use std::ops::Range;

use anyhow::Result;
use ringmark_record::benchmark::exchange::Wire;

use crate::exchange::memory::Memory;

/// Sums ranges of its memory over all ranks.
pub trait Backend: Send {
    /// As in the record.
    fn name(&self) -> &'static str;

    /// Type in which the values of several ranks are added, where they come by this `wire`: the wire's own where a library
    /// adds, which rounds after every addition. `None` where nothing is exchanged.
    fn sum_dtype(&self, wire: Wire) -> Option<Wire> {
        Some(wire)
    }

    /// What is summed, and where the sums go.
    fn memory(&mut self) -> &mut Memory;

    /// Starts the sum of these elements over all ranks. Every rank starts the same ranges in the same order, none twice
    /// before [`finish`](Backend::finish), and leaves them alone until then.
    fn start(&mut self, elements: Range<usize>) -> Result<()>;

    /// Starts the same sum `times` times, one after the other, as only a measurement does.
    fn start_in_a_row(&mut self, elements: Range<usize>, times: u32) -> Result<()> {
        (0..times).try_for_each(|_| self.start(elements.clone()))
    }

    /// Orders every started sum before whatever the caller does next: on the CPU they are done when this returns, on
    /// CUDA the caller's stream waits for them and the host does not.
    fn finish(&mut self) -> Result<()>;

    /// Whether a started sum goes on beside its caller; otherwise it is over when [`start`](Backend::start) returns, on CUDA
    /// when the caller's stream is past it.
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// Looks for errors of sums that are under way, without waiting; how many sums are done since the start, for a
    /// backend that goes on beside its caller.
    fn check(&mut self) -> Result<usize> {
        Ok(0)
    }

    /// Whether a range is sent by MPI, in chunks.
    fn has_chunks(&self) -> bool {
        false
    }

    /// Sets the longest chunk that one MPI call sums, in kB; 0 is no limit.
    fn set_chunk(&mut self, _kilobytes: u32) {}
}
