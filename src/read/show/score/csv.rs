//! Images/s for spreadsheets: one row per point.

use crate::read::analyze::extraction::Extraction;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::score::figures::{ScorePoint, ScoreTable};
use crate::read::show::csv::{Column, column, conditions, text, utilization};

/// Returns the points of all tables.
pub fn csv(extraction: &Extraction<ScoreTable>) -> anyhow::Result<String> {
    let speeds: [Column<ScoreTable>; 2] = [
        column("images_per_s", |_, point: &ScorePoint| text(point.speed().map(|speed| speed.0))),
        column("cv", |_, point: &ScorePoint| text(point.speeds().cv())),
    ];
    let others: [Column<ScoreTable>; 5] = [
        column("image_size", |table: &ScoreTable, point| text(table.image_size(point))),
        column("warnings", |table: &ScoreTable, _| table.warnings.join("; ")),
        column("run_warnings", |_, point: &ScorePoint| point.warnings.len().to_string()),
        column("is_reliable", |table: &ScoreTable, point| {
            table.reliability_warnings_of(point).next().is_none().to_string()
        }),
        column("reliability_warnings", |table: &ScoreTable, point| {
            table.reliability_of(point).iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }),
    ];
    let columns = conditions().into_iter().chain(speeds).chain(utilization()).chain(others).collect();
    crate::read::show::csv::csv(&extraction.groups, columns, Vec::new())
}
