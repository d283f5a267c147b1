//! Warnings about hosts that read or decode more slowly than the others.

use crate::benchmark::input::{InputRecord, PageCache};
use crate::benchmark::warning::{SLOW_HOST, Warning, WarningKind};
use crate::number_text::percent;
use crate::stats::summary::median;

/// Warns about each host whose fastest pass is far below the median of the hosts, for disk and for memory.
pub fn slow_hosts(record: &InputRecord) -> Vec<Warning> {
    [PageCache::Cold, PageCache::Warm].into_iter().flat_map(|cache| slow(record, cache)).collect()
}

fn slow(record: &InputRecord, cache: PageCache) -> Vec<Warning> {
    let speed = |rank: usize| Some((rank, record.ceiling(rank, cache)?.speed.0));
    let speeds: Vec<(usize, f64)> = (0..record.ranks.len()).filter_map(speed).collect();
    let Some(median) = median(&speeds.iter().map(|(_, speed)| *speed).collect::<Vec<_>>()) else { return Vec::new() };
    let warn = |(rank, speed): (usize, f64)| {
        let (host, below) = (&record.ranks[rank].host, 1.0 - speed / median);
        let (whence, what) = match cache {
            PageCache::Cold => ("from disk", "check its disk and its path to the file server"),
            PageCache::Warm => ("from memory", "check its clock and other processes on it"),
        };
        let text = format!(
            "host {host} reads and decodes {speed:.0} images/s {whence}, {} below the hosts' median of {median:.0}: \
             all hosts wait for it in training: {what}",
            percent(below)
        );
        (below >= SLOW_HOST).then(|| Warning { kind: WarningKind::Input, about: format!("host {host}"), text })
    };
    speeds.into_iter().filter_map(warn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::input::record::tests::record;

    #[test]
    fn slow_disk_is_named_with_its_host() {
        let record = record(&[("a", &[250.0], 200.0), ("b", &[240.0], 100.0), ("c", &[250.0], 210.0)]);
        let warnings = slow_hosts(&record);
        let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
        assert_eq!((warning.kind, warning.about.as_str()), (WarningKind::Input, "host b"));
        assert_eq!(
            warning.text,
            "host b reads and decodes 100 images/s from disk, 50.0 % below the hosts' median of 200: all hosts wait \
             for it in training: check its disk and its path to the file server"
        );
    }

    #[test]
    fn single_host_is_not_slow() {
        assert_eq!(slow_hosts(&record(&[("a", &[250.0], 1.0)])), []);
    }
}
