//! Charts by batch size: images/s and memory as lines, or as bars if no line has more than two batch sizes. Points
//! without figures appear only in the table.

use ringmark_core::dimension::{DeviceKind, WorkUnit};
use ringmark_core::number_text::{four_digits, three_digits};

use crate::output::table::Style;
use crate::read::analyze::batch_sizes::{BatchFigures, BatchPoint, BatchSeries, batch_sizes};
use crate::read::show::numbers::count;
use crate::read::show::page::charts::Chart;
use crate::read::show::page::charts::bars::{Bar, BarChart, BarSeries};
use crate::read::show::page::charts::lines::{Axis, ChartPoint, LineChart, LineSeries, far_apart};
use crate::read::show::page::charts::scale::{ScaleKind, extent};

/// Largest number of batch sizes that is shown as bars instead of a line.
const FEW: usize = 2;

/// Largest number of lines or bars in a chart that remain distinguishable.
const LINES: usize = 8;

/// Largest number of batch sizes that fit on an axis.
const MARKS: usize = 8;

const ACROSS: &str = "batch size per rank";

const LINES_NOTE: &str = "A line is the median of the runs; a small circle is one run. The batch-size axis is \
    logarithmic. The speed axis is logarithmic if its values span a factor of more than four; otherwise it starts \
    at 0, as the memory axis does.";

const BARS_NOTE: &str = "A bar is the median of the runs; a small circle is one run, in the order of the runs.";

/// One line, with the name of its result if there are several.
pub struct ChartLine<'a> {
    /// Name of its result.
    pub result: Option<String>,
    /// Style of the line.
    pub style: Style,
    /// Measured points.
    pub series: &'a BatchSeries,
}

/// Quantity that a chart shows for each point.
struct Quantity {
    title: &'static str,
    /// `None` for the unit of speed.
    unit: Option<&'static str>,
    value: fn(&BatchFigures) -> Option<f64>,
    /// Speeds of single runs; empty if all runs have the same value.
    runs: fn(&BatchFigures) -> &[(u32, f64)],
    text: fn(f64, WorkUnit) -> String,
    is_doubtful: fn(&BatchPoint) -> bool,
    /// Ratio of the largest to the smallest value from which the axis is logarithmic.
    wide: f64,
}

const SPEED: Quantity = Quantity {
    title: "Speed by batch size",
    unit: None,
    value: |figures| Some(figures.speed.0),
    runs: |figures| &figures.runs,
    text: |speed, unit| format!("{} {}", four_digits(speed), unit.per_second()),
    is_doubtful: |point| point.is_doubtful,
    wide: 4.0,
};

/// Memory of the fullest rank; independent of warnings about its speed.
const MEMORY: Quantity = Quantity {
    title: "Peak memory by batch size",
    unit: Some("GB"),
    value: |figures| Some(figures.peak_memory?.gigabytes()),
    runs: |_| &[],
    text: |memory, _| format!("{} GB", three_digits(memory)),
    is_doubtful: |_| false,
    wide: f64::INFINITY,
};

impl Quantity {
    fn unit_of(&self, lines: &[&ChartLine]) -> &'static str {
        self.unit.unwrap_or_else(|| lines.first().map(|line| line.series.model.unit()).unwrap_or_default().per_second())
    }
}

/// Returns a note on how to read the charts, and a row of charts: speed, then memory if records contain it.
pub fn charts(lines: &[ChartLine], device: Option<DeviceKind>) -> (&'static str, Vec<Vec<Chart>>) {
    let measured: Vec<&ChartLine> = lines.iter().filter(|line| line.series.measured().next().is_some()).collect();
    if measured.is_empty() {
        return ("", Vec::new());
    }
    let are_bars = measured.iter().all(|line| line.series.measured().count() <= FEW);
    let parts = parts(&measured);
    let row = |quantity: &Quantity| {
        let chart = |(part, lines): &(String, Vec<&ChartLine>)| {
            let title = format!("{}{part}", quantity.title);
            if are_bars { bars(title, lines, quantity, device) } else { self::lines(title, lines, quantity, device) }
        };
        parts.iter().map(chart).collect::<Vec<_>>()
    };
    let has_memory = measured.iter().any(|line| line.series.measured().any(|(_, it)| it.peak_memory.is_some()));
    let memory = if has_memory { row(&MEMORY) } else { Vec::new() };
    let rows = match parts.len() {
        1 => vec![row(&SPEED).into_iter().chain(memory).collect()],
        _ => vec![row(&SPEED), memory],
    };
    (
        if are_bars { BARS_NOTE } else { LINES_NOTE },
        rows.into_iter().filter(|row: &Vec<Chart>| !row.is_empty()).collect(),
    )
}

/// Splits lines into charts, each with a suffix for its title: a single chart if all lines fit, otherwise
/// separate charts for each precision.
fn parts<'a, 'b>(lines: &[&'b ChartLine<'a>]) -> Vec<(String, Vec<&'b ChartLine<'a>>)> {
    if lines.len() <= LINES {
        return vec![(String::new(), lines.to_vec())];
    }
    let mut by_precision: Vec<&ChartLine> = lines.to_vec();
    by_precision.sort_by_key(|line| line.series.dtype);
    let of_precision = by_precision.chunk_by(|one, other| one.series.dtype == other.series.dtype);
    let parts = of_precision.flat_map(|lines| {
        let several = lines.len() > LINES;
        lines.chunks(LINES).enumerate().map(move |(number, lines)| {
            let number = if several { format!(" ({})", number + 1) } else { String::new() };
            (format!(", {}{number}", lines[0].series.dtype), lines.to_vec())
        })
    });
    parts.collect()
}

/// Returns names that distinguish the lines of a chart.
fn names(lines: &[&ChartLine]) -> Vec<String> {
    let has_several = |differs: &dyn Fn(&BatchSeries) -> bool| lines.iter().any(|line| differs(line.series));
    let first = lines[0].series;
    let has_dtypes = has_several(&|series| series.dtype != first.dtype);
    let has_models = has_several(&|series| title(series) != title(first));
    let name = |line: &&ChartLine| {
        let model = (has_models || !has_dtypes && line.result.is_none()).then(|| title(line.series));
        let parts =
            line.result.clone().into_iter().chain(model).chain(has_dtypes.then(|| line.series.dtype.to_string()));
        parts.collect::<Vec<_>>().join(", ")
    };
    lines.iter().map(name).collect()
}

fn title(series: &BatchSeries) -> String {
    let length = series.sequence_length.map(|tokens| format!(", {tokens} tokens")).unwrap_or_default();
    series.model.facts().title.to_owned() + &length
}

/// Returns the text of a tooltip.
fn tip(line: &ChartLine, point: &BatchPoint, quantity: &Quantity, value: f64, what: &str) -> String {
    let BatchSeries { dtype, case, .. } = line.series;
    let result = line.result.as_ref().map(|result| format!("{result}, ")).unwrap_or_default();
    let doubt = if (quantity.is_doubtful)(point) { ", unreliable" } else { "" };
    let (model, text, size) = (title(line.series), (quantity.text)(value, line.series.model.unit()), point.batch_size);
    format!("{result}{model}, {dtype}, {case}, batch size {size}{what}: {text}{doubt}")
}

fn tip_of_all(line: &ChartLine, point: &BatchPoint, figures: &BatchFigures, quantity: &Quantity, value: f64) -> String {
    let runs = (quantity.runs)(figures);
    let what = match runs.len() {
        0 => String::new(),
        number => format!(", median of {}", count(number, "run")),
    };
    tip(line, point, quantity, value, &what)
}

fn lines(title: String, lines: &[&ChartLine], quantity: &Quantity, device: Option<DeviceKind>) -> Chart {
    let line = |(line, name): (&&ChartLine, String)| {
        let at = |point: &BatchPoint, y: f64, tip: String| ChartPoint {
            x: f64::from(point.batch_size),
            y,
            tip,
            is_doubtful: (quantity.is_doubtful)(point),
        };
        let of_all = |(point, figures): (&BatchPoint, &BatchFigures)| {
            let value = (quantity.value)(figures)?;
            Some(at(point, value, tip_of_all(line, point, figures, quantity, value)))
        };
        let of_runs =
            line.series.measured().filter(|(_, figures)| figures.runs.len() > 1).flat_map(|(point, figures)| {
                let run = move |(run, speed): &(u32, f64)| {
                    at(point, *speed, tip(line, point, quantity, *speed, &format!(", run {run}")))
                };
                (quantity.runs)(figures).iter().map(run)
            });
        LineSeries {
            name,
            style: line.style,
            points: line.series.measured().filter_map(of_all).collect(),
            dots: of_runs.collect(),
            ideal: Vec::new(),
            is_reference: false,
        }
    };
    let series: Vec<LineSeries> = lines.iter().zip(names(lines)).map(line).collect();
    let values = extent(series.iter().flat_map(|series| &series.points).map(|point| point.y));
    let is_wide = values.is_some_and(|[low, high]| high > quantity.wide * low);
    let kind = if is_wide { ScaleKind::Logarithmic } else { ScaleKind::Linear };
    let x = Axis { marks: marks(lines), ..Axis::new(across(device), ScaleKind::Logarithmic) };
    Chart::Lines(LineChart::new(title, x, Axis::new(quantity.unit_of(lines), kind), series))
}

fn across(device: Option<DeviceKind>) -> String {
    if device == Some(DeviceKind::Cpu) { ACROSS.to_owned() } else { ACROSS.replace("rank", "GPU") }
}

/// Returns axis marks for some of the batch sizes.
fn marks(lines: &[&ChartLine]) -> Vec<(f64, String, String)> {
    let sizes = batch_sizes(lines.iter().map(|line| line.series)).into_iter().map(f64::from).collect::<Vec<_>>();
    far_apart(&sizes, MARKS).into_iter().map(|size| (size, size.to_string(), String::new())).collect()
}

fn bars(title: String, lines: &[&ChartLine], quantity: &Quantity, device: Option<DeviceKind>) -> Chart {
    let sizes = batch_sizes(lines.iter().map(|line| line.series));
    let series = lines.iter().zip(names(lines)).map(|(line, name)| {
        let bar = |(point, figures): (&BatchPoint, &BatchFigures)| {
            let value = (quantity.value)(figures)?;
            let run = |(run, speed): &(u32, f64)| (*speed, tip(line, point, quantity, *speed, &format!(", run {run}")));
            Some(Bar {
                case: sizes.iter().position(|size| *size == point.batch_size)?,
                value,
                ideal: None,
                runs: (quantity.runs)(figures).iter().map(run).collect(),
                tip: tip_of_all(line, point, figures, quantity, value),
                is_doubtful: (quantity.is_doubtful)(point),
            })
        };
        let bars = line.series.measured().filter_map(bar).collect();
        BarSeries { name, style: line.style, bars, is_reference: false }
    });
    let series: Vec<BarSeries> = series.collect();
    let tips = series.iter().flat_map(|series| series.bars.iter().map(|bar| bar.tip.clone()));
    Chart::Bars(BarChart {
        title,
        description: tips.collect::<Vec<_>>().join("; "),
        axis: quantity.unit_of(lines).to_owned(),
        end: None,
        across: across(device),
        cases: sizes.iter().map(|size| (size.to_string(), String::new())).collect(),
        series,
        ideal_name: "",
    })
}
