//! Training runs: figures from logs and records.

use anyhow::bail;
use ringmark_core::benchmark::SweepRecord;
use ringmark_core::benchmark::strategy::StrategyUse;
use ringmark_core::benchmark::train::program::TO_THE_END;
use ringmark_core::benchmark::train::{CheckpointCost, EpochEnd, RunEnd, RunHeader, RunRecord, TrainConfig};
use ringmark_core::dimension::{BackendName, BatchShape, Bytes, DeviceChoice, DeviceKind, Seconds, UnitsPerSecond};
use ringmark_core::file::run_name::RunName;
use ringmark_core::line::log::Log;
use ringmark_core::line::other_tool::tool::{Tool, Windows};
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::stats::summary::{harmonic_mean, mean};
use ringmark_core::trace::TraceConfig;
use ringmark_core::validity::{self, Invalidity};

use crate::read::load::device_rates::DeviceRates;
use crate::read::load::environment::{self, EnvironmentText};
use crate::read::load::folder::FoundRun;
use crate::read::load::iteration_times::{IterationTimes, RankTimes, rank_times, steps};
use crate::read::load::problem::Problem;
use crate::read::load::record;
use crate::read::load::run::{Measured, Readable};

/// Fields that only training records contain.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainingFacts {
    /// Backend that summed the gradients.
    pub backend: BackendName,
    /// Sizes of the gradient buckets as fp32, in backward order.
    pub buckets: Vec<Bytes>,
    /// Lines that NCCL logged about the resources it uses.
    pub nccl: Vec<String>,
    /// Data held and transferred by servers or owners; `None` with `all-reduce`.
    pub strategy: Option<StrategyUse>,
    /// Cost of the checkpoints; `None` without any.
    pub checkpoints: Option<CheckpointCost>,
    /// Time per iteration to compute activations again; `None` if it was not measured.
    pub recompute: Option<Seconds>,
}

/// Figures of one training run over the iterations after warm-up. Its speed is total work over total time: with a
/// record, `work of all ranks x iterations / mean over ranks of the summed step time`; without one, the harmonic mean of
/// the log's speeds.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainingFigures {
    /// Number of timed iterations, or of windows if another tool wrote the log; including warm-up.
    pub timed: usize,
    /// Number of them that are excluded as warm-up.
    pub warmup: usize,
    /// Description of the windows, if the log times windows.
    pub windows: Option<Windows>,
    /// Speed of the run as DLPerf computes it: the arithmetic mean of the log's speeds, rounded to 2 decimals. For a
    /// baseline with a record, the sum of the ranks' own means.
    pub dlperf_speed: UnitsPerSecond,
    /// Times of the phases over all ranks; `None` without a record.
    pub times: Option<IterationTimes>,
    /// Step times by rank, then by iteration, including warm-up. Without a record only rank 0, from the log's speeds;
    /// empty if the log times windows.
    pub steps: Vec<Vec<Seconds>>,
    /// Times of every rank; empty without a record.
    pub ranks: Vec<RankTimes>,
    /// Mean loss over the combined batch of all ranks in the last iteration.
    pub last_loss: Option<f64>,
    /// Mean loss of every iteration, if images were read; otherwise every iteration uses the same batch.
    pub losses: Vec<f64>,
    /// Number of updates skipped because a gradient was not finite.
    pub skipped_steps: Option<u32>,
    /// Completed epochs of the data; empty if no images were read.
    pub epochs: Vec<EpochEnd>,
}

impl TrainingFigures {
    /// Returns the time of every iteration, including warm-up: the mean over ranks, which adds up to the run's time.
    pub fn iteration_times(&self) -> Vec<Seconds> {
        let ranks = self.steps.len() as f64;
        let iteration = |index: usize| Seconds(self.steps.iter().map(|steps| steps[index].0).sum::<f64>() / ranks);
        (0..self.steps.first().map_or(0, Vec::len)).map(iteration).collect()
    }

    /// Returns the number of iterations, including warm-up, and the number of warm-up iterations; `None` if the log
    /// does not contain them.
    pub fn iterations(&self) -> Option<[usize; 2]> {
        let each = self.windows.map_or(Some(1), |windows| windows.iterations)? as usize;
        Some([self.timed, self.warmup].map(|count| count.saturating_mul(each)))
    }

    /// Returns the step times of all ranks after warm-up as one list; PyTorch's benchmark computes its percentiles from
    /// it.
    pub fn pooled_steps(&self) -> Vec<f64> {
        self.steps.iter().flat_map(|steps| &steps[self.warmup..]).map(|step| step.0).collect()
    }
}

/// Rounds as DLPerf does with numpy: `rint(100 x) / 100`, ties to even.
pub fn to_hundredths(value: f64) -> f64 {
    (value * 100.0).round_ties_even() / 100.0
}

impl Readable for RunRecord {
    type Facts = TrainingFacts;
    type Figures = TrainingFigures;

    fn shared_config(&self, warmup: Option<u32>) -> TrainConfig {
        let header = &self.header;
        let shared = header.config.without_epoch_length().without_part();
        let device = header.ranks.first().map_or(DeviceKind::Cpu, |rank| rank.device);
        // A program determines its iterations, and its warm-up may be found from them.
        let program = &header.config.program;
        TrainConfig {
            device: DeviceChoice::Auto,
            warmup: if program.finds_warmup { 0 } else { warmup_of(Some(header), warmup) },
            seed: TrainConfig::default().seed,
            save: None,
            record: None,
            autotune_log: None,
            trace: TraceConfig::default(),
            // Older records do not contain the defaults.
            exchange: header.config.exchange.on(device, header.config.strategy.strategy),
            iterations: if program.is_used() { TO_THE_END } else { shared.iterations },
            ..shared
        }
    }

    fn facts(&self) -> TrainingFacts {
        let RunRecord { header, end, .. } = self;
        TrainingFacts {
            backend: header.backend,
            buckets: header.buckets.clone(),
            nccl: end.as_ref().map(|end| end.nccl.clone()).unwrap_or_default(),
            strategy: end.as_ref().and_then(|end| end.strategy.clone()),
            checkpoints: end.as_ref().and_then(|end| CheckpointCost::new(&end.checkpoints, end.wall)),
            recompute: end.as_ref().and_then(RunEnd::recompute_time),
        }
    }

    fn add_facts(facts: &TrainingFacts, all: &mut EnvironmentText) {
        environment::add(all, "all-reduce by", facts.backend.keyword());
        environment::add(all, "buckets", &environment::buckets(&facts.buckets));
        environment::add_nccl(all, &facts.nccl);
    }

    /// Determines if a run counts, checking the most important reason first, and computes its figures.
    fn measure(
        found: &FoundRun,
        log: Log,
        record: Option<RunRecord>,
        warmup: Option<u32>,
    ) -> Result<Measured<RunRecord>, Problem> {
        let record_path = found.log.with_extension("jsonl");
        if let Some(record) = &record {
            check_record(&found.name, record).map_err(|error| Problem::from_error(&record_path, &error))?;
        }
        if let Some(remark) = log.damage {
            return Err(Problem::in_log(&found.log, remark));
        }
        let timed = log.speeds.len();
        if let Some(requested) = record.as_ref().map(|record| record.header.config.iterations)
            && (timed != requested as usize || log.windows.is_some())
        {
            let lines = if log.windows.is_some() { 0 } else { timed };
            let what =
                format!("{lines} of {requested} iteration lines, so the log is truncated or edited: repeat the run");
            return Err(Problem::in_file(&found.log, what));
        }
        let warmup = match &log.windows {
            None => Ok(warmup_of(record.as_ref().map(|record| &record.header), warmup) as usize),
            Some(windows) => check_windows(&found.name, windows).and_then(|()| windows_of_warmup(windows, warmup)),
        };
        let warmup = warmup.map_err(|error| Problem::from_error(&found.log, &error))?;
        if timed <= warmup {
            let what = format!(
                "{timed} {}, all of them warm-up ({warmup}): repeat the run with more, or reduce --warmup",
                unit(log.windows.is_some())
            );
            return Err(Problem::in_file(&found.log, what));
        }
        let work = found.name.batch.work(found.name.case);
        let (of_rates, over_time) = (mean(&log.speeds[warmup..]), harmonic_mean(&log.speeds[warmup..]));
        let measured = || {
            let (ranks, steps) = match &record {
                // Phases of a program are unknown.
                Some(RunRecord { header, iterations, end: Some(end) }) if end.program.is_some() => {
                    (Vec::new(), steps(header.ranks.len(), iterations))
                }
                Some(RunRecord { header, iterations, .. }) => (
                    rank_times(&header.ranks, &header.samples(), &iterations[warmup..]),
                    steps(header.ranks.len(), iterations),
                ),
                None if log.windows.is_some() => (Vec::new(), Vec::new()),
                None => (Vec::new(), vec![log.speeds.into_iter().map(|speed| Seconds(work / speed)).collect()]),
            };
            let times = IterationTimes::from_ranks(&ranks);
            let end = record.as_ref().and_then(|record| record.end.as_ref());
            Some(Measured::<RunRecord> {
                speed: match &record {
                    Some(record) => record.speed(warmup)?,
                    None => UnitsPerSecond(over_time?),
                },
                peak_memory: end.and_then(|end| record::peak_memory(&end.peak_memory)),
                device_rates: record.as_ref().zip(end).map_or_else(DeviceRates::default, |(record, end)| {
                    DeviceRates::new(&record.header.ranks, &end.matrix_product, found.name.dtype)
                }),
                host_use: end.map(|end| end.host_use.clone()).unwrap_or_default(),
                foreign_load: record.as_ref().and_then(validity::foreign_load),
                warnings: record.as_ref().map(|record| validity::warnings(record, warmup)).unwrap_or_default(),
                figures: TrainingFigures {
                    timed,
                    warmup,
                    windows: log.windows,
                    dlperf_speed: UnitsPerSecond(to_hundredths(match found.name.baseline && record.is_some() {
                        true => independent_speed(&ranks, &steps, warmup)? * found.name.batch.units_per_sample(),
                        false => of_rates?,
                    })),
                    times,
                    steps,
                    ranks,
                    last_loss: match &record {
                        Some(record) => {
                            record.header.global_loss(&record.iterations.last()?.loss).filter(|loss| loss.is_finite())
                        }
                        None => log.last_loss,
                    },
                    losses: match &record {
                        Some(RunRecord { header, iterations, end: Some(end) }) if end.input.is_some() => {
                            iterations.iter().filter_map(|iteration| header.global_loss(&iteration.loss)).collect()
                        }
                        _ => Vec::new(),
                    },
                    skipped_steps: end.map(|end| end.skipped_steps),
                    epochs: end.map(|end| end.epochs.clone()).unwrap_or_default(),
                },
            })
        };
        let measured = measured().filter(|measured| measured.speed.0.is_finite());
        let measured = measured
            .ok_or_else(|| Problem::in_file(&record_path, "all step times are 0 s: the clock of the run is broken"))?;
        for speed in [measured.speed, measured.figures.dlperf_speed] {
            record::check_speed(speed, found.name.batch.unit())
                .map_err(|error| Problem::from_error(&found.log, &error))?;
        }
        Ok(measured)
    }
}

/// Returns the mean of the rates of ranks that do not wait for each other: the sum of their own rates. The log has the
/// rate of rank 0 only.
fn independent_speed(ranks: &[RankTimes], steps: &[Vec<Seconds>], warmup: usize) -> Option<f64> {
    let of_rank = |(rank, steps): (&RankTimes, &Vec<Seconds>)| {
        mean(&steps[warmup..].iter().map(|step| f64::from(rank.samples) / step.0).collect::<Vec<f64>>())
    };
    ranks.iter().zip(steps).map(of_rank).sum()
}

/// Returns the number of warm-up iterations: the given value, or that of the run's configuration, or DLPerf's 20.
fn warmup_of(header: Option<&RunHeader>, typed: Option<u32>) -> u32 {
    typed.or(header.map(|header| header.config.warmup)).unwrap_or_else(|| TrainConfig::default().warmup)
}

/// Returns the unit that a log times.
pub fn unit(is_windows: bool) -> &'static str {
    if is_windows { "windows of iterations" } else { "iterations" }
}

/// Checks that rates of windows belong to the case and batch size in the log's name.
fn check_windows(name: &RunName, windows: &Windows) -> anyhow::Result<()> {
    let Windows { tool, ranks, batch_size, .. } = *windows;
    let case = name.case;
    if let Some(own) = batch_size.filter(|own| BatchShape::per_rank(*own) != name.batch) {
        bail!("{}, batch size {own}, but its name contains {}: rename the log", tool.title(), name.batch);
    }
    match (tool, ranks) {
        (_, ranks) if ranks == case.ranks() => Ok(()),
        (Tool::Speedometer, processes) => bail!(
            "{} computes the rate of its process from its script's batch size, but {processes} of the {} ranks of \
             {case} printed one: it is unknown whether these rates include all ranks: let every rank print its own",
            tool.title(),
            case.ranks()
        ),
        _ => bail!("{} on {ranks} ranks, but its name contains case {case}: move the log", tool.title()),
    }
}

/// Returns the number of warm-up windows: those that contain a warm-up iteration. A tool with a warm-up of its own does
/// not log it, and does not log the number of iterations per window.
fn windows_of_warmup(windows: &Windows, typed: Option<u32>) -> anyhow::Result<usize> {
    match (windows.iterations, typed) {
        (Some(each), typed) => Ok(warmup_of(None, typed).div_ceil(each.max(1)) as usize),
        (None, None | Some(0)) => Ok(0),
        (None, Some(_)) => bail!(
            "{} excludes its own warm-up from these rates, but their number of iterations is unknown: omit --warmup",
            windows.tool.title()
        ),
    }
}

/// Checks that a run with this record can be counted.
fn check_record(name: &RunName, record: &RunRecord) -> anyhow::Result<()> {
    record.check(name)?;
    match validity::invalidity(record) {
        None => Ok(()),
        Some(Invalidity::Iterations { completed, requested }) => {
            bail!("{completed} iterations of {requested}: repeat the run")
        }
        Some(Invalidity::Loss { rank, iteration, .. }) => bail!(
            "the loss of rank {rank} is not finite in iteration {iteration}: repeat the run, with a smaller --lr if this \
             recurs"
        ),
        Some(reason) => bail!("{reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_matches_numpy() {
        for (value, rounded) in [(384.194, 384.19), (0.125, 0.12), (0.375, 0.38), (2.0, 2.0)] {
            assert_eq!(to_hundredths(value), rounded);
        }
    }
}
