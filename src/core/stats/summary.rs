//! Location and spread of one list of numbers.

use statrs::statistics::{Data, Median, Statistics};

/// Returns the arithmetic mean, `sum(x) / n`: for speeds, DLPerf's mean of rates. `None` for an empty list.
///
/// `mean([1, 2, 6]) = 3`.
pub fn mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    Some(pairwise_sum(values) / values.len() as f64)
}

/// Returns the sum by halves, each in eight lanes: the order of additions of `numpy.add.reduce` for contiguous numbers,
/// so that a mean rounds to the same digits as DLPerf's (numpy, `pairwise_sum` in umath/loops_utils.h.src).
fn pairwise_sum(values: &[f64]) -> f64 {
    const LANES: usize = 8;
    const BLOCK: usize = 128;
    if values.len() < LANES {
        return values.iter().sum();
    }
    if values.len() > BLOCK {
        let half = values.len() / 2;
        let (first, second) = values.split_at(half - half % LANES);
        return pairwise_sum(first) + pairwise_sum(second);
    }
    let (rows, rest) = values.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for row in rows {
        lanes.iter_mut().zip(row).for_each(|(lane, value)| *lane += value);
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    rest.iter().fold(((a + b) + (c + d)) + ((e + f) + (g + h)), |sum, value| sum + value)
}

/// Returns the harmonic mean, `n / sum(1/x)`: for speeds over iterations of equal work, images over time. `None` for an
/// empty list or a value that is not positive.
///
/// `harmonic_mean([1, 2, 6]) = 3 / (1 + 1/2 + 1/6) = 1.8`.
pub fn harmonic_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|value| value.is_nan() || *value <= 0.0) {
        return None;
    }
    Some(values.len() as f64 / pairwise_sum(&values.iter().map(|value| value.recip()).collect::<Vec<f64>>()))
}

/// Returns the middle value, or the mean of the two middle ones. `None` for an empty list.
///
/// `median([4, 1, 2]) = 2`, `median([4, 1, 2, 3]) = 2.5`.
pub fn median(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    Some(Data::new(values.to_vec()).median())
}

/// Returns the time whose rate is the median of the rates, `1 / median(1/x)`: for mean step times of runs, the step of
/// the median speed. For an odd number of values it is their median. `None` for an empty list.
///
/// `median_by_rate([1, 2, 6]) = 2`, `median_by_rate([2, 3]) = 1 / ((1/2 + 1/3) / 2) = 2.4`.
pub fn median_by_rate(values: &[f64]) -> Option<f64> {
    median(&values.iter().map(|value| value.recip()).collect::<Vec<f64>>()).map(f64::recip)
}

/// Returns the index and weight of the median in a list of times: one index, or the two in the middle, weighted by
/// their rates. The sum of the times with these weights is [`median_by_rate`], and the sums of their parts are the
/// parts of it.
///
/// `median_weights([4, 1, 2]) = [(2, 1)]`; `median_weights([2, 3]) = [(0, 0.6), (1, 0.4)]`, and
/// 0.6 x 2 + 0.4 x 3 = 2.4.
pub fn median_weights(times: &[f64]) -> Vec<(usize, f64)> {
    let mut places: Vec<usize> = (0..times.len()).collect();
    places.sort_by(|one, other| times[*one].total_cmp(&times[*other]));
    let count = times.len();
    let middle = &places[count.saturating_sub(1) / 2..(count / 2 + 1).min(count)];
    let all: f64 = middle.iter().map(|place| 1.0 / times[*place]).sum();
    middle.iter().map(|place| (*place, 1.0 / times[*place] / all)).collect()
}

/// Returns the value below which `percent` of the list lie, interpolated linearly: in the sorted list, the one at index
/// `percent / 100 x (n - 1)`, as by default in numpy and PyTorch. `None` for an empty list or a `percent` outside 0 to
/// 100.
///
/// `percentile([6, 1, 2], 75) = 2 + 0.5 x (6 - 2) = 4`.
pub fn percentile(values: &[f64], percent: f64) -> Option<f64> {
    percentiles(values, [percent]).map(|[percentile]| percentile)
}

/// Returns several percentiles of one list, which is sorted once, and in place if it is owned.
pub fn percentiles<const COUNT: usize>(values: impl Into<Vec<f64>>, percents: [f64; COUNT]) -> Option<[f64; COUNT]> {
    let mut sorted = values.into();
    if sorted.is_empty() || percents.iter().any(|percent| !(0.0..=100.0).contains(percent)) {
        return None;
    }
    sorted.sort_unstable_by(f64::total_cmp);
    Some(percents.map(|percent| {
        let place = percent / 100.0 * (sorted.len() - 1) as f64;
        let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
        below + place.fract() * (above - below)
    }))
}

/// Percentiles of iteration times that PyTorch's DDP benchmark and ringmark print.
pub const STEP_PERCENTS: [u32; 4] = [50, 75, 90, 95];

/// Returns the percentiles of a list of iteration times, in the order of [`STEP_PERCENTS`]. `None` for an empty list.
pub fn step_percentiles(times: impl Into<Vec<f64>>) -> Option<[f64; STEP_PERCENTS.len()]> {
    percentiles(times, STEP_PERCENTS.map(f64::from))
}

/// 5th, 50th and 95th percentile of a list: its middle nine tenths.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "field names are self-explanatory")]
pub struct Spread {
    pub low: f64,
    pub middle: f64,
    pub high: f64,
}

impl Spread {
    /// Computes the spread of a list; `None` if it is empty.
    ///
    /// 5, 50 and 95 for the list 0, 1, .. 100.
    pub fn from_values(values: &[f64]) -> Option<Spread> {
        let [low, middle, high] = percentiles(values, [5.0, 50.0, 95.0])?;
        Some(Spread { low, middle, high })
    }
}

/// Returns the sample standard deviation, `sqrt(sum((x - mean)^2) / (n - 1))`. `None` for fewer than two values.
///
/// `standard_deviation([1, 2, 6]) = sqrt((4 + 1 + 9) / 2) = 2.6458`.
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    Some(values.std_dev())
}

/// Returns the coefficient of variation, `standard deviation / mean`. `None` for fewer than two values or a mean of
/// zero.
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
    fn worked_numbers_are_reproduced() {
        assert_eq!(mean(&VALUES), Some(3.0));
        assert!((harmonic_mean(&VALUES).expect("positive") - 1.8).abs() < 1e-12);
        assert_eq!(median(&[4.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median_by_rate(&VALUES), Some(2.0));
        assert_eq!(median_weights(&[4.0, 1.0, 2.0]), [(2, 1.0)]);
        let [(2, two), (3, three)] = median_weights(&[4.0, 1.0, 2.0, 3.0])[..] else { panic!("the middle is 2 and 3") };
        assert!((two - 0.6).abs() < 1e-12 && (three - 0.4).abs() < 1e-12, "{two} {three}");
        assert_eq!((median_weights(&[7.0]), median_weights(&[])), (vec![(0, 1.0)], vec![]));
        assert!((median_by_rate(&[2.0, 3.0]).expect("two values") - 2.4).abs() < 1e-12);
        assert_eq!(percentile(&[6.0, 1.0, 2.0], 75.0), Some(4.0));
        let hundred: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!(Spread::from_values(&hundred), Some(Spread { low: 5.0, middle: 50.0, high: 95.0 }));
        assert!((standard_deviation(&VALUES).expect("three values") - 7f64.sqrt()).abs() < 1e-12);
        assert!((coefficient_of_variation(&VALUES).expect("three values") - 7f64.sqrt() / 3.0).abs() < 1e-12);
    }

    /// Expected values: `numpy.percentile([3, 1, 4, 1, 5, 9, 2, 6], [0, 10, 50, 95, 99, 100])`.
    #[test]
    fn percentiles_match_numpy() {
        let values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0];
        for (percent, expected) in [(0.0, 1.0), (10.0, 1.0), (50.0, 3.5), (95.0, 7.95), (99.0, 8.79), (100.0, 9.0)] {
            let actual = percentile(&values, percent).expect("a list");
            assert!((actual - expected).abs() < 1e-12, "{percent} %: {actual}");
        }
    }

    /// Expected values: `numpy.mean` of numpy 2.4.6. A sequential sum gives the first list a mean of
    /// 11.834999999999997, which rounds to 11.83, and numpy's 11.835 rounds to 11.84.
    #[test]
    fn mean_matches_numpy_bit_for_bit() {
        let speeds = [
            11.44, 12.09, 12.29, 10.79, 10.13, 10.39, 11.64, 13.44, 13.25, 12.02, 10.92, 10.23, 10.68, 13.17, 12.66,
            11.73, 12.16, 11.08, 13.0, 13.59,
        ];
        assert_eq!(mean(&speeds), Some(11.835));
        let sums = [(7, 86.72), (8, 99.28999999999999), (129, 1612.1100000000001), (300, 3749.6800000000003)];
        for (count, sum) in sums.into_iter().chain([(1000, 12500.1), (5000, 62499.83)]) {
            let values: Vec<f64> = (0..count).map(|i| 12.0 + f64::from(i * 37 % 101) / 100.0).collect();
            assert_eq!(pairwise_sum(&values), sum, "{count}");
        }
    }

    #[test]
    fn too_few_values_give_no_figures() {
        assert_eq!(mean(&[]), None);
        assert_eq!(median(&[]), None);
        assert_eq!(percentile(&[], 50.0), None);
        assert_eq!(Spread::from_values(&[]), None);
        assert_eq!(percentile(&VALUES, 101.0), None);
        assert_eq!(percentile(&VALUES, f64::NAN), None);
        assert_eq!(percentile(&[7.0], 99.0), Some(7.0));
        assert_eq!(harmonic_mean(&[]), None);
        assert_eq!(harmonic_mean(&[1.0, 0.0]), None);
        assert_eq!(standard_deviation(&[1.0]), None);
        assert_eq!(coefficient_of_variation(&[-1.0, 1.0]), None);
    }
}
