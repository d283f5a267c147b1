//! Charts of every iteration, one per run. The runs of a case share their axis, so that drift within and between runs
//! is visible.

use ringmark_core::dimension::Seconds;
use ringmark_core::number_text::four_digits;
use ringmark_core::stats::summary::step_percentiles;
use ringmark_core::validity::outlier_limit;

use crate::output::table::{Column, Row, Table};
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::figures::TrainingCase;
use crate::read::load::run::Measured;
use crate::read::show::numbers::count;
use crate::read::show::page::charts::Chart;
use crate::read::show::page::charts::scale::extent;
use crate::read::show::page::charts::step_times::{StepTimes, iteration_ranges};
use crate::read::show::page::content::series::{PageSeries, Setting};
use crate::read::show::page::document::Block;

/// Maximum number of ranges per drawing.
const RANGES: usize = 150;

/// Maximum number of ranges over all runs of a result, to limit the size of the page.
const RANGES_IN_ALL: usize = 9000;

/// Minimum number of ranges for a useful drawing.
const MIN_ITERATIONS: usize = 24;

const READING: &str = "One drawing per run, titled with its p50. The line is the median over ranks, in a band from \
    the fastest to the slowest rank. Warm-up is shaded and excluded from the figures; p50 (the dashed line) to p95 \
    are over the iterations of all ranks. Diamonds mark outliers (mean over ranks); triangles mark values beyond the \
    axis. All runs of a case share the axis, which does not start at 0. Baseline: the same ranks without \
    communication.";

/// Times of one run for the table, in milliseconds.
struct Times {
    percentiles: [f64; 4],
    ends: [f64; 2],
    outliers: Vec<(usize, f64)>,
}

/// Counted runs of a case, or of its baseline.
struct CaseTimes<'a> {
    name: String,
    runs: Vec<(u32, &'a Measured, Times)>,
    is_doubtful: bool,
}

/// Returns one block per series. Only the first explains how to read the drawings.
pub fn blocks(setting: &Setting) -> Vec<Block> {
    let mut blocks: Vec<Block> = setting.series.iter().filter_map(|series| block(setting, series)).collect();
    blocks.iter_mut().skip(1).for_each(|block| block.reading.clear());
    blocks
}

/// Returns one row of drawings per case; `None` if no run counts.
fn block(setting: &Setting, series: &PageSeries) -> Option<Block> {
    let cases = series.group.cases.iter().flat_map(|case| {
        let baseline = case.baseline.as_ref().map(|runs| case_times(series, format!("{} baseline", case.case), runs));
        std::iter::once(case_times(series, case.case.to_string(), case)).chain(baseline)
    });
    let cases: Vec<CaseTimes> = cases.filter(|case| !case.runs.is_empty()).collect();
    let runs: usize = cases.iter().map(|case| case.runs.len()).sum();
    if runs == 0 {
        return None;
    }
    let each = (RANGES_IN_ALL / runs).clamp(MIN_ITERATIONS, RANGES);
    let title = setting.titled("Every iteration", series);
    let charts = cases.iter().map(|case| charts(series, case, each)).collect();
    Some(Block { charts, table: Some(table(series, &cases)), reading: READING.to_owned(), ..Block::new(title, "") })
}

fn case_times<'a>(series: &PageSeries, name: String, case: &'a TrainingCase) -> CaseTimes<'a> {
    let runs = case.runs.iter().filter_map(|run| {
        let measured = run.outcome.as_ref().ok()?;
        Some((run.found.name.run, measured, times(measured)?))
    });
    let is_doubtful = !series.group.is_speed_reliable(case);
    CaseTimes { name, runs: runs.collect(), is_doubtful }
}

fn charts(series: &PageSeries, case: &CaseTimes, each: usize) -> Vec<Chart> {
    let domain = domain(&case.runs);
    let chart = |(run, measured, times): &(u32, &Measured, Times)| {
        let outliers = match times.outliers.len() {
            0 => String::new(),
            far => format!(", {}", count(far, "outlier")),
        };
        Chart::StepTimes(StepTimes {
            title: format!("{}, run {run}: {} ms{outliers}", case.name, four_digits(times.percentiles[0])),
            description: format!("{} iterations, longest {} ms", measured.figures.timed, four_digits(times.ends[1])),
            style: series.style,
            ranges: iteration_ranges(&measured.figures.steps, measured.figures.warmup, each),
            iterations: measured.figures.timed,
            warmup: measured.figures.warmup,
            usual: times.percentiles[0],
            outliers: times.outliers.clone(),
            domain,
        })
    };
    case.runs.iter().map(chart).collect()
}

/// Returns `None` if the log does not contain times of single iterations.
fn times(measured: &Measured) -> Option<Times> {
    let all: Vec<f64> = measured.figures.iteration_times().iter().map(|Seconds(time)| time * 1e3).collect();
    let counted = all.get(measured.figures.warmup..)?;
    let limit = outlier_limit(counted)?;
    let far = counted.iter().enumerate().filter(|(_, time)| **time > limit);
    let mut outliers: Vec<(usize, f64)> =
        far.map(|(index, time)| (measured.figures.warmup + index + 1, *time)).collect();
    outliers.sort_by(|one, other| other.1.total_cmp(&one.1));
    let of_ranks: Vec<f64> = measured.figures.pooled_steps().iter().map(|time| time * 1e3).collect();
    let ends = extent(of_ranks.iter().copied())?;
    Some(Times { percentiles: step_percentiles(of_ranks)?, ends, outliers })
}

/// Returns the axis: from the fastest iteration of any run to a limit based on the percentiles, so that a single
/// extreme outlier does not flatten the rest.
fn domain(runs: &[(u32, &Measured, Times)]) -> [f64; 2] {
    let low = runs.iter().map(|(_, _, times)| times.ends[0]).fold(f64::INFINITY, f64::min);
    let usual = runs.iter().map(|(_, _, times)| times.percentiles[0]).fold(0.0, f64::max);
    let common = runs.iter().map(|(_, _, times)| times.percentiles[3]).fold(0.0, f64::max);
    let longest = runs.iter().map(|(_, _, times)| times.ends[1]).fold(0.0, f64::max);
    let high = longest.min((low + 3.0 * (common - low)).max(1.06 * usual));
    let air = 0.06 * (high - low).max(0.02 * high);
    [low - 2.0 * air, high + air]
}

fn table(series: &PageSeries, cases: &[CaseTimes]) -> Table {
    let columns = vec![
        Column::text("case"),
        Column::numbers("run", ""),
        Column::numbers("measured", ""),
        Column::numbers("warm-up", "").minor(),
        Column::numbers("shortest", "ms").minor(),
        Column::numbers("p50", "ms"),
        Column::numbers("p75", "ms"),
        Column::numbers("p90", "ms"),
        Column::numbers("p95", "ms"),
        Column::numbers("longest", "ms"),
        Column::numbers("outliers", ""),
    ];
    let rows = cases.iter().flat_map(|case| {
        case.runs.iter().map(|(run, measured, times)| {
            let mut cells = vec![case.name.clone(), run.to_string()];
            let warmup = measured.figures.warmup;
            cells.extend([measured.figures.timed.saturating_sub(warmup), warmup].map(|number| number.to_string()));
            let [shortest, longest] = times.ends;
            let [p50, p75, p90, p95] = times.percentiles;
            cells.extend([shortest, p50, p75, p90, p95, longest].map(four_digits));
            cells.push(times.outliers.len().to_string());
            let is_doubtful = case.is_doubtful;
            Row { cells, bar: Some(p50), style: Some(series.style), is_doubtful, ..Row::default() }
        })
    });
    Table { columns, rows: rows.collect(), bars: Some("p50") }
}
