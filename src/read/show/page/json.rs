//! The figures of a report for programs: what `ringmark extract` writes of each result, and bandwidths beside it.

use ringmark_record::benchmark::bandwidth::record::{BandwidthRecord, Timing};
use ringmark_record::dimension::case::Case;
use ringmark_record::dimension::kv_store::KvStore;
use ringmark_record::dimension::operation::Operation;
use ringmark_record::dimension::units::{Bytes, GigabytesPerSecond, Seconds};
use ringmark_record::stats::busbw::busbw;
use schemars::JsonSchema;
use serde::Serialize;

use crate::read::analyse::results::ResultFolder;
use crate::read::score;
use crate::read::score::json::ScoreRow;
use crate::read::score::published::{self, PublishedRate};
use crate::read::show::extraction::json::{JsonRow, rows};

/// What the document is, in its first field.
pub const KIND: &str = "ringmark-report";

/// Version of this document. Version 1 did not say so, and called `backend` `collective`; version 2 had no kind, and cases by
/// name in groups by name.
pub const SCHEMA: u32 = 3;

/// The whole document.
#[derive(Serialize, JsonSchema)]
pub struct Report<'a> {
    /// Always `ringmark-report`.
    kind: &'static str,
    /// Version of the format.
    schema: u32,
    /// One a folder.
    results: Vec<OneResult<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct OneResult<'a> {
    name: &'a str,
    /// As in the JSON of `ringmark extract`.
    rows: Vec<JsonRow>,
    /// As in its JSON of scoring.
    scoring: Vec<ScoreRow>,
    /// What others published of the networks that were scored, where that was asked for; measured by none of these runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    published_scores: Vec<PublishedRate>,
    bandwidth: Vec<Bandwidth<'a>>,
    /// What is not in the figures, and why.
    left_out: Vec<String>,
}

/// One case and operation of a bandwidth run.
#[derive(Serialize, JsonSchema)]
struct Bandwidth<'a> {
    case: String,
    ranks: u32,
    operation: Operation,
    /// Whose exchange of gradients it is, where that is no all-reduce.
    #[serde(skip_serializing_if = "Option::is_none")]
    kv_store: Option<KvStore>,
    #[serde(skip_serializing_if = "Option::is_none")]
    servers: Option<u32>,
    /// As nccl-tests has it: `none` where nothing is reduced.
    reduction: String,
    /// As nccl-tests has it: -1 where there is none.
    root: i64,
    backend: &'a str,
    messages: Vec<Message<'a>>,
}

/// One size on one side.
#[derive(Serialize, JsonSchema)]
struct Message<'a> {
    bytes: Bytes,
    element: &'a str,
    side: &'static str,
    seconds: Option<Seconds>,
    busbw_gb_per_s: Option<GigabytesPerSecond>,
    wrong: Option<u64>,
}

/// An object a result; with what others published of scored networks where `published`.
pub fn of(results: &[ResultFolder], published: bool) -> Report<'_> {
    let results = results.iter().map(|result| OneResult {
        name: &result.name,
        rows: rows(&result.groups),
        scoring: score::json::rows(&result.scoring),
        published_scores: if published {
            published::rates(&score::figures::models(&result.scoring))
        } else {
            Vec::new()
        },
        bandwidth: result.bandwidth.iter().map(bandwidth).collect(),
        left_out: result.problems.iter().map(ToString::to_string).collect(),
    });
    Report { kind: KIND, schema: SCHEMA, results: results.collect() }
}

fn bandwidth((case, record): &(Case, BandwidthRecord)) -> Bandwidth<'_> {
    let (ranks, operands) = (case.ranks(), record.config.operands());
    let messages = record.results.iter().flat_map(|message| {
        let side = move |(side, timing): (&'static str, Option<&Timing>)| {
            let timing = timing?;
            let seconds = timing.mean();
            Some(Message {
                bytes: message.bytes,
                element: &message.element,
                side,
                seconds,
                busbw_gb_per_s: seconds.map(|seconds| busbw(message.bytes, seconds, record.bus())),
                wrong: timing.wrong,
            })
        };
        message.sides().into_iter().filter_map(side)
    });
    Bandwidth {
        case: case.to_string(),
        ranks,
        operation: operands.operation,
        kv_store: Some(record.config.kv_store.kv_store).filter(|kv_store| !kv_store.is_ring()),
        servers: Some(record.config.kv_store.server_ranks()).filter(|servers| *servers > 0),
        reduction: operands.reduction_name(),
        root: operands.root_number(),
        backend: &record.backend,
        messages: messages.collect(),
    }
}
