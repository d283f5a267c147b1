//! Computes figures from runs: groups of equal conditions, cases, speedup and efficiency. No I/O.
//!
//! The speed of a single run comes from [`crate::read::load::training`]; formulas over runs are in
//! `ringmark_core::stats`.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_core::benchmark::train::{Recompute, RunRecord};
use ringmark_core::benchmark::warning::WarningKind;
use ringmark_core::dimension::{
    BatchSize, Case, DeviceChoice, PASSES_OF_TRAINING, Phase, SampleSize, Seconds, Strategy, UnitsPerSecond,
};
use ringmark_core::file::run_name::{Point, RunName};
use ringmark_core::stats::run_values::RunValues;
use ringmark_core::stats::scaling::{communication_cost, efficiency, margin_of_efficiency, speedup};
use ringmark_core::validity;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::read::analyze::case_runs::CaseRuns;
use crate::read::analyze::published::scaling::MeasuredConditions;
use crate::read::analyze::reliability::{self, ReliabilityWarning};
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::run_warnings;
use crate::read::analyze::training::grouping::{self, GroupConditions};
use crate::read::load::folder::SweepFacts;
use crate::read::load::iteration_times::IterationTimes;
use crate::read::load::problem::{Problem, ProblemKind};
use crate::read::load::run::{Measured, Recorded, RecordedConditions, Run};
use crate::read::load::training::{to_hundredths, unit};

/// Runs of equal conditions.
#[derive(Debug, PartialEq)]
pub struct TrainingGroup {
    /// Model name as in file names, which is also the key in DLPerf's JSON. Extended if several groups share it.
    pub label: String,
    /// Conditions that the runs share.
    pub conditions: GroupConditions,
    /// Requested device, if the manifest contains it and no record does.
    pub requested_device: Option<DeviceChoice>,
    /// Names of all devices.
    pub device_names: BTreeSet<String>,
    /// Numbers of timed iterations or windows in the counted runs, including warm-up. More than one value only without
    /// records.
    pub timed: BTreeSet<usize>,
    /// Numbers of warm-up iterations in the counted runs.
    pub warmup: BTreeSet<usize>,
    /// Case that speedup and efficiency are relative to; `None` if no run counts.
    pub base: Option<Case>,
    /// Single rank of `all-reduce` from the same sweep, which is the base if the group has no single rank of its own.
    pub common_base: Option<Box<TrainingCase>>,
    /// Cases, by ranks, then nodes.
    pub cases: Vec<TrainingCase>,
    /// Warnings about the figures.
    pub warnings: Vec<String>,
    /// Reasons why all figures of the group are unreliable.
    pub reliability_warnings: Vec<ReliabilityWarning>,
}

/// Runs of one case of training.
pub type TrainingCase = CaseRuns<RunRecord, Figures>;

/// Figures of one case over its counted runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// Speed of the case: the median of [`Measured::speed`] over runs.
    pub speed: UnitsPerSecond,
    /// `speed / ranks`.
    pub per_rank: UnitsPerSecond,
    /// Coefficient of variation of the runs' speeds; `None` for a single run.
    pub cv: Option<f64>,
    /// `speed / speed of the base`.
    pub speedup: f64,
    /// `speedup / (ranks / ranks of the base)`.
    pub efficiency: f64,
    /// Half of the 95 % confidence interval of the efficiency; `None` for the base itself, and if the case or the base
    /// has fewer than three runs.
    pub efficiency_margin: Option<f64>,
    /// Medians over runs, if every counted run has a record.
    pub times: Option<IterationTimes>,
    /// Figures of the same runs, computed as DLPerf does.
    pub dlperf: DlperfFigures,
}

/// Figures of a case as DLPerf computes them: from means of rates, rounded before further use. Only for DLPerf's file
/// format and for comparison with published figures.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DlperfFigures {
    /// Mean of the runs' `dlperf_speed`, rounded to 2 decimals.
    pub average_speed: UnitsPerSecond,
    /// Median over runs, rounded to 2 decimals.
    pub median_speed: UnitsPerSecond,
    /// `median_speed / median_speed of 1n1g`, rounded to 2 decimals; `None` if no run of 1n1g counts.
    pub speedup: Option<f64>,
}

impl TrainingCase {
    fn warn_of_short_runs(&mut self) {
        let longest = |run: &Measured| run.host_use.iter().map(|host| host.elapsed.0).reduce(f64::max);
        let total = self.counted().map(longest).sum::<Option<f64>>().filter(|_| self.figures.is_some());
        let warning = total.and_then(|total| reliability::short_runs_warning(Seconds(total)));
        self.speed_reliability_warnings.extend(warning);
    }

    fn warn_of_scaling(&mut self, base: Case, limit: f64, is_base_reliable: bool, sweep_facts: &SweepFacts) {
        let Some(figures) = &self.figures else { return };
        self.scaling_reliability_warnings.extend(reliability::efficiency_warning(
            figures.efficiency,
            limit,
            base,
            sweep_facts,
        ));
        self.scaling_reliability_warnings
            .extend((!is_base_reliable).then(|| reliability::base_warning(base, sweep_facts)));
        let is_oversubscribed = |run: &Measured| run.warnings.iter().any(|it| it.kind == WarningKind::Oversubscribed);
        let is_oversubscribed = self.counted().any(is_oversubscribed);
        self.scaling_reliability_warnings.extend(is_oversubscribed.then(reliability::oversubscribed_warning));
    }

    /// Returns the step time relative to that of the baseline, minus 1; `None` unless both have records.
    pub fn communication_cost(&self) -> Option<f64> {
        let step = |case: &TrainingCase| Some(case.figures.as_ref()?.times?.step);
        Some(communication_cost(step(self)?, step(self.baseline.as_ref()?)?))
    }
}

impl RunGroup for TrainingGroup {
    type Record = RunRecord;
    type Figures = Figures;

    const CASE_NOUN: &'static str = "case";
    const PASSES: f64 = PASSES_OF_TRAINING;

    fn recorded_conditions(&self) -> Option<&RecordedConditions> {
        self.conditions.recorded.as_ref()
    }

    fn cases(&self) -> &[TrainingCase] {
        &self.cases
    }

    fn point(&self, _: &TrainingCase) -> Point {
        self.conditions.point
    }

    fn sample_size(&self, _: &TrainingCase) -> Option<SampleSize> {
        Some(self.conditions.recorded.as_ref()?.config.sample_size())
    }

    fn recompute(&self) -> Recompute {
        self.conditions.recorded.as_ref().map_or(Recompute::None, |recorded| recorded.config.recompute)
    }

    fn settings_of(&self, _: &TrainingCase) -> BTreeMap<String, Value> {
        grouping::settings(&self.conditions)
    }

    fn device_names_of(&self, _: &TrainingCase) -> BTreeSet<String> {
        self.device_names.clone()
    }

    fn case_name(&self, case: &TrainingCase) -> String {
        case.case.to_string()
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn base_warning(&self) -> Option<String> {
        let base = self.base.filter(|base| *base != Case::SINGLE)?;
        Some(format!("no run of 1n1g counts: speedup and efficiency are relative to {base}: sweep 1n1g as well"))
    }

    fn reliability_warnings(&self) -> &[ReliabilityWarning] {
        &self.reliability_warnings
    }
}

impl TrainingGroup {
    /// Returns true if all cases have the same global batch (strong scaling).
    pub fn is_strong(&self) -> bool {
        matches!(self.conditions.point.batch.size, BatchSize::Global(_))
    }

    /// Returns the conditions that published rows may differ from.
    pub fn measured_conditions(&self) -> MeasuredConditions {
        let GroupConditions { point, recorded, .. } = &self.conditions;
        let reads_images = recorded.as_ref().map(|recorded| recorded.config.data.are_read());
        MeasuredConditions { point: *point, reads_images }
    }

    /// Returns the names of all runs, including those that do not count.
    pub fn run_names(&self) -> impl Iterator<Item = RunName> {
        self.with_baselines().flat_map(|case| &case.runs).map(|run| run.found.name)
    }

    /// Returns true if speedup and efficiency, and therefore all figures of the case, are reliable.
    pub fn is_reliable(&self, case: &TrainingCase) -> bool {
        case.figures.is_some() && self.reliability_warnings_of(case).next().is_none()
    }

    /// Returns the case that speedup and efficiency are relative to; `None` if no run counts.
    pub fn base_case(&self) -> Option<&TrainingCase> {
        self.common_base.as_deref().or_else(|| self.case(self.base?))
    }

    /// Returns the strategy of the base case.
    pub fn base_strategy(&self) -> Option<Strategy> {
        let own = self.conditions.point.strategy;
        self.base.map(|_| if self.common_base.is_some() { Strategy::AllReduce } else { own })
    }

    /// Returns the name of the base: `1n1g`, or `1n1g of all-reduce` if it belongs to another table.
    pub fn base_text(&self) -> Option<String> {
        let of_all_reduce = if self.common_base.is_some() { " of all-reduce" } else { "" };
        self.base.map(|base| format!("{base}{of_all_reduce}"))
    }

    /// Returns the runs of a case.
    pub fn case(&self, wanted: Case) -> Option<&TrainingCase> {
        self.cases.iter().find(|case| case.case == wanted)
    }

    /// Computes the figures. The base is the single rank of `all-reduce` unless the group has a single rank of its own.
    fn compute_figures(&mut self, of_all_reduce: Option<TrainingCase>, sweep_facts: &SweepFacts) {
        // Cases are ordered by ranks, so the first one with a counted run is 1n1g if that exists.
        let own = self.cases.iter().find_map(Base::from_case);
        let of_all_reduce = of_all_reduce.filter(|_| own.as_ref().is_some_and(|own| own.case != Case::SINGLE));
        let base = of_all_reduce.as_ref().and_then(Base::from_case).or(own);
        self.common_base = of_all_reduce.map(Box::new);
        if let Some(base) = &base {
            for case in &mut self.cases {
                case.figures = case_figures(case, base);
                if let Some(baseline) = &mut case.baseline {
                    baseline.figures = case_figures(baseline, base);
                }
            }
        }
        self.base = base.map(|base| base.case);
        self.requested_device = sweep_facts.device.filter(|_| self.conditions.recorded.is_none());
        self.add_reliability_warnings(sweep_facts);
    }

    /// Adds reliability warnings to all cases; their figures must exist.
    fn add_reliability_warnings(&mut self, sweep_facts: &SweepFacts) {
        let is_quick = self.is_quick();
        self.reliability_warnings.extend(is_quick.then(reliability::quick_profile_warning));
        let inject = self.conditions.recorded.as_ref().and_then(|recorded| recorded.config.inject);
        self.reliability_warnings.extend(inject.map(reliability::injected_fault_warning));
        for case in &mut self.cases {
            case.assess(sweep_facts);
            if !is_quick {
                case.warn_of_short_runs();
            }
            case.baseline.iter_mut().for_each(|baseline| baseline.assess(sweep_facts));
        }
        let Some(base) = self.base else { return };
        let is_base_reliable = self.base_case().is_none_or(|case| case.speed_reliability_warnings.is_empty());
        let single = self.base_case().filter(|case| case.case == Case::SINGLE);
        let times = single.and_then(|case| case.figures.as_ref()?.times);
        let update_share = times.map(|times| times.phases[Phase::Optimizer].0 / times.step.0);
        let limit = |strategy| validity::efficiency_limit(strategy, update_share);
        let [limit, limit_of_baseline] = [self.conditions.point.strategy, Strategy::AllReduce].map(limit);
        for case in self.cases.iter_mut().filter(|case| case.case != base) {
            case.warn_of_scaling(base, limit, is_base_reliable, sweep_facts);
            if let Some(baseline) = &mut case.baseline {
                baseline.warn_of_scaling(base, limit_of_baseline, is_base_reliable, sweep_facts);
            }
        }
    }
}

/// Computes the groups of a folder's runs, and adds the runs that do not count to `problems`.
pub fn groups(mut runs: Vec<Run>, problems: &mut Vec<Problem>, sweep_facts: &SweepFacts) -> Vec<TrainingGroup> {
    exclude_truncated_logs(&mut runs);
    problems.extend(runs.iter().filter_map(|run| run.outcome.as_ref().err().cloned()));
    let mut groups: Vec<TrainingGroup> =
        grouping::group(runs).into_iter().map(|(conditions, runs)| group_from_runs(conditions, runs)).collect();
    groups
        .iter_mut()
        .filter(|group| group.conditions.point.strategy.is_all_reduce())
        .for_each(|group| group.compute_figures(None, sweep_facts));
    for index in 0..groups.len() {
        if !groups[index].conditions.point.strategy.is_all_reduce() {
            let of_all_reduce = groups[index].conditions.with_all_reduce();
            let all_reduce = groups.iter().find(|group| group.conditions == of_all_reduce);
            let single =
                all_reduce.and_then(|group| group.case(Case::SINGLE)).filter(|case| case.figures.is_some()).cloned();
            groups[index].compute_figures(single, sweep_facts);
        }
    }
    // A sweep without 1n1g is complete without it.
    if !sweep_facts.is_without_single {
        problems.extend(groups.iter().filter_map(base_problem));
    }
    let conditions: Vec<&GroupConditions> = groups.iter().map(|group| &group.conditions).collect();
    let labels = grouping::labels(&conditions);
    groups.iter_mut().zip(labels).for_each(|(group, label)| group.label = label);
    groups
}

/// Excludes truncated logs. A log without a record does not contain the requested number of iterations, so that number
/// is taken from the majority of the logs of its case.
fn exclude_truncated_logs(runs: &mut [Run]) {
    let tool = |run: &Run| Some(run.outcome.as_ref().ok()?.figures.windows?.tool);
    let key = |run: &Run| (run.found.name.of_any_number(), tool(run));
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
            let what =
                format!("{length} {unit}, but most logs of the case have {usual}, so it is truncated: repeat the run");
            run.outcome = Err(Problem::in_file(&run.found.log, what));
        }
    }
}

/// Returns the group without figures that are relative to a base.
fn group_from_runs(conditions: GroupConditions, runs: Vec<Run>) -> TrainingGroup {
    let counted = || runs.iter().filter_map(|run| run.outcome.as_ref().ok());
    let timed = counted().map(|measured| measured.figures.timed).collect();
    let warmup = counted().map(|measured| measured.figures.warmup).collect();
    let device_names = runs.iter().filter_map(|run| run.recorded.as_ref()).flat_map(Recorded::device_names);
    let device_names: BTreeSet<String> = device_names.collect();
    let recorded = runs.iter().filter(|run| run.outcome.is_ok()).filter_map(|run| run.recorded.as_ref());
    let software = recorded.map(|recorded| recorded.software.clone()).collect();
    // Baselines without other runs are treated as ordinary runs.
    let only_baselines = runs.iter().all(|run| run.found.name.baseline);
    let (baselines, runs): (Vec<Run>, Vec<Run>) =
        runs.into_iter().partition(|run| run.found.name.baseline && !only_baselines);
    let mut baselines = by_case(baselines);
    let mut cases = by_case(runs);
    for key in baselines.keys() {
        cases.entry(*key).or_default();
    }
    let cases: Vec<TrainingCase> = cases
        .into_iter()
        .map(|(key, runs)| {
            let (_, case) = key;
            let baseline = baselines.remove(&key).map(|runs| Box::new(case_runs(case, runs)));
            TrainingCase { baseline, ..case_runs(case, runs) }
        })
        .collect();
    let mut group = TrainingGroup {
        label: String::new(),
        conditions,
        requested_device: None,
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

fn case_runs(case: Case, runs: Vec<Run>) -> TrainingCase {
    let what = runs.first().map(|run| run.found.name.description()).unwrap_or_default();
    TrainingCase::new(case, &what, runs)
}

/// Groups runs by case in the order of the tables: by ranks, then nodes.
fn by_case(runs: Vec<Run>) -> BTreeMap<(u32, Case), Vec<Run>> {
    let mut cases: BTreeMap<(u32, Case), Vec<Run>> = BTreeMap::new();
    for run in runs {
        let case = run.found.name.case;
        cases.entry((case.ranks(), case)).or_default().push(run);
    }
    cases
}

/// Base of a group's relative figures.
struct Base {
    case: Case,
    speed: UnitsPerSecond,
    speeds: RunValues,
    dlperf_speed: UnitsPerSecond,
}

impl Base {
    fn from_case(case: &TrainingCase) -> Option<Base> {
        Some(Base { case: case.case, speed: case.speed()?, speeds: case.speeds(), dlperf_speed: dlperf_median(case)? })
    }
}

/// Returns the time per iteration to compute activations again, in the median run of a case. `None` without `--recompute`.
pub fn recompute_time(case: &TrainingCase) -> Option<Seconds> {
    case.of_median_run(|run, _| run.recorded.as_ref()?.facts.recompute)
}

fn dlperf_speeds(case: &TrainingCase) -> RunValues {
    case.counted().map(|run| run.figures.dlperf_speed.0).collect()
}

fn dlperf_median(case: &TrainingCase) -> Option<UnitsPerSecond> {
    dlperf_speeds(case).median().map(to_hundredths).map(UnitsPerSecond)
}

fn case_figures(case: &TrainingCase, base: &Base) -> Option<Figures> {
    let (speed, ranks) = (case.speed()?, case.case.ranks());
    let speedup = speedup(speed, base.speed);
    let efficiency = efficiency(speedup, ranks, base.case.ranks());
    let margin = || margin_of_efficiency(case.speeds().values(), base.speeds.values(), efficiency);
    Some(Figures {
        speed,
        per_rank: UnitsPerSecond(speed.0 / f64::from(ranks)),
        cv: case.speeds().cv(),
        speedup,
        efficiency,
        efficiency_margin: (case.case != base.case).then(margin).flatten(),
        times: times(case),
        dlperf: dlperf_figures(case, base)?,
    })
}

fn dlperf_figures(case: &TrainingCase, base: &Base) -> Option<DlperfFigures> {
    let median_speed = dlperf_median(case)?;
    Some(DlperfFigures {
        average_speed: UnitsPerSecond(to_hundredths(dlperf_speeds(case).mean())),
        median_speed,
        speedup: (base.case == Case::SINGLE).then(|| to_hundredths(speedup(median_speed, base.dlperf_speed))),
    })
}

/// Returns the times over runs; `None` unless every counted run has a record.
fn times(case: &TrainingCase) -> Option<IterationTimes> {
    let times = case.counted().map(|run| run.figures.times).collect::<Option<Vec<IterationTimes>>>()?;
    IterationTimes::from_runs(&times)
}

fn warnings(group: &TrainingGroup, software: &BTreeSet<String>) -> Vec<String> {
    let mut warnings: Vec<String> = run_warnings::from_mixture(&group.device_names, software).into_iter().collect();
    if group.timed.len() > 1 {
        let lengths: Vec<String> = group.timed.iter().map(usize::to_string).collect();
        let unit = unit(group.conditions.tool.is_some());
        warnings.push(format!("runs of different length in one table: {} {unit}", lengths.join(", ")));
    }
    warnings
}

/// Returns a problem if 1n1g is missing while another case counts.
fn base_problem(group: &TrainingGroup) -> Option<Problem> {
    let problem = Problem::in_file(Case::SINGLE.to_string(), group.base_warning()?);
    Some(Problem { kind: ProblemKind::MissingBase, ..problem })
}
