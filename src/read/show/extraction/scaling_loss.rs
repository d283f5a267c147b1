//! The table of the scaling loss: what each case loses against the base, by parts. The formulas are in
//! [`crate::read::analyse::scaling_loss`]; the waterfall is the report's.

use ringmark_record::case::Case;
use ringmark_record::stats::scaling_loss::Difference;

use crate::read::analyse::figures::Group;
use crate::read::analyse::scaling_loss::{CaseLoss, of_case};
use crate::read::show::columns::Columns;

/// Title of the table; the base is named where it is not one rank.
pub fn title(group: &Group) -> String {
    let base = group.base.unwrap_or(Case::SINGLE);
    let missing = if base == Case::SINGLE { "" } else { " (there is no 1n1g)" };
    format!("Where the scaling loss goes: step of each case less that of {base}{missing}")
}

/// What stands below the title.
pub const LEGEND: [&str; 5] = [
    "crowded: what the same ranks lose without any exchange; overlap: what it adds;",
    "transfer, waiting: exposed all-reduce after and until the slowest rank is there;",
    "other: measured, not explained; +-: 95 % confidence, over runs; below 0: a gain;",
    "images/s: of as many ideal ranks; below the case: its efficiency by images/time",
    "= step of the base / step of the case",
];

/// A few lines a case: milliseconds, their confidence, images/s, shares. `None` where no case but the base has records.
pub fn columns(group: &Group) -> Option<Columns> {
    let with_parts = |case| of_case(group, case).filter(|loss| !loss.loss.parts.is_empty());
    let losses: Vec<CaseLoss> = group.cases.iter().filter_map(with_parts).collect();
    // Compute is shown in two columns where every case has them.
    let is_split = losses.iter().all(|loss| !loss.loss.compute.is_empty());
    let compute: &[(&str, &str)] =
        if is_split { &[("compute", "crowded"), ("compute", "overlap")] } else { &[("compute", "")] };
    let first = [("case", ""), ("", ""), ("lost", "")];
    let last = [("transfer", ""), ("waiting", ""), ("optimizer", ""), ("other", "")];
    let headers: Vec<(&str, &str)> = first.iter().chain(compute).chain(&last).copied().collect();
    let rows = losses.iter().flat_map(|loss| rows(loss, is_split)).collect();
    (!losses.is_empty()).then(|| Columns::new(&headers, rows))
}

fn rows(case: &CaseLoss, is_split: bool) -> Vec<Vec<String>> {
    let loss = &case.loss;
    let parts = if is_split { loss.finest() } else { loss.parts.clone() };
    let shown: Vec<Difference> = [loss.total].into_iter().chain(parts.into_iter().map(|(_, part)| part)).collect();
    let row = |name: String, unit: &str, cell: &dyn Fn(&Difference) -> Option<f64>| -> Vec<String> {
        let cells = shown.iter().map(|part| cell(part).map_or_else(|| "-".to_owned(), short));
        [name, unit.to_owned()].into_iter().chain(cells).collect()
    };
    let mut rows = vec![
        row(case.case.to_string(), "ms", &|part| Some(part.mean * 1e3)),
        row(format!("{:.1} %", loss.efficiency() * 100.0), "+- ms", &|part| Some(part.margin? * 1e3)),
        row(String::new(), "images/s", &|part| Some(case.rate_lost(part.mean).0)),
        row(String::new(), "share %", &|part| Some(loss.share(part.mean)? * 100.0)),
    ];
    // Nothing to share.
    rows.retain(|row| row[2] != "-" || row[1] == "+- ms");
    rows
}

/// In few characters.
fn short(value: f64) -> String {
    let decimals = match value.abs() {
        0.0..1e3 => 2,
        1e3..1e4 => 1,
        _ => 0,
    };
    // Not "-0.00".
    let rounded = format!("{value:.decimals$}");
    if rounded.trim_start_matches(['-', '0', '.']).is_empty() {
        rounded.trim_start_matches('-').to_owned()
    } else {
        rounded
    }
}
