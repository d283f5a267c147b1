//! Backends that reduce and transfer the ranks' values, behind one trait.

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

/// Reduces ranges of its memory over all ranks, and transfers them between ranks.
pub trait Backend: Send {
    /// Returns its name in the record.
    fn name(&self) -> BackendName;

    /// Returns the type in which the values of several ranks are added if the wire type is `wire`: the wire's type if a
    /// library adds, which rounds after every addition. `None` if nothing is exchanged.
    fn sum_dtype(&self, wire: Wire) -> Option<Wire> {
        Some(wire)
    }

    /// Returns input and result of the sums.
    fn memory(&mut self) -> &mut Memory;

    /// Sets the reduction of the next starts; the default is a sum.
    fn set_reduction(&mut self, reduction: Reduction);

    /// Starts a collective. Every rank starts the same collectives in the same order, no element twice before
    /// [`finish`](Backend::finish), and does not touch the elements until then.
    fn start_collective(&mut self, collective: &Collective) -> Result<()>;

    /// Starts the sum of these elements over all ranks: an all-reduce.
    fn start(&mut self, elements: Range<usize>) -> Result<()> {
        self.start_collective(&Collective::AllReduce { elements })
    }

    /// Starts the same collective `times` times in a row, as only a benchmark does.
    fn start_repeated(&mut self, collective: &Collective, times: u32) -> Result<()> {
        (0..times).try_for_each(|_| self.start_collective(collective))
    }

    /// Orders everything started before the caller's next work: on the CPU it is complete on return, on CUDA the
    /// caller's stream waits for it and the host does not.
    fn finish(&mut self) -> Result<()>;

    /// Does the same for the first `count` collectives that the caller has started since the backend exists; may include
    /// others. All ranks call this together.
    fn finish_first(&mut self, _count: usize) -> Result<()> {
        self.finish()
    }

    /// Returns true if started work overlaps with the caller; otherwise it is complete when
    /// [`start_collective`](Backend::start_collective) returns, on CUDA when the caller's stream has passed it.
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// Announces that work started from now on is captured, or that the capture is over: until then events must not be
    /// queried. Nothing may be in flight.
    fn set_capturing(&mut self, _is_capturing: bool) {}

    /// Checks sums in flight for errors, without waiting. Returns the number of sums completed since the start, for an
    /// asynchronous backend.
    fn check(&mut self) -> Result<usize> {
        Ok(0)
    }

    /// Returns true if ranges are sent by MPI in chunks.
    fn has_chunks(&self) -> bool {
        false
    }

    /// Sets the longest chunk of one MPI call, in kB; 0 means unlimited.
    fn set_chunk(&mut self, _kilobytes: u32) {}
}
