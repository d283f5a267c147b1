//! Sequential test of one subject against its kind: is it slower, or as the others? Wald's sequential probability-ratio
//! test (Annals of Mathematical Statistics 16, 1945), with the ratio of a single value limited as Huber proposed
//! (A robust version of the probability ratio test, 1965).
//!
//! Values are losses, `x = ln(typical value) - ln(value)`: 0.05 is 5 % slower. Differences between healthy subjects are
//! tolerated up to `a`, and a loss of `b > a` is a defect. Repeated values of one subject have the standard deviation
//! `s`. After every value
//!
//! ```text
//! step = (b - a) (x - (a + b) / 2) / s^2          log-likelihood ratio of normal values, limited to -LIMIT .. LIMIT
//! sum  = sum of the steps
//! slower         once sum >= ln((1 - missed) / false_alarm)
//! as the others  once sum <= ln(missed / (1 - false_alarm))
//! ```
//!
//! Wald's inequality limits the probability of a wrong `slower` to `false_alarm` for every loss up to `a`, no matter
//! when the test ends. A subject that is as the others and becomes slow later is found as well: its sum starts again at
//! 0, and does not fall below (Page's cumulative sum). The limit of a step is the ratio of two hypotheses in each of
//! which one value in a hundred is an accident: no single value decides against a subject.
//!
//! Example: a = 0.02, b = 0.05, s = 0.01, false_alarm = 1e-6, missed = 0.01: the limits are 13.81 and -4.61. A value 1 %
//! slower: step = 0.03 x (0.01 - 0.035) / 0.0001 = -7.5, limited to -4.61: as the others. Values 4 %, 5 % slower: steps
//! 1.5 and 4.5, sum 6: undecided. Three values 8 % slower: 3 x 4.61 = 13.82: slower.

/// Largest change of the sum by one value: `ln 100`.
pub const LIMIT: f64 = 4.605_170_185_988_092;

/// Result of a sequential test so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// As fast as the others.
    AsOthers,
    /// More values are needed.
    Undecided,
    /// Slower than the others.
    Slower,
}

/// Parameters of the test.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SequentialTest {
    /// Largest loss of a healthy subject, `a`.
    pub tolerated: f64,
    /// Smallest loss that is a defect, `b`.
    pub defect: f64,
    /// Standard deviation of repeated values of one subject, `s`.
    pub noise: f64,
    /// Probability of `slower` for a healthy subject.
    pub false_alarm: f64,
    /// Probability of `as the others` for a defective subject.
    pub missed: f64,
}

impl SequentialTest {
    /// Returns the change of the sum by one value.
    pub fn step(&self, loss: f64) -> f64 {
        let middle = (self.tolerated + self.defect) / 2.0;
        ((self.defect - self.tolerated) * (loss - middle) / self.noise.powi(2)).clamp(-LIMIT, LIMIT)
    }

    /// Returns the loss from which a step has the largest size.
    pub fn largest_step(&self) -> f64 {
        f64::midpoint(self.tolerated, self.defect) + LIMIT * self.noise.powi(2) / (self.defect - self.tolerated)
    }

    /// Returns the sum from which a subject is slower.
    pub fn upper(&self) -> f64 {
        ((1.0 - self.missed) / self.false_alarm).ln()
    }

    /// Returns the result after these losses, and the sum at that time.
    pub fn decide(&self, losses: impl IntoIterator<Item = f64>) -> (Decision, f64) {
        let (upper, lower) = (self.upper(), (self.missed / (1.0 - self.false_alarm)).ln());
        let (mut sum, mut was_cleared) = (0.0, false);
        for loss in losses {
            sum += self.step(loss);
            if sum >= upper {
                return (Decision::Slower, sum);
            }
            was_cleared |= sum <= lower;
            if was_cleared {
                sum = f64::max(sum, 0.0);
            }
        }
        (if was_cleared && sum == 0.0 { Decision::AsOthers } else { Decision::Undecided }, sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::random::Random;

    const TEST: SequentialTest =
        SequentialTest { tolerated: 0.02, defect: 0.05, noise: 0.01, false_alarm: 1e-6, missed: 0.01 };

    #[test]
    fn worked_number_is_reproduced() {
        assert!((TEST.upper() - 13.805).abs() < 1e-3 && (LIMIT - 100f64.ln()).abs() < 1e-12);
        assert_eq!(TEST.decide([0.01]), (Decision::AsOthers, 0.0));
        let (decision, sum) = TEST.decide([0.04, 0.05]);
        assert!(decision == Decision::Undecided && (sum - 6.0).abs() < 1e-9, "{sum}");
        assert_eq!(TEST.decide([0.08; 3]).0, Decision::Slower);
        assert_eq!(TEST.decide([f64::INFINITY; 2]).0, Decision::Undecided);
        // Slow after it was as the others.
        assert_eq!(TEST.decide([0.0, 0.0, 0.08, 0.08, 0.08]).0, Decision::Slower);
        assert_eq!(TEST.decide([0.0, 0.08, 0.0]).0, Decision::AsOthers);
        assert!((TEST.step(TEST.largest_step()) - LIMIT).abs() < 1e-9 && TEST.step(TEST.largest_step() - 1e-4) < LIMIT);
        assert_eq!(TEST.decide([]), (Decision::Undecided, 0.0));
    }

    /// The worst healthy subject, whose loss is just tolerated, and a defect of the smallest size.
    #[test]
    fn error_rates_hold() {
        let test = SequentialTest { false_alarm: 0.02, missed: 0.05, ..TEST };
        let share = |loss: f64, wanted: Decision| {
            let run = |seed: u64| {
                let mut noise = Random(seed);
                let mut losses = Vec::new();
                loop {
                    losses.push(loss + test.noise * noise.normal());
                    let (decision, _) = test.decide(losses.iter().copied());
                    if decision != Decision::Undecided {
                        return decision == wanted;
                    }
                }
            };
            (0..4000).filter(|seed| run(*seed)).count() as f64 / 4000.0
        };
        assert!(share(test.tolerated, Decision::Slower) < 0.02);
        assert!(share(test.defect, Decision::AsOthers) < 0.05);
        assert!(share(0.0, Decision::AsOthers) > 0.999 && share(0.08, Decision::Slower) > 0.999);
    }
}
