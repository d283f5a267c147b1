//! The figures of a report for programs: what `ringmark extract` writes of each result, and bandwidths beside it.

use ringmark_record::benchmark::bandwidth::record::{BandwidthRecord, Timing};
use ringmark_record::dimension::case::Case;
use ringmark_record::dimension::units::{Bytes, GigabytesPerSecond, Seconds};
use ringmark_record::stats::busbw::busbw;
use serde::Serialize;

use crate::read::analyse::results::ResultFolder;
use crate::read::show::extraction::json::Groups;

/// Version of this document. Version 1 did not say so, and called `backend` `collective`.
pub const SCHEMA: u32 = 2;

#[derive(Serialize)]
struct Report<'a> {
    /// [`SCHEMA`].
    schema: u32,
    results: Vec<OneResult<'a>>,
}

#[derive(Serialize)]
struct OneResult<'a> {
    name: &'a str,
    /// Cases by group, as in the JSON of `ringmark extract`.
    groups: Groups<'a>,
    bandwidth: Vec<Bandwidth<'a>>,
    /// What is not in the figures, and why.
    left_out: Vec<String>,
}

/// One case of a bandwidth run.
#[derive(Serialize)]
struct Bandwidth<'a> {
    case: String,
    ranks: u32,
    backend: &'a str,
    messages: Vec<Message<'a>>,
}

/// One size on one side.
#[derive(Serialize)]
struct Message<'a> {
    bytes: Bytes,
    element: &'a str,
    side: &'static str,
    seconds: Option<Seconds>,
    busbw_gb_per_s: Option<GigabytesPerSecond>,
    wrong: Option<u64>,
}

/// An object a result.
pub fn of(results: &[ResultFolder]) -> impl Serialize {
    let results = results.iter().map(|result| OneResult {
        name: &result.name,
        groups: Groups(&result.groups),
        bandwidth: result.bandwidth.iter().map(bandwidth).collect(),
        left_out: result.problems.iter().map(ToString::to_string).collect(),
    });
    Report { schema: SCHEMA, results: results.collect() }
}

fn bandwidth((case, record): &(Case, BandwidthRecord)) -> Bandwidth<'_> {
    let ranks = case.ranks();
    let messages = record.results.iter().flat_map(|message| {
        let side = move |(side, timing): (&'static str, Option<&Timing>)| {
            let timing = timing?;
            let seconds = timing.mean();
            Some(Message {
                bytes: message.bytes,
                element: &message.element,
                side,
                seconds,
                busbw_gb_per_s: seconds.map(|seconds| busbw(message.bytes, seconds, ranks)),
                wrong: timing.wrong,
            })
        };
        message.sides().into_iter().filter_map(side)
    });
    Bandwidth { case: case.to_string(), ranks, backend: &record.backend, messages: messages.collect() }
}
