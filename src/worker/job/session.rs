//! What surrounds every benchmark on a rank, once: libraries, MPI, device, heartbeat, what records say of machine and
//! ranks, counters of the host, output and files of rank 0. A benchmark is a body that gets a [`Session`]; what it
//! measures is not for this module.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use ringmark_core::benchmark::exchange::NcclAlgorithm;
use ringmark_core::benchmark::{RunLabel, RunProfile};
use ringmark_core::dimension::{Bytes, Case, DeviceChoice, DeviceKind};
use ringmark_core::file::whole_file;
use ringmark_core::host::{Environment, LauncherAddress, RankPlace};
use ringmark_core::untrusted_text::printable_lines;
use tch::Device;

use crate::ffi::cuda;
use crate::ffi::cuda::kernels::CompilerLibrary;
use crate::ffi::nccl::Nccl;
use crate::ffi::process::exit;
use crate::ffi::torch::shim;
use crate::host::facts;
use crate::job::cores::AskedThreads;
use crate::job::device::DeviceOfRank;
use crate::job::host_watch::{CountersOfRun, HostWatch};
use crate::job::library_defaults::{self, NcclLog};
use crate::job::nccl_log;
use crate::job::world::{self, Role, World};
use crate::job::{environment, heartbeat, memory};

/// Gives each rank of a host an equal part of the memory that the host has left now that all have loaded their libraries.
fn limit_memory(world: &World) {
    world.barrier();
    let mut available = [ringmark_core::host::memory::available().0];
    world.broadcast_on_host(&mut available);
    memory::limit_to(Bytes(available[0] / u64::from(world.local_ranks())));
}

/// What a benchmark wants to find around it.
pub struct SessionRequest {
    /// Where it computes.
    pub device: DeviceChoice,
    /// CPU threads of a rank.
    pub threads: AskedThreads,
    /// How NCCL is to sum; `None` where nothing is summed.
    pub nccl: Option<NcclAlgorithm>,
    /// Whether it is asked to write down what it uses: a line a sum, on rank 0.
    pub with_nccl_log: bool,
    /// Where the launcher listens, if one started this rank.
    pub launcher: Option<LauncherAddress>,
    /// Processes of the job, its last ones, that do not run the benchmark but serve those that do.
    pub servers: Option<Servers>,
}

/// Processes that serve the ranks.
pub struct Servers {
    /// How many.
    pub number: u32,
    /// What one does from start to end.
    pub body: ServerBody,
}

/// What a server does.
pub type ServerBody = Box<dyn FnOnce(&World) -> Result<()>>;

/// What the user wants the run to be called.
#[derive(Debug, Clone, Copy)]
pub struct AskedLabel {
    /// As launched; `None` where no option says it.
    pub case: Option<Case>,
    /// Number of the run in its case, from 1.
    pub run: u32,
    /// How it is meant.
    pub profile: RunProfile,
}

/// One rank's environment while its benchmark runs.
pub struct Session<'a> {
    /// The ranks.
    pub world: &'a World,
    /// What this one computes on.
    pub own: DeviceOfRank,
    /// There where this rank is on a GPU.
    pub nccl: Option<Arc<Nccl>>,
    /// NVRTC if this process can use CUDA and has it.
    pub compiler: Option<CompilerLibrary>,
    /// Where NCCL writes, where it was asked to.
    nccl_log: NcclLog,
}

impl Session<'_> {
    /// One rank from start to end: joins the others, runs `benchmark`, leaves. The benchmark returns why its run does not
    /// count, if it does not.
    pub fn run(request: SessionRequest, benchmark: impl FnOnce(&Session) -> Result<Option<String>>) -> Result<()> {
        let SessionRequest { device, threads, nccl, with_nccl_log, launcher, servers } = request;
        // Before anything else: NCCL and libtorch look at their environment only once.
        nccl.map_or(Ok(()), |algorithm| library_defaults::choose_algorithm(device, algorithm))?;
        let nccl_log = NcclLog::new(device, with_nccl_log);
        heartbeat::begin(launcher);
        let cuda = cuda::load(device);
        let number = servers.as_ref().map_or(0, |servers| servers.number);
        World::run(number, |world| {
            if let (Role::Server, Some(servers)) = (world.role(), servers) {
                (servers.body)(world)?;
                return Ok(None);
            }
            let own = DeviceOfRank::choose(device, threads, world, cuda.as_ref())?;
            let nccl = own.nccl(cuda.as_ref())?;
            if own.kind == DeviceKind::Cpu {
                limit_memory(world);
                let name = world.name();
                exit::before_a_crash(move || {
                    if let Some(shortage) = memory::shortage_behind_crash() {
                        world::end_at_once(&name, &shortage.to_string(), Some(shortage.shortage));
                    }
                });
            }
            let device = own.device;
            let compiler = cuda.as_ref().ok().and_then(|cuda| cuda.compiler);
            benchmark(&Session { world, own, nccl, compiler, nccl_log }).map_err(|error| memory::named(error, device))
        })
    }

    /// As libtorch calls it.
    pub fn device(&self) -> Device {
        self.own.device
    }

    /// Prints on rank 0, which speaks for all.
    pub fn print(&self, lines: &[String]) {
        if self.world.rank() == 0 {
            lines.iter().for_each(|line| println!("{}", printable_lines(line)));
        }
    }

    /// Writes a file on rank 0, whole or not at all, where one was asked for.
    pub fn write(&self, path: Option<&Path>, content: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
        match path {
            Some(path) if self.world.rank() == 0 => whole_file::write(path, content),
            _ => Ok(()),
        }
    }

    /// Where every rank is; all ranks call it together.
    pub fn places(&self) -> Vec<RankPlace> {
        environment::places(self.world, &self.own)
    }

    /// Machine, libraries and variables of this rank.
    pub fn environment(&self) -> Result<Environment> {
        environment::environment(&self.own, self.nccl.as_deref())
    }

    /// What the run is called in its record. Its case is the one that was asked for, or follows from the hosts that the
    /// ranks are on.
    pub fn label(&self, asked: AskedLabel, places: &[RankPlace]) -> Result<RunLabel> {
        let AskedLabel { case, run, profile } = asked;
        let ranks = self.world.ranks();
        if let Some(case) = case {
            // Ranks whose launcher and MPI library do not speak to each other are each a job of its own, and run.
            ensure!(
                case.ranks() == ranks,
                "case {case} has {} ranks and MPI shows {ranks}: start it by the mpirun of the MPI library that \
                 ringmark-worker has (ldd shows it), or by an srun with its PMIx",
                case.ranks()
            );
        }
        let nodes = places.iter().filter(|place| place.local_rank == 0).count() as u32;
        let found = Case { nodes, gpus_per_node: ranks.div_ceil(nodes) };
        Ok(RunLabel { case: case.unwrap_or(found), run, profile })
    }

    /// Reads the counters of host and rank for the first time; all ranks call this together, right before what is timed.
    pub fn start_counters(&self) -> Result<HostWatch> {
        HostWatch::start(self.world, &self.own)
    }

    /// Reads them again; all ranks call this together, right after what is timed.
    pub fn end_counters(&self, watch: HostWatch) -> Result<CountersOfRun> {
        watch.end(self.world, &self.own)
    }

    /// What NCCL said that it used, a fact a line and each once: rank 0 knows the choices, and each rank its own
    /// connections. Once, after the last sum; all ranks call it together.
    pub fn nccl_lines(&self) -> Vec<String> {
        let own = nccl_log::parse(&self.nccl_log.read()).lines();
        let mut all: Vec<String> = Vec::new();
        for text in self.world.gather_text(&own.join("\n")) {
            for line in text.lines() {
                if !all.iter().any(|known| known == line) {
                    all.push(line.to_owned());
                }
            }
        }
        all
    }

    /// Lets [`peak_memory`](Session::peak_memory) begin anew: what warms up takes memory that is not needed later, as
    /// cuDNN's search for the fastest kernels. The kernel does not forget what a process held.
    pub fn reset_peak_memory(&self) -> Result<()> {
        match self.device() {
            Device::Cuda(index) => shim::reset_peak_memory(index),
            _ => Ok(()),
        }
    }

    /// Highest memory use of every rank: what tensors held on the device on CUDA, resident on the CPU. All ranks call it
    /// together.
    pub fn peak_memory(&self) -> Result<Vec<Bytes>> {
        let own = match self.device() {
            Device::Cuda(index) => Bytes(shim::peak_memory(index)?),
            _ => facts::peak_resident(),
        };
        let all = self.world.gather(&[own.0 as f64]).concat();
        Ok(all.into_iter().map(|bytes| Bytes(bytes as u64)).collect())
    }
}
