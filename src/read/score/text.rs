//! Images/s for people, as MXNet's pages of performance have them: a row a network, a column a batch size.

use std::collections::BTreeSet;

use ringmark_record::benchmark::measured_and_warmup;

use crate::read::analyse::title::devices_text;
use crate::read::score::figures::{PointKey, ScoreExtraction, ScorePoint, ScoreTable};
use crate::read::show::columns::Columns;
use crate::read::show::sections::{self, Block, MARK, Section, marked};

const LEGEND: [&str; 3] = [
    "images/s: ranks x batch size x passes / time of the slowest rank; median over",
    "runs. With one rank it is benchmark_score.py's. CV: standard deviation over",
    "runs / mean. -: no run, or none that counts.",
];

/// Batch sizes that stand side by side in 80 columns; more of them are a second table.
const SIDE_BY_SIDE: usize = 6;

/// Every table as aligned columns, made for 80 of them.
pub fn terminal(extraction: &ScoreExtraction) -> String {
    sections::terminal(&all(extraction, SIDE_BY_SIDE), &legend(extraction, "WARNING"))
}

/// Every table as a section, then what was left out.
pub fn markdown(extraction: &ScoreExtraction) -> String {
    let legend = legend(extraction, "Warning");
    sections::markdown(&extraction.name, &all(extraction, usize::MAX), &legend, &extraction.problems)
}

fn legend(extraction: &ScoreExtraction, word: &str) -> Vec<String> {
    let is_marked = extraction.tables.iter().flat_map(|table| &table.points).any(|point| !point.warnings.is_empty());
    let is_doubtful = extraction.tables.iter().any(|table| !table.all_objections().is_empty());
    let marks = is_marked.then(|| sections::mark_legend(word)).into_iter();
    LEGEND
        .map(str::to_owned)
        .into_iter()
        .chain(marks)
        .chain(is_doubtful.then(|| sections::doubtful_legend("above")))
        .collect()
}

fn all(extraction: &ScoreExtraction, side_by_side: usize) -> Vec<Section> {
    let section = |table: &ScoreTable| {
        let batch_sizes: Vec<u32> =
            table.points.iter().map(|point| point.key.batch_size).collect::<BTreeSet<_>>().into_iter().collect();
        let of_points = table.points.iter().flat_map(|point| &point.warnings);
        Section {
            title: title(table),
            blocks: batch_sizes.chunks(side_by_side).map(|sizes| Block::first(columns(table, sizes))).collect(),
            objections: table.all_objections().iter().map(ToString::to_string).collect(),
            warnings: table.warnings.iter().chain(of_points).cloned().collect(),
        }
    };
    extraction.tables.iter().map(section).collect()
}

/// What was measured, on what, and how.
fn title(table: &ScoreTable) -> Vec<String> {
    let quick = if table.is_quick() { " - QUICK PROFILE" } else { "" };
    // What is the same in every row has no column.
    let dtype = only(table, |key| key.dtype).map(|dtype| format!(", {dtype}"));
    let case = only(table, |key| key.case).map(|case| format!(", {case}"));
    let fixed = dtype.into_iter().chain(case).collect::<String>();
    let what = format!("Inference{fixed}: images/s by network and batch size per rank{quick}");
    let counts: BTreeSet<usize> =
        table.points.iter().map(|point| point.counted().count()).filter(|count| *count > 0).collect();
    let runs = match (counts.first(), counts.last()) {
        (Some(1), Some(1)) => "1 run a figure".to_owned(),
        (Some(least), Some(most)) if least == most => format!("{least} runs a figure"),
        (Some(least), Some(most)) => format!("{least} to {most} runs a figure"),
        _ => "no run counts".to_owned(),
    };
    let Some(conditions) = &table.conditions else {
        return vec![what, "device unknown: there are no records beside the logs".to_owned(), runs];
    };
    let config = &conditions.config;
    let sizes: BTreeSet<u32> = table.points.iter().map(|point| conditions.image_size(point.key.model)).collect();
    let sizes = match (sizes.first(), sizes.last()) {
        (Some(least), Some(most)) if least != most => format!("{least} to {most} pixels, each network's own"),
        (Some(size), _) => format!("{size} pixels"),
        _ => "no images".to_owned(),
    };
    let options = format!(
        "{sizes}, {}, {} passes, {runs}",
        config.arrangement(),
        measured_and_warmup(config.iterations, config.warmup)
    );
    let devices = devices_text(&table.device_names(), &table.threads(), Some(conditions.device));
    vec![what, format!("{}: {devices}", conditions.device), options]
}

/// Precision and case are columns where there are several; CVs stand below the images/s where there are any.
fn columns(table: &ScoreTable, batch_sizes: &[u32]) -> Columns {
    let dtype = |key: &PointKey| only(table, |key| key.dtype).is_none().then(|| key.dtype.to_string());
    let case = |key: &PointKey| only(table, |key| key.case).is_none().then(|| key.case.to_string());
    let sizes: Vec<String> = batch_sizes.iter().map(u32::to_string).collect();
    let mut headers = vec![("network", "")];
    headers.extend(only(table, |key| key.dtype).is_none().then_some(("dtype", "")));
    headers.extend(only(table, |key| key.case).is_none().then_some(("case", "")));
    let text_columns = headers.len();
    headers.extend(sizes.iter().map(|size| (size.as_str(), "")));

    let mut rows = Vec::new();
    for row in table.points.chunk_by(|one, other| one.key.shares_row(&other.key)) {
        let key = &row[0].key;
        let point = |size: &u32| row.iter().find(|point| point.key.batch_size == *size);
        let cells = |cell: &dyn Fn(&ScorePoint) -> Option<String>| -> Vec<Option<String>> {
            batch_sizes.iter().map(|size| point(size).and_then(cell)).collect()
        };
        let name = [Some(key.model.facts().title.to_owned()), dtype(key), case(key)].into_iter().flatten();
        rows.push(name.chain(or_dash(cells(&|point| speed(table, point)))).collect());
        let cvs = cells(&cv);
        if cvs.iter().any(Option::is_some) {
            let name = ["  CV %"].into_iter().chain([""].into_iter().cycle()).take(text_columns);
            rows.push(name.map(str::to_owned).chain(or_dash(cvs)).collect());
        }
    }
    Columns::new(&headers, rows).with_text(0..text_columns)
}

/// What all points share; `None` where they differ.
fn only<T: Ord>(table: &ScoreTable, of: impl Fn(&PointKey) -> T) -> Option<T> {
    let mut values: BTreeSet<T> = table.points.iter().map(|point| of(&point.key)).collect();
    if values.len() == 1 { values.pop_first() } else { None }
}

fn or_dash(cells: Vec<Option<String>>) -> impl Iterator<Item = String> {
    cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".to_owned()))
}

fn speed(table: &ScoreTable, point: &ScorePoint) -> Option<String> {
    let mark = if point.warnings.is_empty() { "" } else { MARK };
    let is_doubtful = !(table.objections.is_empty() && point.objections.is_empty());
    Some(marked(format!("{:.2}{mark}", point.figures?.speed.0), is_doubtful))
}

fn cv(point: &ScorePoint) -> Option<String> {
    Some(format!("{:.2}", point.figures?.cv? * 100.0))
}
