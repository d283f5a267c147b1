//! Sums over host memory as fast as it goes: the ranks of a host straight from each other's memory, hosts among each
//! other by MPI. What is not an all-reduce is in [`others`].
//!
//! Every rank has its wire and its sums in a window that all ranks of its host can reach. A range is divided into
//! shards, one a rank. When all have filled the range, each rank sums its shard over all ranks and writes the sums to
//! all of them: every byte is read once and written once. With several hosts the shard's sum goes over MPI to the ranks
//! with the same shard on the other hosts, chunk by chunk, while the next chunk is summed, and to the other ranks of
//! the host when it is back. Messages too small to divide are copied to a place beside, and every rank sums all of them.
//!
//! No rank waits before [`finish`](Backend::finish): a range that the others have not filled yet is left for later.

mod between_hosts;
pub mod join;
mod others;
mod piece;
mod work;

use std::collections::VecDeque;
use std::ops::Range;
use std::thread;

use anyhow::{Result, ensure};
use ringmark_core::benchmark::exchange::ExchangeConfig;
use ringmark_core::dimension::{BackendName, Reduction, Wire};
use ringmark_core::trace::Lane;

use crate::exchange::backend::Backend;
use crate::exchange::backend::mpi::chunks;
use crate::exchange::backend::shared_memory::between_hosts::{BetweenHosts, Chunk, Then};
use crate::exchange::backend::shared_memory::work::{PendingRange, Work};
use crate::exchange::collective::Collective;
use crate::exchange::memory::{Memory, MemoryShape};
use crate::ffi::memory::shared_window::{Array, COUNTERS, SMALL_BYTES, Transfer, Window};
use crate::ffi::memory::sums::Combination;
use crate::ffi::process::waiting::PATIENCE;
use crate::job::heartbeat;
use crate::job::world::{Seat, World};
use crate::measure::trace::recorder::{self, OpenSpan};

/// Longest message that every rank sums by itself, in bytes: beyond it two meetings cost less than the second reading.
const SMALL_MESSAGE: usize = 1 << 10;

/// Size in bytes from which sums that are not in place bypass the caches.
const STREAMED_MESSAGE: usize = 8 << 20;

/// Name of a wait in traces.
const WAIT: &str = "wait for other ranks";

/// The last counter: ranks that are done with all of a round's ranges.
const DONE: usize = COUNTERS - 1;

/// One rank's side of it.
pub struct SharedMemory {
    window: Window,
    memory: Memory,
    /// Of this host.
    rank: usize,
    ranks: usize,
    /// Of the job, and where they all are.
    global_rank: u32,
    seats: Vec<Seat>,
    combination: Combination,
    /// Ranks of this host that have a shard: those that have a counterpart on every host.
    shards: usize,
    between_hosts: Option<BetweenHosts>,

    /// Value of each counter when all ranks have arrived at its last use.
    targets: Vec<u32>,
    /// Counters used in this round, which ends with `finish`.
    started: usize,
    /// What was started in this round, and of each counter which of it that is: the number of its bucket.
    buckets: usize,
    bucket_of: Vec<u32>,
    /// The bucket of each counter as a trace calls it; `None` of what is no bucket's: weights on their way.
    traced_bucket_of: Vec<Option<u32>>,
    /// Those of which something is left to do, oldest first.
    pending: VecDeque<PendingRange>,
    /// Bytes of this round's small messages.
    small: usize,
    /// Which half of the place for small messages this round uses.
    is_odd: bool,
    /// True if others write to a range of this round.
    is_shared: bool,
    may_watch: bool,
}

impl SharedMemory {
    /// Called by all ranks together; all fail or none.
    pub fn new(config: &ExchangeConfig, shape: MemoryShape, world: &World) -> Result<SharedMemory> {
        let (rank, ranks) = (world.local_rank() as usize, world.local_ranks() as usize);
        let may_watch = world.has_own_cores();
        let window = join::window(shape, world, may_watch)?;
        let local_sizes = world.gather(&[ranks as f64]).concat();
        let shards = local_sizes.iter().copied().fold(f64::INFINITY, f64::min) as usize;
        let between_hosts = match world.ranks() as usize == ranks {
            true => None,
            false => Some(BetweenHosts::new(world.rank(), join::group(world, rank < shards), config.chunk_kb)?),
        };
        let wire = window.tensor(if shape.in_place { Array::Sums } else { Array::Wire });
        let sums = window.tensor(Array::Sums);
        Ok(SharedMemory {
            memory: Memory { wire, sums, in_place: shape.in_place },
            window,
            rank,
            ranks,
            global_rank: world.rank(),
            seats: world.seats(),
            combination: Combination::SUM,
            shards,
            between_hosts,
            targets: vec![0; COUNTERS],
            started: 0,
            buckets: 0,
            bucket_of: vec![0; COUNTERS],
            traced_bucket_of: vec![None; COUNTERS],
            pending: VecDeque::new(),
            small: 0,
            is_odd: false,
            is_shared: false,
            may_watch,
        })
    }

    fn input(&self) -> Array {
        if self.memory.in_place { Array::Sums } else { Array::Wire }
    }

    /// Where this rank's shard lies between the hosts: a type of its own has its own array.
    fn stage(&self) -> Array {
        if self.memory.wire.kind() == self.memory.sums.kind() { Array::Sums } else { Array::Wire }
    }

    /// Who gets a chunk that is back from the other hosts, of those that are to have it: what is summed where the sums go is
    /// there for this rank, where nothing is left to do with it.
    fn receivers(&self, ranks: Range<usize>) -> Vec<usize> {
        let is_there = self.stage() == Array::Sums && self.combination.factor == 1.0;
        ranks.filter(|other| *other != self.rank || !is_there).collect()
    }

    /// Place for a message of `bytes` among the small ones, where it is one.
    fn place_for_small(&mut self, bytes: usize) -> Option<usize> {
        let half = SMALL_BYTES / 2;
        let fits = bytes <= SMALL_MESSAGE && self.small + bytes <= half;
        if self.between_hosts.is_some() || self.ranks == 1 || !fits {
            return None;
        }
        let place = self.small + if self.is_odd { half } else { 0 };
        self.small += bytes.next_multiple_of(64);
        Some(place)
    }

    /// Does what is left of every range for which all ranks of the host are there; with `wait`, of every range.
    fn advance(&mut self, wait: bool) -> Result<()> {
        loop {
            self.do_what_is_ready()?;
            self.take_what_is_back(false)?;
            let Some(PendingRange { counter, .. }) = self.pending.front() else { return Ok(()) };
            if !wait {
                return Ok(());
            }
            heartbeat::enter_bucket(self.bucket_of[*counter]);
            match self.between_hosts {
                // What is on its way between the hosts moves only while a rank asks for it.
                Some(_) => pause(self.may_watch),
                None => {
                    let span = recorder::begin(Lane::Exchange, WAIT, self.traced_bucket_of[*counter]);
                    self.window.wait(*counter, self.targets[*counter]);
                    span.into_iter().for_each(OpenSpan::end);
                }
            }
        }
    }

    /// In the order in which it was started, on every rank the same, as far as it goes between the hosts. What stays on this
    /// host waits for nothing but its own range.
    fn do_what_is_ready(&mut self) -> Result<()> {
        let mut index = 0;
        while let Some(PendingRange { counter, work }) = self.pending.get(index) {
            if self.window.has_reached(*counter, self.targets[*counter]) {
                if let Some(PendingRange { counter, work }) = self.pending.remove(index) {
                    let span = recorder::begin(Lane::Exchange, work.name(), self.traced_bucket_of[counter]);
                    self.work(counter, work)?;
                    span.into_iter().for_each(OpenSpan::end);
                }
            } else if work.stays_here() {
                index += 1;
            } else {
                break;
            }
        }
        Ok(())
    }

    fn sum(&mut self, counter: usize, elements: &Range<usize>, small: Option<usize>) -> Result<()> {
        let arrays = Transfer { from: self.input(), to: Array::Sums };
        if let Some(place) = small {
            self.window.combine_posted(self.combination, arrays, elements.clone(), place);
            return Ok(());
        }
        let shard = piece::shard(elements, self.rank, self.shards);
        let streaming = self.streams(elements.len());
        if self.between_hosts.is_none() {
            if self.ranks > 1 || arrays.from != arrays.to {
                self.window.combine(self.combination, arrays, shard, 0..self.ranks, streaming);
            }
            return Ok(());
        }
        self.send_shard(counter, shard)
    }

    /// Sums the shard chunk by chunk and hands each chunk to MPI.
    fn send_shard(&mut self, counter: usize, shard: Range<usize>) -> Result<()> {
        let receivers = self.receivers(0..self.ranks);
        let kilobytes = self.between_hosts.as_ref().map_or(0, BetweenHosts::all_reduce_kb);
        for elements in chunks(shard, kilobytes, self.wire_bytes()) {
            self.stage_sum(elements.clone());
            if let Some(BetweenHosts { same_local_rank: Some(same_local_rank), sums, in_flight, .. }) =
                &mut self.between_hosts
            {
                let request = sums.start_all_reduce(staged(&self.memory), elements.clone(), same_local_rank)?;
                let then = Then::Spread { elements, receivers: receivers.clone() };
                in_flight.push_back(Chunk::new(counter, request, then));
            }
            self.take_what_is_back(false)?;
        }
        Ok(())
    }

    /// As long as what goes between the hosts at once.
    fn chunks(&self, elements: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        chunks(elements, self.between_hosts.as_ref().map_or(0, |between| between.chunk_kb), self.wire_bytes())
    }

    /// Of one element.
    fn wire_bytes(&self) -> usize {
        self.memory.wire.kind().elt_size_in_bytes()
    }

    /// Sums `elements` over this host to where they go between the hosts.
    fn stage_sum(&self, elements: Range<usize>) {
        let (arrays, own) = (Transfer { from: self.input(), to: self.stage() }, self.rank..self.rank + 1);
        if self.ranks > 1 || arrays.from != arrays.to {
            self.window.combine(self.combination.unscaled(), arrays, elements, own, false);
        }
    }

    /// Does what follows from every chunk that is back from the other hosts; with `wait`, all of them.
    fn take_what_is_back(&mut self, wait: bool) -> Result<()> {
        let (arrays, factor) = (Transfer { from: self.stage(), to: Array::Sums }, self.combination.factor);
        let Some(BetweenHosts { in_flight, .. }) = &mut self.between_hosts else {
            return Ok(());
        };
        // What this rank has to add goes to all as soon as it can.
        for chunk in in_flight.iter_mut() {
            if !chunk.request.is_added()? {
                break;
            }
        }
        while let Some(chunk) = in_flight.front_mut() {
            let bucket = self.bucket_of[chunk.counter];
            if chunk.request.is_done()? {
                match &chunk.then {
                    Then::Nothing => {}
                    Then::Spread { elements, receivers } => {
                        self.window.spread(factor, arrays, elements.clone(), receivers);
                    }
                    Then::Arrive { counter } => self.window.arrive(*counter, self.targets[*counter]),
                }
                heartbeat::count_progress();
                chunk.tell(self.traced_bucket_of[chunk.counter]);
                in_flight.pop_front();
            } else if wait {
                heartbeat::enter_bucket(bucket);
                pause(self.may_watch);
            } else {
                break;
            }
        }
        Ok(())
    }

    fn streams(&self, elements: usize) -> bool {
        let bytes = elements * self.memory.sums.kind().elt_size_in_bytes();
        !self.memory.in_place && bytes >= STREAMED_MESSAGE
    }

    /// The next counter of this round, which all ranks of the host come to once.
    fn next_counter(&mut self) -> Result<usize> {
        let counter = self.started;
        ensure!(counter < DONE, "at most {DONE} ranges are summed at once");
        self.started += 1;
        self.bucket_of[counter] = self.buckets as u32 - 1;
        self.traced_bucket_of[counter] = recorder::bucket();
        self.expect(counter);
        Ok(counter)
    }

    /// From now on `counter` waits for all ranks of the host once more.
    fn expect(&mut self, counter: usize) {
        let target = &mut self.targets[counter];
        *target = target.wrapping_add(self.ranks as u32);
    }

    /// Counts this rank.
    fn arrive(&self, counter: usize) {
        self.window.arrive(counter, self.targets[counter]);
    }
}

/// Where what goes between the hosts lies.
fn staged(memory: &Memory) -> &tch::Tensor {
    if memory.wire.kind() == memory.sums.kind() { &memory.sums } else { &memory.wire }
}

impl Backend for SharedMemory {
    fn name(&self) -> BackendName {
        BackendName::SharedMemory
    }

    fn sum_dtype(&self, _wire: Wire) -> Option<Wire> {
        Some(Wire::Fp32)
    }

    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn set_reduction(&mut self, reduction: Reduction) {
        let mean = 1.0 / self.seats.len() as f32;
        self.combination = Combination {
            is_largest: reduction == Reduction::Max,
            factor: if reduction == Reduction::Avg { mean } else { 1.0 },
        };
        if let Some(between) = &mut self.between_hosts {
            between.sums.is_largest = self.combination.is_largest;
        }
    }

    fn start_collective(&mut self, collective: &Collective) -> Result<()> {
        self.buckets += 1;
        let Collective::AllReduce { elements } = collective else {
            return self.start_other(collective);
        };
        let input = self.input();
        let small = self.place_for_small(elements.len() * self.memory.input().kind().elt_size_in_bytes());
        let counter = self.next_counter()?;
        match small {
            Some(place) => self.window.post(input, elements.clone(), place),
            None => self.is_shared = true,
        }
        self.arrive(counter);
        self.pending.push_back(PendingRange { counter, work: Work::Sum { elements: elements.clone(), small } });
        self.advance(false)
    }

    fn finish(&mut self) -> Result<()> {
        self.advance(true)?;
        self.take_what_is_back(true)?;
        if self.is_shared {
            // Others may still read this rank's wire and write its sums.
            self.expect(DONE);
            self.arrive(DONE);
            let span = recorder::begin(Lane::Exchange, WAIT, None);
            self.window.wait(DONE, self.targets[DONE]);
            span.into_iter().for_each(OpenSpan::end);
        }
        // If no rank arrived, the small messages stay for the next round.
        self.is_odd ^= self.started > 0;
        (self.started, self.buckets, self.small, self.is_shared) = (0, 0, 0, false);
        Ok(())
    }

    fn has_chunks(&self) -> bool {
        self.between_hosts.is_some()
    }

    fn set_chunk(&mut self, kilobytes: u32) {
        if let Some(between) = &mut self.between_hosts {
            between.chunk_kb = kilobytes;
        }
    }
}

/// Between two questions: a rank that shares its core leaves it to the others.
fn pause(may_watch: bool) {
    if may_watch { std::hint::spin_loop() } else { thread::sleep(PATIENCE) }
}
