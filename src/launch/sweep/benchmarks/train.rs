//! The `train` benchmark. A baseline run without communication follows directly after the run that it belongs to, so
//! that drift affects both alike.

use std::collections::BTreeMap;
use std::path::Path;

use ringmark_core::benchmark::strategy::{ServerArrays, StrategyConfig};
use ringmark_core::benchmark::train::config::GRAPH_WARMUP;
use ringmark_core::benchmark::train::program::TO_THE_END;
use ringmark_core::benchmark::train::{LearningConfig, RunRecord, TrainConfig};
use ringmark_core::benchmark::{BenchmarkKind, SweepProfile, measured_and_warmup};
use ringmark_core::dimension::{BatchShape, Case, DeviceKind, Seconds, Strategy, WorkUnit};
use ringmark_core::file::run_name::RunName;
use ringmark_core::manifest::STRATEGY;
use ringmark_core::options::option_table;
use ringmark_core::shell;
use ringmark_core::trace::TraceConfig;

use crate::launch::job::job_launch::{JobFiles, ServerRanks};
use crate::launch::local::environment::typed_program;
use crate::launch::local::results_folder;
use crate::launch::sweep::axes_sweep::{self, AxesSweep, RunFigures, quoted};
use crate::launch::sweep::benchmark::{
    Benchmark, EndedJob, JobCheckpoint, PlanContext, PlannedJob, Report, Resumable, SessionRules,
};
use crate::launch::sweep::cost::{EpochSamples, JobCost, ValidationCost};
use crate::launch::sweep::live::Live;
use crate::launch::sweep::live::run::RunProgress;
use crate::launch::sweep::plan::joined;
use crate::launch::sweep::session;
use crate::launch::sweep::suite;
use crate::launch::sweep::trials::batch_search;
use crate::launch::sweep::trials::strategy_search::{self, StrategySearch};
use crate::launch::sweep::trials::tuned_option;
use crate::output::message::Printer;

/// A `ringmark sweep` command.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainSweep {
    /// Axes and launch settings.
    pub sweep: AxesSweep,
    /// True for PyTorch's DDP suite: adds baselines without communication, and its summary.
    pub ddp_suite: bool,
    /// Settings of each run, except the axes. Paths are absolute: ranks on other hosts start in another folder.
    pub train: TrainConfig,
    /// Images of an epoch, if the length of runs is given in epochs.
    pub items: Option<u64>,
    /// Images trained and predicted in an epoch, if this machine could count both; used for the estimate.
    pub epoch_samples: Option<EpochSamples>,
    /// Search for the fastest settings before the sweep.
    pub search: StrategySearch,
    /// Destination of messages if another command runs this sweep and describes it: no first lines, and warnings only in
    /// the records.
    pub part_of: Option<Printer>,
}

/// Checks the configuration before anything starts, then runs every point as often as requested, except finished runs.
/// `summarize` returns the result of a complete sweep in a folder, with PyTorch's lines if it is a DDP suite.
pub fn run(config: &TrainSweep, summarize: fn(&Path, bool) -> Option<String>) -> anyhow::Result<()> {
    let AxesSweep { launch, out, .. } = &config.sweep;
    Live::during((config.kind(), config.rules().printer), launch, out, |live| run_watched(config, summarize, live))
}

fn run_watched(config: &TrainSweep, summarize: fn(&Path, bool) -> Option<String>, live: &Live) -> anyhow::Result<()> {
    let trial = |run: RunName, files: JobFiles, context: PlanContext| {
        let train = config.config_for_run(run, context);
        // Graphs allocate additional memory.
        let has_graphs = config.sweep.device == DeviceKind::Cuda && !train.graphs.is_off();
        let warmup = if has_graphs { GRAPH_WARMUP } else { batch_search::ITERATIONS - 1 };
        let train = train.with_iterations(warmup + 1);
        // An fp16 run whose loss scale is too large in every step does not count, and a trial is too short to lower it.
        config.job(run, TrainConfig { warmup, save: None, loss_scale: 1.0, ..train }, files)
    };
    let sweep = batch_search::resolved::<RunRecord>(&config.sweep, config.kind(), &trial, live)?;
    let trial = |train: &TrainConfig, run: RunName, files: JobFiles, context: PlanContext| {
        let config = TrainSweep { train: train.clone(), ..config.clone() };
        config.job(run, config.config_for_run(run, context), files)
    };
    let train = config.search.resolve(&sweep, &config.train, &trial, live)?;
    let sweep = if config.search.over.is_empty() { sweep } else { sweep.for_strategy(train.strategy.strategy) };
    let config = &TrainSweep { sweep, train, ..config.clone() };
    let TrainSweep { sweep, ddp_suite, .. } = config;
    session::run(sweep.session(live), config)?;
    if sweep.launch.dry_run {
        return Ok(());
    }
    let (printer, out, page) = (config.rules().printer, quoted(&sweep.out), quoted(&sweep.out.join("report.html")));
    let next = sweep.end(&format!("report {out} -o {page}"));
    let summary = summarize(&sweep.out, *ddp_suite).map(|summary| format!("\n{summary}"));
    let tables = match sweep.profile {
        SweepProfile::Quick => format!("breakdown of the time: {} extract {out} --explain", typed_program()),
        _ => format!("all tables and warnings: {} extract {out}", typed_program()),
    };
    summary.iter().chain([&tables, &next]).for_each(|text| printer.line(text));
    if *ddp_suite {
        printer.line(&format!("for PyTorch's diff.py: ringmark extract {out} --format pytorch-ddp > FILE.json"));
    }
    Ok(())
}

impl TrainSweep {
    /// Returns the configuration of a rank in `run`.
    fn config_for_run(&self, run: RunName, context: PlanContext) -> TrainConfig {
        let RunName { case, model, batch, dtype, strategy, .. } = run;
        let threads = self.sweep.threads(context);
        let cores_divided_by = self.sweep.cores_divided_by(context);
        let strategy = self.train.strategy.for_axis(strategy).for_case(case);
        let train = self.train_on(batch, case);
        let train = TrainConfig { model, dtype, threads, cores_divided_by, strategy, ..train };
        TrainConfig { iterations: self.iterations(run), ..train }
    }

    /// Returns the checkpoint of `run` if checkpoints are requested; one from an earlier attempt is resumed, unless the
    /// run is to be repeated.
    fn checkpoint(&self, run: RunName, context: PlanContext) -> anyhow::Result<Option<JobCheckpoint>> {
        let AxesSweep { out, repeat, .. } = &self.sweep;
        if self.train.learning.checkpoint_every.is_none() {
            return Ok(None);
        }
        let file = run.checkpoint(&results_folder::absolute(out)?);
        let may_resume = context.is_restart || (context.resumed.is_some() && !repeat.contains(&run.case));
        let is_resumed = may_resume && file.exists();
        Ok(Some(JobCheckpoint { file, is_resumed }))
    }

    /// Returns the settings with a batch, of which each rank has a part.
    fn train_on(&self, batch: BatchShape, case: Case) -> TrainConfig {
        let train = self.train.with_batch(batch);
        // `train_checks` refuses a global batch without equal parts.
        train.on_ranks(case.ranks()).unwrap_or(train)
    }

    /// Returns a line of the options that are neither axes nor in the title and differ from the defaults.
    fn options_line(&self) -> Option<String> {
        let TrainConfig { model, dtype, batch_size, iterations, warmup, device, .. } = TrainConfig::default();
        let own = TrainConfig { model, dtype, batch_size, iterations, warmup, device, ..self.train.clone() };
        let strategy = StrategyConfig { strategy: Strategy::AllReduce, ..own.strategy };
        let own = TrainConfig { global_batch: None, sequence_length: None, threads: None, strategy, ..own };
        let options = option_table::arguments(&TrainConfig { trace: TraceConfig::default(), ..own });
        (!options.is_empty()).then(|| format!("options: {}", shell::join(&options)))
    }

    /// Returns the iterations of a run, derived from epochs if given.
    fn iterations(&self, RunName { case, batch, .. }: RunName) -> u32 {
        let train = self.train_on(batch, case);
        self.items
            .map_or(train.iterations, |items| train.with_epochs(train.epoch_steps(items, case.ranks())).iterations)
    }

    /// Returns the cost of validation in `run` with the settings `train`.
    fn validation(&self, run: RunName, train: &TrainConfig) -> Option<ValidationCost> {
        let images = self.epoch_samples.filter(|_| train.learning.validate.are_read())?;
        Some(ValidationCost::new(train, run.case.ranks(), images))
    }

    fn job(&self, run: RunName, train: TrainConfig, files: JobFiles) -> PlannedJob {
        let (threads, strategy) = (train.threads, train.strategy);
        let cost = if train.program.is_used() { JobCost::EQUAL } else { JobCost::for_training(&train, run.case) };
        let validation = self.validation(run, &train);
        let cost = validation.map_or(cost, |validation| cost.with_validation(train.iterations, validation));
        let arrays = ServerArrays {
            weights: train.model.facts().parameters,
            states: train.optimizer.state_names(train.momentum).len(),
            wire: train.exchange.wire,
            compression: train.gradient_compression,
        };
        let memory = strategy.memory_of_server(run.case, arrays);
        let read = train.data.paths().iter().chain(train.learning.validate.paths()).chain(&train.init);
        let data = read.cloned().collect();
        // The ranks compute their part of a global batch.
        let record = Some(files.record.clone());
        let arguments = self.kind().worker_command(&TrainConfig { record, ..train.without_part() });
        let may_lose_ranks = strategy.may_lose_ranks(run.case);
        let servers = ServerRanks { may_lose_ranks, ..self.sweep.launch.servers(strategy, memory) };
        PlannedJob { servers, data, ..self.sweep.job(run, files, arguments, threads, cost) }
    }
}

/// Adds the checkpoint's paths to the worker's settings.
fn with_checkpoint(train: TrainConfig, checkpoint: Option<&JobCheckpoint>) -> TrainConfig {
    let Some(JobCheckpoint { file, is_resumed }) = checkpoint else { return train };
    let from_checkpoint = is_resumed.then(|| file.clone());
    let learning = LearningConfig { checkpoint: Some(file.clone()), from_checkpoint, ..train.learning };
    TrainConfig { learning, ..train }
}

impl Benchmark for TrainSweep {
    type Record = RunRecord;
    type Figures = RunFigures;
    type Follower = RunProgress;

    fn kind(&self) -> BenchmarkKind {
        BenchmarkKind::Train
    }

    fn rules(&self) -> SessionRules {
        SessionRules { printer: self.part_of.unwrap_or_default(), ..self.sweep.rules() }
    }

    fn plan(&self, context: PlanContext) -> anyhow::Result<Vec<PlannedJob>> {
        let mut jobs = Vec::new();
        for run in self.sweep.axes.runs() {
            let train = self.config_for_run(run, context);
            let baseline = self.ddp_suite.then(|| suite::baseline(run.case, &train)).flatten();
            let checkpoint = self.checkpoint(run, context)?;
            let train = with_checkpoint(train, checkpoint.as_ref());
            let train = TrainConfig { trace: self.sweep.traced(run, &self.train.trace)?, ..train };
            let job = self.job(run, train, self.sweep.files(run)?);
            let resumed = checkpoint.as_ref().filter(|checkpoint| checkpoint.is_resumed);
            let announcement =
                resumed.map(|it| format!("{}: resuming from checkpoint {}", job.title, it.file.display()));
            jobs.push(PlannedJob { checkpoint, announcement, ..job });
            if let Some(train) = baseline {
                let run = RunName { baseline: true, strategy: train.strategy.strategy, ..run };
                let train = TrainConfig { trace: self.sweep.traced(run, &self.train.trace)?, ..train };
                jobs.push(self.job(run, train, self.sweep.files(run)?));
            }
        }
        Ok(jobs)
    }

    fn resumable(&self) -> Option<&dyn Resumable<Record = RunRecord>> {
        Some(self)
    }

    fn follow(&self, job: &PlannedJob) -> RunProgress {
        let iterations = job.run.map_or(self.train.iterations, |run| self.iterations(run));
        let train = |run: RunName| self.train_on(run.batch, run.case);
        let validation = job.run.filter(|run| !run.baseline).and_then(|run| self.validation(run, &train(run)));
        self.sweep.follow(job, iterations, self.train.warmup).validating(validation)
    }

    fn figures(&self, record: RunRecord, follower: Option<RunProgress>) -> Result<RunFigures, String> {
        let has_iterations = follower.is_none_or(|follower| follower.speed().is_some());
        if !has_iterations {
            return Err("log has no iterations after warm-up".to_owned());
        }
        // A run of a program finds its own warm-up.
        let warmup = if self.train.program.is_used() { record.header.config.warmup } else { self.train.warmup };
        let speed = record.speed(warmup as usize).ok_or("record has no iterations after warm-up")?;
        let update_share = record.update_share(warmup as usize).filter(|_| !self.train.program.is_used());
        let end = record.end.unwrap_or_default();
        let top_1 = end.epochs.last().and_then(|epoch| epoch.validation?.top_1);
        Ok(RunFigures { speed, update_share, top_1, warnings: end.warnings })
    }

    fn report(&self, ended: &[EndedJob<RunFigures>]) -> Report {
        let report = axes_sweep::report(ended);
        if self.part_of.is_some() { Report { lines: Vec::new(), ..report } } else { report }
    }
}

impl Resumable for TrainSweep {
    type Record = RunRecord;

    fn conditions(&self, context: PlanContext) -> BTreeMap<String, String> {
        // Trace settings are not a condition: they do not change what a run measures.
        let train = TrainConfig { save: None, record: None, trace: TraceConfig::default(), ..self.train.clone() };
        let mut conditions = self.sweep.conditions(context, option_table::settings(&train));
        conditions.insert(STRATEGY.to_owned(), joined(&self.sweep.axes.strategies, ","));
        let over = &self.search.over;
        if !over.is_empty() {
            conditions.insert("--autotune-over".to_owned(), joined(over, " "));
            conditions.insert(strategy_search::CHOSEN.to_owned(), tuned_option::chosen_text(over, &self.train));
        }
        conditions
    }

    fn warning(&self) -> Option<&'static str> {
        self.sweep.warning()
    }

    fn header_lines(&self, context: PlanContext) -> Vec<String> {
        let TrainSweep { sweep, train, .. } = self;
        let (axes, out, profile) = (sweep.describe_axes(), results_folder::line(&sweep.out), sweep.profile);
        let TrainConfig { iterations, warmup, .. } = train;
        let device = &sweep.device_name;
        if self.part_of.is_some() {
            return Vec::new();
        }
        if train.program.is_used() {
            let program = shell::join(&train.program.command.0);
            let length = match *iterations {
                TO_THE_END => "until the program ends".to_owned(),
                lines => format!("{lines} lines of iterations"),
            };
            let mut lines = vec![
                format!("runs of a program: {axes}, {length}, device {device}"),
                out,
                format!("program, one per {}: {program}", train.program.start),
            ];
            lines.extend(sweep.cores_line(context));
            return lines;
        }
        let length = match train.learning.epochs {
            None => format!("{} iterations", measured_and_warmup(iterations - warmup, *warmup)),
            Some(epochs) => {
                let samples = sweep.axes.models[0].facts().default_size().samples();
                let of_items = self.items.map(|items| format!(" of {items} {samples}")).unwrap_or_default();
                format!("{epochs} epochs{of_items}, the first {warmup} iterations warm-up")
            }
        };
        let mut lines = vec![format!("sweep of {axes}, {length}, device {device}, profile {profile}"), out];
        lines.extend(self.options_line());
        lines.extend(sweep.cores_line(context));
        let axes = &sweep.axes;
        let has_tokens = axes.models.iter().any(|model| model.unit() == WorkUnit::Token);
        if has_tokens && train.optimizer == TrainConfig::default().optimizer {
            lines.push(
                "note: this is SGD; --suite llm trains language models as nanoGPT does: AdamW, clipped gradients, on GPUs bf16"
                    .to_owned(),
            );
        }
        let is_shared =
            |strategy: &Strategy| axes.cases.iter().any(|case| axes.is_left_to_all_reduce(*strategy, *case));
        if axes.strategies.iter().any(is_shared) {
            lines.push("1n1g is measured once, with all-reduce, and is the base of all strategies".to_owned());
        }
        if self.ddp_suite {
            let is_alone = sweep.axes.cases.iter().any(|case| suite::baseline(*case, train).is_none());
            let alone = if is_alone { ", except for 1n1g, where one rank has no communication" } else { "" };
            lines.push(format!("each run is followed by its baseline, a run without communication{alone}"));
        }
        lines
    }

    fn check_finished(&self, run: RunName) -> Result<RunRecord, String> {
        let (done, wanted) = (self.sweep.finished_log(run)?, self.iterations(run));
        if done != wanted && !self.train.program.is_used() {
            return Err(format!("log {} has {done} of {wanted} iterations", run.log(&self.sweep.out).display()));
        }
        self.sweep.finished_record(run)
    }

    fn time_of_iterations(&self, record: &RunRecord) -> Option<Seconds> {
        record.end.as_ref().map(|end| end.wall)
    }
}
