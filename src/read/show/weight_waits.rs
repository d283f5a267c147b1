//! Table of the exposed communication of strategies that shard weights.

use ringmark_core::dimension::Seconds;

use crate::output::table::Table;
use crate::read::analyze::training::figures::{TrainingCase, TrainingGroup};
use crate::read::analyze::training::weight_waits::case_weight_waits;
use crate::read::show::columns;
use crate::read::show::numbers::{marked, milliseconds_number};

/// Title of the table.
pub const TITLE: &str = "Exposed communication of sharded weights by phase, median run";

/// Explanation of the columns.
pub const LEGEND: [&str; 2] = [
    "forward, backward: waits for the weights of other ranks; sums: gradients;",
    "longest: longest wait for the weights of one bucket, and its cause (docs/strategies.md)",
];

const HEADERS: [(&str, &str); 6] =
    [("case", ""), ("forward", "ms"), ("backward", "ms"), ("sums", "ms"), ("longest", "ms"), ("cause", "")];

/// Returns the table of the cases whose ranks gather weights; `None` if there are none.
pub fn table(group: &TrainingGroup) -> Option<Table> {
    columns::table_of_cells(group, &HEADERS, |case, is_doubtful| {
        let waits = case_weight_waits(case)?;
        let time = |time: Seconds| marked(milliseconds_number(time), is_doubtful);
        Some(vec![
            case.case.to_string(),
            time(waits.forward_seconds),
            time(waits.backward_seconds),
            time(waits.sums_seconds),
            waits.longest.as_ref().map_or_else(|| "-".to_owned(), |longest| time(longest.wait)),
            waits.cause.map_or_else(|| "-".to_owned(), |cause| cause.to_string()),
        ])
    })
}

/// Returns a sentence about the longest wait of each case.
pub fn notes(group: &TrainingGroup) -> Vec<String> {
    let note = |case: &TrainingCase| Some(format!("{}: {}", case.case, case_weight_waits(case)?.text()?));
    group.cases.iter().filter_map(note).collect()
}
