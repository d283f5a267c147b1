//! Scoring runs as a side of a comparison: the JSON that `ringmark extract` makes of them. A table a network and precision;
//! a case and a batch size together are compared with the same pair of the other side.

use anyhow::Context;
use ringmark_core::dimension::{Seconds, UnitsPerSecond};

use crate::read::analyze::comparison::side::{RunFigures, Side, SideGroup};
use crate::read::analyze::score::result_json::{ScoreResult, ScoreRowRun};
use crate::read::load::environment::moment;

/// Takes in the rows of a result.
pub fn add_result(side: &mut Side, result: ScoreResult) -> anyhow::Result<()> {
    let path = side.path.display().to_string();
    side.left_out.extend(result.left_out.iter().map(|what| format!("{path}: {what}")));
    for row in result.rows {
        let name = format!("{} b{}", row.case, row.batch_size);
        let counted = row.runs.runs.iter().filter(|run| run.left_out.is_none());
        let figures = |run: &ScoreRowRun| {
            run_figures(run).with_context(|| format!("run {} of {name} counts but has no speed above 0", run.run))
        };
        let runs = counted.clone().map(figures).collect::<anyhow::Result<Vec<_>>>()?;
        if runs.is_empty() {
            continue;
        }
        side.started.extend(counted.filter_map(|run| moment(run.started_unix_seconds?)));
        let group =
            SideGroup::from_runs((row.model, row.dtype), None, row.head.device, row.head.profile, &row.runs.settings);
        let case = side.group(group).case(&name);
        (case.runs, case.environment) = (runs, row.runs.environment);
        case.hosts = Some(row.case.nodes);
        case.matrix_rate = row.figures.arithmetic.and_then(|it| it.matrix_product_teraflops_per_second);
        (case.warnings, case.reliability_warnings) = (row.runs.warnings, row.reliability.reliability_warnings);
    }
    Ok(())
}

/// Returns `None` if a time is missing.
fn run_figures(run: &ScoreRowRun) -> Option<RunFigures> {
    let UnitsPerSecond(speed) = run.units_per_second.filter(|speed| speed.0 > 0.0)?;
    let times = run.pass_seconds?;
    RunFigures::new(speed, Seconds(times.mean), Some(times.percentiles()))
}
