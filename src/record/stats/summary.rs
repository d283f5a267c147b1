//! Location and spread of one list of numbers.

use statrs::statistics::{Data, Distribution, Median};

/// Arithmetic mean, `sum(x) / n`: of speeds this is DLPerf's mean of rates. `None` for an empty list.
///
/// `mean([1, 2, 6]) = 3`.
pub fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    Data::new(values.to_vec()).mean()
}

/// Harmonic mean, `n / sum(1/x)`: of speeds over iterations of equal work this is images over time.
/// `None` for an empty list or a value that is not positive.
///
/// `harmonic_mean([1, 2, 6]) = 3 / (1 + 1/2 + 1/6) = 1.8`.
pub fn harmonic_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|value| value.is_nan() || *value <= 0.0) {
        return None;
    }
    Some(values.len() as f64 / values.iter().map(|value| value.recip()).sum::<f64>())
}

/// Middle value, or the mean of the two middle ones. `None` for an empty list.
///
/// `median([4, 1, 2]) = 2`, `median([4, 1, 2, 3]) = 2.5`.
pub fn median(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    Some(Data::new(values.to_vec()).median())
}

/// Sample standard deviation, `sqrt(sum((x - mean)^2) / (n - 1))`. `None` for fewer than two values.
///
/// `standard_deviation([1, 2, 6]) = sqrt((4 + 1 + 9) / 2) = 2.6458`.
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    Data::new(values.to_vec()).std_dev()
}

/// Coefficient of variation, `standard deviation / mean`. `None` for fewer than two values or a mean of zero.
///
/// `coefficient_of_variation([1, 2, 6]) = 2.6458 / 3 = 0.8819`.
pub fn coefficient_of_variation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|mean| *mean != 0.0)?;
    Some(standard_deviation(values)? / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: [f64; 3] = [1.0, 2.0, 6.0];

    #[test]
    fn the_worked_numbers_hold() {
        assert_eq!(mean(&VALUES), Some(3.0));
        assert!((harmonic_mean(&VALUES).expect("positive") - 1.8).abs() < 1e-12);
        assert_eq!(median(&[4.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert!((standard_deviation(&VALUES).expect("three values") - 7f64.sqrt()).abs() < 1e-12);
        assert!((coefficient_of_variation(&VALUES).expect("three values") - 7f64.sqrt() / 3.0).abs() < 1e-12);
    }

    #[test]
    fn too_few_values_have_no_figure() {
        assert_eq!(mean(&[]), None);
        assert_eq!(median(&[]), None);
        assert_eq!(harmonic_mean(&[]), None);
        assert_eq!(harmonic_mean(&[1.0, 0.0]), None);
        assert_eq!(standard_deviation(&[1.0]), None);
        assert_eq!(coefficient_of_variation(&[-1.0, 1.0]), None);
    }
}
