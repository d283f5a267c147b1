//! Aggregation on a host: its ranks add up their gradients in shared memory; local rank 0 pushes the sums and pulls
//! the weights into that memory.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Result, ensure};
use ringmark_core::dimension::Wire;

use crate::exchange::backend::shared_memory::join;
use crate::exchange::memory::MemoryShape;
use crate::ffi::memory::element::Element;
use crate::ffi::memory::shared_window::{Array, COUNTERS, Transfer, Window};
use crate::ffi::memory::sums::Combination;
use crate::ffi::torch::host_array::HostArray;
use crate::job::peer_watch::PeerWatch;
use crate::job::world::World;

/// The last counter counts ranks at the end of a round.
const ROUND: usize = COUNTERS - 1;

/// The aggregation of one rank.
pub struct LocalAggregation {
    window: Arc<Window>,
    /// Detects ranks that have exited, which the window does not.
    watch: PeerWatch,
    rank: usize,
    ranks: usize,
    /// Value that each counter reaches when all ranks have arrived.
    targets: Vec<u32>,
    /// Ranges started in this round.
    started: usize,
}

/// A range that all ranks of the host fill.
#[derive(Clone)]
pub struct SharedRange {
    window: Arc<Window>,
    counter: usize,
    target: u32,
    rank: usize,
}

impl LocalAggregation {
    /// Maps shared memory for `elements` gradients of type `wire` and as many weights. All ranks of the host call it
    /// together.
    pub fn join(elements: usize, wire: Wire, world: &World) -> Result<LocalAggregation> {
        let (rank, ranks) = (world.local_rank() as usize, world.local_ranks() as usize);
        let shape = MemoryShape { elements, wire: wire.into(), sums: Element::Float, in_place: false };
        let window = Arc::new(join::window(shape, world, world.has_own_cores())?);
        let watch = PeerWatch::begin(world, "the ranks on this host sum their gradients together")?;
        Ok(LocalAggregation { window, watch, rank, ranks, targets: vec![0; COUNTERS], started: 0 })
    }

    /// Returns true if this rank pushes for its host.
    pub fn is_leader(&self) -> bool {
        self.rank == 0
    }

    /// Returns the number of ranks on this host.
    pub fn ranks(&self) -> u32 {
        self.ranks as u32
    }

    /// Returns this rank's gradients and the weights that the leader pulls.
    pub fn arrays(&self) -> Result<[HostArray; 2]> {
        Ok([HostArray::new(self.window.tensor(Array::Wire))?, HostArray::new(self.window.tensor_of(Array::Sums, 0))?])
    }

    /// Announces that this rank has filled the next range.
    pub fn arrive(&mut self) -> Result<SharedRange> {
        let counter = self.started;
        ensure!(counter < ROUND, "at most {ROUND} arrays can be summed on a host");
        self.started += 1;
        let target = self.count(counter);
        Ok(SharedRange { window: self.window.clone(), counter, target, rank: self.rank })
    }

    /// Waits until the leader has pulled the weights, and begins the next round.
    pub fn finish_round(&mut self) {
        self.started = 0;
        self.barrier();
    }

    /// Waits for all ranks of the host.
    pub fn barrier(&mut self) {
        let target = self.count(ROUND);
        self.window.wait(ROUND, target);
    }

    /// Stops watching the others: this rank needs them no more.
    pub fn leave(&self) {
        self.watch.end();
    }

    fn count(&mut self, counter: usize) -> u32 {
        let target = &mut self.targets[counter];
        *target = target.wrapping_add(self.ranks as u32);
        self.window.arrive(counter, *target);
        *target
    }
}

impl SharedRange {
    /// Sums `elements` into the leader's wire, rounded once, if all ranks have filled the range. Returns true if they
    /// have.
    pub fn sum(&self, elements: Range<usize>) -> bool {
        let is_filled = self.window.has_reached(self.counter, self.target);
        if is_filled {
            let own = self.rank..self.rank + 1;
            self.window.combine(
                Combination::SUM,
                Transfer { from: Array::Wire, to: Array::Wire },
                elements,
                own,
                false,
            );
        }
        is_filled
    }
}
