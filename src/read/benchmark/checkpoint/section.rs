//! Section of the report on checkpoints: rates, stall and restore time of each combination, for every case.

use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::benchmark::checkpoint::figures::Direction;
use ringmark_core::benchmark::checkpoint::lines::{COLUMNS, is_text, rows, warm_reads};
use ringmark_core::benchmark::checkpoint::{CheckpointRecord, CheckpointResult, Combination};
use ringmark_core::dimension::Case;
use ringmark_core::number_text::three_digits;
use ringmark_core::stats::run_values::RunValues;
use ringmark_core::validity::disturbance;

use crate::output::table::{Column, Row, Style, Table};
use crate::read::analyze::results::{FolderRecords, ResultFolder};
use crate::read::benchmark::checkpoint::CheckpointRecords;
use crate::read::show::page::document::{Block, Figure, Headline, Section, Subject};

const NOTE: &str = "All ranks start a checkpoint together. A rate is bytes / time of the slowest writer, fsync included; \
    medians over checkpoints, with the 95 % margin of the mean. Files are dropped from the page cache before they are read.";

/// Columns that a narrow table omits, with their explanations.
const MINOR: [(&str, &str); 4] = [
    ("written", "written: bytes of all writers."),
    ("per host", "per host: the median of the hosts."),
    ("per writer", "per writer: the median of the writers."),
    ("slower", "slower: increase of the time of a matrix product during the write."),
];

const STALL: &str = "stall: time for which computation stands still: all of the write (blocking), or the copy and the slowdown \
    of matrix products (beside).";

/// Returns the section; `None` if there are no checkpoint runs.
pub fn section(results: &[ResultFolder], _: bool) -> Option<Section> {
    let of_result = |result: &ResultFolder| -> Vec<Block> {
        let records = result.records_of::<CheckpointRecords>().into_iter().flat_map(|records| &records.0);
        let name = if results.len() > 1 { format!("{}, ", result.name) } else { String::new() };
        records.map(|(case, record)| block(&format!("{name}{case}"), record)).collect()
    };
    let blocks: Vec<Block> = results.iter().flat_map(of_result).collect();
    (!blocks.is_empty()).then(|| Section {
        subject: Subject::Records(BenchmarkKind::Checkpoint),
        title: "Checkpoints".to_owned(),
        note: NOTE.to_owned(),
        blocks,
    })
}

fn block(title: &str, record: &CheckpointRecord) -> Block {
    let load = disturbance(record);
    let is_doubtful = load.is_some();
    let column = |(name, unit): (&'static str, &'static str)| Column {
        name: name.to_owned(),
        unit: unit.to_owned(),
        is_text: is_text(name),
        is_minor: MINOR.iter().any(|(minor, _)| *minor == name),
    };
    let row = |(cells, result): ([String; COLUMNS.len()], &CheckpointResult)| Row {
        cells: cells.into(),
        bar: result.total_rate(Direction::Write).and_then(|rates| rates.median()),
        is_doubtful,
        ..Row::default()
    };
    let table = Table {
        columns: COLUMNS.map(column).into(),
        rows: rows(record, is_doubtful).zip(&record.results).map(row).collect(),
        bars: Some("write"),
    };
    Block {
        column_notes: MINOR.map(|(column, note)| (column, note.to_owned())).into(),
        table: Some(table),
        lines: warm_reads(record).chain(load.map(|load| load.legend())).collect(),
        ..Block::new(title, format!("{} {STALL}", setting(record)))
    }
}

/// Returns a text on the checkpoint and the storage.
fn setting(record: &CheckpointRecord) -> String {
    let CheckpointRecord { config, bytes, storage, .. } = record;
    let mut kinds: Vec<String> = storage.iter().map(|it| format!("{} of {}", it.file_system, it.source)).collect();
    kinds.dedup();
    format!(
        "{} GB ({}) in {} ({}).",
        three_digits(bytes.gigabytes()),
        config.content(),
        config.folder.display(),
        kinds.join(", ")
    )
}

/// Returns the headline of a result with only checkpoint runs: its largest case.
pub fn headline(number: usize, result: &ResultFolder) -> Option<Headline> {
    let records = result.records_of::<CheckpointRecords>()?;
    let (case, record) = records.0.last()?;
    let is_disturbed = disturbance(record).is_some();
    let best = |label: &str, unit: &str, is_rate: bool, value: &dyn Fn(&CheckpointResult) -> Option<RunValues>| {
        let all = record.results.iter().filter_map(|result| Some((value(result)?.median()?, result.combination)));
        let by_value = |(one, _): &(f64, Combination), (other, _): &(f64, Combination)| one.total_cmp(other);
        let (value, combination) = if is_rate { all.max_by(by_value) } else { all.min_by(by_value) }?;
        Some(Figure {
            label: label.to_owned(),
            value: three_digits(value),
            unit: unit.to_owned(),
            note: combination.to_string(),
            parts: Vec::new(),
            is_doubtful: is_disturbed,
        })
    };
    let cold = |result: &CheckpointResult| if result.is_cold() { result.restore() } else { None };
    let figures = [
        best("Fastest write", "GB/s", true, &|result| result.total_rate(Direction::Write)),
        best("Shortest stall", "s", false, &CheckpointResult::stall),
        best("Fastest restore", "s", false, &cold),
    ];
    let (trust, reasons) = records.assessment().trust(result.problems.len());
    Some(Headline {
        style: Style { color: number, shape: 0 },
        name: result.name.clone(),
        what: format!("{}: {}", title(*case), setting(record)),
        trust: Some(trust),
        reasons,
        conclusion: None,
        figures: figures.into_iter().flatten().collect(),
    })
}

fn title(case: Case) -> String {
    format!("Checkpoints, {case}")
}
