//! The benchmarks, each with its configuration and its record.
//!
//! | module | measurement |
//! |---|---|
//! | [`train`] | training: forward, backward, exchange of gradients, update |
//! | [`score`] | inference |
//! | [`bandwidth`] | gradient exchange without computation |
//! | [`input`] | reading and decoding of images |
//! | [`checkpoint`] | writing and reading of checkpoints |
//!
//! Shared parts: `shared_options`, options of several benchmarks; [`exchange`], the gradient exchange; [`strategy`], summation of
//! gradients and update of weights; [`optimizer`], the rule of the update; [`data_input`], images or tokens that are read; [`warning`], warnings to the
//! readers of a record.

pub mod bandwidth;
pub mod checkpoint;
pub mod compression;
mod compression_options;
pub mod data_input;
mod document_record;
pub mod exchange;
mod hierarchical;
pub mod input;
pub mod optimizer;
mod profile;
mod record;
pub mod score;
mod shared_options;
pub mod strategy;
#[cfg(test)]
mod tests;
pub mod train;
mod typed_size;
pub mod warning;

pub use profile::{RunProfile, SweepProfile};
pub use record::{Record, RecordFolder, RecordFormat, RecordHead, RunLabel, SweepRecord};

use std::fmt::Display;

use bandwidth::BandwidthRecord;
use checkpoint::CheckpointRecord;
use input::InputRecord;
use score::ScoreRecord;
use train::RunRecord;
use train::record::schema_of_line;

use crate::keyword_enum;
use crate::options::option_table::{self, Options};

keyword_enum!(
    /// A benchmark, named after the worker command that runs it.
    BenchmarkKind {
        /// Training.
        Train = "train",
        /// Inference.
        Score = "score",
        /// Gradient exchange without computation.
        Bandwidth = "bandwidth",
        /// Reading and decoding of images.
        Input = "input",
        /// Writing and reading of checkpoints.
        Checkpoint = "checkpoint",
    }
);

impl BenchmarkKind {
    /// Returns the worker's command with the options of `config`.
    pub fn worker_command<C: Options>(self, config: &C) -> Vec<String> {
        [self.to_string()].into_iter().chain(option_table::arguments(config)).collect()
    }
}

/// Formats of the records of all benchmarks. Those of sweeps are found by the names of runs.
pub const RECORDS: [RecordFormat; 5] = [
    RecordFormat {
        benchmark: BenchmarkKind::Train,
        kind: RunRecord::KIND,
        name: "run_record",
        schema: schema_of_line,
        folder: None,
    },
    RecordFormat::document::<ScoreRecord>(BenchmarkKind::Score, "score_record", None),
    RecordFormat::document::<BandwidthRecord>(BenchmarkKind::Bandwidth, "bandwidth_record", Some(bandwidth::FOLDER)),
    RecordFormat::document::<InputRecord>(BenchmarkKind::Input, "input_record", Some(input::FOLDER)),
    RecordFormat::document::<CheckpointRecord>(
        BenchmarkKind::Checkpoint,
        "checkpoint_record",
        Some(checkpoint::FOLDER),
    ),
];

/// Value of `--batch-size` in the `ringmark` launcher: the largest batch that fits.
pub const AUTO_BATCH_SIZE: &str = "auto";

/// Default of a number that records omit if it is 1.
fn one() -> u32 {
    1
}

/// Returns true for the default, which records omit.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_one(number: &u32) -> bool {
    *number == one()
}

/// Tokens of a sequence in the profiles of CPUs.
const CPU_SEQUENCE_LENGTH: u32 = 128;

/// Help text for the default of an option if each network has its own.
const DEFAULT_IMAGE_SIZE: &str = "that of the network, 224 for most";

/// Formats the length of a run as `100 measured + 20 warm-up`, in every command and log, because `--iters` includes
/// warm-up in training but not elsewhere.
pub fn measured_and_warmup(measured: impl Display, warmup: impl Display) -> String {
    format!("{measured} measured + {warmup} warm-up")
}
