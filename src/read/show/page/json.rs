//! JSON of a report: the rows of `ringmark extract` for each result, plus bandwidths and input rates.

use ringmark_core::benchmark::bandwidth::{BandwidthRecord, Timing};
use ringmark_core::benchmark::input::{InputRecord, PageCache};
use ringmark_core::dimension::{
    BackendName, Bytes, Case, GigabytesPerSecond, KvStore, Operation, Seconds, UnitsPerSecond,
};
use ringmark_core::host::RankPlace;
use ringmark_core::stats::busbw::busbw;
use schemars::JsonSchema;
use serde::Serialize;

use crate::read::analyze::input_ceiling::{CoresNeeded, Verdict, verdict};
use crate::read::analyze::input_demand::{Basis, Demand};
use crate::read::analyze::published::{self, PublishedRate, Workload};
use crate::read::analyze::results::ResultFolder;
use crate::read::analyze::run_group;
use crate::read::analyze::score;
use crate::read::analyze::score::result_json::ScoreRow;
use crate::read::analyze::training::result_json::{JsonRow, rows};
use crate::read::show::page::content::input;

/// Value of the first field, which identifies the document.
pub const KIND: &str = "ringmark-report";

/// Version of this document. Version 1 had no version field, and `collective` for `backend`; version 2 had no kind, and
/// nested objects by name for groups and cases; version 3 had `is_quotable` for `is_reliable`, and `objections` for
/// `reliability_warnings`.
pub const SCHEMA: u32 = 5;

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
    bandwidth: Vec<Bandwidth<'a>>,
    /// Input rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Input<'a>>,
    /// Runs and files that are not included, with reasons.
    left_out: Vec<String>,
}

/// One case and operation of a bandwidth run.
#[derive(Serialize, JsonSchema)]
struct Bandwidth<'a> {
    case: String,
    ranks: u32,
    operation: Operation,
    /// Kv-store whose gradient exchange was measured, if it is not an all-reduce.
    #[serde(skip_serializing_if = "Option::is_none")]
    kv_store: Option<KvStore>,
    #[serde(skip_serializing_if = "Option::is_none")]
    servers: Option<u32>,
    /// Reduction as named by nccl-tests; `none` if the operation does not reduce.
    reduction: String,
    /// Root rank as in nccl-tests; -1 if there is none.
    root: i64,
    backend: BackendName,
    messages: Vec<Message<'a>>,
}

/// One message size, out of place or in place.
#[derive(Serialize, JsonSchema)]
struct Message<'a> {
    bytes: Bytes,
    element: &'a str,
    side: &'static str,
    seconds: Option<Seconds>,
    busbw_gb_per_s: Option<GigabytesPerSecond>,
    wrong: Option<u64>,
}

/// Input rates of hosts, compared with the demand of training.
#[derive(Serialize, JsonSchema)]
struct Input<'a> {
    hosts: Vec<InputHost<'a>>,
    /// Comparison for every case of training in the report.
    verdicts: Vec<InputVerdict>,
}

/// Highest rates of one host.
#[derive(Serialize, JsonSchema)]
struct InputHost<'a> {
    host: &'a str,
    cores: u32,
    /// Rate with files in memory; `null` if not measured.
    from_memory: Option<UnitsPerSecond>,
    /// Rate with files on disk only; `null` if not measured.
    from_disk: Option<UnitsPerSecond>,
    /// Rate per core, with files in memory and as many threads as cores.
    of_a_core: Option<UnitsPerSecond>,
}

/// Demand of the devices of a host, compared with the rates of the slowest host.
#[derive(Serialize, JsonSchema)]
struct InputVerdict {
    /// Case, with table and result if there are several.
    label: String,
    /// Number of devices per host.
    devices: u32,
    /// Images per second that the devices of one host consume.
    needed: UnitsPerSecond,
    /// Images per second of one host when training with image files; `null` if training used synthetic data.
    trained: Option<UnitsPerSecond>,
    memory: Option<MemoryVerdict>,
    disk: Option<DiskVerdict>,
    /// Reason why there is no comparison.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Comparison for files in memory.
#[derive(Serialize, JsonSchema)]
struct MemoryVerdict {
    host: String,
    ceiling: UnitsPerSecond,
    is_enough: bool,
    /// Number of cores missing on the host; 0 if it has enough.
    more_cores: u32,
    /// Alternative to more cores: shorter edge of stored images in pixels.
    stored_edge: Option<u32>,
}

/// Comparison for files on disk only.
#[derive(Serialize, JsonSchema)]
struct DiskVerdict {
    host: String,
    ceiling: UnitsPerSecond,
    is_enough: bool,
    megabytes_per_second: f64,
    needed_megabytes_per_second: f64,
}

/// Returns the report; `published` adds published rates of the same networks.
pub fn build_report(results: &[ResultFolder], published: bool) -> Report<'_> {
    let demands = input::all_demands(results);
    let results = results.iter().map(|result| OneResult {
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
        bandwidth: result.bandwidth.iter().map(bandwidth).collect(),
        input: result.input.as_ref().map(|record| input_result(record, &demands)),
        left_out: result.left_out(),
    });
    Report { kind: KIND, schema: SCHEMA, results: results.collect() }
}

fn input_result<'a>(record: &'a InputRecord, demands: &[Demand]) -> Input<'a> {
    let host = |(rank, place): (usize, &'a RankPlace)| {
        let ceiling = |cache: PageCache| record.ceiling(rank, cache).map(|ceiling| ceiling.speed);
        InputHost {
            host: &place.host,
            cores: record.cores[rank],
            from_memory: ceiling(PageCache::Warm),
            from_disk: ceiling(PageCache::Cold),
            of_a_core: record.busiest(rank).map(|(_, speed)| speed),
        }
    };
    Input {
        hosts: record.ranks.iter().enumerate().map(host).collect(),
        verdicts: demands.iter().map(|demand| input_verdict(record, demand)).collect(),
    }
}

fn input_verdict(record: &InputRecord, demand: &Demand) -> InputVerdict {
    let (verdict, reason) = match verdict(record, demand) {
        Ok(verdict) => (verdict, None),
        Err(why) => (Verdict { memory: None, disk: None }, Some(why)),
    };
    let memory = verdict.memory.map(|it| {
        let (more_cores, stored_edge) = match it.cores_needed {
            CoresNeeded::Enough(_) => (0, None),
            CoresNeeded::More { cores, stored_edge } => (cores, stored_edge),
        };
        MemoryVerdict { host: it.host, ceiling: it.ceiling, is_enough: more_cores == 0, more_cores, stored_edge }
    });
    let disk = verdict.disk.map(|it| DiskVerdict {
        is_enough: it.is_enough(demand),
        host: it.host,
        ceiling: it.ceiling,
        megabytes_per_second: it.megabytes_per_second,
        needed_megabytes_per_second: it.needed_megabytes_per_second,
    });
    InputVerdict {
        label: demand.label.clone(),
        devices: demand.devices,
        needed: demand.speed,
        trained: match demand.basis {
            Basis::Synthetic => None,
            Basis::OneDevice { trained, .. } => Some(trained),
        },
        memory,
        disk,
        reason,
    }
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
        backend: record.backend,
        messages: messages.collect(),
    }
}
