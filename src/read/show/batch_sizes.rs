//! Tables by batch size for terminals, Markdown and pages: a column per batch size, and for each series a row of
//! speeds followed by rows of spread and memory.

use std::collections::BTreeSet;

use ringmark_core::number_text::{cv_percent, four_digits};

use crate::output::table::{Column, Row, Style, Table};
use crate::read::analyze::batch_sizes::{BatchFigures, BatchPoint, BatchSeries, BatchTable};
use crate::read::load::folder::Shortage;
use crate::read::show::numbers::{MARK, billions, marked, share_of_limit, teraflops};
use crate::read::show::text::{Medium, Paragraph};
use crate::read::show::utilization::over_limit;

/// Maximum number of batch sizes in one table on a terminal.
const SIDE_BY_SIDE: usize = 6;

/// Explains the columns, and the rows below the speed except that of memory.
pub const ROW_LEGEND: &str = "dtype: precision; tokens: length of a sequence. Numbered columns: speed at this \
    batch size. TFLOP/s: FLOP rate of the network; % of matmul: of the rate of matrix products measured on the devices; % of \
    peak: of the GPU's published peak.";

pub const PEAK_LEGEND: &str = "peak GB: memory of tensors on a GPU, resident memory on a CPU; 1 GB is 1e9 bytes.";

/// A series and how it is labeled.
pub struct Line<'a> {
    /// Name of the result; `None` if there is only one.
    pub result: Option<String>,
    pub series: &'a BatchSeries,
    pub style: Option<Style>,
}

/// Rows below the speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtraRows {
    /// Spread over runs, if known.
    Spread,
    /// Spread, then the highest memory use of any rank, if recorded.
    SpreadAndMemory,
}

/// Returns a row of speeds for each line, followed by the rows of `extra`, whose names are indented by `indent`.
pub fn table(lines: &[Line], batch_sizes: &[u32], extra: ExtraRows, indent: &str) -> Table {
    let has_result = lines.iter().any(|line| line.result.is_some());
    let has_dtype = !is_one(lines, |series| series.dtype);
    let has_case = !is_one(lines, |series| series.case);
    let has_length = lines.iter().any(|line| line.series.sequence_length.is_some());
    let result = has_result.then_some("result");
    let names = result.into_iter().chain(["network"]);
    let names = names.chain(has_length.then_some("tokens")).chain(has_dtype.then_some("dtype"));
    let names = names.chain(has_case.then_some("case")).collect::<Vec<_>>();
    let mut rows = Vec::new();
    for Line { result, series, style } in lines {
        let mut own = Vec::new();
        own.extend(has_result.then(|| result.clone().unwrap_or_default()));
        own.push(series.model.facts().title.to_owned());
        own.extend(has_length.then(|| series.sequence_length.unwrap_or_default().to_string()));
        own.extend(has_dtype.then(|| series.dtype.to_string()));
        own.extend(has_case.then(|| series.case.to_string()));
        let is_doubtful = series.measured().next().is_some() && series.measured().all(|(point, _)| point.is_doubtful);
        let row = |names: Vec<String>, cells| Row {
            cells: [names, cells].concat(),
            style: *style,
            is_doubtful,
            ..Row::default()
        };
        rows.push(row(own, cells(series, batch_sizes, speed)));
        let mut add_row = |name: &str, depends_on_speed: bool, cell: fn(&BatchFigures) -> Option<String>| {
            if series.measured().any(|(_, figures)| cell(figures).is_some()) {
                let mut blank = vec![String::new(); names.len()];
                blank[0] = format!("{indent}{name}");
                let cell = |point: &BatchPoint| {
                    let figure = point.outcome.as_ref().ok().and_then(cell)?;
                    Some(marked(figure, point.is_doubtful && depends_on_speed))
                };
                rows.push(row(blank, cells(series, batch_sizes, cell)));
            }
        };
        add_row("CV %", false, |figures| Some(cv_percent(figures.cv?)));
        add_row("TFLOP/s", true, |figures| Some(teraflops(figures.utilization?.teraflops_per_second)));
        add_row("% of matmul", true, |figures| Some(share_of_limit(figures.utilization?.share_of_matrix_product?)));
        add_row("% of peak", true, |figures| Some(share_of_limit(figures.utilization?.share_of_published_peak?)));
        if extra == ExtraRows::SpreadAndMemory {
            add_row("peak GB", false, |figures| Some(billions(figures.peak_memory?.0 as f64)));
        }
    }
    let numbers = batch_sizes.iter().map(|size| Column::numbers(size.to_string(), ""));
    Table { columns: names.into_iter().map(Column::text).chain(numbers).collect(), rows, bars: None }
}

/// Returns the tables of one result. On a terminal each table is limited to a few batch sizes.
pub fn tables(table: &BatchTable, extra: ExtraRows, medium: Medium) -> Vec<Paragraph> {
    let lines: Vec<Line> = table.series.iter().map(|series| Line { result: None, series, style: None }).collect();
    let side_by_side = if medium == Medium::Markdown { usize::MAX } else { SIDE_BY_SIDE };
    let sizes = table.batch_sizes();
    let tables = sizes.chunks(side_by_side).map(|sizes| Paragraph::Table(self::table(&lines, sizes, extra, "  ")));
    let shortages: Vec<String> = table.shortages.iter().map(Shortage::to_string).collect();
    let measured = table.series.iter().flat_map(BatchSeries::measured);
    let over_limit = over_limit(measured.filter_map(|(_, figures)| figures.utilization));
    let tables = tables.chain(over_limit.map(|note| Paragraph::Note(vec![note])));
    tables.chain((!shortages.is_empty()).then_some(Paragraph::Note(shortages))).collect()
}

/// Returns true if all lines have the same value.
fn is_one<T: Ord>(lines: &[Line], of: impl Fn(&BatchSeries) -> T) -> bool {
    lines.iter().map(|line| of(line.series)).collect::<BTreeSet<T>>().len() <= 1
}

fn cells(series: &BatchSeries, batch_sizes: &[u32], cell: impl Fn(&BatchPoint) -> Option<String>) -> Vec<String> {
    let point = |size: &u32| series.points.iter().find(|point| point.batch_size == *size);
    batch_sizes.iter().map(|size| point(size).and_then(&cell).unwrap_or_else(|| "-".to_owned())).collect()
}

/// Formats the speed, or the reason why it is missing.
fn speed(point: &BatchPoint) -> Option<String> {
    let mark = if point.is_warned { MARK } else { "" };
    Some(match &point.outcome {
        Ok(figures) => marked(four_digits(figures.speed.0) + mark, point.is_doubtful),
        Err(missing) => missing.text().to_owned(),
    })
}
