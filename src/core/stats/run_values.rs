//! One figure of a case over its runs: its median and confidence interval.

use crate::stats::summary::{coefficient_of_variation, mean, median, median_by_rate, standard_deviation};
use crate::stats::welch::{self, student};

/// Values of one figure of a case, one for each run. Collected from options it is `None` unless every run has the figure.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunValues(Vec<f64>);

impl FromIterator<f64> for RunValues {
    fn from_iter<T: IntoIterator<Item = f64>>(values: T) -> RunValues {
        RunValues(values.into_iter().collect())
    }
}

impl RunValues {
    /// Returns the values in the order of the runs.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// Returns the figure that every command shows; `None` without runs.
    pub fn median(&self) -> Option<f64> {
        median(&self.0)
    }

    /// Returns the time at the median of the speeds, for values that are times; `None` without runs.
    pub fn median_by_rate(&self) -> Option<f64> {
        median_by_rate(&self.0)
    }

    /// Returns the mean; not a number without runs.
    pub fn mean(&self) -> f64 {
        mean(&self.0).unwrap_or(f64::NAN)
    }

    /// Returns the coefficient of variation; `None` for one run.
    pub fn cv(&self) -> Option<f64> {
        coefficient_of_variation(&self.0)
    }

    /// Returns the 95 % margin of the mean; infinite for one run, which shows no spread.
    pub fn margin_of_mean(&self) -> f64 {
        welch::margin_of_mean(&self.0).unwrap_or(f64::INFINITY)
    }

    /// Returns the 95 % margin of the difference between two means.
    pub fn margin_of_difference(&self, other: &RunValues) -> f64 {
        self.margin_of_mean().hypot(other.margin_of_mean())
    }

    /// Returns the 95 % margin of one more run, `t(0.975, n - 1) x standard deviation x sqrt(1 + 1/n)`; 0 for one run, which shows no
    /// spread.
    ///
    /// For 20 and 22: `12.706 x 1.4142 x 1.2247 = 22.007`.
    pub fn margin_of_next_run(&self) -> f64 {
        let count = self.0.len() as f64;
        let spread = standard_deviation(&self.0);
        spread.map_or(0.0, |spread| student(0.975, count - 1.0) * spread * (1.0 + 1.0 / count).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_numbers_are_reproduced() {
        let two: RunValues = [20.0, 22.0].into_iter().collect();
        assert!((two.margin_of_next_run() - 22.007).abs() < 1e-3, "{}", two.margin_of_next_run());
        assert!((two.margin_of_difference(&two) - 12.706 * 2f64.sqrt()).abs() < 1e-3);
        let one: RunValues = [20.0].into_iter().collect();
        assert_eq!((one.margin_of_next_run(), one.margin_of_mean(), one.cv()), (0.0, f64::INFINITY, None));
        assert_eq!([Some(1.0), None].into_iter().collect::<Option<RunValues>>(), None);
    }
}
