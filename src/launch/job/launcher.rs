//! Plans jobs: finds the programs, resolves the hosts of all cases, and builds each job's command line.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use ringmark_core::benchmark::strategy::StrategyConfig;
use ringmark_core::dimension::{Bytes, Case, DeviceChoice};
use ringmark_core::host::HostLoad;
use ringmark_core::number_text::count;
use ringmark_core::options::usage::usage;

use crate::launch::cluster::hosts::{self, Host, Hosts};
use crate::launch::cluster::interface::InterfaceChoice;
use crate::launch::cluster::remote::{Remote, SshOptions};
use crate::launch::cluster::slots::Processors;
use crate::launch::cluster::sync::{CopyFailure, Sync};
use crate::launch::job::job_launch::{JobFiles, JobLaunch, ServerRanks, StarterOptions};
use crate::launch::job::starter::Starter;
use crate::launch::job::watch::UnstartedHost;
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::local::interrupt::Interrupt;
use crate::launch::local::open_mpi::OpenMpi;
use crate::launch::local::worker::find_worker;

/// Timeout for a reply from a host after a job on it has failed.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Hosts and launch settings of a command's jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct LaunchConfig {
    /// Hosts for the ranks.
    pub hosts: Hosts,
    /// Processors of the hosts that were queried, by host name.
    pub processors: BTreeMap<String, Processors>,
    /// Hosts of the servers, assigned round-robin; the ranks' hosts if empty.
    pub server_hosts: Vec<String>,
    /// Time limit of a job, after which it fails.
    pub timeout: Option<Duration>,
    /// Longest time without progress of any rank, after which the job fails.
    pub stall_timeout: Option<Duration>,
    /// Path of the worker, if it is not next to this program or on `PATH`.
    pub worker: Option<PathBuf>,
    /// Starter of the ranks.
    pub starter: Starter,
    /// User's options for the starter.
    pub options: StarterOptions,
    /// Options for ssh.
    pub ssh: SshOptions,
    /// Device that the ranks are to use.
    pub device: DeviceChoice,
    /// Folder on every host to which the worker and its libraries are copied first, and from which jobs run it.
    pub sync: Option<PathBuf>,
    /// True to print the command lines instead of running them.
    pub dry_run: bool,
    /// True if a dry run prints all command lines instead of the first one.
    pub is_verbose: bool,
    /// Number of GPUs listed for every host, if there is a list and the ranks may use GPUs.
    pub listed_gpus: Option<u32>,
    /// Line of a plan about the number of slots of this machine, if it is not that of its processors.
    pub slots_line: Option<String>,
    /// Option file that a dry run writes, if requested.
    pub save_config: Option<SavedConfig>,
    /// True to check the hosts first, and to choose the network that connects them.
    pub doctor: bool,
    /// Address on which the running job's metrics are served, if requested.
    pub metrics: Option<SocketAddr>,
    /// Maximum number of ranks listed individually in the progress file and the metrics.
    pub watched_ranks: usize,
}

impl LaunchConfig {
    /// Returns a configuration without anything optional: no limits, server hosts, copies, checks or additional output.
    pub fn new(hosts: Hosts, starter: Starter, ssh: SshOptions, device: DeviceChoice) -> LaunchConfig {
        LaunchConfig {
            hosts,
            processors: BTreeMap::new(),
            server_hosts: Vec::new(),
            timeout: None,
            stall_timeout: None,
            worker: None,
            starter,
            options: StarterOptions::default(),
            ssh,
            device,
            sync: None,
            dry_run: false,
            is_verbose: false,
            listed_gpus: None,
            slots_line: None,
            save_config: None,
            doctor: false,
            metrics: None,
            watched_ranks: usize::MAX,
        }
    }

    /// Rejects a case with more ranks per host than listed GPUs.
    fn check_gpus(&self, cases: &[Case]) -> anyhow::Result<()> {
        let Some(listed) = self.listed_gpus else { return Ok(()) };
        let Some(case) = cases.iter().find(|case| case.gpus_per_node > listed) else { return Ok(()) };
        let ranks = case.gpus_per_node;
        bail!(
            "--gpus lists {}, but case {case} has {ranks} ranks on each host: list {ranks}, or choose cases with at most \
             {listed}",
            count(listed, "GPU")
        )
    }

    /// Returns the servers of `strategy`, each of which needs `memory`; no process of the job continues without the
    /// others.
    pub fn servers(&self, strategy: StrategyConfig, memory: Bytes) -> ServerRanks {
        let (number, hosts) = (strategy.server_ranks(), self.server_hosts.clone());
        ServerRanks { number, hosts, may_lose_ranks: false, memory }
    }
}

/// A file that holds the options of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedConfig {
    /// Path of the file.
    pub path: PathBuf,
    /// Content, in TOML.
    pub text: String,
}

/// Plans jobs, all with the same worker.
pub struct Launcher<'a> {
    config: &'a LaunchConfig,
    /// Options from the configuration, and settings found since.
    options: StarterOptions,
    environment: LaunchEnvironment,
    /// Path on this machine.
    worker: PathBuf,
    sync: Option<Sync>,
    /// All given hosts, and the servers' own.
    hosts: Vec<Host>,
    /// Loads of the hosts on which other programs ran before the first job.
    busy: Vec<HostLoad>,
}

impl Launcher<'_> {
    /// Checks that the cases fit the hosts, and finds the worker.
    pub fn new<'a>(config: &'a LaunchConfig, cases: &[Case]) -> anyhow::Result<Launcher<'a>> {
        let checked = config.hosts.check(cases, config.device).and_then(|()| config.check_gpus(cases));
        checked.map_err(|error| match &config.slots_line {
            Some(line) => usage(anyhow!("{error:#} ({line})")),
            None => usage(error),
        })?;
        let mut environment = LaunchEnvironment::read();
        environment.open_mpi =
            environment.find("mpirun").map_or(OpenMpi::default(), |mpirun| OpenMpi::of_program(&mpirun));
        let under_mpirun = "ringmark starts the ranks itself: run it without mpirun";
        ensure!(!environment.is_rank, usage(anyhow!(under_mpirun)));
        if !config.dry_run {
            config.starter.check(&environment)?;
        }
        let worker = find_worker(config.worker.as_deref(), &environment)?;
        let sync = config.sync.as_ref().map(|folder| Sync::plan(folder, &worker, config.device)).transpose()?;
        let hosts = hosts::with_server_hosts(config.hosts.all(), &config.server_hosts);
        let (options, busy) = (config.options.clone(), Vec::new());
        Ok(Launcher { config, options, environment, worker, sync, hosts, busy })
    }

    /// Returns the job of `case` on `hosts`, one for each node, that runs the worker with `arguments`, without servers.
    pub fn job<'a>(&'a self, case: Case, hosts: &'a [Host], arguments: &[String], files: &JobFiles) -> JobLaunch<'a> {
        let mut program = vec![self.program().display().to_string()];
        program.extend_from_slice(arguments);
        JobLaunch {
            case,
            hosts,
            options: &self.options,
            ssh_port: self.config.ssh.port,
            threads: None,
            servers: ServerRanks::default(),
            program,
            files: files.clone(),
            environment: &self.environment,
            busy: &self.busy,
            restarts: None,
        }
    }

    /// Returns true if commands can run on the other hosts: by ssh, or as tasks of a scheduler.
    pub fn can_query(&self) -> bool {
        self.config.starter.uses_ssh() || self.config.ssh.task.is_some()
    }

    /// Returns the output of `line` on the host of a process of `job`, a rank or a server; `None` if it fails, or if
    /// ssh does not reach that host.
    pub fn query_host(&self, job: &JobLaunch, process: u32, line: &[&str], interrupt: &Interrupt) -> Option<String> {
        let name = (*job.process_hosts().get(process as usize)?).to_owned();
        let remote = Remote::new(&Host { name, slots: 1 }, &self.config.ssh, &self.environment);
        if !remote.is_here() && !self.can_query() {
            return None;
        }
        let answer = remote.run(line, b"", QUERY_TIMEOUT, interrupt).ok()?;
        Some(answer.stdout)
    }

    /// Returns true if a command ran on `host`, or if commands cannot run there because the starter does not use ssh.
    pub fn answers(&self, host: &Host, interrupt: &Interrupt) -> bool {
        let answer = |remote: Remote| remote.run(&["true"], b"", QUERY_TIMEOUT, interrupt);
        self.queried(host).is_none_or(|remote| answer(remote).is_ok_and(|answer| answer.is_success()))
    }

    /// Returns another host than this machine, if commands can run there.
    fn queried(&self, host: &Host) -> Option<Remote> {
        let remote = Remote::new(host, &self.config.ssh, &self.environment);
        (!remote.is_here() && self.can_query()).then_some(remote)
    }

    /// Returns the message of a scheduler that cannot start a task on `host`.
    pub fn start_failure(&self, host: &Host, interrupt: &Interrupt) -> Option<String> {
        let answer = self.queried(host)?.run(&["true"], b"", QUERY_TIMEOUT, interrupt).ok()?;
        answer.stderr.lines().find_map(UnstartedHost::parse).map(|host| host.description().to_owned())
    }

    /// Returns true if `file` exists on `host`, as far as commands can run there.
    pub fn has_file(&self, host: &Host, file: &Path, interrupt: &Interrupt) -> bool {
        let Some(remote) = self.queried(host) else { return file.exists() };
        let line = ["test", "-e", &file.display().to_string()];
        remote.run(&line, b"", QUERY_TIMEOUT, interrupt).is_ok_and(|answer| answer.is_success())
    }

    /// Returns the path that ranks run on their hosts: the worker, or its copy there.
    pub fn program(&self) -> &Path {
        self.sync.as_ref().map_or(&self.worker, Sync::worker)
    }

    /// Returns the commands that [`copy_worker`](Launcher::copy_worker) would run.
    pub fn copy_commands(&self) -> Vec<String> {
        let Launcher { config, environment, hosts, .. } = self;
        self.sync
            .as_ref()
            .map(|sync| sync.command_lines(hosts, &config.ssh.without_task(), environment))
            .unwrap_or_default()
    }

    /// Copies the worker to all hosts if `--sync` is given; `report` gets a line for each host.
    pub fn copy_worker(
        &self,
        interrupt: &Interrupt,
        report: impl Fn(&str) + Send + std::marker::Sync,
    ) -> anyhow::Result<()> {
        self.copy_worker_to(&self.hosts, interrupt, report)
    }

    /// Copies the worker to `hosts`, which need not be among those of any case.
    pub fn copy_worker_to(
        &self,
        hosts: &[Host],
        interrupt: &Interrupt,
        report: impl Fn(&str) + Send + std::marker::Sync,
    ) -> anyhow::Result<()> {
        CopyFailure::refuse(&self.failed_copies(hosts, interrupt, report)?)
    }

    /// Copies the worker as [`copy_worker_to`](Launcher::copy_worker_to), but returns the failures.
    pub fn failed_copies(
        &self,
        hosts: &[Host],
        interrupt: &Interrupt,
        report: impl Fn(&str) + Send + std::marker::Sync,
    ) -> anyhow::Result<Vec<CopyFailure>> {
        let Launcher { config, environment, .. } = self;
        let Some(sync) = &self.sync else { return Ok(Vec::new()) };
        sync.run(hosts, &config.ssh.without_task(), environment, interrupt, report)
    }

    /// Returns the path of the worker on this machine.
    pub fn worker(&self) -> &Path {
        &self.worker
    }

    /// Returns the options of mpirun or srun.
    pub fn options(&self) -> &StarterOptions {
        &self.options
    }

    /// Returns the environment and options of this process.
    pub fn environment(&self) -> &LaunchEnvironment {
        &self.environment
    }

    /// Returns all hosts that any case uses, including those of servers.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Records in later jobs that other programs ran on these hosts before the first job.
    pub fn set_busy(&mut self, busy: Vec<HostLoad>) {
        self.busy = busy;
    }

    /// Makes later jobs use `interface`; NCCL too, unless the user set its own variable.
    pub fn use_interface(&mut self, interface: InterfaceChoice) {
        const OWN: &str = "NCCL_SOCKET_IFNAME";
        if self.config.options.interface.is_none() && self.environment.variables.iter().any(|name| name == OWN) {
            let settings = [["-mca", "btl_tcp_if_include"], self.environment.open_mpi.daemon_interface()];
            let settings = settings.map(|[option, name]| [option.to_owned(), name.to_owned(), interface.to_string()]);
            self.options.arguments.extend(settings.concat());
        } else {
            self.options.interface = Some(interface);
        }
    }
}
