//! Options for hosts and launching, shared by all commands that start jobs.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use clap::Args;
use ringmark_core::benchmark::exchange::{BackendChoice, ExchangeConfig};
use ringmark_core::dimension::{DeviceChoice, DeviceKind};
use ringmark_core::host::BindChoice;
use ringmark_core::options::clap_binding::keyword;
use ringmark_core::options::usage::usage;
use ringmark_core::options::value::{number, seconds};

use crate::launch::cluster::hosts::{Host, Hosts};
use crate::launch::cluster::interface::InterfaceChoice;
use crate::launch::cluster::remote::SshOptions;
use crate::launch::cluster::slots::{Processors, ProcessorsRequest};
use crate::launch::cluster::typed_hosts::TypedHosts;
use crate::launch::job::job_launch::StarterOptions;
use crate::launch::job::launcher::LaunchConfig;
use crate::launch::job::starter::{self, LauncherChoice};
use crate::launch::local::environment::LaunchEnvironment;
use crate::output::message::print_error;

/// Options that select hosts and the connection to them.
#[derive(Debug, Args)]
pub struct HostOptions {
    /// Launch method; mpirun over ssh, srun with PMIx inside an allocation of Slurm, or mpirun over qrsh inside a
    /// job of Grid Engine
    #[arg(long, value_name = "NAME", default_value = "mpirun", value_parser = keyword::<LauncherChoice>())]
    launcher: LauncherChoice,
    /// Hosts, such as a:8,b:8 or node[01-64]:8 [default: this machine]
    ///
    /// Without slots (a,b), a host takes one rank per GPU, or per core without GPUs, detected over ssh. A case takes the
    /// first hosts of the list
    /// [default: this machine, with one rank per GPU, or per core without GPUs; with --launcher slurm, the allocation's
    /// hosts with one rank per GPU; without GPUs, one per task, or one per CPU if no tasks were requested; with
    /// --launcher gridengine, the job's hosts, each with one rank per slot]
    #[arg(short = 'H', long, alias = "host", value_name = "HOST:SLOTS,..", value_parser = TypedHosts::parse)]
    hosts: Option<TypedHosts>,
    /// File of hosts, with lines such as `a slots=8`, instead of --hosts
    ///
    /// A line `node[01-64] slots=8` lists many hosts.
    #[arg(long, alias = "machinefile", value_name = "FILE", conflicts_with = "hosts")]
    hostfile: Option<PathBuf>,
    /// GPUs to use on every host, by index (from 0) or UUID, such as 0,2; not a count
    #[arg(long, value_name = "LIST", value_parser = gpu_list)]
    gpus: Option<String>,
    /// Network between the hosts, such as ib0 or 10.77.0.0/24
    ///
    /// Interface or network for mpirun, MPI and NCCL [default: the one by which the hosts reach each other]
    #[arg(long, value_name = "NAME|CIDR")]
    interface: Option<InterfaceChoice>,
    /// Port of sshd on the hosts
    #[arg(long, value_name = "PORT", default_value_t = 22, value_parser = number(1..=u16::MAX))]
    ssh_port: u16,
    /// Path of the worker, the same on every host [default: ringmark-worker next to this program, or on PATH]
    #[arg(long, value_name = "PATH")]
    worker: Option<PathBuf>,
    /// Copy the worker and its libraries to this folder of every host first
    ///
    /// Uses rsync; unchanged files are not copied. The ranks run the copy. With --device cpu, CUDA libraries are not copied.
    #[arg(long, alias = "sync-dst-dir", value_name = "FOLDER")]
    sync: Option<PathBuf>,
    /// More arguments for mpirun or srun, quoted as in a shell; may be repeated
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true, alias = "mpirun-args")]
    launcher_args: Vec<String>,
}

impl HostOptions {
    /// Returns the selected GPUs.
    pub(super) fn gpus(&self) -> Option<&str> {
        self.gpus.as_deref()
    }

    /// Fills in defaults: this machine gets as many ranks as `machine` has processors. Hosts without a number of ranks
    /// are queried as `query` says.
    pub(super) fn into_config(self, machine: &Machine, query: HostQuery) -> anyhow::Result<LaunchConfig> {
        let list = match (self.hosts, &self.hostfile) {
            (None, Some(file)) => Some(TypedHosts::read_file(file).map_err(usage)?),
            (hosts, _) => hosts,
        };
        let arguments = starter::split_arguments(&self.launcher_args)?;
        let ssh = SshOptions::new(self.ssh_port, &arguments, &machine.environment);
        // A scheduler provides the number of ranks per host, and ssh may not be available.
        let mut processors = BTreeMap::new();
        let found = match &list {
            Some(list) if query == HostQuery::None => vec![1; list.without_slots().len()],
            Some(list) if self.launcher == LauncherChoice::Mpirun => {
                let names = list.without_slots();
                let request = machine.request(&ssh);
                let found = match query {
                    HostQuery::Reachable => request.query_reachable(&names).map_err(usage)?,
                    HostQuery::All | HostQuery::None => {
                        request.query(&names).map_err(usage)?.into_iter().map(Some).collect()
                    }
                };
                let known = names.into_iter().map(str::to_owned).zip(&found);
                processors = known.filter_map(|(name, found)| Some((name, found.clone()?))).collect();
                let slots = found.iter().map(|found| found.as_ref().map(|found| found.slots(machine.device)));
                let most = slots.clone().flatten().max().unwrap_or(1);
                slots.map(|slots| slots.unwrap_or(most)).collect()
            }
            _ => Vec::new(),
        };
        let given = list.map(|list| list.into_hosts(found)).transpose().map_err(usage)?;
        let (starter, hosts) = starter::choose(self.launcher, given, machine.device, &machine.environment)?;
        starter.check_options(&arguments, self.gpus.as_deref())?;
        let options = StarterOptions { interface: self.interface, gpus: self.gpus, arguments };
        let (slots, slots_line) = machine.slots(&options);
        let slots_line = slots_line.filter(|_| hosts.is_none());
        let hosts = hosts.unwrap_or_else(|| Hosts::this_machine(slots));
        let config = LaunchConfig {
            processors,
            worker: self.worker,
            options,
            slots_line,
            sync: self.sync,
            // Slurm and Grid Engine can start ranks on hosts that ssh cannot reach.
            doctor: starter.uses_ssh(),
            ..LaunchConfig::new(hosts, starter, ssh, machine.device)
        };
        let listed_gpus = config.options.listed_gpus().filter(|_| !machine.is_known_to_use_cpu(&config));
        Ok(LaunchConfig { listed_gpus, ..config })
    }
}

/// Query for the number of ranks of hosts that were given without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostQuery {
    /// Each host gets one rank.
    None,
    /// Every host must reply.
    All,
    /// A host that does not reply gets as many ranks as the largest of the others.
    Reachable,
}

/// Options for jobs, shared by all commands that start them.
#[derive(Debug, Args)]
pub struct JobOptions {
    /// Host options.
    #[command(flatten)]
    hosts: HostOptions,
    /// End a run after this time, such as 90, 5m or 2h
    ///
    /// By default, accept ends a job after 10 minutes, and other commands have no limit.
    #[arg(long, value_name = "SECONDS", value_parser = seconds(1..=31_536_000))]
    timeout: Option<u64>,
    /// End a run without progress for this time; 0 disables the limit
    ///
    /// The message names the rank that hangs. The limit is tripled during startup. The minimum is 6.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = stall_timeout)]
    stall_timeout: u64,
    /// Print the plan and the first command, and start nothing
    #[arg(long)]
    dry_run: bool,
    /// Print every command of the plan, with --dry-run
    #[arg(long, requires = "dry_run")]
    verbose: bool,
    /// Skip the doctor, which checks the hosts first (`ringmark doctor --quick`); MPI and NCCL then choose their
    /// network themselves. With --launcher slurm or gridengine it is always skipped, except by accept
    #[arg(long)]
    no_doctor: bool,
}

impl JobOptions {
    /// Returns the selected GPUs.
    pub(super) fn gpus(&self) -> Option<&str> {
        self.hosts.gpus()
    }

    /// Returns true if the hosts may be examined first.
    pub(super) fn allows_doctor(&self) -> bool {
        !self.no_doctor
    }

    /// Fills in defaults: this machine gets as many ranks as `machine` has processors.
    pub(super) fn into_config(self, machine: &Machine, query: HostQuery) -> anyhow::Result<LaunchConfig> {
        let config = self.hosts.into_config(machine, query)?;
        Ok(LaunchConfig {
            timeout: self.timeout.map(Duration::from_secs),
            stall_timeout: (self.stall_timeout > 0).then(|| Duration::from_secs(self.stall_timeout)),
            dry_run: self.dry_run,
            is_verbose: self.verbose,
            doctor: config.doctor && !self.no_doctor,
            ..config
        })
    }
}

/// Options for launching, shared by all commands that run cases.
#[derive(Debug, Args)]
pub struct LaunchOptions {
    /// Job options.
    #[command(flatten)]
    jobs: JobOptions,
    /// Serve the metrics of the running job to Prometheus at http://127.0.0.1:PORT/metrics; 0 selects a free port and
    /// prints it
    #[arg(long, value_name = "PORT", value_parser = number(0..=u16::MAX))]
    metrics_port: Option<u16>,
    /// Address to serve the metrics on; 0.0.0.0 means all addresses of this machine. Any host that can connect can read
    /// the metrics
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), requires = "metrics_port")]
    metrics_bind: IpAddr,
    /// Maximum number of ranks that `ringmark watch` and the metrics show individually; larger jobs show silent and slow
    /// hosts, and sums over all ranks; 0 is no limit
    #[arg(long, value_name = "RANKS", default_value_t = WATCHED_RANKS, value_parser = number(0..=10_000_000_usize))]
    watch_ranks: usize,
}

/// Keeps the progress file below 200 kB, and the metrics below 1 MB.
const WATCHED_RANKS: usize = 512;

impl LaunchOptions {
    /// Returns the selected GPUs.
    pub(super) fn gpus(&self) -> Option<&str> {
        self.jobs.gpus()
    }

    /// Fills in defaults: this machine gets as many ranks as `machine` has processors.
    pub(super) fn into_config(self, machine: &Machine) -> anyhow::Result<LaunchConfig> {
        let config = self.jobs.into_config(machine, HostQuery::All)?;
        if let Some(gpus) = &config.options.gpus {
            // Other programs use this name for the number of GPUs.
            let number = gpus.parse().ok().filter(|number: &u32| *number > 0);
            if machine.is_known_to_use_cpu(&config) {
                let host = config.hosts.all().first().map_or("localhost", |host| &host.name);
                let tip = number.map(|number| {
                    format!("; for {number} ranks use --hosts {host}:{number} --cases 1n{number}g instead")
                });
                let tip = tip.unwrap_or_default();
                print_error(&format!("warning: --gpus {gpus} has no effect: the ranks use the CPU{tip}"));
            } else if let Some(number) = number {
                let shared = config.hosts.all().iter().find(|host| host.slots == number && number > 1);
                if let Some(Host { name, slots }) = shared {
                    return Err(usage(anyhow!(
                        "--gpus {gpus} is one GPU, number {gpus} from 0, for {slots} ranks of host {name}: omit --gpus, or \
                         list GPUs as in --gpus 0,1"
                    )));
                }
                print_error(&format!(
                    "note: --gpus {gpus} is GPU number {gpus} (from 0) of every host; for {number} GPUs use \
                     --cases 1n{number}g instead"
                ));
            }
        }
        Ok(LaunchConfig {
            watched_ranks: if self.watch_ranks > 0 { self.watch_ranks } else { usize::MAX },
            metrics: self.metrics_port.map(|port| SocketAddr::new(self.metrics_bind, port)),
            ..config
        })
    }
}

/// Parses a value of `CUDA_VISIBLE_DEVICES`. CUDA would ignore everything after an entry that it cannot parse.
fn gpu_list(text: &str) -> Result<String, String> {
    let is_gpu = |entry: &str| entry.starts_with("GPU-") || entry.starts_with("MIG-") || entry.parse::<u32>().is_ok();
    let entries: Vec<&str> = text.split(',').collect();
    let twice = entries.iter().enumerate().find(|(index, entry)| entries[..*index].contains(entry));
    match (entries.iter().all(|entry| is_gpu(entry)), twice) {
        (true, None) => Ok(text.to_owned()),
        (true, Some((_, entry))) => Err(format!("{entry} is listed twice")),
        _ => Err("list GPUs by number or UUID: 0,2".to_owned()),
    }
}

/// Parses the stall timeout. Values below 6 are invalid because a rank counts as silent after five seconds.
fn stall_timeout(text: &str) -> Result<u64, String> {
    let typed = seconds(0..=31_536_000)(text).ok().filter(|seconds| !(1..6).contains(seconds));
    typed.ok_or_else(|| "choose 6 to 31536000 seconds, also as 5m or 2h, or 0 to wait indefinitely".to_owned())
}

/// Options of mpirun and srun that bind ranks to processors, without dashes.
const BINDING_ARGUMENTS: [&str; 3] = ["bind-to", "cpu-bind", "cpu_bind"];

/// Properties of this machine that determine defaults.
pub(super) struct Machine {
    pub(super) environment: LaunchEnvironment,
    pub(super) device: DeviceChoice,
    processors: Processors,
}

impl Machine {
    /// Reads the properties; GPUs are detected only if `device` allows them, and only the selected `gpus` count.
    pub(super) fn read(device: DeviceChoice, gpus: Option<&str>) -> Machine {
        let mut environment = LaunchEnvironment::read();
        if gpus.is_some() {
            environment.visible_devices = gpus.map(str::to_owned);
        }
        let processors = Processors::for_this_machine(device, &environment);
        Machine { environment, device, processors }
    }

    /// Returns the number of slots of this machine. If it has no GPU, but ranks are to use GPUs, also returns a line for a
    /// plan.
    fn slots(&self, options: &StarterOptions) -> (u32, Option<String>) {
        let slots = self.processors.slots(self.device);
        if self.device != DeviceChoice::Cuda || self.processors.gpus > 0 {
            return (slots, None);
        }
        match options.listed_gpus() {
            Some(listed) => {
                (listed, Some(format!("slots: {listed} on this machine, from --gpus; its driver lists no GPU")))
            }
            None => (
                slots,
                Some(format!(
                    "slots: {slots} on this machine, one for each core, because its driver lists no GPU; for a host of 4 GPUs, \
                     add --hosts localhost:4"
                )),
            ),
        }
    }

    /// Queries the GPUs of the first host if mpirun will start ranks there, no device was chosen and its slots were not
    /// queried. A host that does not reply is left to the doctor.
    pub(super) fn query_first_host(&self, launch: &mut LaunchConfig) {
        let is_requested = launch.device == DeviceChoice::Auto && launch.starter.uses_ssh() && !launch.dry_run;
        if let Some(first) = self.other_first_host(launch).map(|host| host.name.clone())
            && is_requested
            && !launch.processors.contains_key(&first)
            && let Ok(processors) = self.request(&launch.ssh).query_one(&first)
        {
            launch.processors.insert(first, processors);
        }
    }

    /// Returns true if every case has ranks on this machine: it is the first host.
    pub(super) fn is_first_host(&self, launch: &LaunchConfig) -> bool {
        launch.hosts.all().first().is_some_and(|host| self.environment.is_here(&host.name))
    }

    /// Returns the first host, if it is another machine.
    fn other_first_host<'a>(&self, launch: &'a LaunchConfig) -> Option<&'a Host> {
        launch.hosts.all().first().filter(|host| !self.environment.is_here(&host.name))
    }

    /// Returns the processors of the first host, if it is another machine and has replied.
    fn first_host<'a>(&self, launch: &'a LaunchConfig) -> Option<&'a Processors> {
        launch.processors.get(&self.other_first_host(launch)?.name)
    }

    /// Returns true if GPUs are assumed, because the first host is another machine that a dry run does not query.
    pub(super) fn assumes_gpus(&self, launch: &LaunchConfig) -> bool {
        let is_unknown = self.other_first_host(launch).is_some() && self.first_host(launch).is_none();
        let is_outside = launch.starter.is_outside_of_a_job(&self.environment);
        launch.dry_run && is_outside && launch.device == DeviceChoice::Auto && is_unknown
    }

    /// Returns the device kind that ranks will use, as far as this machine can determine it.
    pub(super) fn kind(&self, launch: &LaunchConfig) -> DeviceKind {
        let has_gpus = match self.first_host(launch) {
            Some(processors) => processors.gpus > 0,
            None => self.processors.gpus > 0 || launch.starter.requests_gpus() || self.assumes_gpus(launch),
        };
        match launch.device {
            DeviceChoice::Cuda => DeviceKind::Cuda,
            DeviceChoice::Auto if has_gpus => DeviceKind::Cuda,
            _ => DeviceKind::Cpu,
        }
    }

    /// Returns true if ranks are known to use the CPU: it was selected, all ranks run here and this machine has no GPU,
    /// or the first host reported no GPU.
    pub(super) fn is_known_to_use_cpu(&self, launch: &LaunchConfig) -> bool {
        let is_here = launch.hosts.all().iter().all(|host| self.environment.is_here(&host.name));
        let is_known = is_here || self.first_host(launch).is_some();
        launch.device == DeviceChoice::Cpu || (is_known && self.kind(launch) == DeviceKind::Cpu)
    }

    /// Returns `cpu` or the name of the GPUs that ranks will use, or the choice if this machine cannot determine it.
    pub(super) fn device_name(&self, launch: &LaunchConfig) -> String {
        let known = self.first_host(launch).unwrap_or(&self.processors).gpu_name.clone();
        match self.kind(launch) {
            DeviceKind::Cuda if self.assumes_gpus(launch) => {
                "cuda (assumed in a dry run; --device cpu plans for CPUs)".to_owned()
            }
            DeviceKind::Cuda => known.unwrap_or_else(|| DeviceKind::Cuda.to_string()),
            kind if self.is_known_to_use_cpu(launch) => kind.to_string(),
            DeviceKind::Cpu => launch.device.to_string(),
        }
    }

    /// Rejects `--bind` with arguments by which mpirun or srun binds the ranks.
    pub(super) fn check_binding(&self, launch: &LaunchConfig, bind: BindChoice) -> anyhow::Result<()> {
        // Slurm's options contain their value.
        let words: Vec<&str> = launch.options.arguments.iter().flat_map(|word| word.split('=')).collect();
        let is_binding =
            |pair: &&[&str]| BINDING_ARGUMENTS.contains(&pair[0].trim_start_matches('-')) && pair[1] != "none";
        match words.windows(2).find(is_binding) {
            Some([option, to]) if matches!(bind, BindChoice::Numa | BindChoice::Core) => Err(usage(anyhow!(
                "--bind {bind} conflicts with {option} {to} of --launcher-args, which takes precedence: omit one of them"
            ))),
            _ => Ok(()),
        }
    }

    /// Rejects a backend of GPUs if the ranks are known to use the CPU.
    pub(super) fn check_backend(&self, launch: &LaunchConfig, exchange: &ExchangeConfig) -> anyhow::Result<()> {
        ensure!(
            exchange.backend != BackendChoice::Nccl || !self.is_known_to_use_cpu(launch),
            usage(anyhow!(
                "--backend nccl needs a GPU, and these ranks use the CPU: use --backend shared-memory, mpi or auto"
            ))
        );
        Ok(())
    }

    /// Returns the settings for querying the processors of hosts.
    fn request<'a>(&'a self, ssh: &'a SshOptions) -> ProcessorsRequest<'a> {
        ProcessorsRequest { here: &self.processors, ssh, environment: &self.environment }
    }
}
