//! Loss and accuracy over iterations, for training with images.

use ringmark_core::benchmark::train::EpochEnd;
use ringmark_core::stats::summary::mean;

use crate::output::table::{Column, Row, Style, Table};
use crate::read::show::page::charts::Chart;
use crate::read::show::page::charts::lines::{Axis, ChartPoint, LineChart, LineSeries};
use crate::read::show::page::charts::scale::ScaleKind;
use crate::read::show::page::content::series::Setting;
use crate::read::show::page::document::Block;

const NOTE: &str = "Training loss of the global batches, averaged over up to 50 equal parts of the run. Validation on \
    the images of --validate at the end of each epoch. With label smoothing, the training loss cannot reach 0.";

/// Maximum number of points of the loss: each is the mean over a part of the run.
const PARTS: usize = 50;

struct RunCurve<'a> {
    name: String,
    style: Style,
    losses: &'a [f64],
    ends: &'a [EpochEnd],
}

/// Returns the block, or `None` if no run read images.
pub fn block(setting: &Setting) -> Option<Block> {
    let curves: Vec<RunCurve> = curves(setting);
    let chart = |title: &str, unit: &str, points: &dyn Fn(&RunCurve) -> Vec<ChartPoint>| {
        let series: Vec<LineSeries> = curves.iter().filter_map(|curve| line(curve, points(curve))).collect();
        (!series.is_empty()).then(|| {
            let [x, y] = ["iteration", unit].map(|name| Axis::new(name, ScaleKind::Linear));
            Chart::Lines(LineChart { y_ends: [None, None], ..LineChart::new(title, x, y, series) })
        })
    };
    let charts = [
        chart("Training loss", "cross entropy", &loss_points),
        chart("Validation loss", "cross entropy", &|curve| {
            epoch_points(curve, "validation loss", |end| end.validation?.loss)
        }),
        chart("Top-1", "%", &|curve| epoch_points(curve, "top-1", |end| Some(100.0 * end.validation?.top_1?))),
    ];
    let charts: Vec<Chart> = charts.into_iter().flatten().collect();
    let charts = charts.chunks(2).map(<[Chart]>::to_vec).collect();
    let table = Some(table(&curves)).filter(|table| !table.rows.is_empty());
    (!curves.is_empty()).then(|| Block { charts, table, ..Block::new("Loss and accuracy", NOTE) })
}

fn curves<'a>(setting: &Setting<'a>) -> Vec<RunCurve<'a>> {
    let mut curves = Vec::new();
    for series in &setting.series {
        let runs = series.group.cases.iter().flat_map(|case| case.runs.iter().map(move |run| (case.case, run)));
        for (case, run) in runs {
            let Ok(measured) = &run.outcome else { continue };
            if measured.figures.epochs.is_empty() && measured.figures.losses.is_empty() {
                continue;
            }
            let number = run.found.name.run;
            // Colors distinguish results, or the runs of a single result.
            let color = if setting.series.len() > 1 { series.style.color } else { curves.len() };
            curves.push(RunCurve {
                name: setting.named(series, format!("{case} run {number}")),
                style: Style { color, shape: curves.len() },
                losses: &measured.figures.losses,
                ends: &measured.figures.epochs,
            });
        }
    }
    curves
}

/// Returns the mean loss of each part, except parts with a loss that is not finite.
fn loss_points(curve: &RunCurve) -> Vec<ChartPoint> {
    let length = curve.losses.len().div_ceil(PARTS).max(1);
    let point = |(number, losses): (usize, &[f64])| {
        let (first, last) = (number * length + 1, number * length + losses.len());
        let y = mean(losses).filter(|loss| loss.is_finite())?;
        let iterations =
            if first == last { format!("iteration {first}") } else { format!("iterations {first}-{last}") };
        let tip = format!("{}, {iterations}: training loss {y:.4}", curve.name);
        Some(ChartPoint { x: last as f64, y, tip, is_doubtful: false })
    };
    curve.losses.chunks(length).enumerate().filter_map(point).collect()
}

fn epoch_points(curve: &RunCurve, what: &str, value: impl Fn(&EpochEnd) -> Option<f64>) -> Vec<ChartPoint> {
    let point = |end: &EpochEnd| {
        let y = value(end)?;
        let tip = format!("{}, epoch {}: {what} {y:.4}", curve.name, end.epoch);
        Some(ChartPoint { x: f64::from(end.iteration), y, tip, is_doubtful: false })
    };
    curve.ends.iter().filter_map(point).collect()
}

fn line(curve: &RunCurve, points: Vec<ChartPoint>) -> Option<LineSeries> {
    (!points.is_empty()).then(|| LineSeries {
        name: curve.name.clone(),
        style: curve.style,
        points,
        dots: Vec::new(),
        ideal: Vec::new(),
        is_reference: false,
    })
}

/// Returns the last epoch of each run.
fn table(curves: &[RunCurve]) -> Table {
    let columns = vec![
        Column::text("case"),
        Column::numbers("epochs", ""),
        Column::numbers("training loss", ""),
        Column::numbers("validation loss", ""),
        Column::numbers("top-1", "%"),
        Column::numbers("top-5", "%"),
        Column::numbers("perplexity", ""),
    ];
    let row = |curve: &RunCurve| {
        let last = curve.ends.last()?;
        let number = |value: Option<f64>, decimals: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
        };
        let validation = last.validation;
        let cells = vec![
            curve.name.clone(),
            last.epoch.to_string(),
            number(last.loss, 4),
            number(validation.and_then(|of| of.loss), 4),
            number(validation.and_then(|of| Some(100.0 * of.top_1?)), 2),
            number(validation.and_then(|of| Some(100.0 * of.top_5?)), 2),
            number(validation.and_then(|of| of.perplexity()), 2),
        ];
        Some(Row { cells, style: Some(curve.style), ..Row::default() })
    };
    let table = Table { columns, rows: curves.iter().filter_map(row).collect(), bars: None };
    ["top-1", "top-5", "perplexity"].into_iter().fold(table, Table::without_empty)
}
