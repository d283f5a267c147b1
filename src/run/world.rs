//! Who is there: the ranks of this job as MPI knows them, and the few things they tell each other outside the step.

use std::io::Write;

use mpi::Threading;
use mpi::datatype::Equivalence;
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives, Root};

use anyhow::{Context, Result, ensure};

/// Writes a line of standard error in one piece: the ranks' lines meet there, and pieces of them would mix.
pub fn complain(line: &str) {
    // There is nowhere left to say that this failed.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// This process among the others.
pub struct World {
    communicator: SimpleCommunicator,
    local_rank: u32,
    local_ranks: u32,
    host: String,
    /// Dropped last: ends MPI, which waits for the others.
    _universe: Universe,
}

impl World {
    /// Joins the job that mpirun started, or makes one of a single rank.
    pub fn join() -> Result<World> {
        // One thread at a time calls MPI, but not always the same one.
        let (universe, threading) =
            mpi::initialize_with_threading(Threading::Serialized).context("MPI is initialized already")?;
        ensure!(threading >= Threading::Serialized, "this MPI library allows calls from one thread only");
        let communicator = universe.world();
        let node = communicator.split_shared(communicator.rank());
        let host = mpi::environment::processor_name().context("MPI does not tell the host name")?;
        let world = World {
            local_rank: node.rank() as u32,
            local_ranks: node.size() as u32,
            communicator,
            host,
            _universe: universe,
        };
        world.abort_on_panic();
        Ok(world)
    }

    /// From 0.
    pub fn rank(&self) -> u32 {
        self.communicator.rank() as u32
    }

    /// World size.
    pub fn ranks(&self) -> u32 {
        self.communicator.size() as u32
    }

    /// Rank among those of this host, from 0.
    pub fn local_rank(&self) -> u32 {
        self.local_rank
    }

    /// Number of ranks on this host.
    pub fn local_ranks(&self) -> u32 {
        self.local_ranks
    }

    /// Name of this host.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// `rank 3 of 8 on host b`.
    pub fn name(&self) -> String {
        format!("rank {} of {} on host {}", self.rank(), self.ranks(), self.host)
    }

    /// Ends every rank of the job at once.
    pub fn abort(&self) -> ! {
        self.communicator.abort(1)
    }

    /// Returns when every rank is here.
    pub fn barrier(&self) {
        self.communicator.barrier();
    }

    /// Overwrites `values` with rank 0's.
    pub fn broadcast<T: Equivalence>(&self, values: &mut [T]) {
        // MPI counts in 32-bit integers.
        for piece in values.chunks_mut(1 << 28) {
            self.communicator.process_at_rank(0).broadcast_into(piece);
        }
    }

    /// Every rank's values, in rank order; as many from each.
    pub fn gather(&self, values: &[f64]) -> Vec<Vec<f64>> {
        if values.is_empty() {
            return vec![Vec::new(); self.ranks() as usize];
        }
        let mut all = vec![0.0; values.len() * self.ranks() as usize];
        self.communicator.all_gather_into(values, &mut all[..]);
        all.chunks(values.len()).map(<[f64]>::to_vec).collect()
    }

    /// Every rank's text, in rank order.
    pub fn gather_text(&self, text: &str) -> Vec<String> {
        let lengths = self.gather(&[text.len() as f64]).concat();
        let longest = lengths.iter().copied().fold(1.0, f64::max) as usize;
        let mut padded = text.as_bytes().to_vec();
        padded.resize(longest, 0);
        let mut all = vec![0u8; longest * self.ranks() as usize];
        self.communicator.all_gather_into(&padded[..], &mut all[..]);
        let cut = |(bytes, length): (&[u8], &f64)| String::from_utf8_lossy(&bytes[..*length as usize]).into_owned();
        all.chunks(longest).zip(&lengths).map(cut).collect()
    }

    /// A rank that panics must not leave the others waiting for it.
    fn abort_on_panic(&self) {
        let name = self.name();
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            complain(&format!("{name}: internal error"));
            default(panic);
            SimpleCommunicator::world().abort(1);
        }));
    }
}
