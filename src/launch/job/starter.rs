//! Programs that start the ranks of a job. The command lines are in [`mpirun`] and [`slurm`], the hosts of a Grid
//! Engine job in [`gridengine`].

use anyhow::{Context, anyhow, ensure};
use ringmark_core::dimension::DeviceChoice;
use ringmark_core::keyword_enum;
use ringmark_core::options::usage::usage;

use crate::launch::cluster::hosts::Hosts;
use crate::launch::cluster::remote::{HOST, TaskCommand};
use crate::launch::job::gridengine;
use crate::launch::job::job_launch::{JobLaunch, ServerRanks};
use crate::launch::job::mpirun::{self, RemoteShell};
use crate::launch::job::slurm::{self, Allocation, StepGpus};
use crate::launch::local::environment::LaunchEnvironment;

/// Program that starts the ranks of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starter {
    /// mpirun, which reaches other hosts by ssh.
    Mpirun,
    /// srun with PMIx, inside a Slurm allocation.
    Slurm(StepGpus),
    /// mpirun, which reaches other hosts by qrsh, inside a Grid Engine job.
    GridEngine,
}

keyword_enum!(
    /// Value of `--launcher`, with the words of MXNet's launch.py.
    LauncherChoice {
        /// [`Starter::Mpirun`].
        Mpirun = "mpirun" | "mpi" | "ssh",
        /// [`Starter::Slurm`].
        Slurm = "slurm" | "srun",
        /// [`Starter::GridEngine`].
        GridEngine = "gridengine" | "sge",
    }
);

/// Returns the starter for `choice`, and the hosts: those `given`, or those that Slurm or Grid Engine assigned to this
/// job. `None` if neither is known.
pub fn choose(
    choice: LauncherChoice,
    given: Option<Hosts>,
    device: DeviceChoice,
    environment: &LaunchEnvironment,
) -> anyhow::Result<(Starter, Option<Hosts>)> {
    // A dry run may happen outside of the scheduler.
    let is_elsewhere = |inside: bool| given.is_some() && !inside;
    match choice {
        // The GPUs of Slurm's nodes are unknown outside of an allocation: a dry run assumes them.
        LauncherChoice::Slurm if is_elsewhere(slurm::job_number(environment).is_ok()) => {
            let gpus = if device == DeviceChoice::Cpu { StepGpus::None } else { StepGpus::OnePerRank };
            Ok((Starter::Slurm(gpus), given))
        }
        LauncherChoice::Slurm => {
            let allocation = Allocation::read(environment)?;
            let hosts = given.map_or_else(|| allocation.hosts(device), Ok)?;
            Ok((Starter::Slurm(allocation.gpus(device)), Some(hosts)))
        }
        LauncherChoice::GridEngine if is_elsewhere(gridengine::check(environment).is_ok()) => {
            Ok((Starter::GridEngine, given))
        }
        LauncherChoice::GridEngine => Ok((Starter::GridEngine, Some(gridengine::hosts(environment, given)?))),
        LauncherChoice::Mpirun => Ok((Starter::Mpirun, given)),
    }
}

impl Starter {
    /// Returns the name of the program.
    pub fn program(self) -> &'static str {
        match self {
            Starter::Mpirun | Starter::GridEngine => "mpirun",
            Starter::Slurm(_) => "srun",
        }
    }

    /// Returns true if mpirun starts the ranks, by its daemon on every host.
    pub fn runs_mpirun(self) -> bool {
        !matches!(self, Starter::Slurm(_))
    }

    /// Returns the command line that launches `job`.
    pub fn command_line(self, job: &JobLaunch) -> Vec<String> {
        match self {
            Starter::Mpirun => mpirun::command_line(job, RemoteShell::Ssh),
            Starter::GridEngine => mpirun::command_line(job, RemoteShell::Qrsh),
            Starter::Slurm(gpus) => slurm::command_line(job, gpus),
        }
    }

    /// Returns the command line with `variable` passed on to every rank from the starter's environment.
    pub fn with_variable(self, command_line: &[String], variable: &str) -> Vec<String> {
        let mut line = command_line.to_vec();
        match self {
            Starter::Mpirun | Starter::GridEngine => {
                line.splice(1..1, ["-x".to_owned(), variable.to_owned()]);
            }
            // srun passes on its whole environment.
            Starter::Slurm(_) => {}
        }
        line
    }

    /// Fails if the starter cannot start a job here.
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

    /// Fails if it does not allow these options.
    pub fn check_options(self, arguments: &[String], gpus: Option<&str>) -> anyhow::Result<()> {
        if let Starter::Slurm(_) = self {
            slurm::check_arguments(arguments)?;
            let fix = "request them from sbatch (--gpus-per-node)";
            ensure!(gpus.is_none(), usage(anyhow!("--gpus: Slurm assigns the GPUs: {fix}")));
        }
        Ok(())
    }

    /// Returns the hosts in the order of their ranks.
    pub fn in_rank_order(self, hosts: Hosts, environment: &LaunchEnvironment) -> anyhow::Result<Hosts> {
        match self {
            Starter::Slurm(_) => slurm::in_rank_order(hosts, environment),
            Starter::Mpirun | Starter::GridEngine => Ok(hosts),
        }
    }

    /// Returns the program that runs commands on other hosts.
    pub fn remote_program(self) -> &'static str {
        match self {
            Starter::Mpirun => "ssh",
            Starter::Slurm(_) => "srun",
            Starter::GridEngine => "qrsh",
        }
    }

    /// Returns true if a command removes a host from the scheduler's queues.
    pub fn has_drain_command(self) -> bool {
        matches!(self, Starter::Slurm(_))
    }

    /// Returns true if the scheduler ends everything once a job is started on a host that it no longer reaches: mpirun kills
    /// its daemons on the other hosts while they start, and Grid Engine then kills all.
    pub fn ends_with_lost_host(self) -> bool {
        self == Starter::GridEngine
    }

    /// Returns true if it takes a long list of hosts from a file. Slurm accepts a compact list of hosts, but not of
    /// processes.
    pub fn reads_hostfile(self, servers: &ServerRanks) -> bool {
        self.runs_mpirun() || servers.number > 0
    }

    /// Returns true if it reaches other hosts by ssh, which the launcher may then use as well.
    pub fn uses_ssh(self) -> bool {
        self == Starter::Mpirun
    }

    /// Returns the command that runs a shell command on a host of the scheduler's job.
    pub fn task_command(self, environment: &LaunchEnvironment) -> Option<TaskCommand> {
        let (words, is_for_this_machine) = match self {
            Starter::Mpirun => return None,
            Starter::Slurm(_) => (slurm::task_command(environment), true),
            // A task on this machine would need another slot.
            Starter::GridEngine => (["qrsh", "-inherit", HOST].map(str::to_owned).to_vec(), false),
        };
        Some(TaskCommand { words, is_for_this_machine })
    }

    /// Returns true if nothing is known about the hosts before a job starts: it needs no scheduler, or this process does
    /// not run in a job of the scheduler.
    pub fn is_outside_of_a_job(self, environment: &LaunchEnvironment) -> bool {
        match self {
            Starter::Mpirun => true,
            Starter::Slurm(_) => slurm::job_number(environment).is_err(),
            Starter::GridEngine => gridengine::check(environment).is_err(),
        }
    }

    /// Returns true if its ranks are certain to run on GPUs.
    pub fn requests_gpus(self) -> bool {
        self == Starter::Slurm(StepGpus::OnePerRank)
    }

    /// Returns true if a helper process of the starter ends the ranks on other hosts after the starter has ended: the
    /// helper must not be killed with it, and needs a moment. Under Grid Engine this is Open MPI's daemon, which ends
    /// with its qrsh.
    pub fn has_watcher(self) -> bool {
        matches!(self, Starter::Slurm(_) | Starter::GridEngine)
    }
}

/// Splits `--launcher-args` as a shell does.
pub fn split_arguments(texts: &[String]) -> anyhow::Result<Vec<String>> {
    let mut arguments = Vec::new();
    for text in texts {
        let split = shell_words::split(text);
        arguments.extend(split.map_err(|error| usage(anyhow!("--launcher-args {text:?}: {error}")))?);
    }
    Ok(arguments)
}
