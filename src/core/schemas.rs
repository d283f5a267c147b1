//! JSON Schemas of all files that this package reads and writes, generated from its types.

use schemars::{Schema, schema_for};

use crate::accept::{Line, Verdict};
use crate::benchmark::RECORDS;
use crate::goodput::Goodput;
use crate::manifest::Manifest;
use crate::progress::Progress;

/// Returns the schemas of all files, with their names.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    let records = RECORDS.iter().map(|record| (record.name, (record.schema)()));
    let others = [
        ("manifest", schema_for!(Manifest)),
        ("progress", schema_for!(Progress)),
        ("accept", schema_for!(Verdict)),
        ("goodput", schema_for!(Goodput)),
        ("accept_journal", schema_for!(Line)),
    ];
    records.chain(others).collect()
}
