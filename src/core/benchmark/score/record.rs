//! The record of a scoring run: one JSON document with the time of every pass on every rank. Writer and parser.

use anyhow::{bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::document_record::document_record;
use crate::benchmark::score::config::ScoreConfig;
use crate::benchmark::{RunLabel, RunProfile, SweepRecord};
use crate::dimension::{AttentionKernel, Bytes, Case, Seconds, Strategy, TeraflopsPerSecond, UnitsPerSecond};
use crate::file::run_name::{Point, RunName};
use crate::trace::{LayerProfile, OperatorProfile};

document_record!(
    /// Record of a whole run.
    ScoreRecord, kind: "ringmark-score", schema: 1, title: "inference record",
    iterations: |record| record.config.iterations => {
        label {
            /// Nodes and ranks per node, as launched.
            case: Case,
            /// Number of the run in its case, from 1.
            run: u32,
            /// Profile of the run.
            profile: RunProfile,
        }
        config: ScoreConfig,
        setup {}
        /// Location and device of every rank.
        ranks,
        results {
            /// Time of every timed pass until its outputs are complete: by rank, then by pass.
            seconds: Vec<Vec<Seconds>>,
            /// Peak memory of every rank: memory of tensors in the timed passes on CUDA, resident memory on the CPU.
            peak_memory: Vec<Bytes>,
            /// Rate of plain matrix products, run on all ranks at once in the precision of the passes and measured after them.
            /// Empty if a rank had too little memory for them, and in older records.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            matrix_product: Vec<TeraflopsPerSecond>,
            /// Largest probability of a sample, by rank: the mean over samples. For images it is that of a class, for
            /// sequences that of a token. Equal computations give equal values. Empty in older records.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            confidence: Vec<f64>,
            /// Kernel of attention on rank 0; `None` for a network without attention, and in older records.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            attention: Option<AttentionKernel>,
            /// Fused convolutions of rank 0, if it ran folded on CUDA.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            rectified_convolutions: Option<RectifiedConvolutions>,
            /// Reason why `--graphs auto` did not use a CUDA graph on a GPU.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            no_graph: Option<String>,
            /// Time by layer in the traced passes, with `--profile-layers`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            layers: Option<LayerProfile>,
            /// Time by operator in the traced passes, with `--profile-operators`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            operators: Option<OperatorProfile>,
        }
        /// Resource use of every host during the passes.
        host_use,
        /// Resource use and waits of every rank during the passes.
        rank_use,
        /// Warnings about the figures of a valid run.
        warnings,
        end {}
    }
);

/// Counts of convolutions followed by ReLU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RectifiedConvolutions {
    /// Convolutions followed by ReLU, with or without a sum.
    pub all: u32,
    /// Convolutions computed in one kernel with bias, sum and ReLU.
    pub fused: u32,
}

impl ScoreRecord {
    /// Returns the images or tokens of all ranks divided by the time of the slowest: `ranks x batch x passes / max over
    /// ranks of the sum of its passes`. For one rank this is benchmark_score.py's `10 x batch / elapsed`. `None` without passes.
    ///
    /// For two ranks of batch 4 with two passes each, of 0.5 s and 0.25 s: 2 x 4 x 2 / 1 s = 16 images/s.
    pub fn speed(&self) -> Option<UnitsPerSecond> {
        let Seconds(elapsed) = self.elapsed();
        let passes: usize = self.seconds.iter().map(Vec::len).sum();
        let units = f64::from(self.config.batch_size) * self.config.batch().units_per_sample();
        (elapsed > 0.0).then(|| UnitsPerSecond(units * passes as f64 / elapsed))
    }

    /// Returns the total time of all passes on the slowest rank.
    pub fn elapsed(&self) -> Seconds {
        Seconds(self.seconds.iter().map(|rank| rank.iter().map(|pass| pass.0).sum()).fold(0.0, f64::max))
    }

    fn check_results(&self) -> anyhow::Result<()> {
        let (ranks, passes) = (self.ranks.len(), self.config.iterations as usize);
        if self.failure.is_none() {
            ensure!(self.seconds.len() == ranks, "times of {} ranks, expected {ranks}", self.seconds.len());
            let short = self.seconds.iter().position(|rank| rank.len() != passes);
            ensure!(short.is_none(), "rank {} does not have {passes} times", short.unwrap_or_default());
        }
        if let Some(time) = self.seconds.iter().flatten().find(|time| !time.is_duration()) {
            bail!("invalid pass time {time}");
        }
        Ok(())
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
        let ScoreConfig { model, dtype, .. } = self.config;
        Point { model, batch: self.config.batch(), dtype, strategy: Strategy::AllReduce }
    }

    fn check_place(&self, name: &RunName) -> anyhow::Result<()> {
        ensure!(!name.baseline, "inference record in a folder of training without communication: move it back");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::Record;
    use crate::host::{Environment, RankPlace};

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
        record.write(&mut bytes).expect("an in-memory write succeeds");
        String::from_utf8(bytes).expect("JSON is UTF-8")
    }

    #[test]
    fn record_round_trips_and_computes_speed() {
        let record = record();
        assert_eq!(ScoreRecord::read(text(&record).as_bytes()).expect("sound"), record);
        assert_eq!(record.speed(), Some(UnitsPerSecond(16.0)));
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
