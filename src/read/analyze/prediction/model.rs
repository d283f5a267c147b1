//! Predicts a case that was not measured: its step time as a band and its limiting factor, or an error with the missing
//! data. No I/O.
//!
//! A case of k hosts with g ranks each is predicted from the **reference**: the largest measured case of several hosts
//! with as many ranks each (for a case between measured ones, the nearest smaller one). The work of a rank on its own
//! (input, forward, backward, optimizer, the rest of the step) is assumed constant, because it depends on the host and
//! not on the number of hosts. The parts that depend on other ranks grow, each between two extremes:
//!
//! ```text
//!                       least                               most
//! transfer, with a line the same share stays hidden         no additional time is hidden
//!           without     all of it bandwidth                 all of it latency, or bandwidth just hidden by backward
//! waiting W             a single rank is slow: W            all ranks vary: W x m(n') / m(n), m: expected maximum
//! ```
//!
//! A bandwidth result for a single number of hosts does not show how the cost grows with hosts. In that case the band
//! covers both rows, and an all-reduce that takes sqrt(k' / k) times as long as by the line, as if half of the hosts'
//! traffic shared the same uplinks.
//!
//! (`ringmark_core::stats::allreduce_model` contains the formulas and explains their bounds.) Without records, all step
//! time beyond that of one host is treated as transfer. It includes the wait, which grows less than latency does.
//!
//! **Shards.** A reduce-scatter or an all-gather has half of the steps and bytes of an all-reduce, so it grows by the same
//! law. The exposed phase contains the sums of the gradients and the gathers of weights during forward and backward,
//! which these hide. The optimizer phase contains the update, whose time is that of the single rank divided by the ranks,
//! and then the gathers after it, which nothing hides. Without a line, the lower limit of both is their time in the
//! reference, as if all of it were copies inside a host.
//!
//! **Hybrid shards.** Reduce-scatters and all-gathers inside a host do not depend on the number of hosts, so their exposed
//! time T0 is that of the measured case of one host with as many ranks. The sums between hosts are an all-reduce of every
//! rank's part, which also consists of a reduce-scatter and an all-gather. If it takes s times as long, the exposed time `T(s)` is convex, because it is the longest of several
//! chains of work, each with a part of the all-reduce; and `T(0) = T0`. So `T(s) - T0` has the limits of an exposed
//! all-reduce, or without a line those of shards. The exchange inside a host may also hide a part of it. The optimizer phase is unchanged: the update of a part,
//! and the start of a gather inside the host.
//!
//! Owners and servers are handled by [`strategy_model`], with the same margins and band; the wait may grow in proportion
//! to the exchange.
//!
//! Measured steps are reported as medians over runs, as everywhere. Growing parts use means, because the parts of a
//! step add up to the mean.
//!
//! The band contains both extremes. It is widened by the 95 % margins of the runs and of the line, whose residual is
//! added in full. The margin of a future run is `t x s x sqrt(1 + 1/r)`, with the spread s of r runs. The middle of the
//! band is the midpoint of the extremes, since no value between them is more likely. No band is faster than the base
//! without the share of the update that other ranks perform: no rank can be faster unless it does less work.

use ringmark_core::dimension::Case;
use ringmark_core::stats::allreduce_model::{
    Band, LatencyModel, SmallerCase, expected_maximum, exposed, exposed_without_line,
};
use ringmark_core::stats::run_values::RunValues;

use crate::read::analyze::prediction::evidence::{CaseEvidence, Evidence, Steps};
use crate::read::analyze::prediction::exchange_pattern::ExchangePart;
use crate::read::analyze::prediction::refusal::{Refusal, level_not_measured, refusal};
use crate::read::analyze::prediction::step_parts::{
    self, COMPUTE, INPUT, Limit, PredictedStep, TRANSFER, Updates, WAITING, finite,
};
use crate::read::analyze::prediction::strategy_model;

/// Ratio to the largest measured number of ranks above which a prediction has a warning.
pub const FAR: u32 = 8;

/// Prediction for one case.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Predicted case.
    pub case: Case,
    /// Step time in seconds.
    pub step: Band,
    /// Efficiency relative to the base.
    pub efficiency: Band,
    /// Losses in seconds by cause, in the middle of the band; empty for a measured case.
    pub losses: Vec<(Limit, f64)>,
    /// Case that the prediction extrapolates from; `None` for a measured case.
    pub reference: Option<Case>,
}

impl Prediction {
    /// Returns the largest loss; `None` for a measured case, or if nothing is lost.
    pub fn limit(&self) -> Option<Limit> {
        let largest = self.losses.iter().max_by(|one, other| one.1.total_cmp(&other.1))?;
        (largest.1 > 0.0).then_some(largest.0)
    }
}

/// Predicts a case, or returns the measurement if there is one.
pub fn predict(evidence: &Evidence, case: Case) -> Result<Prediction, Refusal> {
    match evidence.case(case).filter(|_| evidence.pattern.is_as_measured(case)) {
        Some(measured) => Ok(as_measured(evidence, measured)),
        None => from_smaller(evidence, case),
    }
}

fn prediction(evidence: &Evidence, case: Case, step: Band) -> Prediction {
    let base = evidence.base_step();
    let fastest = base - Updates::new(evidence, case).saved_seconds();
    let step = Band { low: step.low.max(step.mid.min(fastest)), ..step };
    let efficiency = Band { low: base / step.high, mid: base / step.mid, high: base / step.low };
    Prediction { case, step, efficiency, losses: Vec::new(), reference: None }
}

fn as_measured(evidence: &Evidence, measured: &CaseEvidence) -> Prediction {
    let step = Band::at(measured.step()).widened(measured.steps().margin_of_next_run());
    prediction(evidence, measured.case, step)
}

/// Returns the measured cases of several hosts with this many ranks each, by number of hosts.
fn multi_host_cases(evidence: &Evidence, gpus_per_node: u32) -> Vec<&CaseEvidence> {
    let alike = |case: &&CaseEvidence| case.case.nodes > 1 && case.case.gpus_per_node == gpus_per_node;
    evidence.cases.iter().filter(alike).collect()
}

fn from_smaller(evidence: &Evidence, case: Case) -> Result<Prediction, Refusal> {
    let hosts = multi_host_cases(evidence, case.gpus_per_node);
    let below = hosts.iter().rev().find(|measured| measured.case.nodes <= case.nodes);
    let Some(reference) = below.or(hosts.first()).filter(|_| case.nodes > 1) else {
        return Err(level_not_measured(evidence, case));
    };
    let grown = match reference.phases() {
        Some(phases) if evidence.pattern.has_collectives() => with_records(evidence, case, reference, &phases, &hosts)?,
        Some(phases) => strategy_model::grown(evidence, case, reference, &phases, &hosts),
        None => without_records(evidence, case, reference, &hosts)?,
    };
    let predicted = prediction(evidence, case, grown.step);
    Ok(Prediction { losses: grown.losses, reference: Some(reference.case), ..predicted })
}

/// Returns the exposed exchange inside one host with as many ranks as in `case`, which `hsdp` has on any number of hosts;
/// `None` for other strategies.
fn inside_host(evidence: &Evidence, case: Case) -> Result<Option<RunValues>, Refusal> {
    if !evidence.pattern.is_hybrid() {
        return Ok(None);
    }
    let one = Case { nodes: 1, ..case };
    let Some(host) = evidence.case(one).and_then(CaseEvidence::phases) else {
        let why = format!(
            "{one} was not measured, and only one host shows the exchange inside a host, which does not grow with the \
             number of hosts"
        );
        return Err(refusal(evidence, case, why, &[one]));
    };
    Ok(Some(host.values(TRANSFER)))
}

fn with_records(
    evidence: &Evidence,
    case: Case,
    reference: &CaseEvidence,
    of_reference: &Steps,
    hosts: &[&CaseEvidence],
) -> Result<PredictedStep, Refusal> {
    let line = evidence.between(case.gpus_per_node);
    let [before, after] = [reference.case, case].map(|case| Updates::new(evidence, case));
    let parts = evidence.pattern.exchange_parts();
    let inside = inside_host(evidence, case)?;
    // If several hosts save time, the saving is assumed not to grow.
    let fixed = inside.as_ref().map_or(0.0, |inside| inside.mean().min(of_reference.mean(TRANSFER)));
    let grow = |part: &ExchangePart| {
        let values = |steps: &Steps, updates: &Updates| steps.values(|run| updates.exposed_seconds(*part, run) - fixed);
        let of_case = |measured: &&CaseEvidence| {
            Some((measured.case, values(&measured.phases()?, &Updates::new(evidence, measured.case))))
        };
        let others: Vec<(Case, RunValues)> = hosts.iter().filter_map(of_case).collect();
        let exposed = values(of_reference, &before);
        let band = grown_transfer(evidence, *part, case, reference, &exposed, &others, line.as_ref());
        (exposed, band)
    };
    let exchange: Vec<(RunValues, Band)> = parts.iter().map(grow).collect();
    let waiting = of_reference.values(WAITING);
    let more_ranks = expected_maximum(case.ranks()) / expected_maximum(reference.case.ranks());
    let waits = Band::between(waiting.mean(), waiting.mean() * more_ranks);
    let own = of_reference.values(|run| {
        let exposed: f64 = parts.iter().map(|part| before.exposed_seconds(*part, run)).sum();
        run.0 - exposed + fixed - WAITING(run) + before.update_seconds(run) * (after.share / before.share - 1.0)
    });
    let rest = own.mean() - fixed - of_reference.mean(COMPUTE) - of_reference.mean(INPUT);
    let mut margin = line_margin(evidence, case, reference.case, line.as_ref());
    for (inside, (values, band)) in inside.iter().zip(&exchange) {
        margin += (step_parts::growth(values, *band) - 1.0).abs() * finite(inside.margin_of_mean());
    }
    let cost = evidence.whole_cost(case);
    let limit = match line {
        None if evidence.pattern.has_shards() => Limit::Exchange,
        None => Limit::Transfer,
        Some(line) if line.latency * cost.steps > line.per_byte * cost.bytes => Limit::Latency,
        Some(_) => Limit::Bandwidth,
    };
    let exposed: f64 = exchange.iter().map(|(_, band)| band.mid).sum();
    let growing: Vec<(&RunValues, Band)> =
        exchange.iter().map(|(values, band)| (values, *band)).chain([(&waiting, waits)]).collect();
    let of_base = inside.as_ref().map_or(0.0, |_| evidence.base_mean(TRANSFER));
    let mut losses = step_parts::losses(evidence, of_reference, (limit, exposed + of_base), waits.mid, rest);
    losses.extend(inside.map(|_| (Limit::Host, fixed - of_base)));
    Ok(PredictedStep { step: step_parts::step(&own, &growing, margin), losses })
}

fn without_records(
    evidence: &Evidence,
    case: Case,
    reference: &CaseEvidence,
    hosts: &[&CaseEvidence],
) -> Result<PredictedStep, Refusal> {
    let of_one_host =
        |measured: &&CaseEvidence| measured.case.nodes == 1 && measured.case.gpus_per_node <= case.gpus_per_node;
    let Some(host) = evidence.cases.iter().rev().find(of_one_host) else {
        let one = Case { nodes: 1, ..case };
        let why = format!("{one} was not measured, and without records the cost of several hosts is unknown");
        return Err(refusal(evidence, case, why, &[one]));
    };
    let line = evidence.between(case.gpus_per_node);
    let (host_steps, reference_steps) = (host.steps(), reference.steps());
    let host_step = host_steps.mean();
    let added: RunValues = reference_steps.values().iter().map(|step| step - host_step).collect();
    // If several hosts save time, the saving is assumed not to grow.
    let saved = added.mean().min(0.0);
    let growing: RunValues = added.values().iter().map(|added| added - saved).collect();
    let of_other = |other: &&CaseEvidence| {
        let added = other.steps().values().iter().map(|step| step - host_step - saved).collect();
        (other.case, added)
    };
    let others: Vec<(Case, RunValues)> = hosts.iter().map(of_other).collect();
    let transfer = ExchangePart::Transfer;
    let grown = grown_transfer(evidence, transfer, case, reference, &growing, &others, line.as_ref());

    let growth = step_parts::growth(&growing, grown);
    let of_reference = growth * reference_steps.margin_of_next_run();
    let of_host = (growth - 1.0).abs() * finite(host_steps.margin_of_mean());
    let margin = of_reference.hypot(of_host) + line_margin(evidence, case, reference.case, line.as_ref());
    let fixed = host_step + saved;
    let losses = vec![(Limit::Host, fixed - evidence.base_step()), (Limit::Hosts, grown.mid)];
    Ok(PredictedStep { step: (Band::at(fixed) + grown).widened(margin), losses })
}

/// Returns the exposed time of a part of the exchange in `case`, from its values in the runs of the reference and in the
/// next smaller of the other cases of several hosts.
fn grown_transfer(
    evidence: &Evidence,
    part: ExchangePart,
    case: Case,
    reference: &CaseEvidence,
    values: &RunValues,
    others: &[(Case, RunValues)],
    line: Option<&LatencyModel>,
) -> Band {
    let smaller = others.iter().rev().find(|(other, _)| other.nodes < reference.case.nodes);
    let cost = |case| evidence.cost(case, &[part]);
    let (before, after) = (cost(reference.case), cost(case));
    let smaller = smaller.map(|(other, of_other)| SmallerCase {
        exposed: of_other.mean(),
        margin: values.margin_of_difference(of_other),
        allreduce: cost(*other),
    });
    let hiding = if part == ExchangePart::Transfer { reference.hiding } else { 0.0 };
    let mut without_line = exposed_without_line(values.mean(), hiding, before, smaller, after);
    if evidence.pattern.divides_buckets() {
        // Copies inside a host do not grow.
        let Band { low, high, .. } = without_line.or(Band::at(values.mean()));
        without_line = Band::between(low, high);
    }
    let Some(line) = line else { return without_line };
    let smaller = smaller.map(|SmallerCase { exposed, margin, allreduce }| SmallerCase {
        exposed,
        margin,
        allreduce: line.time(allreduce),
    });
    let band = exposed(values.mean(), line.time(before), smaller, line.time(after));
    if evidence.shows_growth(case.gpus_per_node) || case.nodes <= reference.case.nodes {
        return band;
    }
    let crowding = (f64::from(case.nodes) / f64::from(reference.case.nodes)).sqrt();
    let crowded = exposed(values.mean(), line.time(before), None, line.time(after) * crowding);
    band.or(without_line).or(crowded)
}

/// Returns the margin caused by errors of the line: the margin of its growth and its residual over the whole time,
/// added as a root of the sum of squares.
fn line_margin(evidence: &Evidence, case: Case, from: Case, line: Option<&LatencyModel>) -> f64 {
    let (before, after) = (evidence.whole_cost(from), evidence.whole_cost(case));
    line.map_or(0.0, |line| finite(line.margin(after - before)).hypot(line.residual * line.time(after)))
}
