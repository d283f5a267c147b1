//! Runs into figures: groups of equal conditions, cases, speedup, efficiency. Pure: no files, no printing.
//!
//! Speeds of one run are made in [`crate::read::load::training`]; formulas over runs are those of `ringmark_core::stats`.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_core::benchmark::RunProfile;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::benchmark::warning::WarningKind;
use ringmark_core::dimension::{Case, DeviceChoice, ImagesPerSecond, KvStore};
use ringmark_core::file::run_name::RunName;
use ringmark_core::stats::run_values::RunValues;
use ringmark_core::stats::scaling::{communication_cost, efficiency, speedup};
use schemars::JsonSchema;
use serde::Serialize;

use crate::read::analyse::case_runs::CaseRuns;
use crate::read::analyse::grouping::{self, Conditions};
use crate::read::analyse::reliability::{self, ReliabilityWarning};
use crate::read::analyse::run_warnings;
use crate::read::load::folder::{Shortage, SweepFacts};
use crate::read::load::iteration_times::IterationTimes;
use crate::read::load::problem::Problem;
use crate::read::load::run::{Measured, Recorded, Run};
use crate::read::load::training::{to_hundredths, unit};

/// Figures of one folder: groups of training, or tables of scoring.
#[derive(Debug, PartialEq)]
pub struct Extraction<T = Group> {
    /// Last part of the folder's path, the first word of every file that is written.
    pub name: String,
    /// The command that goes on with the sweep, from its manifest.
    pub resume_command: Option<String>,
    /// Runs of equal conditions. Training: by model, precision, then batch size; scoring: by device, then profile.
    pub groups: Vec<T>,
    /// Batches without memory.
    pub shortages: Vec<Shortage>,
    /// What is not in the figures, and why.
    pub problems: Vec<Problem>,
}

/// Runs of equal conditions.
#[derive(Debug, PartialEq)]
pub struct Group {
    /// The model's name in file names where there is one group, as in DLPerf's JSON; otherwise with what tells the groups
    /// apart.
    pub label: String,
    /// What its runs share.
    pub conditions: Conditions,
    /// Where they were asked to run, where the manifest says it and no record does.
    pub asked_device: Option<DeviceChoice>,
    /// Names of all devices.
    pub device_names: BTreeSet<String>,
    /// Of the counted runs: iterations, or windows of them, warm-up included. More than one value only without records.
    pub timed: BTreeSet<usize>,
    /// Of the counted runs: the first of them that were left out.
    pub warmup: BTreeSet<usize>,
    /// Case that speedup and efficiency are relative to; `None` where no run counts.
    pub base: Option<Case>,
    /// The single rank of `ring`, which is the base where the group has none of its own: of another kv-store in the same sweep.
    pub common_base: Option<Box<TrainedCase>>,
    /// By ranks, then nodes.
    pub cases: Vec<TrainedCase>,
    /// What a reader of the figures must know.
    pub warnings: Vec<String>,
    /// Why none of its figures is reliable.
    pub reliability_warnings: Vec<ReliabilityWarning>,
}

/// Runs of one case of training.
pub type TrainedCase = CaseRuns<RunRecord, Figures>;

/// Figures of one case over its counted runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// Speed of the case: the median over runs of [`Measured::speed`].
    pub speed: ImagesPerSecond,
    /// `speed / ranks`.
    pub per_rank: ImagesPerSecond,
    /// Coefficient of variation of the runs' speeds; `None` for one run.
    pub cv: Option<f64>,
    /// `speed / speed of the base`.
    pub speedup: f64,
    /// `speedup / (ranks / ranks of the base)`.
    pub efficiency: f64,
    /// Medians over runs, where every counted run has a record.
    pub times: Option<IterationTimes>,
    /// The same runs as DLPerf counts.
    pub dlperf: DlperfFigures,
}

/// DLPerf's figures of a case, which come from means of rates and are rounded before they are used: for its file, and to
/// stand beside what others published so. No other figure is made of them.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DlperfFigures {
    /// Mean over runs of their `dlperf_speed`, 2 decimals.
    pub average_speed: ImagesPerSecond,
    /// Median over runs, 2 decimals.
    pub median_speed: ImagesPerSecond,
    /// `median_speed / median_speed of 1n1g`, 2 decimals; `None` where no run of 1n1g counts.
    pub speedup: Option<f64>,
}

impl TrainedCase {
    fn warn_of_scaling(&mut self, base: Case, is_base_reliable: bool, asked: &SweepFacts) {
        let Some(figures) = &self.figures else { return };
        self.scaling_reliability_warnings.extend(reliability::to_efficiency(figures.efficiency, base, asked));
        self.scaling_reliability_warnings.extend((!is_base_reliable).then(|| reliability::to_base(base, asked)));
        let is_oversubscribed = |run: &Measured| run.warnings.iter().any(|it| it.kind == WarningKind::Oversubscribed);
        let is_oversubscribed = self.counted().any(is_oversubscribed);
        self.scaling_reliability_warnings.extend(is_oversubscribed.then(reliability::to_oversubscribed));
    }

    /// How much longer its step is than that of its baseline, as a share; `None` unless both have records.
    pub fn communication_cost(&self) -> Option<f64> {
        let step = |case: &TrainedCase| Some(case.figures.as_ref()?.times?.step);
        Some(communication_cost(step(self)?, step(self.baseline.as_ref()?)?))
    }
}

impl Group {
    /// Whether its runs were a first look and not a measurement.
    pub fn is_quick(&self) -> bool {
        self.conditions.recorded.as_ref().is_some_and(|recorded| recorded.profile == RunProfile::Quick)
    }

    /// Of every run, those that do not count included.
    pub fn run_names(&self) -> impl Iterator<Item = RunName> {
        self.with_baselines().flat_map(|case| &case.runs).map(|run| run.found.name)
    }

    /// Every case, each with its baseline.
    pub fn with_baselines(&self) -> impl Iterator<Item = &TrainedCase> {
        self.cases.iter().flat_map(|case| std::iter::once(case).chain(case.baseline.as_deref()))
    }

    /// What speedup and efficiency are relative to; `None` where no run counts.
    pub fn base_case(&self) -> Option<&TrainedCase> {
        self.common_base.as_deref().or_else(|| self.case(self.base?))
    }

    /// Kv-store of that case.
    pub fn base_kv_store(&self) -> Option<KvStore> {
        let own = self.conditions.kv_store;
        self.base.map(|_| if self.common_base.is_some() { KvStore::Ring } else { own })
    }

    /// Its name: `1n1g`, or `1n1g of ring` where that is another table's.
    pub fn base_text(&self) -> Option<String> {
        let of_ring = if self.common_base.is_some() { " of ring" } else { "" };
        self.base.map(|base| format!("{base}{of_ring}"))
    }

    /// The runs of a case.
    pub fn case(&self, wanted: Case) -> Option<&TrainedCase> {
        self.cases.iter().find(|case| case.case == wanted)
    }

    /// True if its speedup and efficiency, and so all its figures, are reliable.
    pub fn is_reliable(&self, case: &TrainedCase) -> bool {
        case.figures.is_some() && self.scaling_reliability_warnings(case).next().is_none()
    }

    /// Why the speed of a case is unreliable.
    pub fn speed_reliability_warnings<'a>(
        &'a self,
        case: &'a TrainedCase,
    ) -> impl Iterator<Item = &'a ReliabilityWarning> {
        self.reliability_warnings.iter().chain(&case.speed_reliability_warnings)
    }

    /// Why its speedup and efficiency are not.
    pub fn scaling_reliability_warnings<'a>(
        &'a self,
        case: &'a TrainedCase,
    ) -> impl Iterator<Item = &'a ReliabilityWarning> {
        self.speed_reliability_warnings(case).chain(&case.scaling_reliability_warnings)
    }

    /// Every warning once; its reason names the case that it is to. Those to the whole table say enough.
    pub fn all_reliability_warnings(&self) -> Vec<ReliabilityWarning> {
        if !self.reliability_warnings.is_empty() {
            return self.reliability_warnings.clone();
        }
        let of_case = |case: &TrainedCase| {
            let own = case.reliability_warnings().map(|warning| warning.to(case.case));
            let baseline = case.baseline.iter().flat_map(|baseline| baseline.reliability_warnings());
            // The same base speaks against both.
            let baseline = baseline.filter(|warning| !case.scaling_reliability_warnings.contains(warning));
            let baseline = baseline.map(|warning| warning.to(format!("{} without communication", case.case)));
            own.chain(baseline).collect::<Vec<_>>()
        };
        self.cases.iter().flat_map(of_case).collect()
    }

    /// Its figures, once it is known whether it has a single rank of its own; otherwise that of `ring` is its base.
    fn settle(&mut self, of_ring: Option<TrainedCase>, asked: &SweepFacts) {
        // Cases are in order of their ranks, so the first with a counted run is 1n1g where there is one.
        let own = self.cases.iter().find_map(Base::of);
        let of_ring = of_ring.filter(|_| own.is_some_and(|own| own.case != Case::SINGLE));
        let base = of_ring.as_ref().and_then(Base::of).or(own);
        self.common_base = of_ring.map(Box::new);
        if let Some(base) = base {
            for case in &mut self.cases {
                case.figures = case_figures(case, base);
                if let Some(baseline) = &mut case.baseline {
                    baseline.figures = case_figures(baseline, base);
                }
            }
        }
        self.base = base.map(|base| base.case);
        self.warnings.splice(0..0, self.base.and_then(missing_base));
        self.asked_device = asked.device.filter(|_| self.conditions.recorded.is_none());
        self.object(asked);
    }

    /// Of all cases, once their figures are there.
    fn object(&mut self, asked: &SweepFacts) {
        self.reliability_warnings.extend(self.is_quick().then(reliability::to_quick));
        let inject = self.conditions.recorded.as_ref().and_then(|recorded| recorded.config.inject);
        self.reliability_warnings.extend(inject.map(reliability::to_fault));
        for case in &mut self.cases {
            case.warn_of_speed(asked);
            case.baseline.iter_mut().for_each(|baseline| baseline.warn_of_speed(asked));
        }
        let Some(base) = self.base else { return };
        let is_base_reliable = self.base_case().is_none_or(|case| case.speed_reliability_warnings.is_empty());
        for case in self.cases.iter_mut().filter(|case| case.case != base) {
            case.warn_of_scaling(base, is_base_reliable, asked);
            case.baseline.iter_mut().for_each(|baseline| baseline.warn_of_scaling(base, is_base_reliable, asked));
        }
    }
}

/// Works out everything from the runs of the folder called `name`; `problems` are those found before.
pub fn extract(name: &str, mut runs: Vec<Run>, mut problems: Vec<Problem>, asked: &SweepFacts) -> Extraction {
    leave_out_cut_off(&mut runs);
    problems.extend(runs.iter().filter_map(|run| run.outcome.as_ref().err().cloned()));
    let mut groups: Vec<Group> =
        grouping::group(runs).into_iter().map(|(conditions, runs)| of_runs(conditions, runs)).collect();
    groups.iter_mut().filter(|group| group.conditions.kv_store.is_ring()).for_each(|group| group.settle(None, asked));
    for index in 0..groups.len() {
        if !groups[index].conditions.kv_store.is_ring() {
            let of_ring = groups[index].conditions.of_ring();
            let ring = groups.iter().find(|group| group.conditions == of_ring);
            let single = ring.and_then(|ring| ring.case(Case::SINGLE)).filter(|case| case.figures.is_some()).cloned();
            groups[index].settle(single, asked);
        }
    }
    problems.extend(groups.iter().filter_map(base_problem));
    let conditions: Vec<&Conditions> = groups.iter().map(|group| &group.conditions).collect();
    let labels = grouping::labels(&conditions);
    groups.iter_mut().zip(labels).for_each(|(group, label)| group.label = label);
    let (resume_command, shortages) = (asked.resume_command.clone(), asked.shortages.clone());
    Extraction { name: name.to_owned(), resume_command, groups, shortages, problems }
}

/// A log without a record does not say how many iterations were asked for: the number that most logs of its case have
/// is taken for it, and a log with fewer was cut off.
fn leave_out_cut_off(runs: &mut [Run]) {
    let tool = |run: &Run| Some(run.outcome.as_ref().ok()?.figures.windows?.tool);
    let key = |run: &Run| (RunName { run: 0, ..run.found.name }, tool(run));
    let length = |measured: &Measured| match measured.figures.iterations() {
        Some([iterations, _]) => (iterations, unit(false)),
        None => (measured.figures.timed, unit(true)),
    };
    let mut lengths: BTreeMap<_, BTreeMap<usize, usize>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.recorded.is_none()) {
        if let Ok(measured) = &run.outcome {
            *lengths.entry(key(run)).or_default().entry(length(measured).0).or_default() += 1;
        }
    }
    for run in runs.iter_mut().filter(|run| run.recorded.is_none()) {
        let Some((&usual, _)) =
            lengths.get(&key(run)).and_then(|counts| counts.iter().max_by_key(|(_, count)| **count))
        else {
            continue;
        };
        if let Ok((length, unit)) = run.outcome.as_ref().map(length)
            && length < usual
        {
            let what = format!("{length} {unit} where most logs of the case have {usual}: cut off, repeat the run");
            run.outcome = Err(Problem::in_file(&run.found.log, what));
        }
    }
}

/// Without what is relative to a base.
fn of_runs(conditions: Conditions, runs: Vec<Run>) -> Group {
    let counted = || runs.iter().filter_map(|run| run.outcome.as_ref().ok());
    let timed = counted().map(|measured| measured.figures.timed).collect();
    let warmup = counted().map(|measured| measured.figures.warmup).collect();
    let device_names = runs.iter().filter_map(|run| run.recorded.as_ref()).flat_map(Recorded::device_names);
    let device_names: BTreeSet<String> = device_names.collect();
    let recorded = runs.iter().filter(|run| run.outcome.is_ok()).filter_map(|run| run.recorded.as_ref());
    let software = recorded.map(|recorded| recorded.software.clone()).collect();
    // Baselines of nothing are runs like any other.
    let only_baselines = runs.iter().all(|run| run.found.name.baseline);
    let (baselines, runs): (Vec<Run>, Vec<Run>) =
        runs.into_iter().partition(|run| run.found.name.baseline && !only_baselines);
    let mut baselines = by_case(baselines);
    let mut cases = by_case(runs);
    for key in baselines.keys() {
        cases.entry(*key).or_default();
    }
    let cases: Vec<TrainedCase> = cases
        .into_iter()
        .map(|(key, runs)| {
            let (_, case) = key;
            let baseline = baselines.remove(&key).map(|runs| Box::new(case_runs(case, runs)));
            TrainedCase { baseline, ..case_runs(case, runs) }
        })
        .collect();
    let mut group = Group {
        label: String::new(),
        conditions,
        asked_device: None,
        device_names,
        timed,
        warmup,
        base: None,
        common_base: None,
        cases,
        warnings: Vec::new(),
        reliability_warnings: Vec::new(),
    };
    group.warnings = warnings(&group, &software);
    group
}

fn case_runs(case: Case, runs: Vec<Run>) -> TrainedCase {
    let what = runs.first().map(|run| run.found.name.what()).unwrap_or_default();
    TrainedCase::new(case, &what, runs)
}

/// In the order of the tables: by ranks, then nodes.
fn by_case(runs: Vec<Run>) -> BTreeMap<(u32, Case), Vec<Run>> {
    let mut cases: BTreeMap<(u32, Case), Vec<Run>> = BTreeMap::new();
    for run in runs {
        let case = run.found.name.case;
        cases.entry((case.ranks(), case)).or_default().push(run);
    }
    cases
}

/// What the figures of a group are relative to.
#[derive(Clone, Copy)]
struct Base {
    case: Case,
    speed: ImagesPerSecond,
    dlperf_speed: ImagesPerSecond,
}

impl Base {
    fn of(case: &TrainedCase) -> Option<Base> {
        Some(Base { case: case.case, speed: case.speed()?, dlperf_speed: dlperf_median(case)? })
    }
}

fn dlperf_speeds(case: &TrainedCase) -> RunValues {
    case.counted().map(|run| run.figures.dlperf_speed.0).collect()
}

fn dlperf_median(case: &TrainedCase) -> Option<ImagesPerSecond> {
    dlperf_speeds(case).median().map(to_hundredths).map(ImagesPerSecond)
}

fn case_figures(case: &TrainedCase, base: Base) -> Option<Figures> {
    let (speed, ranks) = (case.speed()?, case.case.ranks());
    let speedup = speedup(speed, base.speed);
    Some(Figures {
        speed,
        per_rank: ImagesPerSecond(speed.0 / f64::from(ranks)),
        cv: case.speeds().cv(),
        speedup,
        efficiency: efficiency(speedup, ranks, base.case.ranks()),
        times: times(case),
        dlperf: dlperf_figures(case, base)?,
    })
}

fn dlperf_figures(case: &TrainedCase, base: Base) -> Option<DlperfFigures> {
    let median_speed = dlperf_median(case)?;
    Some(DlperfFigures {
        average_speed: ImagesPerSecond(to_hundredths(dlperf_speeds(case).mean())),
        median_speed,
        speedup: (base.case == Case::SINGLE).then(|| to_hundredths(speedup(median_speed, base.dlperf_speed))),
    })
}

/// Over runs; `None` unless every counted run has a record.
fn times(case: &TrainedCase) -> Option<IterationTimes> {
    let times = case.counted().map(|run| run.figures.times).collect::<Option<Vec<IterationTimes>>>()?;
    IterationTimes::of_runs(&times)
}

fn warnings(group: &Group, software: &BTreeSet<String>) -> Vec<String> {
    let mut warnings: Vec<String> = run_warnings::of_mixture(&group.device_names, software).into_iter().collect();
    if group.timed.len() > 1 {
        let lengths: Vec<String> = group.timed.iter().map(usize::to_string).collect();
        let unit = unit(group.conditions.tool.is_some());
        warnings.push(format!("runs of different length in one table: {} {unit}", lengths.join(", ")));
    }
    warnings
}

/// That the figures are not complete without 1n1g; `None` where it is there, or nothing is.
pub fn base_problem(group: &Group) -> Option<Problem> {
    Some(Problem::in_file(Case::SINGLE.to_string(), missing_base(group.base?)?))
}

/// Speedup over anything but 1n1g is not what its readers take it for.
pub fn missing_base(base: Case) -> Option<String> {
    (base != Case::SINGLE)
        .then(|| format!("no run of 1n1g counts: speedup and efficiency are relative to {base}: sweep 1n1g as well"))
}
