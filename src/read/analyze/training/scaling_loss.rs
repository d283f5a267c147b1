//! Scaling loss of a case, from its runs; the formulas are in `ringmark_core::stats::scaling_loss`.

use ringmark_core::dimension::{Case, ImagesPerSecond, Phase};
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
    /// Speed with ideal scaling: the base's images per second times the ratio of the rank counts.
    pub ideal: ImagesPerSecond,
    /// The loss and its parts, in seconds per step.
    pub loss: ScalingLoss,
}

/// Returns the loss of a case; `None` for the base itself, and if either case has no counted run.
pub fn case_loss(group: &TrainingGroup, case: &TrainingCase) -> Option<CaseLoss> {
    let base = group.base.filter(|base| *base != case.case)?;
    let base_runs = group.base_case()?;
    let batch_size = group.conditions.point.batch_size;
    let alone = case.baseline.as_ref().map(|baseline| runs(baseline, batch_size)).unwrap_or_default();
    let loss = scaling_loss(&runs(base_runs, batch_size), &runs(case, batch_size), &alone)?;
    let images = f64::from(batch_size) * f64::from(case.case.ranks());
    Some(CaseLoss { case: case.case, base, ideal: ImagesPerSecond(images / loss.base_step), loss })
}

/// Returns the step of every counted run.
pub fn runs(case: &TrainingCase, batch_size: u32) -> Vec<RunStep> {
    let images = f64::from(batch_size) * f64::from(case.case.ranks());
    case.counted().map(|run| run_step(run, images)).collect()
}

/// `images` is the global batch of all ranks.
fn run_step(run: &Measured, images: f64) -> RunStep {
    let times =
        |times: IterationTimes| StepTimes { phases: times.phases.map(|_, time| time.0), waiting: times.waiting.0 };
    let step = run.figures.times.map_or(images / run.speed.0, |times| times.step.0);
    RunStep { step, times: run.figures.times.map(times) }
}

impl CaseLoss {
    /// Returns true if the loss is within its confidence interval, so that its parts say nothing.
    pub fn is_uncertain(&self) -> bool {
        let Difference { seconds, margin } = self.loss.total;
        margin.is_some_and(|margin| margin > seconds.abs())
    }

    /// Returns the speed lost to `part` seconds of the step, relative to ideal scaling.
    pub fn rate_lost(&self, part: f64) -> ImagesPerSecond {
        ImagesPerSecond(self.ideal.0 * self.loss.efficiency_lost(part))
    }

    /// Returns the time of a part, or `None` if it was not measured separately.
    pub fn part(&self, wanted: LossPart) -> Option<Difference> {
        let mut parts = self.loss.parts.iter().chain(&self.loss.compute);
        parts.find(|(part, _)| *part == wanted).map(|(_, difference)| *difference)
    }
}
