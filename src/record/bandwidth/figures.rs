//! What all sizes of a run come to together: its average and its best bus bandwidth, and its wrong elements.
//!
//! Not for text, which is in [`crate::bandwidth::lines`].

use crate::bandwidth::record::{MessageResult, Timing};
use crate::stats::busbw::busbw;
use crate::stats::summary;
use crate::units::{Bytes, GigabytesPerSecond};

/// Mean of every bus bandwidth in the table, both sides of all sizes: nccl-tests' `Avg bus bandwidth`. `None` without
/// a sample.
pub fn average_busbw(results: &[MessageResult], ranks: u32) -> Option<GigabytesPerSecond> {
    let rates: Vec<f64> = rates(results, ranks).map(|(_, rate)| rate.0).collect();
    summary::mean(&rates).map(GigabytesPerSecond)
}

/// The size that went fastest on either side, and how fast.
pub fn best_busbw(results: &[MessageResult], ranks: u32) -> Option<(Bytes, GigabytesPerSecond)> {
    rates(results, ranks).max_by(|(_, one), (_, other)| one.0.total_cmp(&other.0))
}

/// The largest size, and how fast it went on its faster side.
pub fn largest_busbw(results: &[MessageResult], ranks: u32) -> Option<(Bytes, GigabytesPerSecond)> {
    rates(results, ranks).max_by(|one, other| one.0.0.cmp(&other.0.0).then(one.1.0.total_cmp(&other.1.0)))
}

/// Elements that differ from the exact sum, over all sizes and sides; `None` where nothing was checked.
pub fn wrong(results: &[MessageResult]) -> Option<u64> {
    timings(results).filter_map(|(_, timing)| timing.wrong).reduce(u64::saturating_add)
}

fn rates(results: &[MessageResult], ranks: u32) -> impl Iterator<Item = (Bytes, GigabytesPerSecond)> {
    timings(results).filter_map(move |(bytes, timing)| Some((bytes, busbw(bytes, timing.mean()?, ranks))))
}

fn timings(results: &[MessageResult]) -> impl Iterator<Item = (Bytes, &Timing)> {
    results.iter().flat_map(|result| result.sides().map(|(_, timing)| Some((result.bytes, timing?)))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Seconds;

    /// 2 GB in so many seconds on either side: 2 GB/s algbw and, with two ranks, busbw in 1 s.
    fn result(out_of_place: Option<f64>, in_place: Option<f64>, wrong: Option<u64>) -> MessageResult {
        let timing = |seconds| Timing { seconds: vec![vec![Seconds(seconds)]; 2], wrong, error: Vec::new() };
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
    fn the_average_is_over_every_printed_rate() {
        // 2, 1 and 4 GB/s.
        let results = [result(Some(1.0), Some(2.0), Some(1)), result(None, Some(0.5), Some(2))];
        assert_eq!(average_busbw(&results, 2), Some(GigabytesPerSecond(7.0 / 3.0)));
        assert_eq!(best_busbw(&results, 2), Some((Bytes(2_000_000_000), GigabytesPerSecond(4.0))));
        assert_eq!(wrong(&results), Some(4));
        assert_eq!(average_busbw(&results, 1), Some(GigabytesPerSecond(0.0)));
    }

    #[test]
    fn nothing_measured_has_no_figure() {
        let results = [result(None, None, None)];
        assert_eq!((average_busbw(&results, 2), best_busbw(&results, 2)), (None, None));
        assert_eq!((wrong(&results), wrong(&[result(None, Some(1.0), None)])), (None, None));
    }
}
