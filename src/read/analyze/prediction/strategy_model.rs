//! Predicted step of a kv-store with owners or servers: [`crate::read::analyze::prediction::model`] with the growth laws of
//! `ringmark_core::stats::exchange_growth`.
//!
//! ```text
//!                   owners (device, nccl)                     servers (dist_sync, dist_device_sync)
//! exposed phase     gradients to their owners                 gradients to the servers, weights back
//! optimizer phase   updates by the owners, then the return    distribution of the weights inside the rank
//!                   of the weights, which nothing hides
//! ```
//!
//! **Owners.** The return of the weights takes the optimizer phase minus the update. The update is that of the single
//! rank times the largest share of any owner. The return grows like the gradient transfer. Backward hides at most its
//! own duration of the gradient transfer. The whole transfer is assumed to take at most twice as long as the return: it
//! moves as many bytes or half as many, and adds them up.
//!
//! **The wait** for the slowest rank includes time that ranks wait because their parts of the exchange differ (that of
//! an owner is longer). So it grows at most like the expected maximum over more ranks or like the exchange, whichever
//! is more.

use ringmark_core::dimension::Case;
use ringmark_core::stats::allreduce_model::{Band, expected_maximum};
use ringmark_core::stats::exchange_growth::{BUSIEST_LINK, Growth};
use ringmark_core::stats::run_values::RunValues;

use crate::read::analyze::prediction::evidence::{CaseEvidence, Evidence, Steps};
use crate::read::analyze::prediction::step_parts::{
    self, COMPUTE, EXPOSED, INPUT, Limit, PredictedStep, TRANSFER, Updates, WAITING,
};

/// Maximum duration of the gradient transfer to the owners, relative to the return of the weights.
const GRADIENTS: f64 = 2.0;

/// Growth of an exchange, and the runs of the next smaller case than the reference.
struct MeasuredGrowth {
    growth: Growth,
    smaller: Option<(Steps, Case)>,
}

impl MeasuredGrowth {
    /// Predicts a part of a step from its values in the runs of the reference and of the smaller case.
    fn grown(&self, values: &RunValues, of_smaller: impl Fn(&Steps, Case) -> RunValues, hidden: f64) -> Band {
        let seen = self.smaller.as_ref().map(|(runs, case)| {
            let of_smaller = of_smaller(runs, *case);
            (of_smaller.mean(), values.margin_of_difference(&of_smaller))
        });
        self.growth.estimate(values.mean(), hidden, seen)
    }
}

/// Predicts the step of `case` from that of the reference.
pub fn grown(
    evidence: &Evidence,
    case: Case,
    reference: &CaseEvidence,
    of_reference: &Steps,
    hosts: &[&CaseEvidence],
) -> PredictedStep {
    let pattern = &evidence.pattern;
    let smaller = hosts.iter().rev().find(|other| other.case.nodes < reference.case.nodes);
    let smaller = smaller.and_then(|other| Some((other.phases()?, other.case)));
    let growth = Growth {
        before: pattern.measured_laws(reference.case),
        smaller: smaller.as_ref().map(|(_, case)| pattern.measured_laws(*case)),
        after: pattern.laws(case),
        main: (!pattern.has_owners()).then_some(BUSIEST_LINK),
    };
    let longer = growth.longer();
    let measured = MeasuredGrowth { growth, smaller };

    let owners = pattern.has_owners().then(|| (Updates::new(evidence, reference.case), Updates::new(evidence, case)));
    let ways_back = |steps: &Steps, case: Case| match owners {
        Some(_) => {
            let updates = Updates::new(evidence, case);
            steps.values(|run| updates.return_seconds(run))
        }
        None => steps.values(|_| 0.0),
    };
    let ways = ways_back(of_reference, reference.case);
    let back = measured.grown(&ways, ways_back, 0.0);
    let transfer = of_reference.values(TRANSFER);
    let hidden = match &owners {
        Some(_) => reference.hiding.min((GRADIENTS * ways.mean() - transfer.mean()).max(0.0)),
        None => reference.hiding,
    };
    let transfers = measured.grown(&transfer, |steps, _| steps.values(TRANSFER), hidden);
    let waiting = of_reference.values(WAITING);
    let more_ranks = expected_maximum(case.ranks()) / expected_maximum(reference.case.ranks());
    let waits = Band::between(waiting.mean(), waiting.mean() * more_ranks.max(longer));

    let own = of_reference.values(|run| {
        let (way, updates) = owners.as_ref().map_or((0.0, 0.0), |(before, after)| {
            (before.return_seconds(run), before.update_seconds(run) * (after.share / before.share - 1.0))
        });
        run.0 - run.1.phases[EXPOSED] - way + updates
    });
    let rest = own.mean() - of_reference.mean(COMPUTE) - of_reference.mean(INPUT);
    let exchange = (Limit::Exchange, transfers.mid + back.mid);
    PredictedStep {
        step: step_parts::step(&own, &[(&transfer, transfers), (&waiting, waits), (&ways, back)], 0.0),
        losses: step_parts::losses(evidence, of_reference, exchange, waits.mid, rest),
    }
}
