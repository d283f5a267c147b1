//! Options of the commands that start something, with what is filled in where nothing was typed.

use std::fmt::Display;
use std::path::{self, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::ensure;
use clap::builder::PossibleValuesParser;
use clap::{Args, value_parser};
use ringmark_record::benchmark::bandwidth::config::BandwidthConfig;
use ringmark_record::benchmark::score::config::ScoreConfig;
use ringmark_record::benchmark::train::config::TrainConfig;
use ringmark_record::benchmark::{BenchmarkKind, Profile};
use ringmark_record::case::Case;
use ringmark_record::device::{DeviceChoice, DeviceKind};
use ringmark_record::dtype::Dtype;
use ringmark_record::model::Model;
use ringmark_record::option_table::{Launched, keyword};
use ringmark_record::run_name::RunName;
use ringmark_record::usage::usage;

use crate::cli::json::JsonOption;
use crate::launch::cluster::hosts::{self, Hosts};
use crate::launch::cluster::interface::Interface;
use crate::launch::cluster::ssh::SshOptions;
use crate::launch::doctor::command::DoctorConfig;
use crate::launch::doctor::network::Depth;
use crate::launch::job::launcher::LaunchConfig;
use crate::launch::job::request::StarterOptions;
use crate::launch::job::starter::{self, Starter};
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::sweep::benchmark::axes_sweep::{self, AxesSweep};
use crate::launch::sweep::benchmark::bandwidth::{self, BandwidthSweep};
use crate::launch::sweep::benchmark::score::ScoreSweep;
use crate::launch::sweep::benchmark::train::TrainSweep;
use crate::launch::sweep::plan::Axes;
use crate::launch::sweep::suite;

/// Which hosts, and how they are reached.
#[derive(Debug, Args)]
pub struct HostOptions {
    /// What starts the ranks: mpirun over ssh, or srun with PMIx inside an allocation of Slurm
    #[arg(long, value_name = "NAME", default_value = "mpirun", value_parser = PossibleValuesParser::new(starter::NAMES))]
    launcher: String,
    /// Hosts with their number of ranks; a case takes the first of them
    /// [default: this machine, with as many ranks as it has GPUs, or else cores; with --launcher slurm the allocation's
    /// hosts, each with as many ranks as it has GPUs there, or else tasks, if any were asked for, or else CPUs]
    #[arg(long, value_name = "HOST:SLOTS,..", value_parser = Hosts::parse_list)]
    hosts: Option<Hosts>,
    /// File with a line `host slots=8` for each host, instead of --hosts
    #[arg(long, value_name = "FILE", conflicts_with = "hosts")]
    hostfile: Option<PathBuf>,
    /// Network for mpirun, MPI and NCCL: an interface such as ib0, or a network such as 10.77.0.0/24 [default: the one by
    /// which the hosts reach each other]
    #[arg(long, value_name = "NAME|CIDR")]
    interface: Option<Interface>,
    /// Port of sshd on the hosts
    #[arg(long, value_name = "PORT", default_value_t = 22)]
    ssh_port: u16,
    /// The worker, at the same path on every host [default: ringmark-worker beside this program, or on PATH]
    #[arg(long, value_name = "PATH")]
    worker: Option<PathBuf>,
    /// First copy the worker and its libraries to this folder of every host by rsync, and run it there; equal files stay.
    /// With --device cpu only what the CPU needs
    #[arg(long, value_name = "FOLDER")]
    sync: Option<PathBuf>,
    /// More arguments for mpirun or srun, quoted as in a shell; may be repeated
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true, alias = "mpirun-args")]
    launcher_args: Vec<String>,
}

impl HostOptions {
    /// Fills in what was not typed: this machine takes as many ranks as `machine` says.
    fn into_config(self, machine: &Machine) -> anyhow::Result<LaunchConfig> {
        let given = match (self.hosts, &self.hostfile) {
            (None, Some(file)) => Some(Hosts::read_file(file).map_err(usage)?),
            (hosts, _) => hosts,
        };
        let (starter, hosts) = starter::choose(&self.launcher, given, machine.device, &machine.environment)?;
        let arguments = starter::split_arguments(&self.launcher_args)?;
        Ok(LaunchConfig {
            hosts: hosts.unwrap_or_else(|| Hosts::this_machine(machine.slots())),
            timeout: None,
            stall_timeout: None,
            worker: self.worker,
            starter,
            ssh: SshOptions::new(self.ssh_port, &arguments, &machine.environment),
            options: StarterOptions { interface: self.interface, arguments },
            device: machine.device,
            sync: self.sync,
            dry_run: false,
            // Slurm starts ranks where ssh may not lead.
            doctor: starter == Starter::Mpirun,
        })
    }
}

/// Where and how jobs are launched, the same in every command that launches.
#[derive(Debug, Args)]
pub struct LaunchOptions {
    /// Where.
    #[command(flatten)]
    hosts: HostOptions,
    /// End a run that takes longer; it has failed [default: none]
    #[arg(long, value_name = "SECONDS", value_parser = value_parser!(u64).range(1..=31_536_000))]
    timeout: Option<u64>,
    /// End a run in which no rank makes progress for so long (three times as long at the start), and name the rank that
    /// hangs; from 6, or 0 to wait for ever
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = stall_timeout)]
    stall_timeout: u64,
    /// Print every command and start nothing
    #[arg(long)]
    dry_run: bool,
    /// Skip the look at the hosts (`ringmark doctor --quick`); MPI and NCCL then choose their network themselves. With
    /// --launcher slurm it is always skipped
    #[arg(long)]
    no_doctor: bool,
}

impl LaunchOptions {
    /// Fills in what was not typed: this machine takes as many ranks as `machine` says.
    fn into_config(self, machine: &Machine) -> anyhow::Result<LaunchConfig> {
        let config = self.hosts.into_config(machine)?;
        Ok(LaunchConfig {
            timeout: self.timeout.map(Duration::from_secs),
            stall_timeout: (self.stall_timeout > 0).then(|| Duration::from_secs(self.stall_timeout)),
            dry_run: self.dry_run,
            doctor: config.doctor && !self.no_doctor,
            ..config
        })
    }
}

/// A rank counts as silent after five seconds.
fn stall_timeout(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(seconds @ (0 | 6..=31_536_000)) => Ok(seconds),
        _ => Err("choose 6 to 31536000 seconds, or 0 to wait for ever".to_owned()),
    }
}

/// This machine, where it decides.
struct Machine {
    environment: LaunchEnvironment,
    device: DeviceChoice,
    gpus: u32,
}

impl Machine {
    /// Looks; for GPUs only where `device` allows one.
    fn read(device: DeviceChoice) -> Machine {
        let environment = LaunchEnvironment::read();
        let gpus = match device {
            DeviceChoice::Cpu => 0,
            _ => hosts::gpus(environment.visible_devices.as_deref()),
        };
        Machine { environment, device, gpus }
    }

    /// What ranks will use, as far as this machine knows.
    fn kind(&self, launch: &LaunchConfig) -> DeviceKind {
        match launch.device {
            DeviceChoice::Cuda => DeviceKind::Cuda,
            _ if self.gpus > 0 || launch.starter.asks_for_gpus() => DeviceKind::Cuda,
            _ => DeviceKind::Cpu,
        }
    }

    /// One rank a GPU, or a core where there is none.
    fn slots(&self) -> u32 {
        if self.gpus > 0 { self.gpus } else { self.environment.cores }
    }
}

const SWEEP_EXAMPLES: &str = "\
Examples:
  ringmark sweep --quick
      a first look at this machine in minutes
  ringmark sweep --cases 1n1g,1n8g --batch-size 256 --dtype fp16
      one and all eight GPUs of this machine, five runs each
  ringmark sweep --hosts a:8,b:8,c:8,d:8 --interface ib0
      DLPerf's six cases on four hosts. They reach each other by ssh without a password;
      ringmark-worker and the folder of --out lie at the same path on all of them
  ringmark sweep --hosts a:8,b:8 --sync /tmp/ringmark
      the same where nothing is installed on b: copies the worker and its libraries there first
  salloc --nodes=2 --gpus-per-node=8 --exclusive ringmark sweep --launcher slurm --cases 1n1g,2n8g
      inside an allocation of Slurm; scripts/slurm.sbatch is a batch script to start from
  ringmark sweep --hosts a:8,b:8 --out results/rack7 --resume
      goes on with that sweep after it was interrupted or failed: only what is missing runs
  ringmark sweep --dtypes fp32,bf16 --batch-sizes 32,64,128 --cases 1n1g,1n8g
      every precision with every batch size and case: 60 runs
  ringmark sweep --suite ddp --hosts a:8,b:8
      PyTorch's DDP suite: every case with and without communication, percentiles in its lines
  ringmark sweep --hosts localhost:8 --dry-run
      the command lines of eight ranks on one machine, GPUs or not

Exit status 1 says that a run failed or that the hosts are not well, 2 that something was asked wrongly or that --out is
in use.";

/// What a sweep varies and what becomes of it: the same for every benchmark over axes.
#[derive(Debug, Args)]
pub struct AxesOptions {
    /// Cases in the order they run, as 1n8g: nodes, n, ranks (GPUs) a node, g
    /// [default: those of 1n1g,1n2g,1n4g,1n8g,2n8g,4n8g that fit the hosts]
    #[arg(long, value_name = "CASE,..", value_delimiter = ',')]
    cases: Option<Vec<Case>>,
    /// Networks, instead of --model: each runs with every precision, batch size and case
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', conflicts_with = "model")]
    #[arg(value_parser = keyword::<Model>())]
    models: Option<Vec<Model>>,
    /// Precisions, instead of --dtype: each runs with every batch size and case
    #[arg(long, value_name = "TYPE,..", value_delimiter = ',', conflicts_with = "dtype")]
    #[arg(value_parser = keyword::<Dtype>())]
    dtypes: Option<Vec<Dtype>>,
    /// Batch sizes of a rank, instead of --batch-size: each runs with every precision and case
    #[arg(long, value_name = "IMAGES,..", value_delimiter = ',', conflicts_with = "batch-size")]
    batch_sizes: Option<Vec<u32>>,
    /// Runs of each case [default: 5; with --quick 2]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,
    /// Folder for logs and records [default: results/TIME_bBATCH_DTYPE]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Go on with the sweep in --out: run what is missing or failed, and what is asked for besides. Refused where options,
    /// program or devices are not those it was begun with
    #[arg(long, requires = "out")]
    resume: bool,
    /// Short profile for a first look, not a result to quote: two runs, small batch, few iterations
    #[arg(long)]
    quick: bool,
    /// Pause between two runs, for devices to cool down
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = value_parser!(u64).range(..=86_400))]
    cooldown: u64,
}

/// What an axis holds where its option names no values.
struct AxisDefaults {
    cases: fn(&Hosts) -> Vec<Case>,
    model: Model,
    dtype: Dtype,
    batch_sizes: Vec<u32>,
    threads: Option<u32>,
    device: DeviceKind,
}

impl AxesOptions {
    /// Fills in what was not typed and checks the axes.
    fn into_sweep(
        self,
        kind: BenchmarkKind,
        launch: LaunchConfig,
        defaults: AxisDefaults,
    ) -> anyhow::Result<AxesSweep> {
        let axes = Axes {
            models: self.models.unwrap_or_else(|| vec![defaults.model]),
            dtypes: self.dtypes.unwrap_or_else(|| vec![defaults.dtype]),
            batch_sizes: self.batch_sizes.unwrap_or(defaults.batch_sizes),
            cases: self.cases.unwrap_or_else(|| (defaults.cases)(&launch.hosts)),
            runs: self.runs.unwrap_or(if self.quick { 2 } else { 5 }),
        };
        refuse_repeated("--cases", &axes.cases, ", and set --runs for more runs").map_err(usage)?;
        refuse_repeated("--models", &axes.models, "").map_err(usage)?;
        refuse_repeated("--dtypes", &axes.dtypes, "").map_err(usage)?;
        refuse_repeated("--batch-sizes", &axes.batch_sizes, "").map_err(usage)?;
        Ok(AxesSweep {
            out: self.out.unwrap_or_else(|| axes_sweep::default_folder(kind, &axes, SystemTime::now())),
            axes,
            launch,
            cooldown: Duration::from_secs(self.cooldown),
            resume: self.resume,
            profile: if self.quick { Profile::Quick } else { Profile::Full },
            device: defaults.device,
            threads: defaults.threads,
        })
    }
}

/// DLPerf's cases that fit.
fn dlperf_cases(hosts: &Hosts) -> Vec<Case> {
    Case::DLPERF.into_iter().filter(|case| hosts.fit(*case)).collect()
}

/// Options of `ringmark sweep`.
#[derive(Debug, Args)]
#[command(after_help = SWEEP_EXAMPLES)]
pub struct SweepOptions {
    /// What it varies.
    #[command(flatten)]
    axes: AxesOptions,
    /// Where and how.
    #[command(flatten)]
    launch: LaunchOptions,
    /// Run PyTorch's DDP benchmark: after each run the same ranks without communication, and its percentile lines at the
    /// end [default cases: 1n1g,1n2g,1n4g, then 1n8g,2n8g,.. as the hosts go]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(["ddp"]))]
    suite: Option<String>,
    /// What every rank is asked to do.
    #[command(flatten)]
    train: Launched<TrainConfig>,
}

impl SweepOptions {
    /// Fills in what was not typed and checks the rest; looks at this machine only where its size decides.
    pub fn into_config(self) -> anyhow::Result<TrainSweep> {
        let machine = Machine::read(self.train.apply(TrainConfig::default())?.device);
        let launch = self.launch.into_config(&machine)?;
        let device = machine.kind(&launch);
        let ddp_suite = self.suite.is_some();
        let profile = if self.axes.quick { TrainConfig::quick(device) } else { TrainConfig::default() };
        let train = with_absolute_paths(self.train.apply(profile)?)?;
        let defaults = AxisDefaults {
            cases: if ddp_suite { suite::default_cases } else { dlperf_cases },
            model: train.model,
            dtype: train.dtype,
            batch_sizes: vec![train.batch_size],
            threads: train.threads,
            device,
        };
        let sweep = self.axes.into_sweep(BenchmarkKind::Train, launch, defaults)?;
        for RunName { model, dtype, batch_size, .. } in sweep.axes.points() {
            TrainConfig { model, dtype, batch_size, ..train.clone() }.validate().map_err(usage)?;
        }
        if ddp_suite {
            suite::check(&train).map_err(usage)?;
        }
        Ok(TrainSweep { sweep, ddp_suite, train })
    }
}

const SCORE_EXAMPLES: &str = "\
Examples:
  ringmark score
      images/s of inference on this machine, batch 1 to 32, as MXNet's benchmark_score.py
  ringmark score --models resnet50_v1b,resnet18 --dtypes fp32,bf16 --batch-sizes 1,8,32 --out results/inference
      two networks in two precisions; then: ringmark extract results/inference
  ringmark score --batch-size 32 --cases 1n1g,1n8g --hosts a:8
      one GPU alone, and eight side by side

Exit status 1 says that a run failed or that the hosts are not well, 2 that something was asked wrongly or that --out is
in use.";

/// Batch sizes of MXNet's benchmark_score.py.
const MXNET_BATCH_SIZES: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// Options of `ringmark score`.
#[derive(Debug, Args)]
#[command(after_help = SCORE_EXAMPLES)]
pub struct ScoreOptions {
    /// What it varies.
    #[command(flatten)]
    axes: AxesOptions,
    /// Where and how.
    #[command(flatten)]
    launch: LaunchOptions,
    /// What every rank is asked to do.
    #[command(flatten)]
    score: Launched<ScoreConfig>,
}

impl ScoreOptions {
    /// Fills in what was not typed and checks the rest; looks at this machine only where its size decides.
    pub fn into_config(self) -> anyhow::Result<ScoreSweep> {
        let profile = if self.axes.quick { ScoreConfig::quick() } else { ScoreConfig::default() };
        let score = self.score.apply(profile)?;
        let score = ScoreConfig { init: score.init.map(path::absolute).transpose()?, ..score };
        let machine = Machine::read(score.device);
        let launch = self.launch.into_config(&machine)?;
        let is_one_size = self.axes.quick || self.score.has("batch-size");
        let defaults = AxisDefaults {
            cases: |_| vec![Case::SINGLE],
            model: score.model,
            dtype: score.dtype,
            batch_sizes: if is_one_size { vec![score.batch_size] } else { MXNET_BATCH_SIZES.to_vec() },
            threads: score.threads,
            device: machine.kind(&launch),
        };
        let sweep = self.axes.into_sweep(BenchmarkKind::Score, launch, defaults)?;
        for RunName { model, dtype, batch_size, .. } in sweep.axes.points() {
            ScoreConfig { model, dtype, batch_size, ..score.clone() }.validate().map_err(usage)?;
        }
        Ok(ScoreSweep { sweep, score })
    }
}

/// What ran twice would write its files twice. `advice` goes on from "name it once".
fn refuse_repeated<T: PartialEq + Display>(option: &str, values: &[T], advice: &str) -> anyhow::Result<()> {
    for (index, value) in values.iter().enumerate() {
        ensure!(!values[..index].contains(value), "{option} has {value} twice: name it once{advice}");
    }
    Ok(())
}

/// Ranks on other hosts start in another folder.
fn with_absolute_paths(train: TrainConfig) -> anyhow::Result<TrainConfig> {
    let absolute = |file: Option<PathBuf>| file.map(path::absolute).transpose();
    Ok(TrainConfig { data: absolute(train.data)?, init: absolute(train.init)?, save: absolute(train.save)?, ..train })
}

const BANDWIDTH_EXAMPLES: &str = "\
Examples:
  ringmark bandwidth
      8 bytes to 128 MB on this machine, nccl-tests' table
  ringmark bandwidth --hosts a:8,b:8 --interface ib0 -b 1M -e 1G -f 4 --min-busbw 40
      1n2g to 2n8g; exit status 1 where a case's average is below 40 GB/s
  ringmark bandwidth --cases 1n8g --json | jq '.cases[0].average_busbw'
      one figure for a program
  ringmark bandwidth --model resnet50_v1b --cases 1n2g --optimizer sgd
      the gradients of ResNet50-v1b in training's buckets, and the update: MXNet's measure.py

Exit status 1 says that a case failed or was too slow, 2 that something was asked wrongly.";

/// What may be typed behind `ringmark bandwidth`.
#[derive(Debug, Args)]
#[command(after_help = BANDWIDTH_EXAMPLES)]
pub struct BandwidthCommand {
    /// Cases in the order they run, as 1n8g: nodes, n, ranks (GPUs) a node, g [default: those of 1n2g,1n4g,1n8g,2n8g,4n8g
    /// that fit the hosts, and all slots of several hosts]
    #[arg(long, value_name = "CASE,..", value_delimiter = ',')]
    cases: Option<Vec<Case>>,
    /// Where and how.
    #[command(flatten)]
    launch: LaunchOptions,
    /// Folder for CASE/bandwidth.log and CASE/bandwidth.json [default: results/TIME_bandwidth]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// For programs.
    #[command(flatten)]
    json: JsonOption,
    /// What every rank is asked to do.
    #[command(flatten)]
    bandwidth: Launched<BandwidthConfig>,
}

impl BandwidthCommand {
    /// Fills in what was not typed and checks the rest; looks at this machine only where its size decides.
    pub fn into_config(self) -> anyhow::Result<BandwidthSweep> {
        let config = self.bandwidth.apply(BandwidthConfig::default())?;
        let launch = self.launch.into_config(&Machine::read(config.device))?;
        let cases = self.cases.unwrap_or_else(|| bandwidth::default_cases(&launch.hosts));
        refuse_repeated("--cases", &cases, "").map_err(usage)?;
        config.validate().map_err(usage)?;
        let out = self.out.unwrap_or_else(|| bandwidth::default_folder(SystemTime::now()));
        Ok(BandwidthSweep { cases, launch, out, json: self.json.into_json(), bandwidth: config })
    }
}

const DOCTOR_EXAMPLES: &str = "\
Examples:
  ringmark doctor --hosts a:8,b:8,c:8,d:8
      everything, with the bandwidth between every two hosts
  ringmark doctor --hostfile hosts --quick --out /shared/results/rack7
      what a sweep looks at before it starts
  ringmark doctor --hosts a:8,b:8 --interface ib0 --json health.json
      on one network; all that was found goes to a file as well

Nothing on the hosts is changed. Exit status 1 says that a job would fail there, 2 that something was asked wrongly.";

/// Options of `ringmark doctor`.
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub struct DoctorOptions {
    /// Whom to look at.
    #[command(flatten)]
    hosts: HostOptions,
    /// Folder for results: check that there is room and that the first host has it too
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// What jobs are to use; cpu leaves the GPUs alone
    #[arg(long, default_value = "auto", value_parser = keyword::<DeviceChoice>())]
    device: DeviceChoice,
    /// Measure no bandwidth: check only that each host reaches the next
    #[arg(long)]
    quick: bool,
    /// For programs.
    #[command(flatten)]
    json: JsonOption,
}

impl DoctorOptions {
    /// Fills in what was not typed; looks at this machine only where its size decides.
    pub fn into_config(self) -> anyhow::Result<DoctorConfig> {
        let LaunchConfig { hosts, worker, options, ssh, sync, device, .. } =
            self.hosts.into_config(&Machine::read(self.device))?;
        let depth = if self.quick { Depth::Quick } else { Depth::Full };
        let json = self.json.into_json();
        Ok(DoctorConfig { hosts, worker, sync, options, ssh, out: self.out, device, depth, json })
    }
}
