//! The grown step of a kv-store without all-reduce: [`crate::read::analyse::prediction::model`] with other laws of bytes and messages
//! (`ringmark_core::stats::exchange_growth`). Pure.
//!
//! ```text
//!                        owners (device, nccl)                     servers (dist_sync, dist_device_sync)
//! in the exposed phase   gradients to their owner                  gradients to the servers, weights back
//! in the optimizer's     the owners' updates, the weights' way     the weights' way inside the rank
//!                        back, which nothing hides
//! ```
//!
//! **Owners.** The weights' way back is the optimizer's phase less the update: that of the single rank, times the largest share of
//! an owner. It grows as the gradients' way does. Of that backward hides no more than itself, and the whole of it is taken for at
//! most twice as long as the weights' way: the bytes are as many or half, and they are added up.
//!
//! **The wait** for the slowest rank holds what ranks wait because their parts in the exchange differ (an owner's is longer). So it
//! grows up to the expected maximum of more ranks, or as the exchange does, whichever is more.

use ringmark_core::dimension::{Case, Phase};
use ringmark_core::stats::allreduce_model::{Band, expected_maximum};
use ringmark_core::stats::exchange_growth::{BUSIEST_LINK, Growth};
use ringmark_core::stats::scaling_loss::StepTimes;

use crate::read::analyse::prediction::evidence::{CaseEvidence, Evidence};
use crate::read::analyse::prediction::parts::{
    COMPUTE, EXPOSED, Grown, INPUT, Limit, REST, TRANSFER, WAITING, average, each, margin_of_mean, margin_of_one,
    of_base, phases,
};

/// How many times as long as the weights' way back the gradients' way to their owners is at most.
const GRADIENTS: f64 = 2.0;

const OPTIMIZER: fn(&(f64, StepTimes)) -> f64 = |(_, times)| times.phases[Phase::Optimizer];

/// An exchange as it grows, and the runs of the next smaller case than the reference.
struct Measured {
    growth: Growth,
    smaller: Option<(Vec<(f64, StepTimes)>, Case)>,
}

impl Measured {
    /// Of a part of a step by its values in the runs of the reference and of the smaller case.
    fn grown(&self, values: &[f64], of_smaller: impl Fn(&[(f64, StepTimes)], Case) -> Vec<f64>, hidden: f64) -> Band {
        let seen = self.smaller.as_ref().map(|(runs, case)| {
            let of_smaller = of_smaller(runs, *case);
            (average(&of_smaller), margin_of_mean(values).hypot(margin_of_mean(&of_smaller)))
        });
        self.growth.of(average(values), hidden, seen)
    }
}

/// What owners update: of the optimizer's phase of every run.
struct Updates {
    /// Seconds of all weights on one rank.
    whole: f64,
    /// Largest share of an owner.
    share: f64,
}

impl Updates {
    fn of(evidence: &Evidence, case: Case) -> Updates {
        Updates { whole: of_base(evidence, OPTIMIZER), share: evidence.strategy.largest_share(case) }
    }

    /// Where the phase is shorter than the update should be there is no way back in it.
    fn of_run(&self, run: &(f64, StepTimes)) -> f64 {
        OPTIMIZER(run).min(self.whole * self.share)
    }

    fn way_back(&self, run: &(f64, StepTimes)) -> f64 {
        OPTIMIZER(run) - self.of_run(run)
    }
}

/// The step of `case`, grown from that of the reference.
pub fn grown(
    evidence: &Evidence,
    case: Case,
    reference: &CaseEvidence,
    of_reference: &[(f64, StepTimes)],
    hosts: &[&CaseEvidence],
) -> Grown {
    let strategy = &evidence.strategy;
    let smaller = hosts.iter().rev().find(|other| other.case.nodes < reference.case.nodes);
    let smaller = smaller.and_then(|other| Some((phases(other)?, other.case)));
    let growth = Growth {
        before: strategy.measured_laws(reference.case),
        smaller: smaller.as_ref().map(|(_, case)| strategy.measured_laws(*case)),
        after: strategy.laws(case),
        main: (!strategy.has_owners()).then_some(BUSIEST_LINK),
    };
    let longer = growth.longer();
    let measured = Measured { growth, smaller };

    let owners = strategy.has_owners().then(|| (Updates::of(evidence, reference.case), Updates::of(evidence, case)));
    let ways: Vec<f64> = match &owners {
        Some((updates, _)) => of_reference.iter().map(|run| updates.way_back(run)).collect(),
        None => vec![0.0; of_reference.len()],
    };
    let of_smaller = |runs: &[(f64, StepTimes)], smaller: Case| match owners {
        Some(_) => runs.iter().map(|run| Updates::of(evidence, smaller).way_back(run)).collect(),
        None => vec![0.0; runs.len()],
    };
    let back = measured.grown(&ways, of_smaller, 0.0);
    let values = each(of_reference, TRANSFER);
    let hidden = match &owners {
        Some(_) => reference.backward.min((GRADIENTS * average(&ways) - average(&values)).max(0.0)),
        None => reference.backward,
    };
    let transfers = measured.grown(&values, |runs, _| each(runs, TRANSFER), hidden);
    let waiting = average(&each(of_reference, WAITING));
    let more_ranks = expected_maximum(case.ranks()) / expected_maximum(reference.case.ranks());
    let waits = Band::between(waiting, waiting * more_ranks.max(longer));

    // Every run as if it were the reference: its spread is that of the prediction.
    let own = |run: &(f64, StepTimes), way: f64| {
        let updates =
            owners.as_ref().map_or(0.0, |(before, after)| before.of_run(run) * (after.share / before.share - 1.0));
        run.0 - run.1.phases[EXPOSED] - way + updates
    };
    let times = |band: Band, values: &[f64]| if average(values) > 0.0 { band.mid / average(values) } else { 1.0 };
    let of_waiting = if waiting > 0.0 { waits.mid / waiting } else { 1.0 };
    let (of_transfer, of_way) = (times(transfers, &values), times(back, &ways));
    let of_run = |(run, way): (&(f64, StepTimes), &f64)| {
        own(run, *way) + TRANSFER(run) * of_transfer + WAITING(run) * of_waiting + way * of_way
    };
    let of_runs: Vec<f64> = of_reference.iter().zip(&ways).map(of_run).collect();
    let own = average(&of_reference.iter().zip(&ways).map(|(run, way)| own(run, *way)).collect::<Vec<f64>>());
    let step = Band {
        low: own + transfers.low + waits.low + back.low,
        mid: own + transfers.mid + waits.mid + back.mid,
        high: own + transfers.high + waits.high + back.high,
    };
    let compute = average(&each(of_reference, COMPUTE));
    let of_base = |part| of_base(evidence, part);
    let input = average(&each(of_reference, INPUT));
    let losses = vec![
        (Limit::Compute, compute - of_base(COMPUTE)),
        (Limit::Exchange, transfers.mid + back.mid - of_base(TRANSFER)),
        (Limit::Waiting, waits.mid - of_base(WAITING)),
        (Limit::Input, input - of_base(INPUT)),
        (Limit::Rest, own - compute - input - of_base(REST)),
    ];
    Grown { step: step.widened(margin_of_one(&of_runs)), losses }
}
