//! Comparison of two lists of runs' figures: their ratio, its confidence interval, and a verdict.
//!
//! **The unit of repetition is the run.** Every run gives one figure (its throughput, or a percentile of its iteration
//! times). Iterations of one run are not independent: they share placement, memory layout, clocks and everything else
//! that the machine does during these minutes. A hundred of them are worth little more than one, and an interval over
//! pooled iterations would be far too narrow.
//!
//! **The test** is Welch's, on the logarithms x of the figures, with means m, sample variances v and numbers n of runs:
//!
//! ```text
//! d   = m(test) - m(base)                                 ratio = e^d, of geometric means
//! se  = sqrt(v(base) / n(base) + v(test) / n(test))
//! c   = v(base) / n(base) / se^2
//! df  = 1 / (c^2 / (n(base) - 1) + (1 - c)^2 / (n(test) - 1))         Welch and Satterthwaite
//! interval of the ratio = e^(d - t se) .. e^(d + t se),   t = t(1 - significance / 2, df)
//! ```
//!
//! Example: base 100, 102, 98; test 103, 105, 104 images/s. d = ln(103.997 / 99.987) = 0.03932, se = 0.01281, df =
//! 2.88, t(0.975, 2.88) = 3.260: the test is 4.01 % faster, 95 % interval -0.25 % .. +8.45 %.
//!
//! **Validity for 3 to 10 runs.** A run's figure is itself a mean over many iterations and therefore nearly normal; the
//! remaining skewness is similar on both sides and cancels in the difference. Student's t accounts for variances that
//! are estimated from so few runs, and Welch's method for variances that differ between the sides. Logarithms make the
//! ratio symmetric: with the sides exchanged, every figure here is the reciprocal, and throughput and time give the
//! same result. In the simulations of the tests below, intervals of 95 % contain the true value in 95 to 98 % of cases,
//! with normal noise, with heavy tails, and with one disturbed run in ten. The worst case is 93.7 %, for 3 runs against
//! 10 that are four times steadier. Two usual alternatives fail here: a rank test of 3 against 3 runs can never reach a
//! p below 0.05 (its smallest two-sided p is 2 / (6 choose 3) = 0.1), and a bootstrap can only draw the three values it
//! has, whose spread is too small. A high percentile of a short run is less normal than its mean: the verdict uses the
//! mean alone.
//!
//! **One run** on either side has no variance: there is a ratio, but no interval and no verdict.
//!
//! **Runs that are equal to the last digit** on both sides have a spread of 0, and the interval has no width. Real runs
//! never do that, copies do; [`Comparison::is_copy`] reports it.
//!
//! **The verdict** depends on where the whole interval lies relative to a noise band of differences that do not matter,
//! `1 / (1 + noise) .. 1 + noise`: wholly outside, wholly inside, or neither. "No difference" is therefore a result
//! rather than a lack of proof, and few or noisy runs give "too noisy" and never an all-clear. If nothing has changed,
//! at most `significance` of the comparisons give a wrong "faster" or "slower", and fewer with a wider band.
//!
//! **The smallest difference** that these runs would have reported as faster or slower in four of five such
//! measurements:
//!
//! ```text
//! smallest = (1 + noise) x e^((t(1 - significance / 2, df) + t(0.8, df)) se) - 1
//! ```
//!
//! Example, as above with a noise of 1 %: t(0.8, 2.88) = 0.985, 1.01 x e^(4.246 x 0.01281) - 1 = 6.65 %. The spread is
//! estimated from these runs only: in simulations the difference is found in 79 % of measurements with 10 runs per
//! side, 76 % with 5 and 70 % with 3.

use crate::stats::welch::{self, StandardError, student};

/// Share of measurements that would find [`Comparison::smallest`].
pub const POWER: f64 = 0.8;

/// Thresholds for a difference to count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// Probability that an interval misses the true value: 0.05 for intervals of 95 %.
    pub significance: f64,
    /// Largest difference that does not matter: 0.01 for 1 %.
    pub noise: f64,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds { significance: 0.05, noise: 0.01 }
    }
}

/// Comparison of two lists of runs' figures; everything is a ratio, test / base.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// Ratio of the geometric means.
    pub ratio: f64,
    /// Confidence interval of the true ratio; `None` if a side has fewer than three runs.
    pub interval: Option<Interval>,
    /// Smallest ratio above 1 (or its reciprocal below) that these runs would have detected; `None` without an
    /// interval.
    pub smallest: Option<f64>,
    /// True if each side's runs are all equal to the last digit.
    pub is_copy: bool,
}

/// A range of ratios.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "field names are self-explanatory")]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

/// Result of comparing two lists of speeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The test is faster, by more than noise.
    Faster,
    /// The test is slower, by more than noise.
    Slower,
    /// Any difference is within noise.
    NoDifference,
    /// The runs do not decide it.
    TooNoisy,
}

/// Compares figures of runs. `None` if a side is empty or has a figure that is not above zero and finite.
pub fn compare(base: &[f64], test: &[f64], thresholds: Thresholds) -> Option<Comparison> {
    let (base, test) = (logarithms(base)?, logarithms(test)?);
    let difference = welch::difference(&test, &base)?;
    let certain = 1.0 - thresholds.significance / 2.0;
    Some(Comparison {
        ratio: difference.mean.exp(),
        interval: difference.error.map(|error| {
            let margin = error.margin(1.0 - thresholds.significance);
            Interval { low: (difference.mean - margin).exp(), high: (difference.mean + margin).exp() }
        }),
        smallest: difference.error.map(|StandardError { error, freedom }| {
            (1.0 + thresholds.noise) * ((student(certain, freedom) + student(POWER, freedom)) * error).exp()
        }),
        is_copy: difference.error.is_some_and(|error| error.error == 0.0),
    })
}

impl Comparison {
    /// Returns the verdict on speeds, for which more is better.
    pub fn verdict(&self, noise: f64) -> Verdict {
        let (low, high) = (1.0 / (1.0 + noise), 1.0 + noise);
        match self.interval {
            Some(interval) if interval.low > high => Verdict::Faster,
            Some(interval) if interval.high < low => Verdict::Slower,
            Some(interval) if interval.low >= low && interval.high <= high => Verdict::NoDifference,
            _ => Verdict::TooNoisy,
        }
    }

    /// Returns the comparison of the reciprocals: of times if the figures were speeds.
    pub fn reciprocal(&self) -> Comparison {
        let turned = |interval: Interval| Interval { low: 1.0 / interval.high, high: 1.0 / interval.low };
        Comparison { ratio: 1.0 / self.ratio, interval: self.interval.map(turned), ..*self }
    }
}

/// Returns the significance per comparison that keeps the chance of any wrong verdict at `significance` (Bonferroni).
///
/// `for_all(0.05, 10) = 0.005`.
pub fn for_all(significance: f64, comparisons: usize) -> f64 {
    significance / comparisons.max(1) as f64
}

fn logarithms(figures: &[f64]) -> Option<Vec<f64>> {
    let logarithm = |figure: &f64| (figure.is_finite() && *figure > 0.0).then(|| figure.ln());
    figures.iter().map(logarithm).collect::<Option<Vec<f64>>>().filter(|figures| !figures.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::random::Random;
    use crate::stats::summary::standard_deviation;

    const FIVE_PERCENT: Thresholds = Thresholds { significance: 0.05, noise: 0.01 };

    fn close(actual: f64, expected: f64) {
        assert!((actual - expected).abs() < 1e-6 * expected.abs(), "{actual}, expected {expected}");
    }

    fn compared(base: &[f64], test: &[f64]) -> Comparison {
        compare(base, test, FIVE_PERCENT).expect("figures above zero")
    }

    fn ratio_and_interval(comparison: Comparison) -> [f64; 3] {
        let interval = comparison.interval.expect("several runs");
        [comparison.ratio, interval.low, interval.high]
    }

    /// Expected values: `scipy.stats.ttest_ind(log(test), log(base), equal_var=False)` and its `confidence_interval`,
    /// scipy 1.17.1.
    #[test]
    fn ratio_and_interval_match_scipy() {
        let worked = compared(&[100.0, 102.0, 98.0], &[103.0, 105.0, 104.0]);
        for (actual, expected) in ratio_and_interval(worked).into_iter().zip([1.04010665, 0.99754691, 1.08448217]) {
            close(actual, expected);
        }
        close(worked.smallest.expect("several runs"), 1.06646823);
        let base = [12.1, 12.4, 12.35, 11.9, 12.2, 12.6, 12.3];
        for (significance, low, high) in
            [(0.05, 0.949791106312208, 0.983205860108377), (0.01, 0.9420519263571847, 0.9912831293876154)]
        {
            let thresholds = Thresholds { significance, ..FIVE_PERCENT };
            let unequal = compare(&base, &[11.8, 11.9, 11.85], thresholds).expect("sound");
            for (actual, expected) in ratio_and_interval(unequal).into_iter().zip([0.9663540663778373, low, high]) {
                close(actual, expected);
            }
        }
    }

    /// Student's sleep data. R prints for `t.test(extra ~ group, data = sleep)`: 95 percent confidence interval
    /// -3.3654832 0.2054832, means 0.75 and 2.33.
    #[test]
    fn published_interval_is_reproduced() {
        let raised = |values: [f64; 10]| values.map(f64::exp);
        let first = raised([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]);
        let second = raised([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]);
        let logarithms = ratio_and_interval(compared(&second, &first)).map(f64::ln);
        for (actual, expected) in logarithms.into_iter().zip([-1.58, -3.3654832, 0.2054832]) {
            close(actual, expected);
        }
    }

    #[test]
    fn verdict_uses_the_whole_interval() {
        let verdict = |low: f64, high: f64| {
            let comparison = Comparison {
                ratio: (low * high).sqrt(),
                interval: Some(Interval { low, high }),
                smallest: None,
                is_copy: false,
            };
            let turned = match comparison.reciprocal().verdict(0.01) {
                Verdict::Faster => Verdict::Slower,
                Verdict::Slower => Verdict::Faster,
                other => other,
            };
            let verdict = comparison.verdict(0.01);
            assert_eq!(verdict, turned, "sides changed over");
            verdict
        };
        assert_eq!(verdict(1.011, 1.02), Verdict::Faster);
        assert_eq!(verdict(0.98, 0.989), Verdict::Slower);
        assert_eq!(verdict(0.995, 1.009), Verdict::NoDifference);
        for (low, high) in [(1.005, 1.02), (0.98, 1.0), (0.9, 1.1), (0.98, 0.995), (f64::NAN, f64::NAN)] {
            assert_eq!(verdict(low, high), Verdict::TooNoisy);
        }
    }

    #[test]
    fn swapped_sides_give_the_reciprocal() {
        let (base, test) = ([100.0, 102.0, 98.0, 99.0], [103.0, 105.0, 104.0]);
        let (there, back) = (compared(&base, &test), compared(&test, &base).reciprocal());
        for (one, other) in ratio_and_interval(there).into_iter().zip(ratio_and_interval(back)) {
            close(one, other);
        }
        assert_eq!(
            there.smallest.map(|smallest| (smallest * 1e9).round()),
            back.smallest.map(|smallest| (smallest * 1e9).round())
        );
        let inverse = |side: &[f64]| side.iter().map(|figure| 60.0 / figure).collect::<Vec<f64>>();
        for (one, other) in ratio_and_interval(there)
            .into_iter()
            .zip(ratio_and_interval(compared(&inverse(&base), &inverse(&test)).reciprocal()))
        {
            close(one, other);
        }
    }

    #[test]
    fn one_run_has_ratio_without_verdict() {
        for (base, test) in [(&[100.0][..], &[50.0][..]), (&[100.0], &[50.0, 50.0, 50.0]), (&[99.0, 101.0], &[50.0])] {
            let comparison = compared(base, test);
            assert_eq!((comparison.interval, comparison.smallest, comparison.is_copy), (None, None, false));
            assert_eq!(comparison.verdict(0.01), Verdict::TooNoisy);
            assert!((comparison.ratio - 0.5).abs() < 1e-3);
        }
    }

    #[test]
    fn identical_runs_are_copies() {
        let same = compared(&[100.0; 3], &[100.0; 4]);
        assert_eq!(ratio_and_interval(same), [1.0; 3]);
        assert!(same.is_copy && same.verdict(0.0) == Verdict::NoDifference);
        close(same.smallest.expect("several runs"), 1.01);
        let other = compared(&[100.0; 3], &[90.0; 3]);
        assert!(other.is_copy && other.verdict(0.01) == Verdict::Slower);
        // Only one side has no spread: the other determines the interval, with 2 degrees of freedom.
        let half = compared(&[100.0; 9], &[99.0, 100.0, 101.0]);
        let error = standard_deviation(&[99f64.ln(), 100f64.ln(), 101f64.ln()]).expect("three") / 3f64.sqrt();
        assert!(!half.is_copy);
        close(ratio_and_interval(half)[2] / half.ratio, (4.302652729749462 * error).exp());
    }

    /// Squares of the squared errors would underflow.
    #[test]
    fn rounding_spread_keeps_degrees_of_freedom() {
        let tiny = compared(&[1.0, 1.0 + f64::EPSILON, 1.0], &[1.0, 1.0, 1.0 + 2.0 * f64::EPSILON]);
        let [ratio, low, high] = ratio_and_interval(tiny);
        assert!(low <= ratio && ratio <= high && high - low < 1e-14, "{low} {ratio} {high}");
        assert_eq!(tiny.verdict(0.01), Verdict::NoDifference);
    }

    #[test]
    fn invalid_speeds_are_not_compared() {
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(compare(&[100.0, wrong], &[100.0], FIVE_PERCENT), None, "{wrong}");
            assert_eq!(compare(&[100.0], &[wrong], FIVE_PERCENT), None, "{wrong}");
        }
        assert_eq!(compare(&[], &[100.0], FIVE_PERCENT), None);
        assert_eq!((for_all(0.05, 10), for_all(0.05, 0)), (0.005, 0.05));
    }

    impl Random {
        /// Draws from Student's t with 3 degrees of freedom, which has no fourth moment.
        fn heavy(&mut self) -> f64 {
            let square: f64 = (0..3).map(|_| self.normal().powi(2)).sum();
            self.normal() / (square / 3.0).sqrt()
        }

        /// Draws a run that is disturbed now and then: one in ten is slower by five standard deviations.
        fn disturbed(&mut self) -> f64 {
            let step = if self.uniform() < 0.1 { -5.0 } else { 0.0 };
            self.normal() + step
        }
    }

    const TIMES: usize = 10_000;

    /// Returns the share of simulated measurements for which `holds`; `draw` makes the two sides.
    fn share(
        seed: u64,
        thresholds: Thresholds,
        draw: impl Fn(&mut Random) -> (Vec<f64>, Vec<f64>),
        holds: impl Fn(Comparison) -> bool,
    ) -> f64 {
        let mut random = Random(seed);
        let count = (0..TIMES).filter(|_| {
            let (base, test) = draw(&mut random);
            holds(compare(&base, &test, thresholds).expect("figures above zero"))
        });
        count.count() as f64 / TIMES as f64
    }

    /// Draws `runs` speeds with a mean and a coefficient of variation.
    fn speeds(random: &mut Random, noise: fn(&mut Random) -> f64, runs: usize, mean: f64, variation: f64) -> Vec<f64> {
        (0..runs).map(|_| mean * (1.0 + variation * noise(random)).max(0.01)).collect()
    }

    /// Returns the share of 95 % intervals that contain the true value. With 10,000 of them the standard error is 0.2
    /// %.
    fn coverage(noise: fn(&mut Random) -> f64, runs: (usize, usize), variation: (f64, f64)) -> f64 {
        let draw = |random: &mut Random| {
            (speeds(random, noise, runs.0, 100.0, variation.0), speeds(random, noise, runs.1, 100.0, variation.1))
        };
        let holds = |comparison: Comparison| {
            let [_, low, high] = ratio_and_interval(comparison);
            low <= 1.0 && 1.0 <= high
        };
        share(runs.0 as u64, FIVE_PERCENT, draw, holds)
    }

    /// Seeds are fixed, so that the bounds need no margin for chance. Above 95 % an interval is wider than necessary.
    #[test]
    fn interval_coverage_matches_confidence() {
        for (noise, most) in [
            (Random::normal as fn(&mut Random) -> f64, [0.97, 0.96, 0.955]),
            (Random::heavy, [0.98, 0.97, 0.965]),
            (Random::disturbed, [0.98, 0.98, 0.965]),
        ] {
            for (runs, most) in [3, 5, 10].into_iter().zip(most) {
                let coverage = coverage(noise, (runs, runs), (0.01, 0.01));
                assert!((0.948..most).contains(&coverage), "{runs} runs a side: {coverage}");
            }
        }
    }

    #[test]
    fn interval_coverage_holds_with_unequal_noise() {
        for (runs, variation) in
            [((3, 3), (0.01, 0.04)), ((3, 10), (0.01, 0.04)), ((3, 10), (0.04, 0.01)), ((5, 5), (0.01, 0.03))]
        {
            let coverage = coverage(Random::normal, runs, variation);
            assert!((0.935..0.96).contains(&coverage), "{runs:?} runs, variation {variation:?}: {coverage}");
        }
    }

    /// Expects the rate to equal the significance without a band; a band makes wrong verdicts rare.
    #[test]
    fn false_verdicts_match_the_significance() {
        let draw = |random: &mut Random| {
            (speeds(random, Random::normal, 5, 100.0, 0.01), speeds(random, Random::normal, 5, 100.0, 0.01))
        };
        for (significance, noise, rates) in
            [(0.05, 0.0, 0.04..0.055), (0.01, 0.0, 0.006..0.013), (0.05, 0.01, 0.0..0.005)]
        {
            let wrong = |comparison: Comparison| matches!(comparison.verdict(noise), Verdict::Faster | Verdict::Slower);
            let rate = share(1, Thresholds { significance, noise }, draw, wrong);
            assert!(rates.contains(&rate), "significance {significance}, noise {noise}: {rate}");
        }
    }

    /// The median of the reported smallest differences is found in four of five measurements; in fewer with few runs,
    /// which underestimate their own spread.
    #[test]
    fn smallest_difference_is_found_with_stated_power() {
        for (runs, rates) in [(3, 0.69..0.75), (5, 0.75..0.8), (10, 0.78..0.82)] {
            let draw = |random: &mut Random, slower: f64| {
                let base = speeds(random, Random::normal, runs, 100.0, 0.005);
                (base, speeds(random, Random::normal, runs, 100.0 / slower, 0.005))
            };
            let mut random = Random(2);
            let output_text = || {
                let (base, test) = draw(&mut random, 1.0);
                compared(&base, &test).smallest.expect("several runs")
            };
            let output_text: Vec<f64> = std::iter::repeat_with(output_text).take(TIMES).collect();
            let smallest = crate::stats::summary::median(&output_text).expect("many");
            let is_slower = |comparison: Comparison| comparison.verdict(0.01) == Verdict::Slower;
            let rate = share(3, FIVE_PERCENT, |random| draw(random, smallest), is_slower);
            assert!(rates.contains(&rate), "{runs} runs a side, {smallest}: {rate}");
        }
    }
}
