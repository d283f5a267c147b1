//! Mean time between failures (MTBF) of hosts that fail independently, at a constant rate.

use statrs::distribution::{ChiSquared, ContinuousCDF};

/// Returns the MTBF of `hosts` hosts, one of which fails every `host_mtbf` seconds on average. The first of N failures
/// with exponential distributions has one as well, with the sum of the rates: `M(N) = M / N`.
///
/// `cluster_mtbf(86400, 4) = 21600`.
pub fn cluster_mtbf(host_mtbf: f64, hosts: u32) -> f64 {
    host_mtbf / f64::from(hosts)
}

/// Failures counted in a time that was chosen beforehand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ObservedFailures {
    /// Number of failures.
    pub count: u32,
    /// Time in which they could occur, in seconds: for the MTBF of one host, the sum over the hosts.
    pub time: f64,
}

impl ObservedFailures {
    /// Returns the estimate of the MTBF in seconds, `T / k`; `None` without a failure.
    pub fn mtbf(&self) -> Option<f64> {
        (self.count > 0).then(|| self.time / f64::from(self.count))
    }

    /// Returns the confidence interval of the MTBF in seconds, `2 T / chi2(p, freedom)` with these quantiles:
    ///
    /// ```text
    /// lower   p = (1 + confidence) / 2    2 k + 2 degrees of freedom
    /// upper   p = (1 - confidence) / 2    2 k degrees; infinite for k = 0, which only gives a lower bound
    /// ```
    ///
    /// Epstein and Sobel (Life testing, Journal of the American Statistical Association 48, 1953) for an observation
    /// that ends with a failure. One that ends at a given time has two degrees more at its lower bound (Garwood,
    /// Biometrika 28, 1936), since the count is discrete. The interval contains the MTBF at least with the given
    /// probability. `None` if the time or the confidence is out of range.
    ///
    /// 4 failures in 1000 s, 95 %: `2000 / 20.483 = 97.64` to `2000 / 2.1797 = 917.5`. No failure: from
    /// `-1000 / ln 0.025 = 271.1`.
    pub fn interval(&self, confidence: f64) -> Option<(f64, f64)> {
        if !(self.time > 0.0 && self.time.is_finite() && confidence > 0.0 && confidence < 1.0) {
            return None;
        }
        let bound = |probability: f64, failures: f64| {
            let quantile = ChiSquared::new(2.0 * failures).ok()?.inverse_cdf(probability);
            Some(2.0 * self.time / quantile)
        };
        let count = f64::from(self.count);
        let lower = bound((1.0 + confidence) / 2.0, count + 1.0)?;
        // A distribution without degrees of freedom does not exist.
        Some((lower, bound((1.0 - confidence) / 2.0, count).unwrap_or(f64::INFINITY)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::random::Random;

    #[test]
    fn worked_numbers_are_reproduced() {
        assert_eq!(cluster_mtbf(86400.0, 4), 21600.0);
        let observed = |count| ObservedFailures { count, time: 1000.0 };
        assert_eq!((observed(4).mtbf(), observed(0).mtbf()), (Some(250.0), None));
        // Quantiles of tables: chi2(0.975, 10) = 20.4832, chi2(0.025, 8) = 2.17973.
        let (lower, upper) = observed(4).interval(0.95).expect("valid");
        assert!((lower - 2000.0 / 20.4832).abs() < 1e-3 && (upper - 2000.0 / 2.17973).abs() < 1e-2, "{lower} {upper}");
        let (lower, upper) = observed(0).interval(0.95).expect("valid");
        assert!((lower + 1000.0 / 0.025f64.ln()).abs() < 1e-6 && upper == f64::INFINITY, "{lower} {upper}");
        // Normal approximation of many failures: 1 +- 1.96 / sqrt(k).
        let (lower, upper) = observed(1_000_000).interval(0.95).expect("valid");
        assert!((lower * 1e3 - 0.99804).abs() < 1e-5 && (upper * 1e3 - 1.00196).abs() < 1e-5, "{lower} {upper}");
        for (time, confidence) in [(0.0, 0.95), (f64::NAN, 0.95), (1000.0, 1.0), (1000.0, 0.0)] {
            assert_eq!(ObservedFailures { count: 4, time }.interval(confidence), None);
        }
    }

    /// Counts of Poisson's distribution, on average 0.7 to 20. Of 4000 intervals of 95 %, fewer than 3756 contain the
    /// MTBF with a probability below 0.001 (binomial distribution).
    #[test]
    fn interval_contains_the_mtbf() {
        let mut random = Random(54);
        let mut is_inside = |mean: f64| {
            let times = std::iter::repeat_with(|| -random.uniform().ln());
            let mut end = 0.0;
            let count = times
                .take_while(|time| {
                    end += time;
                    end < mean
                })
                .count() as u32;
            let (lower, upper) = ObservedFailures { count, time: mean }.interval(0.95).expect("valid");
            lower <= 1.0 && 1.0 <= upper
        };
        for mean in [0.7, 5.0, 20.0] {
            let inside = (0..4000).filter(|_| is_inside(mean)).count();
            assert!(inside >= 3756, "{inside} of 4000 with {mean} failures on average");
        }
    }
}
