//! The benchmarks, each a configuration in and a record out.
//!
//! | module | what it measures |
//! |---|---|
//! | [`train`] | training: forward, backward, exchange of gradients, update |
//! | [`score`] | inference alone |
//! | [`bandwidth`] | the exchange alone |
//!
//! What they share: [`exchange`], how gradients are exchanged; [`warning`], what a reader of a record is warned of.

pub mod bandwidth;
pub mod exchange;
pub mod score;
pub mod train;
pub mod warning;

use std::io::BufRead;

use crate::benchmark::warning::Warning;
use crate::dimension::case::Case;
use crate::host::environment::{Environment, RankPlace};
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
    }
);

keyword_enum!(
    /// How a run was meant.
    Profile {
        /// A measurement.
        Full = "full",
        /// A first look: too short to be quoted.
        Quick = "quick",
    }
);

/// What one run is called in its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLabel {
    /// Nodes and ranks a node as launched.
    pub case: Case,
    /// Number of the run in its case, from 1.
    pub run: u32,
    /// How it is meant.
    pub profile: Profile,
}

/// What the record of every run of a sweep says, whatever was measured.
pub trait Record: Sized {
    /// Reads and checks a record.
    fn read(input: impl BufRead) -> anyhow::Result<Self>;

    /// Which run it is of.
    fn label(&self) -> RunLabel;

    /// Where rank 0 ran.
    fn environment(&self) -> &Environment;

    /// Every rank.
    fn ranks(&self) -> &[RankPlace];

    /// Why the run does not count; `None` for a sound one.
    fn failure(&self) -> Option<String>;

    /// What a reader of its figures should know, though the run counts.
    fn warnings(&self) -> &[Warning];
}
