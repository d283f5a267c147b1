//! The run record in JSON Lines: one `run` line, one line per `iteration`, one `end` line. Writer and parser.
//!
//! Lists over ranks are in rank order. Times are wall-clock times on the CPU, and device times measured with events on
//! CUDA.

use std::io::{BufRead, Read, Write};

use anyhow::{Context, anyhow, bail, ensure};
use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};

use crate::benchmark::compression::CompressionUse;
use crate::benchmark::data_input::DataInputUse;
use crate::benchmark::exchange::BackendChoice;
use crate::benchmark::strategy::StrategyUse;
use crate::benchmark::train::checkpoint_write::CheckpointWrite;
use crate::benchmark::train::config::TrainConfig;
use crate::benchmark::train::fingerprints::Fingerprints;
use crate::benchmark::train::interruption::Resumption;
use crate::benchmark::train::iteration::Iteration;
use crate::benchmark::train::learning::EpochEnd;
use crate::benchmark::train::program::ProgramUse;
use crate::benchmark::train::work_load::WorkDivision;
use crate::benchmark::warning::Warning;
use crate::benchmark::{Record, RecordHead, RunLabel, RunProfile, SweepRecord};
use crate::dimension::{
    AttentionKernel, BackendName, Bytes, Case, GigabytesPerSecond, Phase, Seconds, TeraflopsPerSecond, UnitsPerSecond,
    Wire,
};
use crate::file::run_name::{Point, RunName};
use crate::file::schema;
use crate::host::{Environment, HostUse, Observed, RankPlace, RankUse};
use crate::stats::summary::mean;
use crate::trace::{LayerProfile, OperatorProfile};

/// Version of this file format. Versions 1 and 2 have other names for a few keys and are read as well; any other is
/// rejected.
pub const SCHEMA: u32 = 3;

/// First line: configuration and environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunHeader {
    /// Version of the format.
    pub schema: u32,
    /// Nodes and ranks per node, as launched.
    pub case: Case,
    /// Number of the run in its case, from 1.
    pub run: u32,
    /// Profile of the run.
    pub profile: RunProfile,
    /// Start, seconds since 1970 UTC; that of the first part if the run was resumed.
    pub started: Seconds,
    /// Configuration of the run.
    pub config: TrainConfig,
    /// Backend that summed the gradients: `nccl`, `shared-memory`, `mpi`, `tcp` (to servers), `none`, or `solo` for one rank.
    #[serde(alias = "collective")]
    pub backend: BackendName,
    /// Type of the additions: fp32, or the wire type if a library adds. `None` if nothing was exchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sum_dtype: Option<Wire>,
    /// Sizes of the gradient buckets as fp32, in backward order.
    pub buckets: Vec<Bytes>,
    /// Resumptions from a checkpoint, in order; empty for an uninterrupted run.
    #[serde(alias = "taken_up", default, skip_serializing_if = "Vec::is_empty")]
    pub resumptions: Vec<Resumption>,
    /// Division of an iteration's images by `--work-load`; `None` if every rank has the same number, and in older
    /// records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_division: Option<WorkDivision>,
    /// Trials and choice of `--autotune`; `None` without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<Tuning>,
    /// Reason why `--graphs auto` did not use CUDA graphs on a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_graph: Option<String>,
    /// Environment of rank 0.
    pub environment: Environment,
    /// Location and device of every rank.
    pub ranks: Vec<RankPlace>,
}

impl RunHeader {
    /// Returns the header of a run that exchanges nothing.
    pub fn new(
        RunLabel { case, run, profile }: RunLabel,
        started: Seconds,
        config: TrainConfig,
        environment: Environment,
        ranks: Vec<RankPlace>,
    ) -> RunHeader {
        RunHeader {
            schema: SCHEMA,
            case,
            run,
            profile,
            started,
            config,
            backend: BackendName::Unknown,
            sum_dtype: None,
            buckets: Vec::new(),
            resumptions: Vec::new(),
            work_division: None,
            tuning: None,
            no_graph: None,
            environment,
            ranks,
        }
    }

    /// Returns true if the configuration exchanges gradients.
    pub fn exchanges(&self) -> bool {
        self.config.exchange.backend != BackendChoice::None
    }

    /// Returns the iterations before the part of the run that wrote this record; 0 for an uninterrupted run.
    pub fn iterations_before(&self) -> u32 {
        self.resumptions.last().map_or(0, |last| last.behind)
    }

    /// Returns the images or tokens of all ranks in one iteration.
    pub fn units_per_iteration(&self) -> f64 {
        self.config.joined_batch(self.ranks.len() as u32) as f64 * self.config.batch().units_per_sample()
    }

    /// Returns the images of every rank in one iteration.
    pub fn samples(&self) -> Vec<u32> {
        match &self.work_division {
            Some(division) => division.samples.clone(),
            None => vec![self.config.batch_size; self.ranks.len()],
        }
    }

    /// Returns the mean loss over the global batch of all ranks, given each rank's own: `sum of images x loss / sum of
    /// images`. `None` without ranks.
    ///
    /// For 24 images of loss 2 and 8 of loss 4 the result is `(24 x 2 + 8 x 4) / 32 = 2.5`.
    pub fn global_loss(&self, losses: &[f64]) -> Option<f64> {
        match &self.work_division {
            None => mean(losses),
            Some(WorkDivision { samples, .. }) => {
                let sum: f64 = samples.iter().zip(losses).map(|(samples, loss)| f64::from(*samples) * loss).sum();
                Some(sum / f64::from(samples.iter().sum::<u32>()))
            }
        }
    }
}

/// The search of `--autotune`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tuning {
    /// Trials in the order they ran; the first is the requested setting.
    pub trials: Vec<Trial>,
    /// Index of the trial whose setting the run uses.
    pub chosen: usize,
}

/// One trial of the search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// Size of a gradient bucket in MB.
    pub bucket_mb: f64,
    /// Maximum chunk of one MPI call in kB; 0 is a whole bucket.
    #[serde(alias = "piece_kb")]
    pub chunk_kb: u32,
    /// Maximum bucket at the end of backward in MB; 0 is no limit, also in older records.
    #[serde(default)]
    pub tail_mb: f64,
    /// Forward, backward and all-reduce: median over a few steps of the slowest rank's time.
    pub step: Seconds,
}

/// Last line: outcome of the run. A record without one was interrupted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct RunEnd {
    /// Reason the run is not valid; `None` for a complete one.
    pub failure: Option<String>,
    /// Completed iterations.
    pub iterations: u32,
    /// Updates skipped because a gradient was not finite.
    pub skipped_steps: u32,
    /// Wall-clock time from the start of the first iteration to the end of the last, on rank 0, without the
    /// interruptions of a resumed run.
    pub wall: Seconds,
    /// Hash of every rank's weights, hexadecimal; equal on all ranks of a valid run that exchanges gradients.
    pub parameter_checksums: Vec<String>,
    /// Fingerprints of `--fingerprint`; `None` without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprints: Option<Fingerprints>,
    /// Peak memory of every rank after the warm-up: memory of tensors on CUDA, resident memory on the CPU. Older records
    /// contain the memory held by the device's allocator, and the peak of the whole run on the CPU.
    pub peak_memory: Vec<Bytes>,
    /// Rate of plain matrix products, run on all ranks at once in the precision of the step and measured after it.
    /// Empty if a rank had too little memory for them, and in older records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matrix_product: Vec<TeraflopsPerSecond>,
    /// Rate of a copy within the memory of the device, bytes read and written, on all ranks at once, measured after the
    /// matrix products with `--fingerprint` on GPUs. Empty otherwise, if a rank had too little memory, and in short runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory_copy: Vec<GigabytesPerSecond>,
    /// Kernel of attention on rank 0; `None` for a network without attention, and in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<AttentionKernel>,
    /// Statistics of the servers or of the ranks that own weights; `None` with `--strategy all-reduce`, and in older records.
    #[serde(default, alias = "kv_store", skip_serializing_if = "Option::is_none")]
    pub strategy: Option<StrategyUse>,
    /// Statistics of `--gradient-compression`; `None` without compression, and for one rank, which sends nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<CompressionUse>,
    /// Completed epochs of the data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<EpochEnd>,
    /// Checkpoints in order, those before a resumption included, except the one that the run resumed from, whose file
    /// cannot contain its own times. Empty without checkpoints, and in older records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checkpoints: Vec<CheckpointWrite>,
    /// Time of each rank in backward to compute activations again (`--recompute`), with the waits for weights in it:
    /// mean over the iterations after the warm-up. Empty without it, with CUDA graphs, and in older records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recompute: Vec<Seconds>,
    /// Time by layer in the traced iterations, with `--profile-layers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<LayerProfile>,
    /// Time by operator in the traced iterations, with `--profile-operators`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operators: Option<OperatorProfile>,
    /// Statistics of reading `--data`; `None` if nothing or a single batch was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<DataInputUse>,
    /// Observations of the program that trained; `None` for ringmark's own step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<ProgramUse>,
    /// NCCL's log lines about its choices; empty without NCCL, if the user set NCCL's log options, and in older
    /// records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nccl: Vec<String>,
    /// Resource use of every host during the iterations, ordered by the hosts' first ranks. Empty in older records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_use: Vec<HostUse>,
    /// Resource use and waits of every rank during the iterations. Empty in older records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rank_use: Vec<RankUse>,
    /// Warnings about the figures when the run ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

impl RunEnd {
    /// Returns the time per iteration to compute activations again: mean over the ranks. `None` if it was not measured.
    pub fn recompute_time(&self) -> Option<Seconds> {
        mean(&self.recompute.iter().map(|time| time.0).collect::<Vec<f64>>()).map(Seconds)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line {
    Run(Box<RunHeader>),
    Iteration(Iteration),
    End(Box<RunEnd>),
}

/// Returns the JSON Schema of a line of the file.
pub fn schema_of_line() -> Schema {
    schema_for!(Line)
}

/// Maximum length of a line in bytes, enough for some 500,000 ranks; keeps files that are not records from filling the
/// memory.
const MAX_LINE_LENGTH: u64 = 1 << 27;

impl Line {
    fn parse(text: &[u8]) -> serde_json::Result<Line> {
        // Nearly all lines are iterations, the only ones whose parsing time matters. Serde must parse a tagged line
        // once to find its kind and would read the numbers twice.
        match is_iteration(text) {
            true => serde_json::from_slice(text).map(Line::Iteration),
            false => serde_json::from_slice(text),
        }
    }
}

/// Returns true if the line is an iteration as ringmark writes it.
fn is_iteration(text: &[u8]) -> bool {
    text.starts_with(br#"{"kind":"iteration","#)
}

/// A complete record. `end` is `None` if the file stops before its last line.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// First line.
    pub header: RunHeader,
    /// Iterations in order, counted from 1, without gaps.
    pub iterations: Vec<Iteration>,
    /// Last line, if the run reached it.
    pub end: Option<RunEnd>,
}

impl RunRecord {
    /// Returns the speed of the run, `units of all ranks x iterations / mean over ranks of the summed step time`, without
    /// the first `warmup` iterations. `None` if no iteration is left or their times are 0.
    pub fn speed(&self, warmup: usize) -> Option<UnitsPerSecond> {
        let counted = self.iterations.get(warmup..)?;
        let ranks = self.header.ranks.len() as f64;
        let time: f64 = counted.iter().flat_map(|iteration| &iteration.step).map(|step| step.0).sum::<f64>() / ranks;
        let units = self.header.units_per_iteration() * counted.len() as f64;
        (time > 0.0).then(|| UnitsPerSecond(units / time))
    }

    /// Returns the share of the steps that the update takes, without the first `warmup` iterations. `None` if no iteration
    /// is left or their times are 0.
    pub fn update_share(&self, warmup: usize) -> Option<f64> {
        let counted = self.iterations.get(warmup..)?;
        let sum = |times: fn(&Iteration) -> &[Seconds]| counted.iter().flat_map(times).map(|time| time.0).sum::<f64>();
        let step = sum(|iteration| &iteration.step);
        (step > 0.0).then(|| sum(|iteration| &iteration.phases[Phase::Optimizer]) / step)
    }

    /// Writes all lines; the end only if there is one.
    pub fn write(&self, mut output: impl Write) -> anyhow::Result<()> {
        let mut line = |line: &Line| -> anyhow::Result<()> {
            serde_json::to_writer(&mut output, line)?;
            output.write_all(b"\n")?;
            Ok(())
        };
        line(&Line::Run(Box::new(self.header.clone())))?;
        for iteration in &self.iterations {
            line(&Line::Iteration(iteration.clone()))?;
        }
        if let Some(end) = &self.end {
            line(&Line::End(Box::new(end.clone())))?;
        }
        output.flush()?;
        Ok(())
    }
}

impl Record for RunRecord {
    const KIND: &'static str = "run";

    /// Reads a record; errors name the line, counted from 1. A truncated last line leaves the record without an end.
    fn read(mut input: impl BufRead) -> anyhow::Result<RunRecord> {
        let mut header = None;
        let mut iterations: Vec<Iteration> = Vec::new();
        let mut end = None;
        let mut text = Vec::new();
        for number in 1.. {
            text.clear();
            let read = (&mut input).take(MAX_LINE_LENGTH).read_until(b'\n', &mut text);
            if read.with_context(|| format!("line {number}: cannot be read"))? == 0 {
                break;
            }
            ensure!((text.len() as u64) < MAX_LINE_LENGTH, "line {number}: longer than any line of a run record");
            let cut_off = !text.ends_with(b"\n");
            if number == 1 {
                let check = schema::check(text.trim_ascii_end(), RunRecord::KIND, SCHEMA, "run record");
                check.map_err(|error| in_line(&error)).context("line 1")?;
            } else if !is_iteration(&text) {
                schema::check_texts(&text).with_context(|| format!("line {number}"))?;
            }
            let line = match Line::parse(text.trim_ascii_end()) {
                Ok(line) => line,
                Err(_) if cut_off && number > 1 => break,
                Err(error) => {
                    return Err(in_line(&error.into()))
                        .with_context(|| format!("line {number}: not a line of a run record"));
                }
            };
            match line {
                _ if end.is_some() => bail!("line {number}: follows the end of the run"),
                Line::Run(line) if header.is_none() => {
                    check_division(&line).with_context(|| format!("line {number}"))?;
                    header = Some(*line);
                }
                Line::Run(_) => bail!("line {number}: a second run in one file"),
                Line::Iteration(_) if header.is_none() => bail!("line {number}: an iteration before the run header"),
                Line::Iteration(line) => {
                    let ranks = header.as_ref().map_or(0, |header| header.ranks.len());
                    line.check(iterations.len() + 1, ranks).with_context(|| format!("line {number}"))?;
                    iterations.push(line);
                }
                Line::End(line) => {
                    let (hosts, ranks) = (line.host_use.len(), header.as_ref().map_or(0, |header| header.ranks.len()));
                    ensure!(hosts <= ranks, "line {number}: host_use has {hosts} hosts for {ranks} ranks");
                    end = Some(*line);
                }
            }
        }
        let header = header.context("the file is empty: the run ended before it wrote anything")?;
        Ok(RunRecord { header, iterations, end })
    }

    fn head(&self) -> RecordHead<'_> {
        let RunHeader { started, environment, ranks, .. } = &self.header;
        RecordHead { started: *started, environment, ranks }
    }

    fn failure(&self) -> Option<String> {
        match &self.end {
            None => Some(format!("stopped after iteration {}, without an end line", self.iterations.len())),
            Some(end) => end.failure.clone(),
        }
    }

    /// Counts the iterations of a resumed run from where it was resumed.
    fn observed(&self) -> Option<Observed<'_>> {
        let RunRecord { header, end, .. } = self;
        let RunEnd { iterations, host_use, rank_use, .. } = end.as_ref()?;
        let iterations = iterations.saturating_sub(header.iterations_before());
        Some(Observed::new(&header.ranks, host_use, rank_use, iterations, header.environment.load_before.as_ref()))
    }

    fn warnings(&self) -> &[Warning] {
        self.end.as_ref().map(|end| end.warnings.as_slice()).unwrap_or_default()
    }
}

impl SweepRecord for RunRecord {
    type Config = TrainConfig;

    fn config(&self) -> &TrainConfig {
        &self.header.config
    }

    /// Returns the period of the last part if the run was resumed.
    fn period(&self) -> [Seconds; 2] {
        let (started, before) = self
            .header
            .resumptions
            .last()
            .map_or((self.header.started, 0.0), |last| (last.started, last.wall_before.0));
        let until_end = |end: &RunEnd| match &end.program {
            Some(program) => program.first_line.0 + program.arrival.0,
            None => end.wall.0 - before,
        };
        [started, Seconds(started.0 + self.end.as_ref().map_or(0.0, until_end))]
    }

    fn label(&self) -> RunLabel {
        RunLabel { case: self.header.case, run: self.header.run, profile: self.header.profile }
    }

    fn point(&self) -> Point {
        let TrainConfig { model, dtype, strategy, .. } = self.header.config;
        Point { model, batch: self.header.config.batch(), dtype, strategy: strategy.strategy }
    }

    fn check_place(&self, name: &RunName) -> anyhow::Result<()> {
        ensure!(
            !(name.baseline && self.header.exchanges()),
            "contains a run with communication ({}), but is in a folder of runs without it: move it back",
            self.header.backend
        );
        Ok(())
    }
}

/// Rejects a division whose images or ranks differ from the run's.
fn check_division(header: &RunHeader) -> anyhow::Result<()> {
    let Some(WorkDivision { weights, samples }) = &header.work_division else { return Ok(()) };
    let ranks = header.ranks.len();
    ensure!(
        samples.len() == ranks && weights.len() == ranks && !samples.contains(&0),
        "work_division has {} weights and images {samples:?} for {ranks} ranks",
        weights.len()
    );
    let (sum, joined) = (
        samples.iter().map(|samples| u64::from(*samples)).sum::<u64>(),
        u64::from(header.config.batch_size) * ranks as u64,
    );
    ensure!(sum == joined, "work_division has {sum} images, but {ranks} ranks of batch_size have {joined}");
    Ok(())
}

/// Removes the line number from a serde error: serde counts lines within the text that it parses, here a single line.
fn in_line(error: &anyhow::Error) -> anyhow::Error {
    anyhow!(format!("{error:#}").replace(" at line 1 column", " at column"))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::benchmark::warning::WarningKind;
    use crate::dimension::{Phase, Phases};

    fn record() -> RunRecord {
        let iteration = |iteration, loss| Iteration {
            iteration,
            step: vec![Seconds(0.5), Seconds(0.5)],
            phases: Phases::from_fn(|phase| {
                let seconds = match phase {
                    Phase::Input => 0.0,
                    Phase::Forward => 0.125,
                    Phase::Backward => 0.25,
                    Phase::ExposedAllreduce => 0.0625,
                    Phase::Optimizer => 0.03125,
                };
                vec![Seconds(seconds); 2]
            }),
            before_allreduce: vec![Seconds(0.1875); 2],
            loss: vec![6.9, loss],
            loss_scale: 1.0,
            skipped: false,
        };
        RunRecord {
            header: RunHeader {
                backend: BackendName::Mpi,
                buckets: vec![Bytes(8)],
                tuning: Some(Tuning {
                    trials: vec![Trial { bucket_mb: 25.0, chunk_kb: 0, tail_mb: 1.0, step: Seconds(0.5) }],
                    chosen: 0,
                }),
                ..RunHeader::new(
                    RunLabel { case: "1n2g".parse().expect("a case"), run: 1, profile: RunProfile::Full },
                    Seconds(1.7e9),
                    TrainConfig::default(),
                    Environment::default(),
                    (0..2).map(|rank| RankPlace::on_cpu(rank, rank, "a")).collect(),
                )
            },
            iterations: vec![iteration(1, 7.0), iteration(2, 6.5)],
            end: Some(RunEnd {
                iterations: 2,
                wall: Seconds(1.0),
                parameter_checksums: vec!["00ff".to_owned(); 2],
                peak_memory: vec![Bytes(1); 2],
                host_use: vec![HostUse { host: "a".to_owned(), cores: 2, ..HostUse::default() }],
                rank_use: vec![RankUse { throttled: Some(Seconds(0.5)), ..RankUse::default() }; 2],
                warnings: vec![Warning {
                    kind: WarningKind::OtherLoad,
                    about: "host a".to_owned(),
                    text: "host a did something else".to_owned(),
                }],
                ..RunEnd::default()
            }),
        }
    }

    fn text(record: &RunRecord) -> String {
        let mut bytes = Vec::new();
        record.write(&mut bytes).expect("an in-memory write succeeds");
        String::from_utf8(bytes).expect("JSON is UTF-8")
    }

    fn error(text: &str) -> String {
        format!("{:#}", RunRecord::read(text.as_bytes()).expect_err("refused"))
    }

    #[test]
    fn record_round_trips() {
        let record = record();
        assert_eq!(RunRecord::read(text(&record).as_bytes()).expect("sound"), record);
        assert_eq!(record.failure(), None);
    }

    #[test]
    fn resumed_run_has_period_of_last_part() {
        let mut record = record();
        assert_eq!((record.header.iterations_before(), record.period()), (0, [1.7e9, 1.7e9 + 1.0].map(Seconds)));
        let part = |behind, started, wall_before| Resumption {
            behind,
            started: Seconds(started),
            wall_before: Seconds(wall_before),
            changes: Vec::new(),
            interruption: None,
        };
        record.header.resumptions = vec![part(1, 1.75e9, 0.25), part(1, 1.8e9, 0.25)];
        assert_eq!((record.header.iterations_before(), record.period()), (1, [1.8e9, 1.8e9 + 0.75].map(Seconds)));
        assert_eq!(RunRecord::read(text(&record).as_bytes()).expect("sound"), record);
    }

    #[test]
    fn record_without_warnings_is_read() {
        let mut old = record();
        old.iterations.iter_mut().for_each(|iteration| iteration.before_allreduce.clear());
        let end = old.end.as_mut().expect("an end");
        (end.host_use, end.rank_use, end.warnings) = Default::default();
        let written = text(&old);
        assert!(!written.contains("before_allreduce") && !written.contains("warnings"), "{written}");
        assert_eq!(RunRecord::read(written.as_bytes()).expect("sound"), old);
    }

    #[test]
    fn non_finite_loss_round_trips_as_nan() {
        let mut record = record();
        record.iterations[1].loss[0] = f64::INFINITY;
        record.iterations[1].loss_scale = f64::NAN;
        let read = RunRecord::read(text(&record).as_bytes()).expect("null is allowed");
        assert!(read.iterations[1].loss[0].is_nan() && read.iterations[1].loss_scale.is_nan());
    }

    #[test]
    fn truncated_record_is_a_failed_run_with_iterations() {
        let whole = text(&record());
        let end = whole.rfind("{\"kind\":\"end\"").expect("an end line");
        for cut in [end, end + 20, end - 20] {
            let read = RunRecord::read(&whole.as_bytes()[..cut]).expect("readable");
            let done = if cut < end { 1 } else { 2 };
            assert_eq!(read.iterations.len(), done);
            assert_eq!(read.failure(), Some(format!("stopped after iteration {done}, without an end line")));
        }
    }

    #[test]
    fn damage_is_reported_with_its_line() {
        let whole = text(&record());
        let damaged = [
            String::new(),
            "{\"kind\":\"run\",\"schema\":9}\n".to_owned(),
            whole.replace("\"iteration\":2", "\"iteration\":5"),
            whole.replacen("0.25", "-0.25", 1),
            whole.replacen("[0.1875,0.1875]", "[0.1875]", 1),
            whole.replacen("[6.9,7.0]", "[6.9]", 1),
            whole.replacen("{\"kind\":\"iteration\"", "nonsense", 1),
            format!("{whole}{whole}"),
        ];
        expect![[r#"
            the file is empty: the run ended before it wrote anything
            line 1: run record format 9 is not readable by this ringmark (up to 3): use the ringmark that wrote it
            line 3: iteration 5, expected 2
            line 2: backward has an invalid time: -0.25 s
            line 2: before_allreduce has 1 values for 2 ranks
            line 2: loss has 1 values for 2 ranks
            line 2: not a line of a run record: expected ident at column 2
            line 5: follows the end of the run"#]]
        .assert_eq(&damaged.map(|text| error(&text)).join("\n"));
    }
}
