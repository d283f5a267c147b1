//! Images/s as on MXNet's performance pages: a row for each network, a column for each batch size.

use std::collections::BTreeSet;

use ringmark_core::benchmark::measured_and_warmup;
use ringmark_core::number_text;

use crate::read::analyze::batch_sizes::BatchTable;
use crate::read::analyze::extraction::Extraction;
use crate::read::analyze::reliability;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::score::batch_sizes;
use crate::read::analyze::score::figures::{PointKey, ScorePoint, ScoreTable};
use crate::read::load::record::devices_text;
use crate::read::load::score::ScoreConditions;
use crate::read::show::batch_sizes::{ExtraRows, tables};
use crate::read::show::extraction::text::left_out;
use crate::read::show::numbers::{doubtful_legend, mark_legend};
use crate::read::show::text::{self, Medium, Paragraph};

const LEGEND: [&str; 3] = [
    "images/s: ranks x batch size x passes / time of the slowest rank; median over runs.",
    "With one rank it equals the figure of benchmark_score.py.",
    "CV: standard deviation / mean of the runs' speeds. -: no counted run.",
];

/// Returns a section for each table, the `published` ones, then the omitted runs.
pub fn text(extraction: &Extraction<ScoreTable>, published: Vec<Paragraph>, medium: Medium) -> String {
    let by_size = batch_sizes::tables(&extraction.groups, &extraction.shortages);
    let section = |(table, by_size): (&ScoreTable, BatchTable)| {
        let unreliable = reliability::sentences(&table.all_reliability_warnings());
        let other = table.points.iter().flat_map(ScorePoint::other_warnings);
        let warnings = [unreliable, table.warnings.iter().cloned().chain(other).collect()];
        text::section(medium, title(table), tables(&by_size, ExtraRows::Spread, medium), warnings)
    };
    let mut text = vec![Paragraph::Title(extraction.name.clone())];
    text.extend(extraction.groups.iter().zip(by_size).flat_map(section));
    text.extend(published);
    text.push(Paragraph::Legend(legend(extraction, medium)));
    text.extend(left_out(&extraction.problems, medium));
    text::render(&text, medium)
}

fn legend(extraction: &Extraction<ScoreTable>, medium: Medium) -> [Vec<String>; 2] {
    let is_marked = extraction.groups.iter().flat_map(|table| &table.points).any(|point| !point.warnings.is_empty());
    let is_doubtful = extraction.groups.iter().any(|table| !table.all_reliability_warnings().is_empty());
    let marks = is_marked.then(|| mark_legend(&format!("the lines that begin with {}", medium.warning())));
    let doubtful = is_doubtful.then(|| doubtful_legend("the warnings above"));
    [LEGEND.map(str::to_owned).into(), marks.into_iter().chain(doubtful).collect()]
}

/// Returns a description of the table: benchmark, devices, options and number of runs.
fn title(table: &ScoreTable) -> Vec<String> {
    let quick = if table.is_quick() { " - QUICK PROFILE" } else { "" };
    // Values shared by all rows have no column.
    let dtype = shared(table, |key| key.dtype).map(|dtype| format!(", {dtype}"));
    let case = shared(table, |key| key.case).map(|case| format!(", {case}"));
    let fixed = dtype.into_iter().chain(case).collect::<String>();
    let what = format!("Inference{fixed}: images/s by network and batch size per rank{quick}");
    let counts: BTreeSet<usize> =
        table.points.iter().map(|point| point.counted().count()).filter(|count| *count > 0).collect();
    let runs = match (counts.first(), counts.last()) {
        (Some(least), Some(most)) if least == most => format!("{} per figure", number_text::count(*least, "run")),
        (Some(least), Some(most)) => format!("{least} to {most} runs per figure"),
        _ => "no run counts".to_owned(),
    };
    let Some(conditions) = &table.conditions else {
        return vec![what, "device unknown: no records next to the logs".to_owned(), runs];
    };
    let devices = devices_text(&table.device_names(), &table.threads(), Some(conditions.device));
    vec![what, format!("{}: {devices}", conditions.device), format!("{}, {runs}", how(table))]
}

/// Describes the passes: `224 pixels, nhwc, folded, 10 measured + 5 warm-up passes`.
pub fn how(table: &ScoreTable) -> String {
    let options = table.conditions.as_ref().map(|ScoreConditions { config, .. }| {
        let passes = measured_and_warmup(config.iterations, config.warmup);
        format!(", {}, {passes} passes", config.arrangement())
    });
    batch_sizes::table(table).pixels() + &options.unwrap_or_default()
}

/// Returns the value that all points share, or `None` if they differ.
fn shared<T: Ord>(table: &ScoreTable, of: impl Fn(&PointKey) -> T) -> Option<T> {
    let mut values: BTreeSet<T> = table.points.iter().map(|point| of(&point.key())).collect();
    if values.len() == 1 { values.pop_first() } else { None }
}
