//! The record of a checkpoint run: one JSON document with the times of every rank for every checkpoint.

use anyhow::{bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::checkpoint::config::{CheckpointConfig, Combination};
use crate::benchmark::document_record::document_record;
use crate::dimension::{Bytes, Seconds};

document_record!(
    /// Record of a whole run.
    CheckpointRecord, kind: "ringmark-checkpoint", schema: 1, title: "checkpoint record",
    iterations: |record| record.results.iter().map(|result| result.checkpoints.len() as u32).sum() => {
        config: CheckpointConfig,
        setup {}
        /// Ranks, in rank order.
        ranks,
        results {
            /// Size of a whole checkpoint, in whole pages of 4096 bytes.
            bytes: Bytes,
            /// Storage of each host, in the order of their first ranks.
            storage: Vec<Storage>,
            /// Measurements of every combination of the axes.
            results: Vec<CheckpointResult>,
        }
        /// Resource use of every host during the run.
        host_use,
        /// Resource use of every rank during the run.
        rank_use,
        /// Warnings about the figures.
        warnings,
        end {}
    }
);

/// Storage below the folder, as found by one host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Storage {
    /// Host name.
    pub host: String,
    /// Type of the file system, such as `ext4`, `nfs4` or `lustre`.
    pub file_system: String,
    /// Device or server that is mounted.
    pub source: String,
    /// Free space before the first checkpoint.
    pub free: Bytes,
    /// True if this host has rank 0's folder, on a file server or on the same host.
    pub is_shared: bool,
}

/// Measurements of one combination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointResult {
    /// One value of each axis.
    #[serde(flatten)]
    pub combination: Combination,
    /// Measurements of each checkpoint, by rank.
    pub checkpoints: Vec<Vec<RankCheckpoint>>,
}

/// Times of one rank for one checkpoint. Those of a rank that writes nothing are 0.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct RankCheckpoint {
    /// Bytes that this rank wrote and read.
    pub bytes: Bytes,
    /// Copy from the device, or with `beside` from the checkpoint itself, to the memory that is written.
    pub copy: Seconds,
    /// Creating and writing the files.
    pub write: Seconds,
    /// Synchronizing the files and their folder, and renaming the files.
    pub fsync: Seconds,
    /// Time from the common start until the files are on the storage.
    pub total: Seconds,
    /// Matrix products meanwhile; `None` with `blocking`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub products: Option<ProductTimes>,
    /// Reading the files into host memory.
    pub read: Seconds,
    /// Reading, and copying to the device.
    pub restore: Seconds,
    /// Bytes that the kernel fetched for this process from a disk or a file server while it read; `None` if the kernel
    /// does not report it.
    pub from_storage: Option<Bytes>,
}

/// Matrix products that a rank computed while a checkpoint was written.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProductTimes {
    /// Number of products.
    pub count: u32,
    /// Time of all of them.
    pub elapsed: Seconds,
    /// Mean time of a product directly before, while nothing was written.
    pub alone: Seconds,
}

impl ProductTimes {
    /// Returns the time of the products beyond that of equally many without a write, in seconds; at least 0.
    ///
    /// 20 products in 1.2 s, of 0.05 s each alone: `1.2 - 20 x 0.05 = 0.2`.
    pub fn excess(&self) -> f64 {
        (self.elapsed.0 - f64::from(self.count) * self.alone.0).max(0.0)
    }

    /// Returns the relative increase of the time of a product; `None` without products.
    ///
    /// 20 products in 1.2 s, of 0.05 s each alone: `1.2 / (20 x 0.05) - 1 = 0.2`.
    pub fn slowdown(&self) -> Option<f64> {
        let alone = f64::from(self.count) * self.alone.0;
        (alone > 0.0).then(|| self.elapsed.0 / alone - 1.0)
    }
}

impl RankCheckpoint {
    fn times(&self) -> impl Iterator<Item = Seconds> {
        let RankCheckpoint { copy, write, fsync, total, products, read, restore, .. } = *self;
        let products = products.into_iter().flat_map(|products| [products.elapsed, products.alone]);
        [copy, write, fsync, total, read, restore].into_iter().chain(products)
    }
}

impl CheckpointRecord {
    fn check_results(&self) -> anyhow::Result<()> {
        let expected = self.ranks.len();
        for CheckpointResult { combination, checkpoints } in &self.results {
            for ranks in checkpoints {
                ensure!(ranks.len() == expected, "{combination}: {} ranks, expected {expected}", ranks.len());
                if let Some(time) = ranks.iter().flat_map(RankCheckpoint::times).find(|time| !time.is_duration()) {
                    bail!("{combination}: invalid time {time}");
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::benchmark::Record;
    use crate::benchmark::checkpoint::config::{FileIo, WriteMode, Writers};
    use crate::host::{Environment, RankPlace};

    /// Returns the times of a rank that writes 1 GB at `rate` GB/s, a fifth of it in fsync, and reads it in half the time.
    pub(crate) fn written(rate: f64) -> RankCheckpoint {
        let total = 1.0 / rate;
        RankCheckpoint {
            bytes: Bytes(1_000_000_000),
            write: Seconds(0.8 * total),
            fsync: Seconds(0.2 * total),
            total: Seconds(total),
            read: Seconds(0.5 * total),
            restore: Seconds(0.75 * total),
            from_storage: Some(Bytes(1_000_000_000)),
            ..RankCheckpoint::default()
        }
    }

    /// Returns a record with one rank on each host, and a result in which rank 0 writes (at the rate of the first host) and
    /// one in which all ranks write. Every rate is measured three times: as given, 10 % lower and 10 % higher.
    pub(crate) fn record(hosts: &[(&str, f64)]) -> CheckpointRecord {
        let combination = |writers| Combination { writers, files: 1, io: FileIo::Buffered, mode: WriteMode::Blocking };
        let result = |writers: Writers| {
            let rank = |(rank, (_, rate)): (usize, &(&str, f64)), factor: f64| match (writers, rank) {
                (Writers::Rank0, 1..) => RankCheckpoint { from_storage: Some(Bytes(0)), ..RankCheckpoint::default() },
                _ => written(rate * factor),
            };
            let checkpoint = |factor: f64| hosts.iter().enumerate().map(|host| rank(host, factor)).collect();
            CheckpointResult {
                combination: combination(writers),
                checkpoints: [1.0, 0.9, 1.1].into_iter().map(checkpoint).collect(),
            }
        };
        let storage = |(index, (host, _)): (usize, &(&str, f64))| Storage {
            host: (*host).to_owned(),
            file_system: "ext4".to_owned(),
            source: "/dev/sda1".to_owned(),
            free: Bytes(100_000_000_000),
            is_shared: index == 0,
        };
        CheckpointRecord {
            bytes: Bytes(1_000_000_000),
            storage: hosts.iter().enumerate().map(storage).collect(),
            results: vec![result(Writers::Rank0), result(Writers::Ranks)],
            ..CheckpointRecord::new(
                Seconds(1.5),
                CheckpointConfig { folder: "/scratch".into(), ..CheckpointConfig::default() },
                Environment::default(),
                (0..).zip(hosts).map(|(rank, (host, _))| RankPlace::on_cpu(rank, 0, host)).collect(),
            )
        }
    }

    fn text(record: &CheckpointRecord) -> String {
        let mut bytes = Vec::new();
        record.write(&mut bytes).expect("an in-memory write succeeds");
        String::from_utf8(bytes).expect("JSON is UTF-8")
    }

    #[test]
    fn record_round_trips_and_damage_is_named() {
        let mut record = record(&[("a", 1.0), ("b", 2.0)]);
        let alone = Seconds(0.05);
        record.results[1].checkpoints[0][1].products = Some(ProductTimes { count: 20, elapsed: Seconds(1.2), alone });
        assert_eq!(CheckpointRecord::read(text(&record).as_bytes()).expect("sound"), record);
        let error = |record: &CheckpointRecord| {
            format!("{:#}", CheckpointRecord::read(text(record).as_bytes()).expect_err("refused"))
        };
        let mut short = record.clone();
        short.results[0].checkpoints[2].pop();
        assert_eq!(error(&short), "rank-0, 1 file, buffered, blocking: 1 ranks, expected 2");
        record.results[1].checkpoints[0][1].fsync = Seconds(-1.0);
        assert_eq!(error(&record), "ranks, 1 file, buffered, blocking: invalid time -1 s");
    }

    #[test]
    fn slowdown_compares_with_products_alone() {
        let products = |elapsed| ProductTimes { count: 20, elapsed: Seconds(elapsed), alone: Seconds(0.05) };
        let slowed = products(1.2);
        assert!((slowed.excess() - 0.2).abs() < 1e-12 && (slowed.slowdown().expect("20") - 0.2).abs() < 1e-12);
        assert_eq!(products(0.9).excess(), 0.0);
        assert_eq!(ProductTimes { count: 0, ..slowed }.slowdown(), None);
    }
}
