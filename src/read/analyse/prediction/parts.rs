//! Shared by the models of all-reduce and of kv-stores: the parts of measured steps, a step of grown parts, and its losses.

use ringmark_core::dimension::Phase;
use ringmark_core::stats::allreduce_model::Band;
use ringmark_core::stats::run_values::RunValues;

use crate::read::analyse::prediction::evidence::{Evidence, Part, Steps};

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

/// A step of the case that is asked for.
pub struct Grown {
    /// Seconds of the step.
    pub step: Band,
    /// Seconds against the base's.
    pub losses: Vec<(Limit, f64)>,
}

/// Returns a step of the `fixed` part of the reference and of `growing` parts, each with its values in the runs of the reference
/// and its band. Wider by the 95 % margin of one run, and by `margin`.
pub fn step(fixed: &RunValues, growing: &[(&RunValues, Band)], margin: f64) -> Band {
    // Every run as if it were the reference: its spread is that of the prediction.
    let run = |(run, fixed): (usize, &f64)| {
        growing.iter().fold(*fixed, |sum, (values, band)| sum + values.values()[run] * growth(values, *band))
    };
    let runs: RunValues = fixed.values().iter().enumerate().map(run).collect();
    let step = growing.iter().fold(Band::at(fixed.mean()), |sum, (_, band)| sum + *band);
    step.widened(runs.margin_of_next_run() + margin)
}

/// Returns the growth of a part up to the middle of its band; 1 for a part that takes no time.
pub fn growth(values: &RunValues, band: Band) -> f64 {
    if values.mean() > 0.0 { band.mid / values.mean() } else { 1.0 }
}

/// Returns the losses of a step against the base's, by its exchange, its wait, the rest, and the parts that stay as they are in
/// the reference. A base without records counts with 0.
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

/// What backward does not hide of an exchange.
pub const EXPOSED: Phase = Phase::ExposedAllreduce;
/// Of it what follows when the slowest rank is there.
pub const TRANSFER: Part = |(_, times)| times.phases[EXPOSED] - times.waiting;
/// What comes before.
pub const WAITING: Part = |(_, times)| times.waiting;
/// Forward and backward.
pub const COMPUTE: Part = |(_, times)| times.compute();

/// The wait for images.
pub const INPUT: Part = |(_, times)| times.phases[Phase::Input];
/// What is in none of these and does not grow with hosts: the update, and what no phase explains.
pub const REST: Part = |(step, times)| step - times.phases[EXPOSED] - times.compute() - times.phases[Phase::Input];

/// 0 where it is not known.
pub fn finite(margin: f64) -> f64 {
    if margin.is_finite() { margin } else { 0.0 }
}
