//! What starts the ranks of a job, and what differs in how it ends. The command lines are in [`mpirun`] and [`slurm`], the
//! hosts of a job of Grid Engine in [`gridengine`].

use anyhow::{Context, anyhow};
use ringmark_core::dimension::DeviceChoice;
use ringmark_core::options::usage::usage;

use crate::launch::cluster::hosts::Hosts;
use crate::launch::job::gridengine;
use crate::launch::job::mpirun::{self, RemoteShell};
use crate::launch::job::request::{Job, ServerRanks};
use crate::launch::job::slurm::{self, Allocation, GpusOfStep};
use crate::launch::local::environment::LaunchEnvironment;

/// What starts the ranks of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starter {
    /// mpirun, which reaches other hosts by ssh.
    Mpirun,
    /// srun with PMIx, inside an allocation of Slurm.
    Slurm(GpusOfStep),
    /// mpirun, which reaches other hosts by qrsh, inside a job of Grid Engine.
    GridEngine,
}

/// The values of `--launcher`.
pub const NAMES: [&str; 3] = [MPIRUN, SLURM, GRID_ENGINE];

/// That of [`Starter::Mpirun`].
pub const MPIRUN: &str = "mpirun";

const SLURM: &str = "slurm";
const GRID_ENGINE: &str = "gridengine";

/// What `name` of [`NAMES`] stands for, and where it runs: on the hosts that were given, or on those that Slurm or Grid
/// Engine gave this job. Nobody says in `None`.
pub fn choose(
    name: &str,
    given: Option<Hosts>,
    device: DeviceChoice,
    environment: &LaunchEnvironment,
) -> anyhow::Result<(Starter, Option<Hosts>)> {
    // A dry run may be elsewhere.
    let is_elsewhere = |inside: bool| given.is_some() && !inside;
    match name {
        // What GPUs Slurm has is not known there.
        SLURM if is_elsewhere(slurm::job_number(environment).is_ok()) => {
            Ok((Starter::Slurm(GpusOfStep::Unknown), given))
        }
        SLURM => {
            let allocation = Allocation::read(environment)?;
            let hosts = given.map_or_else(|| allocation.hosts(device), Ok)?;
            Ok((Starter::Slurm(allocation.gpus(device)), Some(hosts)))
        }
        GRID_ENGINE if is_elsewhere(gridengine::check(environment).is_ok()) => Ok((Starter::GridEngine, given)),
        GRID_ENGINE => Ok((Starter::GridEngine, Some(gridengine::hosts(environment, given)?))),
        _ => Ok((Starter::Mpirun, given)),
    }
}

impl Starter {
    /// The program, as messages call it.
    pub fn program(self) -> &'static str {
        match self {
            Starter::Mpirun | Starter::GridEngine => "mpirun",
            Starter::Slurm(_) => "srun",
        }
    }

    /// The command line that launches `job`.
    pub fn command_line(self, job: &Job) -> Vec<String> {
        match self {
            Starter::Mpirun => mpirun::command_line(job, RemoteShell::Ssh),
            Starter::GridEngine => mpirun::command_line(job, RemoteShell::Qrsh),
            Starter::Slurm(gpus) => slurm::command_line(job, gpus),
        }
    }

    /// The command line with `variable` passed on to every rank from the starter's own environment.
    pub fn passing(self, command_line: &[String], variable: &str) -> Vec<String> {
        let mut line = command_line.to_vec();
        match self {
            Starter::Mpirun | Starter::GridEngine => {
                line.splice(1..1, ["-x".to_owned(), variable.to_owned()]);
            }
            // srun passes on all that it has.
            Starter::Slurm(_) => {}
        }
        line
    }

    /// Refuses what cannot start a job here.
    pub fn check(self, environment: &LaunchEnvironment) -> anyhow::Result<()> {
        const OPEN_MPI: (&str, &str) =
            ("mpirun", "install Open MPI (scripts/setup.sh, or apt-get install openmpi-bin)");
        let needed = match self {
            Starter::Mpirun => vec![OPEN_MPI],
            Starter::Slurm(_) => {
                slurm::job_number(environment)?;
                vec![("srun", "put Slurm's commands on PATH (apt-get install slurm-client)")]
            }
            Starter::GridEngine => {
                gridengine::check(environment)?;
                vec![OPEN_MPI, ("qrsh", "put Grid Engine's commands on PATH (apt-get install gridengine-client)")]
            }
        };
        for (program, fix) in needed {
            environment.find(program).with_context(|| format!("{program} is not on PATH: {fix}"))?;
        }
        Ok(())
    }

    /// Returns true if it takes many hosts of a job with such `servers` from a file; Slurm takes a compact list of hosts, but
    /// not of processes.
    pub fn reads_hostfile(self, servers: &ServerRanks) -> bool {
        self.program() == "mpirun" || servers.number > 0
    }

    /// Whether it reaches other hosts by ssh, and so may we.
    pub fn uses_ssh(self) -> bool {
        self == Starter::Mpirun
    }

    /// Whether its ranks are to run on GPUs for sure.
    pub fn asks_for_gpus(self) -> bool {
        self == Starter::Slurm(GpusOfStep::OneARank)
    }

    /// Whether a process that the program started ends the ranks of other hosts when the program is gone: it must not be
    /// killed with it, and takes a moment. Under Grid Engine that is Open MPI's daemon there, which goes with its qrsh.
    pub fn has_watcher(self) -> bool {
        matches!(self, Starter::Slurm(_) | Starter::GridEngine)
    }
}

/// `--launcher-args`, taken apart as a shell does.
pub fn split_arguments(texts: &[String]) -> anyhow::Result<Vec<String>> {
    let mut arguments = Vec::new();
    for text in texts {
        let split = shell_words::split(text);
        arguments.extend(split.map_err(|error| usage(anyhow!("--launcher-args {text:?}: {error}")))?);
    }
    Ok(arguments)
}
