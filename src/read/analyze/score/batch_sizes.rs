//! Scoring runs as series by batch size, in the same form as those of training.

use ringmark_core::dimension::KvStore;

use crate::read::analyze::batch_sizes::{self, BatchPoint, BatchSeries, BatchTable};
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::score::figures::{ScorePoint, ScoreTable};
use crate::read::load::folder::Shortage;
use crate::read::load::record::devices_text;

/// Converts all tables, with the batches that do not fit into memory.
pub fn tables(tables: &[ScoreTable], shortages: &[Shortage]) -> Vec<BatchTable> {
    let mut tables: Vec<BatchTable> = tables.iter().map(table).collect();
    batch_sizes::add_shortages(&mut tables, shortages);
    tables
}

/// Converts one table, without shortages.
pub fn table(table: &ScoreTable) -> BatchTable {
    let lines = table.points.chunk_by(|one, other| one.key().shares_row(&other.key()));
    let point = |point: &ScorePoint| {
        let is_doubtful = table.reliability_warnings_of(point).next().is_some();
        BatchPoint::new(point, point.key().batch_size, table.utilization(point), is_doubtful)
    };
    let line = |points: &[ScorePoint]| BatchSeries {
        model: points[0].key().model,
        dtype: points[0].key().dtype,
        case: points[0].key().case,
        points: points.iter().map(point).collect(),
    };
    BatchTable {
        device: table.device(),
        devices: devices_text(&table.device_names(), &table.threads(), table.device()),
        image_size: table.conditions.as_ref().and_then(|conditions| conditions.config.image_size),
        kv_store: KvStore::Ring,
        is_quick: table.is_quick(),
        settings: table.settings(),
        series: lines.map(line).collect(),
        shortages: Vec::new(),
    }
}
