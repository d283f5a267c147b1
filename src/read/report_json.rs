//! JSON of a report: the rows of `ringmark extract` for each result, and the rows of benchmarks without sweeps.

use schemars::JsonSchema;
use serde::Serialize;

use crate::read::analyze::published::{self, PublishedRate, Workload};
use crate::read::analyze::results::ResultFolder;
use crate::read::analyze::run_group;
use crate::read::analyze::score;
use crate::read::analyze::score::result_json::ScoreRow;
use crate::read::analyze::training::result_json::{JsonRow, rows};
use crate::read::benchmark::BenchmarkRows;

/// Value of the first field, which identifies the document.
pub const KIND: &str = "ringmark-report";

/// Version of this document. Version 1 had no version field, and `collective` for `backend`; version 2 had no kind, and
/// nested objects by name for groups and cases; version 3 had `is_quotable` for `is_reliable`, and `objections` for
/// `reliability_warnings`; version 5 had `kv_store` and `base_kv_store` for `strategy` and `base_strategy`.
pub const SCHEMA: u32 = 6;

/// The whole document.
#[derive(Serialize, JsonSchema)]
pub struct Report<'a> {
    /// Always `ringmark-report`.
    kind: &'static str,
    /// Version of the format.
    schema: u32,
    /// One result per folder.
    results: Vec<OneResult<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct OneResult<'a> {
    name: &'a str,
    /// Rows as in the JSON of `ringmark extract`.
    rows: Vec<JsonRow>,
    /// Rows as in the JSON of `ringmark extract` for scoring.
    scoring: Vec<ScoreRow>,
    /// Published rates of the scored networks, if requested; these runs did not measure them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    published_scores: Vec<PublishedRate>,
    /// Published rates of the trained networks, if requested; these runs did not measure them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    published_training: Vec<PublishedRate>,
    #[serde(flatten)]
    records: BenchmarkRows<'a>,
    /// Reasons why figures of this result are unreliable, each with a remedy; empty if all are reliable.
    reliability_warnings: Vec<String>,
    /// Warnings about figures that are reliable.
    warnings: Vec<String>,
    /// Runs and files that are not included, with reasons.
    left_out: Vec<String>,
}

/// Returns the report; `published` adds published rates of the same networks.
pub fn build_report<'a>(results: &'a [ResultFolder], published: bool) -> Report<'a> {
    let of_result = |result: &'a ResultFolder| {
        let assessment = result.assessment();
        OneResult {
            name: &result.name,
            rows: rows(result.training(), result.price.as_ref()),
            scoring: score::result_json::rows(result.scoring()),
            published_scores: if published {
                published::rates(Workload::Inference, &run_group::models(result.scoring()))
            } else {
                Vec::new()
            },
            published_training: if published {
                published::rates(Workload::Training, &run_group::models(result.training()))
            } else {
                Vec::new()
            },
            records: BenchmarkRows::new(result, results),
            reliability_warnings: assessment.unreliable_sentences(),
            warnings: assessment.warnings,
            left_out: result.left_out(),
        }
    };
    Report { kind: KIND, schema: SCHEMA, results: results.iter().map(of_result).collect() }
}
