//! Images/s for people, as MXNet's pages of performance have them: a row a network, a column a batch size.

use std::collections::BTreeSet;

use ringmark_record::benchmark::measured_and_warmup;

use crate::read::analyse::batch_sizes::BatchTable;
use crate::read::analyse::score::batch_sizes;
use crate::read::analyse::score::figures::{PointKey, ScoreExtraction, ScoreTable};
use crate::read::analyse::title::devices_text;
use crate::read::load::score_run::ScoreConditions;
use crate::read::show::batch_sizes::{Below, SIDE_BY_SIDE, tables};
use crate::read::show::sections::{self, Block, Section};

const LEGEND: [&str; 3] = [
    "images/s: ranks x batch size x passes / time of the slowest rank; median over",
    "runs. With one rank it is benchmark_score.py's. CV: standard deviation over",
    "runs / mean. -: no run, or none that counts.",
];

/// Every table as aligned columns, made for 80 of them, and the `published` ones below.
pub fn terminal(extraction: &ScoreExtraction, published: Vec<Section>) -> String {
    let sections: Vec<Section> = all(extraction, SIDE_BY_SIDE).into_iter().chain(published).collect();
    sections::terminal(&sections, &legend(extraction, "WARNING"))
}

/// Every table as a section, and the `published` ones, then what was left out.
pub fn markdown(extraction: &ScoreExtraction, published: Vec<Section>) -> String {
    let sections: Vec<Section> = all(extraction, usize::MAX).into_iter().chain(published).collect();
    sections::markdown(&extraction.name, &sections, &legend(extraction, "Warning"), &extraction.problems)
}

fn legend(extraction: &ScoreExtraction, word: &str) -> Vec<String> {
    let is_marked = extraction.tables.iter().flat_map(|table| &table.points).any(|point| !point.warnings.is_empty());
    let is_doubtful = extraction.tables.iter().any(|table| !table.all_reliability_warnings().is_empty());
    let marks = is_marked.then(|| sections::mark_legend(word)).into_iter();
    LEGEND
        .map(str::to_owned)
        .into_iter()
        .chain(marks)
        .chain(is_doubtful.then(|| sections::doubtful_legend("above")))
        .collect()
}

fn all(extraction: &ScoreExtraction, side_by_side: usize) -> Vec<Section> {
    let section = |(table, by_size): (&ScoreTable, BatchTable)| {
        let tables = tables(&by_size.series, &by_size.batch_sizes(), Below::Spread, side_by_side);
        Section {
            title: title(table),
            blocks: tables.into_iter().map(Block::first).chain(Block::of_shortages(&by_size.shortages)).collect(),
            reliability_warnings: table.all_reliability_warnings().iter().map(ToString::to_string).collect(),
            warnings: table.all_warnings().cloned().collect(),
        }
    };
    let by_size = batch_sizes::tables(&extraction.tables, &extraction.shortages);
    extraction.tables.iter().zip(by_size).map(section).collect()
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
    let devices = devices_text(&table.device_names(), &table.threads(), Some(conditions.device));
    vec![what, format!("{}: {devices}", conditions.device), format!("{}, {runs}", how(table))]
}

/// How its passes were made: `224 pixels, nhwc, folded, 10 measured + 5 warm-up passes`.
pub fn how(table: &ScoreTable) -> String {
    let options = table.conditions.as_ref().map(|ScoreConditions { config, .. }| {
        let passes = measured_and_warmup(config.iterations, config.warmup);
        format!(", {}, {passes} passes", config.arrangement())
    });
    batch_sizes::table(table).pixels() + &options.unwrap_or_default()
}

/// What all points share; `None` where they differ.
fn only<T: Ord>(table: &ScoreTable, of: impl Fn(&PointKey) -> T) -> Option<T> {
    let mut values: BTreeSet<T> = table.points.iter().map(|point| of(&point.key)).collect();
    if values.len() == 1 { values.pop_first() } else { None }
}
