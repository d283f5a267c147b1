//! The record of a scoring run: one JSON document with the time of every pass on every rank. Writer and parser.

use std::io::{BufRead, Write};

use anyhow::ensure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::score::config::ScoreConfig;
use crate::benchmark::warning::Warning;
use crate::benchmark::{Record, RecordHead, RunLabel, RunProfile, SweepRecord};
use crate::dimension::{Bytes, Case, ImagesPerSecond, KvStore, Seconds, TeraflopsPerSecond};
use crate::file::run_name::{Point, RunName};
use crate::file::schema;
use crate::host::{Environment, HostUse, RankPlace, RankUse};
use crate::trace::{LayerProfile, OperatorProfile};

/// Version of this file format.
pub const SCHEMA: u32 = 1;

/// Record of a whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScoreRecord {
    /// Always `ringmark-score`.
    pub kind: String,
    /// Version of the format.
    pub schema: u32,
    /// Nodes and ranks per node, as launched.
    pub case: Case,
    /// Number of the run in its case, from 1.
    pub run: u32,
    /// Profile of the run.
    pub profile: RunProfile,
    /// Start, seconds since 1970 UTC.
    pub started: Seconds,
    /// Configuration of the run.
    pub config: ScoreConfig,
    /// Environment of rank 0.
    pub environment: Environment,
    /// Location and device of every rank.
    pub ranks: Vec<RankPlace>,
    /// Time of every timed pass until its outputs are complete: by rank, then by pass.
    pub seconds: Vec<Vec<Seconds>>,
    /// Peak memory of every rank: memory of tensors in the timed passes on CUDA, resident memory on the CPU.
    pub peak_memory: Vec<Bytes>,
    /// Rate of plain matrix products, run on all ranks at once in the precision of the passes and measured after them.
    /// Empty if a rank had too little memory for them, and in older records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matrix_product: Vec<TeraflopsPerSecond>,
    /// Mean probability of each image's top class, by rank. Equal computations give equal values. Empty in older records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confidence: Vec<f64>,
    /// Fused convolutions of rank 0, if it ran folded on CUDA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rectified_convolutions: Option<RectifiedConvolutions>,
    /// Reason why `--graphs auto` did not use a CUDA graph on a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_graph: Option<String>,
    /// Time by layer in the traced passes, with `--profile-layers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<LayerProfile>,
    /// Time by operator in the traced passes, with `--profile-operators`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operators: Option<OperatorProfile>,
    /// Resource use of every host during the passes.
    pub host_use: Vec<HostUse>,
    /// Resource use and waits of every rank during the passes.
    pub rank_use: Vec<RankUse>,
    /// Warnings about the figures of a valid run.
    pub warnings: Vec<Warning>,
    /// Reason the run is not valid; `None` for a valid one.
    pub failure: Option<String>,
}

/// Counts of convolutions followed by ReLU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RectifiedConvolutions {
    /// Convolutions followed by ReLU, with or without a sum.
    pub all: u32,
    /// Convolutions computed in one kernel with bias, sum and ReLU.
    pub fused: u32,
}

impl ScoreRecord {
    /// Returns the record of a run without measurements.
    pub fn new(
        RunLabel { case, run, profile }: RunLabel,
        started: Seconds,
        config: ScoreConfig,
        environment: Environment,
        ranks: Vec<RankPlace>,
    ) -> ScoreRecord {
        ScoreRecord {
            kind: ScoreRecord::KIND.to_owned(),
            schema: SCHEMA,
            case,
            run,
            profile,
            started,
            config,
            environment,
            ranks,
            seconds: Vec::new(),
            peak_memory: Vec::new(),
            matrix_product: Vec::new(),
            confidence: Vec::new(),
            rectified_convolutions: None,
            no_graph: None,
            layers: None,
            operators: None,
            host_use: Vec::new(),
            rank_use: Vec::new(),
            warnings: Vec::new(),
            failure: None,
        }
    }

    /// Returns the images of all ranks divided by the time of the slowest: `ranks x batch x passes / max over ranks of
    /// the sum of its passes`. For one rank this is benchmark_score.py's `10 x batch / elapsed`. `None` without passes.
    ///
    /// For two ranks of batch 4 with two passes each, of 0.5 s and 0.25 s: 2 x 4 x 2 / 1 s = 16 images/s.
    pub fn speed(&self) -> Option<ImagesPerSecond> {
        let Seconds(elapsed) = self.elapsed();
        let passes: usize = self.seconds.iter().map(Vec::len).sum();
        (elapsed > 0.0).then(|| ImagesPerSecond(f64::from(self.config.batch_size) * passes as f64 / elapsed))
    }

    /// Returns the total time of all passes on the slowest rank.
    pub fn elapsed(&self) -> Seconds {
        Seconds(self.seconds.iter().map(|rank| rank.iter().map(|pass| pass.0).sum()).fold(0.0, f64::max))
    }

    /// Writes the document and a newline.
    pub fn write(&self, output: impl Write) -> anyhow::Result<()> {
        schema::write_document(self, output)
    }
}

impl Record for ScoreRecord {
    const KIND: &'static str = "ringmark-score";

    fn read(input: impl BufRead) -> anyhow::Result<ScoreRecord> {
        let record: ScoreRecord = schema::read_document(input, ScoreRecord::KIND, SCHEMA, "scoring record")?;
        let (ranks, passes) = (record.ranks.len(), record.config.iterations as usize);
        if record.failure.is_none() {
            ensure!(record.seconds.len() == ranks, "times of {} ranks, expected {ranks}", record.seconds.len());
            let short = record.seconds.iter().position(|rank| rank.len() != passes);
            ensure!(short.is_none(), "rank {} does not have {passes} times", short.unwrap_or_default());
        }
        if let Some(time) = record.seconds.iter().flatten().find(|time| !time.is_duration()) {
            anyhow::bail!("invalid pass time {time}");
        }
        Ok(record)
    }

    fn head(&self) -> RecordHead<'_> {
        RecordHead { started: self.started, environment: &self.environment, ranks: &self.ranks }
    }

    fn failure(&self) -> Option<String> {
        self.failure.clone()
    }
}

impl SweepRecord for ScoreRecord {
    type Config = ScoreConfig;

    fn config(&self) -> &ScoreConfig {
        &self.config
    }

    fn period(&self) -> [Seconds; 2] {
        [self.started, Seconds(self.started.0 + self.elapsed().0)]
    }

    fn label(&self) -> RunLabel {
        RunLabel { case: self.case, run: self.run, profile: self.profile }
    }

    fn point(&self) -> Point {
        let ScoreConfig { model, batch_size, dtype, .. } = self.config;
        Point { model, batch_size, dtype, kv_store: KvStore::Ring }
    }

    fn check_place(&self, name: &RunName) -> anyhow::Result<()> {
        ensure!(!name.baseline, "scoring record in a folder of training without communication: move it back");
        Ok(())
    }

    fn warnings(&self) -> &[Warning] {
        &self.warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> ScoreRecord {
        ScoreRecord {
            seconds: vec![vec![Seconds(0.5); 2], vec![Seconds(0.25); 2]],
            peak_memory: vec![Bytes(1); 2],
            ..ScoreRecord::new(
                RunLabel { case: Case { nodes: 1, gpus_per_node: 2 }, run: 1, profile: RunProfile::Full },
                Seconds(1.5),
                ScoreConfig { batch_size: 4, iterations: 2, ..ScoreConfig::default() },
                Environment::default(),
                (0..2).map(|rank| RankPlace::on_cpu(rank, rank, "a")).collect(),
            )
        }
    }

    fn text(record: &ScoreRecord) -> String {
        let mut bytes = Vec::new();
        record.write(&mut bytes).expect("memory takes it");
        String::from_utf8(bytes).expect("JSON is UTF-8")
    }

    #[test]
    fn record_round_trips_and_computes_speed() {
        let record = record();
        assert_eq!(ScoreRecord::read(text(&record).as_bytes()).expect("sound"), record);
        assert_eq!(record.speed(), Some(ImagesPerSecond(16.0)));
        assert_eq!(ScoreRecord { seconds: Vec::new(), ..record }.speed(), None);
    }

    #[test]
    fn damage_is_reported() {
        let whole = text(&record());
        let error = |text: &str| format!("{:#}", ScoreRecord::read(text.as_bytes()).expect_err("refused"));
        assert!(error(&whole.replace("[0.25,0.25]", "[0.25]")).contains("rank 1 does not have 2 times"));
        assert!(error(&whole.replace("[0.25,0.25]", "[0.25,-1]")).contains("invalid pass time -1 s"));
        assert!(error(&whole.replace("\"schema\":1", "\"schema\":9")).contains("format 9"));
        assert!(error(&whole.replace(ScoreRecord::KIND, "other")).contains("found \"other\""));
        assert!(error("").contains("is damaged"));
    }
}
