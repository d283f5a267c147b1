//! Table of a network's FLOP rate, relative to the rates of the devices.

use crate::output::table::Table;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::figures::{TrainingCase, TrainingGroup, recompute_time};
use crate::read::analyze::utilization::Utilization;
use crate::read::show::columns::{self, Column, peak, peak_memory, products, teraflops};

const TITLE: &str = "FLOP rate of the network, all ranks, and peak memory of any rank";

const LEGEND: [&str; 4] = [
    "network: operations of forward and backward / time; matmul: rate of matrix products in the",
    "same precision, measured on all ranks at once after the last iteration; of matmul: network / matmul;",
    "peak: published peak of the GPU; MFU: network / peak. For language models, network counts operations",
    "as Megatron-LM. memory: peak of any rank",
];

const FORMULAS_TITLE: &str = "FLOP rate by other formulas, all ranks";

const FORMULAS_LEGEND: [&str; 3] = [
    "PaLM, torchtitan: operations as these programs count them;",
    "hardware: as Megatron-LM, with the operations that --recompute repeats;",
    "MFU, HFU: the rate before it / published peak",
];

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

/// Returns the tables with their titles and the explanations of their columns: rates relative to the devices, then rates by
/// other formulas for language models. Empty if no record contains rates of the devices. Omits columns that no case fills.
pub fn tables(group: &TrainingGroup) -> Vec<(&'static str, Vec<&'static str>, Table)> {
    let cases: Vec<&TrainingCase> = group.cases.iter().filter(|case| group.utilization(case).is_some()).collect();
    let is_known = |column: &Column<TrainingGroup>| cases.iter().any(|case| column.value(group, case).is_some());
    let table = |columns: Vec<Column<TrainingGroup>>| columns::table(group, cases.clone(), columns);
    let shares: Vec<_> = [products(), peak()].into_iter().filter(|[_, share]| is_known(share)).flatten().collect();
    if shares.is_empty() {
        return Vec::new();
    }
    let memory = Some(peak_memory()).filter(is_known);
    let shown = [columns::case(), teraflops()].into_iter().chain(shares).chain(memory).collect();
    let mut tables = vec![(TITLE, LEGEND.to_vec(), table(shown))];
    let formulas: Vec<_> = columns::formulas().into_iter().flatten().filter(is_known).collect();
    if !formulas.is_empty() {
        let shown = [columns::case()].into_iter().chain(formulas).collect();
        tables.push((FORMULAS_TITLE, FORMULAS_LEGEND.to_vec(), table(shown)));
    }
    tables
}
