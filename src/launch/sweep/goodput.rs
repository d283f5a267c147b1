//! `ringmark goodput`: measures the cost of checkpoints and failures in short runs, then trains with each interval between
//! checkpoints while ranks are lost at random times, and predicts other numbers of hosts. Each step is a sweep in a folder
//! of its own.

use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use ringmark_core::benchmark::checkpoint::CheckpointConfig;
use ringmark_core::benchmark::train::{
    Fault, LearningConfig, LossKind, LossKinds, RandomLosses, RunRecord, TrainConfig,
};
use ringmark_core::dimension::Seconds;
use ringmark_core::file::atomic_file;
use ringmark_core::file::run_name::RunName;
use ringmark_core::goodput::{Account, GOODPUT, Goodput, IntervalResult, KIND, MeasuredRuns, RunLength, SCHEMA};
use ringmark_core::number_text::{count, percent, three_digits, time};
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::options::usage::usage;
use ringmark_core::stats::allreduce_model::Band;

use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::local::results_folder;
use crate::launch::sweep::axes_sweep::AxesSweep;
use crate::launch::sweep::benchmark::{Benchmark, PlanContext, PlannedJob};
use crate::launch::sweep::benchmarks::train::TrainSweep;
use crate::launch::sweep::estimate::{self, ThisMachine, roughly};
use crate::launch::sweep::folder::{self, FolderLock};
use crate::launch::sweep::live::Live;
use crate::launch::sweep::plan::Axes;
use crate::launch::sweep::session::{self, RestartConfig};
use crate::output::Json;
use crate::output::message::Printer;

/// Folder of the runs without failures.
const UNDISTURBED: &str = "undisturbed";

/// Checkpoints of a run without failures, if it has enough iterations.
const CHECKPOINTS: u32 = 5;

/// Iterations before the first checkpoint of a run with one failure, after its warm-up, and after the failure.
const AROUND_FAILURE: u32 = 2;

/// Restarts of a run with one failure.
const FEW_RESTARTS: u32 = 10;

/// Largest expected wall time of a run, as a multiple of its useful time.
const LONGEST: f64 = 20.0;

/// A `ringmark goodput` command.
#[derive(Debug, Clone, PartialEq)]
pub struct GoodputConfig {
    /// Training: one point, with the length and number of the short runs.
    pub train: TrainSweep,
    /// Mean time between failures of the whole job, in seconds.
    pub mtbf: u32,
    /// Useful time of the run of each interval.
    pub duration: Seconds,
    /// Times between checkpoints.
    pub intervals: Vec<Interval>,
    /// Kinds of failures.
    pub kinds: Vec<LossKind>,
    /// Seed of the failures.
    pub seed: u32,
    /// Numbers of hosts to predict.
    pub hosts: Vec<u32>,
    /// Mean time between failures of one host in the predictions; that of the injected failures for `None`.
    pub host_mtbf: Option<Seconds>,
    /// Destination of the result as JSON.
    pub json: Json,
}

/// Time between two checkpoints.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Interval {
    /// The best one for the measured costs.
    Best,
    /// A given time.
    Time(Seconds),
}

/// Runs the command; `show` returns the tables of the result.
pub fn run(config: &GoodputConfig, show: fn(&Goodput) -> String) -> anyhow::Result<()> {
    config.json.check(&[])?;
    let printer = Printer { mark: "", to_error: config.json.is_instead() };
    let measurement = Measurement { config, printer };
    if config.train.sweep.launch.dry_run {
        let run = config.train.sweep.axes.runs()[0];
        printer.line(&format!("# goodput of {}, {}", run.point(), run.case));
        printer.line(&format!("# {}", results_folder::line(&config.train.sweep.out)));
        measurement.plan_lines()?.iter().for_each(|line| printer.line(&format!("# {line}")));
        printer.line("# the first part, runs without failures, for the speed and the cost of a checkpoint:");
        measurement.train(&measurement.undisturbed())?;
        return Ok(());
    }
    let out = &config.train.sweep.out;
    let environment = LaunchEnvironment::read();
    let lock = FolderLock::acquire(out, &environment.host_name)?;
    let file = out.join(GOODPUT);
    let is_new = config.train.sweep.resume || fs::read_dir(out).is_ok_and(|entries| entries.count() == 1);
    ensure!(is_new, folder::used_error(out, "files", true));
    let goodput = measurement.run()?;
    lock.check_folder()?;
    atomic_file::write(&file, |output| Ok(writeln!(output, "{}", serde_json::to_string_pretty(&goodput)?)?))?;
    if !config.json.write(&goodput)? {
        printer.line(&format!("\n{}", show(&goodput)));
    }
    Ok(())
}

struct Measurement<'a> {
    config: &'a GoodputConfig,
    printer: Printer,
}

impl Measurement<'_> {
    fn run(&self) -> anyhow::Result<Goodput> {
        let GoodputConfig { mtbf, intervals, seed, hosts, host_mtbf, .. } = self.config;
        let mtbf = Seconds(f64::from(*mtbf));
        let measured = self.measure()?;
        let [young_interval, best_interval] = measured.best_intervals(mtbf).context("no kind of failure")?;
        let lengths = self.lengths(&measured, mtbf, best_interval)?;
        let mut results = Vec::new();
        for (interval, (length, wall)) in intervals.iter().zip(lengths) {
            let requested = interval.to_string();
            let predicted = measured.predict(mtbf, &length, *seed);
            self.printer.line(&line_before(&requested, &length, predicted));
            let folder = format!("every_{requested}");
            // Ten times as many failures as expected are next to impossible, even if few are.
            let restarts = FEW_RESTARTS * (1 + (wall.0 / mtbf.0) as u32);
            let record = self.train(&self.with_failures(&folder, &length, restarts))?.remove(0);
            let measured_times = Account::of(&record, measured.iteration)
                .with_context(|| format!("{folder}: the record is not complete"))?;
            self.printer.line(&format!(
                "goodput {} with {} in {:.0}",
                percent(measured_times.goodput),
                count(measured_times.failures, "failure"),
                measured_times.wall
            ));
            results.push(IntervalResult { requested, folder, length, predicted, measured: measured_times });
        }
        let sweep = &self.config.train.sweep;
        let run = sweep.axes.runs()[0];
        let mut goodput = Goodput {
            kind: KIND.to_owned(),
            schema: SCHEMA,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            command: LaunchEnvironment::read().command.texts(),
            what: run.point().to_string(),
            case: run.case,
            unit: run.batch.unit(),
            mtbf,
            failure_seed: *seed,
            undisturbed_speed: measured.speed,
            checkpoint: measured.checkpoint,
            host_mtbf: *host_mtbf,
            predictions: Vec::new(),
            failures: measured.failures,
            young_interval,
            best_interval,
            intervals: results,
        };
        goodput.predict(*host_mtbf, Some(hosts));
        Ok(goodput)
    }

    /// Describes all runs, their checkpoints and their time.
    fn plan_lines(&self) -> anyhow::Result<Vec<String>> {
        let GoodputConfig { train, mtbf, duration, intervals, kinds, .. } = self.config;
        let AxesSweep { launch, cooldown, axes, .. } = &train.sweep;
        let environment = LaunchEnvironment::read();
        let machine = ThisMachine::new(&environment, &launch.hosts);
        let context = PlanContext { environment: &environment, resumed: None, is_restart: false };
        let undisturbed = self.undisturbed().plan(context)?;
        let mut trials = Vec::new();
        for kind in kinds {
            trials.extend(self.with_one_failure(*kind).plan(context)?);
        }
        let stall = launch.stall_timeout.unwrap_or_default();
        let stops = kinds.iter().filter(|kind| **kind == LossKind::Stop).count() as u32;
        let runs = intervals.len() as u32;
        let training = Seconds(duration.0 * f64::from(runs));
        let failures = training.0 / f64::from(*mtbf);
        // Each failure is followed by a start, and after a process that hangs by the stall timeout.
        let lost = |failures: f64, start: Duration| {
            start.mul_f64(failures) + stall.mul_f64(failures * f64::from(stops) / kinds.len() as f64)
        };
        let starts = undisturbed.first().map_or([Duration::ZERO; 2], estimate::start);
        let times = |jobs: &[PlannedJob], failures: f64, work: Duration| {
            let range = estimate::shortest_and_longest(jobs, &machine, *cooldown)?;
            Some([0, 1].map(|end| range[end] + work + lost(failures, starts[end])))
        };
        let work = Duration::try_from_secs_f64(training.0).unwrap_or_default();
        let long_runs = [0, 1].map(|end| starts[end] * runs + work + lost(failures, starts[end]));
        let parts = times(&undisturbed, 0.0, Duration::ZERO).zip(times(&trials, trials.len() as f64, Duration::ZERO));
        let range = |[shortest, longest]: [Duration; 2]| match (roughly(shortest), roughly(longest)) {
            (shortest, longest) if shortest == longest => shortest,
            (shortest, longest) => format!("{shortest} to {longest}"),
        };
        let bytes =
            CheckpointConfig { model: axes.models[0], optimizer: train.train.optimizer, ..CheckpointConfig::default() };
        let mut lines = vec![
            format!("1. {} without failures", count(undisturbed.len(), "run")),
            format!(
                "2. {} of {} iterations with one failure each ({})",
                count(trials.len(), "run"),
                self.with_one_failure(kinds[0]).train.iterations,
                kinds.iter().map(|kind| kind.keyword()).collect::<Vec<_>>().join(", "),
            ),
            format!(
                "3. {} of {} with a failure every {}: {} of training, about {failures:.0} failures, and a restart after each",
                count(runs, "run"),
                time(*duration),
                time(Seconds(f64::from(*mtbf))),
                time(training)
            ),
        ];
        lines.extend(parts.map(|(undisturbed, trials)| {
            let all = [0, 1].map(|end| undisturbed[end] + trials[end] + long_runs[end]);
            let stall =
                if stops > 0 { format!(", with {} until a hang is noticed", roughly(stall)) } else { String::new() };
            format!(
                "time: about {}: {} + {} + {}{stall}, without repeated iterations",
                range(all),
                range(undisturbed),
                range(trials),
                range(long_runs)
            )
        }));
        lines.push(format!(
            "checkpoint: {} GB beside the record of each run; the next one replaces it",
            three_digits(bytes.bytes().gigabytes())
        ));
        Ok(lines)
    }

    /// Measures the costs of checkpoints and failures.
    fn measure(&self) -> anyhow::Result<MeasuredRuns> {
        self.printer.line("runs without failures, for the speed and the cost of a checkpoint");
        let undisturbed = self.train(&self.undisturbed())?;
        let mut trials = Vec::new();
        for kind in &self.config.kinds {
            self.printer.line(&format!("runs with one failure each, {kind}, for the cost of a restart"));
            trials.push((*kind, self.train(&self.with_one_failure(*kind))?));
        }
        MeasuredRuns::new(&undisturbed, &trials)
    }

    /// Returns the length and the expected wall time of the run of each interval.
    fn lengths(
        &self,
        measured: &MeasuredRuns,
        mtbf: Seconds,
        best: Seconds,
    ) -> anyhow::Result<Vec<(RunLength, Seconds)>> {
        let duration = self.config.duration;
        let each = self.config.intervals.iter().map(|interval| {
            let time = match interval {
                Interval::Best => best,
                Interval::Time(time) => *time,
            };
            let length = measured.length(time, duration);
            let wall = measured.expected_wall(mtbf, &length).filter(|wall| wall.0 < LONGEST * length.work.0);
            wall.map(|wall| (length, wall)).with_context(|| {
                format!(
                    "--checkpoint-intervals {}: with --mtbf {mtbf:.0}, training would take more than {LONGEST} times \
                     {:.0}: use a longer MTBF or a shorter interval",
                    interval, length.work
                )
            })
        });
        each.collect()
    }

    /// Returns the runs without failures.
    fn undisturbed(&self) -> TrainSweep {
        let every = (self.config.train.train.iterations / CHECKPOINTS).max(1);
        self.stage(UNDISTURBED, self.config.train.train.iterations, every, None)
    }

    /// Returns runs in which the last rank is lost after a checkpoint.
    fn with_one_failure(&self, kind: LossKind) -> TrainSweep {
        let TrainSweep { sweep, train, .. } = &self.config.train;
        let every = train.warmup + AROUND_FAILURE;
        let rank = sweep.axes.cases[0].ranks() - 1;
        let failure = Fault::Lose { kind, iteration: every + AROUND_FAILURE, rank };
        self.stage(&kind.to_string(), every + 2 * AROUND_FAILURE, every, Some(failure))
    }

    /// Returns a run in which ranks are lost at random times.
    fn with_failures(&self, folder: &str, length: &RunLength, restarts: u32) -> TrainSweep {
        let GoodputConfig { mtbf, seed, kinds, .. } = self.config;
        let losses = RandomLosses { mtbf: *mtbf, seed: *seed, kinds: LossKinds::from_iter(kinds.iter().copied()) };
        let stage = self.stage(folder, length.iterations, length.checkpoint_every, Some(Fault::Random(losses)));
        let restarts = RestartConfig { number: restarts, ..stage.sweep.restarts };
        let sweep = AxesSweep { axes: Axes { runs: 1, ..stage.sweep.axes }, restarts, ..stage.sweep };
        TrainSweep { sweep, ..stage }
    }

    fn stage(&self, folder: &str, iterations: u32, checkpoint_every: u32, inject: Option<Fault>) -> TrainSweep {
        let TrainSweep { sweep, train, .. } = &self.config.train;
        let learning = LearningConfig { checkpoint_every: Some(checkpoint_every), ..train.learning.clone() };
        let restarts = RestartConfig { number: FEW_RESTARTS, spare_hosts: Vec::new() };
        TrainSweep {
            sweep: AxesSweep { out: sweep.out.join(folder), restarts, resume: false, ..sweep.clone() },
            train: TrainConfig { iterations, learning, inject, ..train.clone() },
            part_of: Some(self.printer),
            ..self.config.train.clone()
        }
    }

    /// Runs a stage and returns its records, or those of an earlier command with the same options. An unfinished stage is
    /// moved aside and begins again: a pause would count as lost time.
    fn train(&self, stage: &TrainSweep) -> anyhow::Result<Vec<RunRecord>> {
        let AxesSweep { launch, out, axes, .. } = &stage.sweep;
        let runs = axes.runs();
        let records = || -> Result<Vec<RunRecord>, String> {
            runs.iter().map(|run: &RunName| stage.sweep.finished_record(*run)).collect()
        };
        let finished = records().ok();
        match &finished {
            Some(records) => check_failures(out, records, stage.train.inject)?,
            None if out.exists() => move_aside(out)?,
            None => {}
        }
        // Also checks the options of finished runs.
        let sweep = AxesSweep { resume: finished.is_some(), ..stage.sweep.clone() };
        let stage = &TrainSweep { sweep, ..stage.clone() };
        Live::during((stage.kind(), self.printer), launch, out, |live| session::run(stage.sweep.session(live), stage))?;
        if launch.dry_run { Ok(Vec::new()) } else { records().map_err(|error| anyhow!(error)) }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Interval::Best => formatter.write_str("auto"),
            Interval::Time(time) => write!(formatter, "{}s", time.0),
        }
    }
}

fn line_before(requested: &str, length: &RunLength, predicted: Option<Band>) -> String {
    let RunLength { checkpoint_every, iterations, interval, work } = length;
    let predicted = predicted.map(|Band { low, mid, high }| {
        format!("; predicted goodput {} [{}, {}]", percent(mid), percent(low), percent(high))
    });
    format!(
        "checkpoints every {requested}: {iterations} iterations, {work:.0} of training, a checkpoint every \
         {checkpoint_every} iterations, {interval:.1}{}",
        predicted.unwrap_or_default()
    )
}

/// Rejects runs of other failures.
fn check_failures(folder: &Path, records: &[RunRecord], requested: Option<Fault>) -> anyhow::Result<()> {
    let text = |fault: Option<Fault>| fault.map_or("none".to_owned(), |fault| fault.to_string());
    let other = records.iter().map(|record| record.header.config.inject).find(|inject| *inject != requested);
    other.map_or(Ok(()), |other| {
        Err(usage(anyhow!(
            "the failures of {} are {}, not {}: use the same --mtbf, --failure-seed and --failures, or another --out",
            folder.display(),
            text(other),
            text(requested)
        )))
    })
}

/// Renames a folder to the first free name of `FOLDER.1`, `FOLDER.2`, ..
fn move_aside(folder: &Path) -> anyhow::Result<()> {
    let name = |number: u32| PathBuf::from(format!("{}.{number}", folder.display()));
    let free = (1..).map(name).find(|path| !path.exists()).context("no free name")?;
    fs::rename(folder, &free).with_context(|| format!("cannot move {} to {}", folder.display(), free.display()))
}
