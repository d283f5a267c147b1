//! Comparison of hosts, GPUs, pairs or groups of one kind: their typical value, the tolerated difference, and the test
//! of each.
//!
//! All values are natural logarithms, so that differences are ratios. With the spread `h` between healthy subjects
//! ([`typical`]), the noise `s` of repeats of one subject, and t the quantile of Student's distribution:
//!
//! ```text
//! s  = standard deviation of (second - first value) / sqrt(2)      over subjects, as typical spread
//! h^2 = spread^2 of the subjects' means - s^2 / repeats + 2 standard errors of this difference
//! tolerated = t(1 - false_alarm / 2, freedom of h) x h x sqrt(1 + 1 / subjects)
//! defect = max(-ln(1 - smallest_defect), tolerated + 4 s / repeats)
//! ```
//!
//! `repeats` is the number of values that each subject has at least: with one, most healthy subjects must be as the
//! others after that one.
//!
//! `false_alarm` is the share of the fleet's rate that one of these tests gets (Bonferroni): half of it covers healthy
//! subjects at the end of the spread, the other half goes into the [sequential test](SequentialTest).
//!
//! Example: 64 hosts, two values each, h = 0.5 %, s = 1 %, false_alarm = 0.001 / 4 / 128 = 2e-6: t = 5.2, tolerated =
//! 2.6 %, defect = max(5.13 %, 4.6 %): a host 5 % slower is found, and one 2 % slower is not.

use crate::accept::criteria::Criteria;
use crate::accept::fleet::{Metric, Stage};
use crate::accept::verdict::Evidence;
use crate::number_text::{count, four_digits, percent};
use crate::stats::sequential::{Decision, SequentialTest};
use crate::stats::summary::median;
use crate::stats::typical::{PRIOR_WEIGHT, typical};
use crate::stats::welch::student;

/// Spread between hosts, and noise of repeats, assumed for a few measurements: 1 %.
const PRIOR: f64 = 0.01;

/// Smallest noise: the test divides by it, and simulated or cached speeds may not differ at all.
const MIN_NOISE: f64 = 1e-4;

/// Fewer subjects than these have no typical value of their own.
pub const MIN_SUBJECTS: usize = 3;

/// A standard deviation and how well it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deviation {
    /// Standard deviation of logarithms.
    pub value: f64,
    /// Degrees of freedom.
    pub freedom: f64,
}

impl Deviation {
    /// Deviation to assume without any measurement.
    pub const PRIOR: Deviation = Deviation { value: PRIOR, freedom: PRIOR_WEIGHT };

    /// Returns the noise of repeats, from subjects with at least two values.
    pub fn of_repeats<'a>(series: impl Iterator<Item = &'a [f64]>) -> Deviation {
        let differences: Vec<f64> = series
            .filter_map(|values| values.get(1).map(|second| second - values[0]))
            .filter(|difference| difference.is_finite())
            .collect();
        typical(&differences, 0.5, PRIOR * 2f64.sqrt())
            .map_or(Deviation::PRIOR, |found| Deviation { value: found.spread / 2f64.sqrt(), freedom: found.freedom })
    }

    /// Returns the distance that a healthy subject exceeds with this probability, on one side.
    pub fn distance(self, probability: f64) -> f64 {
        -student(probability, self.freedom) * self.value
    }
}

/// Typical value of one kind of subject, and the test of each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Typical value, a logarithm.
    pub center: f64,
    /// Spread between healthy subjects.
    pub spread: Deviation,
    /// Test of one subject.
    pub test: SequentialTest,
    /// Value (no logarithm) up to which a single one is slow beyond doubt: its step is the largest possible.
    slow_below: f64,
}

impl Comparison {
    /// Compares subjects by their values. `quantile` is the start of [`typical`]; `false_alarm` is the rate of one
    /// test. `None` with fewer than [`MIN_SUBJECTS`] subjects.
    pub fn new(
        series: &[&[f64]],
        quantile: f64,
        noise: Deviation,
        false_alarm: f64,
        criteria: &Criteria,
    ) -> Option<Comparison> {
        let measured = || series.iter().filter(|values| !values.is_empty());
        let means: Vec<f64> = measured().map(|values| values.iter().sum::<f64>() / values.len() as f64).collect();
        let means: Vec<f64> = means.into_iter().filter(|mean| mean.is_finite()).collect();
        if means.len() < MIN_SUBJECTS {
            return None;
        }
        let repeats = measured().map(|values| values.len()).min()? as f64;
        let found = typical(&means, quantile, PRIOR)?;
        // The standard error of a variance is sqrt(2 / freedom) times the variance.
        let (both, own) = (found.spread.powi(2), noise.value.powi(2) / repeats);
        let error = (2.0 * (both.powi(2) / found.freedom + own.powi(2) / noise.freedom)).sqrt();
        let between = ((both - own).max(0.0) + 2.0 * error).sqrt();
        let spread = Deviation { value: between, freedom: found.freedom };
        let tolerated = spread.distance(false_alarm / 2.0) * (1.0 + 1.0 / found.kept as f64).sqrt();
        Some(Comparison::with_spread(found.center, spread, tolerated, noise, repeats, false_alarm, criteria))
    }

    /// Creates a comparison with a known center and spread.
    pub fn with_spread(
        center: f64,
        spread: Deviation,
        tolerated: f64,
        noise: Deviation,
        repeats: f64,
        false_alarm: f64,
        criteria: &Criteria,
    ) -> Comparison {
        // Wider by the uncertainty of the noise itself.
        let normal = Deviation { freedom: f64::INFINITY, ..noise };
        let noise =
            (noise.value * noise.distance(false_alarm / 2.0) / normal.distance(false_alarm / 2.0)).max(MIN_NOISE);
        let defect = smallest_loss(criteria).max(tolerated + 4.0 * noise / repeats);
        let (false_alarm, missed) = (false_alarm / 2.0, criteria.missed);
        let test = SequentialTest { tolerated, defect, noise, false_alarm, missed };
        Comparison { center, spread, test, slow_below: (center - test.largest_step()).exp() }
    }

    /// Returns the loss of a value: 0.05 is about 5 % slower than typical.
    pub fn loss(&self, value: f64) -> f64 {
        self.center - value
    }

    /// Decides on a subject by its values.
    pub fn decide(&self, values: &[f64]) -> (Decision, f64) {
        self.test.decide(values.iter().map(|value| self.loss(*value)))
    }

    /// Returns the comparison for a subject that is suspicious already: `false_alarm` is larger, so that less is
    /// tolerated and fewer measurements decide.
    pub fn with_false_alarm(&self, false_alarm: f64, criteria: &Criteria) -> Comparison {
        let false_alarm = false_alarm / 2.0;
        let distance = self.spread.distance(self.test.false_alarm) - self.spread.distance(false_alarm);
        let tolerated = self.test.tolerated - distance;
        let defect = (self.test.defect - distance).max(smallest_loss(criteria));
        let test = SequentialTest { tolerated, defect, false_alarm, ..self.test };
        Comparison { test, slow_below: (self.center - test.largest_step()).exp(), ..*self }
    }

    /// Returns true if a value (no logarithm) is slow beyond doubt, although a single one proves no defect.
    pub fn is_slow(&self, value: f64) -> bool {
        value <= self.slow_below
    }

    /// Returns true if the values are nearer to a defect than to a tolerated difference.
    pub fn is_rather_slow(&self, values: &[f64]) -> bool {
        values.iter().map(|value| self.test.step(self.loss(*value))).sum::<f64>() > 0.0
    }

    /// Describes the values of a slow subject; `sum` is that of the test.
    pub fn evidence(&self, stage: Stage, metric: Metric, values: &[f64], sum: f64) -> Evidence {
        let (values, typical): (Vec<f64>, f64) = (values.iter().map(|value| value.exp()).collect(), self.center.exp());
        let value = median(&values).unwrap_or(f64::NAN);
        let text = format!(
            "{metric} {} {} ({}{}), {} less than the typical {}",
            four_digits(value),
            metric.unit(),
            if values.len() > 1 { "median of " } else { "" },
            count(values.len(), "measurement"),
            percent(1.0 - value / typical),
            four_digits(typical),
        );
        let chance = Some((-sum).exp().min(1.0));
        Evidence { stage, metric: Some(metric), values, typical: Some(typical), chance, text }
    }
}

/// Returns the smallest loss that is a defect, as a difference of logarithms.
fn smallest_loss(criteria: &Criteria) -> f64 {
    -(1.0 - criteria.smallest_defect).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::random::Random;

    /// Values of 64 hosts in two repeats: spread 0.5 %, noise 1 %, host 7 slower.
    fn values(slower: f64) -> Vec<Vec<f64>> {
        let mut random = Random(5);
        (0..64)
            .map(|host| {
                let own = 0.005 * random.normal() - if host == 7 { slower } else { 0.0 };
                (0..4).map(|_| 3.0 + own + 0.01 * random.normal()).collect()
            })
            .collect()
    }

    fn compare(values: &[Vec<f64>]) -> Comparison {
        let series: Vec<&[f64]> = values.iter().map(|values| &values[..2]).collect();
        let noise = Deviation::of_repeats(series.iter().copied());
        Comparison::new(&series, 0.5, noise, 2e-6, &Criteria::default()).expect("enough")
    }

    #[test]
    fn spread_and_noise_are_separated() {
        let found = compare(&values(0.3));
        assert!((found.center - 3.0).abs() < 0.005, "{found:?}");
        assert!((0.003..0.009).contains(&found.spread.value), "{found:?}");
        assert!((0.009..0.015).contains(&found.test.noise), "{found:?}");
        assert!((0.05..0.08).contains(&found.test.defect), "{found:?}");
        assert_eq!(Comparison::new(&[&[1.0], &[1.0]], 0.5, Deviation::PRIOR, 0.1, &Criteria::default()), None);
    }

    #[test]
    fn slow_host_is_found_and_described() {
        let values = values(0.1);
        let found = compare(&values);
        for (host, values) in values.iter().enumerate() {
            let expected = if host == 7 { Decision::Slower } else { Decision::AsOthers };
            let (decision, sum) = found.decide(values);
            assert_eq!(decision, expected, "{host}: {sum}");
        }
        let evidence = found.evidence(Stage::Alone, Metric::MatrixRate, &[2.9, 2.95, 2.7], 7.0);
        let text = "matrix-rate 18.17 TFLOP/s (median of 3 measurements), 9.";
        assert!(evidence.text.starts_with(text), "{}", evidence.text);
        assert!(evidence.chance.is_some_and(|chance| (chance - 9.12e-4).abs() < 1e-5), "{evidence:?}");
    }
}
