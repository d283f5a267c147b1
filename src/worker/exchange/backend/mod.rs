//! The backends that bring the ranks' values together, behind one trait. Not for what is summed, or when.

mod mpi;
mod nccl;
mod none;
pub mod select;
pub mod shared_memory;

use std::ops::Range;

use anyhow::Result;
use ringmark_core::dimension::{BackendName, Reduction, Wire};

use crate::exchange::collective::Collective;
use crate::exchange::memory::Memory;

/// Sums ranges of its memory over all ranks, and moves them between the ranks.
pub trait Backend: Send {
    /// Returns its name in the record.
    fn name(&self) -> BackendName;

    /// Type in which the values of several ranks are added, where they come by this `wire`: the wire's own where a library
    /// adds, which rounds after every addition. `None` where nothing is exchanged.
    fn sum_dtype(&self, wire: Wire) -> Option<Wire> {
        Some(wire)
    }

    /// Returns input and result of the sums.
    fn memory(&mut self) -> &mut Memory;

    /// Sets the reduction of the next starts; the default is a sum.
    fn set_reduction(&mut self, reduction: Reduction);

    /// Starts it on all ranks. Every rank starts the same in the same order, no element twice before
    /// [`finish`](Backend::finish), and leaves the elements alone until then.
    fn start_collective(&mut self, collective: &Collective) -> Result<()>;

    /// Starts the sum of these elements over all ranks: an all-reduce.
    fn start(&mut self, elements: Range<usize>) -> Result<()> {
        self.start_collective(&Collective::AllReduce { elements })
    }

    /// Starts the same `times` times, one after the other, as only a measurement does.
    fn start_in_a_row(&mut self, collective: &Collective, times: u32) -> Result<()> {
        (0..times).try_for_each(|_| self.start_collective(collective))
    }

    /// Orders everything started before whatever the caller does next: on the CPU they are done when this returns, on
    /// CUDA the caller's stream waits for them and the host does not.
    fn finish(&mut self) -> Result<()>;

    /// Returns true if started work continues beside the caller; otherwise it is complete when
    /// [`start_collective`](Backend::start_collective) returns, on CUDA when the caller's stream is past it.
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// Announces that what is started from now on is captured, or that the capture is over: until then no event may be
    /// queried. Nothing is under way.
    fn set_capturing(&mut self, _is_capturing: bool) {}

    /// Looks for errors of sums that are under way, without waiting; how many sums are done since the start, for a
    /// backend that goes on beside its caller.
    fn check(&mut self) -> Result<usize> {
        Ok(0)
    }

    /// Returns true if ranges are sent by MPI in chunks.
    fn has_chunks(&self) -> bool {
        false
    }

    /// Sets the longest chunk that one MPI call sums, in kB; 0 is no limit.
    fn set_chunk(&mut self, _kilobytes: u32) {}
}
