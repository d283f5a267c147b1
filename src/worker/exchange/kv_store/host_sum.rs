//! The ranks of a host add up their gradients in memory that they share; rank 0 of the host pushes the sums and takes the
//! weights, which the others read where it keeps them.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Result, ensure};
use ringmark_record::benchmark::exchange::Wire;
use tch::Kind;

use crate::exchange::backend::shared_memory::join;
use crate::exchange::memory::{self, Shape};
use crate::ffi::host_array::HostArray;
use crate::ffi::shared_window::{Array, COUNTERS, Window};
use crate::ffi::sums::Combination;
use crate::job::peer_watch::PeerWatch;
use crate::job::world::World;

/// The last counter: ranks that have come to the end of a round.
const ROUND: usize = COUNTERS - 1;

/// One rank's side of it.
pub struct HostSum {
    window: Arc<Window>,
    /// In the window nobody hears of a rank that has ended.
    watch: PeerWatch,
    rank: usize,
    ranks: usize,
    /// Value of each counter when all ranks have arrived at its last use.
    targets: Vec<u32>,
    /// Ranges started in this round.
    started: usize,
}

/// A range that ranks fill.
#[derive(Clone)]
pub struct Meeting {
    window: Arc<Window>,
    counter: usize,
    target: u32,
    rank: usize,
}

impl HostSum {
    /// Shares memory for so many gradients of the type `wire` and as many weights with the ranks of this host; all of them
    /// call it together.
    pub fn join(elements: usize, wire: Wire, world: &World) -> Result<HostSum> {
        let (rank, ranks) = (world.local_rank() as usize, world.local_ranks() as usize);
        let shape = Shape { elements, wire: memory::kind(wire), sums: Kind::Float, in_place: false };
        let window = Arc::new(join::window(shape, world, world.has_own_cores())?);
        let watch = PeerWatch::begin(world, "the ranks of this host add up their gradients together")?;
        Ok(HostSum { window, watch, rank, ranks, targets: vec![0; COUNTERS], started: 0 })
    }

    /// Whether this rank pushes for all.
    pub fn is_leader(&self) -> bool {
        self.rank == 0
    }

    /// Ranks that add up.
    pub fn ranks(&self) -> u32 {
        self.ranks as u32
    }

    /// This rank's gradients, and the weights of the one that pulls them.
    pub fn arrays(&self) -> Result<[HostArray; 2]> {
        Ok([HostArray::of(self.window.tensor(Array::Wire))?, HostArray::of(self.window.tensor_of(Array::Sums, 0))?])
    }

    /// This rank has filled the next range; where all have, it can be summed.
    pub fn arrive(&mut self) -> Result<Meeting> {
        let counter = self.started;
        ensure!(counter < ROUND, "at most {ROUND} arrays are summed on a host");
        self.started += 1;
        let target = self.count(counter);
        Ok(Meeting { window: self.window.clone(), counter, target, rank: self.rank })
    }

    /// After the weights came to the rank that pulls them: returns when they are there, and begins the next round.
    pub fn all_have_pulled(&mut self) {
        self.started = 0;
        self.meet();
    }

    /// Returns when all ranks of the host are here.
    pub fn meet(&mut self) {
        let target = self.count(ROUND);
        self.window.wait(ROUND, target);
    }

    /// This rank needs nothing more of the others.
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

impl Meeting {
    /// Sums these of the range's elements where the sender takes them, rounded once; whether all ranks have filled it.
    pub fn sum(&self, elements: Range<usize>) -> bool {
        let is_filled = self.window.has_reached(self.counter, self.target);
        if is_filled {
            let own = self.rank..self.rank + 1;
            self.window.combine(Combination::SUM, (Array::Wire, Array::Wire), elements, own, false);
        }
        is_filled
    }
}
