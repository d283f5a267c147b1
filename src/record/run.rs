//! The run record: JSON Lines, one `run` line, one `iteration` line each, one `end` line. Writer and parser.
//!
//! Lists over ranks are in rank order. Times are wall clock on the CPU and device time by events on CUDA.

use std::io::{BufRead, Read, Write};

use anyhow::{Context, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::config::{CollectiveChoice, TrainConfig};
use crate::environment::{Environment, RankPlace};
use crate::host_use::{HostUse, RankUse};
use crate::units::{Bytes, Seconds};
use crate::words;

/// Version of this file format; a reader refuses any other.
pub const SCHEMA: u32 = 1;

/// How a run was meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// A measurement.
    Full,
    /// A first look: too short to be quoted.
    Quick,
}

/// First line: what was asked and what it ran on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunHeader {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Nodes and ranks a node as launched.
    pub case: Case,
    /// Number of the run in its case, from 1.
    pub run: u32,
    /// How it was meant.
    pub profile: Profile,
    /// Start, seconds since 1970 UTC.
    pub started: Seconds,
    /// What was asked.
    pub config: TrainConfig,
    /// Engine that summed the gradients: `nccl`, `mpi`, `none`, or `solo` for one rank.
    pub collective: String,
    /// Sizes of the gradient buckets as fp32, in the order of backward.
    pub buckets: Vec<Bytes>,
    /// What `--autotune` tried and chose; `None` without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<Tuning>,
    /// Where rank 0 ran.
    pub environment: Environment,
    /// Every rank.
    pub ranks: Vec<RankPlace>,
}

impl RunHeader {
    /// Whether the ranks were asked to exchange gradients.
    pub fn exchanges(&self) -> bool {
        self.config.exchange.collective != CollectiveChoice::None
    }
}

/// The search of `--autotune`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// In the order they were tried; the first is what was asked for.
    pub trials: Vec<Trial>,
    /// Index of the one that the run uses.
    pub chosen: usize,
}

/// One setting that was tried.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Size of a gradient bucket in MB.
    pub bucket_mb: f64,
    /// Longest stretch of one MPI call in kB; 0 is a bucket.
    pub piece_kb: u32,
    /// Forward, backward and all-reduce: median over a few steps of the slowest rank's time.
    pub step: Seconds,
}

/// One iteration; every list has one number a rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Iteration {
    /// From 1.
    pub iteration: u32,
    /// Start of this iteration to the start of the next.
    pub step: Vec<Seconds>,
    /// Forward and loss.
    pub forward: Vec<Seconds>,
    /// Backward without the time it was blocked by communication.
    pub backward: Vec<Seconds>,
    /// All-reduce that backward did not hide: [`backward`](Iteration::backward) plus this ends where the optimizer starts.
    pub exposed_allreduce: Vec<Seconds>,
    /// Weight update.
    pub optimizer: Vec<Seconds>,
    /// Own compute time: start of the iteration to when the rank joins its first all-reduce, with no wait for another in
    /// it. Without overlap that is the end of backward. Empty in records that were written before it was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before_allreduce: Vec<Seconds>,
    /// Mean cross entropy of the rank's batch; `null` in the file where it is not finite.
    #[serde(with = "nullable")]
    pub loss: Vec<f64>,
    /// Loss scale of the iteration; 1 where none is used.
    pub loss_scale: f64,
    /// Whether the update was skipped because a gradient was not finite.
    pub skipped: bool,
}

/// JSON has no NaN: what is not finite is written as `null` and read as NaN.
pub(crate) mod nullable {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(|value| value.is_finite().then_some(*value)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
        let values = Vec::<Option<f64>>::deserialize(deserializer)?;
        Ok(values.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect())
    }
}

/// Last line: how it ended. A record without one was cut off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunEnd {
    /// Why the run is not valid; `None` for a complete one.
    pub failure: Option<String>,
    /// Iterations done.
    pub iterations: u32,
    /// Updates skipped for a gradient that was not finite.
    pub skipped_steps: u32,
    /// First iteration's start to the last one's end, on rank 0.
    pub wall: Seconds,
    /// Hash of every rank's weights, hexadecimal; equal on a sound run that exchanges gradients.
    pub parameter_checksums: Vec<String>,
    /// Highest memory use of every rank: of the device on CUDA, resident on the CPU.
    pub peak_memory: Vec<Bytes>,
    /// What every host did while the iterations ran, in the order of their first ranks. Empty in older records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_use: Vec<HostUse>,
    /// What every rank took and lacked while the iterations ran. Empty in older records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rank_use: Vec<RankUse>,
    /// What [`crate::validity`] said of the run when it ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

words!(
    /// What a warning is about, the gravest first.
    WarningKind {
        /// A rank or host that the others wait for, in most iterations.
        Straggler = "straggler",
        /// A rank or host that was slow in some iterations.
        SlowAtTimes = "slow-at-times",
        /// A rank that was slow in one stretch of iterations.
        SlowOnce = "slow-once",
        /// More threads than cores.
        Oversubscribed = "oversubscribed",
        /// A control group's quota that held ranks back.
        Quota = "quota",
        /// Devices or cores that were slowed for their heat.
        Heat = "heat",
        /// Core time that went to processes that are not the run's.
        OtherLoad = "other-load",
        /// Core time that the hypervisor gave to other virtual machines.
        Steal = "steal",
        /// Ranks that waited for memory to come from a disk.
        Memory = "memory",
        /// A speed that changed over the run.
        Drift = "drift",
        /// Iterations that took far longer than the others.
        Outliers = "outliers",
        /// Updates that were skipped.
        Skipped = "skipped",
        /// Step times that are not the time that passed.
        WallClock = "wall-clock",
    }
);

/// What a reader of a run's figures should know, though the run counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Of what sort.
    pub kind: WarningKind,
    /// `rank 3 on host d`, `host d`, or `the run`: equal in every run that has the same trouble.
    pub about: String,
    /// What was seen, the value, what to do.
    pub text: String,
}

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line {
    Run(Box<RunHeader>),
    Iteration(Iteration),
    End(RunEnd),
}

/// What keeps a file that is no record out of memory: some 500,000 ranks.
const LONGEST_LINE: u64 = 1 << 27;

impl Line {
    fn parse(text: &[u8]) -> serde_json::Result<Line> {
        // Nearly all lines, and the only ones whose time is felt: which kind a line is serde knows only when it has taken
        // it apart once, so that the numbers would be read twice.
        match text.starts_with(br#"{"kind":"iteration","#) {
            true => serde_json::from_slice(text).map(Line::Iteration),
            false => serde_json::from_slice(text),
        }
    }
}

/// A whole record. `end` is `None` where the file stops before its last line.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// First line.
    pub header: RunHeader,
    /// In order, from 1, without a gap.
    pub iterations: Vec<Iteration>,
    /// Last line, if it was reached.
    pub end: Option<RunEnd>,
}

impl RunRecord {
    /// Writes every line; the end only where there is one.
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
            line(&Line::End(end.clone()))?;
        }
        output.flush()?;
        Ok(())
    }

    /// Reads a record; an error names the line, from 1. A last line that was cut off ends the record without an end.
    pub fn read(mut input: impl BufRead) -> anyhow::Result<RunRecord> {
        let mut header = None;
        let mut iterations: Vec<Iteration> = Vec::new();
        let mut end = None;
        let mut text = Vec::new();
        for number in 1.. {
            text.clear();
            let piece = (&mut input).take(LONGEST_LINE).read_until(b'\n', &mut text);
            if piece.with_context(|| format!("line {number}: cannot be read"))? == 0 {
                break;
            }
            ensure!((text.len() as u64) < LONGEST_LINE, "line {number}: longer than any line of a run record");
            let cut_off = !text.ends_with(b"\n");
            if number == 1 {
                check_schema(text.trim_ascii_end()).context("line 1")?;
            }
            let line = match Line::parse(text.trim_ascii_end()) {
                Ok(line) => line,
                Err(_) if cut_off && number > 1 => break,
                Err(error) => {
                    return Err(in_line(&error)).with_context(|| format!("line {number}: not a line of a run record"));
                }
            };
            match line {
                _ if end.is_some() => bail!("line {number}: follows the end of the run"),
                Line::Run(line) if header.is_none() => header = Some(*line),
                Line::Run(_) => bail!("line {number}: a second run in one file"),
                Line::Iteration(_) if header.is_none() => bail!("line {number}: an iteration before its run"),
                Line::Iteration(line) => {
                    let ranks = header.as_ref().map_or(0, |header| header.ranks.len());
                    line.check(iterations.len() + 1, ranks).with_context(|| format!("line {number}"))?;
                    iterations.push(line);
                }
                Line::End(line) => {
                    let (hosts, ranks) = (line.host_use.len(), header.as_ref().map_or(0, |header| header.ranks.len()));
                    ensure!(hosts <= ranks, "line {number}: host_use has {hosts} hosts for {ranks} ranks");
                    end = Some(line);
                }
            }
        }
        let header = header.context("the file is empty: the run ended before it wrote anything")?;
        Ok(RunRecord { header, iterations, end })
    }

    /// Why this run may not be counted; `None` for a sound one.
    pub fn failure(&self) -> Option<String> {
        match &self.end {
            None => Some(format!("stopped after iteration {}, without an end line", self.iterations.len())),
            Some(end) => end.failure.clone(),
        }
    }
}

impl Iteration {
    fn check(&self, expected: usize, ranks: usize) -> anyhow::Result<()> {
        ensure!(self.iteration as usize == expected, "iteration {} where {expected} is due", self.iteration);
        for (name, list) in [
            ("step", &self.step),
            ("forward", &self.forward),
            ("backward", &self.backward),
            ("exposed_allreduce", &self.exposed_allreduce),
            ("optimizer", &self.optimizer),
            ("before_allreduce", &self.before_allreduce),
        ] {
            if name == "before_allreduce" && list.is_empty() {
                continue;
            }
            ensure!(list.len() == ranks, "{name} has {} values for {ranks} ranks", list.len());
            if let Some(time) = list.iter().find(|time| !time.is_duration()) {
                bail!("{name} holds {time}, which is no duration");
            }
        }
        ensure!(self.loss.len() == ranks, "loss has {} values for {ranks} ranks", self.loss.len());
        Ok(())
    }
}

/// The place is one in the line, which serde takes for a whole file.
fn in_line(error: &serde_json::Error) -> anyhow::Error {
    anyhow!(error.to_string().replace(" at line 1 column", " at column"))
}

/// A record of another version may not even parse; say so instead of naming a missing field.
fn check_schema(text: &[u8]) -> anyhow::Result<()> {
    #[derive(Deserialize)]
    struct Schema {
        kind: String,
        schema: u32,
    }
    let line: Schema =
        serde_json::from_slice(text).map_err(|error| in_line(&error)).context("not the first line of a run record")?;
    ensure!(line.kind == "run", "a run record begins with a run line, this is {:?}", line.kind);
    ensure!(
        line.schema == SCHEMA,
        "record format {} where this ringmark reads {SCHEMA}: use the ringmark that wrote it",
        line.schema
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::DeviceKind;

    fn record() -> RunRecord {
        let place = |rank| RankPlace {
            rank,
            local_rank: rank,
            host: "a".to_owned(),
            device: DeviceKind::Cpu,
            device_name: "processor".to_owned(),
            threads: 1,
            process: 100 + rank,
        };
        let iteration = |iteration, loss| Iteration {
            iteration,
            step: vec![Seconds(0.5), Seconds(0.5)],
            forward: vec![Seconds(0.125); 2],
            backward: vec![Seconds(0.25); 2],
            exposed_allreduce: vec![Seconds(0.0625); 2],
            optimizer: vec![Seconds(0.03125); 2],
            before_allreduce: vec![Seconds(0.1875); 2],
            loss: vec![6.9, loss],
            loss_scale: 1.0,
            skipped: false,
        };
        RunRecord {
            header: RunHeader {
                schema: SCHEMA,
                case: "1n2g".parse().expect("a case"),
                run: 1,
                profile: Profile::Full,
                started: Seconds(1.7e9),
                config: TrainConfig::default(),
                collective: "mpi".to_owned(),
                buckets: vec![Bytes(8)],
                tuning: Some(Tuning {
                    trials: vec![Trial { bucket_mb: 25.0, piece_kb: 0, step: Seconds(0.5) }],
                    chosen: 0,
                }),
                environment: Environment::default(),
                ranks: vec![place(0), place(1)],
            },
            iterations: vec![iteration(1, 7.0), iteration(2, 6.5)],
            end: Some(RunEnd {
                failure: None,
                iterations: 2,
                skipped_steps: 0,
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
            }),
        }
    }

    fn text(record: &RunRecord) -> String {
        let mut bytes = Vec::new();
        record.write(&mut bytes).expect("memory takes it");
        String::from_utf8(bytes).expect("JSON is UTF-8")
    }

    fn error(text: &str) -> String {
        format!("{:#}", RunRecord::read(text.as_bytes()).expect_err("refused"))
    }

    #[test]
    fn reads_what_it_writes() {
        let record = record();
        assert_eq!(RunRecord::read(text(&record).as_bytes()).expect("sound"), record);
        assert_eq!(record.failure(), None);
    }

    #[test]
    fn a_record_of_before_there_were_warnings_is_read() {
        let mut old = record();
        old.iterations.iter_mut().for_each(|iteration| iteration.before_allreduce.clear());
        let end = old.end.as_mut().expect("an end");
        (end.host_use, end.rank_use, end.warnings) = Default::default();
        let written = text(&old);
        assert!(!written.contains("before_allreduce") && !written.contains("warnings"), "{written}");
        assert_eq!(RunRecord::read(written.as_bytes()).expect("sound"), old);
    }

    #[test]
    fn a_loss_that_is_not_finite_survives_as_nan() {
        let mut record = record();
        record.iterations[1].loss[0] = f64::INFINITY;
        let read = RunRecord::read(text(&record).as_bytes()).expect("null is allowed");
        assert!(read.iterations[1].loss[0].is_nan());
    }

    #[test]
    fn a_cut_off_record_is_a_failed_run_and_keeps_its_iterations() {
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
    fn damage_is_named_with_its_line() {
        let whole = text(&record());
        assert!(error("").contains("empty"));
        assert!(error("{\"kind\":\"run\",\"schema\":9}\n").contains("record format 9"), "{}", error("{}"));
        assert!(
            error(&whole.replace("\"iteration\":2", "\"iteration\":5")).contains("line 3: iteration 5 where 2 is due")
        );
        assert!(error(&whole.replacen("0.25", "-0.25", 1)).contains("line 2: backward holds -0.25 s"));
        let short = whole.replacen("[0.1875,0.1875]", "[0.1875]", 1);
        assert!(error(&short).contains("line 2: before_allreduce has 1 values for 2 ranks"), "{}", error(&short));
        assert!(error(&whole.replacen("[6.9,7.0]", "[6.9]", 1)).contains("line 2: loss has 1 values for 2 ranks"));
        assert!(error(&whole.replacen("{\"kind\":\"iteration\"", "nonsense", 1)).contains("line 2: not a line"));
        assert!(error(&format!("{whole}{whole}")).contains("line 5: follows the end"));
    }
}
