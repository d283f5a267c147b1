//! Input rates in the JSON of a report.

use ringmark_core::benchmark::input::{InputRecord, PageCache};
use ringmark_core::dimension::UnitsPerSecond;
use ringmark_core::host::RankPlace;
use schemars::JsonSchema;
use serde::Serialize;

use crate::read::analyze::results::ResultFolder;
use crate::read::benchmark::input::demand::{Basis, Demand, all_demands};
use crate::read::benchmark::input::verdict::{CoresNeeded, Verdict, verdict};

pub fn rows<'a>(result: &'a ResultFolder, results: &[ResultFolder]) -> Option<Input<'a>> {
    result.records_of().map(|record| input_result(record, &all_demands(results)))
}

/// Input rates of hosts, compared with the demand of training.
#[derive(Serialize, JsonSchema)]
pub struct Input<'a> {
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
