//! The JSON Schema of every file that this package reads and writes, made from its types.

use schemars::{Schema, schema_for};

use crate::benchmark::bandwidth::BandwidthRecord;
use crate::benchmark::input::InputRecord;
use crate::benchmark::score::ScoreRecord;
use crate::benchmark::train::RunRecord;
use crate::benchmark::train::record::schema_of_line;
use crate::benchmark::{BenchmarkKind, Record};
use crate::manifest::Manifest;
use crate::progress::Progress;

/// The format of a benchmark's record.
pub struct RecordFormat {
    /// The benchmark that writes it.
    pub benchmark: BenchmarkKind,
    /// Kind in the head of its files.
    pub kind: &'static str,
    /// Name of its schema.
    pub name: &'static str,
    /// The JSON Schema of a file, or of a line of it.
    pub schema: fn() -> Schema,
}

/// The records of all benchmarks.
pub const RECORDS: [RecordFormat; 4] = [
    record::<RunRecord>(BenchmarkKind::Train, "run_record", schema_of_line),
    record::<ScoreRecord>(BenchmarkKind::Score, "score_record", || schema_for!(ScoreRecord)),
    record::<BandwidthRecord>(BenchmarkKind::Bandwidth, "bandwidth_record", || schema_for!(BandwidthRecord)),
    record::<InputRecord>(BenchmarkKind::Input, "input_record", || schema_for!(InputRecord)),
];

const fn record<R: Record>(benchmark: BenchmarkKind, name: &'static str, schema: fn() -> Schema) -> RecordFormat {
    RecordFormat { benchmark, kind: R::KIND, name, schema }
}

/// The schemas of all files, by name.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    let records = RECORDS.iter().map(|record| (record.name, (record.schema)()));
    let others = [("manifest", schema_for!(Manifest)), ("progress", schema_for!(Progress))];
    records.chain(others).collect()
}
