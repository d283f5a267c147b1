//! A batch that a device has no memory for.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::Bytes;

/// What was taken of a device's memory when a rank asked for more than was left; prints as `15.1 of 16.0 GB`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryShortage {
    /// On CUDA of the whole device, by whomever; on the CPU by this rank.
    pub taken: Bytes,
    /// All memory of the device; on the CPU what this rank may take of its host's.
    pub total: Bytes,
}

impl MemoryShortage {
    /// `out of memory at batch 64: 15.1 of 16.0 GB`.
    pub fn at_batch(&self, batch_size: u32) -> String {
        format!("out of memory at batch {batch_size}: {self}")
    }
}

impl fmt::Display for MemoryShortage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.1} of {:.1} GB", self.taken.gigabytes(), self.total.gigabytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_names_batch_and_memory() {
        let shortage = MemoryShortage { taken: Bytes(15_120_000_000), total: Bytes(16_000_000_000) };
        assert_eq!(shortage.at_batch(64), "out of memory at batch 64: 15.1 of 16.0 GB");
    }
}
