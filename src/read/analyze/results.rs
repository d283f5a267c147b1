//! Results of a folder: runs of sweeps, and records of benchmarks without sweeps.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;

use ringmark_core::benchmark::{BenchmarkKind, RecordHead};
use ringmark_core::dimension::BackendName;
use ringmark_core::file::run_name::RunName;
use ringmark_core::host::HostUse;
use ringmark_core::shell::CommandWords;
use ringmark_core::trace::Timeline;

use crate::read::analyze::assessment::Assessment;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::score::figures::ScoreGroup;
use crate::read::analyze::score::result_json::{self as score_json, ScoreResult};
use crate::read::analyze::training::cost::Price;
use crate::read::analyze::training::figures::TrainingGroup;
use crate::read::analyze::training::result_json::{self as training_json, JsonResult};
use crate::read::analyze::training::title;
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

/// Records of a benchmark without sweeps, in one folder.
pub trait FolderRecords: Any + Debug {
    /// Returns the head of each record.
    fn heads(&self) -> Vec<RecordHead<'_>>;

    /// Returns the assessment of the figures.
    fn assessment(&self) -> Assessment;

    /// Returns the properties of each record that `ringmark check` checks.
    fn checked(&self) -> Vec<CheckedRecord>;

    /// Returns the resource use of the hosts.
    fn host_use(&self) -> &[HostUse] {
        &[]
    }

    /// Returns the backend of each record and the lines of NCCL.
    fn backends(&self) -> Vec<(BackendName, &[String])> {
        Vec::new()
    }
}

/// Properties of a record that `ringmark check` checks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CheckedRecord {
    /// Path of the record below the folder.
    pub file: String,
    /// Conditions that all records of a folder share, by name.
    pub settings: BTreeMap<String, String>,
    /// Path of its log below the folder, and the lines of figures that the log must contain.
    pub printed: Option<(String, Vec<String>)>,
    /// Measurements that were requested but are missing.
    pub missing: Vec<String>,
    /// Reasons why figures are unreliable, in addition to those of the assessment.
    pub unreliable: Vec<String>,
    /// Properties that could not be tested.
    pub untested: Vec<String>,
}

/// Options of a record that differ between the cases of a folder: its own path, and values that are resolved for each case.
const OF_CASE: [&str; 5] = ["record", "json", "threads", "bind", "device"];

impl CheckedRecord {
    /// Returns the properties of a record with these options, without findings.
    pub fn new(file: &str, settings: Vec<(&'static str, String)>) -> CheckedRecord {
        let shared = settings.into_iter().filter(|(name, _)| !OF_CASE.contains(name));
        let settings = shared.map(|(name, value)| (format!("--{name}"), value)).collect();
        CheckedRecord { file: file.to_owned(), settings, ..CheckedRecord::default() }
    }
}

/// Results of one folder.
#[derive(Debug)]
pub struct ResultFolder {
    /// Last component of its path, and first part of the names of all files that are written; more components if
    /// another result of a report has the same.
    pub name: String,
    /// Command that resumes the sweep, from its manifest.
    pub resume_command: Option<CommandWords>,
    /// Price per hour of its hosts or GPUs, if given.
    pub price: Option<Price>,
    /// Runs of a sweep; no groups if there are none.
    pub sweep: SweepGroups,
    /// Batch sizes that did not fit into memory.
    pub shortages: Vec<Shortage>,
    /// Records of benchmarks without sweeps.
    pub records: BTreeMap<BenchmarkKind, Box<dyn FolderRecords>>,
    /// Timelines of the traced runs.
    pub traces: Vec<(RunName, Timeline)>,
    /// Files and runs excluded from the figures, with reasons.
    pub problems: Vec<Problem>,
}

impl ResultFolder {
    /// Returns the results of a sweep.
    pub fn new(name: String, sweep: SweepGroups, requested: SweepFacts, problems: Vec<Problem>) -> ResultFolder {
        let SweepFacts { resume_command, shortages, .. } = requested;
        let (price, records, traces) = (None, BTreeMap::new(), Vec::new());
        ResultFolder { name, resume_command, price, sweep, shortages, records, traces, problems }
    }

    /// Returns the files and runs that are excluded, with the reasons.
    pub fn left_out(&self) -> Vec<String> {
        self.problems.iter().map(ToString::to_string).collect()
    }

    /// Returns true if this contains no runs of a sweep, only records of benchmarks without sweeps.
    pub fn is_of_records(&self) -> bool {
        self.training().is_empty() && self.scoring().is_empty() && !self.records.is_empty()
    }

    /// Returns the names of the benchmarks without sweeps: `bandwidth, input`.
    pub fn recorded_benchmarks(&self) -> String {
        self.records.keys().map(BenchmarkKind::to_string).collect::<Vec<_>>().join(", ")
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
        let command = self.resume_command.clone()?.without("--out").without_flag("--resume");
        // The path of the program says nothing on another machine.
        let path = command.own().first().map(PathBuf::from).unwrap_or_default();
        Some(command.with_program(path.file_name().unwrap_or_default()).to_string())
    }

    /// Returns the assessment of everything in the folder: the only list of its warnings.
    pub fn assessment(&self) -> Assessment {
        let names = title::distinctions(&self.training().iter().collect::<Vec<_>>());
        let trained = names.into_iter().zip(self.training().iter().map(TrainingGroup::assessment)).collect();
        let scored = self.scoring().iter().map(ScoreGroup::assessment);
        let recorded = self.records.values().map(|records| records.assessment());
        Assessment::merge([Assessment::merge_named(trained)].into_iter().chain(scored).chain(recorded))
    }

    /// Returns the records of all training runs.
    pub fn trained(&self) -> impl Iterator<Item = &Recorded> {
        let cases = self.training().iter().flat_map(|group| &group.cases);
        cases.flat_map(|case| &case.runs).filter_map(|run| run.recorded.as_ref())
    }

    /// Returns the heads of the records of all benchmarks.
    pub fn heads(&self) -> impl Iterator<Item = RecordHead<'_>> {
        let scored = self.scoring().iter().flat_map(ScoreGroup::recorded).map(Recorded::head);
        let of_records = self.records.values().flat_map(|records| records.heads());
        self.trained().map(Recorded::head).chain(scored).chain(of_records)
    }

    /// Returns the records of one benchmark, if the folder has any.
    pub fn records_of<R: FolderRecords>(&self) -> Option<&R> {
        self.records.values().find_map(|records| (&**records as &dyn Any).downcast_ref())
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
