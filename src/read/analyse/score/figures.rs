//! Scoring runs into figures: tables of equal conditions, points of their axes, median and CV of the images/s. Pure: no
//! files, no printing.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_record::benchmark::Profile;
use ringmark_record::dimension::case::Case;
use ringmark_record::dimension::device::DeviceKind;
use ringmark_record::dimension::dtype::Dtype;
use ringmark_record::dimension::model::Model;
use ringmark_record::dimension::units::{Bytes, ImagesPerSecond};
use ringmark_record::host::environment::RankPlace;
use ringmark_record::options::keyword_enum::KeywordEnum;
use ringmark_record::stats::summary::{coefficient_of_variation, median};
use serde_json::Value;

use crate::read::analyse::grouping;
use crate::read::analyse::reliability::{self, ReliabilityWarning};
use crate::read::analyse::run_warnings::{self, CountedRun};
use crate::read::analyse::utilisation::Utilisation;
use crate::read::load::environment::{self, EnvironmentText};
use crate::read::load::every_record::DeviceRates;
use crate::read::load::folder::{Shortage, SweepFacts};
use crate::read::load::problem::Problem;
use crate::read::load::score_run::{ScoreConditions, ScoreMeasured, ScoreRecorded, ScoreRun};

/// All that was worked out of one folder.
#[derive(Debug, PartialEq)]
pub struct ScoreExtraction {
    /// Last part of the folder's path.
    pub name: String,
    /// The command that goes on with the sweep, from its manifest.
    pub resume_command: Option<String>,
    /// Never mixed: by device, then profile.
    pub tables: Vec<ScoreTable>,
    /// Batches without memory.
    pub shortages: Vec<Shortage>,
    /// What is not in the figures, and why.
    pub problems: Vec<Problem>,
}

/// Runs of equal conditions, whatever the network, the precision, the batch size and the case.
#[derive(Debug, PartialEq)]
pub struct ScoreTable {
    /// `None` where no run has a record.
    pub conditions: Option<ScoreConditions>,
    /// In the order of [`PointKey`].
    pub points: Vec<ScorePoint>,
    /// What a reader of the figures must know.
    pub warnings: Vec<String>,
    /// Why none of its figures is reliable.
    pub reliability_warnings: Vec<ReliabilityWarning>,
}

/// A point of the axes, in the order of a table: rows are network, precision and case, columns are batch sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PointKey {
    /// Network.
    pub model: Model,
    /// Precision.
    pub dtype: Dtype,
    /// Ranks of the case, by which cases are sorted.
    ranks: u32,
    /// Nodes and ranks a node.
    pub case: Case,
    /// Images of a rank and pass.
    pub batch_size: u32,
}

/// One point, with its runs.
#[derive(Debug, PartialEq)]
pub struct ScorePoint {
    /// Which.
    pub key: PointKey,
    /// By number, those that do not count included.
    pub runs: Vec<ScoreRun>,
    /// `None` where no run counts.
    pub figures: Option<ScoreFigures>,
    /// What was seen in its counted runs.
    pub warnings: Vec<String>,
    /// Why its images/s are unreliable.
    pub reliability_warnings: Vec<ReliabilityWarning>,
}

/// Figures of a point over its counted runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreFigures {
    /// Median over runs.
    pub speed: ImagesPerSecond,
    /// Coefficient of variation of the runs' images/s; `None` for one run.
    pub cv: Option<f64>,
}

impl PointKey {
    fn of(run: &ScoreRun) -> PointKey {
        let name = run.found.name;
        let (ranks, case) = (name.case.ranks(), name.case);
        PointKey { model: name.model, dtype: name.dtype, ranks, case, batch_size: name.batch_size }
    }

    /// Its options by their names in records; the case is none.
    pub fn axes(&self) -> BTreeMap<String, Value> {
        let PointKey { model, dtype, batch_size, .. } = *self;
        let values = [Value::from(model.keyword()), Value::from(dtype.keyword()), Value::from(batch_size)];
        grouping::AXES.map(str::to_owned).into_iter().zip(values).collect()
    }

    /// In a sentence.
    fn title(&self) -> String {
        let PointKey { model, dtype, case, batch_size, .. } = self;
        format!("{}, {dtype}, {case}, batch size {batch_size}", model.facts().title)
    }

    /// Whether both stand in one row of a table.
    pub fn shares_row(&self, other: &PointKey) -> bool {
        PointKey { batch_size: 0, ..*self } == PointKey { batch_size: 0, ..*other }
    }
}

impl ScorePoint {
    fn new(key: PointKey, mut runs: Vec<ScoreRun>, asked: &SweepFacts) -> ScorePoint {
        runs.sort_by_key(|run| run.found.name.run);
        let counted: Vec<(u32, &ScoreMeasured)> =
            runs.iter().filter_map(|run| Some((run.found.name.run, run.outcome.as_ref().ok()?))).collect();
        let speeds: Vec<f64> = counted.iter().map(|(_, measured)| measured.speed.0).collect();
        let figures = median(&speeds)
            .map(|speed| ScoreFigures { speed: ImagesPerSecond(speed), cv: coefficient_of_variation(&speeds) });
        let case = key.case;
        let what = key.title();
        let loads: Vec<_> = counted.iter().map(|(run, measured)| (*run, measured.foreign_load.as_ref())).collect();
        let reliability_warnings = reliability::to_speed(case, figures.and_then(|figures| figures.cv), &loads, asked);
        let counted = counted.iter().map(|(run, measured)| CountedRun { run: *run, warnings: &measured.warnings });
        let warnings = run_warnings::of_runs(&what, &counted.collect::<Vec<_>>());
        ScorePoint { key, runs, figures, warnings, reliability_warnings }
    }

    /// Runs that count.
    pub fn counted(&self) -> impl Iterator<Item = &ScoreMeasured> {
        self.runs.iter().filter_map(|run| run.outcome.as_ref().ok())
    }

    /// Memory of the rank that held most, in any run that counts; `None` where no record tells.
    pub fn peak_memory(&self) -> Option<Bytes> {
        self.counted().filter_map(|run| run.peak_memory).max_by_key(|bytes| bytes.0)
    }

    /// Names of the devices of its ranks.
    pub fn device_names(&self) -> BTreeSet<String> {
        self.ranks().map(|rank| rank.device_name.clone()).collect()
    }

    /// CPU threads of its ranks.
    pub fn threads(&self) -> BTreeSet<u32> {
        self.ranks().map(|rank| rank.threads).collect()
    }

    /// Ranks of the runs that count.
    pub fn ranks(&self) -> impl Iterator<Item = &RankPlace> {
        self.recorded().flat_map(|recorded| &recorded.ranks)
    }

    /// What its runs that count ran on.
    pub fn environment(&self) -> EnvironmentText {
        let mut environment = EnvironmentText::new();
        self.recorded().for_each(|recorded| environment::add_environment(&mut environment, &recorded.environment));
        environment::add_ranks(&mut environment, self.ranks());
        environment
    }

    /// What the records of the runs that count say.
    pub fn recorded(&self) -> impl Iterator<Item = &ScoreRecorded> {
        let counted = self.runs.iter().filter(|run| run.outcome.is_ok());
        counted.filter_map(|run| run.recorded.as_ref())
    }
}

impl ScoreTable {
    fn new(conditions: Option<ScoreConditions>, runs: Vec<ScoreRun>, asked: &SweepFacts) -> ScoreTable {
        let mut points: BTreeMap<PointKey, Vec<ScoreRun>> = BTreeMap::new();
        for run in runs {
            points.entry(PointKey::of(&run)).or_default().push(run);
        }
        let points = points.into_iter().map(|(key, runs)| ScorePoint::new(key, runs, asked)).collect();
        let mut table = ScoreTable { conditions, points, warnings: Vec::new(), reliability_warnings: Vec::new() };
        let software = table.recorded().map(|recorded| recorded.software.clone()).collect();
        table.reliability_warnings.extend(table.is_quick().then(reliability::to_quick));
        table.warnings = run_warnings::of_mixture(&table.device_names(), &software);
        table
    }

    /// What the records of the runs that count say.
    pub fn recorded(&self) -> impl Iterator<Item = &ScoreRecorded> {
        self.points.iter().flat_map(ScorePoint::recorded)
    }

    /// Names of all devices.
    pub fn device_names(&self) -> BTreeSet<String> {
        self.points.iter().flat_map(ScorePoint::device_names).collect()
    }

    /// CPU threads of all ranks.
    pub fn threads(&self) -> BTreeSet<u32> {
        self.points.iter().flat_map(ScorePoint::threads).collect()
    }

    /// What a point takes of the devices; `None` without records.
    pub fn utilisation(&self, point: &ScorePoint) -> Option<Utilisation> {
        let image_size = self.conditions.as_ref()?.image_size(point.key.model);
        let runs: Vec<DeviceRates> = point.counted().map(|run| run.device_rates).collect();
        Some(Utilisation::new((point.key.model, image_size), 1.0, point.figures?.speed, &runs))
    }

    /// Kind of all devices.
    pub fn device(&self) -> Option<DeviceKind> {
        self.conditions.as_ref().map(|conditions| conditions.device)
    }

    /// True if the images/s of one of its points are unreliable.
    pub fn is_doubtful(&self, point: &ScorePoint) -> bool {
        !(self.reliability_warnings.is_empty() && point.reliability_warnings.is_empty())
    }

    /// Its own, then those of its points' runs.
    pub fn all_warnings(&self) -> impl Iterator<Item = &String> {
        self.warnings.iter().chain(self.points.iter().flat_map(|point| &point.warnings))
    }

    /// Every warning once; its reason names the point that it is to.
    pub fn all_reliability_warnings(&self) -> Vec<ReliabilityWarning> {
        let of_points =
            self.points.iter().flat_map(|point| point.reliability_warnings.iter().map(|own| own.to(point.key.title())));
        self.reliability_warnings.iter().cloned().chain(of_points).collect()
    }

    /// Whether its runs were a first look and not a measurement.
    pub fn is_quick(&self) -> bool {
        self.conditions.as_ref().is_some_and(|conditions| conditions.profile == Profile::Quick)
    }
}

/// All networks.
pub fn models(tables: &[ScoreTable]) -> BTreeSet<Model> {
    tables.iter().flat_map(|table| &table.points).map(|point| point.key.model).collect()
}

/// Works out everything from the runs of the folder called `name`; `problems` are those found before.
pub fn extract(name: &str, runs: Vec<ScoreRun>, mut problems: Vec<Problem>, asked: &SweepFacts) -> ScoreExtraction {
    problems.extend(runs.iter().filter_map(|run| run.outcome.as_ref().err().cloned()));
    let tables = group(runs).into_iter().map(|(conditions, runs)| ScoreTable::new(conditions, runs, asked)).collect();
    let (resume_command, shortages) = (asked.resume_command.clone(), asked.shortages.clone());
    ScoreExtraction { name: name.to_owned(), resume_command, tables, shortages, problems }
}

/// Sorts runs by their conditions. A run that does not count makes no table of its own while there is another: it may have
/// failed before it could record its conditions.
fn group(mut runs: Vec<ScoreRun>) -> Vec<(Option<ScoreConditions>, Vec<ScoreRun>)> {
    let mut groups: Vec<(Option<ScoreConditions>, Vec<ScoreRun>)> = Vec::new();
    runs.sort_by_key(|run| (run.outcome.is_err(), run.found.name));
    for run in runs {
        let own = run.recorded.as_ref().map(|recorded| recorded.conditions.clone());
        let has_row = |runs: &[ScoreRun]| runs.iter().any(|other| PointKey::of(other).shares_row(&PointKey::of(&run)));
        let index = groups.iter().position(|(known, _)| *known == own).or_else(|| match run.outcome {
            Ok(_) => None,
            Err(_) => groups.iter().position(|(_, runs)| has_row(runs)).or((!groups.is_empty()).then_some(0)),
        });
        match index {
            Some(index) => groups[index].1.push(run),
            None => groups.push((own, vec![run])),
        }
    }
    groups.sort_by_key(|(conditions, _)| {
        conditions.as_ref().map(|conditions| (conditions.device.to_string(), conditions.profile))
    });
    groups
}
