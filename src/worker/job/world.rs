//! The ranks of this job according to MPI, and their communication outside of the step.

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::sync::OnceLock;
use std::time::Duration;

use mpi::Threading;
use mpi::datatype::Equivalence;
use mpi::environment::Universe;
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, Group, Root, Source};

use anyhow::{Context, Error, Result, ensure};
use ringmark_core::host::{MemoryShortage, Message, Stage};
use ringmark_core::options::usage::error_line;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ffi::cuda;
use crate::ffi::group::GroupRank;
use crate::ffi::process::exit;
use crate::ffi::process::waiting::POLL_INTERVAL;
use crate::job::memory::NoMemoryLeft;
use crate::job::{heartbeat, standard_error};

/// Time for mpirun to end a job with a failed process, unless it was configured to continue, and for that process to
/// report its error. Secondary failures are delayed by this time, or they would be reported as the cause.
pub const EXIT_DELAY: Duration = Duration::from_secs(10);

/// Role of a process: training or serving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A rank, as counted in records.
    Worker,
    /// A process that holds weights for the ranks (`--servers`).
    Server,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankLocation {
    /// Index of its host, in the order of the hosts' first ranks.
    pub host: usize,
    pub local_rank: usize,
}

impl From<&World> for GroupRank {
    fn from(world: &World) -> GroupRank {
        GroupRank { rank: world.rank, ranks: world.ranks }
    }
}

/// Sums of single numbers over all ranks, for an exchange that runs without the [`World`].
pub struct RankSums(SimpleCommunicator);

impl RankSums {
    /// Returns the sum of every rank's value, equal on all ranks.
    pub fn sum(&self, value: f64) -> f64 {
        let _waiting = heartbeat::wait();
        let mut all = vec![0.0; self.0.size() as usize];
        self.0.all_gather_into(&value, &mut all[..]);
        all.iter().sum()
    }
}

/// This process among those of its role.
pub struct World {
    role: Role,
    rank: u32,
    ranks: u32,
    /// Live processes of this role.
    communicator: RefCell<SimpleCommunicator>,
    /// Live processes of this role on this host.
    node: SimpleCommunicator,
    /// Every process of the job: the ranks, then the servers. Only the ranks of a part.
    all: SimpleCommunicator,
    host: String,
    /// True if some ranks have failed and the others continue without them.
    has_lost_ranks: Cell<bool>,
    /// True if every rank has cores of its own; empty until the ranks have agreed.
    has_own_cores: OnceLock<bool>,
    /// Dropped last: finalizes MPI, which waits for the others. `None` for a part.
    _universe: Option<Universe>,
}

impl World {
    /// Joins the job that mpirun started, or starts one with a single rank. The last `servers` processes are servers.
    fn join(servers: u32) -> Result<World> {
        exit::restore_crash_signals();
        // One thread at a time calls MPI, but not always the same one.
        let (universe, threading) =
            mpi::initialize_with_threading(Threading::Serialized).context("MPI is already initialized")?;
        ensure!(threading >= Threading::Serialized, "this MPI library supports calls from one thread only");
        let all = universe.world();
        let (rank, size) = (all.rank() as u32, all.size() as u32);
        ensure!(
            servers < size,
            "--servers {servers} leaves no rank to train: mpirun started {size} processes: start {servers} more than \
             the number of ranks"
        );
        let role = if rank < size - servers { Role::Worker } else { Role::Server };
        let communicator = all
            .split_by_color_with_key(Color::with_value(role as i32), all.rank())
            .context("MPI cannot create a communicator of ranks or servers")?;
        let node = communicator.split_shared(communicator.rank());
        let host = mpi::environment::processor_name().context("MPI returned no host name")?;
        let world = World {
            role,
            rank: communicator.rank() as u32,
            ranks: communicator.size() as u32,
            communicator: RefCell::new(communicator),
            node,
            all,
            host,
            has_lost_ranks: Cell::new(false),
            has_own_cores: OnceLock::new(),
            _universe: Some(universe),
        };
        world.abort_on_panic();
        Ok(world)
    }

    /// Runs one process from start to end: joins, runs `body`, leaves. The last `servers` processes of the job are
    /// servers. A rank that fails ends the whole job if others would wait for it. If `body` returns the reason why the
    /// run is invalid, every rank fails, and rank 0 prints the reason.
    pub fn run(servers: u32, body: impl FnOnce(&World) -> Result<Option<String>>) -> Result<()> {
        heartbeat::enter_and_notify(Stage::Joining);
        let waiting = heartbeat::wait();
        let world = World::join(servers)?;
        drop(waiting);
        heartbeat::enter_and_notify(Stage::Preparing);
        let ended = body(&world);
        match &ended {
            // The record contains the reason why a run is invalid.
            Ok(_) => heartbeat::end(&Message::Done),
            Err(error) => report_failure(error),
        }
        if let (true, Ok(failure)) = (world.has_lost_ranks.get(), &ended) {
            world.exit_without_finalize(failure.as_deref());
        }
        match ended {
            Ok(None) => Ok(()),
            Ok(Some(failure)) => {
                if world.rank() == 0 && world.role == Role::Worker {
                    standard_error::emit(&error_line(format!("the run failed: {failure}")));
                }
                // Waits for all: mpirun ends every rank when the first one fails, and by then rank 0 must have printed
                // the reason.
                drop(world);
                std::process::exit(1)
            }
            Err(error) if world.all.size() == 1 => Err(error),
            Err(error) => {
                standard_error::emit(&error_line(format!("{}: {}", world.name(), cuda::user_message(&error))));
                world.all.abort(1)
            }
        }
    }

    /// Ends this process without MPI_Finalize, which may wait for failed ranks forever.
    fn exit_without_finalize(&self, failure: Option<&str>) -> ! {
        if let (Some(failure), 0, Role::Worker) = (failure, self.communicator.borrow().rank(), self.role) {
            standard_error::emit(&error_line(format!("the run failed: {failure}")));
        }
        // If standard output is closed, there is no reader to lose anything.
        let _ = std::io::stdout().flush();
        std::process::exit(i32::from(failure.is_some()))
    }

    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the rank among the processes of this role, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of processes of this role that were started.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    pub fn has_lost_ranks(&self) -> bool {
        self.has_lost_ranks.get()
    }

    /// Records that some ranks have failed, so that the end does not wait for them.
    pub fn record_lost_rank(&self) {
        self.has_lost_ranks.set(true);
    }

    /// Continues without the failed ranks `lost`: later calls do not wait for them, and gathered values exclude them.
    /// All remaining ranks call this together.
    pub fn continue_without(&self, lost: &[u32]) -> Result<()> {
        if lost.is_empty() {
            return Ok(());
        }
        let lost: Vec<i32> = lost.iter().map(|rank| *rank as i32).collect();
        self.record_lost_rank();
        let left = self.communicator.borrow().group().exclude(&lost);
        let communicator = self.communicator.borrow().split_by_subgroup(&left);
        *self.communicator.borrow_mut() = communicator.context("MPI cannot continue without the failed ranks")?;
        Ok(())
    }

    pub fn local_rank(&self) -> u32 {
        self.node.rank() as u32
    }

    pub fn local_ranks(&self) -> u32 {
        self.node.size() as u32
    }

    /// Returns rank and PID of every rank of this host, in rank order. All ranks of the host call this together.
    pub fn local_processes(&self) -> Vec<(u32, u32)> {
        let mut all = vec![0; 2 * self.local_ranks() as usize];
        self.node.all_gather_into(&[self.rank, std::process::id()][..], &mut all[..]);
        all.as_chunks().0.iter().map(|[rank, process]| (*rank, *process)).collect()
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns a name such as `rank 3 of 8 on host b`.
    pub fn name(&self) -> String {
        let role = match self.role {
            Role::Worker => "rank",
            Role::Server => "server",
        };
        format!("{role} {} of {} on host {}", self.rank, self.ranks, self.host)
    }

    /// Gathers [`has_own_cores`](World::has_own_cores) of all ranks. All ranks call this together, once.
    pub fn agree_on_cores(&self, has_own_cores: bool) {
        let all = self.gather(&[f64::from(u8::from(has_own_cores))]).concat();
        self.has_own_cores.get_or_init(|| all.iter().all(|own| *own == 1.0));
    }

    /// Returns true if every rank of the job has enough cores for its threads, so that a waiting rank may poll.
    pub fn has_own_cores(&self) -> bool {
        self.has_own_cores.get().copied().unwrap_or(false)
    }

    /// Waits for all ranks.
    pub fn barrier(&self) {
        let _waiting = heartbeat::wait();
        self.communicator.borrow().barrier();
    }

    /// Waits for all ranks like [`barrier`](World::barrier), but sleeps, for ranks that share their cores.
    pub fn sleeping_barrier(&self) {
        let _waiting = heartbeat::wait();
        let mut request = self.communicator.borrow().immediate_barrier();
        while let Err(waiting) = request.test() {
            request = waiting;
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Repeats `work` until every rank has called this and its `is_done` has returned true. All ranks call this together.
    ///
    /// # Errors
    ///
    /// Fails if `work` does, after all ranks are done.
    pub fn work_until_all(&self, is_done: impl Fn() -> bool, mut work: impl FnMut() -> Result<()>) -> Result<()> {
        let mut worked = Ok(());
        let mut work_or_sleep = || match &worked {
            Ok(()) => worked = work(),
            Err(_) => std::thread::sleep(POLL_INTERVAL),
        };
        while !is_done() {
            work_or_sleep();
        }
        let mut request = self.communicator.borrow().immediate_barrier();
        while let Err(waiting) = request.test() {
            request = waiting;
            work_or_sleep();
        }
        worked
    }

    /// Overwrites `values` with rank 0's.
    pub fn broadcast<T: Equivalence>(&self, values: &mut [T]) {
        let _waiting = heartbeat::wait();
        // MPI counts in 32-bit integers.
        for chunk in values.chunks_mut(1 << 28) {
            self.communicator.borrow().process_at_rank(0).broadcast_into(chunk);
        }
    }

    /// Overwrites `values` with those of this host's first rank.
    pub fn broadcast_on_host<T: Equivalence>(&self, values: &mut [T]) {
        let _waiting = heartbeat::wait();
        self.node.process_at_rank(0).broadcast_into(values);
    }

    /// Returns the location of every rank, in rank order.
    pub fn locations(&self) -> Vec<RankLocation> {
        let mut first = [self.rank()];
        self.broadcast_on_host(&mut first);
        let all = self.gather(&[f64::from(first[0]), f64::from(self.local_rank())]);
        let mut hosts: Vec<u64> = all.iter().map(|location| location[0] as u64).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let host = |first: u64| hosts.iter().position(|other| *other == first).unwrap_or(0);
        all.iter()
            .map(|location| RankLocation { host: host(location[0] as u64), local_rank: location[1] as usize })
            .collect()
    }

    /// Returns the ranks of this host, and the ranks with this local rank on all hosts, which must have equally many. All
    /// ranks call this together.
    pub fn parts(&self) -> Result<[World; 2]> {
        let local = self.gather(&[f64::from(self.local_ranks())]).concat();
        ensure!(
            local.iter().all(|ranks| *ranks == local[0]),
            "the hosts have different numbers of ranks, from {} to {}: start the same number on each",
            local.iter().copied().fold(f64::INFINITY, f64::min),
            local.iter().copied().fold(0.0, f64::max)
        );
        let across = self.with_same_local_rank(true).context("MPI cannot create a communicator across hosts")?;
        Ok([self.node.duplicate(), across].map(|communicator| World {
            role: self.role,
            rank: communicator.rank() as u32,
            ranks: communicator.size() as u32,
            node: communicator.split_shared(communicator.rank()),
            all: communicator.duplicate(),
            communicator: RefCell::new(communicator),
            host: self.host.clone(),
            has_lost_ranks: Cell::new(false),
            has_own_cores: self.has_own_cores.clone(),
            _universe: None,
        }))
    }

    /// Returns a new communicator of all ranks. All ranks call this together.
    pub fn communicator(&self) -> SimpleCommunicator {
        let _waiting = heartbeat::wait();
        self.communicator.borrow().duplicate()
    }

    /// Returns a new communicator of the ranks with this local rank on their hosts; `None` unless this rank
    /// `take_part`s.
    pub fn with_same_local_rank(&self, take_part: bool) -> Option<SimpleCommunicator> {
        let _waiting = heartbeat::wait();
        let color = if take_part { Color::with_value(self.node.rank()) } else { Color::undefined() };
        self.communicator.borrow().split_by_color_with_key(color, self.rank() as i32)
    }

    /// Sends a number to rank `other`, which [receives](World::receive) it.
    pub fn send(&self, other: u32, number: i64) {
        self.communicator.borrow().process_at_rank(other as i32).send(&number);
    }

    /// Waits for a number that rank `other` [sends](World::send).
    pub fn receive(&self, other: u32) -> i64 {
        let _waiting = heartbeat::wait();
        self.communicator.borrow().process_at_rank(other as i32).receive().0
    }

    /// Receives a number that any rank has [sent](World::send); returns false if there is none.
    pub fn take_message(&self) -> bool {
        let Some(status) = self.communicator.borrow().any_process().immediate_probe() else { return false };
        let _ = self.receive(status.source_rank() as u32);
        true
    }

    /// Returns sums over the ranks. All ranks call this together.
    pub fn rank_sums(&self) -> RankSums {
        RankSums(self.communicator())
    }

    /// Returns the values of every rank, in rank order. All ranks pass the same number of values.
    pub fn gather(&self, values: &[f64]) -> Vec<Vec<f64>> {
        if values.is_empty() {
            return vec![Vec::new(); self.live_ranks()];
        }
        let _waiting = heartbeat::wait();
        let mut all = vec![0.0; values.len() * self.live_ranks()];
        self.communicator.borrow().all_gather_into(values, &mut all[..]);
        all.chunks(values.len()).map(<[f64]>::to_vec).collect()
    }

    /// Gathers `values` on the first rank, in one list; returns an empty list on the others, to save memory.
    pub fn gather_on_rank_0(&self, values: &[f64]) -> Vec<f64> {
        let _waiting = heartbeat::wait();
        let communicator = self.communicator.borrow();
        let first = communicator.process_at_rank(0);
        if communicator.rank() > 0 {
            first.gather_into(values);
            return Vec::new();
        }
        let mut all = vec![0.0; values.len() * communicator.size() as usize];
        first.gather_into_root(values, &mut all[..]);
        all
    }

    pub fn broadcast_text(&self, text: String) -> String {
        let mut bytes = text.into_bytes();
        let mut length = [bytes.len() as u64];
        self.broadcast(&mut length);
        bytes.resize(length[0] as usize, 0);
        self.broadcast(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the text of every rank, in rank order.
    pub fn gather_text(&self, text: &str) -> Vec<String> {
        texts(&self.communicator.borrow(), text)
    }

    /// Returns the text of every process of this role on this host, in rank order. All of them call this together, before
    /// one can have failed.
    pub fn gather_text_on_host(&self, text: &str) -> Vec<String> {
        texts(&self.node, text)
    }

    /// Returns the value of every rank, in rank order.
    pub fn gather_values<T: Serialize + DeserializeOwned>(&self, own: &T) -> Result<Vec<T>> {
        let texts = self.gather_text(&serde_json::to_string(own)?);
        Ok(texts.iter().map(|text| serde_json::from_str(text)).collect::<serde_json::Result<_>>()?)
    }

    /// Gathers large values on the first rank; returns none on the others.
    pub fn gather_values_on_rank_0<T: Serialize + DeserializeOwned>(&self, own: &T) -> Result<Vec<T>> {
        let _waiting = heartbeat::wait();
        let communicator = self.communicator.borrow();
        let text = serde_json::to_vec(own)?;
        if communicator.rank() > 0 {
            communicator.process_at_rank(0).send(&text[..]);
            return Ok(Vec::new());
        }
        let others = (1..communicator.size()).map(|rank| communicator.process_at_rank(rank).receive_vec::<u8>().0);
        let texts = std::iter::once(text).chain(others);
        Ok(texts.map(|text| serde_json::from_slice(&text)).collect::<serde_json::Result<_>>()?)
    }

    /// Returns the text of every process of the job: the ranks, then the servers.
    pub fn gather_text_from_all(&self, text: &str) -> Vec<String> {
        texts(&self.all, text)
    }

    fn live_ranks(&self) -> usize {
        self.communicator.borrow().size() as usize
    }

    /// Installs a panic hook that ends the job, so that the other ranks do not wait for one that panicked.
    fn abort_on_panic(&self) {
        let name = self.name();
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            heartbeat::end_with_failure(format!("internal error: {panic}"), None);
            standard_error::emit(&format!("{name}: internal error"));
            default(panic);
            SimpleCommunicator::world().abort(1);
        }));
    }
}

/// Reports to the launcher why this process ends. The launcher keeps the first report of a process.
pub fn report_failure(error: &Error) {
    let shortage = error.downcast_ref().map(|NoMemoryLeft { shortage, .. }| *shortage);
    heartbeat::end_with_failure(cuda::user_message(error), shortage);
}

/// Ends the process `name` because of `failure`, from a thread other than the one that may be in MPI. MPI allows one
/// call at a time (MPI_THREAD_SERIALIZED), so MPI_Abort is not available. mpirun and srun react as they do to
/// MPI_Abort: they end the job or, if configured to, continue; then processes that depend on this one end as well.
pub fn exit_immediately(name: &str, failure: &str, shortage: Option<MemoryShortage>) -> ! {
    standard_error::emit(&format!("{name}: {failure}"));
    heartbeat::end_with_failure(failure.to_owned(), shortage);
    exit::immediately(1)
}

/// Returns the text of every process of the communicator, in their order.
fn texts(communicator: &SimpleCommunicator, text: &str) -> Vec<String> {
    let _waiting = heartbeat::wait();
    let mut lengths = vec![0u64; communicator.size() as usize];
    communicator.all_gather_into(&[text.len() as u64][..], &mut lengths[..]);
    let longest = lengths.iter().copied().fold(1, u64::max) as usize;
    let mut padded = text.as_bytes().to_vec();
    padded.resize(longest, 0);
    let mut all = vec![0u8; longest * lengths.len()];
    communicator.all_gather_into(&padded[..], &mut all[..]);
    let cut = |(bytes, length): (&[u8], &u64)| String::from_utf8_lossy(&bytes[..*length as usize]).into_owned();
    all.chunks(longest).zip(&lengths).map(cut).collect()
}
