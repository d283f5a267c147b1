//! Section of the report on bandwidth runs: bus bandwidth and time by message size, for all-reduce, other operations
//! and the exchange of gradients by a strategy.

use std::collections::BTreeSet;

use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::benchmark::bandwidth::config::Messages;
use ringmark_core::benchmark::bandwidth::figures::{best_busbw, largest_busbw};
use ringmark_core::benchmark::bandwidth::{BandwidthRecord, MessageResult, SideFigures, Timing};
use ringmark_core::dimension::{Bytes, Case, DeviceKind, GigabytesPerSecond, Model, Operands, Seconds, Strategy};
use ringmark_core::number_text::{binary_size, count, four_digits};
use ringmark_core::stats::busbw::{Bus, busbw};
use ringmark_core::stats::summary::percentile;
use ringmark_core::validity::disturbance;

use crate::output::table::{Column, Row, Style, Table};
use crate::read::analyze::published::exchange::{PublishedExchange, SAMPLES, SOURCE};
use crate::read::analyze::results::{FolderRecords, ResultFolder};
use crate::read::benchmark::bandwidth::load::BandwidthResult;
use crate::read::show::numbers::{marked, percent_number};
use crate::read::show::page::charts::Chart;
use crate::read::show::page::charts::lines::{Axis, ChartPoint, LineChart, LineSeries, Shade, far_apart};
use crate::read::show::page::charts::scale::ScaleKind;
use crate::read::show::page::document::{Block, Figure, Headline, Section, Subject};

/// Largest number of sizes that fit on an axis.
const MARKS: usize = 7;

/// Reason for shading sizes.
const IN_CACHE: &str = "in cache: above the memory limit";

const READING: &str = "Shaded sizes exceed the memory bandwidth of the host: the array fits in the caches, so the \
    figure measures neither memory nor network.";

/// Returns a note on how the bus bandwidth is computed.
fn note(bus: Bus) -> String {
    format!(
        "Bus bandwidth is size / time{}, for the mean time over ranks and iterations, as in nccl-tests; in a ring, it \
         is the speed of the links. Latency dominates small messages: compare their times.",
        bus.formula()
    )
}

/// Measured operation; for a strategy other than `all-reduce`, its exchange of gradients, which is not an all-reduce.
#[derive(Debug, Clone, Copy, PartialEq)]
struct MeasuredOperation {
    operands: Operands,
    strategy: Strategy,
}

impl MeasuredOperation {
    fn from_record(record: &BandwidthRecord) -> MeasuredOperation {
        MeasuredOperation { operands: record.config.operands(), strategy: record.config.strategy.strategy }
    }

    fn text(self) -> String {
        if self.strategy.is_all_reduce() { self.operands.text() } else { format!("strategy {}", self.strategy) }
    }
}

/// One line: a case of a result, in place or out of place.
struct Line<'a> {
    name: String,
    style: Style,
    record: &'a BandwidthRecord,
    side: &'static str,
    is_doubtful: bool,
    /// Messages by size.
    messages: Vec<(&'a MessageResult, &'a Timing, SideFigures)>,
}

impl Line<'_> {
    /// Returns true if the bus bandwidth at this size exceeds the memory limit.
    fn is_in_cache(&self, size: Bytes) -> bool {
        let limit = self.record.memory.as_ref().map(|memory| memory.busbw.0).filter(|limit| *limit > 0.0);
        let mut of_size = self.messages.iter().filter(|(message, ..)| message.bytes == size);
        limit.is_some_and(|limit| of_size.any(|(.., figures)| figures.busbw.0 > limit))
    }
}

/// Returns the section; `None` if there is no bandwidth run. `published` adds what MXNet published of the same networks.
pub fn section(results: &[ResultFolder], published: bool) -> Option<Section> {
    let runs = || {
        results.iter().enumerate().flat_map(|(number, result)| {
            let cases = result.records_of::<BandwidthResult>().into_iter().flat_map(|records| &records.cases);
            cases.map(move |(case, record)| (number, result, *case, record))
        })
    };
    runs().next()?;
    let mut blocks = Vec::new();
    // In order of first appearance, which is the order of the operations.
    let mut all: Vec<MeasuredOperation> = Vec::new();
    for (.., record) in runs() {
        if !all.contains(&MeasuredOperation::from_record(record)) {
            all.push(MeasuredOperation::from_record(record));
        }
    }
    let of_devices = [DeviceKind::Cpu, DeviceKind::Cuda].into_iter();
    for (device, exchanged) in of_devices.flat_map(|device| all.iter().map(move |exchanged| (device, *exchanged))) {
        let mut lines: Vec<Line> = Vec::new();
        let is_of = |record: &BandwidthRecord| {
            device_of(record) == device && MeasuredOperation::from_record(record) == exchanged
        };
        for (number, result, case, record) in runs().filter(|(.., record)| is_of(record)) {
            let case_name = match record.config.strategy.server_ranks() {
                0 => case.to_string(),
                servers => format!("{case}, {}", count(servers, "server")),
            };
            let name = if results.len() > 1 { format!("{}, {case_name}", result.name) } else { case_name };
            lines.extend(sides(number, &name, record));
        }
        for (index, line) in lines.iter_mut().enumerate() {
            line.style.shape = index;
        }
        // A single result does not need a color of its own, so each of its lines gets one.
        if results.len() == 1 {
            lines.iter_mut().enumerate().for_each(|(index, line)| line.style.color = index);
        }
        if !lines.is_empty() {
            blocks.push(block(device, exchanged, &lines));
        }
    }
    if published {
        blocks.extend(published_exchange(runs().map(|(.., record)| record)));
    }
    let note = runs().filter_map(|(_, result, case, record)| limit(result, case, record)).collect::<Vec<_>>().join(" ");
    let title = match &all[..] {
        [one] if one.strategy.is_all_reduce() => format!("{} bandwidth", one.operands.operation.title()),
        all if all.iter().all(|one| one.strategy.is_all_reduce()) => "Bandwidth of collective operations".to_owned(),
        [one] => format!("Exchange bandwidth of {}", one.text()),
        _ => "Exchange bandwidth".to_owned(),
    };
    Some(Section { subject: Subject::Records(BenchmarkKind::Bandwidth), title, note, blocks })
}

/// Returns the headline of a result with only bandwidth runs: its largest case.
pub fn headline(number: usize, result: &ResultFolder) -> Option<Headline> {
    let records = result.records_of::<BandwidthResult>()?;
    let cases = &records.cases;
    let (largest_case, _) = cases.last()?;
    // The first operation, which is all-reduce if it was measured.
    let (case, record) = cases.iter().find(|(case, _)| case == largest_case)?;
    let assessment = records.assessment();
    let (trust, reasons) = assessment.trust(result.problems.len());
    let is_doubtful = !assessment.is_reliable();
    let figure = |label: &str, (size, rate): (Bytes, GigabytesPerSecond)| Figure {
        label: label.to_owned(),
        value: four_digits(rate.0),
        unit: "GB/s".to_owned(),
        note: format!("bus bandwidth of {} on {case}", binary_size(size)),
        parts: Vec::new(),
        is_doubtful,
    };
    let best = best_busbw(&record.results, record.bus()).map(|best| figure("Fastest message", best));
    let largest = largest_busbw(&record.results, record.bus()).map(|largest| figure("Largest message", largest));
    let devices: BTreeSet<&str> = record.ranks.iter().map(|rank| rank.device_name.as_str()).collect();
    let devices = devices.into_iter().collect::<Vec<_>>().join(" / ");
    let what = match record.config.strategy.strategy {
        Strategy::AllReduce => record.config.operation.title().to_owned(),
        strategy => format!("strategy {strategy}"),
    };
    Some(Headline {
        style: Style { color: number, shape: 0 },
        name: result.name.clone(),
        what: format!("{what}, backend {}: {devices}", record.backend),
        trust: Some(trust),
        reasons,
        conclusion: None,
        figures: best.into_iter().chain(largest).collect(),
    })
}

/// Returns MXNet's samples of the networks whose gradients were exchanged; `None` if it published none.
fn published_exchange<'a>(records: impl Iterator<Item = &'a BandwidthRecord>) -> Option<Block> {
    let models: BTreeSet<Model> = records.filter_map(|record| record.config.messages.model()).collect();
    let columns = vec![
        Column::text("network"),
        Column::text("strategy"),
        Column::numbers("GPUs", ""),
        Column::numbers("servers", ""),
        Column::text("optimizer"),
        Column::numbers("lowest", "GB/s per GPU"),
        Column::numbers("median", "GB/s per GPU"),
        Column::numbers("highest", "GB/s per GPU"),
    ];
    let row = |sample: &PublishedExchange| {
        let rates = sample.rates.map(|rate| rate.0);
        let ends = [0.0, 50.0, 100.0].map(|percent| percentile(&rates, percent).unwrap_or_default());
        let strategy = sample.strategy.to_string();
        let fixed = [sample.model.facts().title.to_owned(), strategy, sample.gpus.to_string()];
        let fixed = fixed.into_iter().chain([sample.servers.to_string(), sample.optimizer.to_owned()]);
        Row { cells: fixed.chain(ends.map(|rate| format!("{rate:.2}"))).collect(), ..Row::default() }
    };
    let rows: Vec<Row> = SAMPLES.iter().filter(|sample| models.contains(&sample.model)).map(row).collect();
    let note = format!("GB/s by measure.py's formula over 5 iterations, not measured by ringmark: {SOURCE}.");
    let table = Table { columns, rows, bars: None };
    (!table.rows.is_empty()).then(|| Block { table: Some(table), ..Block::new("Published by MXNet", note) })
}

fn device_of(record: &BandwidthRecord) -> DeviceKind {
    record.ranks.first().map_or(DeviceKind::Cpu, |rank| rank.device)
}

fn sides<'a>(color: usize, name: &str, record: &'a BandwidthRecord) -> Vec<Line<'a>> {
    let is_doubtful = disturbance(record).is_some();
    let mut lines: Vec<Line> = Vec::new();
    for message in &record.results {
        for (side, timing) in message.sides() {
            let figures = timing.and_then(|timing| SideFigures::new(message.bytes, timing, record.bus()));
            let Some((timing, figures)) = timing.zip(figures) else { continue };
            match lines.iter_mut().find(|line| line.side == side) {
                Some(line) => line.messages.push((message, timing, figures)),
                None => lines.push(Line {
                    name: format!("{name}, {side}"),
                    style: Style { color, shape: 0 },
                    record,
                    side,
                    is_doubtful,
                    messages: vec![(message, timing, figures)],
                }),
            }
        }
    }
    lines
}

/// Returns a text on the memory limit of the host, if it was measured.
fn limit(result: &ResultFolder, case: Case, record: &BandwidthRecord) -> Option<String> {
    let memory = record.memory.as_ref()?;
    let place = if memory.is_in_cache { "last-level cache" } else { "memory" };
    Some(format!(
        "{}, {}: the host's {place} moves {:.1} GB/s and allows {:.1} GB/s of bus bandwidth.",
        result.name, case, memory.rate.0, memory.busbw.0
    ))
}

/// Returns the bus bandwidth in GB/s for a time in seconds.
fn rate(bus: Bus, bytes: Bytes, seconds: f64) -> f64 {
    busbw(bytes, Seconds(seconds), bus).0
}

fn block(device: DeviceKind, exchanged: MeasuredOperation, lines: &[Line]) -> Block {
    let points = |line: &Line, value: fn(Bus, Bytes, f64) -> f64, unit: &str| {
        let point = |(message, timing, figures): &(&MessageResult, &Timing, SideFigures)| {
            let of_time = |seconds: f64| value(line.record.bus(), message.bytes, seconds);
            let [p5, p95] = [percentile(&timing.pooled(), 5.0).unwrap_or(f64::NAN), figures.spread.p95.0].map(of_time);
            let (low, high) = (p5.min(p95), p5.max(p95));
            let y = of_time(figures.time.0);
            let doubt = if line.is_doubtful { ", unreliable" } else { "" };
            let tip = format!(
                "{}, {}: {y:.3} {unit}, 90 % of the samples {low:.3} to {high:.3}{doubt}",
                line.name,
                binary_size(message.bytes)
            );
            ChartPoint { x: message.bytes.0 as f64, y, tip, is_doubtful: line.is_doubtful }
        };
        line.messages.iter().map(point).collect()
    };
    let series = |line: &Line, value: fn(Bus, Bytes, f64) -> f64, unit: &str, limit: bool| LineSeries {
        name: line.name.clone(),
        style: line.style,
        points: points(line, value, unit),
        dots: Vec::new(),
        ideal: if limit { memory_line(line) } else { Vec::new() },
        is_reference: false,
    };
    let x = || Axis { marks: size_marks(lines), ..Axis::new("size of the array", ScaleKind::Logarithmic) };
    let chart = |title: &str, y: Axis, series: Vec<LineSeries>, shades: Vec<Shade>| {
        Chart::Lines(LineChart {
            ideal_name: "memory limit",
            shades,
            shade_name: IN_CACHE,
            are_named_at_their_ends: false,
            ..LineChart::new(title, x(), y, series)
        })
    };
    let rates = lines.iter().map(|line| series(line, rate, "GB/s", true)).collect();
    let times = lines.iter().map(|line| series(line, |_, _, seconds| seconds * 1e6, "\u{b5}s", false)).collect();
    let (shades, operation) = (in_cache(lines), exchanged.text());
    let reading = if shades.is_empty() { "" } else { READING };
    let charts = vec![
        chart(&format!("Bus bandwidth of {operation} by size"), Axis::new("GB/s", ScaleKind::Linear), rates, shades),
        chart(&format!("Time of {operation} by size"), Axis::new("\u{b5}s", ScaleKind::Logarithmic), times, Vec::new()),
    ];
    let title = format!("Bandwidth of {operation} on {}", if device == DeviceKind::Cpu { "CPUs" } else { "GPUs" });
    let bus = Bus { operation: exchanged.operands.operation, ranks: 0 };
    Block {
        charts: vec![charts],
        table: Some(table(lines)),
        reading: reading.to_owned(),
        ..Block::new(title, note(bus))
    }
}

/// Returns the sizes at which a line exceeds the memory limit of its host, as ranges that extend halfway to the
/// neighboring sizes. Empty if no limit was measured.
fn in_cache(lines: &[Line]) -> Vec<Shade> {
    let sizes = sizes(lines);
    let between = |one: Option<&u64>, size: u64| one.map(|one| (*one as f64 * size as f64).sqrt());
    let shade = |(index, size): (usize, &u64)| {
        let above = lines.iter().filter(|line| line.is_in_cache(Bytes(*size))).map(|line| line.name.as_str());
        let above: Vec<&str> = above.collect();
        let before = index.checked_sub(1).and_then(|before| sizes.get(before));
        (!above.is_empty()).then(|| Shade {
            ends: [
                between(before, *size).unwrap_or(0.0),
                between(sizes.get(index + 1), *size).unwrap_or(f64::INFINITY),
            ],
            tip: format!("{} is {IN_CACHE} ({})", binary_size(Bytes(*size)), above.join("; ")),
        })
    };
    sizes.iter().enumerate().filter_map(shade).collect()
}

/// Returns the memory limit as a line across the sizes of `line`.
fn memory_line(line: &Line) -> Vec<(f64, f64)> {
    let (Some(memory), Some(first), Some(last)) = (&line.record.memory, line.messages.first(), line.messages.last())
    else {
        return Vec::new();
    };
    let ends = if first.0.bytes.0 < last.0.bytes.0 { vec![first, last] } else { Vec::new() };
    ends.into_iter().map(|(message, ..)| (message.bytes.0 as f64, memory.busbw.0)).collect()
}

/// Returns all sizes in ascending order.
fn sizes(lines: &[Line]) -> Vec<u64> {
    let sizes: BTreeSet<u64> =
        lines.iter().flat_map(|line| &line.messages).map(|(message, ..)| message.bytes.0).collect();
    sizes.into_iter().collect()
}

/// Returns axis marks for some of the sizes.
fn size_marks(lines: &[Line]) -> Vec<(f64, String, String)> {
    let sizes: Vec<f64> = sizes(lines).into_iter().map(|size| size as f64).collect();
    let marks = far_apart(&sizes, MARKS).into_iter();
    marks.map(|size| (size, binary_size(Bytes(size as u64)), String::new())).collect()
}

fn table(lines: &[Line]) -> Table {
    let columns = vec![
        Column::text("case"),
        Column::numbers("size", ""),
        Column::text("type").minor(),
        Column::numbers("time", "\u{b5}s"),
        Column::numbers("p95", "\u{b5}s"),
        Column::numbers("busbw", "GB/s"),
        Column::numbers("of memory limit", "%").minor(),
        Column::numbers("wrong", ""),
    ];
    let rows = lines.iter().flat_map(|line| {
        line.messages.iter().map(move |(message, _, figures)| {
            let SideFigures { time, busbw, wrong, spread, .. } = figures;
            let limit = line.record.memory.as_ref();
            let share = limit.and_then(|limit| limit.share(message.bytes, *busbw));
            let is_wrong = wrong.is_some_and(|wrong| wrong > 0);
            let figure = |text: String| marked(text, line.is_doubtful);
            let cells = vec![
                line.name.clone(),
                match line.record.config.messages {
                    Messages::Sizes { .. } => binary_size(message.bytes),
                    Messages::Gradients(model) => format!("{model}, {}", binary_size(message.bytes)),
                },
                message.element.clone(),
                figure(format!("{:.2}", time.0 * 1e6)),
                figure(format!("{:.2}", spread.p95.0 * 1e6)),
                figure(format!("{:.3}", busbw.0)),
                match share {
                    Some(_) if line.is_in_cache(message.bytes) => "in cache".to_owned(),
                    share => share.map_or("-".to_owned(), |share| figure(percent_number(share))),
                },
                wrong.map_or("-".to_owned(), |wrong| wrong.to_string()),
            ];
            Row {
                cells,
                bar: Some(busbw.0),
                style: Some(line.style),
                is_marked: is_wrong,
                is_doubtful: line.is_doubtful,
            }
        })
    });
    Table { columns, rows: rows.collect(), bars: Some("busbw") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_units_of_the_command_line() {
        let sizes = [8, 1000, 4096, 1 << 20, 102_228_128, 1 << 30, 1 << 40];
        assert_eq!(
            sizes.map(|bytes| binary_size(Bytes(bytes))),
            ["8 B", "1000 B", "4 KiB", "1 MiB", "102.228 MB", "1 GiB", "1099511.628 MB"]
        );
    }
}
