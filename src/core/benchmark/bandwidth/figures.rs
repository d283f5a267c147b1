//! Figures derived from a bandwidth run: rates and timing spread for each message size, average and best bus bandwidth,
//! wrong elements.

use schemars::JsonSchema;
use serde::Serialize;

use crate::benchmark::bandwidth::record::{MessageResult, Timing};
use crate::dimension::{Bytes, GigabytesPerSecond, Seconds};
use crate::stats::busbw::{Bus, algbw, busbw};
use crate::stats::summary::{coefficient_of_variation, mean, percentile};

/// Results of one message size.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SizeFigures {
    /// Size of the array, including the parts of all ranks.
    pub bytes: Bytes,
    /// Element count as nccl-tests prints it: for operations that divide the array, elements of one rank's part.
    pub count: u64,
    /// Element type, by its nccl-tests name.
    pub element: String,
    /// `None` if not measured.
    pub out_of_place: Option<SideFigures>,
    /// `None` if not measured.
    pub in_place: Option<SideFigures>,
}

/// Results of one size, either out of place or in place.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct SideFigures {
    /// Mean over ranks and iterations.
    pub time: Seconds,
    /// Algorithm bandwidth at the mean time.
    pub algbw: GigabytesPerSecond,
    /// Bus bandwidth at the mean time.
    pub busbw: GigabytesPerSecond,
    /// Elements that differ from the exact result; `None` if not checked.
    pub wrong: Option<u64>,
    /// Distribution of the times.
    #[serde(flatten)]
    pub spread: TimeSpread,
}

/// Distribution of the times of one side; percentiles are over all ranks and iterations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct TimeSpread {
    /// Median.
    pub p50: Seconds,
    /// 95th percentile.
    pub p95: Seconds,
    /// 99th percentile.
    pub p99: Seconds,
    /// Shortest.
    pub min: Seconds,
    /// Longest.
    pub max: Seconds,
    /// Coefficient of variation over iterations, from the means over ranks; `None` for one iteration.
    pub cv_iterations: Option<f64>,
    /// Coefficient of variation over ranks, from the means over iterations; `None` for one rank.
    pub cv_ranks: Option<f64>,
}

impl SizeFigures {
    /// Computes the figures of `result`.
    pub fn from_result(result: &MessageResult, bus: Bus) -> SizeFigures {
        let side = |timing: Option<&Timing>| SideFigures::new(result.bytes, timing?, bus);
        SizeFigures {
            bytes: result.bytes,
            count: result.count,
            element: result.element.clone(),
            out_of_place: side(result.out_of_place.as_ref()),
            in_place: side(result.in_place.as_ref()),
        }
    }
}

impl SideFigures {
    /// Computes the figures of an array of `bytes`; returns `None` without samples.
    pub fn new(bytes: Bytes, timing: &Timing, bus: Bus) -> Option<SideFigures> {
        let time = timing.mean()?;
        let (algbw, busbw) = (algbw(bytes, time), busbw(bytes, time, bus));
        Some(SideFigures { time, algbw, busbw, wrong: timing.wrong, spread: TimeSpread::from_timing(timing)? })
    }
}

impl TimeSpread {
    /// Returns `None` if there are no samples.
    pub fn from_timing(timing: &Timing) -> Option<TimeSpread> {
        let pooled = timing.pooled();
        let time = |percent| percentile(&pooled, percent).map(Seconds);
        Some(TimeSpread {
            p50: time(50.0)?,
            p95: time(95.0)?,
            p99: time(99.0)?,
            min: time(0.0)?,
            max: time(100.0)?,
            cv_iterations: coefficient_of_variation(&timing.by_iteration()),
            cv_ranks: coefficient_of_variation(&timing.by_rank()),
        })
    }
}

/// Returns the mean of all bus bandwidths in the table, for both sides of every size: nccl-tests' `Avg bus bandwidth`.
/// `None` if there are no samples.
pub fn average_busbw(results: &[MessageResult], bus: Bus) -> Option<GigabytesPerSecond> {
    let rates: Vec<f64> = rates(results, bus).map(|(_, rate)| rate.0).collect();
    mean(&rates).map(GigabytesPerSecond)
}

/// Returns the size with the highest bus bandwidth on either side, and that bandwidth.
pub fn best_busbw(results: &[MessageResult], bus: Bus) -> Option<(Bytes, GigabytesPerSecond)> {
    rates(results, bus).max_by(|(_, one), (_, other)| one.0.total_cmp(&other.0))
}

/// Returns the largest size and the bus bandwidth of its faster side.
pub fn largest_busbw(results: &[MessageResult], bus: Bus) -> Option<(Bytes, GigabytesPerSecond)> {
    rates(results, bus).max_by(|one, other| one.0.0.cmp(&other.0.0).then(one.1.0.total_cmp(&other.1.0)))
}

/// Counts elements that differ from the exact result, over all sizes and sides; `None` if nothing was checked.
pub fn wrong(results: &[MessageResult]) -> Option<u64> {
    timings(results).filter_map(|(_, timing)| timing.wrong).reduce(u64::saturating_add)
}

fn rates(results: &[MessageResult], bus: Bus) -> impl Iterator<Item = (Bytes, GigabytesPerSecond)> {
    timings(results).filter_map(move |(bytes, timing)| Some((bytes, busbw(bytes, timing.mean()?, bus))))
}

fn timings(results: &[MessageResult]) -> impl Iterator<Item = (Bytes, &Timing)> {
    results.iter().flat_map(|result| result.sides().map(|(_, timing)| Some((result.bytes, timing?)))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Result of 2 GB in the given seconds per side: at 1 s, algbw is 2 GB/s, as is busbw with two ranks.
    fn result(out_of_place: Option<f64>, in_place: Option<f64>, wrong: Option<u64>) -> MessageResult {
        let timing = |seconds| Timing {
            seconds: vec![vec![Seconds(seconds)]; 2],
            back_to_back: Vec::new(),
            wrong,
            error: Vec::new(),
        };
        MessageResult {
            bytes: Bytes(2_000_000_000),
            count: 500_000_000,
            element: "float".to_owned(),
            buckets: vec![Bytes(2_000_000_000)],
            out_of_place: out_of_place.map(timing),
            in_place: in_place.map(timing),
        }
    }

    #[test]
    fn average_covers_every_printed_rate() {
        // 2, 1 and 4 GB/s.
        let results = [result(Some(1.0), Some(2.0), Some(1)), result(None, Some(0.5), Some(2))];
        assert_eq!(average_busbw(&results, Bus::all_reduce(2)), Some(GigabytesPerSecond(7.0 / 3.0)));
        assert_eq!(best_busbw(&results, Bus::all_reduce(2)), Some((Bytes(2_000_000_000), GigabytesPerSecond(4.0))));
        assert_eq!(wrong(&results), Some(4));
        assert_eq!(average_busbw(&results, Bus::all_reduce(1)), Some(GigabytesPerSecond(0.0)));
    }

    #[test]
    fn size_has_rates_and_spread() {
        let figures = SizeFigures::from_result(&result(None, Some(0.5), Some(2)), Bus::all_reduce(2));
        let side = figures.in_place.expect("it was measured");
        assert_eq!((figures.out_of_place, side.wrong), (None, Some(2)));
        assert_eq!((side.algbw.0, side.busbw.0, side.spread.p99), (4.0, 4.0, Seconds(0.5)));
        assert_eq!((side.spread.cv_iterations, side.spread.cv_ranks), (None, Some(0.0)));
    }

    #[test]
    fn no_measurement_gives_no_figures() {
        let results = [result(None, None, None)];
        assert_eq!(
            (average_busbw(&results, Bus::all_reduce(2)), best_busbw(&results, Bus::all_reduce(2))),
            (None, None)
        );
        assert_eq!((wrong(&results), wrong(&[result(None, Some(1.0), None)])), (None, None));
    }
}
