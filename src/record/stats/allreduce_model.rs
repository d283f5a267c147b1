//! How long an all-reduce takes in cases that were not measured: latency and bandwidth of one level of locality (inside a
//! host, between hosts), and how a time that was measured in smaller cases may grow. Not for steps of training as a whole.
//!
//! **The line.** n ranks on k hosts reduce S bytes in
//!
//! ```text
//! t(S) = latency x steps + volume x S / bandwidth      steps   volume
//!     ring over all ranks                              2(n-1)  2(n-1)/n
//!     the ranks of a host in its memory, then a ring   2(k-1)  2(k-1)/k      (k > 1; in one host as the ring)
//! ```
//!
//! A ring goes as fast as its slowest link, so that one line holds for a level: all cases in one host, or all cases of
//! several. Latency and 1 / bandwidth are least squares of the *relative* error over all measured sizes,
//! `min sum((t(S_i) - y_i) / y_i)^2` with neither below 0, so that the few microseconds of 8 bytes count as much as the
//! milliseconds of 128 MB. An engine that sums in pieces, one after the other, pays the latency for each.
//!
//! Worked: 8 ranks of one host, 4 MB, 5 us, 10 GB/s: `14 x 5 us + 1.75 x 4 MB / 10 GB/s = 70 + 700 = 770 us`.
//!
//! **The trend.** What was measured in a reference case grows to a larger one by one of two laws, or by any mixture of
//! them: `value = slow + mix x (fast - slow)`, mix from 0 to 1. Other measured cases allow only some mixtures (those that
//! meet their values within their margins), and only these make the band. Where none does, the distance of the nearest,
//! over the doublings of ranks between the two, is added to both sides for each doubling that follows.
//!
//! Worked: 12 ms at 4 hosts; slow is constant, fast doubles with the hosts: at 8 hosts 12 to 24 ms. At 2 hosts it was
//! 9 ms +- 0.6: of fast (6 ms) and slow (12 ms) the mixtures from 0.4 to 0.6 meet it; at 8 hosts that is 16.8 to 19.2 ms.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use crate::case::Case;
use crate::units::Bytes;

/// Who sends to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// One ring over all ranks.
    Ring,
    /// The ranks of a host in its memory, then a ring over the hosts.
    Hosts,
}

/// How an engine reduces.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exchange {
    /// Who sends to whom.
    pub algorithm: Algorithm,
    /// Longest stretch that goes at once, where the next waits for it.
    pub piece: Option<Bytes>,
}

/// What some messages cost in one case, whatever the machine.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Steps, one after the other, of all messages.
    pub steps: f64,
    /// Bytes that the busiest link carries.
    pub bytes: f64,
}

impl Algorithm {
    /// Steps of one message.
    pub fn steps(self, case: Case) -> f64 {
        2.0 * (f64::from(self.members(case)) - 1.0)
    }

    /// Share of a message that the busiest link carries.
    pub fn volume(self, case: Case) -> f64 {
        self.steps(case) / f64::from(self.members(case))
    }

    /// Of the ring.
    fn members(self, case: Case) -> u32 {
        match self {
            Algorithm::Hosts if case.nodes > 1 => case.nodes,
            _ => case.ranks(),
        }
    }
}

impl Exchange {
    /// Of the engine that a record names; `piece` as it was configured.
    pub fn of_engine(name: &str, piece: Bytes) -> Exchange {
        match name {
            // Its pieces are under way together.
            "shared-memory" => Exchange { algorithm: Algorithm::Hosts, piece: None },
            "mpi" => Exchange { algorithm: Algorithm::Ring, piece: Some(piece).filter(|piece| piece.0 > 0) },
            _ => Exchange { algorithm: Algorithm::Ring, piece: None },
        }
    }

    /// Of messages of these sizes, one after the other.
    pub fn cost(&self, case: Case, messages: &[Bytes]) -> Cost {
        let pieces = |size: &Bytes| self.piece.map_or(1, |piece| size.0.div_ceil(piece.0).max(1));
        let bytes: u64 = messages.iter().map(|size| size.0).sum();
        Cost {
            steps: self.algorithm.steps(case) * messages.iter().map(pieces).sum::<u64>() as f64,
            bytes: self.algorithm.volume(case) * bytes as f64,
        }
    }
}

/// Latency and bandwidth of one level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Seconds of one step.
    pub latency: f64,
    /// Seconds of one byte on the busiest link: 1 / bandwidth.
    pub per_byte: f64,
    /// Root mean square of the relative errors, by degrees of freedom.
    pub residual: f64,
    /// Of latency and `per_byte`.
    covariance: [[f64; 2]; 2],
    /// Degrees of freedom.
    freedom: f64,
}

impl Line {
    /// Of measured costs and their seconds; `None` with fewer than three, or all of one size.
    pub fn fit(samples: &[(Cost, f64)]) -> Option<Line> {
        let rows: Vec<[f64; 2]> = samples.iter().map(|(cost, time)| [cost.steps / time, cost.bytes / time]).collect();
        let sum = |term: fn(&[f64; 2]) -> f64| rows.iter().map(term).sum::<f64>();
        let (aa, ab, bb) = (sum(|row| row[0] * row[0]), sum(|row| row[0] * row[1]), sum(|row| row[1] * row[1]));
        let (a, b) = (sum(|row| row[0]), sum(|row| row[1]));
        let determinant = aa * bb - ab * ab;
        if samples.len() < 3 || determinant.is_nan() || determinant <= 1e-9 * aa * bb {
            return None;
        }
        let both = ((a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant);
        let (latency, per_byte) = match both {
            (latency, _) if latency < 0.0 => (0.0, b / bb),
            (_, per_byte) if per_byte < 0.0 => (a / aa, 0.0),
            both => both,
        };
        let freedom = (samples.len() - 2) as f64;
        let squares = rows.iter().map(|row| (latency * row[0] + per_byte * row[1] - 1.0).powi(2)).sum::<f64>();
        let variance = squares / freedom;
        let inverse = [[bb, -ab], [-ab, aa]].map(|row| row.map(|entry| variance * entry / determinant));
        Some(Line { latency, per_byte, residual: variance.sqrt(), covariance: inverse, freedom })
    }

    /// Seconds.
    pub fn time(&self, cost: Cost) -> f64 {
        self.latency * cost.steps + self.per_byte * cost.bytes
    }

    /// How far the true line may be from [`time`](Line::time), in seconds, with 95 % confidence: Student's t times the
    /// standard error of `latency x steps + per_byte x bytes`.
    pub fn margin(&self, cost: Cost) -> f64 {
        let [[aa, ab], [_, bb]] = self.covariance;
        let squared = cost.steps * cost.steps * aa + 2.0 * cost.steps * cost.bytes * ab + cost.bytes * cost.bytes * bb;
        student(self.freedom) * squared.max(0.0).sqrt()
    }
}

impl std::ops::Sub for Cost {
    type Output = Cost;

    fn sub(self, other: Cost) -> Cost {
        Cost { steps: self.steps - other.steps, bytes: self.bytes - other.bytes }
    }
}

/// Quantile of Student's t for a two-sided 95 %; infinite without a degree of freedom.
pub fn student(freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |student| student.inverse_cdf(0.975))
}

/// Expected largest of n independent standard normal values, `integral over x of x n phi(x) Phi(x)^(n - 1)`: who waits for
/// the slowest of n ranks of equal spread waits this many standard deviations.
///
/// `expected_maximum(2) = 1 / sqrt(pi) = 0.5642`, `expected_maximum(100) = 2.5076`.
pub fn expected_maximum(count: u32) -> f64 {
    const LIMIT: f64 = 9.0;
    const STEPS: u32 = 9000;
    let normal = Normal::standard();
    let width = 2.0 * LIMIT / f64::from(STEPS);
    // By parts: what lies above 0 less what lies below, each by the midpoint rule.
    let term = |step: u32| {
        let x = (f64::from(step) + 0.5) * width - LIMIT;
        let below = normal.cdf(x).powf(f64::from(count.max(1)));
        if x > 0.0 { 1.0 - below } else { -below }
    };
    width * (0..STEPS).map(term).sum::<f64>()
}

/// A range, and its middle.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Band {
    /// Smallest.
    pub low: f64,
    /// Half way.
    pub mid: f64,
    /// Largest.
    pub high: f64,
}

impl Band {
    /// Between two values in any order.
    pub fn between(one: f64, other: f64) -> Band {
        let (low, high) = (one.min(other), one.max(other));
        Band { low, mid: 0.5 * (low + high), high }
    }

    /// Wider by this on both sides.
    pub fn widened(self, by: f64) -> Band {
        Band { low: self.low - by, mid: self.mid, high: self.high + by }
    }
}

/// A time in one case, as it was measured and as the two laws have it that meet at the reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observed {
    /// Ranks of the case.
    pub ranks: u32,
    /// Measured, in seconds.
    pub value: f64,
    /// 95 % margin of it and the reference's together; infinite where that is not known.
    pub margin: f64,
    /// By the slow law.
    pub slow: f64,
    /// By the fast law.
    pub fast: f64,
}

/// Which mixtures of two laws the measured cases allow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// Smallest and largest.
    pub mixes: (f64, f64),
    /// Seconds, for each doubling of ranks, that no mixture explains.
    pub unexplained: f64,
    reference_ranks: u32,
}

impl Trend {
    /// From a reference of so many ranks, where the laws meet, and other cases.
    pub fn new(reference_ranks: u32, others: &[Observed]) -> Trend {
        let mut trend = Trend { mixes: (0.0, 1.0), unexplained: 0.0, reference_ranks };
        for case in others.iter().filter(|case| case.ranks != reference_ranks) {
            let range = case.fast - case.slow;
            let mix_of = |value: f64| if range == 0.0 { f64::NAN } else { (value - case.slow) / range };
            let ends = (mix_of(case.value - case.margin), mix_of(case.value + case.margin));
            let (first, last) = (ends.0.min(ends.1), ends.0.max(ends.1));
            let (low, high) = trend.mixes;
            if first <= high && last >= low {
                trend.mixes = (low.max(first), high.min(last));
                continue;
            }
            // Laws that are one here allow all mixtures; whether the case is off shows below.
            let nearest = if range == 0.0 {
                low
            } else if first > high {
                high
            } else {
                low
            };
            let off = (case.value - (case.slow + nearest * range)).abs() - case.margin;
            if range != 0.0 {
                trend.mixes = (nearest, nearest);
            }
            trend.unexplained = trend.unexplained.max(off.max(0.0) / trend.doublings(case.ranks));
        }
        trend
    }

    /// At a case of so many ranks, where the laws have these values.
    pub fn at(&self, ranks: u32, slow: f64, fast: f64) -> Band {
        let value = |mix: f64| slow + mix * (fast - slow);
        Band::between(value(self.mixes.0), value(self.mixes.1)).widened(self.unexplained * self.doublings(ranks))
    }

    /// Between the reference and so many ranks.
    fn doublings(&self, ranks: u32) -> f64 {
        (f64::from(ranks) / f64::from(self.reference_ranks)).log2().abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EIGHT: Case = Case { nodes: 1, gpus_per_node: 8 };
    const TWO_HOSTS: Case = Case { nodes: 2, gpus_per_node: 8 };
    const FOUR_HOSTS: Case = Case { nodes: 4, gpus_per_node: 8 };
    const RING: Exchange = Exchange { algorithm: Algorithm::Ring, piece: None };

    fn close(actual: f64, expected: f64) {
        assert!((actual - expected).abs() < 1e-9 * expected.abs().max(1e-12), "{actual}, expected {expected}");
    }

    fn line(latency: f64, bandwidth: f64) -> Line {
        let per_byte = 1.0 / bandwidth;
        Line { latency, per_byte, residual: 0.0, covariance: [[0.0; 2]; 2], freedom: 1.0 }
    }

    #[test]
    fn the_worked_line_holds() {
        close(line(5e-6, 10e9).time(RING.cost(EIGHT, &[Bytes(4_000_000)])), 770e-6);
    }

    #[test]
    fn each_algorithm_has_its_steps_and_volume() {
        let of = |algorithm: Algorithm, case| (algorithm.steps(case), algorithm.volume(case));
        assert_eq!(of(Algorithm::Ring, TWO_HOSTS), (30.0, 1.875));
        assert_eq!(of(Algorithm::Hosts, TWO_HOSTS), (2.0, 1.0));
        assert_eq!(of(Algorithm::Hosts, FOUR_HOSTS), (6.0, 1.5));
        assert_eq!(of(Algorithm::Hosts, EIGHT), of(Algorithm::Ring, EIGHT));
        let mpi = Exchange::of_engine("mpi", Bytes(1_000_000));
        let cost = mpi.cost(EIGHT, &[Bytes(2_500_000), Bytes(8)]);
        assert_eq!((cost.steps, cost.bytes), (4.0 * 14.0, 1.75 * 2_500_008.0));
        assert_eq!(Exchange::of_engine("mpi", Bytes(0)).piece, None);
        assert_eq!(Exchange::of_engine("nccl", Bytes(1_000_000)), RING);
    }

    fn sizes() -> impl Iterator<Item = Bytes> {
        (3..28).map(|power| Bytes(1 << power))
    }

    #[test]
    fn a_line_is_found_again_from_its_times() {
        let truth = line(12e-6, 3e9);
        let mut samples: Vec<(Cost, f64)> = Vec::new();
        for case in [TWO_HOSTS, FOUR_HOSTS] {
            samples.extend(sizes().map(|size| RING.cost(case, &[size])).map(|cost| (cost, truth.time(cost))));
        }
        let fit = Line::fit(&samples).expect("many sizes");
        assert!((fit.latency / 12e-6 - 1.0).abs() < 1e-9 && (fit.per_byte * 3e9 - 1.0).abs() < 1e-9, "{fit:?}");
        assert!(fit.residual < 1e-9 && fit.margin(samples[30].0) < 1e-9 * samples[30].1);
    }

    #[test]
    fn small_sizes_count_as_much_as_large_ones() {
        // Absolute errors would leave the latency to the noise of the largest size.
        let truth = line(12e-6, 3e9);
        let noise = |index: usize| 1.0 + 0.05 * [1.0, -1.0, 0.5, -0.5][index % 4];
        let samples: Vec<(Cost, f64)> = sizes()
            .map(|size| RING.cost(TWO_HOSTS, &[size]))
            .enumerate()
            .map(|(index, cost)| (cost, truth.time(cost) * noise(index)))
            .collect();
        let fit = Line::fit(&samples).expect("many sizes");
        assert!((fit.latency / 12e-6 - 1.0).abs() < 0.03 && (fit.per_byte * 3e9 - 1.0).abs() < 0.03, "{fit:?}");
        assert!((0.03..0.05).contains(&fit.residual), "{fit:?}");
        let bucket = RING.cost(FOUR_HOSTS, &[Bytes(25_000_000)]);
        let off = (fit.time(bucket) - truth.time(bucket)).abs();
        assert!(off < fit.margin(bucket) && fit.margin(bucket) < 0.05 * truth.time(bucket), "{off}: {fit:?}");
    }

    #[test]
    fn what_says_nothing_of_both_has_no_line() {
        let cost = RING.cost(EIGHT, &[Bytes(1 << 20)]);
        assert_eq!(Line::fit(&[]), None);
        assert_eq!(Line::fit(&[(cost, 1e-3); 5]), None);
        // Times that do not grow with the size have no bandwidth, and times in proportion to it no latency.
        let flat: Vec<(Cost, f64)> = sizes().take(12).map(|size| (RING.cost(EIGHT, &[size]), 1e-3)).collect();
        let fit = Line::fit(&flat).expect("many sizes");
        assert!(fit.latency > 0.0 && fit.per_byte >= 0.0, "{fit:?}");
        let steep: Vec<(Cost, f64)> =
            sizes().map(|size| RING.cost(EIGHT, &[size])).map(|cost| (cost, cost.bytes.powf(1.2))).collect();
        assert_eq!(Line::fit(&steep).expect("many sizes").latency, 0.0);
    }

    #[test]
    fn the_expected_maximum_is_that_of_normal_values() {
        // scipy.integrate.quad(lambda x: x * n * norm.pdf(x) * norm.cdf(x) ** (n - 1), -12, 12)
        let expected = [(1, 0.0), (2, 0.56419), (10, 1.53875), (32, 2.06967), (100, 2.50759), (4096, 3.62608)];
        for (count, expected) in expected {
            let actual = expected_maximum(count);
            assert!((actual - expected).abs() < 1e-5, "{count}: {actual}");
        }
    }

    #[test]
    fn the_worked_trend_holds() {
        let at_two_hosts = Observed { ranks: 16, value: 9e-3, margin: 0.6e-3, slow: 12e-3, fast: 6e-3 };
        let trend = Trend::new(32, &[at_two_hosts]);
        close(trend.mixes.0, 0.4);
        close(trend.mixes.1, 0.6);
        let band = trend.at(64, 12e-3, 24e-3);
        close(band.low, 16.8e-3);
        close(band.mid, 18e-3);
        close(band.high, 19.2e-3);
        assert_eq!(Trend::new(32, &[]).at(64, 12e-3, 24e-3), Band::between(24e-3, 12e-3));
    }

    #[test]
    fn what_no_mixture_explains_widens_the_band() {
        // Twice as fast as the fast law from 16 to 32 ranks: 3 ms where it has 6.
        let off = Observed { ranks: 16, value: 3e-3, margin: 1e-3, slow: 12e-3, fast: 6e-3 };
        let trend = Trend::new(32, &[off]);
        assert_eq!(trend.mixes, (1.0, 1.0));
        close(trend.unexplained, 2e-3);
        let band = trend.at(128, 12e-3, 48e-3);
        close(band.low, 44e-3);
        close(band.high, 52e-3);
        // Laws that do not differ there allow all, or say by how much they are off.
        let same = |value| Trend::new(32, &[Observed { ranks: 16, value, margin: 1e-3, slow: 6e-3, fast: 6e-3 }]);
        assert_eq!((same(6.5e-3).mixes, same(6.5e-3).unexplained), ((0.0, 1.0), 0.0));
        close(same(9e-3).unexplained, 2e-3);
        // A margin that is not known allows all.
        let unknown = Observed { margin: f64::INFINITY, ..off };
        assert_eq!(Trend::new(32, &[unknown]).mixes, (0.0, 1.0));
    }
}
