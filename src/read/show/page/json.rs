//! The figures of a report for programs: what `ringmark extract` writes of each result, and bandwidths beside it.

use ringmark_core::benchmark::bandwidth::{BandwidthRecord, Timing};
use ringmark_core::benchmark::input::{InputRecord, PageCache};
use ringmark_core::dimension::{
    BackendName, Bytes, Case, GigabytesPerSecond, ImagesPerSecond, KvStore, Operation, Seconds,
};
use ringmark_core::host::RankPlace;
use ringmark_core::stats::busbw::busbw;
use schemars::JsonSchema;
use serde::Serialize;

use crate::read::analyse::input_ceiling::{CoresNeeded, Verdict, verdict};
use crate::read::analyse::input_demand::{Basis, Demand};
use crate::read::analyse::result_json::{JsonRow, rows};
use crate::read::analyse::results::ResultFolder;
use crate::read::analyse::score;
use crate::read::analyse::score::json::ScoreRow;
use crate::read::analyse::score::published::{self, PublishedRate};
use crate::read::show::page::content::input;

/// What the document is, in its first field.
pub const KIND: &str = "ringmark-report";

/// Version of this document. Version 1 did not say so, and called `backend` `collective`; version 2 had no kind, and cases by
/// name in groups by name; version 3 called `is_reliable` `is_quotable`, and `reliability_warnings` `objections`.
pub const SCHEMA: u32 = 4;

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
    #[schemars(default)]
    published_scores: Vec<PublishedRate>,
    bandwidth: Vec<Bandwidth<'a>>,
    /// Reading and decoding alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Input<'a>>,
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
    backend: BackendName,
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

/// Reading and decoding alone.
#[derive(Serialize, JsonSchema)]
struct Input<'a> {
    hosts: Vec<InputHost<'a>>,
    /// One for every case of training in the report.
    verdicts: Vec<InputVerdict>,
}

/// One host: its fastest passes.
#[derive(Serialize, JsonSchema)]
struct InputHost<'a> {
    host: &'a str,
    cores: u32,
    /// Of files in memory; `null` where no pass was from there.
    from_memory: Option<ImagesPerSecond>,
    /// Of files on the disk alone; `null` where no pass was from there.
    from_disk: Option<ImagesPerSecond>,
    /// Of one core, with as many threads as cores, from memory.
    of_a_core: Option<ImagesPerSecond>,
}

/// What the devices of a host take, and whether the lowest host gives it.
#[derive(Serialize, JsonSchema)]
struct InputVerdict {
    /// Case, with its table and result where there are several.
    label: String,
    /// Of one host.
    devices: u32,
    /// Images a second that the devices of one host take.
    needed: ImagesPerSecond,
    /// Images a second of one host while its devices read images; `null` where they trained with synthetic ones.
    trained: Option<ImagesPerSecond>,
    memory: Option<MemoryVerdict>,
    disk: Option<DiskVerdict>,
    /// Why nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Of files in memory.
#[derive(Serialize, JsonSchema)]
struct MemoryVerdict {
    host: String,
    ceiling: ImagesPerSecond,
    is_enough: bool,
    /// Beside those of the host; 0 where these are enough.
    more_cores: u32,
    /// Instead of them: the shorter edge of stored images in pixels.
    stored_edge: Option<u32>,
}

/// Of files on the disk alone.
#[derive(Serialize, JsonSchema)]
struct DiskVerdict {
    host: String,
    ceiling: ImagesPerSecond,
    is_enough: bool,
    megabytes_per_second: f64,
    needed_megabytes_per_second: f64,
}

/// An object a result; with what others published of scored networks where `published`.
pub fn of(results: &[ResultFolder], published: bool) -> Report<'_> {
    let demands = input::all_demands(results);
    let results = results.iter().map(|result| OneResult {
        name: &result.name,
        rows: rows(&result.groups, result.price.as_ref()),
        scoring: score::json::rows(&result.scoring),
        published_scores: if published {
            published::rates(&score::figures::models(&result.scoring))
        } else {
            Vec::new()
        },
        bandwidth: result.bandwidth.iter().map(bandwidth).collect(),
        input: result.input.as_ref().map(|record| of_input(record, &demands)),
        left_out: result.problems.iter().map(ToString::to_string).collect(),
    });
    Report { kind: KIND, schema: SCHEMA, results: results.collect() }
}

fn of_input<'a>(record: &'a InputRecord, demands: &[Demand]) -> Input<'a> {
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
