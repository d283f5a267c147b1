//! Cost of checkpoints: stall of training, and time of each part of a write.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::{Bytes, GigabytesPerSecond, Seconds};
use crate::keyword_enum;
use crate::stats::summary::median;

keyword_enum!(
    /// Relation of a checkpoint's write to the steps.
    #[derive(Default)]
    CheckpointMode {
        /// Training continues once the file is complete and synced.
        #[default]
        Sync = "sync",
        /// Training continues once a copy is in host memory, from which a thread of rank 0 writes the file.
        Async = "async",
    }
);

/// One checkpoint of a run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointWrite {
    /// Iterations covered by the checkpoint.
    pub iteration: u32,
    /// Size of the file.
    pub bytes: Bytes,
    /// Time that training stood still, on the slowest rank. With `async`: `collect`, and the wait of the next checkpoint
    /// or of the end of the run for this one.
    pub stall: Seconds,
    /// Copies between ranks and to host memory, on the slowest rank.
    pub collect: Seconds,
    /// Write to the file system, on rank 0.
    pub write: Seconds,
    /// Sync of the file, its renaming, and sync of the folder, on rank 0.
    pub sync: Seconds,
}

impl CheckpointWrite {
    /// Formats one line, such as
    /// `checkpoint after iteration 8: 12.3 MB, stall 0.120 s; collect 0.010 s, write 0.050 s, sync 0.060 s`.
    pub fn text(&self) -> String {
        let CheckpointWrite { iteration, bytes, stall, collect, write, sync } = self;
        format!(
            "checkpoint after iteration {iteration}: {:.1} MB, stall {stall:.3}; collect {collect:.3}, write {write:.3}, \
             sync {sync:.3}",
            bytes.megabytes()
        )
    }
}

/// Cost of all checkpoints of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointCost {
    /// Number of checkpoints.
    pub checkpoints: usize,
    /// Size of all files.
    pub bytes: Bytes,
    /// `bytes / (write + sync)` over all checkpoints; absent if they took no measurable time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gigabytes_per_second: Option<GigabytesPerSecond>,
    /// Median stall of a checkpoint.
    pub stall_seconds: Seconds,
    /// `stall of all checkpoints / (time of all iterations + stall of all checkpoints)`.
    pub share_of_training: f64,
}

impl CheckpointCost {
    /// Returns the cost of `writes` in a run whose iterations took `wall`; `None` without checkpoints.
    ///
    /// Two checkpoints of 0.5 GB that took 0.6 s and 0.4 s to write and sync, with stalls of 0.6 s and 0.4 s, and
    /// iterations of 9 s: 1 GB at 1 GB/s, a median stall of 0.5 s, and `1 / (9 + 1) = 10 %` of training.
    pub fn new(writes: &[CheckpointWrite], wall: Seconds) -> Option<CheckpointCost> {
        let stalls: Vec<f64> = writes.iter().map(|write| write.stall.0).collect();
        let stall: f64 = stalls.iter().sum();
        let bytes = Bytes(writes.iter().fold(0, |sum, write| write.bytes.0.saturating_add(sum)));
        let written: f64 = writes.iter().map(|write| write.write.0 + write.sync.0).sum();
        Some(CheckpointCost {
            checkpoints: writes.len(),
            bytes,
            gigabytes_per_second: (written > 0.0).then(|| GigabytesPerSecond(bytes.gigabytes() / written)),
            stall_seconds: Seconds(median(&stalls)?),
            share_of_training: if stall > 0.0 { stall / (wall.0 + stall) } else { 0.0 },
        })
    }

    /// Formats one line, such as
    /// `checkpoints: 4, 0.049 GB in all, at 0.52 GB/s; median stall 0.120 s, together 3.1 % of training`.
    pub fn text(&self) -> String {
        let rate = self.gigabytes_per_second.map(|rate| format!(", at {rate:.2}")).unwrap_or_default();
        format!(
            "checkpoints: {}, {:.3} GB in all{rate}; median stall {:.3}, together {:.1} % of training",
            self.checkpoints,
            self.bytes.gigabytes(),
            self.stall_seconds,
            100.0 * self.share_of_training
        )
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn cost_is_that_of_the_worked_example() {
        let write = |iteration, stall| CheckpointWrite {
            iteration,
            bytes: Bytes(500_000_000),
            stall: Seconds(stall),
            collect: Seconds(0.0),
            write: Seconds(stall / 4.0),
            sync: Seconds(stall - stall / 4.0),
        };
        let writes = [write(4, 0.6), write(8, 0.4)];
        let cost = CheckpointCost::new(&writes, Seconds(9.0)).expect("two checkpoints");
        assert!((cost.stall_seconds.0 - 0.5).abs() < 1e-12 && (cost.share_of_training - 0.1).abs() < 1e-12, "{cost:?}");
        expect!["checkpoints: 2, 1.000 GB in all, at 1.00 GB/s; median stall 0.500 s, together 10.0 % of training"]
            .assert_eq(&cost.text());
        expect!["checkpoint after iteration 4: 500.0 MB, stall 0.600 s; collect 0.000 s, write 0.150 s, sync 0.450 s"]
            .assert_eq(&writes[0].text());
        assert_eq!(CheckpointCost::new(&[], Seconds(9.0)), None);
    }
}
