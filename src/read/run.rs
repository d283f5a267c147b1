//! One run: its log read line by line, the record beside it, and whether it counts. Not for comparing runs.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use ringmark_record::config::{DeviceChoice, TrainConfig};
use ringmark_record::environment::DeviceKind;
use ringmark_record::files::RunName;
use ringmark_record::log_line::{self, Line};
use ringmark_record::run::{Iteration, Profile, RunHeader, RunRecord, Warning};
use ringmark_record::stats::summary::{harmonic_mean, mean};
use ringmark_record::units::{ImagesPerSecond, Seconds};
use ringmark_record::validity;

use crate::read::folder::FoundRun;
use crate::read::problem::Problem;

/// Longest piece of a log that is looked at as one line, in bytes; keeps a file without line ends out of memory.
const LONGEST_LINE: u64 = 1 << 20;

/// A run that was found, counted or not.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Which run, and where its log is.
    pub found: FoundRun,
    /// What its record says of the conditions; `None` without a readable record (DLPerf's logs have none).
    pub recorded: Option<Recorded>,
    /// Its figures, or why it has none.
    pub outcome: Result<Measured, Problem>,
}

/// What only a record knows.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// What has to be equal for two runs to be compared.
    pub conditions: RecordedConditions,
    /// Names of the devices of all ranks.
    pub device_names: BTreeSet<String>,
    /// Versions of what ran.
    pub software: String,
}

/// Conditions that two runs of one measurement share.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedConditions {
    /// Kind of every rank's device.
    pub device: DeviceKind,
    /// How the run was meant.
    pub profile: Profile,
    /// What was asked; seed, output files and choice of device, which may differ, are at their defaults.
    pub config: TrainConfig,
}

/// Figures of one run, over the iterations after warm-up.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Iterations of the run, warm-up included.
    pub iterations: usize,
    /// First iterations that were left out.
    pub warmup: usize,
    /// Mean of rates: the arithmetic mean of the log's speeds, 2 decimals (DLPerf's speed of a run).
    pub speed: ImagesPerSecond,
    /// All images over all time. With a record `batch x ranks x iterations / mean over ranks of the summed step time`,
    /// without one the harmonic mean of the log's speeds.
    pub images_over_time: ImagesPerSecond,
    /// Where the time went.
    pub times: Option<StepTimes>,
    /// Mean loss over ranks in the last iteration.
    pub last_loss: Option<f64>,
    /// Updates skipped for a gradient that was not finite.
    pub skipped_steps: Option<u32>,
    /// Worked out again from the record; none without one.
    pub warnings: Vec<Warning>,
}

/// Mean times of one iteration over ranks and iterations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTimes {
    /// Start of an iteration to the start of the next.
    pub step: Seconds,
    /// Forward and loss.
    pub forward: Seconds,
    /// Backward without the time it was blocked by communication.
    pub backward: Seconds,
    /// All-reduce that backward did not hide.
    pub exposed_allreduce: Seconds,
    /// Weight update.
    pub optimizer: Seconds,
}

impl StepTimes {
    /// Share of the step that is exposed all-reduce, 0 to 1.
    pub fn exposed_share(&self) -> f64 {
        self.exposed_allreduce.0 / self.step.0
    }
}

/// DLPerf's rounding, numpy's: `rint(100 x) / 100`, ties to even.
pub fn to_hundredths(value: f64) -> f64 {
    (value * 100.0).round_ties_even() / 100.0
}

/// Reads the run at `root`/`found.log`; `warmup` overrides what the record (or else DLPerf) says.
pub fn read(root: &Path, found: &FoundRun, warmup: Option<u32>) -> Run {
    let log = read_log(root, &found.log);
    let record = read_record(root, &found.log);
    let recorded = record.as_ref().ok().and_then(Option::as_ref).map(|record| recorded(&record.header, warmup));
    let outcome = log.and_then(|log| measure(found, log, record, warmup));
    Run { found: found.clone(), recorded, outcome }
}

/// Decides whether a run counts, the most telling reason first, and works out its figures.
fn measure(
    found: &FoundRun,
    log: Log,
    record: Result<Option<RunRecord>, Problem>,
    warmup: Option<u32>,
) -> Result<Measured, Problem> {
    let record_path = found.log.with_extension("jsonl");
    if let Some(problem) = log.failure {
        return Err(problem);
    }
    let record = record?;
    if let Some(record) = &record {
        check_record(&found.name, record).map_err(|what| Problem::in_file(&record_path, what))?;
    }
    if let Some(problem) = log.damage {
        return Err(problem);
    }
    let iterations = log.speeds.len();
    if let Some(asked) = record.as_ref().map(|record| record.header.config.iterations)
        && iterations != asked as usize
    {
        let what = format!("{iterations} iteration lines of {asked}: the log was cut off or edited, repeat the run");
        return Err(Problem::in_file(&found.log, what));
    }
    let warmup = warmup_of(record.as_ref().map(|record| &record.header), warmup) as usize;
    if iterations <= warmup {
        let what = format!(
            "{iterations} iterations, all of them warm-up ({warmup}): repeat the run with more, or give a smaller --warmup"
        );
        return Err(Problem::in_file(&found.log, what));
    }
    let speeds = &log.speeds[warmup..];
    let measured = |iterations_after: Option<&[Iteration]>| {
        let images = f64::from(found.name.batch_size) * f64::from(found.name.case.ranks());
        let times = iterations_after.and_then(step_times);
        let over_time = times.map(|times| images / times.step.0).or_else(|| harmonic_mean(speeds))?;
        Some(Measured {
            iterations,
            warmup,
            speed: ImagesPerSecond(to_hundredths(mean(speeds)?)),
            images_over_time: ImagesPerSecond(over_time),
            times,
            last_loss: iterations_after.map_or(log.last_loss, |all| mean(&all.last()?.loss)),
            skipped_steps: record.as_ref().and_then(|record| Some(record.end.as_ref()?.skipped_steps)),
            warnings: record.as_ref().map(|record| validity::warnings(record, warmup)).unwrap_or_default(),
        })
    };
    measured(record.as_ref().map(|record| &record.iterations[warmup..]))
        .filter(|measured| measured.images_over_time.0.is_finite())
        .ok_or_else(|| Problem::in_file(&record_path, "all step times are 0 s: the clock of the run is broken"))
}

/// First iterations to leave out: as typed, else as the run was configured, else DLPerf's 20.
fn warmup_of(header: Option<&RunHeader>, typed: Option<u32>) -> u32 {
    typed.or(header.map(|header| header.config.warmup)).unwrap_or_else(|| TrainConfig::default().warmup)
}

/// Why a record's run may not be counted.
fn check_record(name: &RunName, record: &RunRecord) -> Result<(), String> {
    let header = &record.header;
    let config = &header.config;
    if let Some(failure) = record.failure() {
        return Err(format!("the run failed: {failure}: repeat it"));
    }
    if (header.case, config.batch_size, config.dtype) != (name.case, name.batch_size, name.dtype) {
        return Err(format!(
            "is of case {}, batch size {}, {}, and its name says otherwise: give it its own name back",
            header.case, config.batch_size, config.dtype
        ));
    }
    if header.ranks.len() != header.case.ranks() as usize {
        return Err(format!("{} ranks ran in case {}: repeat the run", header.ranks.len(), header.case));
    }
    if header.ranks.iter().any(|rank| rank.device != header.ranks[0].device) {
        return Err("some ranks ran on the CPU and some on GPUs: repeat the run with --device cpu or cuda".to_owned());
    }
    if record.iterations.len() != config.iterations as usize {
        return Err(format!("{} iterations of {}: repeat the run", record.iterations.len(), config.iterations));
    }
    for iteration in &record.iterations {
        if let Some(rank) = iteration.loss.iter().position(|loss| !loss.is_finite()) {
            return Err(format!(
                "the loss of rank {rank} is not finite in iteration {}: repeat the run, with a smaller --lr if it stays so",
                iteration.iteration
            ));
        }
    }
    Ok(())
}

/// Mean over ranks and iterations; every iteration has the same ranks, so this is the mean over all values.
fn step_times(iterations: &[Iteration]) -> Option<StepTimes> {
    let average = |list: fn(&Iteration) -> &[Seconds]| {
        let values: Vec<f64> = iterations.iter().flat_map(list).map(|time| time.0).collect();
        mean(&values).map(Seconds)
    };
    Some(StepTimes {
        step: average(|iteration| &iteration.step)?,
        forward: average(|iteration| &iteration.forward)?,
        backward: average(|iteration| &iteration.backward)?,
        exposed_allreduce: average(|iteration| &iteration.exposed_allreduce)?,
        optimizer: average(|iteration| &iteration.optimizer)?,
    })
}

fn recorded(header: &RunHeader, warmup: Option<u32>) -> Recorded {
    let environment = &header.environment;
    let versions = [
        ("ringmark-worker", Some(&environment.ringmark_version)),
        ("libtorch", Some(&environment.libtorch_version)),
        ("NCCL", environment.nccl_version.as_ref()),
    ];
    let device = header.ranks.first().map_or(DeviceKind::Cpu, |rank| rank.device);
    let config = TrainConfig {
        device: DeviceChoice::Auto,
        warmup: warmup_of(Some(header), warmup),
        seed: TrainConfig::default().seed,
        save: None,
        record: None,
        ..header.config.clone()
    };
    Recorded {
        conditions: RecordedConditions { device, profile: header.profile, config },
        device_names: header.ranks.iter().map(|rank| rank.device_name.clone()).collect(),
        software: versions
            .iter()
            .filter_map(|(name, version)| Some(format!("{name} {}", version.filter(|version| !version.is_empty())?)))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

/// The record beside a log; `None` where there is none.
fn read_record(root: &Path, log: &Path) -> Result<Option<RunRecord>, Problem> {
    let path = log.with_extension("jsonl");
    match File::open(root.join(&path)) {
        Ok(file) => RunRecord::read(BufReader::new(file))
            .map(Some)
            .map_err(|error| Problem::in_file(&path, format!("the record cannot be used: {error:#}"))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Problem::in_file(&path, format!("the record cannot be read: {error}"))),
    }
}

/// What a log says.
#[derive(Debug, Default)]
struct Log {
    /// Of every iteration in order, warm-up included, in images/s over all ranks.
    speeds: Vec<f64>,
    /// On the last iteration's line, where it has one.
    last_loss: Option<f64>,
    /// The launcher's word that the run failed.
    failure: Option<Problem>,
    /// The first thing that makes the speeds incomplete or ambiguous.
    damage: Option<Problem>,
}

/// Reads a log of any length and content; an error where the file itself cannot be read.
fn read_log(root: &Path, path: &Path) -> Result<Log, Problem> {
    let unreadable = |error: std::io::Error| Problem::in_file(path, format!("the log cannot be read: {error}"));
    let mut input = BufReader::new(File::open(root.join(path)).map_err(unreadable)?);
    let mut log = Log::default();
    let mut bytes = Vec::new();
    let mut last_batch = 0;
    let mut number = 0;
    loop {
        bytes.clear();
        if (&mut input).take(LONGEST_LINE).read_until(b'\n', &mut bytes).map_err(unreadable)? == 0 {
            break;
        }
        number += 1;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end();
        let damage = match log_line::parse(text) {
            Line::Other => None,
            Line::Failed(reason) => {
                let what = format!("the run failed: {reason}: repeat it");
                log.failure.get_or_insert_with(|| Problem::in_line(path, number, what));
                None
            }
            Line::Malformed => Some(format!("an iteration without a speed, {:?}: repeat the run", excerpt(text))),
            Line::Iteration { batch, speed } => {
                // Some writers count from 0; after the first line the numbers have to go up by one.
                let due = if log.speeds.is_empty() { batch.min(1) } else { last_batch + 1 };
                let damage = (batch != due).then(|| out_of_order(batch, due));
                let loss = log_line::loss(text);
                let damage = damage.or_else(|| not_finite(batch, loss));
                log.speeds.push(speed.0);
                log.last_loss = loss;
                last_batch = batch;
                damage
            }
        };
        if let Some(what) = damage {
            log.damage.get_or_insert_with(|| Problem::in_line(path, number, what));
        }
    }
    if log.speeds.is_empty() && log.damage.is_none() {
        let what = match number {
            0 => "the log is empty: the run ended before it wrote anything, repeat it",
            _ => "no iteration in the log: the run ended before its first one, repeat it",
        };
        log.damage = Some(Problem::in_file(path, what));
    }
    Ok(log)
}

fn out_of_order(batch: u32, due: u32) -> String {
    let cause = if batch < due { "two outputs in one log" } else { "lines are missing" };
    format!("Batch[{batch}] where Batch[{due}] is due: {cause}, repeat the run")
}

fn not_finite(batch: u32, loss: Option<f64>) -> Option<String> {
    let loss = loss.filter(|loss| !loss.is_finite())?;
    Some(format!("the loss of Batch[{batch}] is {loss}: repeat the run, with a smaller --lr if it stays so"))
}

/// The first characters of a line, enough to recognize it.
fn excerpt(text: &str) -> String {
    const LENGTH: usize = 60;
    if text.chars().count() <= LENGTH { text.to_owned() } else { text.chars().take(LENGTH).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_numpy_s() {
        for (value, rounded) in [(384.194, 384.19), (0.125, 0.12), (0.375, 0.38), (2.0, 2.0)] {
            assert_eq!(to_hundredths(value), rounded);
        }
    }

    #[test]
    fn a_long_line_is_shortened_between_characters() {
        assert_eq!(excerpt("short"), "short");
        assert_eq!(excerpt(&"é".repeat(70)), format!("{}…", "é".repeat(60)));
    }
}
