//! Figures of checkpoints in the JSON of a report.

use ringmark_core::benchmark::checkpoint::figures::Direction;
use ringmark_core::benchmark::checkpoint::{
    CheckpointRecord, CheckpointResult, Combination, FileIo, Storage, WriteMode, Writers,
};
use ringmark_core::dimension::{Bytes, Case};
use ringmark_core::host::RankPlace;
use ringmark_core::stats::run_values::RunValues;
use schemars::JsonSchema;
use serde::Serialize;

use crate::read::analyze::results::ResultFolder;
use crate::read::benchmark::checkpoint::CheckpointRecords;

pub fn rows(result: &ResultFolder) -> Vec<Checkpoints<'_>> {
    result.records_of::<CheckpointRecords>().into_iter().flat_map(|records| &records.0).map(checkpoints).collect()
}

/// Checkpoints of one case.
#[derive(Serialize, JsonSchema)]
pub struct Checkpoints<'a> {
    case: String,
    ranks: usize,
    /// Bytes of a whole checkpoint.
    bytes: Bytes,
    storage: &'a [Storage],
    /// One row for each combination of the axes.
    rows: Vec<CheckpointRow>,
}

/// Figures of one combination.
#[derive(Serialize, JsonSchema)]
struct CheckpointRow {
    writers: Writers,
    files: u32,
    io: FileIo,
    mode: WriteMode,
    /// Measured checkpoints.
    checkpoints: usize,
    /// GB/s of all writers together.
    write: Option<FigureOfCheckpoints>,
    /// GB/s of each host that writes.
    write_by_host: Vec<HostRate>,
    /// GB/s of a writer, the median of them.
    write_by_writer: Option<FigureOfCheckpoints>,
    /// Seconds of fsync, of the rank with the longest.
    fsync: Option<FigureOfCheckpoints>,
    /// Seconds for which computation stands still.
    stall: Option<FigureOfCheckpoints>,
    /// Relative increase of the time of matrix products during the write; `null` with `blocking`.
    slowdown: Option<FigureOfCheckpoints>,
    /// GB/s of all readers together.
    read: Option<FigureOfCheckpoints>,
    /// Seconds of reading and copying to the device.
    restore: Option<FigureOfCheckpoints>,
    /// Lowest share of a rank's read bytes that came from the storage; `null` if the kernel does not report it.
    storage_share: Option<f64>,
    /// True if every read came from the storage, so that `read` and `restore` are reliable.
    is_cold: bool,
}

/// Median over the checkpoints, with the 95 % margin of the mean.
#[derive(Serialize, JsonSchema)]
struct FigureOfCheckpoints {
    median: f64,
    /// `null` for a single checkpoint.
    margin: Option<f64>,
}

/// Rate of one host.
#[derive(Serialize, JsonSchema)]
struct HostRate {
    host: String,
    #[serde(flatten)]
    rate: FigureOfCheckpoints,
}

fn checkpoints((case, record): &(Case, CheckpointRecord)) -> Checkpoints<'_> {
    let CheckpointRecord { ranks, bytes, storage, results, .. } = record;
    Checkpoints {
        case: case.to_string(),
        ranks: ranks.len(),
        bytes: *bytes,
        storage,
        rows: results.iter().map(|result| row(result, ranks)).collect(),
    }
}

fn row(result: &CheckpointResult, places: &[RankPlace]) -> CheckpointRow {
    let Combination { writers, files, io, mode } = result.combination;
    let host_rates = result.host_rates(places, Direction::Write).into_iter();
    let of_host =
        |(host, rates): (&str, RunValues)| Some(HostRate { host: host.to_owned(), rate: figure(Some(rates))? });
    CheckpointRow {
        writers,
        files,
        io,
        mode,
        checkpoints: result.checkpoints.len(),
        write: figure(result.total_rate(Direction::Write)),
        write_by_host: host_rates.filter_map(of_host).collect(),
        write_by_writer: figure(result.writer_rate(Direction::Write)),
        fsync: figure(result.fsync()),
        stall: figure(result.stall()),
        slowdown: figure(result.slowdown()),
        read: figure(result.total_rate(Direction::Read)),
        restore: figure(result.restore()),
        storage_share: result.storage_share(),
        is_cold: result.is_cold(),
    }
}

fn figure(values: Option<RunValues>) -> Option<FigureOfCheckpoints> {
    let values = values?;
    let margin = Some(values.margin_of_mean()).filter(|margin| margin.is_finite());
    Some(FigureOfCheckpoints { median: values.median()?, margin })
}
