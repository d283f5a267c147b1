//! Runs of one case, for every benchmark.

use std::collections::BTreeSet;

use ringmark_core::benchmark::warning::WarningKind;
use ringmark_core::dimension::{Bytes, Case, UnitsPerSecond};
use ringmark_core::host::RankPlace;
use ringmark_core::stats::run_values::RunValues;
use ringmark_core::stats::summary::step_percentiles;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::read::analyze::reliability::{self, ReliabilityWarning};
use crate::read::analyze::run_warnings;
use crate::read::load::folder::SweepFacts;
use crate::read::load::run::{Measured, Readable, Recorded, Run};

/// Runs of one case, one batch size and equal conditions.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseRuns<R: Readable, F> {
    /// Nodes and ranks.
    pub case: Case,
    /// Name in warnings.
    pub title: String,
    /// All runs by number, including those that do not count.
    pub runs: Vec<Run<R>>,
    /// Number of runs of the sweep whose files are missing or were changed.
    pub absent: usize,
    /// `None` if no run counts.
    pub figures: Option<F>,
    /// Warnings about the runs that count, most severe first, without duplicates.
    pub warnings: Vec<String>,
    /// Reasons why the speed, and every figure derived from it, is unreliable.
    pub speed_reliability_warnings: Vec<ReliabilityWarning>,
    /// Reasons why only speedup and efficiency are unreliable.
    pub scaling_reliability_warnings: Vec<ReliabilityWarning>,
    /// Runs of the same ranks without communication, relative to the same base; `None` if no such run was found.
    pub baseline: Option<Box<CaseRuns<R, F>>>,
}

impl<R: Readable, F> CaseRuns<R, F> {
    /// Creates runs without figures; `what` names them in warnings.
    pub fn new(case: Case, what: &str, mut runs: Vec<Run<R>>) -> CaseRuns<R, F> {
        runs.sort_by_key(|run| run.found.name.run);
        let counted: Vec<_> = numbered(&runs).map(|(run, measured)| (run, measured.warnings.as_slice())).collect();
        CaseRuns {
            case,
            title: what.to_owned(),
            warnings: run_warnings::from_runs(what, &counted),
            runs,
            absent: 0,
            figures: None,
            speed_reliability_warnings: Vec::new(),
            scaling_reliability_warnings: Vec::new(),
            baseline: None,
        }
    }

    /// Returns the warnings, without those that a reliability warning repeats.
    pub fn other_warnings(&self) -> Vec<String> {
        if !reliability::is_loaded(&self.speed_reliability_warnings) {
            return self.warnings.clone();
        }
        let other =
            |measured: &Measured<R>| reliability::other_warnings(&measured.warnings, &self.speed_reliability_warnings);
        let counted: Vec<_> = numbered(&self.runs).map(|(run, measured)| (run, other(measured))).collect();
        let counted: Vec<_> = counted.iter().map(|(run, warnings)| (*run, warnings.as_slice())).collect();
        run_warnings::from_runs(&self.title, &counted)
    }

    /// Returns the reasons why any figure is unreliable.
    pub fn reliability_warnings(&self) -> impl Iterator<Item = &ReliabilityWarning> {
        self.speed_reliability_warnings.iter().chain(&self.scaling_reliability_warnings)
    }

    /// Returns the number of runs that were found or planned.
    pub fn expected(&self) -> usize {
        self.runs.len() + self.absent
    }

    /// Returns the runs that count.
    pub fn counted(&self) -> impl Iterator<Item = &Measured<R>> {
        self.runs.iter().filter_map(|run| run.outcome.as_ref().ok())
    }

    /// Returns what `value` gives for the run of median speed among the runs that count and have it; of an even number of
    /// runs, the slower of the middle two.
    pub fn of_median_run<'a, T>(&'a self, value: impl Fn(&'a Run<R>, &'a Measured<R>) -> Option<T>) -> Option<T> {
        let of_run = |run: &'a Run<R>| {
            let measured = run.outcome.as_ref().ok()?;
            Some((measured.speed.0, value(run, measured)?))
        };
        let mut values: Vec<(f64, T)> = self.runs.iter().filter_map(of_run).collect();
        values.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let median = values.len().checked_sub(1)? / 2;
        Some(values.swap_remove(median).1)
    }

    /// Returns the records of the runs that count.
    pub fn recorded(&self) -> impl Iterator<Item = &Recorded<R>> {
        self.runs.iter().filter(|run| run.outcome.is_ok()).filter_map(|run| run.recorded.as_ref())
    }

    /// Returns the ranks of the runs that count.
    pub fn ranks(&self) -> impl Iterator<Item = &RankPlace> {
        self.recorded().flat_map(|recorded| &recorded.ranks)
    }

    /// Returns the distinct CPU thread counts of the ranks of the runs that count; empty without records.
    pub fn threads(&self) -> BTreeSet<u32> {
        self.ranks().map(|rank| rank.threads).collect()
    }

    /// Returns the highest memory use of any rank in the runs that count; `None` if no record contains it.
    pub fn peak_memory(&self) -> Option<Bytes> {
        self.counted().filter_map(|run| run.peak_memory).max_by_key(|bytes| bytes.0)
    }

    /// Returns the images/s of every run that counts.
    pub fn speeds(&self) -> RunValues {
        self.counted().map(|run| run.speed.0).collect()
    }

    /// Returns the number and the images/s of every run that counts.
    pub fn numbered_speeds(&self) -> Vec<(u32, f64)> {
        numbered(&self.runs).map(|(run, measured)| (run, measured.speed.0)).collect()
    }

    /// Returns the median of the speeds; `None` if no run counts.
    pub fn speed(&self) -> Option<UnitsPerSecond> {
        self.speeds().median().map(UnitsPerSecond)
    }

    /// Sets the number of absent runs and the reliability warnings about the speed.
    pub fn assess(&mut self, sweep_facts: &SweepFacts) {
        let own = self.runs.first().map(|run| run.found.name.of_any_number());
        self.absent = sweep_facts.absent.iter().filter(|run| Some(run.of_any_number()) == own).count();
        let loads: Vec<_> = numbered(&self.runs).map(|(run, measured)| (run, measured.foreign_load.as_ref())).collect();
        self.speed_reliability_warnings =
            reliability::speed_warnings(self.case, self.speeds().cv(), &loads, sweep_facts);
        let corruption = numbered(&self.runs).find_map(|(run, measured)| {
            let warning = measured.warnings.iter().find(|warning| warning.kind == WarningKind::Corruption)?;
            Some(reliability::corruption_warning(run, &warning.about))
        });
        self.speed_reliability_warnings.extend(corruption);
    }
}

/// Returns the runs that count, with their numbers.
fn numbered<R: Readable>(runs: &[Run<R>]) -> impl Iterator<Item = (u32, &Measured<R>)> {
    runs.iter().filter_map(|run| Some((run.found.name.run, run.outcome.as_ref().ok()?)))
}

/// Times of the iterations or passes of a run, over all ranks, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecondsOfRun {
    /// Mean; `images of all ranks / mean` is the speed of the run.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 75th percentile.
    pub p75: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
}

impl SecondsOfRun {
    /// Returns `None` without times, or if the run does not count.
    pub fn new<R: Readable>(run: &Run<R>, times: impl Into<Vec<f64>>) -> Option<SecondsOfRun> {
        let [p50, p75, p90, p95] = step_percentiles(times.into())?;
        Some(SecondsOfRun { mean: run.mean_iteration()?.0, p50, p75, p90, p95 })
    }

    /// Returns the percentiles in ascending order.
    pub fn percentiles(&self) -> [f64; 4] {
        [self.p50, self.p75, self.p90, self.p95]
    }
}
