//! Welch's confidence interval of the difference of two means over runs, and Student's of one mean.
//!
//! Runs are independent, and the spreads of the two sides may differ. With sample variances v and numbers of runs n:
//!
//! ```text
//! error^2 = v(a) / n(a) + v(b) / n(b)            c = v(a) / n(a) / error^2
//! freedom = 1 / (c^2 / (n(a) - 1) + (1 - c)^2 / (n(b) - 1))          Welch and Satterthwaite
//! margin  = t((1 + confidence) / 2, freedom) x error
//! ```

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::stats::summary::{mean, standard_deviation};
use crate::stats::typical::normal_quantile;

/// Smallest number of runs on each side of an interval. That of two runs is wider than any usual difference.
pub const RUNS_OF_INTERVAL: usize = 3;

/// Difference of two means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// Mean of one side minus that of the other.
    pub mean: f64,
    /// Standard error of it; `None` with fewer than [`RUNS_OF_INTERVAL`] runs on a side.
    pub error: Option<StandardError>,
}

/// Standard error with its degrees of freedom.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StandardError {
    /// Standard error of the difference; 0 if neither side has a spread.
    pub error: f64,
    /// Degrees of freedom.
    pub freedom: f64,
}

impl StandardError {
    /// Returns the half-width of the interval at this confidence, 0.95 for 95 %.
    pub fn margin(&self, confidence: f64) -> f64 {
        student((1.0 + confidence) / 2.0, self.freedom) * self.error
    }
}

/// Returns the mean of `of` minus the mean of `from`. `None` if a side is empty.
///
/// `difference([3, 4, 5], [1, 2, 3]) = 2`, with an error of `sqrt(2/3) = 0.8165` and 4 degrees of freedom: 95 % margin
/// 2.776 x 0.8165 = 2.267.
pub fn difference(of: &[f64], from: &[f64]) -> Option<Difference> {
    // Squared standard error of a mean.
    let square = |side: &[f64]| Some(standard_deviation(side)?.powi(2) / side.len() as f64);
    let is_enough = of.len().min(from.len()) >= RUNS_OF_INTERVAL;
    let error = square(of).zip(square(from)).filter(|_| is_enough).map(|(one, other)| {
        let both = one + other;
        let free = |side: &[f64]| side.len() as f64 - 1.0;
        let freedom = match both > 0.0 {
            true => {
                let share = one / both;
                1.0 / (share.powi(2) / free(of) + (1.0 - share).powi(2) / free(from))
            }
            // Irrelevant, since there is no error.
            false => free(of).min(free(from)),
        };
        StandardError { error: both.sqrt(), freedom }
    });
    Some(Difference { mean: mean(of)? - mean(from)?, error })
}

/// Returns the half-width of the 95 % confidence interval of the mean,
/// `t(0.975, n - 1) x standard deviation / sqrt(n)`. `None` for fewer than two values.
///
/// `margin_of_mean([20, 22]) = 12.706 x 1.4142 / 1.4142 = 12.706`.
pub fn margin_of_mean(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    Some(student(0.975, count - 1.0) * standard_deviation(values)? / count.sqrt())
}

/// Degrees of freedom from which an expansion replaces statrs, whose search becomes slow, and does not end above 1e8.
const MANY_FREEDOM: f64 = 300.0;

/// Returns the quantile of Student's t: the value below which a proportion of `probability` lies. Infinite without a
/// degree of freedom.
///
/// `student(0.975, 8) = 2.306`.
pub fn student(probability: f64, freedom: f64) -> f64 {
    if freedom > MANY_FREEDOM {
        // Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
        let z = normal_quantile(probability);
        let terms = [
            (z.powi(3) + z) / 4.0,
            (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
            (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
        ];
        return z + terms.iter().rev().fold(0.0, |sum, term| (sum + term) / freedom);
    }
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |student| student.inverse_cdf(probability))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn margin(of: &[f64], from: &[f64]) -> f64 {
        difference(of, from).and_then(|difference| difference.error).expect("several runs").margin(0.95)
    }

    #[test]
    fn worked_number_and_scipy_are_reproduced() {
        assert!((margin(&[3.0, 4.0, 5.0], &[1.0, 2.0, 3.0]) - 2.266_957).abs() < 1e-5);
        // scipy.stats.ttest_ind([1, 2, 6, 4], [10, 10.5, 12], equal_var=False).confidence_interval(): -10.95033, -4.21633.
        assert!((margin(&[1.0, 2.0, 6.0, 4.0], &[10.0, 10.5, 12.0]) - 3.367_00).abs() < 1e-5);
        assert_eq!(margin(&[1.0; 3], &[2.0; 3]), 0.0);
        let of_two = difference(&[1.0, 1.5], &[2.0, 3.0, 4.0]).expect("runs");
        assert_eq!((of_two.mean, of_two.error), (-1.75, None));
        assert_eq!(difference(&[1.0], &[2.0, 3.0]), Some(Difference { mean: -1.5, error: None }));
        assert_eq!(difference(&[], &[2.0, 3.0]), None);
        // scipy.stats.t.interval(0.95, 3, 5, scipy.stats.sem([3, 4, 5, 8])): 1.56257, 8.43743.
        assert!((margin_of_mean(&[3.0, 4.0, 5.0, 8.0]).expect("several") - 3.437_43).abs() < 1e-4);
        assert_eq!(margin_of_mean(&[3.0]), None);
    }

    /// Expected values: `scipy.stats.t.ppf([0.975, 0.995, 0.8, 0.9995], df)`.
    #[test]
    fn quantiles_match_scipy() {
        for (freedom, expected) in [
            (1.0, [12.706204736174694, 63.656741162871526, 1.3763819204711738, 636.6192487687897]),
            (1.2, [8.648826510748867, 33.239028298318225, 1.2580229578920614, 226.537567245918]),
            (2.0, [4.302652729749462, 9.924843200918287, 1.0606601717798214, 31.599054576445365]),
            (3.7, [2.8675207071911895, 4.8692522532278275, 0.9498778242960849, 9.474240137124664]),
            (8.0, [2.306004135204166, 3.355387331333395, 0.8888895177670202, 5.041305433373456]),
            (18.0, [2.1009220402410382, 2.8784404727386077, 0.8620486679895989, 3.9216458250852084]),
            (f64::MAX, [1.959963984540054, 2.5758293035489004, 0.8416212335729143, 3.2905267314919255]),
            (1000.0, [1.9623390808264083, 2.580754698065951, 0.8419808221624288, 3.300282648423944]),
        ] {
            for (probability, expected) in [0.975, 0.995, 0.8, 0.9995].into_iter().zip(expected) {
                let actual = student(probability, freedom);
                assert!((actual - expected).abs() < 1e-6 * expected, "{actual}, expected {expected}");
            }
        }
    }
}
