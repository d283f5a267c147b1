//! Speed and memory by batch size, for training with several batch sizes and for scoring: one block per case, with a
//! line and a table row for each network and precision.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_core::dimension::{Case, DeviceKind, Model};
use serde_json::Value;

use crate::output::table::Style;
use crate::read::analyze::assessment::Assessment;
use crate::read::analyze::batch_sizes::{self, BatchSeries, BatchTable};
use crate::read::analyze::published::{Workload, by_batch_size};
use crate::read::analyze::results::ResultFolder;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::score;
use crate::read::analyze::settings;
use crate::read::analyze::training;
use crate::read::analyze::training::figures::TrainingGroup;
use crate::read::show;
use crate::read::show::batch_sizes::{ExtraRows, Line, table};
use crate::read::show::page::content::batch_size_charts::{self, ChartLine};
use crate::read::show::page::content::published_rates;
use crate::read::show::page::content::series::device_title;
use crate::read::show::page::document::{Block, Section, Subject};

const NOTE: &str = "Speed of all ranks, median over runs. CV is the standard deviation of the runs divided by \
    their mean; peak GB is the largest memory use of a rank (tensors on a GPU, resident memory on a CPU). Runs of a \
    figure with ! have warnings; figures in parentheses are unreliable.";

/// Series of one result with equal conditions.
pub struct PageTable<'a> {
    pub result: usize,
    /// Name of the result, with the settings that distinguish it from other tables of the result.
    pub name: String,
    pub workload: Workload,
    pub table: BatchTable,
    pub assessment: Assessment,
    /// Training groups in the table; empty for scoring.
    pub groups: Vec<&'a TrainingGroup>,
    /// Description of the passes; empty for training, where each group has its own.
    how: String,
}

impl PageTable<'_> {
    /// Returns devices and image size: `AMD EPYC, 1 thread per rank; 224 pixels`.
    pub fn conditions(&self) -> String {
        let devices = if self.table.devices.is_empty() { "no records next to the logs" } else { &self.table.devices };
        let how = Some(self.how.clone()).filter(|how| !how.is_empty()).or_else(|| self.table.pixels());
        how.map_or_else(|| devices.to_owned(), |how| format!("{devices}; {how}"))
    }

    /// Returns true if a group has several cases; then the report starts with its scaling.
    pub fn is_scaling(&self) -> bool {
        self.groups.iter().any(|group| group.cases.iter().filter(|case| case.figures.is_some()).count() > 1)
    }
}

/// Returns the tables of all results, training first.
pub fn tables(results: &[ResultFolder]) -> Vec<PageTable<'_>> {
    let numbered = || results.iter().enumerate();
    let training = numbered().flat_map(|(number, result)| {
        training::batch_sizes::tables(result.training(), &result.shortages).into_iter().map(move |(table, groups)| {
            PageTable {
                result: number,
                name: result.name.clone(),
                workload: Workload::Training,
                table,
                assessment: Assessment::merge(groups.iter().map(|group| group.assessment())),
                groups,
                how: String::new(),
            }
        })
    });
    let scoring = numbered().flat_map(|(number, result)| {
        let tables = score::batch_sizes::tables(result.scoring(), &result.shortages);
        result.scoring().iter().zip(tables).map(move |(table, by_size)| PageTable {
            result: number,
            name: result.name.clone(),
            workload: Workload::Inference,
            table: by_size,
            assessment: table.assessment(),
            groups: Vec::new(),
            how: show::score::text::how(table),
        })
    });
    let mut tables: Vec<PageTable> = training.chain(scoring).collect();
    let labels = labels(&tables);
    tables.iter_mut().zip(labels).for_each(|(table, label)| table.name.push_str(&label));
    tables
}

/// Returns what distinguishes each table from others of its result: ` (fold=off)`, ` (quick)`, or nothing.
fn labels(tables: &[PageTable]) -> Vec<String> {
    let label = |own: &PageTable| {
        let is_other = |other: &&PageTable| (other.result, other.workload) == (own.result, own.workload);
        let settings: Vec<&BTreeMap<String, Value>> =
            tables.iter().filter(is_other).map(|other| &other.table.settings).collect();
        let differing = settings::differing(&own.table.settings, &settings);
        let words = differing.into_iter().chain(own.table.is_quick.then(|| "quick".to_owned()));
        let words = words.collect::<Vec<_>>().join(", ");
        if words.is_empty() { words } else { format!(" ({words})") }
    };
    tables.iter().map(label).collect()
}

/// Returns a section for each kind of device and image size; `published` adds published rates of the same
/// networks.
pub fn sections(workload: Workload, tables: &[PageTable], published: bool) -> Vec<Section> {
    let key = |table: &PageTable| {
        (table.table.device.map(|device| device.to_string()), table.table.unit(), table.table.image_size)
    };
    let of_kind = || tables.iter().filter(|table| table.workload == workload);
    let keys: BTreeSet<_> = of_kind().map(key).collect();
    keys.into_iter()
        .map(|wanted| section(workload, &of_kind().filter(|it| key(it) == wanted).collect::<Vec<_>>(), published))
        .collect()
}

/// Returns the title of sections of figures by batch size.
pub fn title(workload: Workload) -> &'static str {
    match workload {
        Workload::Training => "Training by batch size",
        Workload::Inference => "Inference",
    }
}

fn section(workload: Workload, tables: &[&PageTable], published: bool) -> Section {
    let BatchTable { device, image_size, .. } = tables[0].table;
    let pixels = image_size.map(|size| format!(", {size} pixels")).unwrap_or_default();
    let several = tables.len() > 1;
    let conditions = tables.iter().map(|table| match several {
        true => format!("{}: {}", table.name, table.conditions()),
        false => table.conditions(),
    });
    let series = || tables.iter().flat_map(|table| &table.table.series);
    let cases: BTreeSet<(u32, Case)> = series().map(|series| (series.case.ranks(), series.case)).collect();
    let mut blocks: Vec<Block> = cases.into_iter().map(|(_, case)| block(tables, case, device)).collect();
    // Only the first block explains how to read the charts and the table.
    for block in blocks.iter_mut().skip(1) {
        (block.note, block.reading) = (String::new(), String::new());
    }
    let shortages: Vec<String> =
        tables.iter().flat_map(|table| &table.table.shortages).map(|shortage| format!(" {shortage}.")).collect();
    if let Some(first) = blocks.first_mut() {
        first.note.push_str(&shortages.concat());
    }
    if published {
        let named =
            tables.iter().flat_map(|table| table.table.series.iter().map(|series| (table.name.as_str(), series)));
        match (published_rates::block(workload, &named.collect::<Vec<_>>()), blocks.last_mut()) {
            (Some(block), _) => blocks.push(block),
            (None, Some(last)) => last.remark = format!("{}.", by_batch_size::none_published(workload)),
            (None, None) => {}
        }
    }
    Section {
        subject: Subject::BatchSizes,
        title: format!("{}{pixels}, {}", title(workload), device_title(device)),
        note: conditions.collect::<Vec<_>>().join("; "),
        blocks,
    }
}

fn block(tables: &[&PageTable], case: Case, device: Option<DeviceKind>) -> Block {
    let of_case = tables.iter().flat_map(|table| table.table.series.iter().map(move |series| (*table, series)));
    let lines: Vec<(&PageTable, &BatchSeries)> = of_case.filter(|(_, series)| series.case == case).collect();
    let styles = styles(&lines);
    let name = |table: &PageTable| (tables.len() > 1).then(|| table.name.clone());
    let in_charts = lines.iter().zip(&styles).map(|((table, series), style)| ChartLine {
        result: name(table),
        style: *style,
        series,
    });
    let (reading, charts) = batch_size_charts::charts(&in_charts.collect::<Vec<_>>(), device);
    let in_table = lines.iter().zip(&styles);
    let in_table: Vec<Line> =
        in_table.map(|((table, series), style)| Line { result: name(table), series, style: Some(*style) }).collect();
    let batch_sizes = batch_sizes::batch_sizes(in_table.iter().map(|line| line.series));
    Block {
        charts,
        reading: reading.to_owned(),
        // An em space, because pages and Markdown collapse ordinary spaces.
        table: Some(table(&in_table, &batch_sizes, ExtraRows::SpreadAndMemory, "\u{2003}")),
        ..Block::new(format!("Speed by batch size, {case}"), NOTE)
    }
}

/// Returns the style of each line. Colors distinguish results; within a single result they distinguish networks, and
/// shapes distinguish precisions.
fn styles(lines: &[(&PageTable, &BatchSeries)]) -> Vec<Style> {
    let place = |models: &BTreeSet<Model>, model: Model| models.iter().position(|known| *known == model).unwrap_or(0);
    let models: BTreeSet<Model> = lines.iter().map(|(_, series)| series.model).collect();
    let dtypes: BTreeSet<_> = lines.iter().map(|(_, series)| series.dtype).collect();
    let is_one_result = lines.iter().all(|(table, _)| table.result == lines[0].0.result);
    let is_one_table = is_one_result && lines.iter().all(|(table, _)| table.name == lines[0].0.name);
    let style = |(number, (table, series)): (usize, &(&PageTable, &BatchSeries))| {
        let own = place(&models, series.model);
        let precision = dtypes.iter().position(|known| *known == series.dtype).unwrap_or(0);
        match (is_one_table, is_one_result) {
            (true, _) if dtypes.len() > 1 => Style { color: own, shape: precision },
            (true, _) => Style { color: own, shape: own },
            (false, true) => Style { color: number, shape: number },
            (false, false) => Style { color: table.result, shape: number },
        }
    };
    lines.iter().enumerate().map(style).collect()
}
