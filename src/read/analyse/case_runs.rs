//! Runs of one case, whatever was measured.

use std::collections::BTreeSet;

use ringmark_core::benchmark::warning::{Warning, WarningKind};
use ringmark_core::dimension::{Bytes, Case, ImagesPerSecond};
use ringmark_core::host::RankPlace;
use ringmark_core::stats::run_values::RunValues;
use ringmark_core::stats::summary::step_percentiles;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::read::analyse::reliability::{self, ReliabilityKind, ReliabilityWarning};
use crate::read::analyse::run_warnings;
use crate::read::load::folder::SweepFacts;
use crate::read::load::run::{Measured, Readable, Recorded, Run};

/// Runs of one case, one batch size and equal conditions.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseRuns<R: Readable, F> {
    /// Nodes and ranks.
    pub case: Case,
    /// Name in warnings.
    pub title: String,
    /// By number, those that do not count included.
    pub runs: Vec<Run<R>>,
    /// `None` if no run counts.
    pub figures: Option<F>,
    /// What was seen in its counted runs, once each however many runs have it; the gravest first.
    pub warnings: Vec<String>,
    /// Why its speed, and all that is made of it, is unreliable.
    pub speed_reliability_warnings: Vec<ReliabilityWarning>,
    /// Why its speedup and efficiency alone are unreliable.
    pub scaling_reliability_warnings: Vec<ReliabilityWarning>,
    /// The same ranks without communication, its figures relative to the same base; `None` if no such run was found.
    pub baseline: Option<Box<CaseRuns<R, F>>>,
}

impl<R: Readable, F> CaseRuns<R, F> {
    /// Runs without figures; `what` names them in warnings.
    pub fn new(case: Case, what: &str, mut runs: Vec<Run<R>>) -> CaseRuns<R, F> {
        runs.sort_by_key(|run| run.found.name.run);
        let counted: Vec<_> = numbered(&runs).map(|(run, measured)| (run, measured.warnings.as_slice())).collect();
        CaseRuns {
            case,
            title: what.to_owned(),
            warnings: run_warnings::of_runs(what, &counted),
            runs,
            figures: None,
            speed_reliability_warnings: Vec::new(),
            scaling_reliability_warnings: Vec::new(),
            baseline: None,
        }
    }

    /// Its warnings, without those that a reliability warning repeats.
    pub fn other_warnings(&self) -> Vec<String> {
        if !self.speed_reliability_warnings.iter().any(|it| it.kind == ReliabilityKind::OtherLoad) {
            return self.warnings.clone();
        }
        let is_other = |warning: &&Warning| !matches!(warning.kind, WarningKind::OtherLoad | WarningKind::Steal);
        let counted: Vec<(u32, Vec<Warning>)> = numbered(&self.runs)
            .map(|(run, measured)| (run, measured.warnings.iter().filter(is_other).cloned().collect()))
            .collect();
        let counted: Vec<_> = counted.iter().map(|(run, warnings)| (*run, warnings.as_slice())).collect();
        run_warnings::of_runs(&self.title, &counted)
    }

    /// Why any of its figures is unreliable.
    pub fn reliability_warnings(&self) -> impl Iterator<Item = &ReliabilityWarning> {
        self.speed_reliability_warnings.iter().chain(&self.scaling_reliability_warnings)
    }

    /// Runs that count.
    pub fn counted(&self) -> impl Iterator<Item = &Measured<R>> {
        self.runs.iter().filter_map(|run| run.outcome.as_ref().ok())
    }

    /// Records of the runs that count.
    pub fn recorded(&self) -> impl Iterator<Item = &Recorded<R>> {
        self.runs.iter().filter(|run| run.outcome.is_ok()).filter_map(|run| run.recorded.as_ref())
    }

    /// Ranks of the runs that count.
    pub fn ranks(&self) -> impl Iterator<Item = &RankPlace> {
        self.recorded().flat_map(|recorded| &recorded.ranks)
    }

    /// CPU threads of the ranks of the runs that count; none without records.
    pub fn threads(&self) -> BTreeSet<u32> {
        self.ranks().map(|rank| rank.threads).collect()
    }

    /// Memory of the rank that held most, in any run that counts; `None` without records that contain it.
    pub fn peak_memory(&self) -> Option<Bytes> {
        self.counted().filter_map(|run| run.peak_memory).max_by_key(|bytes| bytes.0)
    }

    /// Images/s of every run that counts.
    pub fn speeds(&self) -> RunValues {
        self.counted().map(|run| run.speed.0).collect()
    }

    /// Number and images/s of every run that counts.
    pub fn numbered_speeds(&self) -> Vec<(u32, f64)> {
        numbered(&self.runs).map(|(run, measured)| (run, measured.speed.0)).collect()
    }

    /// Median of the speeds; `None` if no run counts.
    pub fn speed(&self) -> Option<ImagesPerSecond> {
        self.speeds().median().map(ImagesPerSecond)
    }

    /// Adds the warnings about its speed.
    pub fn warn_of_speed(&mut self, asked: &SweepFacts) {
        let loads: Vec<_> = numbered(&self.runs).map(|(run, measured)| (run, measured.foreign_load.as_ref())).collect();
        self.speed_reliability_warnings = reliability::to_speed(self.case, self.speeds().cv(), &loads, asked);
    }
}

/// Runs that count, by their numbers.
fn numbered<R: Readable>(runs: &[Run<R>]) -> impl Iterator<Item = (u32, &Measured<R>)> {
    runs.iter().filter_map(|run| Some((run.found.name.run, run.outcome.as_ref().ok()?)))
}

/// Times of the iterations or passes of a run, over all ranks, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecondsOfRun {
    /// `images of all ranks / mean` is the speed of the run.
    pub mean: f64,
    /// Half of them take less.
    pub p50: f64,
    /// 75 % of them take less.
    pub p75: f64,
    /// 90 % of them take less.
    pub p90: f64,
    /// 95 % of them take less.
    pub p95: f64,
}

impl SecondsOfRun {
    /// `None` without times, or if the run does not count.
    pub fn new<R: Readable>(run: &Run<R>, times: impl Into<Vec<f64>>) -> Option<SecondsOfRun> {
        let [p50, p75, p90, p95] = step_percentiles(times.into())?;
        Some(SecondsOfRun { mean: run.mean_iteration()?.0, p50, p75, p90, p95 })
    }

    /// The percentiles, upwards.
    pub fn percentiles(&self) -> [f64; 4] {
        [self.p50, self.p75, self.p90, self.p95]
    }
}
