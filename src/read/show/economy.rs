//! Table of power, energy and cost.

use ringmark_core::dimension::WorkUnit;

use crate::output::table::Table;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::cost::Price;
use crate::read::analyze::training::figures::TrainingGroup;
use crate::read::show::columns;
use crate::read::show::training::columns::{self as training, Column};

/// Returns the title of the table, which has costs if `has_price`.
pub const fn title(unit: WorkUnit, has_price: bool) -> &'static str {
    match unit {
        _ if !has_price => "Power and energy",
        WorkUnit::Image => "Power and cost (an epoch: 1,281,167 images of ImageNet)",
        WorkUnit::Token => "Power and cost (an epoch: 1e9 tokens)",
    }
}

const POWER_LEGEND: [&str; 2] = [
    "power: mean after warm-up of GPU boards (NVML), processors and their memory (RAPL),",
    "as far as each host reports them; energy: power / speed; per watt: speed / power",
];

const COST_LEGEND: &str = "epoch time and epoch cost: of one epoch; 90 epochs: their cost; over base: additional cost of an epoch relative to the base";

const COST_OF_TOKENS_LEGEND: &str =
    "epoch time and epoch cost: of one epoch; over base: additional cost of an epoch relative to the base";

/// Returns the table and its legend; `None` if neither power nor a price is known. Omits columns that no case fills.
pub fn table(group: &TrainingGroup, price: Option<&Price>) -> Option<(Table, Vec<&'static str>)> {
    let has_values = |shown: &[Column]| group.cases.iter().any(|case| shown[0].value(group, case).is_some());
    let energy = Some(training::energy(group.unit())).filter(|shown| has_values(shown));
    let [time, of_epoch, of_90_epochs, over_base] = training::cost(price);
    let (cost, cost_legend) = match group.unit() {
        WorkUnit::Image => (vec![time, of_epoch, of_90_epochs, over_base], COST_LEGEND),
        WorkUnit::Token => (vec![time, of_epoch, over_base], COST_OF_TOKENS_LEGEND),
    };
    let cost = Some(cost).filter(|shown| has_values(shown));
    let legend: Vec<&'static str> =
        POWER_LEGEND.into_iter().filter(|_| energy.is_some()).chain(cost.is_some().then_some(cost_legend)).collect();
    let figures = energy.into_iter().flatten().chain(cost.into_iter().flatten());
    let shown = std::iter::once(columns::case()).chain(figures).collect();
    (!legend.is_empty()).then(|| (columns::table(group, &group.cases, shown), legend))
}
