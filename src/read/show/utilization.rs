//! Table of a network's arithmetic rate, relative to the rates of the devices.

use ringmark_core::dimension::TeraflopsPerSecond;

use crate::output::table::Table;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::figures::{Group, TrainedCase};
use crate::read::analyze::utilization::Utilization;
use crate::read::show::numbers::{marked, share_of_limit, teraflops};

/// Explains shares above 100 %, if any of these cases has one.
pub fn over_limit(mut cases: impl Iterator<Item = Utilization>) -> Option<String> {
    cases.any(|it| it.is_over_limit()).then(|| {
        "shares above 100 %: the matrix products were disturbed, or the network needs fewer operations than counted (Winograd)"
            .to_owned()
    })
}

/// Returns the table; `None` if no record contains rates of the devices. Omits columns that no case fills.
pub fn table(group: &Group) -> Option<Table> {
    let rows: Vec<(&TrainedCase, Utilization)> =
        group.cases.iter().filter_map(|case| Some((case, group.utilization(case)?))).collect();
    let has = |share: fn(&Utilization) -> Option<f64>| rows.iter().any(|(_, it)| share(it).is_some());
    let (has_products, has_peak) = (has(|it| it.share_of_matrix_product), has(|it| it.share_of_published_peak));
    let pairs = [(has_products, "products"), (has_peak, "peak")];
    let pairs = pairs.into_iter().filter(|(is_there, _)| *is_there);
    let headers = pairs.flat_map(|(_, name)| [(name, "TFLOP/s"), ("share", "%")]);
    let headers: Vec<(&str, &str)> = [("case", ""), ("network", "TFLOP/s")].into_iter().chain(headers).collect();
    let row = |(case, it): &(&TrainedCase, Utilization)| {
        let is_doubtful = group.speed_reliability_warnings(case).next().is_some();
        let rate = |rate: Option<TeraflopsPerSecond>| rate.map_or("-".to_owned(), teraflops);
        let share =
            |share: Option<f64>| share.map_or("-".to_owned(), |share| marked(share_of_limit(share), is_doubtful));
        let products = [rate(it.matrix_product_teraflops_per_second), share(it.share_of_matrix_product)];
        let peak = [rate(it.published_peak_teraflops_per_second), share(it.share_of_published_peak)];
        let own = [case.case.to_string(), marked(teraflops(it.teraflops_per_second), is_doubtful)];
        let products = products.into_iter().filter(|_| has_products);
        own.into_iter().chain(products).chain(peak.into_iter().filter(|_| has_peak)).collect()
    };
    (has_products || has_peak).then(|| Table::new(&headers, rows.iter().map(row).collect::<Vec<Vec<String>>>()))
}
