//! Pairs of hosts, in rounds in which every host takes part. Slow with every partner is the host, with one partner the
//! link.

use std::collections::BTreeMap;

use crate::accept::comparison::{Comparison, Deviation};
use crate::accept::fleet::{Job, Metric, Stage, Test};
use crate::accept::search::log::{Attempts, FAILURES};
use crate::accept::search::state::{PairKind, State};
use crate::accept::verdict::{Cause, Evidence, Fitness, Subject};
use crate::number_text::count;
use crate::stats::pairing::rounds;
use crate::stats::random::Random;
use crate::stats::sequential::{Decision, LIMIT};

/// Start of the typical value: a quarter of the pairs must be good. One bad host of three slows two of three pairs.
const QUANTILE: f64 = 0.75;

/// Share of slow partners from which the host is slow: a third of the hosts may be bad as well.
const HOST_SHARE: f64 = 2.0 / 3.0;

/// Share of slow partners from which a host is slow beyond doubt; those between are judged without its pairs.
const CLEAR_SHARE: f64 = 0.9;

/// Fewest slow partners of a slow host.
const MIN_PARTNERS: usize = 2;

const SIZES: usize = Metric::BANDWIDTHS.len();

/// Measurements of one pair.
struct Measured<'a> {
    job: &'a Job,
    attempts: Attempts<'a>,
    /// Logarithms of the bandwidths of each size.
    values: [Vec<f64>; SIZES],
    is_first: bool,
}

/// Result of one pair.
struct Pair {
    hosts: [usize; 2],
    decision: Decision,
    /// Change of a host's sum by this partner: largest of the metrics.
    step: f64,
    evidence: Vec<Evidence>,
    attempts: usize,
}

/// Returns the jobs that are still needed; reports slow and failing hosts and links.
pub fn pairs(state: &mut State, stage: Stage) -> Vec<Job> {
    let rounds = scheduled(state);
    // Afterwards, because the rounds must not change once they have begun.
    state.report_failures(stage);
    let measured = |job: &Job| (!state.excludes(job)).then(|| state.log.attempts(&[stage], job));
    let is_needed =
        |attempts: &Attempts, repeats: usize| attempts.measured.len() < repeats && attempts.failures.len() < FAILURES;
    let mut kinds: BTreeMap<PairKind, Vec<Measured>> = BTreeMap::new();
    for (index, round) in rounds.iter().enumerate() {
        let all = round.iter().filter_map(|job| Some((job, measured(job)?)));
        let all: Vec<(&Job, Attempts)> = all.collect();
        // The first round runs twice: its differences are the noise of repeats.
        for repeats in if index == 0 { 1..=2 } else { 1..=1 } {
            let needed = all.iter().filter(|(_, attempts)| is_needed(attempts, repeats)).map(|(job, _)| *job);
            let needed: Vec<Job> = needed.cloned().collect();
            if !needed.is_empty() {
                return needed;
            }
        }
        for (job, attempts) in all {
            let values = Metric::BANDWIDTHS.map(|metric| attempts.values(metric, 1));
            let measured = Measured { job, attempts, values, is_first: index == 0 };
            kinds.entry(state.pair_kind(&job.hosts)).or_default().push(measured);
        }
    }
    let tests = 3 * (kinds.values().map(Vec::len).sum::<usize>() + state.fleet.len());
    let false_alarm = state.false_alarms() / tests.max(1) as f64;
    let mut pairs = Vec::new();
    for (kind, jobs) in &kinds {
        let of_hardware = kinds.iter().filter(|((hardware, _), _)| *hardware == kind.0);
        let noise = noise(jobs, &of_hardware.flat_map(|(_, jobs)| jobs).collect::<Vec<&Measured>>());
        pairs.extend(compare(state, stage, *kind, jobs, &noise, false_alarm));
    }
    attribute(state, stage, pairs, false_alarm)
}

/// Returns the rounds of pairs: each kind of hardware by itself, in an order that the seed determines.
fn scheduled(state: &State) -> Vec<Vec<Job>> {
    let mut all: Vec<Vec<Job>> = Vec::new();
    for hosts in state.classes().values_mut() {
        Random(state.seed).shuffle(hosts);
        let usual = (hosts.len().max(1) as f64).log2().ceil() as usize + 5;
        let most = state.criteria.pair_rounds.map_or(usual, |rounds| rounds as usize);
        for (index, round) in rounds(hosts.len(), most).into_iter().enumerate() {
            let jobs = round.into_iter().map(|(one, other)| Job::of_pair(hosts[one], hosts[other]));
            if index == all.len() {
                all.push(Vec::new());
            }
            all[index].extend(jobs);
        }
    }
    all
}

/// Returns the noise of each metric: the larger one of this kind and of all pairs of the hardware. Few pairs of the
/// first round share a switch: their noise alone would be too uncertain.
fn noise(of_kind: &[Measured], of_hardware: &[&Measured]) -> [Deviation; SIZES] {
    let repeats = |pairs: &mut dyn Iterator<Item = &Measured>, size: usize| {
        Deviation::of_repeats(pairs.filter(|pair| pair.is_first).map(|pair| &pair.values[size][..]))
    };
    std::array::from_fn(|size| {
        let own = repeats(&mut of_kind.iter(), size);
        let all = repeats(&mut of_hardware.iter().copied(), size);
        Deviation { value: all.value.max(own.value), ..all }
    })
}

/// Compares the pairs of one kind.
fn compare(
    state: &mut State,
    stage: Stage,
    kind: PairKind,
    jobs: &[Measured],
    noise: &[Deviation; SIZES],
    false_alarm: f64,
) -> Vec<Pair> {
    let start = |Measured { job, attempts, .. }: &Measured| {
        let is_failing = attempts.failures.len() >= FAILURES;
        let failure = || Evidence::of_failure(stage, attempts.failures[0], attempts.failures.len());
        Pair {
            hosts: [job.hosts[0], job.hosts[1]],
            decision: if is_failing { Decision::Slower } else { Decision::AsOthers },
            step: if is_failing { LIMIT } else { -LIMIT },
            evidence: if is_failing { vec![failure()] } else { Vec::new() },
            attempts: attempts.len(),
        }
    };
    let mut pairs: Vec<Pair> = jobs.iter().map(start).collect();
    for (size, metric) in Metric::BANDWIDTHS.into_iter().enumerate() {
        let series: Vec<&[f64]> = jobs.iter().map(|pair| &pair.values[size][..]).collect();
        let found = Comparison::new(&series, QUANTILE, noise[size], false_alarm, state.criteria);
        let Some(comparison) = found else { continue };
        state.comparisons.pairs.insert((kind, metric), comparison);
        for (pair, values) in pairs.iter_mut().zip(series).filter(|(_, values)| !values.is_empty()) {
            let (decision, sum) = comparison.decide(values);
            if decision != Decision::AsOthers {
                pair.evidence.push(comparison.evidence(stage, metric, values, sum));
            }
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            pair.step = pair.step.max(comparison.test.step(comparison.loss(mean)));
            pair.decision = pair.decision.max(decision);
        }
    }
    pairs
}

/// Attributes slow pairs to hosts or links; returns the pairs to measure again.
fn attribute(state: &mut State, stage: Stage, pairs: Vec<Pair>, false_alarm: f64) -> Vec<Job> {
    let mut slow_hosts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let upper = ((1.0 - state.criteria.missed) / false_alarm).ln();
    loop {
        // Partners of each host: indices of its pairs with hosts that are not slow with every partner.
        let mut partners: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, pair) in pairs.iter().enumerate() {
            if !pair.hosts.iter().any(|host| slow_hosts.contains_key(host)) {
                pair.hosts.iter().for_each(|host| partners.entry(*host).or_default().push(index));
            }
        }
        let share = |indices: &[usize], is_slow: &dyn Fn(&Pair) -> bool| {
            let slow = indices.iter().filter(|index| is_slow(&pairs[**index])).count();
            if slow < MIN_PARTNERS { 0.0 } else { slow as f64 / indices.len() as f64 }
        };
        let share_of = |indices: &[usize]| {
            let sum: f64 = indices.iter().map(|index| pairs[*index].step).sum();
            let by_sum = if sum >= upper { share(indices, &|pair| pair.step > 0.0) } else { 0.0 };
            by_sum.max(share(indices, &|pair| pair.decision == Decision::Slower))
        };
        let shares: BTreeMap<usize, f64> = partners.iter().map(|(host, indices)| (*host, share_of(indices))).collect();
        let highest = shares.values().copied().fold(0.0, f64::max);
        if highest < HOST_SHARE {
            break;
        }
        let limit = highest.min(CLEAR_SHARE);
        let found = partners.into_iter().filter(|(host, _)| shares[host] >= limit);
        slow_hosts.extend(found);
    }
    for (host, indices) in &slow_hosts {
        let slow = indices.iter().filter(|index| pairs[**index].step > 0.0).count();
        let text = format!("slow with {slow} of {}", count(indices.len(), "partner"));
        let own = Evidence::of_text(stage, text);
        let others = indices.iter().flat_map(|index| pairs[*index].evidence.iter().take(1).cloned());
        let evidence = [own].into_iter().chain(others).collect();
        state.report(Subject::Host(*host), Cause::Network, Fitness::Unfit, evidence);
    }
    let mut again: BTreeMap<usize, usize> = BTreeMap::new();
    let mut needed = Vec::new();
    // Hosts with many repeats: the budget of a host is that of one pair, because its pairs cannot run at once.
    for pair in &pairs {
        pair.hosts.iter().for_each(|host| *again.entry(*host).or_default() += pair.attempts.saturating_sub(2));
    }
    for pair in pairs {
        let [one, other] = pair.hosts;
        if slow_hosts.contains_key(&one) || slow_hosts.contains_key(&other) {
            continue;
        }
        let is_left =
            pair.attempts < state.max_repeats() && pair.hosts.iter().all(|host| again[host] < 2 * state.max_repeats());
        match pair.decision {
            Decision::AsOthers => {}
            Decision::Slower => state.report(Subject::Link(one, other), Cause::Link, Fitness::Unfit, pair.evidence),
            Decision::Undecided if is_left => {
                needed.push((pair.step, Job { test: Test::Exchange, hosts: pair.hosts.to_vec() }));
            }
            Decision::Undecided if pair.step > 0.0 => {
                state.report(Subject::Link(one, other), Cause::Link, Fitness::Suspect, pair.evidence);
            }
            Decision::Undecided => {}
        }
    }
    // The most suspicious first: they need the most rounds.
    needed.sort_by(|one, other| other.0.total_cmp(&one.0));
    needed.into_iter().map(|(_, job)| job).collect()
}
