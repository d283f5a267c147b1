//! The results that one report is about: runs of sweeps, bandwidth runs, or both; each under a name of its own.

use ringmark_record::benchmark::bandwidth::record::BandwidthRecord;
use ringmark_record::dimension::case::Case;

use crate::read::analyse::figures::Group;
use crate::read::load::problem::Problem;

/// One folder.
#[derive(Debug, PartialEq)]
pub struct ResultFolder {
    /// Last part of its path, and more of it where that is another's too.
    pub name: String,
    /// The last command of a sweep, from its manifest.
    pub command: Option<String>,
    /// Runs of training; none in a folder of bandwidth runs.
    pub groups: Vec<Group>,
    /// Bandwidth runs that count, by ranks, then nodes.
    pub bandwidth: Vec<(Case, BandwidthRecord)>,
    /// What is not in the figures, and why.
    pub problems: Vec<Problem>,
}
