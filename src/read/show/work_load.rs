//! Table of the cost of an uneven division of the batch.

use ringmark_core::dimension::Seconds;

use crate::output::table::Table;
use crate::read::analyze::training::figures::{TrainingCase, TrainingGroup};
use crate::read::analyze::training::work_load::{self, WorkCost};
use crate::read::show::columns;
use crate::read::show::numbers::{marked, milliseconds_number, percent_number};

/// Title of the table.
pub const TITLE: &str = "Uneven work: effect of the batch division";

/// Explanation of the columns.
pub const LEGEND: [&str; 4] = [
    "images: of each rank; per image: forward and backward of each rank;",
    "slowest: forward and backward of the slowest rank; even: the same with equal batches;",
    "balanced: the same if all ranks finished together; saved: 1 - slowest / even;",
    "left: 1 - balanced / slowest; waited: wait for the slowest rank, mean over ranks.",
];

/// Names and units of the columns.
const HEADERS: [(&str, &str); 9] = [
    ("case", ""),
    ("images", "per rank"),
    ("per image", "ms"),
    ("slowest", "ms"),
    ("waited", "ms"),
    ("even", "ms"),
    ("balanced", "ms"),
    ("saved", "%"),
    ("left", "%"),
];

/// Returns the table of the cases with a known division; `None` if no case has several ranks with uneven work.
pub fn table(group: &TrainingGroup) -> Option<Table> {
    let cells = |case: &TrainingCase, is_doubtful| {
        work_load::case_work_cost(group, case).map(|cost| cells(case, &cost, is_doubtful))
    };
    columns::table_of_cells(group, &HEADERS, cells)
}

fn cells(case: &TrainingCase, cost: &WorkCost, is_doubtful: bool) -> Vec<String> {
    let milliseconds = |time: Seconds| marked(milliseconds_number(time), is_doubtful);
    let share = |share: f64| marked(percent_number(share), is_doubtful);
    let samples: Vec<String> = cost.samples.iter().map(u32::to_string).collect();
    let each: Vec<String> = cost.seconds_per_image.iter().map(|time| milliseconds_number(*time)).collect();
    vec![
        case.case.to_string(),
        by_rank(&samples),
        marked(by_rank(&each), is_doubtful),
        milliseconds(cost.slowest_seconds),
        milliseconds(cost.waiting_seconds),
        milliseconds(cost.even_seconds),
        milliseconds(cost.balanced_seconds),
        share(cost.saved_of_even),
        share(cost.left_to_gain),
    ]
}

/// Lists every rank's value, `24 8`; for many ranks only the first ones and the number of the others. The JSON contains
/// all.
fn by_rank(values: &[String]) -> String {
    const SHOWN: usize = 4;
    match values.len() {
        ..=SHOWN => values.join(" "),
        all => format!("{} .. {} more", values[..SHOWN - 1].join(" "), all - SHOWN + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ranks_are_abbreviated() {
        let text = |ranks: usize| by_rank(&vec!["8".to_owned(); ranks]);
        assert_eq!((text(2).as_str(), text(4).as_str()), ("8 8", "8 8 8 8"));
        assert_eq!(text(32), "8 8 8 .. 29 more");
    }
}
