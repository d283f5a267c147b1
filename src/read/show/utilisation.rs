//! What a network's arithmetic takes of the devices, as the cells of a table. For terminals and Markdown.

use ringmark_record::dimension::units::TeraflopsPerSecond;

use crate::read::analyse::figures::{CaseRuns, Group};
use crate::read::analyse::utilisation::{self, Utilisation};
use crate::read::show::columns::{Columns, percent};
use crate::read::show::economy::three_digits;
use crate::read::show::sections::marked;

/// In 1e12 operations a second: three digits, and no more than three decimals.
pub fn teraflops(rate: TeraflopsPerSecond) -> String {
    three_digits(rate.0)
}

/// `None` where no record tells what the devices can do; columns that no case fills are left out.
pub fn columns(group: &Group) -> Option<Columns> {
    let rows: Vec<(&CaseRuns, Utilisation)> =
        group.cases.iter().filter_map(|case| Some((case, utilisation::of_training(group, case)?))).collect();
    let has = |share: fn(&Utilisation) -> Option<f64>| rows.iter().any(|(_, it)| share(it).is_some());
    let (has_products, has_peak) = (has(|it| it.share_of_matrix_product), has(|it| it.share_of_published_peak));
    let pairs = [(has_products, "products"), (has_peak, "peak")];
    let pairs = pairs.into_iter().filter(|(is_there, _)| *is_there);
    let headers = pairs.flat_map(|(_, name)| [(name, "TFLOP/s"), ("share", "%")]);
    let headers: Vec<(&str, &str)> = [("case", ""), ("network", "TFLOP/s")].into_iter().chain(headers).collect();
    let row = |(case, it): &(&CaseRuns, Utilisation)| {
        let is_doubtful = group.speed_reliability_warnings(case).next().is_some();
        let rate = |rate: Option<TeraflopsPerSecond>| rate.map_or("-".to_owned(), teraflops);
        let share = |share: Option<f64>| share.map_or("-".to_owned(), |share| marked(percent(share), is_doubtful));
        let products = [rate(it.matrix_product_teraflops_per_second), share(it.share_of_matrix_product)];
        let peak = [rate(it.published_peak_teraflops_per_second), share(it.share_of_published_peak)];
        let own = [case.case.to_string(), marked(teraflops(it.teraflops_per_second), is_doubtful)];
        let products = products.into_iter().filter(|_| has_products);
        own.into_iter().chain(products).chain(peak.into_iter().filter(|_| has_peak)).collect()
    };
    (has_products || has_peak).then(|| Columns::new(&headers, rows.iter().map(row).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits() {
        let texts = [0.0567, 0.567, 5.674, 56.74, 567.4].map(|rate| teraflops(TeraflopsPerSecond(rate)));
        assert_eq!(texts, ["0.057", "0.567", "5.67", "56.7", "567"]);
    }
}
