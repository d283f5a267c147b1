//! Table of a network's FLOP rate, relative to the rates of the devices.

use crate::output::table::Table;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::figures::{TrainingCase, TrainingGroup, recompute_time};
use crate::read::analyze::utilization::Utilization;
use crate::read::show::columns::{self, Column, peak, products, teraflops};

/// Explains shares above 100 %, if any of these cases has one.
pub fn over_limit(mut cases: impl Iterator<Item = Utilization>) -> Option<String> {
    cases.any(|it| it.is_over_limit()).then(|| {
        "shares above 100 %: the matmul measurement was disturbed, or the network needs fewer operations than counted (Winograd)"
            .to_owned()
    })
}

/// Returns the cost of `--recompute` in the largest case; `None` without it.
pub fn recompute_cost(group: &TrainingGroup) -> Option<String> {
    let of_case = |case: &TrainingCase| {
        let (time, step) = (recompute_time(case)?, case.figures.as_ref()?.times.as_ref()?.step);
        let share = 100.0 * time.0 / step.0;
        Some(format!(
            "{}: backward computes activations again for {:.2} ms, {share:.1} % of the step",
            case.case,
            1e3 * time.0
        ))
    };
    group.cases.iter().filter_map(of_case).next_back()
}

/// Returns the table; `None` if no record contains rates of the devices. Omits columns that no case fills.
pub fn table(group: &TrainingGroup) -> Option<Table> {
    let cases: Vec<&TrainingCase> = group.cases.iter().filter(|case| group.utilization(case).is_some()).collect();
    let is_known =
        |[_, share]: &[Column<TrainingGroup>; 2]| cases.iter().any(|case| share.value(group, case).is_some());
    let shares: Vec<Column<TrainingGroup>> = [products(), peak()].into_iter().filter(is_known).flatten().collect();
    let has_shares = !shares.is_empty();
    let formulas = columns::formulas().into_iter();
    let formulas = formulas.filter(|column| cases.iter().any(|case| column.value(group, case).is_some()));
    let shown = [columns::case(), teraflops()].into_iter().chain(shares).chain(formulas).collect();
    has_shares.then(|| columns::table(group, cases, shown))
}
