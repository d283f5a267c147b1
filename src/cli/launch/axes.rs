//! Options for the axes of a sweep, shared by all benchmarks with axes.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::{anyhow, bail, ensure};
use clap::Args;
use ringmark_core::benchmark::{AUTO_BATCH_SIZE, BenchmarkKind, SweepProfile};
use ringmark_core::dimension::{Case, DeviceKind, Dtype, Model, Strategy, WorkUnit};
use ringmark_core::manifest::Manifest;
use ringmark_core::options::clap_binding::keyword;
use ringmark_core::options::option_table::Setting;
use ringmark_core::options::usage::usage;
use ringmark_core::options::value::{number, seconds};

use crate::cli::launch::hosts::Machine;
use crate::launch::cluster::hosts::Hosts;
use crate::launch::job::launcher::LaunchConfig;
use crate::launch::sweep::axes_sweep::{self, AxesSweep};
use crate::launch::sweep::benchmark::PlanContext;
use crate::launch::sweep::plan::{Axes, BatchSizes, reject_duplicates};
use crate::launch::sweep::session::RestartConfig;

/// Help of `--cases` of every command that starts jobs.
pub(super) const CASES: &str = "Cases to run, in this order; 2n8g is 2 nodes with 8 GPUs each";

/// Returns the long help of `--cases`.
pub(super) fn cases_help(default: &str) -> String {
    format!(
        "{CASES}\n\nOne rank per GPU; without GPUs, each rank gets an equal share of the host's cores [default: {default}]"
    )
}

const DEFAULT_CASES: &str = "those of 1n1g,1n2g,1n4g,1n8g,2n8g,4n8g that fit; on several hosts with fewer slots, all slots of 1, \
    2, 4, .. hosts; then all slots of all hosts, except on this machine without GPUs. score: 1n1g, one rank with all cores";

/// Options for the axes and the output of a sweep, shared by all benchmarks with axes.
#[derive(Debug, Args)]
pub struct AxesOptions {
    /// Cases in the order in which they run.
    #[arg(long, value_name = "CASE,..", value_delimiter = ',', help = CASES, long_help = cases_help(DEFAULT_CASES))]
    cases: Option<Vec<Case>>,
    /// Networks, instead of --model: each runs with every precision, batch size and case
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', conflicts_with = "model")]
    #[arg(value_parser = keyword::<Model>())]
    models: Option<Vec<Model>>,
    /// Precisions, instead of --dtype: each runs with every batch size and case
    #[arg(long, value_name = "TYPE,..", value_delimiter = ',', conflicts_with = "dtype")]
    #[arg(value_parser = keyword::<Dtype>())]
    dtypes: Option<Vec<Dtype>>,
    /// Batch sizes per rank, instead of --batch-size: each runs with every precision and case
    #[arg(long, value_name = "N,..", value_delimiter = ',', conflicts_with = "batch-size")]
    #[arg(value_parser = number(1..=65_536_u32))]
    batch_sizes: Option<Vec<u32>>,
    /// Lengths of sequences in tokens, instead of --sequence-length, for language models: each runs with every precision,
    /// batch size and case
    #[arg(long, value_name = "TOKENS,..", value_delimiter = ',', conflicts_with = "sequence-length")]
    #[arg(value_parser = number(1..=131_072_u32))]
    sequence_lengths: Option<Vec<u32>>,
    /// Factors of the batch sizes of some networks, such as mxnet-alexnet=8 for MXNet's "Alexnet(*8)"
    #[arg(long, value_name = "NAME=N,..", value_delimiter = ',', value_parser = batch_factor)]
    batch_factor: Vec<(Model, u32)>,
    /// Preset for runs, iterations and batch size
    ///
    /// Applies to options that are not given, and its batch size to networks of images. dlperf: 5 runs of 120
    /// iterations, the first 20 warm-up, batch size 128. cpu: 3 runs of 25 iterations, the first 5 warm-up, batch size 8.
    /// quick: for a first impression, not a reliable result: 2 runs of 12 iterations, the first 2 warm-up, batch size 4 (on
    /// GPUs 40, 10 and 32). Inference uses MXNet's batch sizes 1 to 32 and 10 passes after 5 warm-up passes, with the
    /// profile's number of runs; quick: 5 passes after 2, batch size 4 [default: cpu if ranks use the CPU, otherwise dlperf]
    #[arg(long, value_name = "NAME", value_parser = keyword::<SweepProfile>())]
    profile: Option<SweepProfile>,
    /// Short runs for a first look, not a reliable result
    ///
    /// Same as --profile quick: two runs of each case. A sweep first prints its estimated time.
    #[arg(long, conflicts_with = "profile")]
    quick: bool,
    /// Runs of each case [default: 5, on CPUs 3]
    #[arg(long = "runs", value_name = "N", value_parser = number(1..=10_000_u32))]
    runs: Option<u32>,
    /// Trace the first N runs of each point; each writes a timeline of all ranks next to its record, as RUN.trace.json
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number(0..=10_000_u32))]
    trace_runs: u32,
    /// Folder for logs and records [default: results/TIME_..]
    ///
    /// Default: results/TIME_bBATCH_DTYPE; other benchmarks: results/TIME_BENCHMARK_bBATCH_DTYPE.
    #[arg(short, long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Resume the sweep in --out: run missing, failed and newly requested runs. Fails if options, program or devices
    /// have changed
    #[arg(long, requires = "out")]
    resume: bool,
    /// Repeat the finished runs of these cases, with --resume, for example disturbed ones; their files are kept as
    /// RUN.log.1, .2 ..
    #[arg(long, value_name = "CASE,..", value_delimiter = ',', requires = "resume")]
    repeat: Vec<Case>,
    /// Pause between two runs, for devices to cool down, such as 90 or 5m
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = seconds(0..=86_400))]
    cooldown: u64,
}

/// Returns the batch size of a benchmark that has only one, given the `typed` value: the profile's or the network's, the
/// user's, or the largest that fits, searched from the default upwards.
pub(super) fn one_batch_size(typed: Option<&str>, batch_size: u32) -> BatchSizes {
    match typed {
        Some(AUTO_BATCH_SIZE) => BatchSizes::Largest { found: BTreeMap::new(), first: batch_size },
        Some(_) => BatchSizes::Each(vec![batch_size]),
        None => BatchSizes::Default(batch_size),
    }
}

/// Values of the axes whose options are not given.
pub(super) struct AxisDefaults {
    pub(super) cases: fn(&Hosts, DeviceKind) -> Vec<Case>,
    pub(super) models: Vec<Model>,
    pub(super) dtype: Dtype,
    pub(super) batch_sizes: BatchSizes,
    /// Tokens of a sequence, and true if the user gave them.
    pub(super) sequence_length: (Option<u32>, bool),
    pub(super) strategies: Vec<Strategy>,
    pub(super) threads: Option<u32>,
    pub(super) profile: SweepProfile,
}

impl AxesOptions {
    /// Returns the selected profile, or the default for the device.
    pub(super) fn profile(&self, machine: &Machine, launch: &LaunchConfig) -> SweepProfile {
        match self.profile {
            _ if self.quick => SweepProfile::Quick,
            Some(profile) => profile,
            None if machine.is_known_to_use_cpu(launch) => SweepProfile::Cpu,
            None => SweepProfile::Dlperf,
        }
    }

    /// Returns true if the user gave cases.
    pub(super) fn has_cases(&self) -> bool {
        self.cases.is_some()
    }

    /// Returns true if the user gave batch sizes.
    pub(super) fn has_batch_sizes(&self) -> bool {
        self.batch_sizes.is_some()
    }

    /// Returns true if the user gave lengths of sequences.
    pub(super) fn has_sequence_lengths(&self) -> bool {
        self.sequence_lengths.is_some()
    }

    /// Returns the original options of the sweep to resume; empty if there is none.
    pub(super) fn original_options(&self) -> BTreeMap<String, String> {
        let out = self.out.as_ref().filter(|_| self.resume);
        // An unreadable manifest is reported later by the session.
        let manifest = out.and_then(|out| Manifest::find(out).ok().flatten());
        manifest.map(|manifest| manifest.conditions.options).unwrap_or_default()
    }

    /// Fills in defaults and checks the axes.
    pub(super) fn into_sweep(
        self,
        kind: BenchmarkKind,
        machine: &Machine,
        launch: LaunchConfig,
        defaults: AxisDefaults,
    ) -> anyhow::Result<AxesSweep> {
        let device = machine.kind(&launch);
        let mut axes = Axes {
            models: self.models.unwrap_or(defaults.models),
            dtypes: self.dtypes.unwrap_or_else(|| vec![defaults.dtype]),
            batch_sizes: match (self.batch_sizes, defaults.batch_sizes) {
                (Some(_), BatchSizes::Global(samples)) => {
                    bail!(usage(anyhow!("--batch-sizes conflicts with --global-batch {samples}: use only one of them")))
                }
                (Some(sizes), _) => BatchSizes::Each(sizes),
                (None, batch_sizes) => batch_sizes,
            },
            sequence_lengths: Vec::new(),
            batch_factors: self.batch_factor.iter().copied().collect(),
            strategies: defaults.strategies,
            cases: self.cases.unwrap_or_else(|| (defaults.cases)(&launch.hosts, device)),
            runs: self.runs.unwrap_or(defaults.profile.runs()),
        };
        ensure!(
            !(machine.is_known_to_use_cpu(&launch) && axes.dtypes.contains(&Dtype::Tf32)),
            usage(anyhow!(
                "--dtype tf32 needs a GPU of compute capability 8.0, and these ranks use the CPU: choose fp32 or bf16"
            ))
        );
        let (length, is_length_given) = defaults.sequence_length;
        let is_length_given = is_length_given || self.sequence_lengths.is_some();
        let lengths = self.sequence_lengths.unwrap_or_else(|| length.into_iter().collect());
        match axes.models.iter().any(|model| model.unit() == WorkUnit::Token) {
            true => axes.sequence_lengths = lengths,
            // The error names a language model.
            false if is_length_given => axes.models[0].check_sample_size(None, Some(lengths[0])).map_err(usage)?,
            false => {}
        }
        reject_duplicates("--sequence-lengths", &axes.sequence_lengths, "").map_err(usage)?;
        reject_duplicates("--cases", &axes.cases, ", and set --runs for more runs").map_err(usage)?;
        // The command in the manifest may have had other cases.
        let more = self.repeat.iter().filter(|case| !axes.cases.contains(case)).copied();
        axes.cases.extend(more.collect::<Vec<Case>>());
        reject_duplicates("--repeat", &self.repeat, "").map_err(usage)?;
        reject_duplicates("--models", &axes.models, "").map_err(usage)?;
        reject_duplicates("--dtypes", &axes.dtypes, "").map_err(usage)?;
        reject_duplicates("--batch-sizes", &axes.batch_sizes.texts(&axes.models), "").map_err(usage)?;
        let factors: Vec<Model> = self.batch_factor.iter().map(|(model, _)| *model).collect();
        reject_duplicates("--batch-factor", &factors, "").map_err(usage)?;
        check_batch_factors(&axes).map_err(usage)?;
        Ok(AxesSweep {
            out: self.out.unwrap_or_else(|| axes_sweep::default_folder(kind, &axes, SystemTime::now())),
            axes,
            cooldown: Duration::from_secs(self.cooldown),
            resume: self.resume,
            repeat: self.repeat,
            restarts: RestartConfig::NONE,
            profile: defaults.profile,
            device,
            device_name: machine.device_name(&launch),
            is_known_to_use_cpu: machine.is_known_to_use_cpu(&launch),
            launch,
            threads: defaults.threads,
            trace_runs: self.trace_runs,
        })
    }
}

/// Parses `NAME=FACTOR`.
fn batch_factor(text: &str) -> anyhow::Result<(Model, u32)> {
    let (model, factor) = text.split_once('=').ok_or_else(|| anyhow!("choose NAME=FACTOR, such as mxnet-alexnet=8"))?;
    let factor = number(1..=1024_u32)(factor).map_err(|error| anyhow!("the factor {factor:?} {error}"))?;
    Ok((model.parse()?, factor))
}

/// Rejects factors without effect.
fn check_batch_factors(axes: &Axes) -> anyhow::Result<()> {
    let factors = axes.factor_texts().join(",");
    if let Some(model) = axes.batch_factors.keys().find(|model| !axes.models.contains(model)) {
        bail!("--batch-factor {factors}: no run uses {model}: add it to --models, or omit its factor");
    }
    ensure!(
        axes.sequence_lengths.len() <= 1 || !matches!(axes.batch_sizes, BatchSizes::Largest { .. }),
        "--batch-size auto finds the largest batch of one length, but --sequence-lengths has several: use only one"
    );
    ensure!(
        factors.is_empty() || matches!(axes.batch_sizes, BatchSizes::Default(_) | BatchSizes::Each(_)),
        "--batch-factor {factors} conflicts with --batch-size auto, which finds the largest batch: use only one of them"
    );
    Ok(())
}

/// Returns the axes of `sweep` followed by the `others`, for an options file. Each axis uses the option for one value
/// or for several. The threads per rank are included if this machine determines them.
pub(super) fn filled_in(sweep: &AxesSweep, machine: &Machine, others: Vec<Setting>) -> Vec<Setting> {
    let threads = sweep.threads(PlanContext { environment: &machine.environment, resumed: None, is_restart: false });
    let Axes { models, dtypes, batch_sizes, sequence_lengths, strategies, cases, runs, .. } = &sweep.axes;
    let mut settings = vec![
        Setting::derived("profile", vec![sweep.profile.to_string()]),
        Setting::derived("cases", texts(cases)),
        Setting::derived("runs", vec![runs.to_string()]),
        Setting::derived("trace-runs", vec![sweep.trace_runs.to_string()]),
        Setting::derived("threads", threads.iter().map(u32::to_string).collect()),
    ];
    settings.extend(one_or_several("model", "models", texts(models)));
    settings.extend(one_or_several("dtype", "dtypes", texts(dtypes)));
    // Networks with different defaults have no common value.
    let batch_sizes = match batch_sizes.texts(models) {
        several if several.len() > 1 && matches!(batch_sizes, BatchSizes::Default(_)) => Vec::new(),
        sizes => sizes,
    };
    settings.extend(one_or_several("batch-size", "batch-sizes", batch_sizes));
    settings.extend(one_or_several("sequence-length", "sequence-lengths", texts(sequence_lengths)));
    settings.push(Setting::new("batch-factor", sweep.axes.factor_texts()));
    if others.iter().any(|other| other.name == "strategy") {
        settings.extend(one_or_several("strategy", "strategies", texts(strategies)));
    }
    let others = others.into_iter().filter(|other| settings.iter().all(|axis| axis.name != other.name));
    let others: Vec<Setting> = others.collect();
    settings.into_iter().chain(others).collect()
}

/// Returns an axis under the option for one value or for several; the other option is not written.
fn one_or_several(one: &str, several: &str, values: Vec<String>) -> [Setting; 2] {
    let (one_value, several_values) = if values.len() == 1 { (values, Vec::new()) } else { (Vec::new(), values) };
    [Setting::new(one, one_value), Setting::derived(several, several_values)]
}

/// Formats values as given on the command line.
pub(super) fn texts<T: Display>(values: &[T]) -> Vec<String> {
    values.iter().map(T::to_string).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use ringmark_core::benchmark::score::ScoreConfig;
    use ringmark_core::benchmark::train::config::TrainConfig;
    use ringmark_core::options::keyword_enum::KeywordEnum;

    use crate::cli::Cli;

    use super::*;

    #[test]
    fn help_contains_the_profiles() {
        let program = Cli::command();
        let sweep = program.find_subcommand("sweep").expect("a command");
        let option = sweep.get_arguments().find(|option| option.get_id() == "profile").expect("an option");
        let help = option.get_long_help().expect("a help").to_string();
        for profile in SweepProfile::ALL {
            let runs = profile.runs();
            let TrainConfig { iterations, warmup, batch_size, .. } =
                TrainConfig::for_profile(*profile, DeviceKind::Cpu);
            let numbers =
                format!("{runs} runs of {iterations} iterations, the first {warmup} warm-up, batch size {batch_size}");
            let (_, rest) = help.split_once(&format!("{profile}: ")).expect("it is there");
            assert!(rest.contains(&numbers), "{profile}: {numbers}: {help}");
        }
        let TrainConfig { iterations, warmup, batch_size, .. } =
            TrainConfig::for_profile(SweepProfile::Quick, DeviceKind::Cuda);
        assert!(help.contains(&format!("(on GPUs {iterations}, {warmup} and {batch_size})")), "{help}");
    }

    #[test]
    fn defaults_in_the_help_are_those_of_the_profiles() {
        let program = Cli::command();
        let default = |command: &str, name: &str| {
            let command = program.find_subcommand(command).expect("a command");
            let option = command.get_arguments().find(|option| option.get_long() == Some(name)).expect("an option");
            let help = option.get_help().expect("a help").to_string();
            help.split_once(" [default: ").expect("a default").1.trim_end_matches(']').to_owned()
        };
        let [gpu, cpu] = [SweepProfile::Dlperf, SweepProfile::Cpu];
        let on_gpu = TrainConfig::for_profile(gpu, DeviceKind::Cuda);
        let on_cpu = TrainConfig::for_profile(cpu, DeviceKind::Cpu);
        for (name, [one, other]) in [
            ("iters", [on_gpu.iterations, on_cpu.iterations]),
            ("warmup", [on_gpu.warmup, on_cpu.warmup]),
            ("runs", [gpu.runs(), cpu.runs()]),
        ] {
            assert_eq!(default("sweep", name), format!("{one}, on CPUs {other}"), "{name}");
        }
        let sequences = Model::Gpt2Small.facts().default_sequences().expect("a language model");
        let [one, other] = [on_gpu.batch_size, on_cpu.batch_size];
        assert_eq!(default("sweep", "batch-size"), format!("{one}, on CPUs {other}; {sequences} sequences"));
        let score = ScoreConfig::for_profile(gpu);
        assert_eq!(default("score", "iters"), score.iterations.to_string());
        assert_eq!(default("score", "warmup"), score.warmup.to_string());
        let sizes = crate::cli::launch::score::MXNET_BATCH_SIZES.map(|size| size.to_string()).join(",");
        assert_eq!(default("score", "batch-size"), sizes);
    }
}
