//! Results of a folder: runs of sweeps, bandwidth and input.

use std::collections::BTreeMap;

use ringmark_core::benchmark::bandwidth::BandwidthRecord;
use ringmark_core::benchmark::input::InputRecord;
use ringmark_core::benchmark::{Record, RecordHead};
use ringmark_core::dimension::Case;
use ringmark_core::file::run_name::RunName;
use ringmark_core::trace::Timeline;

use crate::read::analyze::extraction::Extraction;
use crate::read::analyze::reliability::{self, ReliabilityWarning};
use crate::read::analyze::score::figures::ScoreTable;
use crate::read::analyze::score::result_json::ScoreResult;
use crate::read::analyze::training::cost::Price;
use crate::read::analyze::training::figures::Group;
use crate::read::analyze::training::result_json::JsonResult;
use crate::read::load::folder::Shortage;
use crate::read::load::problem::Problem;
use crate::read::load::run::Recorded;

/// Figures of a folder of any benchmark.
pub enum AnyExtraction {
    /// Result of `ringmark sweep`, or of logs.
    Training(Extraction<Group>),
    /// Result of `ringmark score`.
    Score(Extraction<ScoreTable>),
}

impl AnyExtraction {
    /// Returns the runs that are excluded, with the reason.
    pub fn problems(&self) -> &[Problem] {
        match self {
            AnyExtraction::Training(extraction) => &extraction.problems,
            AnyExtraction::Score(extraction) => &extraction.problems,
        }
    }

    /// Returns all reliability warnings as sentences, for formats that cannot contain them.
    pub fn reliability_sentences(&self) -> Vec<String> {
        let warnings: Vec<ReliabilityWarning> = match self {
            AnyExtraction::Training(it) => named_warnings(&it.groups),
            AnyExtraction::Score(it) => it.groups.iter().flat_map(ScoreTable::all_reliability_warnings).collect(),
        };
        reliability::sentences(&warnings)
    }

    /// Returns the result file, with the hashes of the files next to it.
    pub fn result(&self, files_sha256: BTreeMap<String, String>) -> anyhow::Result<String> {
        match self {
            AnyExtraction::Training(extraction) => {
                JsonResult { files_sha256, ..JsonResult::new(extraction, None) }.text()
            }
            AnyExtraction::Score(extraction) => ScoreResult { files_sha256, ..ScoreResult::new(extraction) }.text(),
        }
    }
}

/// Returns the warnings of all groups; if there are several, each with the name of its group.
pub fn named_warnings(groups: &[Group]) -> Vec<ReliabilityWarning> {
    let named = |group: &Group| {
        let warnings = group.all_reliability_warnings();
        match groups.len() {
            1 => warnings,
            _ => warnings.iter().map(|warning| warning.to(&group.label)).collect(),
        }
    };
    groups.iter().flat_map(named).collect()
}

/// Results of one folder.
#[derive(Debug, PartialEq, Default)]
pub struct ResultFolder {
    /// Last component of its path; more components if another result has the same.
    pub name: String,
    /// Last command of a sweep, from its manifest.
    pub command: Option<String>,
    /// Price per hour of its hosts or GPUs, if given.
    pub price: Option<Price>,
    /// Training runs.
    pub groups: Vec<Group>,
    /// Scoring runs.
    pub scoring: Vec<ScoreTable>,
    /// Batch sizes that did not fit into memory, in training and scoring.
    pub shortages: Vec<Shortage>,
    /// Bandwidth runs that count, by ranks, then nodes.
    pub bandwidth: Vec<(Case, BandwidthRecord)>,
    /// Run of `ringmark input`: reading and decoding without training.
    pub input: Option<InputRecord>,
    /// Timelines of the traced runs.
    pub traces: Vec<(RunName, Timeline)>,
    /// Files and runs excluded from the figures, with reasons.
    pub problems: Vec<Problem>,
}

impl ResultFolder {
    /// Returns the records of all training runs.
    pub fn trained(&self) -> impl Iterator<Item = &Recorded> {
        let cases = self.groups.iter().flat_map(|group| &group.cases);
        cases.flat_map(|case| &case.runs).filter_map(|run| run.recorded.as_ref())
    }

    /// Returns the heads of the records of all benchmarks.
    pub fn heads(&self) -> impl Iterator<Item = RecordHead<'_>> {
        let scored = self.scoring.iter().flat_map(ScoreTable::recorded).map(Recorded::head);
        let bandwidth = self.bandwidth.iter().map(|(_, record)| record.head());
        self.trained().map(Recorded::head).chain(scored).chain(bandwidth).chain(self.input.iter().map(Record::head))
    }
}
