//! The scaling loss of a case: what its runs give to `ringmark_core::stats::scaling_loss`, which has the formulas. Not for
//! showing it.

use ringmark_core::dimension::{Case, ImagesPerSecond, Phase};
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::stats::scaling_loss::{Difference, LossPart, RunStep, ScalingLoss, StepTimes, scaling_loss};

use crate::read::analyse::figures::{Group, TrainedCase};
use crate::read::load::iteration_times::IterationTimes;
use crate::read::load::run::Measured;

/// Every part that a loss can have, in the order in which they are shown: halves of compute behind compute, and each phase
/// that is neither computing nor exchanging by itself.
pub fn all_parts() -> Vec<LossPart> {
    let is_own = |phase: &Phase| !matches!(phase, Phase::Forward | Phase::Backward | Phase::ExposedAllreduce);
    let phases = Phase::ALL.iter().copied().filter(is_own).map(LossPart::Phase);
    let first = [
        LossPart::Compute,
        LossPart::ComputeCrowded,
        LossPart::ComputeOverlapped,
        LossPart::Transfer,
        LossPart::Waiting,
    ];
    first.into_iter().chain(phases).chain([LossPart::Other]).collect()
}

/// What a case loses against the base of its group.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseLoss {
    /// The case.
    pub case: Case,
    /// What it is compared with: 1n1g, or the smallest case that there is.
    pub base: Case,
    /// Speed of as many ideal ranks: the base's by images over time, times ranks over its ranks.
    pub ideal: ImagesPerSecond,
    /// The loss and its parts, in seconds of a step.
    pub loss: ScalingLoss,
}

/// Of a case other than its group's base. `None` for the base, and where no run of either counts.
pub fn of_case(group: &Group, case: &TrainedCase) -> Option<CaseLoss> {
    let base = group.base.filter(|base| *base != case.case)?;
    let base_runs = group.base_case()?;
    let batch_size = group.conditions.batch_size;
    let alone = case.baseline.as_ref().map(|baseline| runs(baseline, batch_size)).unwrap_or_default();
    let loss = scaling_loss(&runs(base_runs, batch_size), &runs(case, batch_size), &alone)?;
    let images = f64::from(batch_size) * f64::from(case.case.ranks());
    Some(CaseLoss { case: case.case, base, ideal: ImagesPerSecond(images / loss.base_step), loss })
}

/// Step of every counted run.
pub fn runs(case: &TrainedCase, batch_size: u32) -> Vec<RunStep> {
    let images = f64::from(batch_size) * f64::from(case.case.ranks());
    case.counted().map(|run| run_step(run, images)).collect()
}

/// `images` are those of all ranks in one iteration.
fn run_step(run: &Measured, images: f64) -> RunStep {
    let times =
        |times: IterationTimes| StepTimes { phases: times.phases.map(|_, time| time.0), waiting: times.waiting.0 };
    let step = run.figures.times.map_or(images / run.speed.0, |times| times.step.0);
    RunStep { step, times: run.figures.times.map(times) }
}

impl CaseLoss {
    /// What this much of the step costs of the ideal ranks' speed.
    pub fn rate_lost(&self, part: f64) -> ImagesPerSecond {
        ImagesPerSecond(self.ideal.0 * self.loss.efficiency_lost(part))
    }

    /// The part's time; `None` where it was not measured separately.
    pub fn part(&self, wanted: LossPart) -> Option<Difference> {
        let mut parts = self.loss.parts.iter().chain(&self.loss.compute);
        parts.find(|(part, _)| *part == wanted).map(|(_, difference)| *difference)
    }
}
