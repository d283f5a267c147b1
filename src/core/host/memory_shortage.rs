//! Memory of a device that is too small for a batch.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::{BatchShape, Bytes};

/// Memory in use when an allocation of a rank failed; prints as `15.1 of 16.0 GB`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryShortage {
    /// Memory in use: on CUDA of the whole device by all processes, on the CPU by this rank.
    pub taken: Bytes,
    /// Total memory of the device; on the CPU the limit for this rank.
    pub total: Bytes,
}

impl MemoryShortage {
    /// Formats the shortage: `out of memory at batch 64: 15.1 of 16.0 GB`.
    pub fn at_batch(&self, batch: BatchShape) -> String {
        format!("out of memory at batch {}: {self}", batch.numbers())
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
    fn shortage_names_batch_and_memory() {
        let shortage = MemoryShortage { taken: Bytes(15_120_000_000), total: Bytes(16_000_000_000) };
        assert_eq!(shortage.at_batch(BatchShape::per_rank(64)), "out of memory at batch 64: 15.1 of 16.0 GB");
    }
}
