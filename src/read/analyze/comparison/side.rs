//! One side of a comparison, independent of its source: tables of cases with the figures of every run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ringmark_core::benchmark::RunProfile;
use ringmark_core::dimension::{
    BatchShape, BatchSize, Case, DeviceKind, Dtype, Model, Seconds, TeraflopsPerSecond, WorkUnit,
};
use ringmark_core::stats::run_values::RunValues;
use ringmark_core::stats::summary::STEP_PERCENTS;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::read::analyze::reliability::ReliabilityWarning;
use crate::read::analyze::settings::AXES;
use crate::read::load::environment::EnvironmentText;

/// BASE or TEST.
#[derive(Debug)]
pub struct Side {
    /// Path as given on the command line.
    pub path: PathBuf,
    /// Kind of measurement; both sides must have the same.
    pub kind: SideKind,
    /// Tables, which are compared separately.
    pub groups: Vec<SideGroup>,
    /// Start times of the runs, as text that sorts by time.
    pub started: BTreeSet<String>,
    /// Runs that are excluded, with the reason.
    pub left_out: Vec<String>,
}

/// Kind of measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideKind {
    /// Training with ringmark or DLPerf.
    Training,
    /// Inference with `ringmark score`.
    Score,
    /// Training with PyTorch's DDP benchmark.
    PytorchDdp,
    /// Collectives alone, with `ringmark bandwidth` or nccl-tests.
    Collectives,
    /// Writing and reading of checkpoints, with `ringmark checkpoint`.
    Checkpoints,
}

impl SideKind {
    /// Returns the name for use in a sentence.
    pub fn text(self) -> &'static str {
        match self {
            SideKind::Training => "training runs of ringmark or DLPerf",
            SideKind::Score => "inference runs of ringmark",
            SideKind::PytorchDdp => "PyTorch's DDP benchmark",
            SideKind::Collectives => "collectives alone (ringmark bandwidth, nccl-tests)",
            SideKind::Checkpoints => "checkpoints (ringmark checkpoint)",
        }
    }

    /// Returns the unit of the throughput of a network that counts `unit`.
    pub fn unit(self, unit: WorkUnit) -> &'static str {
        match self {
            SideKind::Training | SideKind::Score | SideKind::PytorchDdp => unit.per_second(),
            SideKind::Collectives | SideKind::Checkpoints => "GB/s",
        }
    }
}

/// Cases of equal conditions.
#[derive(Debug, Default)]
pub struct SideGroup {
    /// Quantity that was measured; tables with different names are never compared.
    pub name: String,
    /// Unit of the work of the network.
    pub unit: WorkUnit,
    /// Conditions that must be equal unless the comparison is forced; values may be unknown.
    pub must: Vec<RequiredCondition>,
    /// Options, used to match tables with the same name.
    pub settings: BTreeMap<String, String>,
    /// Settings that distinguish this table from others of its side, for its title.
    pub apart: Vec<String>,
    /// Cases in display order.
    pub cases: Vec<SideCase>,
}

/// Name and value of a required condition; `None` if an unknown value does not prevent a comparison.
pub type RequiredCondition = (&'static str, Option<String>);

/// Setting with the program that measured a side, if it is not ringmark's training.
pub const PROGRAM: &str = "program";

/// Value that differs from every known one.
pub const NOT_KNOWN: &str = "not known";

/// One case, compared with the case of the same name on the other side.
#[derive(Debug, Default)]
pub struct SideCase {
    /// Name, such as `1n2g`, `2 ranks` or `1048576 in-place`.
    pub name: String,
    /// Number of hosts; `None` if unknown.
    pub hosts: Option<u32>,
    /// Counted runs.
    pub runs: Vec<RunFigures>,
    /// Hardware and software of the runs; empty if unknown.
    pub environment: EnvironmentText,
    /// Rate of matrix products that the runs measured on all ranks; `None` if unknown.
    pub matrix_rate: Option<TeraflopsPerSecond>,
    /// Warnings about the runs.
    pub warnings: Vec<String>,
    /// Reasons why the figures are unreliable.
    pub reliability_warnings: Vec<ReliabilityWarning>,
}

/// Figures of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFigures {
    /// Work per time, in the unit of the kind.
    pub throughput: f64,
    /// Mean time of an iteration.
    pub mean: Seconds,
    /// Percentiles of the iteration times in seconds; `None` if only the mean is known.
    pub percentiles: Option<[f64; STEP_PERCENTS.len()]>,
    /// Electric energy per image; `None` if the power of a host is unknown.
    pub joules_per_unit: Option<f64>,
}

/// Condition of both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConditionDifference {
    /// Name of an option, environment variable or version.
    pub name: String,
    /// Value in BASE.
    pub base: String,
    /// Value in TEST.
    pub test: String,
}

impl ConditionDifference {
    /// Returns true if both sides have the same value.
    pub fn is_equal(&self) -> bool {
        self.base == self.test
    }
}

impl Side {
    /// Returns a side without tables.
    pub fn new(path: &Path, kind: SideKind) -> Side {
        Side { path: path.to_owned(), kind, groups: Vec::new(), started: BTreeSet::new(), left_out: Vec::new() }
    }

    /// Returns the table with these conditions, adding it if necessary.
    pub fn group(&mut self, like: SideGroup) -> &mut SideGroup {
        let is_like =
            |group: &SideGroup| (&group.name, &group.must, &group.settings) == (&like.name, &like.must, &like.settings);
        let place = self.groups.iter().position(is_like).unwrap_or_else(|| {
            self.groups.push(like);
            self.groups.len() - 1
        });
        &mut self.groups[place]
    }

    /// Adds distinguishing settings to the titles of tables that would otherwise have the same title.
    pub fn make_titles_unique(&mut self) {
        let apart = |group: &SideGroup| {
            let others = || self.groups.iter().filter(|other| other.title() == group.title());
            let differs = |name: &String, value: &String| others().any(|other| other.settings.get(name) != Some(value));
            let settings = group.settings.iter().filter(|(name, value)| differs(name, value));
            settings.map(|(name, value)| format!("{name} {value}")).collect()
        };
        let all: Vec<Vec<String>> = self.groups.iter().map(apart).collect();
        self.groups.iter_mut().zip(all).for_each(|(group, apart)| group.apart = apart);
    }

    /// Merges the runs of another part of the same side.
    pub fn merge(&mut self, part: Side) {
        for group in part.groups {
            let like =
                SideGroup { name: group.name, must: group.must, settings: group.settings, ..SideGroup::default() };
            let known = self.group(like);
            for case in group.cases {
                let known = known.case(&case.name);
                known.runs.extend(case.runs);
                known.hosts = known.hosts.or(case.hosts);
                known.matrix_rate = known.matrix_rate.or(case.matrix_rate);
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

    /// Returns the largest number of runs in a case.
    pub fn runs(&self) -> usize {
        self.groups.iter().flat_map(|group| &group.cases).map(|case| case.runs.len()).max().unwrap_or_default()
    }
}

impl RunFigures {
    /// Returns `None` if a time is not finite and positive.
    pub fn new(throughput: f64, mean: Seconds, percentiles: Option<[f64; STEP_PERCENTS.len()]>) -> Option<RunFigures> {
        let is_time = |time: &f64| time.is_finite() && *time > 0.0;
        let times = [mean.0].into_iter().chain(percentiles.into_iter().flatten()).all(|time| is_time(&time));
        (times && throughput.is_finite()).then_some(RunFigures { throughput, mean, percentiles, joules_per_unit: None })
    }
}

/// Start of the value of a batch size of all ranks.
const GLOBAL: &str = "global ";

impl SideCase {
    /// Returns a figure of every run; `None` if a run does not have it.
    pub fn values(&self, figure: &dyn Fn(&RunFigures) -> Option<f64>) -> Option<RunValues> {
        self.runs.iter().map(figure).collect()
    }
}

impl SideGroup {
    /// Returns an empty table for runs of ringmark. Runs without records have unknown conditions, so they are compared
    /// with known ones only if that is forced.
    pub fn from_runs(
        (model, dtype): (Model, Dtype),
        batch: Option<BatchShape>,
        device: Option<DeviceKind>,
        profile: Option<RunProfile>,
        settings: &BTreeMap<String, Value>,
    ) -> SideGroup {
        let mut settings: BTreeMap<String, String> =
            settings.iter().map(|(name, value)| (name.clone(), word(value))).collect();
        AXES.iter().for_each(|axis| drop(settings.remove(*axis)));
        let [image_size, sequence_length] = ["image_size", "sequence_length"].map(|name| settings.remove(name));
        settings.extend(profile.map(|profile| ("profile".to_owned(), profile.to_string())));
        let not_known = || NOT_KNOWN.to_owned();
        // Another program's images may have any size, which its user compares.
        let image_size =
            if settings.contains_key(PROGRAM) { image_size } else { image_size.or_else(|| Some(not_known())) };
        SideGroup {
            must: vec![
                ("model", Some(model.facts().title.to_owned())),
                ("precision", Some(dtype.to_string())),
                (
                    "batch size",
                    batch.map(|batch| match batch.size {
                        BatchSize::PerRank(_) => batch.numbers(),
                        BatchSize::Global(_) => format!("{GLOBAL}{}", batch.numbers()),
                    }),
                ),
                match model.unit() {
                    // The batch size contains it.
                    WorkUnit::Token => ("sequence length", sequence_length.filter(|_| batch.is_none())),
                    WorkUnit::Image => ("image size", image_size),
                },
                ("device", Some(device.map_or_else(not_known, |device| device.to_string()))),
            ],
            settings,
            unit: model.unit(),
            ..SideGroup::default()
        }
    }

    /// Returns the name and conditions, for a heading.
    pub fn title(&self) -> String {
        let values = self.must.iter().filter_map(|(what, value)| {
            let value = value.as_ref().filter(|value| *value != NOT_KNOWN)?;
            Some(match *what {
                "batch size" if value.starts_with(GLOBAL) => value.replacen(GLOBAL, "global batch size ", 1),
                "model" | "precision" | "device" | "element type" => value.clone(),
                what => format!("{what} {value}"),
            })
        });
        let name = Some(self.name.clone()).filter(|name| !name.is_empty());
        name.into_iter().chain(values).chain(self.apart.clone()).collect::<Vec<_>>().join(", ")
    }

    /// Returns the case with this name, adding it if necessary.
    pub fn case(&mut self, name: &str) -> &mut SideCase {
        let place = self.cases.iter().position(|case| case.name == name).unwrap_or_else(|| {
            self.cases.push(SideCase { name: name.to_owned(), ..SideCase::default() });
            self.cases.len() - 1
        });
        &mut self.cases[place]
    }
}

/// Returns the case for ranks that are distributed evenly.
pub fn case_of(ranks: u32, hosts: usize) -> Case {
    let nodes = u32::try_from(hosts).unwrap_or(u32::MAX).max(1);
    Case { nodes, gpus_per_node: ranks / nodes }
}

/// Returns a value without quotes; 25 and 25.0 give the same text.
pub fn word(value: &Value) -> String {
    match value {
        Value::String(word) => word.clone(),
        Value::Number(number) if number.is_f64() => number.as_f64().unwrap_or_default().to_string(),
        other => other.to_string(),
    }
}
