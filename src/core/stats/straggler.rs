//! Detection of ranks that the others wait for: each rank's own compute time against that of the others in the same
//! iteration.
//!
//! Own compute time t is the time until a rank joins the iteration's first all-reduce. It contains no wait for another
//! rank, so that a rank that only waits (a victim) cannot be named. In every iteration i
//!
//! ```text
//! q(r, i) = t(r, i) / median of t(s, i) over the other ranks s
//! noise   = 1.4826 / sqrt(2) x median over ranks r of (median over i of |q(r, i + 1) - q(r, i)|)
//! ```
//!
//! (the robust standard deviation of a difference of two, so that a rank that becomes slow in the middle of the run and
//! stays slow is not counted as noise)
//!
//! and rank r is
//!
//! - **chronic** if `q > 1 + THRESHOLD` in at least `CHRONIC_SHARE` of the iterations, and in more than chance would
//!   give a rank whose true median is exactly there: `P(Binomial(n, 1/2) >= count) < CHANCE / ranks` (a sign test,
//!   which assumes no distribution of the noise), and if the median of q is above 1 by more than `ALL_NOISE` x noise.
//!   A single iteration proves nothing here, all of them together do.
//! - **slow at times** or **once** if single iterations are beyond both the threshold and `SINGLE_NOISE` x noise, and
//!   their cost matters: `sum of (t - median of the others)` over them is at least `LOSS` of the run's time and half
//!   the time until the first all-reduce of one iteration. Once means one range of iterations, at most a tenth of them.
//!
//! The majority is the reference: if more than half of the ranks are slow, or all, none is named. Drift that all ranks
//! share cancels in the ratio.
//!
//! Example: own times of four ranks (ms) are 100, 102, 193, 98 in each of 20 iterations. Rank 2: the others' median is
//! 100, q = 1.93, slow in 20 of 20 iterations; chance 2^-20 = 1e-6 < 0.01 / 4: chronic, 1.93 times. Rank 1: the others'
//! median is 100, q = 1.02: not slow.

use std::cell::LazyCell;
use std::cmp::Ordering;

use crate::stats::counts::binomial_tail;
use crate::stats::summary::{mean, median};

/// Excess over the others from which a rank is slow. All ranks wait for the slowest, so that this share of all compute
/// time is lost; GPUs of one model differ by a few percent and must not be named for it.
pub const THRESHOLD: f64 = 0.05;

/// Share of slow iterations from which a rank is chronic. More than one half: the sign test assumes independent
/// iterations, but other work on a host comes in bursts.
pub const CHRONIC_SHARE: f64 = 2.0 / 3.0;

/// Probability of naming a rank in a run in which none is slow: one in a hundred, over all its ranks.
pub const CHANCE: f64 = 0.01;

/// Required excess of the median over iterations above 1, in standard deviations of one iteration. Far more than its
/// own error, because on a host with other work two equal ranks can differ by nearly one for minutes (measured).
pub const ALL_NOISE: f64 = 1.5;

/// Number of standard deviations from which a single iteration counts: 100 iterations of 32 ranks are thousands of
/// comparisons, and tails are heavier than a normal distribution's.
pub const SINGLE_NOISE: f64 = 6.0;

/// Share of the run that single slow iterations must cost to be worth a warning.
pub const LOSS: f64 = 0.01;

/// Factor from the median absolute deviation to a standard deviation, for normal noise.
pub const MAD_TO_DEVIATION: f64 = 1.4826;

/// Pattern of a rank's slow iterations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StragglerKind {
    /// Slow in most iterations.
    Chronic,
    /// Slow in scattered iterations.
    Occasional,
    /// Slow in one range of iterations.
    Once,
}

/// A rank that the others wait for.
#[derive(Debug, Clone, PartialEq)]
pub struct Straggler {
    /// Index in the lists.
    pub rank: usize,
    /// Pattern of its slow iterations.
    pub kind: StragglerKind,
    /// Indices of its slow iterations.
    pub iterations: Vec<usize>,
    /// Share of its slow iterations, 0 to 1.
    pub share: f64,
    /// Median of q: over all iterations if chronic, otherwise over the slow ones.
    pub factor: f64,
    /// Exposed all-reduce of the others (their median) minus its own, mean over its slow iterations, in seconds: the
    /// time that the others waited for it. 0 if none waits.
    pub wait: f64,
}

/// Returns the stragglers in rank order. `own` and `exposed` are `[rank][iteration]` in seconds, own compute time and
/// exposed all-reduce; `step` is the time of each iteration.
pub fn stragglers(own: &[Vec<f64>], exposed: &[Vec<f64>], step: &[f64]) -> Vec<Straggler> {
    if own.len() < 2 {
        return Vec::new();
    }
    let others = medians_of_others(own);
    let ratios: Vec<Vec<f64>> = own.iter().zip(&others).map(|(own, others)| divided(own, others)).collect();
    let noises: Vec<f64> = ratios.iter().filter_map(|ratios| noise(ratios)).collect();
    let noise = median(&noises).unwrap_or(0.0);
    // Computed on demand: most runs have no straggler.
    let others_exposed = LazyCell::new(|| medians_of_others(exposed));
    let found = |rank: usize| {
        let ratios = &ratios[rank];
        let slow_beyond =
            |limit: f64| -> Vec<usize> { (0..ratios.len()).filter(|iteration| ratios[*iteration] > limit).collect() };
        let slow = slow_beyond(1.0 + THRESHOLD);
        let stands_out = median(ratios)? - 1.0 > ALL_NOISE * noise;
        let (kind, slow) = if stands_out && is_chronic(slow.len(), ratios.len(), own.len()) {
            (StragglerKind::Chronic, slow)
        } else {
            let slow = slow_beyond(1.0 + THRESHOLD.max(SINGLE_NOISE * noise));
            let lost: f64 = slow.iter().map(|iteration| own[rank][*iteration] - others[rank][*iteration]).sum();
            let enough = (LOSS * step.iter().sum::<f64>()).max(0.5 * median(&others[rank])?);
            if slow.is_empty() || ratios.len() < fewest_iterations(own.len()) || lost < enough {
                return None;
            }
            (if is_once(&slow, ratios.len()) { StragglerKind::Once } else { StragglerKind::Occasional }, slow)
        };
        let judged: Vec<f64> = match kind {
            StragglerKind::Chronic => ratios.clone(),
            _ => slow.iter().map(|iteration| ratios[*iteration]).collect(),
        };
        let wait = |iteration: &usize| (others_exposed[rank][*iteration] - exposed[rank][*iteration]).max(0.0);
        Some(Straggler {
            rank,
            kind,
            share: slow.len() as f64 / ratios.len() as f64,
            factor: median(&judged)?,
            wait: mean(&slow.iter().map(wait).collect::<Vec<f64>>())?,
            iterations: slow,
        })
    };
    (0..own.len()).filter_map(found).collect()
}

/// Returns the robust standard deviation, `1.4826 x median(|x - median(x)|)`, which single outliers hardly change.
/// `None` for an empty list.
///
/// `deviation([1, 2, 3, 4, 90]) = 1.4826 x median(2, 1, 0, 1, 87) = 1.4826`.
pub fn deviation(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    Some(MAD_TO_DEVIATION * median(&distances)?)
}

fn noise(ratios: &[f64]) -> Option<f64> {
    let differences: Vec<f64> = ratios.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    Some(MAD_TO_DEVIATION * median(&differences)? / 2f64.sqrt())
}

fn is_chronic(slow: usize, iterations: usize, ranks: usize) -> bool {
    slow as f64 >= CHRONIC_SHARE * iterations as f64 && binomial_tail(iterations, 0.5, slow) < CHANCE / ranks as f64
}

/// Returns the number of iterations below which no rank stands out from chance, even if it is slow in all of them.
fn fewest_iterations(ranks: usize) -> usize {
    (ranks as f64 / CHANCE).log2().ceil() as usize
}

/// Returns true if the iterations are consecutive and few.
fn is_once(slow: &[usize], iterations: usize) -> bool {
    let is_one_stretch = slow.windows(2).all(|pair| pair[1] == pair[0] + 1);
    is_one_stretch && slow.len() <= (iterations / 10).max(1)
}

/// Returns the median of the other ranks' times, `[rank][iteration]` like `times`. Linear in the ranks: the median of
/// the others is one of the middle values of all.
fn medians_of_others(times: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut medians = vec![Vec::with_capacity(times[0].len()); times.len()];
    let mut values = Vec::with_capacity(times.len());
    for iteration in 0..times[0].len() {
        values.clear();
        values.extend(times.iter().map(|times| times[iteration]));
        let others = values.len() - 1;
        let first = (others - 1) / 2;
        let (_, _, above) = values.select_nth_unstable_by(first, f64::total_cmp);
        if above.len() > 1 {
            let (_, _, above) = above.select_nth_unstable_by(0, f64::total_cmp);
            above.select_nth_unstable_by(0, f64::total_cmp);
        }
        let sorted = &values[..values.len().min(first + 3)];
        for (times, medians) in times.iter().zip(&mut medians) {
            // Index in the order without this rank, whose own value moves all above it down by one.
            let at = |middle: usize| match times[iteration].total_cmp(&sorted[middle]) {
                Ordering::Greater => sorted[middle],
                _ => sorted[middle + 1],
            };
            medians.push((at(first) + at(others / 2)) / 2.0);
        }
    }
    medians
}

fn divided(times: &[f64], by: &[f64]) -> Vec<f64> {
    times.iter().zip(by).map(|(time, by)| if *by > 0.0 { time / by } else { 1.0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::random::Random;

    /// Simulates `ranks` whose own time is 0.1 s with normal noise of `cv`, times `factor` of rank and iteration. The
    /// exposed all-reduce is the wait for the slowest rank.
    fn run(
        (ranks, iterations): (usize, usize),
        cv: f64,
        seed: u64,
        factor: impl Fn(usize, usize) -> f64,
    ) -> Vec<Straggler> {
        let mut noise = Random(seed);
        let mut own = vec![Vec::new(); ranks];
        for iteration in 0..iterations {
            for (rank, times) in own.iter_mut().enumerate() {
                times.push(0.1 * factor(rank, iteration) * (1.0 + cv * noise.normal()).max(0.1));
            }
        }
        judged(&own)
    }

    #[test]
    fn medians_of_others_match_sorting() {
        let mut random = Random(7);
        for ranks in 2..12 {
            let times: Vec<Vec<f64>> =
                (0..ranks).map(|_| (0..40).map(|_| (random.normal() * 3.0).round()).collect()).collect();
            for (rank, found) in medians_of_others(&times).into_iter().enumerate() {
                for (iteration, found) in found.into_iter().enumerate() {
                    let others = (0..ranks).filter(|other| *other != rank).map(|other| times[other][iteration]);
                    let expected = median(&others.collect::<Vec<f64>>()).expect("others");
                    assert_eq!(found, expected, "rank {rank} of {ranks}, iteration {iteration}");
                }
            }
        }
    }

    fn judged(own: &[Vec<f64>]) -> Vec<Straggler> {
        let slowest: Vec<f64> =
            (0..own[0].len()).map(|index| own.iter().map(|times| times[index]).fold(0.0, f64::max)).collect();
        let exposed: Vec<Vec<f64>> = own
            .iter()
            .map(|times| times.iter().zip(&slowest).map(|(own, slowest)| slowest - own + 0.01).collect())
            .collect();
        let step: Vec<f64> = slowest.iter().map(|slowest| slowest + 0.07).collect();
        stragglers(own, &exposed, &step)
    }

    fn kinds(found: &[Straggler]) -> Vec<(usize, StragglerKind)> {
        found.iter().map(|straggler| (straggler.rank, straggler.kind)).collect()
    }

    #[test]
    fn worked_number_is_reproduced() {
        let own: Vec<Vec<f64>> = [0.100, 0.102, 0.193, 0.098].into_iter().map(|time| vec![time; 20]).collect();
        let found = judged(&own);
        assert_eq!(kinds(&found), [(2, StragglerKind::Chronic)]);
        assert_eq!((found[0].share, found[0].iterations.len()), (1.0, 20));
        assert!((found[0].factor - 1.93).abs() < 1e-12, "{found:?}");
        // The others finish 93 ms (their median) earlier.
        assert!((found[0].wait - 0.093).abs() < 1e-12, "{found:?}");
        assert!((deviation(&[1.0, 2.0, 3.0, 4.0, 90.0]).expect("a list") - 1.4826).abs() < 1e-12);
    }

    #[test]
    fn chronic_ranks_are_named_without_waiting_ranks() {
        for ranks in [2, 3, 4, 8, 32] {
            for (slower, cv) in [(1.1, 0.01), (1.1, 0.03), (2.0, 0.05)] {
                for seed in 0..20 {
                    let factor = |rank: usize, _| if rank == 1 { slower } else { 1.0 };
                    let found = run((ranks, 100), cv, seed, factor);
                    assert_eq!(
                        kinds(&found),
                        [(1, StragglerKind::Chronic)],
                        "{ranks} ranks, {slower} times, seed {seed}"
                    );
                    assert!((found[0].factor / slower - 1.0).abs() < 0.05, "{found:?}");
                    let lost = 0.1 * (slower - 1.0);
                    assert!((found[0].wait / lost - 1.0).abs() < 0.3, "{lost}: {found:?}");
                }
            }
        }
        // Ten iterations are enough for an obvious case.
        let found = run((2, 10), 0.02, 1, |rank, _| if rank == 0 { 1.5 } else { 1.0 });
        assert_eq!(kinds(&found), [(0, StragglerKind::Chronic)]);
    }

    #[test]
    fn noise_gives_no_stragglers() {
        for (ranks, iterations, seeds) in
            [(8, 100, 300), (2, 100, 300), (2, 10, 1000), (4, 20, 300), (3, 40, 300), (32, 100, 20)]
        {
            for seed in 0..seeds {
                let found = run((ranks, iterations), 0.05, seed, |_, _| 1.0);
                assert_eq!(found, [], "{ranks} ranks, {iterations} iterations, seed {seed}");
            }
        }
    }

    /// On any rank, one iteration in twenty takes a third longer: a machine with other work.
    #[test]
    fn common_hiccups_give_no_stragglers() {
        for seed in 0..200 {
            let mut hiccup = Random(!seed);
            let table: Vec<Vec<f64>> =
                (0..8).map(|_| (0..100).map(|_| if hiccup.uniform() < 0.05 { 1.33 } else { 1.0 }).collect()).collect();
            let found = run((8, 100), 0.02, seed, |rank, iteration| table[rank][iteration]);
            let cost = |straggler: &Straggler| 0.033 * straggler.iterations.len() as f64;
            // A rank with twice as many as the others may be reported as slow at times, if they cost 1 % of the run:
            // 0.17 s.
            assert!(
                found.iter().all(|rank| rank.kind != StragglerKind::Chronic && cost(rank) > 0.17),
                "{seed}: {found:?}"
            );
        }
    }

    #[test]
    fn single_and_chronic_cases_are_distinguished() {
        for ranks in [2, 8] {
            let found = run((ranks, 100), 0.02, 7, |rank, index| if (rank, index) == (1, 57) { 10.0 } else { 1.0 });
            assert_eq!(kinds(&found), [(1, StragglerKind::Once)]);
            assert_eq!((found[0].iterations.as_slice(), found[0].share), (&[57][..], 0.01));
            assert!((found[0].factor / 10.0 - 1.0).abs() < 0.1 && (found[0].wait / 0.9 - 1.0).abs() < 0.1, "{found:?}");
        }
        // A single iteration with a negligible cost.
        assert_eq!(run((8, 100), 0.02, 7, |rank, index| if (rank, index) == (1, 57) { 1.3 } else { 1.0 }), []);
        let at_times = |rank: usize, index: usize| if rank == 1 && index.is_multiple_of(5) { 1.5 } else { 1.0 };
        let found = run((8, 100), 0.02, 7, at_times);
        assert_eq!(kinds(&found), [(1, StragglerKind::Occasional)]);
        assert_eq!(found[0].share, 0.2);
    }

    #[test]
    fn all_ranks_of_a_slow_host_are_named() {
        for ranks in [4, 8] {
            let found =
                run((ranks, 100), 0.03, 3, |rank, _| if rank >= ranks - 2 && rank >= ranks / 2 { 1.4 } else { 1.0 });
            assert_eq!(kinds(&found), [(ranks - 2, StragglerKind::Chronic), (ranks - 1, StragglerKind::Chronic)]);
        }
        // Half of all ranks.
        let found = run((8, 100), 0.03, 3, |rank, _| if rank >= 4 { 1.4 } else { 1.0 });
        assert_eq!(found.iter().map(|straggler| straggler.rank).collect::<Vec<_>>(), [4, 5, 6, 7]);
    }

    /// Two equal ranks on a host with other work: each has bursts, and one is less lucky. The ratios resemble those
    /// measured with two ranks and eight other processes on two cores, three times.
    #[test]
    fn chance_on_a_busy_host_is_not_a_straggler() {
        let ratios = [
            0.88, 0.88, 0.92, 0.90, 0.81, 1.57, 0.47, 0.87, 0.74, 1.00, 0.64, 0.84, 0.79, 0.88, 0.91, 1.10, 2.49, 0.97,
            0.92, 0.97, 0.83, 0.77, 0.74, 0.90, 1.01, 0.85, 1.12, 0.94, 1.08, 0.70,
        ];
        let own = [ratios.map(|ratio| 0.2 * ratio).repeat(3), vec![0.2; 90]];
        // The second was slower by more than the threshold in two thirds of the iterations, and not by chance.
        let slow = ratios.iter().filter(|ratio| 1.0 / **ratio > 1.0 + THRESHOLD).count() * 3;
        assert!(is_chronic(slow, 90, 2), "{slow}");
        assert!(judged(&own).iter().all(|found| found.kind != StragglerKind::Chronic), "{:?}", judged(&own));
    }

    #[test]
    fn common_slowdown_gives_no_stragglers() {
        assert_eq!(run((1, 100), 0.05, 1, |_, _| 3.0), []);
        assert_eq!(run((8, 100), 0.02, 1, |_, _| 3.0), []);
        assert_eq!(run((8, 100), 0.02, 1, |_, index| 1.0 + index as f64 / 100.0), []);
        assert_eq!(run((8, 100), 0.02, 1, |_, index| if index == 50 { 10.0 } else { 1.0 }), []);
        assert_eq!(stragglers(&[], &[], &[]), []);
        assert_eq!(judged(&[vec![], vec![]]), []);
        assert_eq!(judged(&[vec![0.0; 20], vec![0.0; 20]]), []);
    }

    #[test]
    fn drifting_rank_is_named() {
        let found = run((4, 100), 0.02, 1, |rank, index| if rank == 3 { 1.0 + 0.3 * index as f64 / 99.0 } else { 1.0 });
        assert_eq!(kinds(&found), [(3, StragglerKind::Chronic)]);
        assert!((0.7..0.95).contains(&found[0].share), "{found:?}");
        // Slow from the middle on: too often for once, too seldom for chronic.
        for ranks in [2, 4] {
            let late = |rank: usize, index: usize| if rank == 1 && index >= 50 { 1.4 } else { 1.0 };
            assert_eq!(kinds(&run((ranks, 100), 0.02, 1, late)), [(1, StragglerKind::Occasional)]);
        }
    }

    #[test]
    fn few_iterations_give_no_stragglers() {
        assert_eq!(run((2, 7), 0.01, 1, |rank, _| if rank == 1 { 3.0 } else { 1.0 }), []);
        assert_eq!(run((2, 7), 0.01, 1, |rank, index| if (rank, index) == (1, 3) { 9.0 } else { 1.0 }), []);
        assert_eq!((fewest_iterations(2), fewest_iterations(32)), (8, 12));
    }
}
