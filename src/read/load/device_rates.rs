//! Arithmetic rates of devices.

use ringmark_core::dimension::{Dtype, TeraflopsPerSecond, device_peak};
use ringmark_core::host::RankPlace;

/// Arithmetic rates of the devices, summed over ranks.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DeviceRates {
    /// Measured rate of plain matrix products, on all ranks at once.
    pub matrix_product: Option<TeraflopsPerSecond>,
    /// Peak rate published by the manufacturer.
    pub published_peak: Option<TeraflopsPerSecond>,
}

impl DeviceRates {
    /// Sums the rates at precision `dtype`; `matrix_product` contains a rate for each rank, or none.
    pub fn new(ranks: &[RankPlace], matrix_product: &[TeraflopsPerSecond], dtype: Dtype) -> DeviceRates {
        let sum = |rates: Vec<TeraflopsPerSecond>| TeraflopsPerSecond(rates.iter().map(|rate| rate.0).sum());
        let is_whole = !ranks.is_empty() && matrix_product.len() == ranks.len();
        let peaks: Option<Vec<_>> = ranks.iter().map(|rank| device_peak::published(&rank.device_name, dtype)).collect();
        DeviceRates {
            matrix_product: is_whole.then(|| sum(matrix_product.to_vec())),
            published_peak: peaks.filter(|peaks| !peaks.is_empty()).map(sum),
        }
    }
}
