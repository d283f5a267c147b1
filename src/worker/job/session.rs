//! Setup and teardown that all benchmarks share on a rank: libraries, MPI, device, heartbeat, description of the
//! machine and the ranks in records, host counters, and the output of rank 0. A benchmark is a function that gets a
//! [`Session`].

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use ringmark_core::benchmark::exchange::NcclAlgorithm;
use ringmark_core::benchmark::{RunLabel, RunProfile};
use ringmark_core::dimension::{Bytes, Case, DeviceChoice, DeviceKind};
use ringmark_core::file::atomic_file;
use ringmark_core::host::{Environment, LauncherAddress, RankPlace};
use ringmark_core::untrusted_text::printable_lines;
use tch::Device;

use crate::ffi::cuda;
use crate::ffi::cuda::kernels::CompilerLibrary;
use crate::ffi::nccl::Nccl;
use crate::ffi::process::exit;
use crate::ffi::torch::shim;
use crate::host::facts;
use crate::job::cores::CoreRequest;
use crate::job::device::DeviceOfRank;
use crate::job::host_watch::{CountersOfRun, HostWatch};
use crate::job::library_defaults::{self, NcclLog};
use crate::job::nccl_log;
use crate::job::world::{self, Role, World};
use crate::job::{environment, heartbeat, memory};

/// Limits each rank to an equal share of the memory left on the host after all ranks have loaded their libraries.
fn limit_memory(world: &World) {
    world.barrier();
    let mut available = [ringmark_core::host::memory::available().0];
    world.broadcast_on_host(&mut available);
    memory::limit_to(Bytes(available[0] / u64::from(world.local_ranks())));
}

/// Requirements of a benchmark.
pub struct SessionRequest {
    /// Device to compute on.
    pub device: DeviceChoice,
    pub cores: CoreRequest,
    /// All-reduce algorithm of NCCL; `None` if nothing is summed.
    pub nccl: Option<NcclAlgorithm>,
    /// True if NCCL logs its choices on rank 0, one line per collective.
    pub with_nccl_log: bool,
    /// False if this process only observes another program: it then leaves the GPU and the memory to it.
    pub computes: bool,
    /// Address of the launcher, if one started this rank.
    pub launcher: Option<LauncherAddress>,
    /// Last processes of the job, which serve the ranks instead of running the benchmark.
    pub servers: Option<Servers>,
}

impl SessionRequest {
    /// Requests a session that sums nothing and has no servers.
    pub fn without_sums(device: DeviceChoice, cores: CoreRequest, launcher: Option<LauncherAddress>) -> SessionRequest {
        SessionRequest { device, cores, nccl: None, with_nccl_log: false, computes: true, launcher, servers: None }
    }
}

/// Processes that serve the ranks.
pub struct Servers {
    pub number: u32,
    /// Body of a server, from start to end.
    pub body: ServerBody,
}

/// Body of a server.
pub type ServerBody = Box<dyn FnOnce(&World) -> Result<()>>;

/// Label of the run as requested by the user.
#[derive(Debug, Clone, Copy)]
pub struct RequestedLabel {
    /// Case as launched; `None` without an option for it.
    pub case: Option<Case>,
    /// Number of the run in its case, from 1.
    pub run: u32,
    pub profile: RunProfile,
}

/// Environment of one rank while its benchmark runs.
pub struct Session<'a> {
    pub world: &'a World,
    /// Device of this rank.
    pub own: DeviceOfRank,
    /// NCCL, if this rank uses a GPU.
    pub nccl: Option<Arc<Nccl>>,
    /// NVRTC if this process can use CUDA and has it.
    pub compiler: Option<CompilerLibrary>,
    /// Log file of NCCL, if requested.
    nccl_log: NcclLog,
}

impl Session<'_> {
    /// Runs one rank from start to end: joins the other ranks, runs `benchmark`, disconnects. The benchmark returns the
    /// reason why its run is invalid, if any.
    pub fn run(request: SessionRequest, benchmark: impl FnOnce(&Session) -> Result<Option<String>>) -> Result<()> {
        let SessionRequest { device, cores, nccl, with_nccl_log, computes, launcher, servers } = request;
        // First of all: NCCL and libtorch read their environment only once.
        library_defaults::silence_profiler(device);
        nccl.map_or(Ok(()), |algorithm| library_defaults::choose_algorithm(device, algorithm))?;
        let nccl_log = NcclLog::new(device, with_nccl_log);
        heartbeat::begin(launcher);
        let cuda = cuda::load(device);
        let number = servers.as_ref().map_or(0, |servers| servers.number);
        World::run(number, |world| {
            if let (Role::Server, Some(servers)) = (world.role(), servers) {
                cores.for_server().bind(world, None)?;
                (servers.body)(world)?;
                return Ok(None);
            }
            let own = DeviceOfRank::choose(device, cores, world, cuda.as_ref(), computes)?;
            let nccl = own.nccl(cuda.as_ref())?;
            if own.kind == DeviceKind::Cpu && computes {
                limit_memory(world);
                let name = world.name();
                exit::set_crash_handler(move || {
                    if let Some(shortage) = memory::shortage_behind_crash() {
                        world::exit_immediately(&name, &shortage.to_string(), Some(shortage.shortage));
                    }
                });
            }
            let device = own.device;
            let compiler = cuda.as_ref().ok().and_then(|cuda| cuda.compiler);
            benchmark(&Session { world, own, nccl, compiler, nccl_log }).map_err(|error| memory::named(error, device))
        })
    }

    /// Returns the device as libtorch represents it.
    pub fn device(&self) -> Device {
        self.own.device
    }

    pub fn print(&self, lines: &[String]) {
        if self.world.rank() == 0 {
            lines.iter().for_each(|line| println!("{}", printable_lines(line)));
        }
    }

    /// Writes a file atomically on rank 0, if `path` is given.
    pub fn write(&self, path: Option<&Path>, content: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
        match path {
            Some(path) if self.world.rank() == 0 => atomic_file::write(path, content),
            _ => Ok(()),
        }
    }

    /// Returns the location of every rank. All ranks call this together.
    pub fn places(&self) -> Result<Vec<RankPlace>> {
        environment::places(self.world, &self.own)
    }

    /// Describes the machine, the libraries and the variables of this rank.
    pub fn environment(&self) -> Result<Environment> {
        environment::environment(&self.own, self.nccl.as_deref())
    }

    /// Returns the label of the run for its record. The case is the requested one, or follows from the hosts of the
    /// ranks.
    pub fn label(&self, requested: RequestedLabel, places: &[RankPlace]) -> Result<RunLabel> {
        let RequestedLabel { case, run, profile } = requested;
        let ranks = self.world.ranks();
        if let Some(case) = case {
            // If launcher and MPI library do not work together, each rank is a separate job with a run of its own.
            ensure!(
                case.ranks() == ranks,
                "case {case} has {} ranks, but MPI started {ranks}: use the mpirun of the MPI library that \
                 ringmark-worker links (see ldd), or srun with its PMIx",
                case.ranks()
            );
        }
        let nodes = places.iter().filter(|place| place.local_rank == 0).count() as u32;
        let found = Case { nodes, gpus_per_node: ranks.div_ceil(nodes) };
        Ok(RunLabel { case: case.unwrap_or(found), run, profile })
    }

    /// Reads the counters of host and rank for the first time. All ranks call this together, right before the timed
    /// part.
    pub fn start_counters(&self) -> Result<HostWatch> {
        HostWatch::start(self.world, &self.own)
    }

    /// Reads the counters again. All ranks call this together, right after the timed part.
    pub fn end_counters(&self, watch: HostWatch) -> Result<CountersOfRun> {
        watch.end(self.world, &self.own)
    }

    /// Returns what NCCL logged about its choices and connections, one line per fact, without duplicates. Rank 0 logs
    /// the choices and each rank its own connections. All ranks call this together, once, after the last sum.
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

    /// Resets [`peak_memory`](Session::peak_memory), because warm-up takes memory that is not needed later, such as
    /// cuDNN's search for the fastest kernels, or the whole weights before they are divided among the ranks.
    pub fn reset_peak_memory(&self) -> Result<()> {
        match self.device() {
            Device::Cuda(index) => shim::reset_peak_memory(index),
            _ => {
                facts::reset_peak_resident();
                Ok(())
            }
        }
    }

    /// Returns the peak memory of every rank: memory of tensors on CUDA, resident memory on the CPU. All ranks call
    /// this together.
    pub fn peak_memory(&self) -> Result<Vec<Bytes>> {
        let own = match self.device() {
            Device::Cuda(index) => Bytes(shim::peak_memory(index)?),
            _ => facts::peak_resident(),
        };
        let all = self.world.gather(&[own.0 as f64]).concat();
        Ok(all.into_iter().map(|bytes| Bytes(bytes as u64)).collect())
    }
}
