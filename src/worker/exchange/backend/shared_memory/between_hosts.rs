//! MPI exchange with other hosts, concurrent with the work of a host's ranks in their window.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use anyhow::Result;

use crate::ffi::mpi::calls::Group;
use crate::ffi::mpi::{Communicator, Request};
use crate::job::world::World;
use crate::measure::trace::recorder;

pub struct BetweenHosts {
    /// Communicator of the ranks with the same shard; `None` without a shard.
    pub same_local_rank: Option<Group>,
    pub communicator: Communicator,
    pub chunk_kb: u32,
    pub in_flight: VecDeque<Chunk>,
}

pub struct Chunk {
    /// Counter of the chunk's range, assigned when it started.
    pub counter: usize,
    pub request: Request,
    pub next: NextStep,
    started_at: Instant,
}

impl Chunk {
    pub fn new(counter: usize, request: Request, next: NextStep) -> Chunk {
        Chunk { counter, request, next, started_at: Instant::now() }
    }

    /// Records the chunk in the trace after it arrived; `bucket` is `None` if it belongs to no bucket.
    pub fn record(&self, bucket: Option<u32>) {
        recorder::record_message(bucket, self.started_at);
    }
}

/// Action after a chunk has arrived.
pub enum NextStep {
    Nothing,
    /// Copies the elements to these ranks of the host.
    CopyToRanks {
        elements: Range<usize>,
        receivers: Vec<usize>,
    },
    /// Counts the range as received: all its chunks have arrived.
    Arrive {
        counter: usize,
    },
}

impl BetweenHosts {
    pub fn new(world: &World, same_local_rank: Option<Group>, chunk_kb: u32) -> Result<BetweenHosts> {
        let communicator = Communicator::new(world.communicator())?;
        Ok(BetweenHosts { same_local_rank, communicator, chunk_kb, in_flight: VecDeque::new() })
    }

    /// Returns the longest chunk of an all-reduce, in kB. With more than two hosts each host gets a part of a chunk, so
    /// that the messages are as long as any others.
    pub fn all_reduce_kb(&self) -> u32 {
        let parts = self.same_local_rank.as_ref().map_or(1, Group::parts);
        self.chunk_kb.saturating_mul(parts)
    }

    pub fn push(&mut self, counter: usize, request: Request, next: NextStep) {
        self.in_flight.push_back(Chunk::new(counter, request, next));
    }
}
