//! The JSON Schema of every file that this package reads and writes, made from its types.

use schemars::{Schema, schema_for};

use crate::benchmark::bandwidth::BandwidthRecord;
use crate::benchmark::input::InputRecord;
use crate::benchmark::score::ScoreRecord;
use crate::benchmark::train::record;
use crate::manifest::Manifest;
use crate::progress::Progress;

/// Each under its name.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    vec![
        ("run_record", record::schema_of_line()),
        ("score_record", schema_for!(ScoreRecord)),
        ("bandwidth_record", schema_for!(BandwidthRecord)),
        ("input_record", schema_for!(InputRecord)),
        ("manifest", schema_for!(Manifest)),
        ("progress", schema_for!(Progress)),
    ]
}
