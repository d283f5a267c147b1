//! Results of a folder: runs of sweeps, bandwidth and input.

use std::collections::BTreeMap;

use ringmark_core::benchmark::bandwidth::BandwidthRecord;
use ringmark_core::benchmark::input::InputRecord;
use ringmark_core::benchmark::{Record, RecordHead};
use ringmark_core::dimension::Case;
use ringmark_core::file::run_name::RunName;
use ringmark_core::manifest::without_option;
use ringmark_core::shell;
use ringmark_core::trace::Timeline;

use crate::read::analyze::reliability::{self, ReliabilityWarning};
use crate::read::analyze::score::figures::ScoreGroup;
use crate::read::analyze::score::result_json::{self as score_json, ScoreResult};
use crate::read::analyze::training::cost::Price;
use crate::read::analyze::training::figures::TrainingGroup;
use crate::read::analyze::training::result_json::{self as training_json, JsonResult};
use crate::read::load::content::{RESULT, SCORE_RESULT};
use crate::read::load::folder::{Shortage, SweepFacts};
use crate::read::load::problem::Problem;
use crate::read::load::run::Recorded;

/// Groups of equal conditions of a sweep.
#[derive(Debug, PartialEq)]
pub enum SweepGroups {
    /// Runs of `ringmark sweep`, or logs; by model, precision and batch size.
    Training(Vec<TrainingGroup>),
    /// Runs of `ringmark score`; by device and profile.
    Score(Vec<ScoreGroup>),
}

/// Results of one folder.
#[derive(Debug, PartialEq)]
pub struct ResultFolder {
    /// Last component of its path, and first part of the names of all files that are written; more components if
    /// another result of a report has the same.
    pub name: String,
    /// Command that resumes the sweep, from its manifest.
    pub resume_command: Option<String>,
    /// Price per hour of its hosts or GPUs, if given.
    pub price: Option<Price>,
    /// Runs of a sweep; no groups if there are none.
    pub sweep: SweepGroups,
    /// Batch sizes that did not fit into memory.
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
    /// Returns the results of a sweep.
    pub fn new(name: String, sweep: SweepGroups, requested: SweepFacts, problems: Vec<Problem>) -> ResultFolder {
        let SweepFacts { resume_command, shortages, .. } = requested;
        let (price, bandwidth, input, traces) = (None, Vec::new(), None, Vec::new());
        ResultFolder { name, resume_command, price, sweep, shortages, bandwidth, input, traces, problems }
    }

    /// Returns the files and runs that are excluded, with the reasons.
    pub fn left_out(&self) -> Vec<String> {
        self.problems.iter().map(ToString::to_string).collect()
    }

    /// Returns the groups of training.
    pub fn training(&self) -> &[TrainingGroup] {
        match &self.sweep {
            SweepGroups::Training(groups) => groups,
            SweepGroups::Score(_) => &[],
        }
    }

    /// Returns the groups of scoring.
    pub fn scoring(&self) -> &[ScoreGroup] {
        match &self.sweep {
            SweepGroups::Training(_) => &[],
            SweepGroups::Score(groups) => groups,
        }
    }

    /// Returns the command that resumes the sweep, without its folder, which depends on the reader.
    pub fn command(&self) -> Option<String> {
        let words = shell_words::split(self.resume_command.as_deref()?).unwrap_or_default();
        let words = without_option(words, "--out");
        Some(shell::join(words.iter().filter(|word| *word != "--resume")))
    }

    /// Returns all reliability warnings as sentences, for formats that cannot contain them.
    pub fn reliability_sentences(&self) -> Vec<String> {
        let scoring = self.scoring().iter().flat_map(ScoreGroup::all_reliability_warnings);
        let warnings: Vec<ReliabilityWarning> = named_warnings(self.training()).into_iter().chain(scoring).collect();
        reliability::sentences(&warnings)
    }

    /// Returns the records of all training runs.
    pub fn trained(&self) -> impl Iterator<Item = &Recorded> {
        let cases = self.training().iter().flat_map(|group| &group.cases);
        cases.flat_map(|case| &case.runs).filter_map(|run| run.recorded.as_ref())
    }

    /// Returns the heads of the records of all benchmarks.
    pub fn heads(&self) -> impl Iterator<Item = RecordHead<'_>> {
        let scored = self.scoring().iter().flat_map(ScoreGroup::recorded).map(Recorded::head);
        let bandwidth = self.bandwidth.iter().map(|(_, record)| record.head());
        self.trained().map(Recorded::head).chain(scored).chain(bandwidth).chain(self.input.iter().map(Record::head))
    }
}

impl JsonResult {
    /// Returns the result of a folder of training runs.
    pub fn new(result: &ResultFolder, price: Option<&Price>) -> JsonResult {
        JsonResult {
            kind: RESULT,
            schema: training_json::SCHEMA,
            name: result.name.clone(),
            rows: training_json::rows(result.training(), price),
            published: Vec::new(),
            out_of_memory: result.shortages.clone(),
            left_out: result.left_out(),
            files_sha256: BTreeMap::new(),
        }
    }
}

impl ScoreResult {
    /// Returns the result of a folder of scoring runs.
    pub fn new(result: &ResultFolder) -> ScoreResult {
        ScoreResult {
            kind: SCORE_RESULT.to_owned(),
            schema: score_json::SCHEMA,
            rows: score_json::rows(result.scoring()),
            published: Vec::new(),
            out_of_memory: result.shortages.clone(),
            left_out: result.left_out(),
            files_sha256: BTreeMap::new(),
        }
    }
}

/// Returns the warnings of all groups; if there are several, each with the name of its group.
pub fn named_warnings(groups: &[TrainingGroup]) -> Vec<ReliabilityWarning> {
    let named = |group: &TrainingGroup| {
        let warnings = group.all_reliability_warnings();
        match groups.len() {
            1 => warnings,
            _ => warnings.iter().map(|warning| warning.to(&group.label)).collect(),
        }
    };
    groups.iter().flat_map(named).collect()
}
