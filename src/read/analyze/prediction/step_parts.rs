//! Parts of a step, shared by the models of all-reduce and of kv-stores: measured parts, a step composed of scaled
//! parts, and its losses.

use ringmark_core::dimension::{Case, Phase};
use ringmark_core::stats::allreduce_model::Band;
use ringmark_core::stats::run_values::RunValues;
use ringmark_core::stats::scaling_loss::StepTimes;

use crate::read::analyze::prediction::evidence::{Evidence, Part, Steps};
use crate::read::analyze::prediction::exchange_pattern::ExchangePart;

/// Main cause of the efficiency loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Forward and backward, which share host resources with other ranks.
    Compute,
    /// Everything within a host, if records do not split it; with `hsdp`, the exposed exchange in it.
    Host,
    /// All-reduce not hidden by backward, mostly bandwidth.
    Bandwidth,
    /// All-reduce not hidden by backward, mostly latency.
    Latency,
    /// All-reduce not hidden by backward, without latency and bandwidth measurements to split it.
    Transfer,
    /// Exchange of shards or through a kv-store, without all-reduce.
    Exchange,
    /// Waiting for the slowest rank.
    Waiting,
    /// Reading and decoding that delays a step.
    Input,
    /// Weight update and unexplained time.
    Rest,
    /// Additional time for several hosts, if records do not split it.
    Hosts,
}

impl Limit {
    /// Returns the text for output.
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

/// Updates by the owners of weights, in the optimizer phase.
pub struct Updates {
    /// Seconds for all weights on one rank.
    whole: f64,
    /// Largest share of the weights that one rank updates.
    pub share: f64,
    /// The same in the base.
    share_of_base: f64,
}

impl Updates {
    /// Estimates the updates of a case from that of the single rank.
    pub fn new(evidence: &Evidence, case: Case) -> Updates {
        let [share, share_of_base] = [case, evidence.base].map(|case| evidence.pattern.largest_share(case));
        Updates { whole: evidence.base_mean(OPTIMIZER), share, share_of_base }
    }

    /// Returns the duration of the update. If the phase is shorter than estimated, all of it counts as update.
    pub fn update_seconds(&self, run: &(f64, StepTimes)) -> f64 {
        OPTIMIZER(run).min(self.whole * self.share)
    }

    /// Returns the duration of the transfer of the weights back to the ranks.
    pub fn return_seconds(&self, run: &(f64, StepTimes)) -> f64 {
        OPTIMIZER(run) - self.update_seconds(run)
    }

    /// Returns the exposed time of a part of the exchange.
    pub fn exposed_seconds(&self, part: ExchangePart, run: &(f64, StepTimes)) -> f64 {
        match part {
            ExchangePart::Transfer => TRANSFER(run),
            ExchangePart::Return => self.return_seconds(run),
        }
    }

    /// Returns the time that an update takes less than in the base.
    pub fn saved_seconds(&self) -> f64 {
        self.whole * (1.0 - self.share / self.share_of_base)
    }
}

/// Predicted step of a case.
pub struct PredictedStep {
    /// Step time in seconds.
    pub step: Band,
    /// Losses in seconds relative to the base.
    pub losses: Vec<(Limit, f64)>,
}

/// Returns a step composed of the `fixed` part of the reference and the `growing` parts, each with its values in the
/// runs of the reference and its predicted band. The result is widened by the 95 % margin of a single run, and by
/// `margin`.
pub fn step(fixed: &RunValues, growing: &[(&RunValues, Band)], margin: f64) -> Band {
    // Each run serves as the reference once; the spread of the results is that of the prediction.
    let run = |(run, fixed): (usize, &f64)| {
        growing.iter().fold(*fixed, |sum, (values, band)| sum + values.values()[run] * growth(values, *band))
    };
    let runs: RunValues = fixed.values().iter().enumerate().map(run).collect();
    let step = growing.iter().fold(Band::at(fixed.mean()), |sum, (_, band)| sum + *band);
    step.widened(runs.margin_of_next_run() + margin)
}

/// Returns the growth factor of a part, to the middle of its band; 1 for a part that takes no time.
pub fn growth(values: &RunValues, band: Band) -> f64 {
    if values.mean() > 0.0 { band.mid / values.mean() } else { 1.0 }
}

/// Returns the losses of a step relative to the base, given its exchange, its wait and the rest; the other parts are
/// those of the reference. Parts of a base without records count as 0.
pub fn losses(
    evidence: &Evidence,
    reference: &Steps,
    (limit, exchange): (Limit, f64),
    waiting: f64,
    rest: f64,
) -> Vec<(Limit, f64)> {
    let parts = [
        (Limit::Compute, reference.mean(COMPUTE), COMPUTE),
        (limit, exchange, TRANSFER),
        (Limit::Waiting, waiting, WAITING),
        (Limit::Input, reference.mean(INPUT), INPUT),
        (Limit::Rest, rest, REST),
    ];
    parts.map(|(limit, seconds, part)| (limit, seconds - evidence.base_mean(part))).into()
}

/// Exchange time that backward does not hide.
pub const EXPOSED: Phase = Phase::ExposedAllreduce;
/// Part of the exposed exchange after the slowest rank has joined.
pub const TRANSFER: Part = |(_, times)| times.phases[EXPOSED] - times.waiting;
/// Part of the exposed exchange before the slowest rank has joined.
pub const WAITING: Part = |(_, times)| times.waiting;
/// Time of the optimizer phase.
const OPTIMIZER: Part = |(_, times)| times.phases[Phase::Optimizer];
/// Time of forward and backward.
pub const COMPUTE: Part = |(_, times)| times.compute();

/// Time waiting for images.
pub const INPUT: Part = |(_, times)| times.phases[Phase::Input];
/// Remaining time, which does not grow with the number of hosts: weight update and time outside all phases.
pub const REST: Part = |(step, times)| step - times.phases[EXPOSED] - times.compute() - times.phases[Phase::Input];

/// Replaces an unknown margin with 0.
pub fn finite(margin: f64) -> f64 {
    if margin.is_finite() { margin } else { 0.0 }
}
