//! `--autotune-over`: finds the fastest communication settings with short jobs. Tunes one option after the other, as
//! Horovod's autotuner does: each value is tried with the best of the earlier options. Each trial is a separate job,
//! because state must not carry over between settings: servers are separate processes, sharding divides the optimizer's
//! state, and compression keeps a residual.

use std::path::PathBuf;

use anyhow::{Context, anyhow, ensure};
use ringmark_core::benchmark::train::{AutotuneLog, Fault, Row, RunRecord, TrainConfig};
use ringmark_core::benchmark::{BenchmarkKind, SweepRecord};
use ringmark_core::dimension::{Bytes, Case, Seconds, Strategy};
use ringmark_core::file::atomic_file;
use ringmark_core::file::run_name::{RunName, STRATEGY_TRIALS};
use ringmark_core::options::usage::usage;
use ringmark_core::stats::summary;

use crate::launch::job::job_launch::JobFiles;
use crate::launch::job::launcher::LaunchConfig;
use crate::launch::sweep::axes_sweep::AxesSweep;
use crate::launch::sweep::benchmark::{PlanContext, PlannedJob};
use crate::launch::sweep::ledger;
use crate::launch::sweep::live::Live;
use crate::launch::sweep::trials::TrialJob;
use crate::launch::sweep::trials::tuned_option::{self, TunedOption};
use crate::output::message::Printer;

/// Condition that stores the chosen settings of a sweep.
pub const CHOSEN: &str = "chosen by --autotune-over";

/// Iterations of a trial: Horovod's 10 for a sample, after the warm-up.
const ITERATIONS: u32 = WARMUP + 10;

/// Warm-up iterations, not measured.
const WARMUP: u32 = 3;

/// Relative gain below which the requested setting is kept. Step times of two identical jobs differ by chance: their
/// speeds have a CV of 2.28 % on a busy machine (`results/same-40-times`).
const NOISE: f64 = 0.03;

/// Settings of `--autotune-over`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StrategySearch {
    /// Options in the order in which they are tuned; empty disables the search.
    pub over: Vec<TunedOption>,
    /// Path of the log of trials.
    pub log: Option<PathBuf>,
}

/// Builds the job of a trial with this training configuration.
pub type StrategyJob<'a> = &'a dyn Fn(&TrainConfig, RunName, JobFiles, PlanContext) -> PlannedJob;

impl StrategySearch {
    /// Returns `requested` with the fastest settings, from an earlier session or from trials run now. A dry run tries
    /// nothing.
    pub fn resolve(
        &self,
        sweep: &AxesSweep,
        requested: &TrainConfig,
        job: StrategyJob,
        live: &Live,
    ) -> anyhow::Result<TrainConfig> {
        if self.over.is_empty() {
            return Ok(requested.clone());
        }
        let printer = Printer { mark: "", to_error: false };
        if sweep.launch.dry_run {
            let trials = 1 + self.over.iter().map(|option| option.values().len()).sum::<usize>();
            printer.line(&format!(
                "# --autotune-over: commands with the requested settings; up to {trials} trials in case {} run first",
                largest(&sweep.axes.cases)
            ));
            return Ok(requested.clone());
        }
        if sweep.resume {
            // If the sweep was started without a search, the session reports that.
            let chosen = ledger::find(&sweep.out)?.conditions.options.get(CHOSEN).cloned();
            return chosen
                .map_or_else(|| Ok(requested.clone()), |text| normalize(tuned_option::with_chosen(requested, &text)?));
        }
        ledger::reject_used_folder(&sweep.out, true)?;
        let mut search =
            StrategyTrials { tuning: self, sweep, job, live, tried: Vec::new(), log: AutotuneLog::default() };
        let best = search.run_trials(requested, printer)?;
        search.log.best = Some(best);
        search.write_log()?;
        let (first, row) = (&search.log.rows[0], &search.log.rows[best]);
        let config = &search.tried[best];
        printer.line(&format!(
            "autotune chose {}: {:.2} ms per step (requested settings: {:.2} ms)",
            tuned_option::describe(&self.over, &config.on(sweep.device)),
            row.step.0 * 1e3,
            first.step.0 * 1e3
        ));
        normalize(config.clone())
    }

    /// Rejects values that cannot be tried: each in combination with the requested settings, in the case of the trials.
    pub fn check(&self, requested: &TrainConfig, cases: &[Case]) -> anyhow::Result<()> {
        let case = largest(cases);
        ensure!(
            self.over.is_empty() || case.ranks() > 1,
            "--autotune-over tunes the exchange of gradients, which one rank does not need: add a case with several ranks to --cases"
        );
        for (index, option) in self.over.iter().enumerate() {
            let name = option.name();
            ensure!(
                self.over[..index].iter().all(|other| other.name() != name),
                "--autotune-over lists {name} twice: list all its values once, as in {option}"
            );
            for value in option.values() {
                let check = || normalize(option.apply(requested, value)?)?.validate();
                check().with_context(|| format!("--autotune-over {name}={value}"))?;
            }
        }
        Ok(())
    }
}

/// Removes settings that the strategy does not use: servers, and the search inside a run, which only applies to
/// uncompressed buckets of the `all-reduce` strategy.
fn normalize(config: TrainConfig) -> anyhow::Result<TrainConfig> {
    let strategy = config.strategy.strategy;
    let has_search = strategy.is_all_reduce() && config.gradient_compression.is_none();
    Ok(TrainConfig { strategy: config.strategy.for_axis(strategy), autotune: config.autotune && has_search, ..config })
}

/// Returns the case with the most communication.
fn largest(cases: &[Case]) -> Case {
    cases.iter().copied().max_by_key(|case| (case.ranks(), case.nodes)).unwrap_or(Case::SINGLE)
}

struct StrategyTrials<'a> {
    tuning: &'a StrategySearch,
    sweep: &'a AxesSweep,
    job: StrategyJob<'a>,
    live: &'a Live,
    /// Configurations tried so far, as requested, each with its row in the log.
    tried: Vec<TrainConfig>,
    log: AutotuneLog,
}

impl StrategyTrials<'_> {
    /// Runs all trials; returns the index of the fastest configuration.
    fn run_trials(&mut self, requested: &TrainConfig, printer: Printer) -> anyhow::Result<usize> {
        let first = self.attempt(requested, "requested settings".to_owned())?;
        ensure!(first, "trial of the requested settings ran out of memory: choose a smaller --batch-size or network");
        let mut best = 0;
        for option in &self.tuning.over {
            let base = self.tried[best].clone();
            for value in option.values() {
                let config = option.apply(&base, value)?;
                if self.is_known(&config) {
                    continue;
                }
                let title = tuned_option::describe(&self.tuning.over, &config.on(self.sweep.device));
                if let Err(error) = normalize(config.clone())?.validate() {
                    printer.line(&format!("trial of {title}: skipped: {error:#}"));
                    continue;
                }
                if self.attempt(&config, title)? && self.is_faster_than(best) {
                    best = self.tried.len() - 1;
                }
            }
        }
        Ok(best)
    }

    /// Returns true if an equivalent configuration was tried: defaults of the backend count as the values that they
    /// resolve to.
    fn is_known(&self, config: &TrainConfig) -> bool {
        let on_device = |config: &TrainConfig| config.on(self.sweep.device);
        self.tried.iter().any(|tried| on_device(tried) == on_device(config))
    }

    /// Returns true if the last trial beats the best one by more than noise.
    fn is_faster_than(&self, best: usize) -> bool {
        let rows = &self.log.rows;
        rows.last().is_some_and(|last| last.step.0 < rows[best].step.0 * (1.0 - NOISE))
    }

    /// Runs a trial; returns false if it ran out of memory.
    fn attempt(&mut self, config: &TrainConfig, title: String) -> anyhow::Result<bool> {
        let AxesSweep { axes, launch, out, .. } = self.sweep;
        let point = axes.points().into_iter().next().context("sweep has no points")?;
        let strategy = config.strategy.strategy;
        let run = RunName {
            baseline: false,
            case: largest(&axes.cases),
            model: point.model,
            batch: point.batch,
            dtype: point.dtype,
            strategy,
            run: 1,
        };
        let train = TrainConfig {
            warmup: WARMUP,
            save: None,
            // Faults that occur once in a run do not belong in a trial.
            inject: config.inject.filter(|fault| matches!(fault, Fault::Slow { .. })),
            ..normalize(config.with_iterations(ITERATIONS))?
        };
        let number = self.tried.len() + 1;
        let trial = TrialJob::<RunRecord, Row> {
            kind: BenchmarkKind::Train,
            title: format!("trial of {title}"),
            run,
            out: &out.join(STRATEGY_TRIALS).join(format!("{number:02}")),
            job: &|run, files, context| (self.job)(&train, run, files, context),
            figures: &|record| row(&record),
            sentence: |row| format!("{:.2} ms per step", row.step.0 * 1e3),
            live: self.live,
        };
        // The doctor determines the network for each session again.
        let launch = LaunchConfig { doctor: launch.doctor && (number == 1 || run.case.nodes > 1), ..launch.clone() };
        let Some(row) = trial.run(&launch)? else { return Ok(false) };
        self.tried.push(config.clone());
        self.log.rows.push(row);
        self.write_log()?;
        Ok(true)
    }

    /// Writes the results so far, so that an interrupted search keeps them.
    fn write_log(&self) -> anyhow::Result<()> {
        let write = |path| atomic_file::write(path, |file| self.log.write(file));
        self.tuning.log.as_deref().map_or(Ok(()), write)
    }
}

/// Converts a trial's record into a log row; with `--autotune`, it contains the bucket sizes that the run found.
fn row(record: &RunRecord) -> Result<Row, String> {
    let header = &record.header;
    let slowest = |steps: &[Seconds]| steps.iter().map(|step| step.0).fold(0.0, f64::max);
    let counted = record.iterations.get(WARMUP as usize..).unwrap_or_default();
    let steps: Vec<f64> = counted.iter().map(|iteration| slowest(&iteration.step)).collect();
    let step = summary::median(&steps).filter(|step| *step > 0.0).ok_or("record has no iterations after warm-up")?;
    let sizes = header.tuning.as_ref().and_then(|tuning| tuning.trials.get(tuning.chosen));
    Ok(Row {
        config: sizes.map_or_else(|| record.config().clone(), |sizes| record.config().with_sizes(sizes)),
        gradients: Bytes(header.buckets.iter().map(|bytes| bytes.0).sum()),
        step: Seconds(step),
    })
}

/// Rejects a search over several points: it finds one setting for the whole sweep.
pub fn reject_several_values(several: &[(&str, bool)]) -> anyhow::Result<()> {
    match several.iter().find(|(_, is_there)| *is_there) {
        None => Ok(()),
        Some((what, _)) => Err(usage(anyhow!(
            "--autotune-over tunes a single network, precision, batch size and strategy: omit {what}"
        ))),
    }
}

/// Returns every strategy of a sweep: those of its axis and those that are tried.
pub fn all_strategies(axis: &[Strategy], over: &[TunedOption]) -> Vec<Strategy> {
    let tried = tuned_option::strategies(over).into_iter().filter(|strategy| !axis.contains(strategy));
    axis.iter().copied().chain(tried).collect()
}
