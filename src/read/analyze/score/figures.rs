//! Computes figures from scoring runs: tables of equal conditions, points of their axes, median and CV of the images/s.
//! No I/O.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_core::benchmark::score::ScoreRecord;
use ringmark_core::dimension::{BatchShape, Case, Dtype, Model, SampleSize};
use ringmark_core::file::run_name::{Point, RunName};
use ringmark_core::options::keyword_enum::KeywordEnum;
use serde_json::Value;

use crate::read::analyze::case_runs::CaseRuns;
use crate::read::analyze::reliability::{self, ReliabilityWarning};
use crate::read::analyze::run_group::{self, RunGroup};
use crate::read::analyze::run_warnings;
use crate::read::analyze::settings::{self, AXES};
use crate::read::load::environment;
use crate::read::load::folder::SweepFacts;
use crate::read::load::problem::Problem;
use crate::read::load::run::{Recorded, Run};
use crate::read::load::score::ScoreConditions;

/// Runs of equal conditions, for any network, precision, batch size and case.
#[derive(Debug, PartialEq)]
pub struct ScoreGroup {
    /// Shared conditions; `None` if no run has a record.
    pub conditions: Option<ScoreConditions>,
    /// Points in the order of [`CaseKey`].
    pub cases: Vec<ScoreCase>,
    /// Warnings about the figures.
    pub warnings: Vec<String>,
    /// Reasons why all figures of the table are unreliable.
    pub reliability_warnings: Vec<ReliabilityWarning>,
}

/// Point of the axes, in table order: rows are network, precision and case, columns are batch sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CaseKey {
    /// Network.
    pub model: Model,
    /// Precision.
    pub dtype: Dtype,
    /// Number of ranks, for sorting cases.
    ranks: u32,
    /// Nodes and ranks per node.
    pub case: Case,
    /// Samples of a pass.
    pub batch: BatchShape,
}

/// Runs of one point.
pub type ScoreCase = CaseRuns<ScoreRecord, ()>;

impl CaseKey {
    fn new(RunName { model, dtype, case, batch, .. }: RunName) -> CaseKey {
        CaseKey { model, dtype, ranks: case.ranks(), case, batch }
    }

    /// Returns the options of the point by their names in records; the case is not an option.
    pub fn axes(&self) -> BTreeMap<String, Value> {
        let CaseKey { model, dtype, batch, .. } = *self;
        let values = [Value::from(model.keyword()), dtype.keyword().into(), batch.size.number().into()];
        let length = batch.sequence_length.map(|tokens| ("sequence_length".to_owned(), tokens.into()));
        AXES.map(str::to_owned).into_iter().zip(values).chain(length).collect()
    }

    /// Returns the name for use in a sentence.
    fn title(&self) -> String {
        let CaseKey { model, dtype, case, batch, .. } = self;
        format!("{}, {dtype}, {case}, {batch}", model.facts().title)
    }

    /// Returns true if both points are in the same table row.
    pub fn shares_row(&self, other: &CaseKey) -> bool {
        let of_any_size =
            |key: &CaseKey| CaseKey { batch: BatchShape { size: key.batch.size.with_number(0), ..key.batch }, ..*key };
        of_any_size(self) == of_any_size(other)
    }
}

impl ScoreCase {
    /// Returns the key of the point.
    pub fn key(&self) -> CaseKey {
        CaseKey::new(self.runs[0].found.name)
    }
}

fn case_of_runs(key: CaseKey, runs: Vec<Run<ScoreRecord>>, sweep_facts: &SweepFacts) -> ScoreCase {
    let mut case = ScoreCase::new(key.case, &key.title(), runs);
    case.assess(sweep_facts);
    case
}

impl ScoreGroup {
    fn new(conditions: Option<ScoreConditions>, runs: Vec<Run<ScoreRecord>>, sweep_facts: &SweepFacts) -> ScoreGroup {
        let mut cases: BTreeMap<CaseKey, Vec<Run<ScoreRecord>>> = BTreeMap::new();
        for run in runs {
            cases.entry(CaseKey::new(run.found.name)).or_default().push(run);
        }
        let cases = cases.into_iter().map(|(key, runs)| case_of_runs(key, runs, sweep_facts)).collect();
        let mut group = ScoreGroup { conditions, cases, warnings: Vec::new(), reliability_warnings: Vec::new() };
        let software = group.recorded().map(|recorded| recorded.software.clone()).collect();
        group.reliability_warnings.extend(group.is_quick().then(reliability::quick_profile_warning));
        group.warnings = run_warnings::from_mixture(&group.device_names(), &software);
        group
    }

    /// Returns the records of the counted runs.
    pub fn recorded(&self) -> impl Iterator<Item = &Recorded<ScoreRecord>> {
        self.cases.iter().flat_map(ScoreCase::recorded)
    }

    /// Returns the options of all runs by their names in records, except for those of [`AXES`].
    pub fn settings(&self) -> BTreeMap<String, Value> {
        let conditions = self.conditions.as_ref();
        let mut settings = conditions.map(|conditions| settings::fields(&conditions.config)).unwrap_or_default();
        AXES.iter().for_each(|axis| drop(settings.remove(*axis)));
        settings
    }

    /// Returns the names of all devices.
    pub fn device_names(&self) -> BTreeSet<String> {
        environment::device_names(self.cases.iter().flat_map(ScoreCase::ranks))
    }

    /// Returns the numbers of CPU threads per rank.
    pub fn threads(&self) -> BTreeSet<u32> {
        self.cases.iter().flat_map(ScoreCase::threads).collect()
    }

    /// Returns the reasons why the images/s of a point are unreliable.
    pub fn reliability_of(&self, case: &ScoreCase) -> Vec<ReliabilityWarning> {
        let own = case.speed_reliability_warnings.iter().map(|own| own.to(&case.title));
        self.reliability_warnings.iter().cloned().chain(own).collect()
    }
}

impl RunGroup for ScoreGroup {
    type Record = ScoreRecord;
    type Figures = ();

    const CASE_NOUN: &'static str = "point";
    const PASSES: f64 = 1.0;

    fn recorded_conditions(&self) -> Option<&ScoreConditions> {
        self.conditions.as_ref()
    }

    fn cases(&self) -> &[ScoreCase] {
        &self.cases
    }

    fn point(&self, case: &ScoreCase) -> Point {
        case.runs[0].found.name.point()
    }

    fn sample_size(&self, case: &ScoreCase) -> Option<SampleSize> {
        let CaseKey { model, batch, .. } = case.key();
        Some(self.conditions.as_ref()?.sample_size(model, batch))
    }

    /// Returns the options without those that have a key of their own in a row.
    fn settings_of(&self, case: &ScoreCase) -> BTreeMap<String, Value> {
        let mut settings = self.settings();
        settings.extend(self.sample_size(case).map(|size| match size {
            SampleSize::Pixels(size) => ("image_size".to_owned(), size.into()),
            SampleSize::Tokens(length) => ("sequence_length".to_owned(), length.into()),
        }));
        settings
    }

    fn device_names_of(&self, case: &ScoreCase) -> BTreeSet<String> {
        environment::device_names(case.ranks())
    }

    fn case_name(&self, case: &ScoreCase) -> String {
        case.title.clone()
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn reliability_warnings(&self) -> &[ReliabilityWarning] {
        &self.reliability_warnings
    }
}

/// Computes the groups of a folder's runs, and adds the runs that do not count to `problems`.
pub fn groups(runs: Vec<Run<ScoreRecord>>, problems: &mut Vec<Problem>, sweep_facts: &SweepFacts) -> Vec<ScoreGroup> {
    problems.extend(runs.iter().filter_map(|run| run.outcome.as_ref().err().cloned()));
    group(runs).into_iter().map(|(conditions, runs)| ScoreGroup::new(conditions, runs, sweep_facts)).collect()
}

/// Groups runs by their conditions. A run that does not count gets no table of its own if another table exists: it may
/// have failed before recording its conditions.
fn group(mut runs: Vec<Run<ScoreRecord>>) -> Vec<(Option<ScoreConditions>, Vec<Run<ScoreRecord>>)> {
    type Known = Option<ScoreConditions>;
    runs.sort_by_key(|run| (run.outcome.is_err(), run.found.name));
    let conditions = |run: &Run<ScoreRecord>| run.recorded.as_ref().map(|recorded| recorded.conditions.clone());
    let rank = |(known, runs): (&Known, &[Run<ScoreRecord>]), (own, run): (&Known, &Run<ScoreRecord>)| {
        let key = CaseKey::new(run.found.name);
        match run.outcome {
            _ if known == own => Some(0),
            Ok(_) => None,
            Err(_) if runs.iter().any(|other| CaseKey::new(other.found.name).shares_row(&key)) => Some(1),
            Err(_) => Some(2),
        }
    };
    let mut groups = run_group::group(runs, conditions, rank);
    groups.sort_by_key(|(conditions, _)| {
        conditions.as_ref().map(|conditions| (conditions.device.to_string(), conditions.profile))
    });
    groups
}
