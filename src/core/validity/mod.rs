//! Validity of a run, and warnings about its figures. Both depend on the record alone, so that they can be derived again
//! at any time. A warning does not affect figures or the exit status.
//!
//! | module | contents |
//! |---|---|
//! | `invalidity` | reasons why a training run is invalid |
//! | `corruption` | ranks that compute other values |
//! | `slow_ranks` | stragglers |
//! | `hosts` | other load and limits on the hosts |
//! | `iterations` | iteration times |
//! | `readings` | readings of hosts and GPUs during the run |
//! | `subject` | names of ranks and hosts in warnings, and formats of numbers |
//! | [`thresholds`] | thresholds, with reasons |

mod corruption;
mod hosts;
mod invalidity;
mod iterations;
mod readings;
mod slow_ranks;
mod subject;
pub mod thresholds;

use crate::benchmark::Record;
use crate::benchmark::train::RunRecord;
use crate::benchmark::warning::Warning;
use crate::dimension::Strategy;
pub use crate::validity::hosts::{ForeignLoad, foreign_load};
pub use crate::validity::invalidity::{Invalidity, invalidity};
pub use crate::validity::iterations::outlier_limit;

use crate::host::Observed;
use crate::validity::corruption::corruption;
use crate::validity::hosts::{
    heat, load_before, memory, other_load, oversubscribed, oversubscribed_hosts, quotas, steal,
};
use crate::validity::iterations::{
    changed_environment, drift, input, outliers, program_clock, skipped, steps, wall_clock,
};
use crate::validity::readings::{clock_drops, memory_errors, retransmissions};
use crate::validity::slow_ranks::slow_ranks;

/// Returns all warnings of a training run, the most severe first; the first `warmup` iterations are ignored.
pub fn warnings(record: &RunRecord, warmup: usize) -> Vec<Warning> {
    let counted = record.iterations.get(warmup..).unwrap_or_default();
    let Some((end, seen)) = record.end.as_ref().zip(record.observed()).filter(|_| !counted.is_empty()) else {
        return Vec::new();
    };
    let mut found = warnings_of_hosts(&seen);
    let oversubscribed = oversubscribed_hosts(&seen);
    found.extend(slow_ranks(record, counted, &seen, |host| oversubscribed.contains(host)));
    found.extend(corruption(seen.ranks, end));
    let steps = steps(counted);
    found.extend(input(record.header.config.model.unit(), counted, &steps, end));
    found.extend(drift(&steps, end));
    found.extend(clock_drops(counted, &seen));
    found.extend(outliers(&steps));
    found.extend(skipped(counted));
    found.extend(match &end.program {
        None => wall_clock(&record.iterations, end),
        Some(program) => program_clock(program),
    });
    found.extend(record.header.resumptions.iter().filter_map(changed_environment));
    found.sort_by_key(|warning| warning.kind);
    found
}

/// Returns the efficiency above which the base must have been disturbed. With some strategies, several ranks divide the
/// update among them, which takes `update_share` of the step of a single rank; `None` if the base is not a single rank, or
/// has no record.
///
/// An update that takes a fifth of the step: `1.05 / (1 - 0.2) = 1.3125` for shards.
pub fn efficiency_limit(strategy: Strategy, update_share: Option<f64>) -> f64 {
    let divided = update_share.filter(|_| strategy.divides_update()).unwrap_or(0.0);
    thresholds::IMPOSSIBLE_EFFICIENCY / (1.0 - divided)
}

/// Returns the foreign load that makes the figures of a run unreliable, if any.
pub fn disturbance(record: &impl Record) -> Option<ForeignLoad> {
    foreign_load(record).filter(ForeignLoad::is_heavy)
}

/// Returns the warnings about the use of hosts, which apply to all benchmarks; none for a run that did not end.
pub fn host_warnings(record: &impl Record) -> Vec<Warning> {
    record.observed().as_ref().map(warnings_of_hosts).unwrap_or_default()
}

fn warnings_of_hosts(seen: &Observed) -> Vec<Warning> {
    let mut found = oversubscribed(seen);
    if seen.rank_use.len() == seen.ranks.len() {
        found.extend(quotas(seen));
        found.extend(heat(seen));
        found.extend(memory(seen));
    }
    found.extend(other_load(seen));
    found.extend(load_before(seen));
    found.extend(steal(seen));
    found.extend(retransmissions(seen));
    found.extend(memory_errors(seen));
    found.sort_by_key(|warning| warning.kind);
    found
}

#[cfg(test)]
mod tests;
