//! Plans jobs: finds the programs, knows the hosts of all cases, and makes each job's command line. Not for which jobs
//! there are, nor for running them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{anyhow, ensure};
use ringmark_core::benchmark::kv_store::KvStoreConfig;
use ringmark_core::dimension::{Bytes, Case, DeviceChoice};
use ringmark_core::options::usage::usage;

use crate::launch::cluster::hosts::{self, Host, Hosts};
use crate::launch::cluster::interface::InterfaceChoice;
use crate::launch::cluster::remote::Remote;
use crate::launch::cluster::slots::Processors;
use crate::launch::cluster::ssh::SshOptions;
use crate::launch::cluster::sync::Sync;
use crate::launch::job::request::{Job, JobFiles, ServerRanks, StarterOptions};
use crate::launch::job::starter::Starter;
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::local::interrupt::Interrupt;
use crate::launch::local::worker::find_worker;

/// How long a host may take for an answer when a job on it has failed.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Where and how the jobs of a command run.
#[derive(Debug, Clone, PartialEq)]
pub struct LaunchConfig {
    /// Where to run.
    pub hosts: Hosts,
    /// Processors of the hosts that were asked, by name.
    pub processors: BTreeMap<String, Processors>,
    /// Where servers run, in turn; on the ranks' hosts where there are none.
    pub server_hosts: Vec<String>,
    /// Longest time of a job; one that takes longer has failed.
    pub timeout: Option<Duration>,
    /// Longest time without progress of any rank; a job that hangs longer has failed.
    pub stall_timeout: Option<Duration>,
    /// The worker, where it is not the one beside this program or on `PATH`.
    pub worker: Option<PathBuf>,
    /// What starts the ranks.
    pub starter: Starter,
    /// What the user set about it.
    pub options: StarterOptions,
    /// How ssh reaches the hosts.
    pub ssh: SshOptions,
    /// What the ranks are to use.
    pub device: DeviceChoice,
    /// Folder on every host to which the worker and its libraries are copied first, and where jobs run it.
    pub sync: Option<PathBuf>,
    /// Print the command lines instead of running them.
    pub dry_run: bool,
    /// The file of options that a dry run writes, where one is asked for.
    pub save_config: Option<SavedConfig>,
    /// Look at the hosts first, and choose the network that joins them.
    pub doctor: bool,
    /// Where the running job's metrics are served, if they are.
    pub metrics: Option<SocketAddr>,
    /// Ranks that have a place of their own in progress file and metrics.
    pub watched_ranks: usize,
}

impl LaunchConfig {
    /// Servers of `kv_store`, each of which needs so much memory; none of the job's processes goes on without another.
    pub fn servers(&self, kv_store: KvStoreConfig, memory: Bytes) -> ServerRanks {
        let (number, hosts) = (kv_store.server_ranks(), self.server_hosts.clone());
        ServerRanks { number, hosts, may_lose_ranks: false, memory }
    }
}

/// A file that holds the options of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedConfig {
    /// Where it goes.
    pub path: PathBuf,
    /// TOML.
    pub text: String,
}

/// Plans jobs, all of them with one worker.
pub struct Launcher<'a> {
    config: &'a LaunchConfig,
    /// The configuration's, and what was found out since.
    options: StarterOptions,
    environment: LaunchEnvironment,
    /// On this machine.
    worker: PathBuf,
    sync: Option<Sync>,
    /// All hosts that were given, and the servers' own.
    hosts: Vec<Host>,
}

impl Launcher<'_> {
    /// Refuses cases that do not fit the hosts; finds the worker.
    pub fn new<'a>(config: &'a LaunchConfig, cases: &[Case]) -> anyhow::Result<Launcher<'a>> {
        config.hosts.check(cases).map_err(usage)?;
        let environment = LaunchEnvironment::read();
        let under_mpirun = "ringmark starts the ranks itself: run it without mpirun";
        ensure!(!environment.is_rank, usage(anyhow!(under_mpirun)));
        if !config.dry_run {
            config.starter.check(&environment)?;
        }
        let worker = find_worker(config.worker.as_deref(), &environment)?;
        let sync = config.sync.as_ref().map(|folder| Sync::plan(folder, &worker, config.device)).transpose()?;
        let hosts = hosts::with_server_hosts(config.hosts.all(), &config.server_hosts);
        Ok(Launcher { config, options: config.options.clone(), environment, worker, sync, hosts })
    }

    /// Returns the job of `case` that runs the worker with `arguments`, without servers.
    pub fn job(&self, case: Case, arguments: &[String], files: &JobFiles) -> Job<'_> {
        let mut program = vec![self.program().display().to_string()];
        program.extend_from_slice(arguments);
        Job {
            case,
            hosts: self.config.hosts.of(case),
            options: &self.options,
            ssh_port: self.config.ssh.port,
            threads: None,
            servers: ServerRanks::default(),
            program,
            files: files.clone(),
            environment: &self.environment,
        }
    }

    /// Returns what `line` prints on the host of a process of `job`, a rank or a server; `None` if it fails, or if ssh does not
    /// lead there.
    pub fn ask(&self, job: &Job, process: u32, line: &[&str], interrupt: &Interrupt) -> Option<String> {
        let name = (*job.hosts_of_all().get(process as usize)?).to_owned();
        let remote = Remote::new(&Host { name, slots: 1 }, &self.config.ssh, &self.environment);
        if !remote.is_here() && !self.config.starter.uses_ssh() {
            return None;
        }
        let answer = remote.run(line, b"", ANSWER_LIMIT, interrupt).ok()?;
        Some(answer.stdout)
    }

    /// What ranks run on their hosts: the worker, or its copy there.
    pub fn program(&self) -> &Path {
        self.sync.as_ref().map_or(&self.worker, Sync::worker)
    }

    /// What [`copy_worker`](Launcher::copy_worker) would run.
    pub fn copy_commands(&self) -> Vec<String> {
        let Launcher { config, environment, hosts, .. } = self;
        self.sync.as_ref().map(|sync| sync.command_lines(hosts, &config.ssh, environment)).unwrap_or_default()
    }

    /// Copies the worker to all hosts where `--sync` asks for it; `report` gets a line for each host.
    pub fn copy_worker(
        &self,
        interrupt: &Interrupt,
        report: impl Fn(&str) + Send + std::marker::Sync,
    ) -> anyhow::Result<()> {
        let Launcher { config, environment, hosts, .. } = self;
        let Some(sync) = &self.sync else { return Ok(()) };
        sync.run(hosts, &config.ssh, environment, interrupt, report)
    }

    /// The worker on this machine.
    pub fn worker(&self) -> &Path {
        &self.worker
    }

    /// What mpirun or srun gets.
    pub fn options(&self) -> &StarterOptions {
        &self.options
    }

    /// What this process was started with and in.
    pub fn environment(&self) -> &LaunchEnvironment {
        &self.environment
    }

    /// All hosts that any case uses, those of servers included.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Has the jobs that are planned from now on use `interface`; NCCL as well, unless the user gave it its own.
    pub fn use_interface(&mut self, interface: InterfaceChoice) {
        const OWN: &str = "NCCL_SOCKET_IFNAME";
        if self.config.options.interface.is_none() && self.environment.variables.iter().any(|name| name == OWN) {
            let settings = ["btl_tcp_if_include", "oob_tcp_if_include"];
            let settings = settings.map(|name| ["-mca".to_owned(), name.to_owned(), interface.to_string()]);
            self.options.arguments.extend(settings.concat());
        } else {
            self.options.interface = Some(interface);
        }
    }
}
