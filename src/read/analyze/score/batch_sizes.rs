//! Scoring runs as series by batch size, in the same form as those of training.

use ringmark_core::dimension::Strategy;

use crate::read::analyze::batch_sizes::{self, BatchPoint, BatchSeries, BatchTable};
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::score::figures::{ScoreCase, ScoreGroup};
use crate::read::load::environment::devices_text;
use crate::read::load::folder::Shortage;

/// Converts all tables, with the batches that do not fit into memory.
pub fn tables(groups: &[ScoreGroup], shortages: &[Shortage]) -> Vec<BatchTable> {
    let mut tables: Vec<BatchTable> = groups.iter().map(table).collect();
    batch_sizes::add_shortages(&mut tables, shortages);
    tables
}

/// Converts one table, without shortages.
pub fn table(group: &ScoreGroup) -> BatchTable {
    let lines = group.cases.chunk_by(|one, other| one.key().shares_row(&other.key()));
    let point = |case: &ScoreCase| {
        let is_doubtful = group.reliability_warnings_of(case).next().is_some();
        BatchPoint::new(case, case.key().batch.size.number(), group.utilization(case), is_doubtful)
    };
    let line = |cases: &[ScoreCase]| BatchSeries {
        model: cases[0].key().model,
        sequence_length: cases[0].key().batch.sequence_length,
        dtype: cases[0].key().dtype,
        case: cases[0].key().case,
        points: cases.iter().map(point).collect(),
    };
    BatchTable {
        device: group.device(),
        devices: devices_text(&group.device_names(), &group.threads(), group.device()),
        image_size: group.conditions.as_ref().and_then(|conditions| conditions.config.image_size),
        strategy: Strategy::AllReduce,
        is_quick: group.is_quick(),
        settings: group.settings(),
        series: lines.map(line).collect(),
        shortages: Vec::new(),
    }
}
