//! Table of power, energy and cost.

use ringmark_core::number_text::three_digits;

use crate::output::table::Table;
use crate::read::analyze::training::cost::{Cost, Price};
use crate::read::analyze::training::energy::{self, Energy};
use crate::read::analyze::training::figures::{Group, TrainedCase};
use crate::read::show::numbers::{marked, percent_number};

/// Title of the table.
pub const TITLE: &str = "Power and cost (an epoch: 1,281,167 images of ImageNet)";

const POWER_LEGEND: [&str; 2] = [
    "power: mean after warm-up of GPU boards (NVML), processors and their memory (RAPL),",
    "as far as each host reports them",
];

const COST_LEGEND: &str = "over base: additional cost of an epoch relative to the base";

/// Returns the table and its legend; `None` if neither power nor a price is known. Omits columns that no case fills.
pub fn table(group: &Group, price: Option<&Price>) -> Option<(Table, Vec<&'static str>)> {
    let each = group
        .cases
        .iter()
        .map(|case| (case, energy::case_energy(case), price.and_then(|it| it.case_cost(group, case))));
    let rows: Vec<(&TrainedCase, Option<Energy>, Option<Cost>)> = each.collect();
    let (has_energy, has_cost) = (rows.iter().any(|row| row.1.is_some()), rows.iter().any(|row| row.2.is_some()));
    let currency = price.map_or("", |price| price.currency.as_str());
    let of_energy = [("power", "W"), ("energy", "J/image"), ("per watt", "images/s")];
    let of_cost = [("epoch", "h"), ("epoch", currency), ("90 epochs", currency), ("over base", "%")];
    let of_energy = of_energy.into_iter().filter(|_| has_energy);
    let headers: Vec<(&str, &str)> =
        [("case", "")].into_iter().chain(of_energy).chain(of_cost.into_iter().filter(|_| has_cost)).collect();
    let row = |(case, energy, cost): &(&TrainedCase, Option<Energy>, Option<Cost>)| {
        let is_doubtful = group.speed_reliability_warnings(case).next().is_some();
        let cell = |value: Option<f64>| value.map_or("-".to_owned(), |value| marked(three_digits(value), is_doubtful));
        let energy = energy.as_ref();
        let energy = [
            cell(energy.map(|it| it.watts)),
            cell(energy.map(|it| it.joules_per_image)),
            cell(energy.map(|it| it.images_per_second_per_watt)),
        ];
        let over_base = cost.as_ref().map_or("-".to_owned(), |it| percent_number(it.over_base));
        let cost = cost.as_ref();
        let cost = [
            cell(cost.map(|it| it.seconds_per_epoch.0 / 3600.0)),
            cell(cost.map(|it| it.of_epoch)),
            cell(cost.map(|it| it.of_90_epochs)),
            over_base,
        ];
        let energy = energy.into_iter().filter(|_| has_energy);
        [case.case.to_string()].into_iter().chain(energy).chain(cost.into_iter().filter(|_| has_cost)).collect()
    };
    let legend = POWER_LEGEND.into_iter().filter(|_| has_energy).chain(has_cost.then_some(COST_LEGEND)).collect();
    (has_energy || has_cost).then(|| (Table::new(&headers, rows.iter().map(row).collect::<Vec<Vec<String>>>()), legend))
}
