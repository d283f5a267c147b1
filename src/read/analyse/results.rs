//! The results that one report is about: runs of sweeps, of bandwidth, of input; each under a name of its own.

use ringmark_record::benchmark::bandwidth::record::BandwidthRecord;
use ringmark_record::benchmark::input::record::InputRecord;
use ringmark_record::dimension::case::Case;
use ringmark_record::file::run_name::RunName;
use ringmark_record::trace::timeline::Timeline;

use crate::read::analyse::cost::Price;
use crate::read::analyse::figures::Group;
use crate::read::analyse::score::figures::ScoreTable;
use crate::read::load::folder::Shortage;
use crate::read::load::problem::Problem;

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
