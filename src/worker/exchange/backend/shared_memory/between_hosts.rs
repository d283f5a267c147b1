//! Exchange with other hosts by MPI, beside the work of a host's ranks in their window.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use anyhow::Result;

use crate::ffi::mpi::calls::Group;
use crate::ffi::mpi::{Request, Sums};
use crate::measure::trace::recorder;

/// The exchange with the ranks on the other hosts.
pub struct BetweenHosts {
    /// Communicator of the ranks with the same shard; `None` without a shard.
    pub same_local_rank: Option<Group>,
    pub sums: Sums,
    pub chunk_kb: u32,
    /// Chunks under way, in start order.
    pub in_flight: VecDeque<Chunk>,
}

/// A chunk on its way between the hosts.
pub struct Chunk {
    /// The range that it is of, as it was counted when it started.
    pub counter: usize,
    pub request: Request,
    pub then: Then,
    begun: Instant,
}

impl Chunk {
    pub fn new(counter: usize, request: Request, then: Then) -> Chunk {
        Chunk { counter, request, then, begun: Instant::now() }
    }

    /// It is there: a part of this bucket, or of none.
    pub fn tell(&self, bucket: Option<u32>) {
        recorder::take_message(bucket, self.begun);
    }
}

/// What follows when a chunk is there.
pub enum Then {
    /// Nothing: it is where it belongs.
    Nothing,
    /// These ranks of the host get it.
    Spread { elements: Range<usize>, receivers: Vec<usize> },
    /// This rank has all that it was to receive of a range: it is counted.
    Arrive { counter: usize },
}

impl BetweenHosts {
    pub fn new(rank: u32, same_local_rank: Option<Group>, chunk_kb: u32) -> Result<BetweenHosts> {
        Ok(BetweenHosts { same_local_rank, sums: Sums::new(rank)?, chunk_kb, in_flight: VecDeque::new() })
    }

    /// Longest chunk of an all-reduce, in kB: among more than two hosts each gets its part of it, as long as any other message.
    pub fn all_reduce_kb(&self) -> u32 {
        let parts = self.same_local_rank.as_ref().map_or(1, Group::parts);
        self.chunk_kb.saturating_mul(parts)
    }

    pub fn push(&mut self, counter: usize, request: Request, then: Then) {
        self.in_flight.push_back(Chunk::new(counter, request, then));
    }
}
