//! Sums over host memory as fast as it goes: the ranks of a host straight from each other's memory, hosts among each
//! other by MPI.
//!
//! Every rank has its wire and its sums in a window that all ranks of its host can reach. A range is divided into
//! shards, one a rank. When all have filled the range, each rank sums its shard over all ranks and writes the sums to
//! all of them: every byte is read once and written once. With several hosts the shard's sum goes over MPI to the ranks
//! with the same shard on the other hosts, chunk by chunk, while the next chunk is summed, and to the other ranks of
//! the host when it is back. Messages too small to divide are copied to a place beside, and every rank sums all of them.
//!
//! No rank waits before [`finish`](Backend::finish): a range that the others have not filled yet is left for later.

use std::collections::VecDeque;
use std::ops::Range;
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use ringmark_record::benchmark::exchange::{ExchangeConfig, Wire};
use ringmark_record::host::heartbeat::Stage;
use tch::Kind;

use crate::exchange::backend::Backend;
use crate::exchange::backend::mpi::chunks;
use crate::exchange::memory::{Memory, Shape};
use crate::ffi::mpi::{Group, Request, Sums};
use crate::ffi::shared_window::{Array, COUNTERS, SMALL_BYTES, Window, WindowLayout};
use crate::ffi::sums::Element;
use crate::host::facts;
use crate::job::heartbeat;
use crate::job::world::{PATIENCE, World};

/// Longest message that every rank sums by itself, in bytes: beyond it two meetings cost less than the second reading.
const SMALL_MESSAGE: usize = 1 << 10;

/// Shards begin at multiples of this many elements: two ranks never write one cache line.
const GRAIN: usize = 64;

/// From this many bytes on, sums that go elsewhere than where they were read are written past the caches.
const STREAMED_MESSAGE: usize = 8 << 20;

/// The last counter: ranks that are done with all of a round's ranges.
const DONE: usize = COUNTERS - 1;

/// One rank's side of it.
pub struct SharedMemory {
    window: Window,
    memory: Memory,
    rank: usize,
    ranks: usize,
    /// Ranks of this host that have a shard: those that have a counterpart on every host.
    shards: usize,
    between_hosts: Option<BetweenHosts>,

    /// Value of each counter when all ranks have arrived at its last use.
    targets: Vec<u32>,
    /// Ranges started in this round, which ends with `finish`.
    started: usize,
    /// Those whose shard is not yet summed, oldest first.
    pending: VecDeque<PendingRange>,
    /// Bytes of this round's small messages.
    small: usize,
    /// Which half of the place for small messages this round uses.
    is_odd: bool,
    /// Whether this round has a range that others write to.
    is_shared: bool,
    may_watch: bool,
}

/// A range that this rank has filled.
struct PendingRange {
    counter: usize,
    elements: Range<usize>,
    /// Place of a small message.
    small: Option<usize>,
}

/// The exchange with the ranks that have the same shard on the other hosts.
struct BetweenHosts {
    /// `None` on a rank without a shard.
    same_local_rank: Option<Group>,
    sums: Sums,
    chunk_kb: u32,
    /// Ranks of this host that a chunk is written to when it is back.
    receivers: Vec<usize>,
    in_flight: VecDeque<Chunk>,
}

/// A chunk on its way between the hosts.
struct Chunk {
    /// The range that it is of, as it was counted when it started.
    counter: usize,
    elements: Range<usize>,
    request: Request,
}

impl SharedMemory {
    /// Called by all ranks together; all fail or none.
    pub fn new(config: &ExchangeConfig, shape: Shape, world: &World) -> Result<SharedMemory> {
        let (rank, ranks) = (world.local_rank() as usize, world.local_ranks() as usize);
        let may_watch = world.has_own_cores();
        let layout = WindowLayout {
            ranks,
            elements: shape.elements,
            wire: element(shape.wire),
            sums: element(shape.sums),
            is_shared: shape.in_place,
        };
        let window = join_together(layout, world)?;
        let local_sizes = world.gather(&[ranks as f64]).concat();
        let shards = local_sizes.iter().copied().fold(f64::INFINITY, f64::min) as usize;
        let between_hosts = if world.ranks() as usize == ranks {
            None
        } else {
            // A shard that is summed where the sums go is there for this rank.
            let is_there = shape.wire == shape.sums;
            Some(BetweenHosts {
                same_local_rank: group(world, rank < shards),
                sums: Sums::new()?,
                chunk_kb: config.chunk_kb,
                receivers: (0..ranks).filter(|other| *other != rank || !is_there).collect(),
                in_flight: VecDeque::new(),
            })
        };
        let wire = window.tensor(if shape.in_place { Array::Sums } else { Array::Wire });
        let sums = window.tensor(Array::Sums);
        Ok(SharedMemory {
            memory: Memory { wire, sums, in_place: shape.in_place },
            window,
            rank,
            ranks,
            shards,
            between_hosts,
            targets: vec![0; COUNTERS],
            started: 0,
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

    /// This rank's shard of a range; empty for a rank that has none.
    fn shard(&self, range: &Range<usize>) -> Range<usize> {
        let border = |shard: usize| {
            let even = range.start + range.len() * shard / self.shards;
            if shard == self.shards { range.end } else { even.next_multiple_of(GRAIN).min(range.end) }
        };
        if self.rank >= self.shards {
            return range.end..range.end;
        }
        let start = if self.rank == 0 { range.start } else { border(self.rank) };
        start..border(self.rank + 1)
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

    /// Sums this rank's shard of every range that all ranks have filled; with `wait`, of every range.
    fn advance(&mut self, wait: bool) -> Result<()> {
        while let Some(range) = self.pending.front() {
            let counter = range.counter;
            let target = self.targets[counter];
            if wait {
                // In the order in which they were started, from the first counter on.
                heartbeat::enter(Stage::AllReduce { bucket: counter as u32 });
            }
            if wait && self.between_hosts.is_some() {
                // What is on its way between the hosts moves only while a rank asks for it.
                while !self.window.has_reached(counter, target) {
                    self.take_what_is_back(false)?;
                    pause(self.may_watch);
                }
            } else if wait {
                self.window.wait(counter, target);
            } else if !self.window.has_reached(counter, target) {
                break;
            }
            if let Some(range) = self.pending.pop_front() {
                self.sum(&range)?;
            }
        }
        self.take_what_is_back(false)
    }

    fn sum(&mut self, range: &PendingRange) -> Result<()> {
        let (input, elements) = (self.input(), range.elements.clone());
        if let Some(place) = range.small {
            self.window.sum_posted(input, Array::Sums, elements, place);
            return Ok(());
        }
        let shard = self.shard(&elements);
        let streaming = self.streams(elements.len());
        if self.between_hosts.is_none() {
            if self.ranks > 1 || input != Array::Sums {
                self.window.sum(input, Array::Sums, shard, 0..self.ranks, streaming);
            }
            return Ok(());
        }
        self.send_shard(range.counter, shard)
    }

    /// Sums the shard chunk by chunk and hands each chunk to MPI.
    fn send_shard(&mut self, counter: usize, shard: Range<usize>) -> Result<()> {
        let (input, stage, own) = (self.input(), self.stage(), self.rank..self.rank + 1);
        let bytes = self.memory.wire.kind().elt_size_in_bytes();
        let chunk_kb = self.between_hosts.as_ref().map_or(0, |between| between.chunk_kb);
        for elements in chunks(shard, chunk_kb, bytes) {
            if self.ranks > 1 || input != stage {
                self.window.sum(input, stage, elements.clone(), own.clone(), false);
            }
            let staged = if stage == Array::Sums { &self.memory.sums } else { &self.memory.wire };
            if let Some(BetweenHosts { same_local_rank: Some(same_local_rank), sums, in_flight, .. }) =
                &mut self.between_hosts
            {
                let request = sums.start_all_reduce(staged, elements.clone(), same_local_rank)?;
                in_flight.push_back(Chunk { counter, elements, request });
            }
            self.take_what_is_back(false)?;
        }
        Ok(())
    }

    /// Writes every chunk that is back from the other hosts to the ranks of this one; with `wait`, all of them.
    fn take_what_is_back(&mut self, wait: bool) -> Result<()> {
        let stage = self.stage();
        let Some(BetweenHosts { receivers, in_flight, .. }) = &mut self.between_hosts else {
            return Ok(());
        };
        // What this rank has to add goes to all as soon as it can.
        for chunk in in_flight.iter_mut() {
            if !chunk.request.is_added()? {
                break;
            }
        }
        while let Some(Chunk { counter, elements, request }) = in_flight.front_mut() {
            if request.is_done()? {
                self.window.spread(stage, Array::Sums, elements.clone(), receivers);
                heartbeat::count_progress();
                in_flight.pop_front();
            } else if wait {
                heartbeat::enter(Stage::AllReduce { bucket: *counter as u32 });
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

    /// Counts this rank at `counter`, which all ranks of the host come to once a round.
    fn arrive(&mut self, counter: usize) {
        let target = &mut self.targets[counter];
        *target = target.wrapping_add(self.ranks as u32);
        self.window.arrive(counter, *target);
    }
}

impl Backend for SharedMemory {
    fn name(&self) -> &'static str {
        "shared-memory"
    }

    fn sum_dtype(&self, _wire: Wire) -> Option<Wire> {
        Some(Wire::Fp32)
    }

    fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn start(&mut self, elements: Range<usize>) -> Result<()> {
        let counter = self.started;
        ensure!(counter < DONE, "at most {DONE} ranges are summed at once");
        let input = self.input();
        let small = self.place_for_small(elements.len() * self.memory.input().kind().elt_size_in_bytes());
        match small {
            Some(place) => self.window.post(input, elements.clone(), place),
            None => self.is_shared = true,
        }
        self.started += 1;
        self.arrive(counter);
        self.pending.push_back(PendingRange { counter, elements, small });
        self.advance(false)
    }

    fn finish(&mut self) -> Result<()> {
        self.advance(true)?;
        self.take_what_is_back(true)?;
        if self.is_shared {
            // Others may still read this rank's wire and write its sums.
            self.arrive(DONE);
            self.window.wait(DONE, self.targets[DONE]);
        }
        // A round in which nobody met leaves the small messages where they are.
        self.is_odd ^= self.started > 0;
        (self.started, self.small, self.is_shared) = (0, 0, false);
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

/// The ranks with this one's shard on the other hosts, where it has one; all ranks call it together.
fn group(world: &World, has_shard: bool) -> Option<Group> {
    let (first, second) = (world.with_same_local_rank(has_shard), world.with_same_local_rank(has_shard));
    Some(Group { first: first?, second: second? })
}

/// Between two questions: a rank that shares its core leaves it to the others.
fn pause(may_watch: bool) {
    if may_watch { std::hint::spin_loop() } else { thread::sleep(PATIENCE) }
}

/// Makes the host's window, or opens it. All ranks call it together; all fail or none.
pub fn join_together(layout: WindowLayout, world: &World) -> Result<Window> {
    let joined = join(layout, world, world.has_own_cores());
    let problem = joined.as_ref().err().map_or_else(String::new, |error| format!("{error:#}"));
    if let Some(problem) = world.gather_text(&problem).into_iter().find(|problem| !problem.is_empty()) {
        bail!(problem);
    }
    joined
}

/// Makes the host's window, or opens it; every rank of the host calls this.
fn join(layout: WindowLayout, world: &World, may_watch: bool) -> Result<Window> {
    let is_first = world.local_rank() == 0;
    let mark = facts::random_id();
    let mut created = Ok(None);
    let mut identity = [0u64; 3];
    if is_first {
        created = Window::create(layout, mark, may_watch).map(Some);
        if let Ok(Some(window)) = &created {
            identity = [u64::from(std::process::id()), window.descriptor() as u64, mark];
        }
    }
    world.broadcast_on_host(&mut identity);
    let [process, descriptor, mark] = identity;
    let joined = match created {
        Ok(None) if process == 0 => Err(anyhow!("rank 0 of this host has no window")),
        Ok(None) => {
            Window::open(layout, (process as u32, descriptor as i32), mark, world.local_rank() as usize, may_watch)
        }
        Ok(Some(window)) => Ok(window),
        Err(error) => Err(error),
    };
    joined.with_context(|| format!("shared memory of host {} (choose --backend mpi to do without)", world.host()))
}

/// As sums know a type of libtorch.
pub fn element(kind: Kind) -> Element {
    match kind {
        Kind::Half => Element::Half,
        Kind::BFloat16 => Element::BFloat16,
        _ => Element::Float,
    }
}
