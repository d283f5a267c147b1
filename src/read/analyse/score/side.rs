//! Scoring runs as a side of a comparison: the JSON that `ringmark extract` makes of them. A table a network and precision;
//! a case and a batch size together are what is compared with its namesake.

use std::collections::BTreeMap;

use anyhow::Context;
use ringmark_core::dimension::{ImagesPerSecond, Seconds};

use crate::read::analyse::comparison::side::{NOT_KNOWN, RunFigures, Side, SideTable};
use crate::read::analyse::comparison::training::word;
use crate::read::analyse::score::json::{ScoreResult, ScoreRow, ScoreRowRun};
use crate::read::load::environment::moment;

/// Takes in the rows of a result.
pub fn take_result(side: &mut Side, result: ScoreResult) -> anyhow::Result<()> {
    let path = side.path.display().to_string();
    side.left_out.extend(result.left_out.iter().map(|what| format!("{path}: {what}")));
    for row in result.rows {
        let name = format!("{} b{}", row.case, row.batch_size);
        let counted = row.runs.iter().filter(|run| run.left_out.is_none());
        let figures = |run: &ScoreRowRun| {
            of_run(run).with_context(|| format!("run {} of {name} counts and has no speed above 0", run.run))
        };
        let runs = counted.clone().map(figures).collect::<anyhow::Result<Vec<_>>>()?;
        if runs.is_empty() {
            continue;
        }
        side.started.extend(counted.filter_map(|run| moment(run.started_unix_seconds?)));
        let case = side.set(table(&row)).case(&name);
        (case.runs, case.environment) = (runs, row.environment);
        (case.warnings, case.reliability_warnings) = (row.warnings, row.reliability_warnings);
    }
    Ok(())
}

/// `None` where a time is none.
fn of_run(run: &ScoreRowRun) -> Option<RunFigures> {
    let ImagesPerSecond(speed) = run.images_per_second.filter(|speed| speed.0 > 0.0)?;
    let times = run.pass_seconds?;
    RunFigures::of(speed, Seconds(times.mean), Some(times.percentiles()))
}

/// The table that a row belongs into, without cases.
fn table(row: &ScoreRow) -> SideTable {
    let mut settings: BTreeMap<String, String> =
        row.settings.iter().map(|(name, value)| (name.clone(), word(value))).collect();
    let not_known = || NOT_KNOWN.to_owned();
    let image_size = settings.remove("image_size");
    settings.extend(row.profile.map(|profile| ("profile".to_owned(), profile.to_string())));
    SideTable {
        must: vec![
            ("model", Some(row.model.facts().title.to_owned())),
            ("precision", Some(row.dtype.to_string())),
            ("image size", Some(image_size.unwrap_or_else(not_known))),
            ("device", Some(row.device.map_or_else(not_known, |device| device.to_string()))),
        ],
        settings,
        ..SideTable::default()
    }
}
