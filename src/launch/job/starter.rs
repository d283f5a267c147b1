//! What starts the ranks of a job, and what differs in how it ends. The command lines are in [`mpirun`] and [`slurm`].

use anyhow::{Context, anyhow};
use ringmark_record::dimension::device::DeviceChoice;
use ringmark_record::options::usage::usage;

use crate::launch::cluster::hosts::Hosts;
use crate::launch::job::mpirun;
use crate::launch::job::request::JobRequest;
use crate::launch::job::slurm::{self, Allocation, GpusOfStep};
use crate::launch::local::environment::LaunchEnvironment;

/// What starts the ranks of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starter {
    /// mpirun, which reaches other hosts by ssh.
    Mpirun,
    /// srun with PMIx, inside an allocation of Slurm.
    Slurm(GpusOfStep),
}

/// The values of `--launcher`.
pub const NAMES: [&str; 2] = ["mpirun", SLURM];

const SLURM: &str = "slurm";

/// What `name` of [`NAMES`] stands for, and where it runs: on the hosts that were given, or on those of the allocation of
/// Slurm. Nobody says in `None`.
pub fn choose(
    name: &str,
    given: Option<Hosts>,
    device: DeviceChoice,
    environment: &LaunchEnvironment,
) -> anyhow::Result<(Starter, Option<Hosts>)> {
    if name != SLURM {
        return Ok((Starter::Mpirun, given));
    }
    // A dry run may be elsewhere; what GPUs Slurm has is not known there.
    if given.is_some() && slurm::job_number(environment).is_err() {
        return Ok((Starter::Slurm(GpusOfStep::Unknown), given));
    }
    let allocation = Allocation::read(environment)?;
    let hosts = given.map_or_else(|| allocation.hosts(device), Ok)?;
    Ok((Starter::Slurm(allocation.gpus(device)), Some(hosts)))
}

impl Starter {
    /// The program, as messages call it.
    pub fn program(self) -> &'static str {
        match self {
            Starter::Mpirun => "mpirun",
            Starter::Slurm(_) => "srun",
        }
    }

    /// The command line that launches `job`.
    pub fn command_line(self, job: &JobRequest, environment: &LaunchEnvironment) -> Vec<String> {
        match self {
            Starter::Mpirun => mpirun::command_line(job, environment),
            Starter::Slurm(gpus) => slurm::command_line(job, gpus, environment),
        }
    }

    /// The command line with `variable` passed on to every rank from the starter's own environment.
    pub fn passing(self, command_line: &[String], variable: &str) -> Vec<String> {
        let mut line = command_line.to_vec();
        // srun passes on all that it has.
        if self == Starter::Mpirun {
            line.splice(1..1, ["-x".to_owned(), variable.to_owned()]);
        }
        line
    }

    /// Refuses what cannot start a job here.
    pub fn check(self, environment: &LaunchEnvironment) -> anyhow::Result<()> {
        let fix = match self {
            Starter::Mpirun => "install Open MPI (scripts/setup.sh, or apt-get install openmpi-bin)",
            Starter::Slurm(_) => {
                slurm::job_number(environment)?;
                "put Slurm's commands on PATH (apt-get install slurm-client)"
            }
        };
        let program = self.program();
        environment.find(program).map(|_| ()).with_context(|| format!("{program} is not on PATH: {fix}"))
    }

    /// Whether it reaches other hosts by ssh, and so may we.
    pub fn uses_ssh(self) -> bool {
        self == Starter::Mpirun
    }

    /// Whether its ranks are to run on GPUs for sure.
    pub fn asks_for_gpus(self) -> bool {
        self == Starter::Slurm(GpusOfStep::OneARank)
    }

    /// Whether a process in the program's own group ends the ranks of all hosts when the program is gone: it must not be
    /// killed with it, and takes a moment.
    pub fn has_watcher(self) -> bool {
        matches!(self, Starter::Slurm(_))
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
