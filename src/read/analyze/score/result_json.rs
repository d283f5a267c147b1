//! Reader and writer of the JSON result of a scoring sweep: every point with its figures and runs.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use ringmark_core::benchmark::RunProfile;
use ringmark_core::benchmark::score::ScoreRecord;
use ringmark_core::benchmark::warning::Warning;
use ringmark_core::dimension::{Bytes, Case, DeviceKind, Dtype, ImagesPerSecond, Model, Seconds};
use ringmark_core::file::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::read::analyze::case_runs::SecondsOfRun;
use crate::read::analyze::extraction::Extraction;
use crate::read::analyze::published::PublishedRate;
use crate::read::analyze::reliability::ReliabilityWarning;
use crate::read::analyze::score::figures::{ScorePoint, ScoreTable};
use crate::read::analyze::utilization::Utilization;
use crate::read::load::content::SCORE_RESULT;
use crate::read::load::environment::EnvironmentText;
use crate::read::load::folder::Shortage;
use crate::read::load::run::{self, Run};

/// Version of this file format.
pub const SCHEMA: u32 = 3;

/// Complete result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScoreRow {
    /// Network.
    pub model: Model,
    /// Precision.
    pub dtype: Dtype,
    /// Images per rank and pass.
    pub batch_size: u32,
    /// Nodes and ranks per node.
    pub case: Case,
    /// Total number of ranks.
    pub ranks: u32,
    /// Kind of device; `null` if no record contains it.
    pub device: Option<DeviceKind>,
    /// Device names of the counted runs.
    pub device_names: BTreeSet<String>,
    /// CPU threads per rank in the counted runs.
    pub threads_per_rank: BTreeSet<u32>,
    /// Profile of the runs; `null` if no record contains it.
    pub profile: Option<RunProfile>,
    /// Throughput of all ranks, median over runs; `null` if no run counts.
    pub images_per_second: Option<ImagesPerSecond>,
    /// Sample standard deviation of the runs' images/s, divided by their mean; `null` for a single run.
    pub cv: Option<f64>,
    /// Peak memory of the rank that used most, in any counted run: tensor memory on a GPU, resident memory on the CPU.
    /// `null` if no record contains it.
    #[serde(default)]
    pub peak_memory_bytes: Option<Bytes>,
    /// Arithmetic performance and utilization; `null` if no record contains it.
    #[serde(default)]
    pub arithmetic: Option<Utilization>,
    /// True if the figures are reliable; absent in version 1.
    #[serde(default, alias = "is_quotable")]
    pub is_reliable: bool,
    /// Reasons why the figures are unreliable, each with a remedy.
    #[serde(default, alias = "objections")]
    pub reliability_warnings: Vec<ReliabilityWarning>,
    /// Number of runs in the figures.
    pub runs_counted: usize,
    /// Warnings of the table, followed by those of the point's runs.
    pub warnings: Vec<String>,
    /// Runs in the order of their numbers.
    pub runs: Vec<ScoreRowRun>,
    /// Recorded options, except for those above.
    pub settings: BTreeMap<String, Value>,
    /// Devices, hosts, versions and environment variables of the counted runs.
    pub environment: EnvironmentText,
}

/// One run of a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    pub images_per_second: Option<ImagesPerSecond>,
    /// Times of the passes; `null` if the run does not count.
    pub pass_seconds: Option<SecondsOfRun>,
    /// Warnings about the run.
    pub warnings: Vec<Warning>,
}

impl ScoreResult {
    /// Returns the result of a folder.
    pub fn new(extraction: &Extraction<ScoreTable>) -> ScoreResult {
        ScoreResult {
            kind: SCORE_RESULT.to_owned(),
            schema: SCHEMA,
            rows: rows(&extraction.groups),
            published: Vec::new(),
            out_of_memory: extraction.shortages.clone(),
            left_out: extraction.problems.iter().map(ToString::to_string).collect(),
            files_sha256: BTreeMap::new(),
        }
    }

    /// Returns the JSON text, as written and printed.
    pub fn text(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Parses a result file.
    pub fn read(input: impl Read) -> anyhow::Result<ScoreResult> {
        schema::read_document(input, SCORE_RESULT, SCHEMA, "scoring result")
    }
}

/// Returns the rows in the order of the tables.
pub fn rows(tables: &[ScoreTable]) -> Vec<ScoreRow> {
    tables.iter().flat_map(|table| table.points.iter().map(|point| row(table, point))).collect()
}

/// Returns the recorded options of a point's runs, except for those that have a key of their own.
pub fn settings(table: &ScoreTable, point: &ScorePoint) -> BTreeMap<String, Value> {
    let mut settings = table.settings();
    let image_size = table.conditions.as_ref().map(|conditions| conditions.image_size(point.key().model));
    settings.extend(image_size.map(|size| ("image_size".to_owned(), size.into())));
    settings
}

fn row(table: &ScoreTable, point: &ScorePoint) -> ScoreRow {
    let conditions = table.conditions.as_ref();
    ScoreRow {
        model: point.key().model,
        dtype: point.key().dtype,
        batch_size: point.key().batch_size,
        case: point.key().case,
        ranks: point.key().case.ranks(),
        device: table.device(),
        device_names: point.device_names(),
        threads_per_rank: point.threads(),
        profile: conditions.map(|conditions| conditions.profile),
        images_per_second: point.figures.map(|figures| figures.speed),
        cv: point.figures.and_then(|figures| figures.cv),
        peak_memory_bytes: point.peak_memory(),
        arithmetic: table.utilization(point),
        is_reliable: point.figures.is_some() && !table.is_doubtful(point),
        reliability_warnings: table
            .reliability_warnings
            .iter()
            .chain(&point.speed_reliability_warnings)
            .cloned()
            .collect(),
        runs_counted: point.counted().count(),
        warnings: table.warnings.iter().chain(&point.warnings).cloned().collect(),
        runs: point.runs.iter().map(row_run).collect(),
        settings: settings(table, point),
        environment: run::environment(&point.runs),
    }
}

fn row_run(run: &Run<ScoreRecord>) -> ScoreRowRun {
    let measured = run.outcome.as_ref().ok();
    ScoreRowRun {
        run: run.found.name.run,
        log: run.found.log.display().to_string(),
        left_out: run.outcome.as_ref().err().map(ToString::to_string),
        started_unix_seconds: run.recorded.as_ref().map(|recorded| recorded.started),
        images_per_second: measured.map(|measured| measured.speed),
        pass_seconds: measured.and_then(|measured| SecondsOfRun::new(run, measured.figures.seconds.as_slice())),
        warnings: measured.map(|measured| measured.warnings.clone()).unwrap_or_default(),
    }
}
