//! Records of all benchmarks.

use std::io::BufRead;

use anyhow::{bail, ensure};

use crate::benchmark::RunProfile;
use crate::benchmark::warning::Warning;
use crate::dimension::{Case, Seconds};
use crate::file::run_name::{Point, RunName};
use crate::host::{Environment, RankPlace};
use crate::options::option_table::Options;

/// What one run is called in its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLabel {
    /// Nodes and ranks a node as launched.
    pub case: Case,
    /// Number of the run in its case, from 1.
    pub run: u32,
    /// How it is meant.
    pub profile: RunProfile,
}

/// Fields that every record contains, whatever was measured.
#[derive(Debug, Clone, Copy)]
pub struct RecordHead<'a> {
    /// Start of the run, seconds since 1970 UTC.
    pub started: Seconds,
    /// Software and hardware that rank 0 found.
    pub environment: &'a Environment,
    /// Every rank.
    pub ranks: &'a [RankPlace],
}

/// The record of a run, whatever was measured.
pub trait Record: Sized {
    /// What the file is, in its first field.
    const KIND: &'static str;

    /// Reads and checks a record.
    fn read(input: impl BufRead) -> anyhow::Result<Self>;

    /// Returns the fields that every record contains.
    fn head(&self) -> RecordHead<'_>;

    /// Why the run does not count; `None` for a sound one.
    fn failure(&self) -> Option<String>;

    /// Returns true if it fails only because its figures miss a minimum that the user set.
    fn is_miss(&self) -> bool {
        false
    }
}

/// The record of one run of a sweep over axes.
pub trait SweepRecord: Record {
    /// What a run of it is asked.
    type Config: Options;

    /// What it was asked.
    fn config(&self) -> &Self::Config;

    /// When it started and when its last iteration had ended, seconds since 1970 UTC; what came before the first iteration
    /// is not counted.
    fn period(&self) -> [Seconds; 2];

    /// Which run it is of.
    fn label(&self) -> RunLabel;

    /// What it was asked, as far as its name repeats it.
    fn point(&self) -> Point;

    /// What a reader of its figures should know, though the run counts.
    fn warnings(&self) -> &[Warning];

    /// Why the run of this name does not count by its record: it failed, the record is of another run, or its ranks are not
    /// those of its case.
    fn check(&self, name: &RunName) -> anyhow::Result<()> {
        if let Some(failure) = self.failure() {
            bail!("the run failed: {failure}: repeat it");
        }
        let (case, point) = (self.label().case, self.point());
        ensure!(
            case == name.case && point.is_named(name.point()),
            "is of case {case}, {point}, but its file name says otherwise: restore the original name"
        );
        let ranks = self.head().ranks;
        ensure!(ranks.len() == case.ranks() as usize, "{} ranks ran in case {case}: repeat the run", ranks.len());
        if let Some((place, rank)) = (0..).zip(ranks).find(|(place, rank)| rank.rank != *place) {
            bail!("expected rank {place}, found rank {}: repeat the run", rank.rank);
        }
        ensure!(
            ranks.iter().all(|rank| rank.device == ranks[0].device),
            "some ranks ran on the CPU and some on GPUs: repeat the run with --device cpu or cuda"
        );
        self.check_place(name)
    }

    /// Why a run of this name cannot be this benchmark's.
    fn check_place(&self, name: &RunName) -> anyhow::Result<()>;
}
