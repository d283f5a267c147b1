//! JSON Schemas of all files that this package reads and writes, generated from its types.

use schemars::{Schema, schema_for};

use crate::benchmark::bandwidth::BandwidthRecord;
use crate::benchmark::input::InputRecord;
use crate::benchmark::score::ScoreRecord;
use crate::benchmark::train::RunRecord;
use crate::benchmark::train::record::schema_of_line;
use crate::benchmark::{BenchmarkKind, Record};
use crate::manifest::Manifest;
use crate::progress::Progress;

/// Format of a benchmark's record.
#[expect(missing_docs, reason = "field names are self-explanatory")]
pub struct RecordFormat {
    pub benchmark: BenchmarkKind,
    /// Kind in the header of its files.
    pub kind: &'static str,
    pub name: &'static str,
    /// JSON Schema of a file, or of a line of it.
    pub schema: fn() -> Schema,
}

/// Formats of the records of all benchmarks.
pub const RECORDS: [RecordFormat; 4] = [
    record::<RunRecord>(BenchmarkKind::Train, "run_record", schema_of_line),
    record::<ScoreRecord>(BenchmarkKind::Score, "score_record", || schema_for!(ScoreRecord)),
    record::<BandwidthRecord>(BenchmarkKind::Bandwidth, "bandwidth_record", || schema_for!(BandwidthRecord)),
    record::<InputRecord>(BenchmarkKind::Input, "input_record", || schema_for!(InputRecord)),
];

const fn record<R: Record>(benchmark: BenchmarkKind, name: &'static str, schema: fn() -> Schema) -> RecordFormat {
    RecordFormat { benchmark, kind: R::KIND, name, schema }
}

/// Returns the schemas of all files, with their names.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    let records = RECORDS.iter().map(|record| (record.name, (record.schema)()));
    let others = [("manifest", schema_for!(Manifest)), ("progress", schema_for!(Progress))];
    records.chain(others).collect()
}
