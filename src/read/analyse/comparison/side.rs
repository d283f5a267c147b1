//! One side of a comparison, whatever it was read from: tables of cases, each with a figure for every run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ringmark_core::benchmark::RunProfile;
use ringmark_core::dimension::{DeviceKind, Dtype, Model, Seconds};
use ringmark_core::stats::run_values::RunValues;
use ringmark_core::stats::summary::STEP_PERCENTS;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::read::analyse::grouping::AXES;
use crate::read::analyse::reliability::ReliabilityWarning;
use crate::read::load::environment::EnvironmentText;

/// BASE or TEST.
#[derive(Debug)]
pub struct Side {
    /// As it was typed.
    pub path: PathBuf,
    /// Only sides of one kind are compared.
    pub kind: SideKind,
    /// Never mixed.
    pub sets: Vec<SideTable>,
    /// When runs began, as text, which sorts by time.
    pub started: BTreeSet<String>,
    /// What is not in the figures, and why.
    pub left_out: Vec<String>,
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideKind {
    /// Training, by ringmark or DLPerf.
    Training,
    /// Inference, by `ringmark score`.
    Scoring,
    /// Training, by PyTorch's DDP benchmark.
    PytorchDdp,
    /// All-reduce and the like alone, by `ringmark bandwidth` or nccl-tests.
    Collectives,
}

impl SideKind {
    /// In a sentence.
    pub fn text(self) -> &'static str {
        match self {
            SideKind::Training => "training runs of ringmark or DLPerf",
            SideKind::Scoring => "scoring runs of ringmark",
            SideKind::PytorchDdp => "PyTorch's DDP benchmark",
            SideKind::Collectives => "collectives alone (ringmark bandwidth, nccl-tests)",
        }
    }

    /// Of the throughput.
    pub fn unit(self) -> &'static str {
        match self {
            SideKind::Training | SideKind::Scoring | SideKind::PytorchDdp => "images/s",
            SideKind::Collectives => "GB/s",
        }
    }
}

/// Cases of equal conditions.
#[derive(Debug, Default)]
pub struct SideTable {
    /// What was measured, where there can be several: tables of different names are never compared.
    pub name: String,
    /// What must be equal to be compared, unless that is forced; a value may be unknown.
    pub must: Vec<Must>,
    /// Options. They say which of several tables of one name is meant.
    pub settings: BTreeMap<String, String>,
    /// Those that distinguish it from others of its side, for its title.
    pub apart: Vec<String>,
    /// In the order in which they are shown.
    pub cases: Vec<SideCase>,
}

/// What it is, and its value; `None` where it is in nobody's way that it is not known.
pub type Must = (&'static str, Option<String>);

/// Value that differs from every known one.
pub const NOT_KNOWN: &str = "not known";

/// What is compared with its namesake.
#[derive(Debug, Default)]
pub struct SideCase {
    /// `1n2g`, `2 ranks`, `1048576 in-place`.
    pub name: String,
    /// That count.
    pub runs: Vec<RunFigures>,
    /// What its runs ran on and with; empty where that is not known.
    pub environment: EnvironmentText,
    /// What was seen in its runs.
    pub warnings: Vec<String>,
    /// Why its figures are unreliable.
    pub reliability_warnings: Vec<ReliabilityWarning>,
}

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFigures {
    /// Work over time, in the unit of its kind.
    pub throughput: f64,
    /// Mean time of an iteration.
    pub mean: Seconds,
    /// Of its iteration times, in seconds; `None` where only the mean is known.
    pub percentiles: Option<[f64; STEP_PERCENTS.len()]>,
    /// Of electric energy; `None` where the power of a host is not known.
    pub joules_per_image: Option<f64>,
}

/// What differs, with both values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConditionDifference {
    /// An option, a variable, a version.
    pub name: String,
    /// Of BASE.
    pub base: String,
    /// Of TEST.
    pub test: String,
}

impl Side {
    /// Of nothing yet.
    pub fn new(path: &Path, kind: SideKind) -> Side {
        Side { path: path.to_owned(), kind, sets: Vec::new(), started: BTreeSet::new(), left_out: Vec::new() }
    }

    /// The table of these conditions, made where there is none.
    pub fn set(&mut self, like: SideTable) -> &mut SideTable {
        let is_like =
            |set: &SideTable| (&set.name, &set.must, &set.settings) == (&like.name, &like.must, &like.settings);
        let place = self.sets.iter().position(is_like).unwrap_or_else(|| {
            self.sets.push(like);
            self.sets.len() - 1
        });
        &mut self.sets[place]
    }

    /// Tables of one title get the settings into it that distinguish them.
    pub fn tell_apart(&mut self) {
        let apart = |set: &SideTable| {
            let others = || self.sets.iter().filter(|other| other.title() == set.title());
            let differs = |name: &String, value: &String| others().any(|other| other.settings.get(name) != Some(value));
            let settings = set.settings.iter().filter(|(name, value)| differs(name, value));
            settings.map(|(name, value)| format!("{name} {value}")).collect()
        };
        let all: Vec<Vec<String>> = self.sets.iter().map(apart).collect();
        self.sets.iter_mut().zip(all).for_each(|(set, apart)| set.apart = apart);
    }

    /// Takes in the runs of another part of the same side.
    pub fn absorb(&mut self, part: Side) {
        for set in part.sets {
            let like = SideTable { name: set.name, must: set.must, settings: set.settings, ..SideTable::default() };
            let known = self.set(like);
            for case in set.cases {
                let known = known.case(&case.name);
                known.runs.extend(case.runs);
                known.warnings.extend(case.warnings);
                known.reliability_warnings.extend(case.reliability_warnings);
                for (name, values) in case.environment {
                    known.environment.entry(name).or_default().extend(values);
                }
            }
        }
        self.started.extend(part.started);
        self.left_out.extend(part.left_out);
    }

    /// Runs of its case that has most.
    pub fn runs(&self) -> usize {
        self.sets.iter().flat_map(|set| &set.cases).map(|case| case.runs.len()).max().unwrap_or_default()
    }
}

impl RunFigures {
    /// `None` where a time is none.
    pub fn of(throughput: f64, mean: Seconds, percentiles: Option<[f64; STEP_PERCENTS.len()]>) -> Option<RunFigures> {
        let is_time = |time: &f64| time.is_finite() && *time > 0.0;
        let times = [mean.0].into_iter().chain(percentiles.into_iter().flatten()).all(|time| is_time(&time));
        (times && throughput.is_finite()).then_some(RunFigures {
            throughput,
            mean,
            percentiles,
            joules_per_image: None,
        })
    }
}

impl SideCase {
    /// A figure of every run; `None` unless all of them have it.
    pub fn values(&self, figure: &dyn Fn(&RunFigures) -> Option<f64>) -> Option<RunValues> {
        self.runs.iter().map(figure).collect()
    }
}

impl SideTable {
    /// The table of runs of ringmark, without cases. Runs without records have conditions that are not known: they are not
    /// compared with known ones unless that is forced.
    pub fn of_runs(
        (model, dtype): (Model, Dtype),
        batch_size: Option<u32>,
        device: Option<DeviceKind>,
        profile: Option<RunProfile>,
        settings: &BTreeMap<String, Value>,
    ) -> SideTable {
        let mut settings: BTreeMap<String, String> =
            settings.iter().map(|(name, value)| (name.clone(), word(value))).collect();
        AXES.iter().for_each(|axis| drop(settings.remove(*axis)));
        let image_size = settings.remove("image_size");
        settings.extend(profile.map(|profile| ("profile".to_owned(), profile.to_string())));
        let not_known = || NOT_KNOWN.to_owned();
        SideTable {
            must: vec![
                ("model", Some(model.facts().title.to_owned())),
                ("precision", Some(dtype.to_string())),
                ("batch size", batch_size.map(|batch_size| batch_size.to_string())),
                ("image size", Some(image_size.unwrap_or_else(not_known))),
                ("device", Some(device.map_or_else(not_known, |device| device.to_string()))),
            ],
            settings,
            ..SideTable::default()
        }
    }

    /// Name and conditions, as a heading.
    pub fn title(&self) -> String {
        let values = self.must.iter().filter_map(|(what, value)| {
            let value = value.as_ref().filter(|value| *value != NOT_KNOWN)?;
            Some(match *what {
                "model" | "precision" | "device" | "element type" => value.clone(),
                what => format!("{what} {value}"),
            })
        });
        let name = Some(self.name.clone()).filter(|name| !name.is_empty());
        name.into_iter().chain(values).chain(self.apart.clone()).collect::<Vec<_>>().join(", ")
    }

    /// The case of this name, made where there is none.
    pub fn case(&mut self, name: &str) -> &mut SideCase {
        let place = self.cases.iter().position(|case| case.name == name).unwrap_or_else(|| {
            self.cases.push(SideCase { name: name.to_owned(), ..SideCase::default() });
            self.cases.len() - 1
        });
        &mut self.cases[place]
    }
}

/// A value without quotes; 25 and 25.0 are the same.
pub fn word(value: &Value) -> String {
    match value {
        Value::String(word) => word.clone(),
        Value::Number(number) if number.is_f64() => number.as_f64().unwrap_or_default().to_string(),
        other => other.to_string(),
    }
}
