//! All-reduce through shared memory: the ranks of a host read each other's memory, and hosts are connected by MPI. The
//! other collectives are in [`others`].
//!
//! Every rank has its wire and its sums in a window that all ranks of its host map. A range is divided into shards, one
//! per rank. Once all ranks have filled the range, each rank sums its shard over all ranks and writes the sums to all
//! of them, so that every byte is read once and written once. With several hosts, MPI sums the shard over the ranks
//! with the same shard on the other hosts, chunk by chunk while the next chunk is summed; each result is then written
//! to the other ranks of the host. Messages that are too small to divide are copied to a separate buffer, and every
//! rank sums all of them.
//!
//! No rank waits before [`finish`](Backend::finish): a range that other ranks have not filled yet is deferred.

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
use crate::exchange::backend::shared_memory::between_hosts::{BetweenHosts, Chunk, NextStep};
use crate::exchange::backend::shared_memory::work::{PendingRange, Work};
use crate::exchange::collective::Collective;
use crate::exchange::memory::{Memory, MemoryShape};
use crate::ffi::memory::shared_window::{Array, COUNTERS, SMALL_BYTES, Transfer, Window};
use crate::ffi::memory::sums::Combination;
use crate::ffi::process::waiting::POLL_INTERVAL;
use crate::job::heartbeat;
use crate::job::world::{RankLocation, World};
use crate::measure::trace::recorder::{self, OpenSpan};

/// Longest message in bytes that every rank sums by itself: beyond it two synchronizations cost less than reading all
/// data.
const MAX_SMALL_BYTES: usize = 1 << 10;

/// Size in bytes from which sums that are not in place bypass the caches.
const MIN_STREAMED_BYTES: usize = 8 << 20;

/// Name of a wait in traces.
const WAIT: &str = "wait for other ranks";

/// Last counter: ranks that have finished all ranges of a round.
const DONE: usize = COUNTERS - 1;

pub struct SharedMemory {
    window: Window,
    memory: Memory,
    /// Rank and number of ranks on this host.
    rank: usize,
    ranks: usize,
    /// Rank in the job, and the locations of all ranks.
    global_rank: u32,
    locations: Vec<RankLocation>,
    combination: Combination,
    /// Number of ranks of this host that have a shard: those with a counterpart on every host.
    shards: usize,
    between_hosts: Option<BetweenHosts>,

    /// Value of each counter when all ranks have arrived at its last use.
    targets: Vec<u32>,
    /// Number of counters used in this round, which ends with `finish`.
    started: usize,
    /// Number of buckets started in this round, and the bucket of each counter.
    buckets: usize,
    bucket_of: Vec<u32>,
    /// Bucket of each counter in traces; `None` for transfers that belong to no bucket, such as weights.
    traced_bucket_of: Vec<Option<u32>>,
    /// Ranges with pending work, oldest first.
    pending: VecDeque<PendingRange>,
    /// Bytes of this round's small messages.
    small: usize,
    /// True if this round uses the second half of the buffer for small messages.
    is_odd: bool,
    /// True if others write to a range of this round.
    is_shared: bool,
    may_watch: bool,
}

impl SharedMemory {
    /// Creates the backend. All ranks call this together; it succeeds or fails on all of them.
    pub fn new(config: &ExchangeConfig, shape: MemoryShape, world: &World) -> Result<SharedMemory> {
        let (rank, ranks) = (world.local_rank() as usize, world.local_ranks() as usize);
        let may_watch = world.has_own_cores();
        let window = join::window(shape, world, may_watch)?;
        let local_sizes = world.gather(&[ranks as f64]).concat();
        let shards = local_sizes.iter().copied().fold(f64::INFINITY, f64::min) as usize;
        let between_hosts = match world.ranks() as usize == ranks {
            true => None,
            false => Some(BetweenHosts::new(world, join::group(world, rank < shards), config.chunk_kb)?),
        };
        let wire = window.tensor(if shape.in_place { Array::Sums } else { Array::Wire });
        let sums = window.tensor(Array::Sums);
        Ok(SharedMemory {
            memory: Memory { wire, sums, in_place: shape.in_place },
            window,
            rank,
            ranks,
            global_rank: world.rank(),
            locations: world.locations(),
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

    /// Returns the array that holds this rank's shard between the hosts: the sums if they have the type of the wire.
    fn stage(&self) -> Array {
        if self.memory.wire.kind() == self.memory.sums.kind() { Array::Sums } else { Array::Wire }
    }

    /// Returns those of `ranks` that need a copy of a chunk received from the other hosts. This rank needs none if the
    /// chunk was summed in place and needs no scaling.
    fn receivers(&self, ranks: Range<usize>) -> Vec<usize> {
        let is_up_to_date = self.stage() == Array::Sums && self.combination.factor == 1.0;
        ranks.filter(|other| *other != self.rank || !is_up_to_date).collect()
    }

    /// Reserves space in the buffer for small messages; returns `None` if a message of `bytes` is not small or does not
    /// fit.
    fn reserve_small(&mut self, bytes: usize) -> Option<usize> {
        let half = SMALL_BYTES / 2;
        let fits = bytes <= MAX_SMALL_BYTES && self.small + bytes <= half;
        if self.between_hosts.is_some() || self.ranks == 1 || !fits {
            return None;
        }
        let place = self.small + if self.is_odd { half } else { 0 };
        self.small += bytes.next_multiple_of(64);
        Some(place)
    }

    /// Runs the pending work of every range that all ranks of the host have filled; with `wait`, of every range.
    fn advance(&mut self, wait: bool) -> Result<()> {
        loop {
            self.run_ready_work()?;
            self.collect_completed(false)?;
            let Some(PendingRange { counter, .. }) = self.pending.front() else { return Ok(()) };
            if !wait {
                return Ok(());
            }
            heartbeat::enter_bucket(self.bucket_of[*counter]);
            match self.between_hosts {
                // Messages between hosts progress only while a rank polls them.
                Some(_) => pause(self.may_watch),
                None => {
                    let span = recorder::begin(Lane::Exchange, WAIT, self.traced_bucket_of[*counter]);
                    self.window.wait(*counter, self.targets[*counter]);
                    span.into_iter().for_each(OpenSpan::end);
                }
            }
        }
    }

    /// Runs the pending work that is ready. Work between hosts runs in start order, which is the same on every rank;
    /// work within this host waits only for its own range.
    fn run_ready_work(&mut self) -> Result<()> {
        let mut index = 0;
        while let Some(PendingRange { counter, work }) = self.pending.get(index) {
            if self.window.has_reached(*counter, self.targets[*counter]) {
                if let Some(PendingRange { counter, work }) = self.pending.remove(index) {
                    let span = recorder::begin(Lane::Exchange, work.name(), self.traced_bucket_of[counter]);
                    self.work(counter, work)?;
                    span.into_iter().for_each(OpenSpan::end);
                }
            } else if work.is_local() {
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

    /// Sums the shard chunk by chunk and passes each chunk to MPI.
    fn send_shard(&mut self, counter: usize, shard: Range<usize>) -> Result<()> {
        let receivers = self.receivers(0..self.ranks);
        let kilobytes = self.between_hosts.as_ref().map_or(0, BetweenHosts::all_reduce_kb);
        for elements in chunks(shard, kilobytes, self.wire_bytes()) {
            self.stage_sum(elements.clone());
            if let Some(BetweenHosts { same_local_rank: Some(same_local_rank), communicator, in_flight, .. }) =
                &mut self.between_hosts
            {
                let request = communicator.start_all_reduce(staged(&self.memory), elements.clone(), same_local_rank)?;
                let next = NextStep::CopyToRanks { elements, receivers: receivers.clone() };
                in_flight.push_back(Chunk::new(counter, request, next));
            }
            self.collect_completed(false)?;
        }
        Ok(())
    }

    /// Splits a range into the chunks that are sent between hosts.
    fn chunks(&self, elements: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        chunks(elements, self.between_hosts.as_ref().map_or(0, |between| between.chunk_kb), self.wire_bytes())
    }

    /// Returns the size of a wire element in bytes.
    fn wire_bytes(&self) -> usize {
        self.memory.wire.kind().elt_size_in_bytes()
    }

    /// Sums `elements` over this host into the array that is sent between hosts.
    fn stage_sum(&self, elements: Range<usize>) {
        let (arrays, own) = (Transfer { from: self.input(), to: self.stage() }, self.rank..self.rank + 1);
        if self.ranks > 1 || arrays.from != arrays.to {
            self.window.combine(self.combination.unscaled(), arrays, elements, own, false);
        }
    }

    /// Processes the chunks that have arrived from the other hosts; with `wait`, all of them.
    fn collect_completed(&mut self, wait: bool) -> Result<()> {
        let (arrays, factor) = (Transfer { from: self.stage(), to: Array::Sums }, self.combination.factor);
        let Some(BetweenHosts { in_flight, .. }) = &mut self.between_hosts else {
            return Ok(());
        };
        // Adds this rank's contribution to every chunk as early as possible.
        for chunk in in_flight.iter_mut() {
            if !chunk.request.is_added()? {
                break;
            }
        }
        while let Some(chunk) = in_flight.front_mut() {
            let bucket = self.bucket_of[chunk.counter];
            if chunk.request.is_done()? {
                match &chunk.next {
                    NextStep::Nothing => {}
                    NextStep::CopyToRanks { elements, receivers } => {
                        self.window.spread(factor, arrays, elements.clone(), receivers);
                    }
                    NextStep::Arrive { counter } => self.window.arrive(*counter, self.targets[*counter]),
                }
                heartbeat::count_progress();
                chunk.record(self.traced_bucket_of[chunk.counter]);
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
        !self.memory.in_place && bytes >= MIN_STREAMED_BYTES
    }

    /// Returns the next counter of this round, at which every rank of the host arrives once.
    fn next_counter(&mut self) -> Result<usize> {
        let counter = self.started;
        ensure!(counter < DONE, "at most {DONE} ranges can be summed at once");
        self.started += 1;
        self.bucket_of[counter] = self.buckets as u32 - 1;
        self.traced_bucket_of[counter] = recorder::bucket();
        self.expect(counter);
        Ok(counter)
    }

    /// Makes `counter` wait for all ranks of the host once more.
    fn expect(&mut self, counter: usize) {
        let target = &mut self.targets[counter];
        *target = target.wrapping_add(self.ranks as u32);
    }

    fn arrive(&self, counter: usize) {
        self.window.arrive(counter, self.targets[counter]);
    }
}

/// Returns the tensor that is sent between hosts.
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
        let mean = 1.0 / self.locations.len() as f32;
        self.combination = Combination {
            is_largest: reduction == Reduction::Max,
            factor: if reduction == Reduction::Avg { mean } else { 1.0 },
        };
        if let Some(between) = &mut self.between_hosts {
            between.communicator.set_reduction(reduction);
        }
    }

    fn start_collective(&mut self, collective: &Collective) -> Result<()> {
        self.buckets += 1;
        let Collective::AllReduce { elements } = collective else {
            return self.start_other(collective);
        };
        let input = self.input();
        let small = self.reserve_small(elements.len() * self.memory.input().kind().elt_size_in_bytes());
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
        self.collect_completed(true)?;
        if self.is_shared {
            // Others may still read this rank's wire and write its sums.
            self.expect(DONE);
            self.arrive(DONE);
            let span = recorder::begin(Lane::Exchange, WAIT, None);
            self.window.wait(DONE, self.targets[DONE]);
            span.into_iter().for_each(OpenSpan::end);
        }
        // If nothing was started, the small messages stay for the next round.
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

/// Pauses between two polls; a rank that shares its core yields it.
fn pause(may_watch: bool) {
    if may_watch { std::hint::spin_loop() } else { thread::sleep(POLL_INTERVAL) }
}
