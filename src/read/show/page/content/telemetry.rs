//! Clocks, temperature, power and network traffic during the iterations. All charts have the same horizontal axis, so
//! that a slow phase can be compared with, for example, a drop of the clock.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_core::host::telemetry::{Series, throttle_reasons};
use ringmark_core::host::{Quantity, Telemetry};
use ringmark_core::number_text::count;

use crate::output::table::{Column, Row, Style, Table};
use crate::read::analyze::training::figures::TrainingCase;
use crate::read::load::run::Measured;
use crate::read::show::numbers::list;
use crate::read::show::page::charts::Chart;
use crate::read::show::page::charts::lines::{Axis, ChartPoint, LineChart, LineSeries, Shade};
use crate::read::show::page::charts::scale::{ScaleKind, extent};
use crate::read::show::page::content::series::{PageSeries, Setting};
use crate::read::show::page::document::Block;

const NOTE: &str = "One reading per second on every host during the run. A point is the mean over some iterations, \
    including warm-up. For several devices of a host, the chart shows the lowest clock, the highest temperature, the \
    total power and the total bytes sent by network cards, and the mean utilization.";

/// Maximum number of hosts that are all shown: more fit neither into a drawing nor on the page.
const MOST_HOSTS: usize = 64;

/// Number of hosts shown if there are more.
const HOSTS_SHOWN: usize = 16;

/// Maximum number of points per line.
const POINTS: usize = 32;

#[derive(Clone, Copy)]
enum Aggregation {
    Lowest,
    Highest,
    Sum,
    Mean,
}

/// A chart: title, unit, quantity, aggregation over devices, and factor from the quantity's unit.
type ChartSpec = (&'static str, &'static str, Quantity, Aggregation, f64);

const CHARTS: [ChartSpec; 6] = [
    ("Clock", "MHz", Quantity::Clock, Aggregation::Lowest, 1.0),
    ("Temperature", "\u{b0}C", Quantity::Temperature, Aggregation::Highest, 1.0),
    ("Power", "W", Quantity::Power, Aggregation::Sum, 1.0),
    ("Utilization", "%", Quantity::Utilization, Aggregation::Mean, 100.0),
    ("Sent over the network", "MB/s", Quantity::Sent, Aggregation::Sum, 1e-6),
    ("Retransmits", "segments/s", Quantity::Retransmissions, Aggregation::Sum, 1.0),
];

/// Columns of the table that its title names, with the name.
const QUANTITIES: [(&str, &str); 5] = [
    ("clock", "clock"),
    ("hottest", "temperature"),
    ("power", "power"),
    ("utilization", "utilization"),
    ("sent", "network traffic"),
];

/// Returns a block for each series: the slowest run of its largest case with readings.
pub fn blocks(setting: &Setting) -> Vec<Block> {
    setting.series.iter().filter_map(|series| block(setting, series)).collect()
}

fn block(setting: &Setting, series: &PageSeries) -> Option<Block> {
    let cases = series.group.cases.iter().rev();
    let (case, run, measured) = cases.filter_map(|case| slowest(case).map(|(run, it)| (case, run, it))).next()?;
    let mut hosts: Vec<(&str, &Telemetry)> =
        measured.host_use.iter().filter_map(|host| Some((host.host.as_str(), host.telemetry.as_ref()?))).collect();
    let number = hosts.len();
    if number > MOST_HOSTS {
        let slowest = slowest_hosts(measured);
        hosts.retain(|(host, _)| slowest.contains(host));
    }
    let left_out = if number > hosts.len() {
        format!(" {} of {number} hosts are shown, those with the slowest ranks.", hosts.len())
    } else {
        String::new()
    };
    let what = setting.named(series, format!("{}, run {run}", case.case));
    let which = if case.counted().count() > 1 { " (slowest run)" } else { "" };
    let charts: Vec<Chart> = [iterations(measured)]
        .into_iter()
        .chain(CHARTS.iter().map(|spec| chart(&hosts, measured.figures.timed, *spec)))
        .flatten()
        .map(Chart::Lines)
        .collect();
    let missing: BTreeSet<&str> = hosts.iter().flat_map(|(_, read)| &read.missing).map(String::as_str).collect();
    let missing = missing.into_iter().map(|what| format!(" Not read: {what}.")).collect::<String>();
    let table = table(&hosts, measured);
    let is_shown = |column: &str| table.columns.iter().any(|shown| shown.name == column);
    let read = QUANTITIES.into_iter().filter(|(column, _)| is_shown(column)).map(|(_, name)| name.to_owned());
    let title = [format!("Telemetry of {what}{which}"), list(&read.collect::<Vec<_>>())];
    let title = title.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ");
    Some(Block {
        charts: charts.chunks(2).map(<[Chart]>::to_vec).collect(),
        table: Some(table),
        reading: format!("{NOTE}{left_out}{missing}"),
        ..Block::new(title, "")
    })
}

/// Returns the hosts to show if there are many: those with the longest compute time of any rank.
fn slowest_hosts(measured: &Measured) -> BTreeSet<&str> {
    let mut hosts: BTreeMap<&str, f64> = BTreeMap::new();
    for rank in &measured.figures.ranks {
        let own = rank.own_compute.map_or(rank.times.compute().0, |own| own.middle);
        let longest = hosts.entry(&rank.place.host).or_default();
        *longest = longest.max(own);
    }
    let mut hosts: Vec<(&str, f64)> = hosts.into_iter().collect();
    hosts.sort_by(|one, other| other.1.total_cmp(&one.1));
    hosts.into_iter().take(HOSTS_SHOWN).map(|(host, _)| host).collect()
}

fn slowest(case: &TrainingCase) -> Option<(u32, &Measured)> {
    let runs = case.runs.iter().filter_map(|run| Some((run.found.name.run, run.outcome.as_ref().ok()?)));
    let read = runs.filter(|(_, run)| run.host_use.iter().any(|host| has_readings(host.telemetry.as_ref())));
    read.min_by(|one, other| one.1.speed.0.total_cmp(&other.1.speed.0))
}

/// Returns true if there are at least two readings: a single one shows no change.
fn has_readings(telemetry: Option<&Telemetry>) -> bool {
    telemetry.is_some_and(|read| read.at.len() > 1)
}

/// Averages over ranges of iterations; returns the last iteration and the mean of each range.
fn binned(values: impl Iterator<Item = (f64, f64)>, iterations: usize) -> Vec<(f64, f64)> {
    let size = iterations.div_ceil(POINTS).max(1) as f64;
    let mut bins: Vec<(f64, f64, f64)> = Vec::new();
    for (iteration, value) in values {
        let end = ((iteration / size).ceil() * size).clamp(size, (iterations as f64).max(size));
        match bins.last_mut() {
            Some((last, sum, count)) if *last == end => (*sum, *count) = (*sum + value, *count + 1.0),
            _ => bins.push((end, value, 1.0)),
        }
    }
    bins.into_iter().map(|(end, sum, count)| (end, sum / count)).collect()
}

fn line(name: &str, number: usize, values: Vec<(f64, f64)>, unit: &str) -> LineSeries {
    let point = |(x, y): (f64, f64)| {
        let tip = format!("{name}, up to iteration {x:.0}: {y:.1} {unit}");
        ChartPoint { x, y, tip, is_doubtful: false }
    };
    LineSeries {
        name: name.to_owned(),
        style: Style { color: number, shape: number },
        points: values.into_iter().map(point).collect(),
        dots: Vec::new(),
        ideal: Vec::new(),
        is_reference: false,
    }
}

fn lines(title: &str, unit: &str, series: Vec<LineSeries>) -> Option<LineChart> {
    let series: Vec<LineSeries> = series.into_iter().filter(|line| !line.points.is_empty()).collect();
    let [x, y] = ["iteration", unit].map(|name| Axis::new(name, ScaleKind::Linear));
    let values = series.iter().flat_map(|line| &line.points).map(|point| point.y);
    let y_ends = ends(unit, extent(values).unwrap_or_default());
    let chart = LineChart { y_ends, ..LineChart::new(title, x, y, series) };
    (!chart.series.is_empty()).then_some(chart)
}

/// Returns the ends of the vertical axis: of percentages 0 and 100, of others a range of at least a tenth of the highest
/// value. A narrower one would show noise as a change.
fn ends(unit: &str, [low, high]: [f64; 2]) -> [Option<f64>; 2] {
    let narrow = 0.9 * high;
    if unit == "%" { [Some(0.0), Some(100.0)] } else { [Some(narrow).filter(|narrow| low > *narrow), None] }
}

/// Returns the times of the iterations. The axis ends at the longest measured time, and cuts off warm-up.
fn iterations(measured: &Measured) -> Option<LineChart> {
    let (timed, warmup) = (measured.figures.timed, measured.figures.warmup);
    let times = measured.figures.iteration_times().into_iter().enumerate();
    let times: Vec<(f64, f64)> = times.map(|(index, time)| ((index + 1) as f64, 1e3 * time.0)).collect();
    let mut line = line("all ranks", 0, binned(times.iter().copied(), timed), "ms");
    let counted = binned(times.iter().skip(warmup).copied(), timed);
    let longest = counted.into_iter().map(|(_, time)| time).reduce(f64::max).unwrap_or(f64::INFINITY);
    line.points.iter_mut().for_each(|point| point.y = point.y.min(longest));
    let shade = Shade { ends: [0.0, warmup as f64], tip: format!("warm-up: {}", count(warmup, "iteration")) };
    Some(LineChart {
        shades: vec![shade].into_iter().filter(|_| warmup > 0).collect(),
        shade_name: "warm-up, cut off at the longest measured time",
        ..lines("Time of an iteration", "ms", vec![line])?
    })
}

/// Returns `None` if no host has readings of the quantity, or if it is constant.
fn chart(hosts: &[(&str, &Telemetry)], iterations: usize, spec: ChartSpec) -> Option<LineChart> {
    let (title, unit, quantity, aggregation, factor) = spec;
    let of_host = |(number, (host, read)): (usize, &(&str, &Telemetry))| {
        let series: Vec<&Series> = read.series_of(quantity).filter(|series| is_drawn(series, read)).collect();
        let at = |index: usize| {
            let values = series.iter().filter_map(|series| series.values.get(index).copied().flatten());
            let value = aggregate(values.map(|value| limited(quantity, value)), aggregation)?;
            Some((f64::from(read.iteration[index]).max(1.0), factor * value))
        };
        line(host, number, binned((0..read.at.len()).filter_map(at), iterations), unit)
    };
    let series: Vec<LineSeries> = hosts.iter().enumerate().map(of_host).collect();
    let mut values = series.iter().flat_map(|line| &line.points).map(|point| point.y);
    // The table contains constant values.
    let first = values.next()?;
    values.any(|value| value != first).then(|| lines(title, unit, series))?
}

/// Limits utilization to 1: older records read the clock after the CPU time, so that their ratio may exceed 1.
fn limited(quantity: Quantity, value: f64) -> f64 {
    if quantity == Quantity::Utilization { value.min(1.0) } else { value }
}

/// Returns true if the readings belong in a chart: not traffic between GPUs, nor clock and utilization of cores if
/// there are GPUs.
fn is_drawn(series: &Series, read: &Telemetry) -> bool {
    let has_gpus = read.series.iter().any(|other| other.quantity == series.quantity && other.is_of_gpu());
    match series.quantity {
        Quantity::Sent => !series.is_of_gpu(),
        Quantity::Clock | Quantity::Utilization => series.is_of_gpu() || !has_gpus,
        _ => true,
    }
}

fn aggregate(values: impl Iterator<Item = f64>, aggregation: Aggregation) -> Option<f64> {
    let all: Vec<f64> = values.collect();
    let sum: f64 = all.iter().sum();
    let value = match aggregation {
        Aggregation::Lowest => all.iter().copied().fold(f64::INFINITY, f64::min),
        Aggregation::Highest => all.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        Aggregation::Sum => sum,
        Aggregation::Mean => sum / all.len() as f64,
    };
    (!all.is_empty()).then_some(value)
}

/// Returns a row for each device of a host that has any of these readings.
fn table(hosts: &[(&str, &Telemetry)], measured: &Measured) -> Table {
    let columns = vec![
        Column::text("host"),
        Column::text("device"),
        Column::numbers("clock", "MHz"),
        Column::numbers("lowest", "MHz"),
        Column::numbers("hottest", "\u{b0}C"),
        Column::numbers("power", "W"),
        Column::numbers("utilization", "%"),
        Column::numbers("sent", "MB/s"),
        Column::numbers("received", "MB/s"),
        Column::text("throttled by"),
    ];
    let warmup = measured.figures.iterations().map_or(0, |[_, warmup]| warmup as u32);
    let of_host = |(host, read): &(&str, &Telemetry)| {
        let shown = [Quantity::Clock, Quantity::Temperature, Quantity::Power, Quantity::Utilization, Quantity::Sent];
        let devices = shown.iter().flat_map(|quantity| read.series_of(*quantity)).map(|series| series.of.as_str());
        let devices: BTreeSet<&str> = devices.collect();
        let row = |device: &str| {
            let mean = |quantity: Quantity| {
                let mean = read.mean_sum(quantity, warmup, |series| series.of == device)?;
                Some(limited(quantity, mean))
            };
            let counted = || {
                let values = |quantity: Quantity| read.series_of(quantity).find(|series| series.of == device);
                move |quantity: Quantity| -> Vec<f64> {
                    let counted = read.counted(warmup).into_iter();
                    counted.filter_map(|index| values(quantity)?.values.get(index).copied().flatten()).collect()
                }
            };
            let extreme =
                |quantity: Quantity, aggregation: Aggregation| aggregate(counted()(quantity).into_iter(), aggregation);
            let bits = counted()(Quantity::ThrottleReasons).iter().fold(0, |all, bits| all | *bits as u64);
            let number = |value: Option<f64>, factor: f64| {
                value.map_or_else(|| "-".to_owned(), |value| format!("{:.0}", factor * value))
            };
            let cells = vec![
                (*host).to_owned(),
                device.to_owned(),
                number(mean(Quantity::Clock), 1.0),
                number(extreme(Quantity::Clock, Aggregation::Lowest), 1.0),
                number(extreme(Quantity::Temperature, Aggregation::Highest), 1.0),
                number(mean(Quantity::Power), 1.0),
                number(mean(Quantity::Utilization), 100.0),
                number(mean(Quantity::Sent), 1e-6),
                number(mean(Quantity::Received), 1e-6),
                throttle_reasons(bits).join(", "),
            ];
            Row { cells, ..Row::default() }
        };
        devices.into_iter().map(row).collect::<Vec<_>>()
    };
    without_empty_columns(Table { columns, rows: hosts.iter().flat_map(of_host).collect(), bars: None })
}

/// Removes the columns in which no row has a value.
fn without_empty_columns(mut table: Table) -> Table {
    let is_filled = |index: usize| {
        let cells = table.rows.iter().filter_map(|row| row.cells.get(index));
        cells.into_iter().any(|cell| !["", "-"].contains(&cell.as_str()))
    };
    let filled: Vec<bool> = (0..table.columns.len()).map(is_filled).collect();
    let mut keep = filled.iter().copied();
    table.columns.retain(|_| keep.next().unwrap_or(true));
    for row in &mut table.rows {
        let mut keep = filled.iter().copied();
        row.cells.retain(|_| keep.next().unwrap_or(true));
    }
    table
}

#[cfg(test)]
mod tests {
    use ringmark_core::dimension::Seconds;

    use super::*;

    #[test]
    fn long_lines_are_averaged_into_few_points() {
        let values = (1..=640).map(|iteration| (f64::from(iteration), f64::from(iteration)));
        let bins = binned(values, 640);
        assert_eq!((bins.len(), bins[0], bins[31]), (POINTS, (20.0, 10.5), (640.0, 630.5)));
        assert_eq!(binned([(1.0, 5.0), (3.0, 7.0)].into_iter(), 3), [(1.0, 5.0), (3.0, 7.0)]);
        assert_eq!(binned(std::iter::empty(), 0), []);
    }

    #[test]
    fn utilization_is_capped_at_100_percent() {
        let values = vec![None, Some(0.61), Some(1.65), Some(1.35)];
        let series = Series { quantity: Quantity::Utilization, of: "cores".to_owned(), values };
        let read = Telemetry {
            at: (0..4).map(|at| Seconds(f64::from(at))).collect(),
            iteration: vec![0, 1, 2, 3],
            series: vec![series],
            ..Telemetry::default()
        };
        let utilization = CHARTS.iter().find(|spec| spec.2 == Quantity::Utilization).expect("it is drawn");
        let chart = chart(&[("a", &read)], 3, *utilization).expect("it changes");
        let shown: Vec<f64> = chart.series[0].points.iter().map(|point| point.y).collect();
        assert_eq!(shown, [61.0, 100.0, 100.0]);
    }

    #[test]
    fn axes_are_wide_and_columns_have_values() {
        assert_eq!(ends("%", [99.7, 100.0]), [Some(0.0), Some(100.0)]);
        assert_eq!(ends("MHz", [2590.0, 2600.0]), [Some(2340.0), None]);
        assert_eq!(ends("W", [100.0, 400.0]), [None, None]);
        let cells = |cells: [&str; 3]| Row { cells: cells.map(str::to_owned).to_vec(), ..Row::default() };
        let columns = ["host", "hottest", "power"].map(|name| Column::numbers(name, "")).to_vec();
        let table = Table { columns, rows: vec![cells(["a", "-", "5"]), cells(["b", "", "-"])], bars: None };
        let table = without_empty_columns(table);
        assert_eq!(table.columns.len(), 2);
        assert_eq!(table.rows.iter().map(|row| row.cells.join(" ")).collect::<Vec<_>>(), ["a 5", "b -"]);
    }

    #[test]
    fn devices_are_aggregated_by_quantity() {
        let all = [Aggregation::Lowest, Aggregation::Highest, Aggregation::Sum, Aggregation::Mean];
        assert_eq!(
            all.map(|aggregation| aggregate([2.0, 4.0].into_iter(), aggregation)),
            [2.0, 4.0, 6.0, 3.0].map(Some)
        );
        assert_eq!(aggregate(std::iter::empty(), Aggregation::Sum), None);
    }
}
