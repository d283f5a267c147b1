//! From measured cases to one that was not: step time as a band, what limits it, or what is missing to say. Pure.
//!
//! A case of k hosts with g ranks each is predicted from the **reference**: the largest measured case of several hosts
//! with as many ranks each (the nearest below, where it lies between measured ones). What its ranks do on their own
//! (input, forward, backward, optimizer, the rest of the step) stays as it is, since it depends on the host and not on how
//! many hosts there are. What depends on the others grows, each part between two extremes:
//!
//! ```text
//!                       least                               most
//! transfer, with a line the same share stays hidden         not a second more is hidden
//!           without     all of it bandwidth                 all of it latency, or bandwidth that backward just hid
//! waiting W             one rank is the slow one: W         ranks alike vary: W x m(n') / m(n), m: expected maximum
//! ```
//!
//! A line of one number of hosts does not show how the cost grows with hosts: both rows together then, and an all-reduce
//! that takes sqrt(k' / k) times as long as by the line, as where half of the hosts' traffic meets in the same uplinks.
//!
//! (`ringmark_core::stats::allreduce_model` has the formulas and why they are bounds.) Without records all that a step
//! takes beyond that of one host is transfer; the wait, which grows less than latency does, is in it.
//!
//! A kv-store other than `ring` is for [`kv_store_model`]; the margins and the band are the same, the wait may grow as the
//! exchange does.
//!
//! What was measured is said as everywhere, by the median of the runs; what grows is taken from their means, which parts of
//! a step add up to.
//!
//! The band is both extremes together, wider by the 95 % margins of the runs (of one run to come: `t x s x sqrt(1 + 1/r)`
//! with the spread s of r runs) and of the line, whose residual counts in full. The middle is half way between the
//! extremes: nothing says more. No band is faster than the base, which no rank can do without working less.

use ringmark_core::dimension::Case;
use ringmark_core::stats::allreduce_model::{Band, Line, Smaller, expected_maximum, exposed, exposed_without_line};
use ringmark_core::stats::scaling_loss::StepTimes;

use crate::read::analyse::prediction::evidence::{CaseEvidence, Evidence};
use crate::read::analyse::prediction::kv_store_model;
use crate::read::analyse::prediction::parts::{
    COMPUTE, EXPOSED, Grown, INPUT, Limit, REST, TRANSFER, WAITING, average, base_step, each, finite, margin_of_mean,
    margin_of_one, of_base, phases,
};
use crate::read::analyse::prediction::refusal::{Refusal, level_not_measured, refusal};

/// Times the largest measured ranks beyond which a prediction is warned of.
pub const FAR: u32 = 8;

/// One case.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The case.
    pub case: Case,
    /// Seconds of a step.
    pub step: Band,
    /// Relative to the base.
    pub efficiency: Band,
    /// Part of the loss in seconds by what it is lost to, in the middle of the band; none for a measured case.
    pub losses: Vec<(Limit, f64)>,
    /// Case that it grows from; `None` for a measured one.
    pub reference: Option<Case>,
}

impl Prediction {
    /// The largest loss; `None` for a measured case, or where nothing is lost.
    pub fn limit(&self) -> Option<Limit> {
        let largest = self.losses.iter().max_by(|one, other| one.1.total_cmp(&other.1))?;
        (largest.1 > 0.0).then_some(largest.0)
    }
}

/// Predicts a case, or says what was measured where it was.
pub fn predict(evidence: &Evidence, case: Case) -> Result<Prediction, Refusal> {
    match evidence.case(case).filter(|_| evidence.strategy.is_as_measured(case)) {
        Some(measured) => Ok(as_measured(evidence, measured)),
        None => from_smaller(evidence, case),
    }
}

fn prediction(evidence: &Evidence, case: Case, step: Band) -> Prediction {
    let base = base_step(evidence);
    let step = Band { low: step.low.max(step.mid.min(base)), ..step };
    let efficiency = Band { low: base / step.high, mid: base / step.mid, high: base / step.low };
    Prediction { case, step, efficiency, losses: Vec::new(), reference: None }
}

fn as_measured(evidence: &Evidence, measured: &CaseEvidence) -> Prediction {
    let steps: Vec<f64> = measured.runs.iter().map(|run| run.step).collect();
    let step = measured.step();
    prediction(evidence, measured.case, Band { low: step, mid: step, high: step }.widened(margin_of_one(&steps)))
}

/// Measured cases of several hosts with as many ranks each, by hosts.
fn of_hosts(evidence: &Evidence, gpus_per_node: u32) -> Vec<&CaseEvidence> {
    let alike = |case: &&CaseEvidence| case.case.nodes > 1 && case.case.gpus_per_node == gpus_per_node;
    evidence.cases.iter().filter(alike).collect()
}

fn from_smaller(evidence: &Evidence, case: Case) -> Result<Prediction, Refusal> {
    let hosts = of_hosts(evidence, case.gpus_per_node);
    let below = hosts.iter().rev().find(|measured| measured.case.nodes <= case.nodes);
    let Some(reference) = below.or(hosts.first()).filter(|_| case.nodes > 1) else {
        return Err(level_not_measured(evidence, case));
    };
    let grown = match phases(reference) {
        Some(phases) if !evidence.kv_store.is_ring() => {
            kv_store_model::grown(evidence, case, reference, &phases, &hosts)
        }
        Some(phases) => with_records(evidence, case, reference, &phases, &hosts),
        None => without_records(evidence, case, reference, &hosts)?,
    };
    let predicted = prediction(evidence, case, grown.step);
    Ok(Prediction { losses: grown.losses, reference: Some(reference.case), ..predicted })
}

fn with_records(
    evidence: &Evidence,
    case: Case,
    reference: &CaseEvidence,
    of_reference: &[(f64, StepTimes)],
    hosts: &[&CaseEvidence],
) -> Grown {
    let line = evidence.between(case.gpus_per_node);
    let values = each(of_reference, TRANSFER);
    let transfer = average(&values);
    let others: Vec<(Case, Vec<f64>)> =
        hosts.iter().filter_map(|measured| Some((measured.case, each(&phases(measured)?, TRANSFER)))).collect();
    let transfers = grown_transfer(evidence, case, reference, &values, &others, line.as_ref());
    let waiting = average(&each(of_reference, WAITING));
    let more_ranks = expected_maximum(case.ranks()) / expected_maximum(reference.case.ranks());
    let waits = Band::between(waiting, waiting * more_ranks);

    let growth = |band: Band, from: f64| if from > 0.0 { band.mid / from } else { 1.0 };
    let (transfer_growth, waiting_growth) = (growth(transfers, transfer), growth(waits, waiting));
    // Every run as if it were the reference: its spread is that of the prediction.
    let of_runs: Vec<f64> = of_reference
        .iter()
        .map(|run| run.0 - run.1.phases[EXPOSED] + TRANSFER(run) * transfer_growth + WAITING(run) * waiting_growth)
        .collect();
    let own = average(&each(of_reference, |(step, times)| step - times.phases[EXPOSED]));
    let step = Band {
        low: own + transfers.low + waits.low,
        mid: own + transfers.mid + waits.mid,
        high: own + transfers.high + waits.high,
    };
    let margin = margin_of_one(&of_runs) + line_margin(evidence, case, reference.case, line.as_ref());
    Grown { step: step.widened(margin), losses: losses(evidence, case, of_reference, (transfers.mid, waits.mid), line) }
}

/// What a step loses against the base's, which has the same phases or is not told apart.
fn losses(
    evidence: &Evidence,
    case: Case,
    of_reference: &[(f64, StepTimes)],
    (transfer, waiting): (f64, f64),
    line: Option<Line>,
) -> Vec<(Limit, f64)> {
    let of_base = |part| of_base(evidence, part);
    let lost = |part| average(&each(of_reference, part)) - of_base(part);
    let cost = evidence.cost(case);
    let transfer_by = match line {
        None => Limit::Transfer,
        Some(line) if line.latency * cost.steps > line.per_byte * cost.bytes => Limit::Latency,
        Some(_) => Limit::Bandwidth,
    };
    vec![
        (Limit::Compute, lost(COMPUTE)),
        (transfer_by, transfer - of_base(TRANSFER)),
        (Limit::Waiting, waiting - of_base(WAITING)),
        (Limit::Input, lost(INPUT)),
        (Limit::Rest, lost(REST)),
    ]
}

fn without_records(
    evidence: &Evidence,
    case: Case,
    reference: &CaseEvidence,
    hosts: &[&CaseEvidence],
) -> Result<Grown, Refusal> {
    let of_one_host =
        |measured: &&CaseEvidence| measured.case.nodes == 1 && measured.case.gpus_per_node <= case.gpus_per_node;
    let Some(host) = evidence.cases.iter().rev().find(of_one_host) else {
        let one = Case { nodes: 1, ..case };
        let why = format!("{one} was not measured, and without records nothing else tells what several hosts add");
        return Err(refusal(evidence, case, why, &[one]));
    };
    let line = evidence.between(case.gpus_per_node);
    let steps = |measured: &CaseEvidence| -> Vec<f64> { measured.runs.iter().map(|run| run.step).collect() };
    let (host_steps, reference_steps) = (steps(host), steps(reference));
    let host_step = average(&host_steps);
    let added: Vec<f64> = reference_steps.iter().map(|step| step - host_step).collect();
    // What several hosts save, if they do, does not grow.
    let saved = average(&added).min(0.0);
    let growing: Vec<f64> = added.iter().map(|added| added - saved).collect();
    let of_other = |other: &&CaseEvidence| {
        let added = steps(other).iter().map(|step| step - host_step - saved).collect();
        (other.case, added)
    };
    let others: Vec<(Case, Vec<f64>)> = hosts.iter().map(of_other).collect();
    let grown = grown_transfer(evidence, case, reference, &growing, &others, line.as_ref());

    let growth = if average(&growing) > 0.0 { grown.mid / average(&growing) } else { 1.0 };
    let of_reference = growth * margin_of_one(&reference_steps);
    let of_host = (growth - 1.0).abs() * finite(margin_of_mean(&host_steps));
    let margin = of_reference.hypot(of_host) + line_margin(evidence, case, reference.case, line.as_ref());
    let fixed = host_step + saved;
    let step = Band { low: fixed + grown.low, mid: fixed + grown.mid, high: fixed + grown.high };
    let losses = vec![(Limit::Host, fixed - base_step(evidence)), (Limit::Hosts, grown.mid)];
    Ok(Grown { step: step.widened(margin), losses })
}

/// The exposed transfer of `case` from its values in the runs of the reference and of the other cases of several hosts,
/// of which the next smaller one counts.
fn grown_transfer(
    evidence: &Evidence,
    case: Case,
    reference: &CaseEvidence,
    values: &[f64],
    others: &[(Case, Vec<f64>)],
    line: Option<&Line>,
) -> Band {
    let smaller = others.iter().rev().find(|(other, _)| other.nodes < reference.case.nodes);
    let margin = |other: &[f64]| margin_of_mean(values).hypot(margin_of_mean(other));
    let (before, after) = (evidence.cost(reference.case), evidence.cost(case));
    let smaller = smaller.map(|(other, of_other)| Smaller {
        exposed: average(of_other),
        margin: margin(of_other),
        allreduce: evidence.cost(*other),
    });
    let without_line = exposed_without_line(average(values), reference.backward, before, smaller, after);
    let Some(line) = line else { return without_line };
    let smaller = smaller.map(|Smaller { exposed, margin, allreduce }| Smaller {
        exposed,
        margin,
        allreduce: line.time(allreduce),
    });
    let band = exposed(average(values), line.time(before), smaller, line.time(after));
    if evidence.shows_growth(case.gpus_per_node) || case.nodes <= reference.case.nodes {
        return band;
    }
    let crowding = (f64::from(case.nodes) / f64::from(reference.case.nodes)).sqrt();
    let crowded = exposed(average(values), line.time(before), None, line.time(after) * crowding);
    band.or(without_line).or(crowded)
}

/// What the line's own error adds: that of its growth, and as much of the whole as the measured sizes were off the line.
fn line_margin(evidence: &Evidence, case: Case, from: Case, line: Option<&Line>) -> f64 {
    let (before, after) = (evidence.cost(from), evidence.cost(case));
    line.map_or(0.0, |line| finite(line.margin(after - before)).hypot(line.residual * line.time(after)))
}
