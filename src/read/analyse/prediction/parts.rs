//! What the models of all-reduce and of kv-stores share: the parts of measured steps, their spread, and what a step is lost to.

use ringmark_core::dimension::Phase;
use ringmark_core::stats::allreduce_model::Band;
use ringmark_core::stats::scaling_loss::{RunStep, StepTimes};
use ringmark_core::stats::summary::{mean, standard_deviation};
use ringmark_core::stats::welch::{self, student};

use crate::read::analyse::prediction::evidence::{CaseEvidence, Evidence};

/// What costs most of the efficiency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Forward and backward, which share the host with other ranks.
    Compute,
    /// All that happens inside a host, where no record splits it.
    Host,
    /// All-reduce that backward does not hide, mostly bandwidth.
    Bandwidth,
    /// All-reduce that backward does not hide, mostly latency.
    Latency,
    /// All-reduce that backward does not hide, of which no line says more.
    Transfer,
    /// Exchange of a kv-store without all-reduce.
    Exchange,
    /// The slowest rank.
    Waiting,
    /// Reading and decoding that was not done when a step needed its images.
    Input,
    /// Weight update and what is not explained.
    Rest,
    /// All that several hosts cost, where no record splits it.
    Hosts,
}

impl Limit {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Limit::Compute => "compute",
            Limit::Host => "inside a host",
            Limit::Bandwidth => "bandwidth",
            Limit::Latency => "latency",
            Limit::Transfer => "all-reduce",
            Limit::Exchange => "exchange",
            Limit::Waiting => "slowest rank",
            Limit::Input => "input",
            Limit::Rest => "optimizer, rest",
            Limit::Hosts => "between hosts",
        }
    }
}

/// Of one run to come, by the spread of these; 0 where one run shows none.
pub fn margin_of_one(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    standard_deviation(values).map_or(0.0, |spread| student(0.975, count - 1.0) * spread * (1.0 + 1.0 / count).sqrt())
}

/// Of the mean of these; infinite where one value shows no spread.
pub fn margin_of_mean(values: &[f64]) -> f64 {
    welch::margin_of_mean(values).unwrap_or(f64::INFINITY)
}

/// Of every run; `None` unless all have them.
pub fn phases(case: &CaseEvidence) -> Option<Vec<(f64, StepTimes)>> {
    case.runs.iter().map(|run: &RunStep| Some((run.step, run.times?))).collect()
}

/// A step of the case that is asked for.
pub struct Grown {
    /// Seconds of the step.
    pub step: Band,
    /// Seconds against the base's.
    pub losses: Vec<(Limit, f64)>,
}

/// Values of one part, one a run.
pub fn each(phases: &[(f64, StepTimes)], part: fn(&(f64, StepTimes)) -> f64) -> Vec<f64> {
    phases.iter().map(part).collect()
}

/// Mean; not a number where there is nothing.
pub fn average(values: &[f64]) -> f64 {
    mean(values).unwrap_or(f64::NAN)
}

/// What backward does not hide of an exchange.
pub const EXPOSED: Phase = Phase::ExposedAllreduce;
/// Of it what follows when the slowest rank is there.
pub const TRANSFER: fn(&(f64, StepTimes)) -> f64 = |(_, times)| times.phases[EXPOSED] - times.waiting;
/// What comes before.
pub const WAITING: fn(&(f64, StepTimes)) -> f64 = |(_, times)| times.waiting;
/// Forward and backward.
pub const COMPUTE: fn(&(f64, StepTimes)) -> f64 = |(_, times)| times.compute();

/// The wait for images.
pub const INPUT: fn(&(f64, StepTimes)) -> f64 = |(_, times)| times.phases[Phase::Input];
/// What is in none of these and does not grow with hosts: the update, and what no phase explains.
pub const REST: fn(&(f64, StepTimes)) -> f64 =
    |(step, times)| step - times.phases[EXPOSED] - times.compute() - times.phases[Phase::Input];

/// 0 where it is not known.
pub fn finite(margin: f64) -> f64 {
    if margin.is_finite() { margin } else { 0.0 }
}

/// Step of what efficiency is relative to.
pub fn base_step(evidence: &Evidence) -> f64 {
    evidence.case(evidence.base).map_or(f64::NAN, CaseEvidence::step)
}

/// Mean over the runs of the base; 0 where no record tells its parts.
pub fn of_base(evidence: &Evidence, part: fn(&(f64, StepTimes)) -> f64) -> f64 {
    evidence.case(evidence.base).and_then(phases).map_or(0.0, |base| average(&each(&base, part)))
}
