//! Warnings about hosts that write or read more slowly than the others.

use std::collections::BTreeMap;

use crate::benchmark::checkpoint::figures::Direction;
use crate::benchmark::checkpoint::record::{CheckpointRecord, CheckpointResult};
use crate::benchmark::warning::{SLOW_HOST, Warning, WarningKind};
use crate::number_text::percent;
use crate::stats::summary::median;

/// Rate of a host in one combination, compared with all hosts.
struct SlowHost<'a> {
    result: &'a CheckpointResult,
    rate: f64,
    median: f64,
}

impl SlowHost<'_> {
    fn below(&self) -> f64 {
        1.0 - self.rate / self.median
    }
}

/// Warns about each host whose rate of writing or reading is far below the hosts' median, naming the combination with the
/// largest shortfall.
pub fn slow_hosts(record: &CheckpointRecord) -> Vec<Warning> {
    [(Direction::Write, "writes"), (Direction::Read, "reads")]
        .into_iter()
        .flat_map(|(direction, verb)| slow(record, direction, verb))
        .collect()
}

fn slow(record: &CheckpointRecord, direction: Direction, verb: &str) -> Vec<Warning> {
    let mut worst: BTreeMap<&str, SlowHost> = BTreeMap::new();
    for result in record.results.iter().filter(|result| direction == Direction::Write || result.is_cold()) {
        let rates = result.host_rates(&record.ranks, direction);
        let rates: Vec<(&str, f64)> = rates.iter().filter_map(|(host, rates)| Some((*host, rates.median()?))).collect();
        let Some(median) = median(&rates.iter().map(|(_, rate)| *rate).collect::<Vec<_>>()) else { continue };
        for (host, rate) in rates {
            let found = SlowHost { result, rate, median };
            if worst.get(host).is_none_or(|known| found.below() > known.below()) {
                worst.insert(host, found);
            }
        }
    }
    let warn = |(host, found): (&str, SlowHost)| {
        let SlowHost { result, rate, median } = found;
        let text = format!(
            "host {host} {verb} {rate:.3} GB/s ({}), {} below the hosts' median of {median:.3}: all hosts wait for it: \
             check its disk and its path to the file server",
            result.combination,
            percent(found.below())
        );
        Warning { kind: WarningKind::Storage, about: format!("host {host}"), text }
    };
    worst.into_iter().filter(|(_, found)| found.below() >= SLOW_HOST).map(warn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::checkpoint::record::tests::record;
    use crate::dimension::Bytes;

    #[test]
    fn slow_disk_is_named_with_its_host() {
        let mut record = record(&[("a", 1.0), ("b", 0.5), ("c", 1.1)]);
        // Reads from memory do not show a slow disk.
        record.results[1].checkpoints[0][0].from_storage = Some(Bytes(0));
        let warnings = slow_hosts(&record);
        let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
        assert_eq!((warning.kind, warning.about.as_str()), (WarningKind::Storage, "host b"));
        assert_eq!(
            warning.text,
            "host b writes 0.500 GB/s (ranks, 1 file, buffered, blocking), 50.0 % below the hosts' median of 1.000: all \
             hosts wait for it: check its disk and its path to the file server"
        );
    }

    #[test]
    fn single_writer_is_not_slow() {
        let mut record = record(&[("a", 1.0), ("b", 0.1)]);
        record.results.pop();
        assert_eq!(slow_hosts(&record), []);
    }
}
