//! Reader and writer of the JSON result of a scoring sweep: every point with its figures and runs.

use std::collections::BTreeMap;
use std::io::Read;

use ringmark_core::benchmark::score::ScoreRecord;
use ringmark_core::benchmark::warning::Warning;
use ringmark_core::dimension::{BatchShape, Case, Dtype, Model, Seconds, UnitsPerSecond};
use ringmark_core::file::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::read::analyze::case_runs::SecondsOfRun;
use crate::read::analyze::published::PublishedRate;
use crate::read::analyze::result_row::{self, RowFigures, RowHead, RowReliability, RowRuns};
use crate::read::analyze::score::figures::{CaseKey, ScoreCase, ScoreGroup};
use crate::read::load::content::SCORE_RESULT;
use crate::read::load::folder::Shortage;
use crate::read::load::run::Run;

/// Version of this file format. Version 4 had `kv_store` for `strategy`.
pub const SCHEMA: u32 = 5;

/// Complete result.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ScoreResult {
    /// Always `ringmark-score-result`.
    pub kind: String,
    /// Version of the format.
    pub schema: u32,
    /// Rows, one per network, precision, case, batch size and set of conditions.
    pub rows: Vec<ScoreRow>,
    /// Published figures of the same networks, if requested; not measured by these runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<PublishedRate>,
    /// Batch sizes that did not fit into the device's memory, in a sweep over several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub out_of_memory: Vec<Shortage>,
    /// Runs and files that are excluded, with the reason.
    pub left_out: Vec<String>,
    /// SHA-256 of the files that `extract` wrote next to this one, by name; absent from the output of `--json` and
    /// `--format`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files_sha256: BTreeMap<String, String>,
}

/// One point.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ScoreRow {
    /// Network.
    pub model: Model,
    /// Precision.
    pub dtype: Dtype,
    /// Images or sequences per rank and pass.
    pub batch_size: u32,
    /// Tokens of a sequence; absent for images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_length: Option<u32>,
    /// Nodes and ranks per node.
    pub case: Case,
    /// Total number of ranks.
    pub ranks: u32,
    /// Devices, profile and throughput.
    #[serde(flatten)]
    pub head: RowHead,
    /// Variation between runs, memory and utilization.
    #[serde(flatten)]
    pub figures: RowFigures,
    /// Reliability of the figures.
    #[serde(flatten)]
    pub reliability: RowReliability,
    /// Runs and their conditions.
    #[serde(flatten)]
    pub runs: RowRuns<ScoreRowRun>,
}

/// One run of a point.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ScoreRowRun {
    /// Number of the run, from 1.
    pub run: u32,
    /// Path of the log, relative to the folder.
    pub log: String,
    /// Reason why the run does not count; `null` if it does.
    pub left_out: Option<String>,
    /// Start in seconds since 1970 UTC; `null` without a record. Version 1 called it `started`.
    #[serde(alias = "started")]
    pub started_unix_seconds: Option<Seconds>,
    /// Throughput of all ranks; `null` if the run does not count.
    #[serde(alias = "images_per_second")]
    pub units_per_second: Option<UnitsPerSecond>,
    /// Times of the passes; `null` if the run does not count.
    pub pass_seconds: Option<SecondsOfRun>,
    /// Warnings about the run.
    pub warnings: Vec<Warning>,
}

impl ScoreResult {
    /// Returns the JSON text, as written and printed.
    pub fn text(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Parses a result file.
    pub fn read(input: impl Read) -> anyhow::Result<ScoreResult> {
        schema::read_document(input, SCORE_RESULT, SCHEMA, "inference result")
    }
}

/// Returns the rows in the order of the tables.
pub fn rows(groups: &[ScoreGroup]) -> Vec<ScoreRow> {
    groups.iter().flat_map(|group| group.cases.iter().map(|case| row(group, case))).collect()
}

fn row(group: &ScoreGroup, runs_of_case: &ScoreCase) -> ScoreRow {
    let CaseKey { model, dtype, case, batch: BatchShape { size, sequence_length }, .. } = runs_of_case.key();
    let batch_size = size.number();
    let (head, figures, reliability, runs) = result_row::parts(group, runs_of_case);
    ScoreRow { model, dtype, batch_size, sequence_length, case, ranks: case.ranks(), head, figures, reliability, runs }
}

impl From<&Run<ScoreRecord>> for ScoreRowRun {
    fn from(run: &Run<ScoreRecord>) -> ScoreRowRun {
        let measured = run.outcome.as_ref().ok();
        ScoreRowRun {
            run: run.found.name.run,
            log: run.found.log.display().to_string(),
            left_out: run.outcome.as_ref().err().map(ToString::to_string),
            started_unix_seconds: run.recorded.as_ref().map(|recorded| recorded.started),
            units_per_second: measured.map(|measured| measured.speed),
            pass_seconds: measured.and_then(|measured| SecondsOfRun::new(run, measured.figures.seconds.as_slice())),
            warnings: measured.map(|measured| measured.warnings.clone()).unwrap_or_default(),
        }
    }
}
