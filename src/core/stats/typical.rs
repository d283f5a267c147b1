//! Typical value and spread of a list that contains an unknown share of low values.
//!
//! The start is an order statistic at quantile q (the median: up to half of the values may be low; the upper quartile:
//! up to three quarters), and a scale from the values above it only:
//!
//! ```text
//! start = sorted[ceil(q (n - 1))]
//! scale = median of (x - start) over x >= start / (z((1 + q) / 2) - z(q))         z: quantile of the normal distribution
//! ```
//!
//! Then values farther than `CUT` x scale from the center are left out, and center and scale are computed again from the
//! others, until none changes (the one-step estimate of Rousseeuw and Leroy, Robust Regression and Outlier Detection,
//! 1987, repeated):
//!
//! ```text
//! center = mean of the kept k values
//! scale^2 = (sum of (x - center)^2 + PRIOR_WEIGHT x prior^2) / (k - 1 + PRIOR_WEIGHT)
//! ```
//!
//! `prior` is the spread to assume for few values. Example: values 0, 1, 2, 3, 4, -90 with q = 0.5 and prior 1: start =
//! `sorted[3]` = 2, values above it 0, 1, 2 higher, scale = 1 / 0.6745 = 1.48. -90 is left out, and also after that: center
//! 2, scale^2 = (10 + 2) / (5 - 1 + 2) = 2.

use statrs::distribution::{ContinuousCDF, Normal};

use crate::stats::summary::{mean, median};

/// Distance from the center, in standard deviations, from which a value does not count: 1 of 2,000 normal values.
pub const CUT: f64 = 3.5;

/// Number of values that the prior spread is worth.
pub const PRIOR_WEIGHT: f64 = 2.0;

/// Most repetitions; the kept values hardly change after three.
const MAX_STEPS: usize = 20;

/// Typical value and spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Typical {
    /// Mean of the kept values.
    pub center: f64,
    /// Their standard deviation, with the prior.
    pub spread: f64,
    /// Degrees of freedom of the spread.
    pub freedom: f64,
    /// Number of kept values.
    pub kept: usize,
}

/// Returns the typical value and the spread; `None` for an empty list.
pub fn typical(values: &[f64], quantile: f64, prior: f64) -> Option<Typical> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let first = (quantile * sorted.len().checked_sub(1)? as f64).ceil() as usize;
    let start = sorted[first];
    let above: Vec<f64> = sorted[first..].iter().map(|value| value - start).collect();
    let scale = median(&above)? / (normal_quantile(f64::midpoint(1.0, quantile)) - normal_quantile(quantile));
    let (mut center, mut spread, mut range) = (start, scale.max(prior), 0..0);
    for _ in 0..MAX_STEPS {
        let low = sorted.partition_point(|value| *value < center - CUT * spread);
        let high = sorted.partition_point(|value| *value <= center + CUT * spread);
        if range == (low..high) {
            break;
        }
        range = low..high;
        let Some(kept) = mean(&sorted[range.clone()]) else { break };
        center = kept;
        let squares: f64 = sorted[range.clone()].iter().map(|value| (value - center).powi(2)).sum();
        spread = ((squares + PRIOR_WEIGHT * prior.powi(2)) / ((range.len() - 1) as f64 + PRIOR_WEIGHT)).sqrt();
    }
    let freedom = (range.len().max(1) - 1) as f64 + PRIOR_WEIGHT;
    Some(Typical { center, spread, freedom, kept: range.len() })
}

/// Returns the value below which this share of a normal distribution lies: `normal_quantile(0.975) = 1.96`.
pub fn normal_quantile(probability: f64) -> f64 {
    Normal::standard().inverse_cdf(probability)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::random::Random;

    #[test]
    fn worked_number_is_reproduced() {
        let found = typical(&[0.0, 1.0, 2.0, 3.0, 4.0, -90.0], 0.5, 1.0).expect("values");
        assert!((found.center - 2.0).abs() < 1e-12 && (found.spread - 2f64.sqrt()).abs() < 1e-12, "{found:?}");
        assert_eq!((found.freedom, found.kept), (6.0, 5));
        assert_eq!(typical(&[], 0.5, 1.0), None);
        assert!((normal_quantile(0.975) - 1.959_964).abs() < 1e-6);
    }

    /// One third of the hosts is 6 % slower, like every pair with one of these: more than half of the pairs.
    #[test]
    fn low_values_do_not_count() {
        for (share, quantile) in [(0.0, 0.5), (1.0 / 3.0, 0.5), (0.56, 0.75)] {
            let mut random = Random(3);
            let values: Vec<f64> = (0..900)
                .map(|index| 0.01 * random.normal() - if f64::from(index) < 900.0 * share { 0.1 } else { 0.0 })
                .collect();
            let found = typical(&values, quantile, 0.01).expect("values");
            assert!(found.center.abs() < 0.002 && (found.spread - 0.01).abs() < 0.001, "{share}: {found:?}");
        }
        // One of three hosts limits two of three pairs.
        let found = typical(&[-0.7, -0.7, 0.0], 0.75, 0.01).expect("values");
        assert_eq!((found.center, found.kept), (0.0, 1));
    }
}
