//! The results that one report is about: runs of sweeps, of bandwidth, of input; each under a name of its own.

use ringmark_core::benchmark::bandwidth::BandwidthRecord;
use ringmark_core::benchmark::input::InputRecord;
use ringmark_core::benchmark::{Record, RecordHead};
use ringmark_core::dimension::Case;
use ringmark_core::file::run_name::RunName;
use ringmark_core::trace::Timeline;

use crate::read::analyse::cost::Price;
use crate::read::analyse::figures::Group;
use crate::read::analyse::score::figures::ScoreTable;
use crate::read::load::folder::Shortage;
use crate::read::load::problem::Problem;
use crate::read::load::run::Recorded;

/// One folder.
#[derive(Debug, PartialEq)]
pub struct ResultFolder {
    /// Last part of its path, and more of it where that is another's too.
    pub name: String,
    /// The last command of a sweep, from its manifest.
    pub command: Option<String>,
    /// What an hour of its hosts or GPUs costs, where that was asked for.
    pub price: Option<Price>,
    /// Runs of training; none in a folder of other runs alone.
    pub groups: Vec<Group>,
    /// Scoring runs.
    pub scoring: Vec<ScoreTable>,
    /// Batches without memory, of either.
    pub shortages: Vec<Shortage>,
    /// Bandwidth runs that count, by ranks, then nodes.
    pub bandwidth: Vec<(Case, BandwidthRecord)>,
    /// Reading and decoding alone.
    pub input: Option<InputRecord>,
    /// Of the runs that were traced.
    pub traces: Vec<(RunName, Timeline)>,
    /// What is not in the figures, and why.
    pub problems: Vec<Problem>,
}

impl ResultFolder {
    /// Records of all runs of training.
    pub fn trained(&self) -> impl Iterator<Item = &Recorded> {
        let cases = self.groups.iter().flat_map(|group| &group.cases);
        cases.flat_map(|case| &case.runs).filter_map(|run| run.recorded.as_ref())
    }

    /// What the records of all benchmarks have in common.
    pub fn heads(&self) -> impl Iterator<Item = RecordHead<'_>> {
        let scored = self.scoring.iter().flat_map(ScoreTable::recorded).map(Recorded::head);
        let bandwidth = self.bandwidth.iter().map(|(_, record)| record.head());
        self.trained().map(Recorded::head).chain(scored).chain(bandwidth).chain(self.input.iter().map(Record::head))
    }
}
