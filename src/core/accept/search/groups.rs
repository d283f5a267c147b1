//! Groups of hosts by halving: eighths, quarters, halves, and the whole fleet. A group that is slow or fails although
//! its hosts and pairs were good is divided until the hosts are found that are bad together: halves first, and if both
//! are good, parts of one with parts of the other.
//!
//! A link of one pair among many is measured first in the smallest group that contains both hosts. Each division halves
//! the group: d such links take at most O(d log N) rounds, fewer in separate groups, which are divided at once.

use std::collections::{BTreeMap, BTreeSet};

use crate::accept::comparison::{Comparison, Deviation};
use crate::accept::fleet::{Job, Metric, Stage, Test};
use crate::accept::search::log::FAILURES;
use crate::accept::search::state::{Candidate, Hardware, Level, State};
use crate::accept::verdict::{Cause, Evidence, Fitness, Subject};
use crate::number_text::count;
use crate::options::keyword_enum::KeywordEnum;
use crate::stats::random::Random;
use crate::stats::sequential::Decision;

/// Hosts of the smallest groups; smaller ones are pairs.
const SMALLEST: usize = 4;

/// Start of the typical value: up to half of the groups may be slow.
const QUANTILE: f64 = 0.5;

/// Error rate of one part in a division, in which a slow part is expected: one measurement can decide. A part that is
/// slow by accident costs rounds, but its own parts are good.
const DIVISION_ERROR: f64 = 0.02;

/// Measurements of each of the smallest groups, from which the noise of repeats is known.
const REPEATS: usize = 2;

/// State of one group.
enum GroupState {
    Needed(Job),
    Good,
    Slow(Test, Vec<Evidence>),
}

/// Returns the jobs that are still needed; adds hosts that are slow together as candidates.
pub fn groups(state: &mut State) -> Vec<Job> {
    let mut order: Vec<usize> = Vec::new();
    for hosts in state.classes().values_mut() {
        Random(state.seed ^ 1).shuffle(hosts);
        order.append(hosts);
    }
    // One of the two hosts of a bad link is enough, but it is not known which.
    let links: Vec<usize> = state.bad_links().into_iter().flatten().collect();
    order.retain(|host| !links.contains(host));
    let runs = |stage: Stage| state.criteria.stages.contains(&stage);
    let deepest = if runs(Stage::Groups) { (order.len() / SMALLEST).max(1).ilog2() } else { 0 };
    let shallowest = u32::from(!runs(Stage::Whole));
    for depth in (shallowest..=deepest).rev() {
        let stage = if depth == 0 { Stage::Whole } else { Stage::Groups };
        state.stage = stage;
        loop {
            let parts = divided(&order, depth);
            let groups: Vec<Vec<usize>> =
                parts.iter().map(|part| state.sorted_fit(part)).filter(|group| group.len() > 1).collect();
            if report_failing(state, stage, &groups) {
                continue;
            }
            let needed = measure(state, stage, &groups, depth == deepest);
            if !needed.is_empty() {
                return needed;
            }
            let (needed, is_changed) = divide_slow(state, stage, &groups);
            if !needed.is_empty() {
                return needed;
            }
            if !is_changed {
                break;
            }
        }
    }
    Vec::new()
}

/// Divides the list into `2^depth` parts, each half of its part at the depth above.
fn divided(order: &[usize], depth: u32) -> Vec<&[usize]> {
    let mut parts = vec![order];
    for _ in 0..depth {
        parts = parts.into_iter().flat_map(|part| <[&[usize]; 2]>::from(part.split_at(part.len() / 2))).collect();
    }
    parts
}

/// Reports hosts that several failures of a group's own jobs name, and excludes those with wrong values in them; returns
/// true if there are any. Jobs of other groups do not count: they may be of a later stage, and the groups must not change
/// once they are measured.
fn report_failing(state: &mut State, stage: Stage, groups: &[Vec<usize>]) -> bool {
    let mut is_changed = false;
    for group in groups {
        let training = state.log.measurements(stage, &Job { test: Test::Training, hosts: group.clone() });
        is_changed |= state.exclude_corrupt(training);
        let attempts =
            Test::ALL.iter().map(|test| state.log.attempts(&[stage], &Job { test: *test, hosts: group.clone() }));
        let mut named: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
        for (host, reason) in attempts.flat_map(|attempts| attempts.named) {
            named.entry(host).or_default().push(reason);
        }
        for (host, reasons) in named.into_iter().filter(|(_, reasons)| reasons.len() >= FAILURES) {
            let evidence = vec![Evidence::of_failure(stage, reasons[0], reasons.len())];
            state.report(Subject::Host(host), Cause::Failure, Fitness::Unfit, evidence);
            is_changed = true;
        }
    }
    is_changed
}

/// Measures all groups of a level, and adds its comparisons to those of the smaller ones.
fn measure(state: &mut State, stage: Stage, groups: &[Vec<usize>], is_smallest: bool) -> Vec<Job> {
    for test in [Test::Training, Test::Exchange] {
        let repeats = if is_smallest { REPEATS } else { 1 };
        let needed: Vec<Job> = groups
            .iter()
            .map(|group| Job { test, hosts: group.clone() })
            .filter(|job| {
                let attempts = state.log.attempts(&[stage], job);
                attempts.measured.len() < repeats && attempts.failures.len() < FAILURES
            })
            .collect();
        if !needed.is_empty() {
            return needed;
        }
    }
    let hosts = groups.iter().map(Vec::len).max().unwrap_or(0);
    let smaller = state.comparisons.levels.iter().rposition(|level| level.hosts < hosts).map_or(0, |last| last + 1);
    state.comparisons.levels.truncate(smaller);
    let level = level(state, stage, groups, hosts);
    state.comparisons.levels.push(level);
    Vec::new()
}

/// Compares the groups of a level with each other, or with the smaller groups if they are too few.
fn level(state: &State, stage: Stage, groups: &[Vec<usize>], hosts: usize) -> Level {
    let mut kinds: BTreeMap<(Hardware, Metric), Vec<Vec<f64>>> = BTreeMap::new();
    for group in groups {
        for test in [Test::Training, Test::Exchange] {
            let attempts = state.log.attempts(&[stage], &Job { test, hosts: group.clone() });
            for metric in attempts.metrics() {
                let values = attempts.values(metric, state.ranks(group));
                kinds.entry((state.hardware(group), metric)).or_default().push(values);
            }
        }
    }
    let levels = &state.comparisons.levels;
    let criteria = state.criteria;
    // Tests of all groups: 2 N / SMALLEST of them, four metrics.
    let tests = 4 * (2 * state.fleet.len() / SMALLEST).max(1);
    let false_alarm = state.false_alarms() / tests as f64;
    let mut level = Level { hosts, comparisons: BTreeMap::new(), noise: BTreeMap::new() };
    for ((hardware, metric), values) in kinds {
        let series: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
        let noise = match levels.first().and_then(|smallest| smallest.noise.get(&metric)) {
            Some(noise) => *noise,
            None => Deviation::of_repeats(series.iter().copied()),
        };
        level.noise.insert(metric, noise);
        let key = (hardware, metric);
        let of = |level: &Level| level.comparisons.get(&key).copied();
        let last = levels.last().and_then(of);
        let before = levels.len().checked_sub(2).and_then(|index| of(&levels[index]));
        let own = Comparison::new(&series, QUANTILE, noise, false_alarm, criteria).filter(|_| groups.len() >= SMALLEST);
        // The smallest groups are the most, so that their spread is known best; that of larger ones is not higher.
        let spread = levels.first().map_or(own, of).or(own).map(|known| known.spread);
        let compare = |center: f64, growth: f64| {
            let spread = spread?;
            let tolerated = spread.distance(false_alarm / 2.0) + growth;
            Some(Comparison::with_spread(center, spread, tolerated, noise, 1.0, false_alarm, criteria))
        };
        // The value that the two sizes before lead to, and its tolerance.
        let trend = last.zip(before).map(|(last, before)| {
            let change = last.center - before.center;
            (last.center + change.min(0.0), change.abs() + criteria.smallest_defect)
        });
        let fastest = series.iter().filter_map(|values| values.first()).copied().fold(f64::MIN, f64::max);
        let typical = own.map_or(fastest, |own| own.center);
        // The trend replaces the typical group if most groups are slow, or if there is only one.
        let found = match trend {
            Some((center, growth)) if groups.len() == 1 || typical < center - growth => compare(center, growth),
            _ => compare(typical, 0.0),
        };
        // The trend needs two sizes: with one, only a failure of the whole fleet is found.
        if let Some(found) = found.filter(|_| groups.len() > 1 || levels.len() > 1) {
            level.comparisons.insert(key, found);
        }
    }
    level
}

/// Divides the slow groups; returns the jobs for that, and true if hosts were found that are left out from now on.
fn divide_slow(state: &mut State, stage: Stage, groups: &[Vec<usize>]) -> (Vec<Job>, bool) {
    let (mut needed, mut found, mut unexplained) = (Vec::new(), Vec::new(), Vec::new());
    for group in groups {
        // One slow test is enough for a division. A link slows an exchange more than training.
        let tests = [Test::Exchange, Test::Training].iter().map(|test| judge(state, stage, *test, group, false));
        match tests.reduce(|first, second| if matches!(first, GroupState::Good) { second } else { first }) {
            Some(GroupState::Needed(job)) => needed.push(job),
            Some(GroupState::Slow(test, evidence)) => match divide(state, stage, test, group) {
                Err(jobs) => needed.extend(jobs),
                Ok(links) if links.is_empty() => unexplained.push((group, evidence)),
                Ok(links) => {
                    found.extend(links.into_iter().map(|hosts| Candidate { hosts, evidence: evidence.clone() }));
                }
            },
            Some(GroupState::Good) | None => {}
        }
    }
    if !needed.is_empty() {
        return (needed, false);
    }
    let is_changed = !found.is_empty();
    for candidate in found {
        state.left_out.extend(candidate.hosts);
        if !state.candidates.iter().any(|known| known.hosts == candidate.hosts) {
            state.candidates.push(candidate);
        }
    }
    for (group, mut evidence) in unexplained.into_iter().filter(|_| !is_changed) {
        let text = format!(
            "{} {} .. {} are slow together, but no part of them is",
            count(group.len(), "host"),
            state.fleet[group[0]].name,
            state.fleet[group[group.len() - 1]].name
        );
        evidence.insert(0, Evidence::of_text(stage, text));
        state.report(Subject::Fleet, Cause::Network, Fitness::Suspect, evidence);
    }
    (Vec::new(), is_changed)
}

/// Judges one group. In a division the group is expected to be slow, and fewer measurements decide.
fn judge(state: &State, stage: Stage, test: Test, group: &[usize], is_division: bool) -> GroupState {
    if group.len() < 2 {
        return GroupState::Good;
    }
    let job = Job { test, hosts: group.to_vec() };
    let attempts = state.log.attempts(&[stage], &job);
    if attempts.failures.len() >= FAILURES {
        return GroupState::Slow(
            test,
            vec![Evidence::of_failure(stage, attempts.failures[0], attempts.failures.len())],
        );
    }
    // Failures that name a host are no failures of the others.
    if attempts.named.len() >= FAILURES {
        return GroupState::Good;
    }
    let is_left = attempts.len() < state.max_repeats();
    if is_left && attempts.measured.len() <= attempts.failures.len() {
        return GroupState::Needed(job);
    }
    let (mut slow, mut is_undecided) = (Vec::new(), false);
    for metric in attempts.metrics() {
        let Some(comparison) = comparison(state, group, metric) else { continue };
        let values = attempts.values(metric, state.ranks(group));
        let comparison = match is_division {
            true => comparison.with_false_alarm(DIVISION_ERROR, state.criteria),
            false => comparison,
        };
        let (decision, sum) = comparison.decide(&values);
        match decision {
            Decision::AsOthers => {}
            Decision::Slower => slow.push(comparison.evidence(stage, metric, &values, sum)),
            Decision::Undecided if is_left => is_undecided = true,
            Decision::Undecided if is_division && comparison.is_rather_slow(&values) => {
                slow.push(comparison.evidence(stage, metric, &values, sum));
            }
            Decision::Undecided => {}
        }
    }
    match slow.is_empty() {
        true if is_undecided => GroupState::Needed(job),
        true => GroupState::Good,
        false => GroupState::Slow(test, slow),
    }
}

/// Returns the comparison for a group: that of pairs, or of the level with the nearest number of hosts.
fn comparison(state: &State, group: &[usize], metric: Metric) -> Option<Comparison> {
    let pair = state.comparisons.pairs.get(&(state.pair_kind(group), metric));
    if group.len() == 2 && pair.is_some() {
        return pair.copied();
    }
    let key = (state.hardware(group), metric);
    let distance = |level: &&Level| (level.hosts as f64 / group.len() as f64).ln().abs();
    let levels = state.comparisons.levels.iter().filter(|level| level.comparisons.contains_key(&key));
    levels
        .min_by(|one, other| distance(one).total_cmp(&distance(other)))
        .and_then(|level| level.comparisons.get(&key).copied())
}

/// Finds the pairs in a slow group that are slow together. `Err` lists the jobs that are needed for it.
fn divide(state: &State, stage: Stage, test: Test, group: &[usize]) -> Result<Vec<[usize; 2]>, Vec<Job>> {
    let (one, other) = group.split_at(group.len() / 2);
    let slow = judge_all(state, stage, test, &[one.to_vec(), other.to_vec()])?;
    let found = all(slow.iter().map(|part| divide(state, stage, test, part)))?;
    if found.is_empty() { cross(state, stage, test, one, other) } else { Ok(found) }
}

/// Finds the pairs of one host of `one` and one of `other`, both good by themselves, that are slow together.
fn cross(state: &State, stage: Stage, test: Test, one: &[usize], other: &[usize]) -> Result<Vec<[usize; 2]>, Vec<Job>> {
    if let ([one], [other]) = (one, other) {
        return Ok(vec![[*one.min(other), *one.max(other)]]);
    }
    let halves = |hosts: &[usize]| -> Vec<Vec<usize>> {
        let (first, second) = hosts.split_at(hosts.len() / 2);
        [first, second].into_iter().filter(|half| !half.is_empty()).map(<[usize]>::to_vec).collect()
    };
    let (ones, others) = (halves(one), halves(other));
    // First with first and second with second run at once. The other two run only if both are good: hosts that are found
    // are left out, and the group is then measured again.
    for shift in 0..others.len() {
        let combined: Vec<(&[usize], &[usize])> = ones
            .iter()
            .enumerate()
            .map(|(index, one)| (&one[..], &others[(index + shift) % others.len()][..]))
            .collect();
        let parts: Vec<Vec<usize>> = combined
            .iter()
            .map(|(one, other)| {
                let mut hosts = [*one, *other].concat();
                hosts.sort_unstable();
                hosts
            })
            .collect();
        let slow: BTreeSet<Vec<usize>> = judge_all(state, stage, test, &parts)?.into_iter().collect();
        let slow = combined.iter().zip(&parts).filter(|(_, part)| slow.contains(*part));
        let found = all(slow.map(|((one, other), _)| cross(state, stage, test, one, other)))?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// Judges parts of a slow group; returns the slow ones.
fn judge_all(state: &State, stage: Stage, test: Test, parts: &[Vec<usize>]) -> Result<Vec<Vec<usize>>, Vec<Job>> {
    let (mut slow, mut needed) = (Vec::new(), Vec::new());
    for part in parts {
        match judge(state, stage, test, part, true) {
            GroupState::Good => {}
            GroupState::Needed(job) => needed.push(job),
            GroupState::Slow(..) => slow.push(part.clone()),
        }
    }
    if needed.is_empty() { Ok(slow) } else { Err(needed) }
}

/// Combines the results of several parts: all jobs that any of them needs, otherwise all pairs.
fn all(results: impl Iterator<Item = Result<Vec<[usize; 2]>, Vec<Job>>>) -> Result<Vec<[usize; 2]>, Vec<Job>> {
    let (mut found, mut needed) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(pairs) => found.extend(pairs),
            Err(jobs) => needed.extend(jobs),
        }
    }
    if needed.is_empty() { Ok(found) } else { Err(needed) }
}
