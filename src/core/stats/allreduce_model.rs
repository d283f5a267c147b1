//! Model of the time of an all-reduce in cases that were not measured: latency and bandwidth of one level of locality
//! (within a host, between hosts), and bounds for the growth of a time that was measured in smaller cases. It does not
//! model whole training steps.
//!
//! **The line.** n ranks on k hosts reduce S bytes in
//!
//! ```text
//! t(S) = latency x steps + volume x S / bandwidth      steps   volume
//!     ring over all ranks                              2(n-1)  2(n-1)/n
//!     the ranks of a host in its memory, then a ring   2(k-1)  2(k-1)/k      (k > 1; in one host as the ring)
//! ```
//!
//! A ring is as fast as its slowest link, so that one line covers a level: all cases within one host, or all cases of
//! several hosts. Latency and 1 / bandwidth are the least-squares solution for the *relative* error over all measured
//! sizes, `min sum((t(S_i) - y_i) / y_i)^2` with neither below 0, so that the few microseconds of 8 bytes weigh as much
//! as the milliseconds of 128 MB. A backend that sums in sequential chunks pays the latency for each chunk. An all-reduce
//! consists of a reduce-scatter and an all-gather, each of which has half of its steps and bytes.
//!
//! Example: 8 ranks on one host, 4 MB, 5 us, 10 GB/s: `14 x 5 us + 1.75 x 4 MB / 10 GB/s = 70 + 700 = 770 us`.
//!
//! **The exposed part.** Backward fills buckets, which are reduced one after the other. If all-reduces take s times as
//! long, the part that backward does not hide is
//!
//! ```text
//! T(s) = max over buckets i of (s x w_i - c_i)    w_i: all-reduces from bucket i on, c_i >= 0: backward after i is full
//! ```
//!
//! which is convex; T / s never decreases, and no slope exceeds the whole all-reduce A = w_1. From a reference to a
//! longer all-reduce A', therefore, `T x A' / A <= T' <= T + (A' - A)`. At the lower bound backward hides the same
//! share as before (only the last buckets are exposed); at the upper bound it hides no additional time (the all-reduce
//! takes longer than backward). A smaller measured case raises the lower bound, because the slope can only increase
//! from there.
//!
//! Example: A = 40 ms, T = 10 ms, A' = 60 ms: 15 to 30 ms. If T = 6 ms was measured at A = 30 ms, the slope is at least
//! 0.4: 18 to 30 ms.
//!
//! Without a line, neither A nor its share of latency is known. The lower bound then assumes bandwidth only, `T x
//! volume' / volume`. The upper bound is the larger of latency only, `T x steps' / steps`, and bandwidth of which
//! backward b already hid as much as it could, `T + (volume' / volume - 1) x (T + b)`. With a smaller measured case,
//! the difference from it grows in proportion to volume (lower bound) or steps (upper bound). The upper bound is not
//! strict: latency that backward hides with few ranks but not with more is not visible in any measured step. The effect
//! is small unless one step of the ring takes 100 us.

use std::ops::{Add, Sub};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};

use crate::dimension::{BackendName, Bytes, Case};
use crate::stats::welch::student;

/// Communication pattern of an all-reduce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// One ring over all ranks.
    Ring,
    /// Sum within each host through its memory, then one ring over the hosts.
    Hosts,
}

/// All-reduce method of a backend.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exchange {
    /// Communication pattern of an all-reduce.
    pub algorithm: Algorithm,
    /// Maximum chunk, if chunks are sent one after the other.
    pub chunk: Option<Bytes>,
}

/// Machine-independent cost of messages in one case.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Sequential steps of all messages.
    pub steps: f64,
    /// Bytes on the busiest link.
    pub bytes: f64,
}

impl Algorithm {
    /// Returns the sequential steps of one message.
    pub fn steps(self, case: Case) -> f64 {
        2.0 * (f64::from(self.members(case)) - 1.0)
    }

    /// Returns the share of a message that crosses the busiest link.
    pub fn volume(self, case: Case) -> f64 {
        self.steps(case) / f64::from(self.members(case))
    }

    /// Returns the number of members of the ring.
    fn members(self, case: Case) -> u32 {
        match self {
            Algorithm::Hosts if case.nodes > 1 => case.nodes,
            _ => case.ranks(),
        }
    }
}

impl Exchange {
    /// Returns the exchange of a backend; `chunk` is the configured size.
    pub fn for_backend(name: BackendName, chunk: Bytes) -> Exchange {
        match name {
            // Its chunks are transferred concurrently.
            BackendName::SharedMemory => Exchange { algorithm: Algorithm::Hosts, chunk: None },
            BackendName::Mpi => Exchange { algorithm: Algorithm::Ring, chunk: Some(chunk).filter(|chunk| chunk.0 > 0) },
            _ => Exchange { algorithm: Algorithm::Ring, chunk: None },
        }
    }

    /// Returns the cost of messages of these sizes, sent one after the other.
    pub fn cost(&self, case: Case, messages: &[Bytes]) -> Cost {
        let chunks = |size: &Bytes| self.chunk.map_or(1, |chunk| size.0.div_ceil(chunk.0).max(1));
        let bytes: u64 = messages.iter().map(|size| size.0).sum();
        Cost {
            steps: self.algorithm.steps(case) * messages.iter().map(chunks).sum::<u64>() as f64,
            bytes: self.algorithm.volume(case) * bytes as f64,
        }
    }

    /// Returns the cost of reduce-scatters and all-gathers of these sizes; an all-reduce consists of one of each.
    pub fn half_cost(&self, case: Case, messages: &[Bytes]) -> Cost {
        let Cost { steps, bytes } = self.cost(case, messages);
        Cost { steps: 0.5 * steps, bytes: 0.5 * bytes }
    }
}

/// Fitted latency and bandwidth of one level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyModel {
    /// Seconds per step.
    pub latency: f64,
    /// Seconds per byte on the busiest link: 1 / bandwidth.
    pub per_byte: f64,
    /// Root mean square of the relative errors; the divisor is the degrees of freedom.
    pub residual: f64,
    /// Covariance of `latency` and `per_byte`.
    covariance: [[f64; 2]; 2],
    /// Degrees of freedom.
    freedom: f64,
}

impl LatencyModel {
    /// Fits measured costs and their seconds; returns `None` for fewer than three samples or a single size.
    pub fn fit(samples: &[(Cost, f64)]) -> Option<LatencyModel> {
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
        Some(LatencyModel { latency, per_byte, residual: variance.sqrt(), covariance: inverse, freedom })
    }

    /// Returns the predicted time in seconds.
    pub fn time(&self, cost: Cost) -> f64 {
        self.latency * cost.steps + self.per_byte * cost.bytes
    }

    /// Returns the 95 % confidence margin of [`time`](Self::time), in seconds: Student's t times the standard error of
    /// `latency x steps + per_byte x bytes`.
    pub fn margin(&self, cost: Cost) -> f64 {
        let [[aa, ab], [_, bb]] = self.covariance;
        let squared = cost.steps * cost.steps * aa + 2.0 * cost.steps * cost.bytes * ab + cost.bytes * cost.bytes * bb;
        student(0.975, self.freedom) * squared.max(0.0).sqrt()
    }
}

impl Sub for Cost {
    type Output = Cost;

    fn sub(self, other: Cost) -> Cost {
        Cost { steps: self.steps - other.steps, bytes: self.bytes - other.bytes }
    }
}

/// Returns the expected maximum of n independent standard normal values, `integral over x of x n phi(x) Phi(x)^(n -
/// 1)`: the mean time for the slowest of n ranks of equal spread, in standard deviations.
///
/// `expected_maximum(2) = 1 / sqrt(pi) = 0.5642`, `expected_maximum(100) = 2.5076`.
pub fn expected_maximum(count: u32) -> f64 {
    const LIMIT: f64 = 9.0;
    const STEPS: u32 = 9000;
    let normal = Normal::standard();
    let width = 2.0 * LIMIT / f64::from(STEPS);
    // Integration by parts: the area above 0 minus the area below 0, each by the midpoint rule.
    let term = |step: u32| {
        let x = (f64::from(step) + 0.5) * width - LIMIT;
        let below = normal.cdf(x).powf(f64::from(count.max(1)));
        if x > 0.0 { 1.0 - below } else { -below }
    };
    width * (0..STEPS).map(term).sum::<f64>()
}

/// A range with a central value.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Band {
    /// Lower bound.
    pub low: f64,
    /// Central value.
    pub mid: f64,
    /// Upper bound.
    pub high: f64,
}

impl Add for Band {
    type Output = Band;

    fn add(self, other: Band) -> Band {
        Band { low: self.low + other.low, mid: self.mid + other.mid, high: self.high + other.high }
    }
}

impl Band {
    /// Returns the band of a known value.
    pub fn at(value: f64) -> Band {
        Band { low: value, mid: value, high: value }
    }

    /// Returns the band between two values in any order.
    pub fn between(one: f64, other: f64) -> Band {
        let (low, high) = (one.min(other), one.max(other));
        Band { low, mid: 0.5 * (low + high), high }
    }

    /// Returns the union of both bands; the central value stays.
    pub fn or(self, other: Band) -> Band {
        Band { low: self.low.min(other.low), high: self.high.max(other.high), ..self }
    }

    /// Returns the band widened by `by` on both sides.
    pub fn widened(self, by: f64) -> Band {
        Band { low: self.low - by, mid: self.mid, high: self.high + by }
    }
}

/// Measurements of a smaller case than the reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SmallerCase<A> {
    /// Exposed all-reduce, in seconds.
    pub exposed: f64,
    /// 95 % margin of the difference from the reference; infinite if unknown.
    pub margin: f64,
    /// Time or cost of the all-reduce.
    pub allreduce: A,
}

/// Returns the exposed part T' of an all-reduce of `after` seconds, given that `exposed` of `before` seconds are
/// exposed in the reference.
pub fn exposed(exposed: f64, before: f64, smaller: Option<SmallerCase<f64>>, after: f64) -> Band {
    let same_share = exposed * after / before;
    let grown = after - before;
    let smaller = smaller.filter(|smaller| smaller.margin.is_finite() && smaller.allreduce < before && grown > 0.0);
    let Some(smaller) = smaller else {
        return Band::between(same_share, (exposed + grown).max(0.0));
    };
    let slope = |margin: f64| (exposed - smaller.exposed + margin) / (before - smaller.allreduce);
    // A slope above 1 contradicts the model; the measured slope is then extrapolated.
    let steepest = if slope(-smaller.margin) > 1.0 { slope(smaller.margin) } else { 1.0 };
    Band::between(same_share.max(exposed + slope(-smaller.margin) * grown), exposed + steepest * grown)
}

/// Returns the same without a fitted line; up to `backward` seconds of backward can hide the all-reduce.
pub fn exposed_without_line(
    exposed: f64,
    backward: f64,
    before: Cost,
    smaller: Option<SmallerCase<Cost>>,
    after: Cost,
) -> Band {
    let (volume, steps) = (after.bytes / before.bytes, after.steps / before.steps);
    let (bandwidth, latency) = (exposed * volume, exposed * steps);
    let spilled = (exposed + (volume - 1.0) * (exposed + backward)).max(0.0);
    if steps < 1.0 {
        return Band::between(latency.min(spilled), bandwidth);
    }
    let smaller = smaller.filter(|smaller| smaller.margin.is_finite() && smaller.allreduce.steps < before.steps);
    let Some(smaller) = smaller else {
        return Band::between(bandwidth, latency.max(spilled));
    };
    let (then, now) = (before - smaller.allreduce, after - before);
    let goes_on = |ratio: f64, margin: f64| exposed + (exposed - smaller.exposed + margin) * ratio;
    let low = bandwidth.max(goes_on(now.bytes / then.bytes, -smaller.margin));
    // The margin alone must not raise the bound above its value without a smaller case.
    let ratio = now.steps / then.steps;
    let most = latency.max(goes_on(ratio, 0.0));
    Band::between(low, spilled.max(goes_on(ratio, smaller.margin).min(most)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EIGHT: Case = Case { nodes: 1, gpus_per_node: 8 };
    const TWO_HOSTS: Case = Case { nodes: 2, gpus_per_node: 8 };
    const FOUR_HOSTS: Case = Case { nodes: 4, gpus_per_node: 8 };
    const RING: Exchange = Exchange { algorithm: Algorithm::Ring, chunk: None };

    fn close(actual: f64, expected: f64) {
        assert!((actual - expected).abs() < 1e-9 * expected.abs().max(1e-12), "{actual}, expected {expected}");
    }

    fn line(latency: f64, bandwidth: f64) -> LatencyModel {
        let per_byte = 1.0 / bandwidth;
        LatencyModel { latency, per_byte, residual: 0.0, covariance: [[0.0; 2]; 2], freedom: 1.0 }
    }

    #[test]
    fn worked_line_is_reproduced() {
        close(line(5e-6, 10e9).time(RING.cost(EIGHT, &[Bytes(4_000_000)])), 770e-6);
    }

    #[test]
    fn algorithms_have_steps_and_volume() {
        let of = |algorithm: Algorithm, case| (algorithm.steps(case), algorithm.volume(case));
        assert_eq!(of(Algorithm::Ring, TWO_HOSTS), (30.0, 1.875));
        assert_eq!(of(Algorithm::Hosts, TWO_HOSTS), (2.0, 1.0));
        assert_eq!(of(Algorithm::Hosts, FOUR_HOSTS), (6.0, 1.5));
        assert_eq!(of(Algorithm::Hosts, EIGHT), of(Algorithm::Ring, EIGHT));
        let mpi = Exchange::for_backend(BackendName::Mpi, Bytes(1_000_000));
        let cost = mpi.cost(EIGHT, &[Bytes(2_500_000), Bytes(8)]);
        assert_eq!((cost.steps, cost.bytes), (4.0 * 14.0, 1.75 * 2_500_008.0));
        let half = mpi.half_cost(EIGHT, &[Bytes(2_500_000), Bytes(8)]);
        assert_eq!((half.steps, half.bytes), (4.0 * 7.0, 0.875 * 2_500_008.0));
        assert_eq!(Exchange::for_backend(BackendName::Mpi, Bytes(0)).chunk, None);
        assert_eq!(Exchange::for_backend(BackendName::Nccl, Bytes(1_000_000)), RING);
    }

    fn sizes() -> impl Iterator<Item = Bytes> {
        (3..28).map(|power| Bytes(1 << power))
    }

    #[test]
    fn line_is_fitted_from_its_times() {
        let truth = line(12e-6, 3e9);
        let mut samples: Vec<(Cost, f64)> = Vec::new();
        for case in [TWO_HOSTS, FOUR_HOSTS] {
            samples.extend(sizes().map(|size| RING.cost(case, &[size])).map(|cost| (cost, truth.time(cost))));
        }
        let fit = LatencyModel::fit(&samples).expect("many sizes");
        assert!((fit.latency / 12e-6 - 1.0).abs() < 1e-9 && (fit.per_byte * 3e9 - 1.0).abs() < 1e-9, "{fit:?}");
        assert!(fit.residual < 1e-9 && fit.margin(samples[30].0) < 1e-9 * samples[30].1);
    }

    #[test]
    fn small_and_large_sizes_weigh_the_same() {
        // With absolute errors, the noise of the largest size would dominate the latency.
        let truth = line(12e-6, 3e9);
        let noise = |index: usize| 1.0 + 0.05 * [1.0, -1.0, 0.5, -0.5][index % 4];
        let samples: Vec<(Cost, f64)> = sizes()
            .map(|size| RING.cost(TWO_HOSTS, &[size]))
            .enumerate()
            .map(|(index, cost)| (cost, truth.time(cost) * noise(index)))
            .collect();
        let fit = LatencyModel::fit(&samples).expect("many sizes");
        assert!((fit.latency / 12e-6 - 1.0).abs() < 0.03 && (fit.per_byte * 3e9 - 1.0).abs() < 0.03, "{fit:?}");
        assert!((0.03..0.05).contains(&fit.residual), "{fit:?}");
        let bucket = RING.cost(FOUR_HOSTS, &[Bytes(25_000_000)]);
        let off = (fit.time(bucket) - truth.time(bucket)).abs();
        assert!(off < fit.margin(bucket) && fit.margin(bucket) < 0.05 * truth.time(bucket), "{off}: {fit:?}");
    }

    #[test]
    fn one_size_gives_no_line() {
        let cost = RING.cost(EIGHT, &[Bytes(1 << 20)]);
        assert_eq!(LatencyModel::fit(&[]), None);
        assert_eq!(LatencyModel::fit(&[(cost, 1e-3); 5]), None);
        // Times that do not grow with the size have no bandwidth term; times proportional to the size have no latency.
        let flat: Vec<(Cost, f64)> = sizes().take(12).map(|size| (RING.cost(EIGHT, &[size]), 1e-3)).collect();
        let fit = LatencyModel::fit(&flat).expect("many sizes");
        assert!(fit.latency > 0.0 && fit.per_byte >= 0.0, "{fit:?}");
        let steep: Vec<(Cost, f64)> =
            sizes().map(|size| RING.cost(EIGHT, &[size])).map(|cost| (cost, cost.bytes.powf(1.2))).collect();
        assert_eq!(LatencyModel::fit(&steep).expect("many sizes").latency, 0.0);
    }

    #[test]
    fn expected_maximum_matches_normal_distribution() {
        // scipy.integrate.quad(lambda x: x * n * norm.pdf(x) * norm.cdf(x) ** (n - 1), -12, 12)
        let expected = [(1, 0.0), (2, 0.56419), (10, 1.53875), (32, 2.06967), (100, 2.50759), (4096, 3.62608)];
        for (count, expected) in expected {
            let actual = expected_maximum(count);
            assert!((actual - expected).abs() < 1e-5, "{count}: {actual}");
        }
    }

    #[test]
    fn worked_exposure_is_reproduced() {
        let band = exposed(10e-3, 40e-3, None, 60e-3);
        close(band.low, 15e-3);
        close(band.high, 30e-3);
        close(band.mid, 22.5e-3);
        let before = SmallerCase { exposed: 6e-3, margin: 0.0, allreduce: 30e-3 };
        close(exposed(10e-3, 40e-3, Some(before), 60e-3).low, 18e-3);
        close(exposed(10e-3, 40e-3, Some(before), 60e-3).high, 30e-3);
        // A smaller case with an unknown margin is ignored; a slope above 1 is extrapolated.
        let unknown = SmallerCase { margin: f64::INFINITY, ..before };
        assert_eq!(exposed(10e-3, 40e-3, Some(unknown), 60e-3), band);
        let steep = exposed(26e-3, 40e-3, Some(before), 60e-3);
        close(steep.low, 66e-3);
        close(steep.high, 66e-3);
        // A shorter all-reduce has the same bounds, reversed.
        let shorter = exposed(10e-3, 40e-3, None, 36e-3);
        close(shorter.low, 6e-3);
        close(shorter.high, 9e-3);
        assert_eq!(exposed(10e-3, 40e-3, None, 20e-3).low, 0.0);
    }

    /// Checks the formula of the module docs for random buckets: a bound from one length holds at every greater length.
    #[test]
    fn bounds_hold_for_random_buckets() {
        let mut state: u64 = 7;
        let mut uniform = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        for _ in 0..5000 {
            let buckets: Vec<(f64, f64)> =
                (0..1 + (8.0 * uniform()) as usize).map(|_| (uniform(), uniform())).collect();
            let backward = 4.0 * uniform();
            let mut full: Vec<f64> = buckets.iter().map(|(_, at)| at * backward).collect();
            full.sort_by(f64::total_cmp);
            // The last bucket is full when backward ends.
            *full.last_mut().expect("one at least") = backward;
            let of = |scale: f64| {
                let done =
                    buckets.iter().zip(&full).fold(0.0, |done: f64, ((time, _), full)| done.max(*full) + scale * time);
                let all: f64 = buckets.iter().map(|(time, _)| scale * time).sum();
                (done - backward, all)
            };
            let scales = [0.2 + uniform(), 1.3 + uniform(), 2.4 + 4.0 * uniform()];
            let [(least, small), (middle, before), (truth, after)] = scales.map(of);
            let smaller = SmallerCase { exposed: least, margin: 0.0, allreduce: small };
            for smaller in [None, Some(smaller)] {
                let band = exposed(middle, before, smaller, after);
                assert!((band.low - 1e-9..=band.high + 1e-9).contains(&truth), "{truth} in {band:?}, {buckets:?}");
            }
            // The bounds also hold downward from the middle.
            let band = exposed(middle, before, None, small);
            assert!((band.low - 1e-9..=band.high + 1e-9).contains(&least), "{least} in {band:?}, {buckets:?}");
        }
    }

    #[test]
    fn without_a_line_bounds_are_bandwidth_and_latency() {
        let [two, four] = [TWO_HOSTS, FOUR_HOSTS].map(|case| RING.cost(case, &[Bytes(100_000_000)]));
        let band = exposed_without_line(15e-3, 0.0, two, None, four);
        close(band.low, 15e-3 * 31.0 / 30.0);
        close(band.high, 15e-3 * 31.0 / 15.0);
        // Backward that already hid three seconds of bandwidth hides no more.
        let spilled = exposed_without_line(15e-3, 3.0, two, None, four);
        close(spilled.high, 15e-3 + 3.015 / 30.0);
        // Extrapolates from four hosts with the difference from two: half of it by volume, twice it by steps.
        let eight = RING.cost(Case { nodes: 8, gpus_per_node: 8 }, &[Bytes(100_000_000)]);
        let smaller = SmallerCase { exposed: 15e-3, margin: 1e-3, allreduce: two };
        let band = exposed_without_line(20e-3, 0.0, four, Some(smaller), eight);
        close(band.low, 22e-3);
        close(band.high, 32e-3);
        assert_eq!(
            exposed_without_line(20e-3, 0.0, four, None, two),
            Band::between(20e-3 * 15.0 / 31.0, 20e-3 * 30.0 / 31.0)
        );
    }
}
