//! Options of `ringmark sweep`.

use std::collections::BTreeSet;
use std::iter;
use std::path::{self, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use ringmark_core::benchmark::data_input::DataSource;
use ringmark_core::benchmark::train::{LearningConfig, TrainConfig};
use ringmark_core::benchmark::{BenchmarkKind, SweepProfile};
use ringmark_core::dimension::{DeviceKind, ImageLimits, SampleSize, Strategy};
use ringmark_core::options::clap_binding::{LauncherOptions, keyword};
use ringmark_core::options::option_table::{self, Setting};
use ringmark_core::options::usage::usage;
use ringmark_core::options::value::number;
use ringmark_input::dataset::Dataset;

use crate::cli::launch::axes::{self, AxesOptions, AxisDefaults};
use crate::cli::launch::config_file::ConfigFileOptions;
use crate::cli::launch::data;
use crate::cli::launch::hosts::{LaunchOptions, Machine};
use crate::cli::launch::servers::ServerOptions;
use crate::cli::launch::trace;
use crate::launch::cluster::hosts::Hosts;
use crate::launch::cluster::typed_hosts::TypedHosts;
use crate::launch::sweep::axes_sweep::AxesSweep;
use crate::launch::sweep::benchmarks::train::TrainSweep;
use crate::launch::sweep::benchmarks::train_checks;
use crate::launch::sweep::cost::EpochSamples;
use crate::launch::sweep::plan::{self, BatchSizes};
use crate::launch::sweep::session::RestartConfig;
use crate::launch::sweep::suite::{self, Suite};
use crate::launch::sweep::trials::strategy_search::{self, StrategySearch};
use crate::launch::sweep::trials::tuned_option::{TUNED, TunedOption};

const SWEEP_EXAMPLES: &str = "\
Examples:
  ringmark sweep --quick
      a first look at this machine; first prints the estimated time, as every sweep
  ringmark sweep --cases 1n1g,1n8g --batch-size 256 --dtype fp16
      one and all eight GPUs of this machine, five runs each
  ringmark sweep --hosts a:8,b:8,c:8,d:8 --interface ib0
      all sizes from 1 to 32 GPUs, on four hosts that ssh reaches without a password
  ringmark sweep
      a result of this machine: on a CPU 3 short runs of each case, on GPUs DLPerf's protocol
  ringmark sweep --hosts a:8,b:8 --sync /tmp/ringmark
      for hosts without an installation: first copies the worker and its libraries to b
  salloc --nodes=2 --gpus-per-node=8 --exclusive ringmark sweep --launcher slurm --cases 1n1g,2n8g
      inside an allocation of Slurm; scripts/slurm.sbatch is a template of a batch script
  qsub -pe mpi 16 scripts/gridengine.sh --cases 1n1g,2n8g
      as a job of Grid Engine, with the template of a job script
  ringmark sweep --hosts a:8,b:8 --out results/rack7 --resume
      resumes an interrupted or failed sweep: runs only what is missing
  ringmark sweep --dtypes fp32,bf16 --batch-sizes 32,64,128 --cases 1n1g,1n8g
      every precision with every batch size and case
  ringmark sweep --strategies all-reduce,dist_sync --hosts a:8,b:8
      all-reduce and MXNet's servers, compared in every case
  ringmark sweep --hosts a:8,b:8 --autotune-over strategy=all-reduce,device,dist_sync --autotune-over wire=fp32,bf16
      tries these settings in short jobs, then runs the sweep with the fastest
  ringmark sweep --suite ddp --hosts a:8,b:8
      PyTorch's DDP suite: four networks, every case with and without communication, percentiles in its format
  ringmark sweep --hosts localhost:8 --dry-run
      prints the command lines of eight ranks on one machine
  ringmark sweep --hosts a:8,b:8 --dry-run --save-config sweep.toml
      these options as a file, all others as comments
  ringmark sweep --config sweep.toml --out results/rack7
      runs that file; command-line options take precedence

Exit status 1: a run failed, or the doctor found an error; 2: a usage error, or --out is in use; 130: Ctrl-C.";

/// Options of `ringmark sweep`.
#[derive(Debug, Args)]
#[command(after_help = SWEEP_EXAMPLES)]
pub struct SweepOptions {
    /// Options file. Must be the first field, because other fields consume the values that they parse.
    #[command(flatten)]
    config_file: ConfigFileOptions,
    /// Axes of the sweep.
    #[command(flatten)]
    axes: AxesOptions,
    /// Launch options.
    #[command(flatten)]
    launch: LaunchOptions,
    /// Run several networks. ddp: PyTorch's DDP benchmark with its four networks, after each run the same ranks without
    /// communication, and its percentile lines at the end [defaults: on GPUs batch size 32; cases 1n1g,1n2g,1n4g, then
    /// 1n8g,2n8g,.. as far as they fit the hosts]. llm: GPT-2 124M and, on GPUs, Llama 1B with nanoGPT's recipe
    /// [defaults: AdamW, clipped gradients, batch size 4; on GPUs bf16]
    #[arg(long, value_name = "NAME", value_parser = keyword::<Suite>())]
    suite: Option<Suite>,
    /// Strategies, instead of --strategy: each runs with every network, precision, batch size and case. If all-reduce is one of
    /// them, 1n1g runs once, with all-reduce, and is the base of all
    #[arg(long, alias = "kv-stores", value_name = "NAME,..", value_delimiter = ',', conflicts_with = "strategy")]
    #[arg(value_parser = keyword::<Strategy>())]
    strategies: Option<Vec<Strategy>>,
    /// Options for servers.
    #[command(flatten)]
    servers: ServerOptions,
    /// Start a run again after the loss of a rank, a process or a host, at most N times: from its last checkpoint with
    /// --checkpoint-every, otherwise from the start
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0..=10_000_u32))]
    restarts: u32,
    /// Hosts that take the place of lost ones at a restart, in this order, as --hosts; each is checked before
    #[arg(long, value_name = "HOSTS")]
    spare_hosts: Option<String>,
    /// Values of options that are tried before the sweep.
    #[arg(long, value_name = "NAME=VALUE,..", help = autotune_over_help())]
    autotune_over: Vec<TunedOption>,
    /// Options passed to every rank.
    #[command(flatten)]
    train: LauncherOptions<TrainConfig>,
}

fn autotune_over_help() -> String {
    format!(
        "Try these values of an option in short jobs in the largest case, in addition to the requested one, then run \
         the sweep with the fastest. Give it once for each option, in the order in which they are tried; NAME is one \
         of {}",
        TUNED.join(", ")
    )
}

impl SweepOptions {
    /// Returns true if the user gave cases.
    pub(super) fn has_cases(&self) -> bool {
        self.axes.has_cases()
    }

    /// Fills in defaults and checks the options; inspects this machine only if its size determines a default.
    pub fn into_config(self) -> anyhow::Result<TrainSweep> {
        self.into_config_with(Ok)
    }

    /// As [`SweepOptions::into_config`]; `complete` changes the settings of training before they are checked.
    pub(super) fn into_config_with(
        self,
        complete: fn(TrainConfig) -> anyhow::Result<TrainConfig>,
    ) -> anyhow::Result<TrainSweep> {
        let machine = Machine::read(self.train.apply(TrainConfig::default())?.device, self.launch.gpus());
        let mut launch = self.launch.into_config(&machine)?;
        machine.query_first_host(&mut launch);
        let device = machine.kind(&launch);
        let ddp_suite = self.suite == Some(Suite::Ddp);
        let profile = self.axes.profile(&machine, &launch);
        let defaults = TrainConfig::for_profile(profile, device);
        let original_options = self.axes.original_options();
        // Hosts that cannot be queried probably have GPUs; their profile is DLPerf's.
        let is_unknown = profile == SweepProfile::Dlperf && !machine.is_known_to_use_cpu(&launch);
        let device_of_suite = if is_unknown { DeviceKind::Cuda } else { device };
        let defaults = match self.suite {
            Some(suite) => suite.defaults(profile, device_of_suite, defaults, &original_options),
            None => defaults,
        };
        let mut train = complete(with_absolute_paths(self.train.apply(defaults)?)?)?;
        let options = option_table::filled_in(&train);
        let search = StrategySearch { over: self.autotune_over, log: train.autotune_log.take() };
        let models = match self.train.typed("model") {
            // A resumed sweep keeps the networks of its suite.
            None if !original_options.contains_key("--model") => {
                self.suite.map_or_else(|| vec![train.model], |suite| suite.models(device_of_suite))
            }
            _ => vec![train.model],
        };
        // A search has its own strategies, and a resumed sweep keeps a single one.
        let has_one = original_options.get("--strategy").is_some_and(|original| !original.contains(','));
        let is_given = self.strategies.is_some() || self.train.typed("strategy").is_some();
        let suite = self.suite.filter(|_| !(is_given || has_one || !search.over.is_empty()));
        let of_suite = suite.map(|suite| suite.strategies(device_of_suite, train.strategy.strategy));
        let defaults = AxisDefaults {
            cases: if ddp_suite { suite::default_cases } else { plan::default_cases },
            models,
            dtype: train.dtype,
            batch_sizes: match train.global_batch {
                Some(samples) => BatchSizes::Global(samples),
                None => axes::one_batch_size(self.train.typed("batch-size"), train.batch_size),
            },
            sequence_length: (train.sequence_length, self.train.typed("sequence-length").is_some()),
            strategies: self.strategies.or(of_suite).unwrap_or_else(|| vec![train.strategy.strategy]),
            threads: train.threads,
            profile,
        };
        let mut sweep = self.axes.into_sweep(BenchmarkKind::Train, &machine, launch, defaults)?;
        if suite.is_some() && sweep.axes.cases.iter().all(|case| case.ranks() == 1) {
            sweep.axes.strategies.truncate(1);
        }
        // The length belongs to the axis, which networks of images do not have.
        train.sequence_length = None;
        let strategies = strategy_search::all_strategies(&sweep.axes.strategies, &search.over);
        suite::check_strategies(self.suite, &strategies).map_err(usage)?;
        train_checks::check(&sweep, &train, &search, ddp_suite)?;
        machine.check_backend(&sweep.launch, &train.exchange)?;
        machine.check_binding(&sweep.launch, train.bind)?;
        self.servers.check(&strategies).map_err(usage)?;
        trace::check(sweep.trace_runs > 0, "--trace-runs 1", &train.trace).map_err(usage)?;
        let mut filled_in = axes::filled_in(&sweep, &machine, options);
        filled_in.push(Setting::new("server-hosts", self.servers.server_hosts.clone()));
        sweep.launch.save_config = self.config_file.into_saved::<TrainConfig>("sweep", &sweep.launch.hosts, filled_in);
        sweep.launch.server_hosts = self.servers.server_hosts;
        sweep.restarts = restarts(self.restarts, self.spare_hosts.as_deref(), &sweep.launch.hosts).map_err(usage)?;
        let size = sample_size(&sweep, &train)?;
        for (option, files) in [("--data", &train.data), ("--validate", &train.learning.validate)] {
            data::check(option, files, size, &machine, &sweep.launch)?;
        }
        let trained = trained_samples(&train, size)?;
        let epoch_samples = epoch_samples(&train, size, trained);
        let items = trained.filter(|_| train.learning.epochs.is_some());
        train_checks::check_epochs(&sweep, &train, items)?;
        Ok(TrainSweep { sweep, ddp_suite, items, epoch_samples, train, search, part_of: None })
    }
}

/// Returns the restarts; the spare hosts must not be among `hosts`.
fn restarts(number: u32, spare_hosts: Option<&str>, hosts: &Hosts) -> anyhow::Result<RestartConfig> {
    let spares = spare_hosts.map(|text| TypedHosts::parse(text)?.into_hosts(iter::repeat(0))).transpose();
    let spare_hosts = spares.context("--spare-hosts")?.map(|spares| spares.all().to_vec()).unwrap_or_default();
    let used = spare_hosts.iter().find(|spare| hosts.all().iter().any(|host| host.name == spare.name));
    if let Some(used) = used {
        bail!("--spare-hosts {}: the host is in --hosts already: remove it from one of them", used.name);
    }
    ensure!(number > 0 || spare_hosts.is_empty(), "--spare-hosts needs restarts: add --restarts N");
    Ok(RestartConfig { number, spare_hosts })
}

/// Makes paths absolute, because ranks on other hosts start in another folder.
fn with_absolute_paths(train: TrainConfig) -> anyhow::Result<TrainConfig> {
    let absolute = |file: Option<PathBuf>| file.map(path::absolute).transpose();
    let learning = LearningConfig { validate: data::absolute(train.learning.validate)?, ..train.learning };
    let data = data::absolute(train.data)?;
    Ok(TrainConfig { data, learning, init: absolute(train.init)?, save: absolute(train.save)?, ..train })
}

/// Returns the size of the samples that the data consist of. The size of images does not change their number.
///
/// # Errors
///
/// Fails if networks divide the same files into sequences of different lengths, so that their epochs differ.
fn sample_size(sweep: &AxesSweep, train: &TrainConfig) -> anyhow::Result<SampleSize> {
    let axes = &sweep.axes;
    let lengths: BTreeSet<_> = axes.models.iter().flat_map(|model| axes.lengths_of(*model)).collect();
    ensure!(
        lengths.len() <= 1 || !(train.data.are_read() && is_counted(train)),
        usage(anyhow!(
            "--data with --epochs or --validate needs the same sequence length in all runs: add --sequence-length"
        ))
    );
    let size = lengths.first().copied().flatten().map(SampleSize::Tokens);
    Ok(size.unwrap_or(SampleSize::Pixels(train.image_size.unwrap_or_default())))
}

/// Returns true if the runs end epochs.
fn is_counted(train: &TrainConfig) -> bool {
    train.learning.epochs.is_some() || train.learning.validate.are_read()
}

/// Returns the number of images or sequences in an epoch, counted on this machine; `None` if that is not possible or not necessary.
///
/// # Errors
///
/// Returns an error if the images cannot be counted although the runs use epochs: the launcher must know the length of
/// a run.
fn trained_samples(train: &TrainConfig, size: SampleSize) -> anyhow::Result<Option<u64>> {
    let files = match train.data.source() {
        DataSource::Read(files) if is_counted(train) => files,
        _ => return Ok(None),
    };
    let counted = length(files, size);
    match train.learning.epochs {
        None => Ok(counted.ok()),
        Some(epochs) => counted.map(Some).with_context(|| {
            format!("--epochs {epochs}: cannot count the {} of --data on this machine", size.samples())
        }),
    }
}

/// Adds the number of validation images per epoch; `None` if this machine cannot count both.
fn epoch_samples(train: &TrainConfig, size: SampleSize, trained: Option<u64>) -> Option<EpochSamples> {
    match train.learning.validate.source() {
        DataSource::Read(files) => Some(EpochSamples { trained: trained?, predicted: length(files, size).ok()? }),
        DataSource::Synthetic | DataSource::Batch(_) => None,
    }
}

fn length(files: &[PathBuf], size: SampleSize) -> anyhow::Result<u64> {
    let dataset = Dataset::open_samples(files, size, ImageLimits::default())?;
    dataset
        .length()
        .with_context(|| format!("{}: unknown number of images: create the .idx file", dataset.description()))
}
