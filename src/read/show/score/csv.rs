//! Images/s for spreadsheets: one row per point.

use crate::read::analyze::results::ResultFolder;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::score::figures::{ScoreCase, ScoreGroup};
use crate::read::show::columns::{self, Column, conditions, cv, optional, speed, text, utilization};

/// Returns the points of all tables.
pub fn csv(result: &ResultFolder) -> anyhow::Result<String> {
    let others: [Column<ScoreGroup>; 5] = [
        text("image_size", |group: &ScoreGroup, case| optional(group.image_size(case))),
        text("warnings", |group: &ScoreGroup, _| group.warnings.join("; ")),
        text("run_warnings", |_, case: &ScoreCase| case.warnings.len().to_string()),
        text("is_reliable", |group: &ScoreGroup, case| group.is_speed_reliable(case).to_string()),
        text("reliability_warnings", |group: &ScoreGroup, case| {
            group.reliability_of(case).iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }),
    ];
    let columns = conditions().into_iter().chain([speed("images_per_s"), cv()]).chain(utilization()).chain(others);
    columns::csv(result.scoring(), columns.collect(), Vec::new())
}
