//! Table of the cost of checkpoints.

use crate::output::table::Table;
use crate::read::analyze::training::checkpoint_cost::case_checkpoint_cost;
use crate::read::analyze::training::figures::TrainingGroup;
use crate::read::show::columns;
use crate::read::show::numbers::{marked, milliseconds_number, percent_number};

/// Title of the table.
pub const TITLE: &str = "Checkpoints (--checkpoint-every), median run";

/// Explanation of the columns.
pub const LEGEND: [&str; 2] = [
    "written: all files of the run; rate: written / time to write and sync; stall: time that training stood",
    "still for a checkpoint, median; share: all stalls / (time of all iterations + all stalls)",
];

const HEADERS: [(&str, &str); 6] =
    [("case", ""), ("checkpoints", ""), ("written", "GB"), ("rate", "GB/s"), ("stall", "ms"), ("share", "%")];

/// Returns the table of the cases that wrote checkpoints; `None` if there are none.
pub fn table(group: &TrainingGroup) -> Option<Table> {
    columns::table_of_cells(group, &HEADERS, |case, is_doubtful| {
        let cost = case_checkpoint_cost(case)?;
        let figure = |text: String| marked(text, is_doubtful);
        Some(vec![
            case.case.to_string(),
            cost.checkpoints.to_string(),
            format!("{:.3}", cost.bytes.gigabytes()),
            cost.gigabytes_per_second.map_or_else(|| "-".to_owned(), |rate| figure(format!("{:.2}", rate.0))),
            figure(milliseconds_number(cost.stall_seconds)),
            figure(percent_number(cost.share_of_training)),
        ])
    })
}
