//! Shared parts of the benchmarks that run every point of some axes several times and keep a manifest: launch settings,
//! a rank's share of the cores, the conditions of a resume, the line of each run.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{anyhow, bail, ensure};
use ringmark_core::benchmark::warning::{self, Warning};
use ringmark_core::benchmark::{BenchmarkKind, RunLabel, SweepProfile, SweepRecord};
use ringmark_core::dimension::{Case, DeviceKind, Seconds, Strategy, UnitsPerSecond};
use ringmark_core::file::atomic_file;
use ringmark_core::file::run_name::RunName;
use ringmark_core::line::dlperf::{self, LogLine};
use ringmark_core::number_text::count;
use ringmark_core::progress::FinishedRun;
use ringmark_core::shell;
use ringmark_core::stats::{scaling, summary};
use ringmark_core::trace::TraceConfig;
use ringmark_core::validity;

use crate::launch::job::job_launch::JobFiles;
use crate::launch::job::launcher::LaunchConfig;
use crate::launch::local::environment::typed_program;
use crate::launch::local::results_folder;
use crate::launch::sweep::benchmark::{EndedJob, JobOutcome, PlanContext, PlannedJob, Report, SessionRules};
use crate::launch::sweep::cost::JobCost;
use crate::launch::sweep::live::Live;
use crate::launch::sweep::live::run::RunProgress;
use crate::launch::sweep::plan::{Axes, BatchSizes, CoreShare, joined};
use crate::launch::sweep::session::{RestartConfig, SessionConfig};

/// Warning for the quick profile.
const QUICK: &str = "quick profile: for a first impression, not a reliable result";

/// Condition that keeps the number of threads of a rank across a resume.
const THREADS_PER_RANK: &str = "threads of a rank";

/// Condition that keeps the divisor if each host counts its own cores.
const CORES_DIVIDED_BY: &str = "ranks that divide a host's cores";

/// A sweep over axes.
#[derive(Debug, Clone, PartialEq)]
pub struct AxesSweep {
    /// Axes that vary.
    pub axes: Axes,
    /// Hosts and launch settings.
    pub launch: LaunchConfig,
    /// Pause between two runs.
    pub cooldown: Duration,
    /// Folder of the logs and records.
    pub out: PathBuf,
    /// True if the sweep in the folder is resumed.
    pub resume: bool,
    /// Cases whose finished runs are repeated.
    pub repeat: Vec<Case>,
    /// Restarts of a run after a loss.
    pub restarts: RestartConfig,
    /// Preset for options that are not given.
    pub profile: SweepProfile,
    /// Device of the ranks, as far as this machine can determine it.
    pub device: DeviceKind,
    /// Name of the device: `cpu`, that of the GPUs, or `auto` if it is unknown.
    pub device_name: String,
    /// True if the ranks are certain to use the CPU.
    pub is_known_to_use_cpu: bool,
    /// CPU threads of a rank, if set by the user.
    pub threads: Option<u32>,
    /// Number of runs of each point that are traced, starting with the first.
    pub trace_runs: u32,
}

/// Returns `results/<UTC date>T<time>Z_b<batch>_<dtype>`, the default output folder. Benchmarks other than training
/// insert their name before the batch size.
pub fn default_folder(kind: BenchmarkKind, axes: &Axes, now: SystemTime) -> PathBuf {
    let point = axes.short_name();
    let name = if kind == BenchmarkKind::Train { point } else { format!("{kind}_{point}") };
    results_folder::default_path(&name, now)
}

/// Figures of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFigures {
    /// Total of all ranks.
    pub speed: UnitsPerSecond,
    /// Share of the steps that the update takes; `None` if the benchmark has no update.
    pub update_share: Option<f64>,
    /// Top-1 accuracy at the end of the last epoch, a share; `None` without `--validate`.
    pub top_1: Option<f64>,
    /// Warnings in the record.
    pub warnings: Vec<Warning>,
}

impl AxesSweep {
    /// Returns the configuration of the session.
    pub fn session<'a>(&'a self, live: &'a Live) -> SessionConfig<'a> {
        let AxesSweep { axes, launch, cooldown, out, resume, repeat, restarts, .. } = self;
        let (resume, cooldown) = (*resume, *cooldown);
        SessionConfig { cases: &axes.cases, launch, out, resume, repeat, cooldown, restarts, live }
    }

    /// Returns the same sweep restricted to this strategy.
    pub fn for_strategy(&self, strategy: Strategy) -> AxesSweep {
        AxesSweep { axes: Axes { strategies: vec![strategy], ..self.axes.clone() }, ..self.clone() }
    }

    /// Returns each rank's share of the cores: only on the CPU, if the user set no threads and all ranks run on this
    /// machine.
    pub fn core_share(&self, context: PlanContext) -> Option<CoreShare> {
        let AxesSweep { axes, launch, .. } = self;
        let hosts = axes.cases.iter().flat_map(|case| launch.hosts.for_case(*case));
        let is_local = hosts.into_iter().all(|host| context.environment.is_here(&host.name));
        let resumed = context.resumed.and_then(|resumed| resumed.options.get(THREADS_PER_RANK)?.parse().ok());
        let is_shared = self.device == DeviceKind::Cpu && self.threads.is_none() && is_local;
        is_shared.then(|| CoreShare::new(&axes.cases, context.environment.cores, resumed))
    }

    /// Returns the number of ranks that divide a host's cores: only on the CPU, if the user set no threads and some
    /// ranks run elsewhere, so that each host counts its own cores.
    pub fn cores_divided_by(&self, context: PlanContext) -> Option<u32> {
        let resumed = context.resumed.and_then(|resumed| resumed.options.get(CORES_DIVIDED_BY)?.parse().ok());
        let is_divided = self.device == DeviceKind::Cpu && self.threads.is_none() && self.core_share(context).is_none();
        let most = self.axes.cases.iter().map(|case| case.gpus_per_node).max();
        is_divided.then_some(most.max(resumed)).flatten()
    }

    /// Returns the threads of a rank, if known.
    pub fn threads(&self, context: PlanContext) -> Option<u32> {
        self.core_share(context).map(|share| share.threads).or(self.threads)
    }

    /// Returns the job of `run`, which writes `files`. `arguments` begin with the worker's command; `cost` is that of a
    /// rank on the CPU.
    pub fn job(
        &self,
        run: RunName,
        files: JobFiles,
        mut arguments: Vec<String>,
        threads: Option<u32>,
        cost: JobCost,
    ) -> PlannedJob {
        arguments.extend(RunLabel { case: run.case, run: run.run, profile: self.profile.run_profile() }.arguments());
        // Hosts that cannot be queried probably have GPUs.
        let is_on_cpu = self.device == DeviceKind::Cpu && self.is_known_to_use_cpu;
        let cost = if is_on_cpu { cost } else { cost.on_gpus() };
        let job = PlannedJob::new(self.axes.title(run), run.case, files, arguments);
        PlannedJob { run: Some(run), threads, cost, ..job }
    }

    /// Returns the log and record of `run`.
    pub fn files(&self, run: RunName) -> anyhow::Result<JobFiles> {
        files_in(&self.out, run)
    }

    /// Returns the trace settings of `run`: `requested`, with a file next to the record if the run is traced.
    pub fn traced(&self, run: RunName, requested: &TraceConfig) -> anyhow::Result<TraceConfig> {
        let is_traced = run.run <= self.trace_runs;
        let file = is_traced.then(|| results_folder::absolute(&self.out).map(|out| run.trace(&out))).transpose()?;
        Ok(TraceConfig { file, ..requested.clone() })
    }

    /// Returns the conditions of a resume: a benchmark's own `settings` by option name, and those of the sweep.
    pub fn conditions(&self, context: PlanContext, settings: Vec<(&'static str, String)>) -> BTreeMap<String, String> {
        let settings = settings.into_iter().map(|(name, value)| (format!("--{name}"), value));
        let mut conditions: BTreeMap<String, String> = settings.collect();
        conditions.extend(self.axes.settings().map(|(name, value)| (name.to_owned(), value)));
        let quick = if self.profile == SweepProfile::Quick { "yes" } else { "" };
        conditions.insert(format!("--{}", RunLabel::QUICK), quick.to_owned());
        let runs_here = self.launch.hosts.all().iter().any(|host| context.environment.is_here(&host.name));
        if self.threads.is_none() && runs_here {
            conditions.insert("cores of this machine".to_owned(), context.environment.cores.to_string());
        }
        if let Some(share) = self.core_share(context) {
            conditions.insert(THREADS_PER_RANK.to_owned(), share.threads.to_string());
        }
        if let Some(ranks) = self.cores_divided_by(context) {
            conditions.insert(CORES_DIVIDED_BY.to_owned(), ranks.to_string());
        }
        conditions
    }

    /// Describes each rank's share of the cores.
    pub fn cores_line(&self, context: PlanContext) -> Option<String> {
        let divided = |ranks| match ranks {
            1 => "each rank has all cores of its host".to_owned(),
            _ => format!("each rank has 1/{ranks} of its host's cores in every case"),
        };
        self.core_share(context).map(|share| share.line()).or(self.cores_divided_by(context).map(divided))
    }

    /// Returns the axes for the first line: `ResNet50-v1b, 1n1g 1n2g, 5 runs each: batch 128, fp32`, followed by the
    /// strategies unless `all-reduce` is the only one.
    pub fn describe_axes(&self) -> String {
        let Axes { models, dtypes, batch_sizes, sequence_lengths, batch_factors, strategies, cases, runs } = &self.axes;
        let (cases, dtypes) = (joined(cases, " "), joined(dtypes, ","));
        let factors = batch_factors.iter().map(|(model, factor)| format!(" ({model}: x {factor})"));
        let batch = match batch_sizes {
            BatchSizes::Global(samples) => format!("global batch {samples}"),
            _ => format!("batch {}{}", batch_sizes.texts(models).join(","), factors.collect::<String>()),
        };
        let tokens = match sequence_lengths[..] {
            [] => String::new(),
            _ => format!(" x {} tokens", joined(sequence_lengths, ",")),
        };
        let titles: Vec<&str> = models.iter().map(|model| model.facts().title).collect();
        let strategies = match strategies[..] {
            [Strategy::AllReduce] => String::new(),
            _ => format!(", strategy {}", joined(strategies, ",")),
        };
        let runs = count(*runs, "run");
        format!("{}, {cases}, {runs} each: {batch}{tokens}, {dtypes}{strategies}", titles.join(" and "))
    }

    /// Returns the rules: running out of memory is a result if there are several batch sizes or strategies.
    pub fn rules(&self) -> SessionRules {
        let expects_shortage = self.axes.batch_sizes.has_several() || self.axes.strategies.len() > 1;
        SessionRules { expects_shortage, ..SessionRules::default() }
    }

    /// Returns the warning of the quick profile.
    pub fn warning(&self) -> Option<&'static str> {
        (self.profile == SweepProfile::Quick).then_some(QUICK)
    }

    /// Returns the line after the last run; `next` is the command to run next.
    pub fn end(&self, next: &str) -> String {
        format!("all runs are in {}; next: {} {next}", self.out.display(), typed_program())
    }

    /// Returns the number of iterations in the log of a finished run. The error describes what is wrong with the log,
    /// or the failure that it contains.
    pub fn finished_log(&self, run: RunName) -> Result<u32, String> {
        let log = run.log(&self.out);
        let count = || -> anyhow::Result<u32> {
            let file = atomic_file::open(&log).map_err(|error| anyhow!("cannot be read: {error}"))?;
            let mut count = 0;
            for line in BufReader::new(file).split(b'\n') {
                match dlperf::parse(&line.map_err(|error| anyhow!("cannot be read: {error}"))?) {
                    LogLine::Iteration { .. } => count += 1,
                    LogLine::Failed(reason) => bail!("ends with a failure: {reason}"),
                    LogLine::Malformed | LogLine::Other => {}
                }
            }
            Ok(count)
        };
        count().map_err(|error| format!("log {} {error:#}", log.display()))
    }

    /// Reads and validates the record of a finished run. The error describes what is missing or wrong.
    pub fn finished_record<R: SweepRecord>(&self, run: RunName) -> Result<R, String> {
        let path = run.record(&self.out);
        let read = || -> anyhow::Result<R> {
            let record = R::read(BufReader::new(atomic_file::open(&path)?))?;
            let number = record.label().run;
            ensure!(number == run.run, "contains run {number}, unlike its file name: restore the original name");
            record.check(&run)?;
            Ok(record)
        };
        read().map_err(|error| format!("record {} cannot be used: {error:#}", path.display()))
    }

    /// Follows `job`, which has `iterations` iterations, including `warmup` that do not count.
    pub fn follow(&self, job: &PlannedJob, iterations: u32, warmup: u32) -> RunProgress {
        let title = job.run.map_or_else(|| job.title.clone(), |run| self.axes.point_title(run));
        RunProgress::new(title, iterations, warmup)
    }
}

/// Returns the files of `run` in the folder `out`.
pub fn files_in(out: &Path, run: RunName) -> anyhow::Result<JobFiles> {
    Ok(JobFiles { log: run.log(out), record: run.record(&results_folder::absolute(out)?) })
}

/// Returns a path quoted for a shell.
pub fn quoted(path: &Path) -> String {
    shell::quote(&path.display().to_string()).into_owned()
}

/// Reports the last job of `ended` as a row of the table.
pub fn report(ended: &[EndedJob<RunFigures>]) -> Report {
    let Some(EndedJob { job, took, is_earlier, outcome: JobOutcome::Sound(figures), .. }) = ended.last() else {
        return Report::default();
    };
    let RunFigures { speed, top_1, warnings, .. } = figures;
    // The ratio of 1n1g to itself is 1.
    let is_base = job.run.is_some_and(|run| run.case == Case::SINGLE && !run.baseline);
    let base = base_figures(ended);
    let speedup = median(&base, |base| Some(base.speed.0)).filter(|_| !is_base);
    let speedup = speedup.map(|base| scaling::speedup(*speed, UnitsPerSecond(base)));
    let efficiency = speedup.map(|speedup| scaling::efficiency(speedup, job.case.ranks(), Case::SINGLE.ranks()));
    // Baselines have no strategy.
    let strategy = job.run.filter(|run| !run.baseline).map_or(Strategy::AllReduce, |run| run.strategy);
    let limit = validity::efficiency_limit(strategy, median(&base, |base| base.update_share));
    let run = FinishedRun {
        title: job.title.clone(),
        units_per_second: *speed,
        unit: job.run.map(|run| run.batch.unit()).unwrap_or_default(),
        speedup,
        efficiency,
        has_impossible_efficiency: efficiency.is_some_and(|efficiency| efficiency > limit),
        top_1: *top_1,
        took: took.filter(|_| !is_earlier).map(|took| Seconds(took.as_secs_f64())),
        warnings: warnings.len(),
    };
    Report { run: Some(run), lines: warning::texts(warnings) }
}

/// Returns the median of a figure over the runs that have it.
fn median(runs: &[&RunFigures], figure: impl Fn(&RunFigures) -> Option<f64>) -> Option<f64> {
    summary::median(&runs.iter().filter_map(|run| figure(run)).collect::<Vec<f64>>())
}

/// Returns the runs of 1n1g so far that otherwise match the last one; of `all-reduce` if its own strategy has none.
fn base_figures(ended: &[EndedJob<RunFigures>]) -> Vec<&RunFigures> {
    let Some(last) = ended.last().and_then(|last| last.job.run) else { return Vec::new() };
    let for_strategy = |strategy: Strategy| {
        let single = RunName { baseline: false, case: Case::SINGLE, strategy, ..last };
        let is_base = |run: RunName| RunName { run: run.run, ..single } == run;
        let runs = ended.iter().filter(|ended| ended.job.run.is_some_and(is_base));
        runs.filter_map(|ended| ended.outcome.figures()).collect::<Vec<&RunFigures>>()
    };
    // A suite has one strategy, and its baselines have none.
    let suite_strategy =
        || ended.iter().filter_map(|ended| ended.job.run).find(|run| !run.baseline).map(|run| run.strategy);
    let own = if last.baseline { suite_strategy() } else { Some(last.strategy) };
    let own = own.map_or_else(Vec::new, for_strategy);
    if own.is_empty() { for_strategy(Strategy::AllReduce) } else { own }
}

#[cfg(test)]
mod tests {
    use ringmark_core::benchmark::train::config::TrainConfig;

    use super::*;

    #[test]
    fn default_folder_contains_time_batch_and_precision() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_763_719_323);
        let TrainConfig { model, batch_size, dtype, .. } = TrainConfig::default();
        let axes = Axes {
            models: vec![model],
            dtypes: vec![dtype],
            batch_sizes: BatchSizes::Each(vec![batch_size]),
            sequence_lengths: Vec::new(),
            batch_factors: BTreeMap::new(),
            strategies: vec![Strategy::AllReduce],
            cases: vec![Case::SINGLE],
            runs: 1,
        };
        let folder = |kind| default_folder(kind, &axes, time);
        assert_eq!(folder(BenchmarkKind::Train), Path::new("results/20251121T100203Z_b128_fp32"));
        assert_eq!(folder(BenchmarkKind::Score), Path::new("results/20251121T100203Z_score_b128_fp32"));
    }

    fn ended(name: &str, speed: f64) -> EndedJob<RunFigures> {
        let run: RunName = name.parse().expect("a name");
        let files = JobFiles { log: PathBuf::new(), record: PathBuf::new() };
        let job = PlannedJob { run: Some(run), ..PlannedJob::new(String::new(), run.case, files, Vec::new()) };
        let speed = UnitsPerSecond(speed);
        let figures = RunFigures { speed, update_share: Some(0.2), top_1: None, warnings: Vec::new() };
        EndedJob::new(job, Some(Duration::ZERO), false, JobOutcome::Sound(figures))
    }

    /// An update of a fifth of the step, which two ranks divide, allows an efficiency of 131 %.
    #[test]
    fn impossible_efficiency_depends_on_the_strategy() {
        let is_impossible = |name: &str, speed: f64| {
            let jobs = [ended("1n1g/rn50_b8_fp32_1.log", 10.0), ended(name, speed)];
            report(&jobs).run.expect("a valid run").has_impossible_efficiency
        };
        let sharded = "1n2g/rn50_b8_fp32_fsdp_1.log";
        let baseline = "no-communication/1n2g/rn50_b8_fp32_1.log";
        assert_eq!([20.0, 24.0].map(|speed| is_impossible("1n2g/rn50_b8_fp32_1.log", speed)), [false, true]);
        assert_eq!([24.0, 26.0, 27.0].map(|speed| is_impossible(sharded, speed)), [false, false, true]);
        assert_eq!([20.0, 24.0].map(|speed| is_impossible(baseline, speed)), [false, true]);
    }

    #[test]
    fn speedup_uses_the_single_rank_of_the_same_point() {
        let baseline_speed = |ended: &[EndedJob<RunFigures>]| median(&base_figures(ended), |base| Some(base.speed.0));
        let mut all = vec![ended("1n2g/rn50_b8_fp32_1.log", 30.0)];
        assert_eq!(baseline_speed(&all), None);
        all.extend([("1n1g/rn50_b8_fp32_1.log", 10.0), ("1n1g/rn50_b8_fp32_2.log", 20.0)].map(|(n, s)| ended(n, s)));
        all.push(ended("1n1g/rn50_b8_bf16_1.log", 100.0));
        all.push(ended("1n2g/rn50_b8_fp32_2.log", 27.0));
        assert_eq!(baseline_speed(&all), Some(15.0));
        all.push(ended("no-communication/1n2g/rn50_b8_bf16_1.log", 190.0));
        assert_eq!(baseline_speed(&all), Some(100.0));
        all.push(ended("1n2g/rn50_b8_fp32_device_1.log", 26.0));
        assert_eq!(baseline_speed(&all), Some(15.0), "of all-reduce");
        all.push(ended("1n1g/rn50_b8_fp32_device_1.log", 14.0));
        assert_eq!(baseline_speed(&all), Some(14.0));
        let names = ["1n1g/rn50_b8_fp32_device_1.log", "no-communication/1n2g/rn50_b8_fp32_1.log"];
        assert_eq!(baseline_speed(&names.map(|name| ended(name, 12.0))), Some(12.0), "of a suite of another strategy");
    }
}
