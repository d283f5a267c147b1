//! Sums by NCCL rings on a stream of their own, beside backward.
//!
//! ```text
//! compute stream   ...backward of bucket 0 | E0 | backward of bucket 1 | E1 | (wait D) optimizer...
//!                                            \                           \      /
//! sum stream                         (wait E0) sum 0 ........... (wait E1) sum 1 | D
//! ```

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use anyhow::Result;

use crate::exchange::backend::Backend;
use crate::exchange::memory::Memory;
use crate::ffi::nccl::{Communicator, Nccl};
use crate::ffi::shim::{Event, Stream};
use crate::job::heartbeat;
use crate::job::world::World;

/// One communicator over all ranks.
pub struct NcclRing {
    communicator: Communicator,
    device: usize,
    /// Set when a bucket's gradients are in place. One is enough: a stream that waits for an event waits for the
    /// recording that was last when it was asked to wait, whatever is recorded later.
    ready: Event,
    done: Event,
    /// Ends of the sums that are under way, oldest first.
    under_way: VecDeque<Event>,
    /// Sums that are done.
    sums: usize,
    memory: Memory,
}

impl NcclRing {
    /// Joins all ranks; the identity that NCCL needs goes round by MPI.
    pub fn new(nccl: Arc<Nccl>, world: &World, device: usize, memory: Memory) -> Result<NcclRing> {
        let mut id = match world.rank() {
            0 => nccl.unique_id()?,
            _ => [0; _],
        };
        world.broadcast(&mut id);
        let _waiting = heartbeat::wait();
        let communicator = Communicator::new(nccl, device, world.rank(), world.ranks(), id)?;
        Ok(NcclRing {
            communicator,
            device,
            ready: Event::new(device),
            done: Event::new(device),
            under_way: VecDeque::new(),
            sums: 0,
            memory,
        })
    }
}

impl Backend for NcclRing {
    fn name(&self) -> &'static str {
        "nccl"
    }

    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn start(&mut self, elements: Range<usize>) -> Result<()> {
        self.start_in_a_row(elements, 1)
    }

    fn start_in_a_row(&mut self, elements: Range<usize>, times: u32) -> Result<()> {
        self.ready.record(Stream::current(self.device)?)?;
        self.communicator.stream().wait_for(&self.ready)?;
        let (input, output) = self.memory.of_one_type();
        for _ in 0..times {
            self.communicator.all_reduce_sum(input, output, elements.clone())?;
        }
        let mut end = Event::new(self.device);
        end.record(self.communicator.stream())?;
        self.under_way.push_back(end);
        Ok(())
    }

    fn check(&mut self) -> Result<usize> {
        self.communicator.check()?;
        while self.under_way.front().map_or(Ok(false), Event::is_done)? {
            self.under_way.pop_front();
            self.sums += 1;
        }
        Ok(self.sums)
    }

    fn finish(&mut self) -> Result<()> {
        self.check()?;
        self.done.record(self.communicator.stream())?;
        Stream::current(self.device)?.wait_for(&self.done)?;
        self.memory.settle()
    }
}
