//! Bandwidth rows in the JSON of a report.

use ringmark_core::benchmark::bandwidth::{BandwidthRecord, SideFigures, Timing};
use ringmark_core::dimension::{BackendName, Bytes, Case, GigabytesPerSecond, Operation, Seconds, Strategy};
use schemars::JsonSchema;
use serde::Serialize;

use crate::read::analyze::results::ResultFolder;
use crate::read::benchmark::bandwidth::load::BandwidthResult;

pub fn rows(result: &ResultFolder) -> Vec<Bandwidth<'_>> {
    result.records_of::<BandwidthResult>().into_iter().flat_map(|records| &records.cases).map(bandwidth).collect()
}

/// One case and operation of a bandwidth run.
#[derive(Serialize, JsonSchema)]
pub struct Bandwidth<'a> {
    case: String,
    ranks: u32,
    operation: Operation,
    /// Strategy whose gradient exchange was measured, if it is not an all-reduce.
    #[serde(skip_serializing_if = "Option::is_none")]
    strategy: Option<Strategy>,
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

fn bandwidth((case, record): &(Case, BandwidthRecord)) -> Bandwidth<'_> {
    let (ranks, operands) = (case.ranks(), record.config.operands());
    let messages = record.results.iter().flat_map(|message| {
        let side = move |(side, timing): (&'static str, Option<&Timing>)| {
            let figures = SideFigures::new(message.bytes, timing?, record.bus());
            Some(Message {
                bytes: message.bytes,
                element: &message.element,
                side,
                seconds: figures.map(|figures| figures.time),
                busbw_gb_per_s: figures.map(|figures| figures.busbw),
                wrong: timing?.wrong,
            })
        };
        message.sides().into_iter().filter_map(side)
    });
    Bandwidth {
        case: case.to_string(),
        ranks,
        operation: operands.operation,
        strategy: Some(record.config.strategy.strategy).filter(|strategy| !strategy.is_all_reduce()),
        servers: Some(record.config.strategy.server_ranks()).filter(|servers| *servers > 0),
        reduction: operands.reduction_name(),
        root: operands.root_number(),
        backend: record.backend,
        messages: messages.collect(),
    }
}
