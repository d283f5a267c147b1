//! Lines by batch size as the cells of a table: a column a batch size, and for each line a row of images/s, with the spread
//! and the memory below it. For terminals, Markdown and pages alike.

use std::collections::BTreeSet;

use crate::read::analyse::batch_sizes::{BatchFigures, BatchPoint, BatchSeries};
use crate::read::show::columns::{Columns, percent};
use crate::read::show::sections::{MARK, marked};
use crate::read::show::utilisation::teraflops;

/// Batch sizes that stand side by side in 80 columns; more of them are a second table.
pub const SIDE_BY_SIDE: usize = 6;

/// A line, and the result that it is of where there are several.
pub struct Line<'a> {
    /// Name of the result.
    pub result: Option<String>,
    /// What was measured.
    pub series: &'a BatchSeries,
}

/// What stands below the images/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Below {
    /// Spread over runs, where there is any.
    Spread,
    /// The same, then the memory of the fullest rank, where records tell.
    SpreadAndMemory,
}

/// Names and cells, before it is known where they are shown.
pub struct Grid {
    /// Of the columns of text: what is the same in all lines has none.
    pub names: Vec<&'static str>,
    /// From top to bottom.
    pub rows: Vec<GridRow>,
}

/// One row.
pub struct GridRow {
    /// What it is of, a cell for each of the grid's names.
    pub names: Vec<String>,
    /// A cell a batch size.
    pub cells: Vec<String>,
    /// Number of its line.
    pub line: usize,
    /// True if none of its figures is reliable.
    pub is_doubtful: bool,
}

impl Grid {
    /// Of these batch sizes; `indent` stands before the names of rows that belong to the one above.
    pub fn new(lines: &[Line], batch_sizes: &[u32], below: Below, indent: &str) -> Grid {
        let has_result = lines.iter().any(|line| line.result.is_some());
        let has_dtype = !is_one(lines, |series| series.dtype);
        let has_case = !is_one(lines, |series| series.case);
        let result = has_result.then_some("result");
        let names = result.into_iter().chain(["network"]);
        let names = names.chain(has_dtype.then_some("dtype")).chain(has_case.then_some("case")).collect::<Vec<_>>();
        let mut rows = Vec::new();
        for (number, Line { result, series }) in lines.iter().enumerate() {
            let mut own = Vec::new();
            own.extend(has_result.then(|| result.clone().unwrap_or_default()));
            own.push(series.model.facts().title.to_owned());
            own.extend(has_dtype.then(|| series.dtype.to_string()));
            own.extend(has_case.then(|| series.case.to_string()));
            let is_doubtful =
                series.measured().next().is_some() && series.measured().all(|(point, _)| point.is_doubtful);
            let row = |names, cells| GridRow { names, cells, line: number, is_doubtful };
            rows.push(row(own, cells(series, batch_sizes, speed)));
            let mut below_it = |name: &str, cell: fn(&BatchFigures) -> Option<String>| {
                if series.measured().any(|(_, figures)| cell(figures).is_some()) {
                    let mut blank = vec![String::new(); names.len()];
                    blank[0] = format!("{indent}{name}");
                    let cell = |point: &BatchPoint| point.outcome.as_ref().ok().and_then(cell);
                    rows.push(row(blank, cells(series, batch_sizes, cell)));
                }
            };
            below_it("CV %", |figures| Some(format!("{:.2}", figures.cv? * 100.0)));
            below_it("TFLOP/s", |figures| Some(teraflops(figures.utilisation?.teraflops_per_second)));
            below_it("% of products", |figures| Some(percent(figures.utilisation?.share_of_matrix_product?)));
            below_it("% of peak", |figures| Some(percent(figures.utilisation?.share_of_published_peak?)));
            if below == Below::SpreadAndMemory {
                below_it("peak GB", |figures| Some(format!("{:.2}", figures.peak_memory?.0 as f64 / 1e9)));
            }
        }
        Grid { names, rows }
    }

    /// For a terminal or in Markdown.
    pub fn columns(self, batch_sizes: &[u32]) -> Columns {
        let sizes: Vec<String> = batch_sizes.iter().map(u32::to_string).collect();
        let of_text = self.names.len();
        let headers = self.names.into_iter().chain(sizes.iter().map(String::as_str)).map(|name| (name, ""));
        let headers: Vec<(&str, &str)> = headers.collect();
        let rows = self.rows.into_iter().map(|row| row.names.into_iter().chain(row.cells).collect());
        Columns::new(&headers, rows.collect()).with_text(0..of_text)
    }
}

/// Tables of one result, each of so many batch sizes.
pub fn tables(series: &[BatchSeries], batch_sizes: &[u32], below: Below, side_by_side: usize) -> Vec<Columns> {
    let lines: Vec<Line> = series.iter().map(|series| Line { result: None, series }).collect();
    let chunks = batch_sizes.chunks(side_by_side);
    chunks.map(|sizes| Grid::new(&lines, sizes, below, "  ").columns(sizes)).collect()
}

/// Whether all lines share it.
fn is_one<T: Ord>(lines: &[Line], of: impl Fn(&BatchSeries) -> T) -> bool {
    lines.iter().map(|line| of(line.series)).collect::<BTreeSet<T>>().len() <= 1
}

fn cells(series: &BatchSeries, batch_sizes: &[u32], cell: impl Fn(&BatchPoint) -> Option<String>) -> Vec<String> {
    let point = |size: &u32| series.points.iter().find(|point| point.batch_size == *size);
    batch_sizes.iter().map(|size| point(size).and_then(&cell).unwrap_or_else(|| "-".to_owned())).collect()
}

/// Images/s, or why there are none.
fn speed(point: &BatchPoint) -> Option<String> {
    let mark = if point.is_warned { MARK } else { "" };
    Some(match &point.outcome {
        Ok(figures) => marked(format!("{:.2}{mark}", figures.speed.0), point.is_doubtful),
        Err(missing) => missing.text().to_owned(),
    })
}
