//! Figures of one combination, each over its checkpoints.
//!
//! ```text
//! rate of all writers = bytes of all / time of the slowest writer
//! rate of a host      = bytes of its ranks / time of the slowest of them
//! rate of a writer    = bytes / time, the median of the writers
//! stall               = blocking: time of the slowest writer
//!                       beside: copy + (time of the products - their time without a write), the largest of the ranks
//! restore             = reading and copying to the device, of the slowest rank
//! ```

use std::collections::BTreeMap;

use crate::benchmark::checkpoint::config::WriteMode;
use crate::benchmark::checkpoint::record::{CheckpointResult, RankCheckpoint};
use crate::host::RankPlace;
use crate::stats::run_values::RunValues;
use crate::stats::summary::median;

/// Smallest share of the bytes of the files that must come from the storage for a read to count as cold. Below 1 because
/// the kernel may keep pages that another process uses.
pub const COLD_SHARE: f64 = 0.9;

/// Direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Memory of a rank to storage.
    Write,
    /// Storage to memory of a rank.
    Read,
}

impl Direction {
    fn time(self, rank: &RankCheckpoint) -> f64 {
        match self {
            Direction::Write => rank.total.0,
            Direction::Read => rank.read.0,
        }
    }
}

/// Returns GB/s of these ranks together: their bytes divided by the time of the slowest; `None` if they move nothing.
fn rate<'a>(ranks: impl Iterator<Item = &'a RankCheckpoint>, direction: Direction) -> Option<f64> {
    let (mut bytes, mut slowest) = (0.0, 0.0_f64);
    for rank in ranks.filter(|rank| rank.bytes.0 > 0) {
        bytes += rank.bytes.gigabytes();
        slowest = slowest.max(direction.time(rank));
    }
    (slowest > 0.0).then(|| bytes / slowest)
}

fn largest(ranks: &[RankCheckpoint], time: impl Fn(&RankCheckpoint) -> f64) -> f64 {
    ranks.iter().map(time).fold(0.0, f64::max)
}

impl CheckpointResult {
    /// Returns a figure of every checkpoint; `None` without checkpoints, or if one of them lacks it.
    fn over(&self, figure: impl Fn(&[RankCheckpoint]) -> Option<f64>) -> Option<RunValues> {
        let values: Option<RunValues> = self.checkpoints.iter().map(|ranks| figure(ranks)).collect();
        values.filter(|values| !values.values().is_empty())
    }

    /// Returns the bytes of a checkpoint, those of all writers.
    pub fn gigabytes(&self) -> f64 {
        self.checkpoints.first().map_or(0.0, |ranks| ranks.iter().map(|rank| rank.bytes.gigabytes()).sum())
    }

    /// Returns GB/s of all writers together.
    pub fn total_rate(&self, direction: Direction) -> Option<RunValues> {
        self.over(|ranks| rate(ranks.iter(), direction))
    }

    /// Returns the time of the slowest rank.
    pub fn time(&self, direction: Direction) -> Option<RunValues> {
        self.over(|ranks| Some(largest(ranks, |rank| direction.time(rank))))
    }

    /// Returns GB/s of the writers alone, the median of them.
    pub fn writer_rate(&self, direction: Direction) -> Option<RunValues> {
        self.over(|ranks| {
            median(&ranks.iter().filter_map(|rank| rate(std::iter::once(rank), direction)).collect::<Vec<_>>())
        })
    }

    /// Returns GB/s of every host that writes.
    pub fn host_rates<'a>(&self, places: &'a [RankPlace], direction: Direction) -> BTreeMap<&'a str, RunValues> {
        let hosts: BTreeMap<&str, ()> = places.iter().map(|place| (place.host.as_str(), ())).collect();
        let of_host = |host: &'a str| {
            self.over(|ranks| {
                let own = ranks.iter().zip(places).filter(|(_, place)| place.host == host).map(|(rank, _)| rank);
                rate(own, direction)
            })
        };
        hosts.into_keys().filter_map(|host| Some((host, of_host(host)?))).collect()
    }

    /// Returns the time of fsync, of the rank with the longest.
    pub fn fsync(&self) -> Option<RunValues> {
        self.over(|ranks| Some(largest(ranks, |rank| rank.fsync.0)))
    }

    /// Returns the seconds of each checkpoint for which computation stands still.
    pub fn stall(&self) -> Option<RunValues> {
        self.over(|ranks| match self.combination.mode {
            WriteMode::Blocking => Some(largest(ranks, |rank| rank.total.0)),
            WriteMode::Beside => {
                let stall = |rank: &RankCheckpoint| Some(rank.copy.0 + rank.products?.excess());
                ranks.iter().map(stall).try_fold(0.0, |most, stall| Some(f64::max(most, stall?)))
            }
        })
    }

    /// Returns the relative increase of a product's time during the write, of the rank with the largest; `None` with
    /// `blocking`.
    pub fn slowdown(&self) -> Option<RunValues> {
        self.over(|ranks| ranks.iter().filter_map(|rank| rank.products?.slowdown()).reduce(f64::max))
    }

    /// Returns the time until every rank has its bytes back on its device.
    pub fn restore(&self) -> Option<RunValues> {
        self.over(|ranks| Some(largest(ranks, |rank| rank.restore.0)))
    }

    /// Returns the lowest share of the read bytes of a rank and checkpoint that came from the storage, at most 1; `None` if
    /// the kernel does not report it.
    pub fn storage_share(&self) -> Option<f64> {
        let readers = self.checkpoints.iter().flatten().filter(|rank| rank.bytes.0 > 0);
        let shares = readers.map(|rank| Some(rank.from_storage?.0 as f64 / rank.bytes.0 as f64));
        shares.collect::<Option<Vec<f64>>>()?.into_iter().map(|share| share.min(1.0)).reduce(f64::min)
    }

    /// Returns true if the kernel's counters prove that every read came from the storage.
    pub fn is_cold(&self) -> bool {
        self.storage_share().is_some_and(|share| share >= COLD_SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::checkpoint::record::ProductTimes;
    use crate::benchmark::checkpoint::record::tests::record;
    use crate::dimension::{Bytes, Seconds};

    fn median_of(values: Option<RunValues>) -> f64 {
        (values.and_then(|values| values.median()).expect("checkpoints") * 1e6).round() / 1e6
    }

    /// Rank 0 writes 1 GB at 1 GB/s, and rank 1 at 2 GB/s.
    #[test]
    fn slowest_writer_determines_the_total() {
        let record = record(&[("a", 1.0), ("b", 2.0)]);
        let [one, all] = &record.results[..] else { panic!("{record:?}") };
        assert_eq!((one.gigabytes(), all.gigabytes()), (1.0, 2.0));
        for (result, total, writer, stall) in [(one, 1.0, 1.0, 1.0), (all, 2.0, 1.5, 1.0)] {
            assert_eq!(median_of(result.total_rate(Direction::Write)), total);
            assert_eq!(median_of(result.writer_rate(Direction::Write)), writer);
            assert_eq!(median_of(result.stall()), stall);
            assert_eq!(median_of(result.total_rate(Direction::Read)), 2.0 * total);
            assert_eq!(median_of(result.restore()), 0.75);
            assert_eq!(median_of(result.fsync()), 0.2);
            assert!(result.is_cold() && result.slowdown().is_none());
        }
        let hosts = |result: &CheckpointResult| -> Vec<(String, f64)> {
            let rates = result.host_rates(&record.ranks, Direction::Write);
            rates.into_iter().map(|(host, rates)| (host.to_owned(), median_of(Some(rates)))).collect()
        };
        assert_eq!(hosts(one), [("a".to_owned(), 1.0)]);
        assert_eq!(hosts(all), [("a".to_owned(), 1.0), ("b".to_owned(), 2.0)]);
        let margin = all.stall().expect("checkpoints").margin_of_mean();
        assert!((0.1..1.0).contains(&margin), "{margin}");
    }

    #[test]
    fn stall_beside_is_the_copy_and_the_slowdown() {
        let mut record = record(&[("a", 1.0), ("b", 2.0)]);
        let result = &mut record.results[0];
        result.combination.mode = WriteMode::Beside;
        assert_eq!(result.stall(), None, "no products were recorded");
        for (ranks, elapsed) in result.checkpoints.iter_mut().zip([1.2, 1.3, 1.1]) {
            let products = ProductTimes { count: 20, elapsed: Seconds(elapsed), alone: Seconds(0.05) };
            ranks[0] = RankCheckpoint { copy: Seconds(0.1), products: Some(products), ..ranks[0] };
            ranks[1].products = Some(ProductTimes { elapsed: Seconds(1.05), ..products });
        }
        assert_eq!((median_of(result.stall()), median_of(result.slowdown())), (0.3, 0.2));
    }

    #[test]
    fn reads_from_memory_are_not_cold() {
        let mut record = record(&[("a", 1.0), ("b", 2.0)]);
        let result = &mut record.results[1];
        result.checkpoints[2][1].from_storage = Some(Bytes(500_000_000));
        assert_eq!((result.storage_share(), result.is_cold()), (Some(0.5), false));
        result.checkpoints[0][0].from_storage = None;
        assert_eq!((result.storage_share(), result.is_cold()), (None, false));
        result.checkpoints.clear();
        assert_eq!((result.total_rate(Direction::Write), result.restore(), result.is_cold()), (None, None, false));
    }
}
