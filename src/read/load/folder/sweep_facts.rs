//! Facts about a whole sweep, from its manifest.

use std::fmt;

use ringmark_core::dimension::{BatchShape, BatchSize, Case, DeviceChoice, Dtype, Model, Strategy};
use ringmark_core::file::run_name::RunName;
use ringmark_core::host::MemoryShortage;
use ringmark_core::shell::CommandWords;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A batch size that does not fit into memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shortage {
    /// Network.
    pub model: Model,
    /// Precision.
    pub dtype: Dtype,
    /// Strategy; absent for `all-reduce`.
    #[serde(default = "Strategy::all_reduce", alias = "kv_store", skip_serializing_if = "Strategy::is_all_reduce")]
    pub strategy: Strategy,
    /// Nodes, and ranks per node.
    pub case: Case,
    /// True for a baseline run, whose ranks do not communicate.
    pub is_baseline: bool,
    /// Images or sequences per rank, or of all ranks if `is_global`.
    pub batch_size: u32,
    /// Batch size that was tried: this one or a smaller one.
    pub tried_batch_size: u32,
    /// True if the batch sizes are those of all ranks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_global: bool,
    /// Tokens of a sequence; absent for images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_length: Option<u32>,
    /// Memory of the device.
    pub memory: MemoryShortage,
}

impl Shortage {
    /// Creates the shortage of a planned run, given the batch that was tried.
    pub(super) fn new(run: RunName, tried: BatchShape, memory: MemoryShortage) -> Shortage {
        let RunName { model, dtype, strategy, case, baseline: is_baseline, batch, .. } = run;
        Shortage {
            model,
            dtype,
            strategy,
            case,
            is_baseline,
            batch_size: batch.size.number(),
            tried_batch_size: tried.size.number(),
            is_global: matches!(batch.size, BatchSize::Global(_)),
            sequence_length: batch.sequence_length,
            memory,
        }
    }

    /// Returns the batch that does not fit.
    pub fn batch(&self) -> BatchShape {
        let size = if self.is_global { BatchSize::Global } else { BatchSize::PerRank };
        BatchShape { size: size(self.batch_size), sequence_length: self.sequence_length }
    }

    /// Returns the batch that was tried.
    pub fn tried_batch(&self) -> BatchShape {
        let batch = self.batch();
        BatchShape { size: batch.size.with_number(self.tried_batch_size), ..batch }
    }
}

impl fmt::Display for Shortage {
    /// `ResNet-18, fp32, 1n1g: out of memory at batch 512: 1.4 of 1.5 GB`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortage { model, dtype, strategy, case, is_baseline, .. } = self;
        let strategy = if strategy.is_all_reduce() { String::new() } else { format!(", {strategy}") };
        let baseline = if *is_baseline { " baseline" } else { "" };
        let reason = self.memory.at_batch(self.tried_batch());
        write!(formatter, "{}, {dtype}{strategy}, {case}{baseline}: {reason}", model.facts().title)
    }
}

/// Facts about the whole sweep from its manifest; empty if there is none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SweepFacts {
    /// Command line that resumes the sweep.
    pub resume_command: Option<CommandWords>,
    /// Requested device; `None` if the worker chose it.
    pub device: Option<DeviceChoice>,
    /// Batch sizes that do not fit into memory, without duplicates.
    pub shortages: Vec<Shortage>,
    /// Runs of the sweep whose files are missing or were changed.
    pub absent: Vec<RunName>,
    /// True if the sweep did not include 1n1g.
    pub is_without_single: bool,
}
