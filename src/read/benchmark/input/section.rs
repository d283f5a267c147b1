//! Section of the report on reading and decoding: images/s by number of decode threads, with lines for the demand of a
//! host's devices in every training case of the report.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::benchmark::input::lines::{COLUMNS, ceilings, rows};
use ringmark_core::benchmark::input::{InputRecord, PageCache};
use ringmark_core::number_text::{four_digits, thousands};
use ringmark_core::validity::disturbance;

use crate::output::table::{Column, Row, Style, Table};
use crate::read::analyze::results::{FolderRecords, ResultFolder};
use crate::read::benchmark::input::demand::{Demand, all_demands};
use crate::read::benchmark::input::verdict::{CoresNeeded, FromDisk, FromMemory, Verdict, verdict};
use crate::read::show::numbers::{count, marked};
use crate::read::show::page::charts::Chart;
use crate::read::show::page::charts::lines::{Axis, ChartPoint, LineChart, LineSeries, far_apart};
use crate::read::show::page::charts::scale::ScaleKind;
use crate::read::show::page::document::{Block, Figure, Headline, Section, Subject};

const NOTE: &str = "Batches are read, decoded and augmented by the loader of training and discarded; no network or \
    device is used. Training needs additional cores.";

const READING: &str = "A line is one host with its files in memory or on disk only; a gray line is the demand of the \
    devices of one host.";

const DEMAND: &str = "The demand of a host is its training rate with synthetic images, compared with the slowest host \
    here. If training read images from files, the demand of a device is the rate of the case with the fewest devices.";

/// Largest number of thread counts that fit on an axis.
const MARKS: usize = 8;

/// Columns that a narrow table omits.
const MINOR: [&str; 5] = ["MB/s", "read", "decode", "augment", "collate"];

/// Returns the section; `None` if there are no input runs.
pub fn section(results: &[ResultFolder], _: bool) -> Option<Section> {
    let demands = all_demands(results);
    let several = results.iter().filter(|result| result.records_of::<InputRecord>().is_some()).count() > 1;
    let of_result = |(number, result): (usize, &ResultFolder)| {
        let record = result.records_of::<InputRecord>()?;
        let title = |what: &str| if several { format!("{what}: {}", result.name) } else { what.to_owned() };
        let load = disturbance(record);
        let speed = Block {
            reading: READING.to_owned(),
            charts: vec![vec![chart(record, number, &demands)]],
            table: Some(table(record)),
            lines: ceilings(record, load.is_some()).into_iter().chain(load.map(|load| load.legend())).collect(),
            ..Block::new(title("Images/s by decode threads"), setting(record))
        };
        let needs =
            Block { table: Some(needs(record, &demands)), ..Block::new(title("Demand of the devices"), DEMAND) };
        Some(std::iter::once(speed).chain((!demands.is_empty()).then_some(needs)))
    };
    let blocks: Vec<Block> = results.iter().enumerate().filter_map(of_result).flatten().collect();
    (!blocks.is_empty()).then(|| Section {
        subject: Subject::Records(BenchmarkKind::Input),
        title: "Reading and decoding".to_owned(),
        note: NOTE.to_owned(),
        blocks,
    })
}

/// Returns the headline of a result that contains only input runs: the speed of its slowest host.
pub fn headline(number: usize, result: &ResultFolder) -> Option<Headline> {
    let record = result.records_of::<InputRecord>()?;
    let is_disturbed = disturbance(record).is_some();
    let lowest = |rates: &dyn Fn(usize) -> Option<(f64, u32)>| {
        let all = (0..record.ranks.len()).filter_map(|rank| Some((rates(rank)?, &record.ranks[rank].host)));
        all.min_by(|((one, _), _), ((other, _), _)| one.total_cmp(other))
    };
    let figure = |label: &str, rates: &dyn Fn(usize) -> Option<(f64, u32)>| {
        let ((speed, threads), host) = lowest(rates)?;
        let which = if record.ranks.len() > 1 { format!("slowest host {host}, ") } else { String::new() };
        Some(Figure {
            label: label.to_owned(),
            value: four_digits(speed),
            unit: "images/s".to_owned(),
            note: format!("{which}with {}", count(threads as usize, "thread")),
            parts: Vec::new(),
            is_doubtful: is_disturbed,
        })
    };
    let ceiling = |cache: PageCache| move |rank: usize| record.ceiling(rank, cache).map(|it| (it.speed.0, it.threads));
    let of_a_core = |rank: usize| record.busiest(rank).map(|(it, speed)| (speed.0, it.threads));
    let figures = [
        figure("From memory", &ceiling(PageCache::Warm)),
        figure("Per core", &of_a_core),
        figure("From the disk", &ceiling(PageCache::Cold)),
    ];
    let (trust, reasons) = record.assessment().trust(result.problems.len());
    let hosts = count(record.ranks.len(), "host");
    Some(Headline {
        style: Style { color: number, shape: 0 },
        name: result.name.clone(),
        what: format!("Reading and decoding, {hosts}: {}", record.what),
        trust: Some(trust),
        reasons,
        conclusion: None,
        figures: figures.into_iter().flatten().collect(),
    })
}

/// Returns a text on the images and their processing.
fn setting(record: &InputRecord) -> String {
    let InputRecord { config, what, items, augmentation, decoder, stored, .. } = record;
    let stored = stored.map(|stored| {
        format!(", {:.1} kB and {:.0} px shorter edge on average", stored.bytes / 1e3, stored.shorter_edge)
    });
    format!(
        "{} images of {what}{}; batches of {}, {} px, augmentation {augmentation}{}.",
        thousands(*items as f64, ','),
        stored.unwrap_or_default(),
        config.batch_size,
        config.image_size(),
        decoder.as_ref().map_or_else(String::new, |decoder| format!(", JPEG by {decoder}"))
    )
}

fn chart(record: &InputRecord, number: usize, demands: &[Demand]) -> Chart {
    let threads: BTreeSet<u32> = record.passes.iter().map(|pass| pass.threads).collect();
    let threads: Vec<f64> = threads.into_iter().map(f64::from).collect();
    let mut series: Vec<LineSeries> = Vec::new();
    let is_disturbed = disturbance(record).is_some();
    let doubt = if is_disturbed { ", unreliable" } else { "" };
    for (rank, place) in record.ranks.iter().enumerate() {
        for (kind, (cache, what)) in [(PageCache::Warm, "memory"), (PageCache::Cold, "disk")].into_iter().enumerate() {
            let point = |(threads, speed): (u32, f64)| ChartPoint {
                x: f64::from(threads),
                y: speed,
                tip: format!("{}, from {what}, {threads} threads: {speed:.1} images/s{doubt}", place.host),
                is_doubtful: is_disturbed,
            };
            let points: Vec<ChartPoint> =
                record.passes_of(rank, cache).map(|ceiling| point((ceiling.threads, ceiling.speed.0))).collect();
            if !points.is_empty() {
                let name = if record.ranks.len() > 1 { format!("{}, {what}", place.host) } else { what.to_owned() };
                series.push(LineSeries {
                    name,
                    style: Style { color: number + rank, shape: kind },
                    points,
                    dots: Vec::new(),
                    ideal: Vec::new(),
                    is_reference: false,
                });
            }
        }
    }
    series.extend(needed(record, demands).into_iter().map(|(name, speed)| {
        let ends = [threads.first(), threads.last()].into_iter().flatten();
        let tip = format!("{name} {} images/s", thousands(speed, ','));
        let points = ends.map(|x| ChartPoint { x: *x, y: speed, tip: tip.clone(), is_doubtful: false });
        LineSeries {
            name,
            style: Style { color: number, shape: 0 },
            points: points.collect(),
            dots: Vec::new(),
            ideal: Vec::new(),
            is_reference: true,
        }
    }));
    let marks = far_apart(&threads, MARKS).into_iter();
    let x = Axis {
        marks: marks.map(|threads| (threads, threads.to_string(), String::new())).collect(),
        ..Axis::new("decode threads", ScaleKind::Logarithmic)
    };
    Chart::Lines(LineChart::new("Images/s per host", x, Axis::new("images/s", ScaleKind::Linear), series))
}

/// Returns the largest demand of hosts by number of devices: `8 GPUs need`, images/s. Only for images of the same size.
fn needed(record: &InputRecord, demands: &[Demand]) -> Vec<(String, f64)> {
    let mut most: BTreeMap<u32, &Demand> = BTreeMap::new();
    for demand in demands.iter().filter(|demand| demand.image_size == record.config.image_size()) {
        let known = most.entry(demand.devices).or_insert(demand);
        if demand.speed > known.speed {
            *known = demand;
        }
    }
    most.into_values().map(|demand| (demand.subject(), demand.speed.0)).collect()
}

fn table(record: &InputRecord) -> Table {
    let column = |(name, unit): (&'static str, &'static str)| {
        let is_text = matches!(name, "host" | "cache");
        Column { name: name.to_owned(), unit: unit.to_owned(), is_text, is_minor: MINOR.contains(&name) }
    };
    let speed = COLUMNS.iter().position(|(name, _)| *name == "images/s");
    let is_doubtful = disturbance(record).is_some();
    let row = |cells: [String; 11]| Row {
        bar: speed.and_then(|speed| cells[speed].trim_matches(['(', ')']).parse().ok()),
        cells: cells.into(),
        is_doubtful,
        ..Row::default()
    };
    Table {
        columns: COLUMNS.map(column).into(),
        rows: rows(record, is_doubtful).map(row).collect(),
        bars: Some("images/s"),
    }
}

fn needs(record: &InputRecord, demands: &[Demand]) -> Table {
    let columns = vec![
        Column::text("case"),
        Column::numbers("need", "images/s"),
        Column::numbers("from memory", "images/s"),
        Column::text("verdict"),
        Column::numbers("from disk", "images/s"),
        Column::text("disk verdict"),
    ];
    let is_doubtful = disturbance(record).is_some();
    let speed = |speed: f64| marked(thousands(speed, ','), is_doubtful);
    let row = |demand: &Demand| {
        let own = [demand.label.clone(), thousands(demand.speed.0, ',')];
        let none = || "-".to_owned();
        let (of_memory, of_disk, is_short) = match verdict(record, demand) {
            Err(why) => ([none(), why], [none(), String::new()], false),
            Ok(Verdict { memory, disk }) => {
                let is_short = memory.as_ref().is_some_and(|it| matches!(it.cores_needed, CoresNeeded::More { .. }));
                let of_memory = |it: FromMemory| [speed(it.ceiling.0), it.judgment(demand)];
                let of_disk = |it: FromDisk| [speed(it.ceiling.0), it.judgment(demand)];
                let nothing = || [none(), String::new()];
                (memory.map_or_else(nothing, of_memory), disk.map_or_else(nothing, of_disk), is_short)
            }
        };
        let cells = own.into_iter().chain(of_memory).chain(of_disk).collect();
        Row { cells, is_marked: is_short, is_doubtful, ..Row::default() }
    };
    Table { columns, rows: demands.iter().map(row).collect(), bars: None }
}
