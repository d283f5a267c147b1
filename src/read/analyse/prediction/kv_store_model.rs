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
use ringmark_core::stats::run_values::RunValues;
use ringmark_core::stats::scaling_loss::StepTimes;

use crate::read::analyse::prediction::evidence::{CaseEvidence, Evidence, Part, Steps};
use crate::read::analyse::prediction::parts::{self, COMPUTE, EXPOSED, Grown, INPUT, Limit, TRANSFER, WAITING};

/// How many times as long as the weights' way back the gradients' way to their owners is at most.
const GRADIENTS: f64 = 2.0;

const OPTIMIZER: Part = |(_, times)| times.phases[Phase::Optimizer];

/// An exchange as it grows, and the runs of the next smaller case than the reference.
struct Measured {
    growth: Growth,
    smaller: Option<(Steps, Case)>,
}

impl Measured {
    /// Of a part of a step by its values in the runs of the reference and of the smaller case.
    fn grown(&self, values: &RunValues, of_smaller: impl Fn(&Steps, Case) -> RunValues, hidden: f64) -> Band {
        let seen = self.smaller.as_ref().map(|(runs, case)| {
            let of_smaller = of_smaller(runs, *case);
            (of_smaller.mean(), values.margin_of_difference(&of_smaller))
        });
        self.growth.of(values.mean(), hidden, seen)
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
        Updates { whole: evidence.base_mean(OPTIMIZER), share: evidence.strategy.largest_share(case) }
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
    of_reference: &Steps,
    hosts: &[&CaseEvidence],
) -> Grown {
    let strategy = &evidence.strategy;
    let smaller = hosts.iter().rev().find(|other| other.case.nodes < reference.case.nodes);
    let smaller = smaller.and_then(|other| Some((other.phases()?, other.case)));
    let growth = Growth {
        before: strategy.measured_laws(reference.case),
        smaller: smaller.as_ref().map(|(_, case)| strategy.measured_laws(*case)),
        after: strategy.laws(case),
        main: (!strategy.has_owners()).then_some(BUSIEST_LINK),
    };
    let longer = growth.longer();
    let measured = Measured { growth, smaller };

    let owners = strategy.has_owners().then(|| (Updates::of(evidence, reference.case), Updates::of(evidence, case)));
    let ways_back = |steps: &Steps, case: Case| match owners {
        Some(_) => {
            let updates = Updates::of(evidence, case);
            steps.values(|run| updates.way_back(run))
        }
        None => steps.values(|_| 0.0),
    };
    let ways = ways_back(of_reference, reference.case);
    let back = measured.grown(&ways, ways_back, 0.0);
    let transfer = of_reference.values(TRANSFER);
    let hidden = match &owners {
        Some(_) => reference.backward.min((GRADIENTS * ways.mean() - transfer.mean()).max(0.0)),
        None => reference.backward,
    };
    let transfers = measured.grown(&transfer, |steps, _| steps.values(TRANSFER), hidden);
    let waiting = of_reference.values(WAITING);
    let more_ranks = expected_maximum(case.ranks()) / expected_maximum(reference.case.ranks());
    let waits = Band::between(waiting.mean(), waiting.mean() * more_ranks.max(longer));

    let own = of_reference.values(|run| {
        let (way, updates) = owners.as_ref().map_or((0.0, 0.0), |(before, after)| {
            (before.way_back(run), before.of_run(run) * (after.share / before.share - 1.0))
        });
        run.0 - run.1.phases[EXPOSED] - way + updates
    });
    let rest = own.mean() - of_reference.mean(COMPUTE) - of_reference.mean(INPUT);
    let exchange = (Limit::Exchange, transfers.mid + back.mid);
    Grown {
        step: parts::step(&own, &[(&transfer, transfers), (&waiting, waits), (&ways, back)], 0.0),
        losses: parts::losses(evidence, of_reference, exchange, waits.mid, rest),
    }
}
