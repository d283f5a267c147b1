//! Table of the scaling loss of each case whose loss is certain, by part. The formulas are in
//! [`crate::read::analyze::training::scaling_loss`]; the page draws waterfalls, also of uncertain losses.

use ringmark_core::dimension::{BatchSize, Case, Seconds, WorkUnit};
use ringmark_core::number_text::three_digits;
use ringmark_core::stats::scaling_loss::{Difference, LossPart};
use ringmark_core::stats::welch::RUNS_OF_INTERVAL;

use crate::output::table::Table;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::figures::TrainingGroup;
use crate::read::analyze::training::scaling_loss::{CaseLoss, all_parts, case_loss};
use crate::read::show::numbers::{marked, milliseconds_number};

/// Returns the title of the table, which names the base.
pub fn title(group: &TrainingGroup) -> String {
    let base = group.base.unwrap_or(Case::SINGLE);
    let missing = if base == Case::SINGLE { "" } else { " (no 1n1g)" };
    let base = group.base_text().unwrap_or_else(|| base.to_string());
    let from = match group.conditions.point.batch.size {
        BatchSize::PerRank(_) => format!("that of {base}{missing}"),
        BatchSize::Global(_) => format!("its ideal step, that of {base}{missing} / ratio of ranks"),
    };
    format!("Where the scaling loss goes: step of each case minus {from}")
}

/// Explanation of the columns, below the title.
pub const LEGEND: [&str; 5] = [
    "lost: all additional time of a step; compute, optimizer, input: that of these phases;",
    "sharing: compute loss of the baseline; overlap: additional compute loss with communication;",
    "waiting, transfer: exposed all-reduce before and after the slowest rank joins;",
    "other: the rest of the step; \u{b1}: 95 % confidence interval; negative: a gain;",
    "speed: lost relative to ideal scaling; below the case: its efficiency",
];

/// Returns the losses with parts whose total is certain if `is_clear`, and the others otherwise.
fn losses(group: &TrainingGroup, is_clear: bool) -> impl Iterator<Item = CaseLoss> {
    let losses = group.cases.iter().filter_map(|case| case_loss(group, case));
    losses.filter(move |loss| !loss.loss.parts.is_empty() && loss.is_uncertain() != is_clear)
}

/// Returns sentences about the cases whose loss is uncertain, which are not in the table.
pub fn unclear(group: &TrainingGroup) -> Vec<String> {
    let sentence = |CaseLoss { case, loss, .. }: CaseLoss| {
        let Difference { seconds, margin } = loss.total;
        let lost = milliseconds_number(Seconds(seconds));
        match margin.map(|margin| milliseconds_number(Seconds(margin))) {
            Some(margin) => format!(
                "{case}: the loss of {lost} \u{b1} {margin} ms per step is too uncertain to break down: use more --runs"
            ),
            None => format!(
                "{case}: the loss of {lost} ms per step cannot be broken down with fewer than {RUNS_OF_INTERVAL} runs per \
                 case: use more --runs"
            ),
        }
    };
    losses(group, false).map(sentence).collect()
}

/// Returns rows for each case: milliseconds, their margin of error, speed and shares. `None` if every loss is uncertain.
pub fn table(group: &TrainingGroup) -> Option<Table> {
    let losses: Vec<CaseLoss> = losses(group, true).collect();
    // Compute is split into two columns only if every case has both parts.
    let is_split = losses.iter().all(|loss| !loss.loss.compute.is_empty());
    let is_shown = |part: &LossPart| match part {
        LossPart::Compute => !is_split,
        LossPart::ComputeSharing | LossPart::ComputeOverlapped => is_split,
        part => losses.iter().any(|loss| loss.part(*part).is_some()),
    };
    let parts: Vec<LossPart> = all_parts().into_iter().filter(is_shown).collect();
    let of_parts = parts.iter().map(|part| header(*part));
    let headers: Vec<(&str, &str)> = [("case", ""), ("", ""), ("lost", "")].into_iter().chain(of_parts).collect();
    let is_doubtful = |loss: &CaseLoss| group.case(loss.case).is_some_and(|case| !group.is_reliable(case));
    let rows: Vec<Vec<String>> =
        losses.iter().flat_map(|loss| rows(loss, &parts, group.unit(), is_doubtful(loss))).collect();
    (!losses.is_empty()).then(|| Table::new(&headers, rows))
}

/// Returns the two header lines of a part. The parts of compute are named in the second line to save width.
fn header(part: LossPart) -> (&'static str, &'static str) {
    match part {
        LossPart::ComputeSharing => ("compute", "sharing"),
        LossPart::ComputeOverlapped => ("compute", "overlap"),
        part => (part.name(), ""),
    }
}

fn rows(case: &CaseLoss, parts: &[LossPart], unit: WorkUnit, is_doubtful: bool) -> Vec<Vec<String>> {
    let loss = &case.loss;
    let of_parts = parts.iter().map(|part| case.part(*part));
    let shown: Vec<Option<Difference>> = [Some(loss.total)].into_iter().chain(of_parts).collect();
    let row = |name: String, unit: &str, cell: &dyn Fn(&Difference) -> Option<f64>| -> Vec<String> {
        let figure = |value| marked(three_digits(value), is_doubtful);
        let cells = shown.iter().map(|part| part.as_ref().and_then(cell).map_or_else(|| "-".to_owned(), figure));
        [name, unit.to_owned()].into_iter().chain(cells).collect()
    };
    let mut rows = vec![
        row(case.case.to_string(), "ms", &|part| Some(part.seconds * 1e3)),
        row(marked(format!("{:.1} %", loss.efficiency() * 100.0), is_doubtful), "\u{b1} ms", &|part| {
            Some(part.margin? * 1e3)
        }),
        row(String::new(), unit.per_second(), &|part| Some(case.rate_lost(part.seconds).0)),
    ];
    if loss.share(loss.total.seconds).is_some() {
        rows.push(row(String::new(), "share %", &|part| Some(loss.share(part.seconds)? * 100.0)));
    }
    rows
}
