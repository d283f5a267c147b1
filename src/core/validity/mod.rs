//! Validity of a run, and warnings about its figures. Both depend on the record alone, so that they can be derived again
//! at any time. A warning does not affect figures or the exit status.
//!
//! | module | contents |
//! |---|---|
//! | `invalidity` | reasons why a training run is invalid |
//! | `slow_ranks` | stragglers |
//! | `hosts` | other load and limits on the hosts |
//! | `input_hosts` | input runs: other load, hosts that read or decode more slowly than the others |
//! | `iterations` | iteration times |
//! | `readings` | readings of hosts and GPUs during the run |
//! | `subject` | names of ranks and hosts in warnings, and formats of numbers |
//! | [`observed`] | input of the checks |
//! | [`thresholds`] | thresholds, with reasons |

mod hosts;
mod input_hosts;
mod invalidity;
mod iterations;
pub mod observed;
mod readings;
mod slow_ranks;
mod subject;
pub mod thresholds;

use crate::benchmark::train::RunRecord;
use crate::benchmark::warning::Warning;
pub use crate::validity::hosts::{ForeignLoad, foreign_load};
pub use crate::validity::invalidity::{Invalidity, invalidity};
pub use input_hosts::{disturbance, disturbance_line, input_warnings};

use crate::validity::hosts::{
    heat, load_before, memory, other_load, oversubscribed, oversubscribed_hosts, quotas, steal,
};
use crate::validity::iterations::{changed_environment, drift, input, outliers, skipped, steps, wall_clock};
use crate::validity::observed::Observed;
use crate::validity::readings::{clock_drops, memory_errors, retransmissions};
use crate::validity::slow_ranks::slow_ranks;

/// Returns all warnings of a training run, the most severe first; the first `warmup` iterations are ignored.
pub fn warnings(record: &RunRecord, warmup: usize) -> Vec<Warning> {
    let counted = record.iterations.get(warmup..).unwrap_or_default();
    let Some((end, seen)) = record.end.as_ref().zip(Observed::from_training(record)).filter(|_| !counted.is_empty())
    else {
        return Vec::new();
    };
    let mut found = host_warnings(&seen);
    let oversubscribed = oversubscribed_hosts(&seen);
    found.extend(slow_ranks(record, counted, &seen, |host| oversubscribed.contains(host)));
    let steps = steps(counted);
    found.extend(input(counted, &steps, end));
    found.extend(drift(&steps, end));
    found.extend(clock_drops(counted, &seen));
    found.extend(outliers(&steps));
    found.extend(skipped(counted));
    found.extend(wall_clock(&record.iterations, end));
    found.extend(record.header.resumptions.iter().filter_map(changed_environment));
    found.sort_by_key(|warning| warning.kind);
    found
}

/// Returns the warnings about the use of hosts, which apply to all benchmarks.
pub fn host_warnings(seen: &Observed) -> Vec<Warning> {
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
