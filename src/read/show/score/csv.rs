//! Speeds for spreadsheets: one row per point.

use crate::read::analyze::results::ResultFolder;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::score::figures::{ScoreCase, ScoreGroup};
use crate::read::show::columns::{self, Column, conditions, cv, speed, text, utilization};
use ringmark_core::dimension::SampleSize;

/// Returns the points of all tables.
pub fn csv(result: &ResultFolder) -> anyhow::Result<String> {
    let others: [Column<ScoreGroup>; 5] = [
        text("image_size", |group: &ScoreGroup, case| match group.sample_size(case) {
            Some(SampleSize::Pixels(size)) => size.to_string(),
            Some(SampleSize::Tokens(_)) | None => String::new(),
        }),
        text("warnings", |group: &ScoreGroup, _| group.warnings.join("; ")),
        text("run_warnings", |_, case: &ScoreCase| case.warnings.len().to_string()),
        text("is_reliable", |group: &ScoreGroup, case| group.is_speed_reliable(case).to_string()),
        text("reliability_warnings", |group: &ScoreGroup, case| {
            group.reliability_of(case).iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }),
    ];
    let groups = result.scoring();
    let speeds = columns::of_units(groups, |unit| speed(format!("{unit}_per_s"), unit));
    let columns = conditions().into_iter().chain(speeds).chain([cv()]).chain(utilization()).chain(others);
    columns::csv(groups, columns.collect(), vec![columns::batch().into()])
}
