//! Scaling loss of a case, from its runs; the formulas are in `ringmark_core::stats::scaling_loss`.

use ringmark_core::dimension::{BatchShape, Case, Phase, UnitsPerSecond};
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::stats::scaling_loss::{Difference, LossPart, RunStep, ScalingLoss, StepTimes, scaling_loss};

use crate::read::analyze::training::figures::{TrainingCase, TrainingGroup};
use crate::read::load::iteration_times::IterationTimes;
use crate::read::load::run::Measured;

/// Returns every possible part of a loss in display order: the halves of compute follow compute, then come the phases
/// other than compute and all-reduce.
pub fn all_parts() -> Vec<LossPart> {
    let is_own = |phase: &Phase| !matches!(phase, Phase::Forward | Phase::Backward | Phase::ExposedAllreduce);
    let phases = Phase::ALL.iter().copied().filter(is_own).map(LossPart::Phase);
    let first = [
        LossPart::Compute,
        LossPart::ComputeSharing,
        LossPart::ComputeOverlapped,
        LossPart::Transfer,
        LossPart::Waiting,
    ];
    first.into_iter().chain(phases).chain([LossPart::Other]).collect()
}

/// Scaling loss of a case relative to the base of its group.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct CaseLoss {
    pub case: Case,
    /// Base: 1n1g, or the smallest case of the group.
    pub base: Case,
    /// Work of a rank of the base, relative to that of a rank of the case: 1 unless the batch is global.
    pub work_ratio: f64,
    /// Speed with ideal scaling: the base's images per second times the ratio of the rank counts.
    pub ideal: UnitsPerSecond,
    /// The loss and its parts, in seconds per step.
    pub loss: ScalingLoss,
}

/// Returns the loss of a case; `None` for the base itself, and if either case has no counted run.
pub fn case_loss(group: &TrainingGroup, case: &TrainingCase) -> Option<CaseLoss> {
    let base = group.base.filter(|base| *base != case.case)?;
    let base_runs = group.base_case()?;
    let batch = group.conditions.point.batch;
    let alone = case.baseline.as_ref().map(|baseline| runs(baseline, batch)).unwrap_or_default();
    // With a global batch, a rank of a larger case has less work, so that ideally its step is shorter.
    let samples = |case: Case| batch.samples_per_rank(case.ranks());
    let part = samples(case.case) / samples(base);
    let base_runs: Vec<RunStep> = runs(base_runs, batch).into_iter().map(|run| run.scaled(part)).collect();
    let loss = scaling_loss(&base_runs, &runs(case, batch), &alone)?;
    let ideal = UnitsPerSecond(batch.work(case.case) / loss.base_step);
    Some(CaseLoss { case: case.case, base, work_ratio: 1.0 / part, ideal, loss })
}

/// Returns the step of every counted run.
pub fn runs(case: &TrainingCase, batch: BatchShape) -> Vec<RunStep> {
    let work = batch.work(case.case);
    case.counted().map(|run| run_step(run, work)).collect()
}

/// `work` is that of all ranks.
fn run_step(run: &Measured, work: f64) -> RunStep {
    let times =
        |times: IterationTimes| StepTimes { phases: times.phases.map(|_, time| time.0), waiting: times.waiting.0 };
    let step = run.figures.times.map_or(work / run.speed.0, |times| times.step.0);
    RunStep { step, times: run.figures.times.map(times) }
}

impl CaseLoss {
    /// Returns the name of the step from which the loss starts: `step of 1n1g`, or `ideal step (1n1g / 2)` with a global
    /// batch.
    pub fn base_step_name(&self) -> String {
        match self.work_ratio {
            1.0 => format!("step of {}", self.base),
            ratio => format!("ideal step ({} / {ratio})", self.base),
        }
    }

    /// Returns true if the loss is within its confidence interval or too few runs have one, so that its parts say nothing.
    pub fn is_uncertain(&self) -> bool {
        let Difference { seconds, margin } = self.loss.total;
        margin.is_none_or(|margin| margin > seconds.abs())
    }

    /// Returns the speed lost to `part` seconds of the step, relative to ideal scaling.
    pub fn rate_lost(&self, part: f64) -> UnitsPerSecond {
        UnitsPerSecond(self.ideal.0 * self.loss.efficiency_lost(part))
    }

    /// Returns the time of a part, or `None` if it was not measured separately.
    pub fn part(&self, wanted: LossPart) -> Option<Difference> {
        let mut parts = self.loss.parts.iter().chain(&self.loss.compute);
        parts.find(|(part, _)| *part == wanted).map(|(_, difference)| *difference)
    }
}
