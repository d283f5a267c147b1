//! The benchmarks, each a configuration in and a record out.
//!
//! | module | what it measures |
//! |---|---|
//! | [`train`] | training: forward, backward, exchange of gradients, update |
//! | [`score`] | inference alone |
//! | [`bandwidth`] | the exchange alone |
//! | [`input`] | reading and decoding alone |
//!
//! What they share: [`cores`], what a rank gets of its host; [`exchange`], how gradients are exchanged; [`kv_store`], where
//! they are summed and weights updated; [`image_input`], which images are read and how; [`warning`], what a reader of a record
//! is warned of.

pub mod bandwidth;
pub mod compression;
mod compression_options;
pub mod cores;
pub mod exchange;
mod hierarchical;
pub mod image_input;
pub mod input;
pub mod kv_store;
mod profile;
mod record;
pub mod score;
#[cfg(test)]
mod tests;
pub mod train;
pub mod warning;

pub use profile::{RunProfile, SweepProfile};
pub use record::{Record, RecordHead, RunLabel, SweepRecord};

use std::fmt::Display;

use crate::keyword_enum;

keyword_enum!(
    /// A benchmark, by the command of the worker that runs it.
    BenchmarkKind {
        /// Training.
        Train = "train",
        /// Inference.
        Score = "score",
        /// The exchange alone.
        Bandwidth = "bandwidth",
        /// Reading and decoding alone.
        Input = "input",
    }
);

/// Value of `--batch-size` behind `ringmark`: the largest batch that fits.
pub const AUTO_BATCH_SIZE: &str = "auto";

/// Default, in the help, of an option whose value each network has its own of.
const OF_NETWORK: &str = "the network's own: 224 for most";

/// How long a run is, as every command and log says it, because `--iters` counts warm-up in training and not elsewhere:
/// `100 measured + 20 warm-up`.
pub fn measured_and_warmup(measured: impl Display, warmup: impl Display) -> String {
    format!("{measured} measured + {warmup} warm-up")
}
