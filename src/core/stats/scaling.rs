//! Scaling of throughput with the number of ranks.

use crate::dimension::{Seconds, UnitsPerSecond};
use crate::stats::comparison::{Thresholds, compare};

/// Returns the speedup, `throughput(case) / throughput(base)`; with medians over runs and 1n1g as the base it is
/// DLPerf's.
///
/// DLPerf's FP32 row: `speedup(9579.74, 384.19) = 24.93`.
pub fn speedup(case: UnitsPerSecond, base: UnitsPerSecond) -> f64 {
    case.0 / base.0
}

/// Returns the scaling efficiency, `speedup / (ranks / base ranks)`: 1 if N ranks do N times the work of one.
///
/// DLPerf's FP32 row: `efficiency(24.93, 32, 1) = 0.779`.
pub fn efficiency(speedup: f64, ranks: u32, base_ranks: u32) -> f64 {
    speedup * f64::from(base_ranks) / f64::from(ranks)
}

/// Returns half of the 95 % confidence interval of an efficiency, from the speeds of the runs of its case and its base.
/// `None` if either has fewer than three runs.
///
/// Runs of 200, 204 and 196 images/s on two ranks over runs of 100, 102 and 98 on one: an efficiency of 1 with a margin
/// of 0.0453.
pub fn margin_of_efficiency(case: &[f64], base: &[f64], efficiency: f64) -> Option<f64> {
    let comparison = compare(base, case, Thresholds::default())?;
    let interval = comparison.interval?;
    Some(efficiency * (interval.high - interval.low) / (2.0 * comparison.ratio))
}

/// Returns the cost of communication, `step with / step without - 1`: how much longer an iteration is than that of the
/// same ranks without communication, waits included.
///
/// `communication_cost(0.110 s, 0.100 s) = 0.1`. Negative if noise is larger than the cost.
pub fn communication_cost(with: Seconds, without: Seconds) -> f64 {
    with.0 / without.0 - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Medians and speedups that DLPerf published for 1n1g to 4n8g (V100-16G, 8 per node).
    const PUBLISHED: [([f64; 6], [f64; 6]); 2] = [
        ([384.19, 749.04, 1494.58, 2556.03, 4855.34, 9579.74], [1.0, 1.95, 3.89, 6.65, 12.64, 24.93]),
        ([833.65, 1373.55, 2331.91, 2908.88, 5451.27, 10565.55], [1.0, 1.65, 2.8, 3.49, 6.54, 12.67]),
    ];

    #[test]
    fn published_dlperf_speedups_are_reproduced() {
        for (medians, speedups) in PUBLISHED {
            for (median, published) in medians.into_iter().zip(speedups) {
                let speedup = speedup(UnitsPerSecond(median), UnitsPerSecond(medians[0]));
                assert_eq!((speedup * 100.0).round() / 100.0, published);
            }
        }
    }

    #[test]
    fn efficiency_is_the_share_of_ideal() {
        assert!((efficiency(24.93, 32, 1) - 0.779).abs() < 1e-3);
        assert_eq!(efficiency(2.0, 16, 8), 1.0);
    }

    #[test]
    fn margin_of_efficiency_needs_three_runs() {
        let (case, base) = ([200.0, 204.0, 196.0], [100.0, 102.0, 98.0]);
        let margin = margin_of_efficiency(&case, &base, 1.0).expect("three runs");
        assert!((margin - 0.0453).abs() < 1e-4, "{margin}");
        assert_eq!(margin_of_efficiency(&case, &base, 0.5), Some(margin / 2.0));
        assert_eq!(margin_of_efficiency(&case[..2], &base, 1.0), None);
        assert_eq!(margin_of_efficiency(&case, &base[..2], 1.0), None);
    }

    #[test]
    fn communication_cost_is_the_longer_step() {
        assert!((communication_cost(Seconds(0.110), Seconds(0.100)) - 0.1).abs() < 1e-12);
    }
}
