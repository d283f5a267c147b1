//! Speeds as on MXNet's performance pages: a row for each network, a column for each batch size.

use std::collections::BTreeSet;

use ringmark_core::benchmark::measured_and_warmup;
use ringmark_core::number_text;

use crate::read::analyze::batch_sizes::BatchTable;
use crate::read::analyze::results::ResultFolder;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::score::batch_sizes;
use crate::read::analyze::score::figures::{CaseKey, ScoreGroup};
use crate::read::load::environment::devices_text;
use crate::read::load::score::ScoreConditions;
use crate::read::show::batch_sizes::{ExtraRows, ROW_LEGEND, tables};
use crate::read::show::numbers::{doubtful_legend, mark_legend};
use crate::read::show::text::{self, Medium, Paragraph, WIDTH};
use crate::read::show::training::text::left_out;

const LEGEND: [&str; 4] = [
    ROW_LEGEND,
    "speed: ranks x batch size x passes / time of the slowest rank; median over runs.",
    "With one rank it equals the figure of benchmark_score.py.",
    "CV: standard deviation / mean of the runs' speeds. -: no counted run.",
];

/// Returns a section for each table, the `published` ones, then the omitted runs.
pub fn text(result: &ResultFolder, published: Vec<Paragraph>, medium: Medium) -> String {
    let by_size = batch_sizes::tables(result.scoring(), &result.shortages);
    let section = |(group, by_size): (&ScoreGroup, BatchTable)| {
        text::section(
            medium,
            title(group),
            tables(&by_size, ExtraRows::Spread, medium),
            (group.assessment(), result.problems.len()),
        )
    };
    let mut text = vec![Paragraph::Title(result.name.clone())];
    text.extend(result.scoring().iter().zip(by_size).flat_map(section));
    text.extend(published);
    let marked = format!("the lines that begin with {}", medium.warning());
    text.push(Paragraph::Legend(legend(result, [&marked, "the warnings above"])));
    text.extend(left_out(&result.problems, medium));
    text::render(&text, medium)
}

/// Returns the speeds, for the end of a sweep.
pub fn summary(result: &ResultFolder) -> String {
    let medium = Medium::Terminal { width: WIDTH, is_explained: false };
    let by_size = batch_sizes::tables(result.scoring(), &result.shortages);
    let section = |(group, by_size): (&ScoreGroup, BatchTable)| {
        let heading = text::summary_heading(title(group), &group.assessment(), result.problems.len());
        std::iter::once(heading).chain(tables(&by_size, ExtraRows::Spread, medium))
    };
    let mut text: Vec<Paragraph> = result.scoring().iter().zip(by_size).flat_map(section).collect();
    let [_, signs] = legend(result, ["the warnings above, or those of `ringmark extract`", "the warnings above"]);
    text.push(text::unreliable(&result.assessment()));
    text.push(Paragraph::Lines(signs));
    text::render(&text, medium)
}

/// Returns the lines that explain columns, and those that explain signs in cells: of `marked` runs, then of `doubtful`
/// figures, both with the place of the warnings.
fn legend(result: &ResultFolder, [marked, doubtful]: [&str; 2]) -> [Vec<String>; 2] {
    let is_marked = result.scoring().iter().flat_map(|group| &group.cases).any(|case| !case.warnings.is_empty());
    let is_doubtful = !result.assessment().is_reliable();
    let marks = is_marked.then(|| mark_legend(marked));
    let doubtful = is_doubtful.then(|| doubtful_legend(doubtful));
    [LEGEND.map(str::to_owned).into(), marks.into_iter().chain(doubtful).collect()]
}

/// Returns a description of the table: benchmark, devices, options and number of runs.
fn title(group: &ScoreGroup) -> Vec<String> {
    let quick = if group.is_quick() { " - QUICK PROFILE" } else { "" };
    // Values shared by all rows have no column.
    let dtype = shared(group, |key| key.dtype).map(|dtype| format!(", {dtype}"));
    let case = shared(group, |key| key.case).map(|case| format!(", {case}"));
    let fixed = dtype.into_iter().chain(case).collect::<String>();
    let unit = group.unit().per_second();
    let what = format!("Inference{fixed}: {unit} by network and batch size per rank{quick}");
    let counts: BTreeSet<usize> =
        group.cases.iter().map(|case| case.counted().count()).filter(|count| *count > 0).collect();
    let runs = match (counts.first(), counts.last()) {
        (Some(least), Some(most)) if least == most => format!("{} per figure", number_text::count(*least, "run")),
        (Some(least), Some(most)) => format!("{least} to {most} runs per figure"),
        _ => "no run counts".to_owned(),
    };
    let Some(conditions) = &group.conditions else {
        return vec![what, "device unknown: no records next to the logs".to_owned(), runs];
    };
    let devices = devices_text(&group.device_names(), &group.threads(), Some(conditions.device));
    vec![what, format!("{}: {devices}", conditions.device), format!("{}, {runs}", how(group))]
}

/// Describes the passes: `224 pixels, nhwc, folded, 10 measured + 5 warm-up passes`.
pub fn how(group: &ScoreGroup) -> String {
    let options = group.conditions.as_ref().map(|ScoreConditions { config, .. }| {
        let passes = measured_and_warmup(config.iterations, config.warmup);
        format!("{}, {passes} passes", config.arrangement())
    });
    batch_sizes::table(group).pixels().into_iter().chain(options).collect::<Vec<_>>().join(", ")
}

/// Returns the value that all points share, or `None` if they differ.
fn shared<T: Ord>(group: &ScoreGroup, of: impl Fn(&CaseKey) -> T) -> Option<T> {
    let mut values: BTreeSet<T> = group.cases.iter().map(|case| of(&case.key())).collect();
    if values.len() == 1 { values.pop_first() } else { None }
}
