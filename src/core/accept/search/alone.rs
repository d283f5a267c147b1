//! Each host alone, all of them at once. A host is measured twice, and again only while its test is undecided.

use std::collections::{BTreeMap, BTreeSet};

use crate::accept::comparison::{Comparison, Deviation};
use crate::accept::fleet::{Job, Measurement, Metric, Stage, Test};
use crate::accept::search::log::FAILURES;
use crate::accept::search::state::{Problem, State};
use crate::accept::verdict::{Cause, Evidence, Fitness, Subject};
use crate::stats::sequential::Decision;
use crate::stats::summary::median;

/// Start of the typical value: up to half of the hosts may be slow.
const QUANTILE: f64 = 0.5;

/// Measurements of each host before the first is judged: two, to know the noise of repeats.
pub const REPEATS: usize = 2;

/// Values of one host or rank.
struct Series {
    host: usize,
    rank: Option<u32>,
    values: Vec<f64>,
}

/// Returns the tests of a host alone: an exchange needs several ranks, and input needs data.
fn tests(state: &State, host: usize) -> impl Iterator<Item = Test> + use<> {
    let exchange = (state.fleet[host].ranks > 1).then_some(Test::Exchange);
    [Some(Test::Training), exchange, state.criteria.input.then_some(Test::Input)].into_iter().flatten()
}

/// Returns how often each fit host has been measured in a stage.
pub fn complete_repeats(state: &State, stage: Stage) -> usize {
    let hosts = state.classes().into_values().flatten();
    let jobs = hosts.flat_map(|host| tests(state, host).map(move |test| Job { test, hosts: vec![host] }));
    jobs.map(|job| state.log.attempts(&[stage], &job).measured.len()).min().unwrap_or(0)
}

/// Returns the jobs that are still needed; reports slow and failing hosts, and excludes those with wrong values.
pub fn alone(state: &mut State, done: &[Measurement], stage: Stage, repeats: usize) -> Vec<Job> {
    for test in [Test::Training, Test::Exchange, Test::Input] {
        let classes = state.classes();
        let job = |host: usize| Job { test, hosts: vec![host] };
        let is_tested = |host: &usize| tests(state, *host).any(|of| of == test);
        let hosts: Vec<usize> = classes.values().flatten().copied().filter(is_tested).collect();
        let mut needed = Vec::new();
        for host in hosts {
            let attempts = state.log.attempts(&[stage], &job(host));
            if attempts.named.len() >= FAILURES {
                let evidence = vec![Evidence::of_failure(stage, attempts.named[0].1, attempts.named.len())];
                state.report(Subject::Host(host), Cause::Failure, Fitness::Unfit, evidence);
            } else if attempts.measured.len() < repeats {
                needed.push(job(host));
            }
        }
        if !needed.is_empty() {
            return needed;
        }
        let mut again: Vec<Job> =
            classes.values().flat_map(|hosts| compare(state, stage, test, repeats, hosts)).map(job).collect();
        state.exclude_corrupt(done.iter().filter(|done| done.stage <= stage));
        again.retain(|job| !state.excludes(job));
        if !again.is_empty() {
            return again;
        }
    }
    Vec::new()
}

/// Compares the hosts of one kind; returns those to measure again.
fn compare(state: &mut State, stage: Stage, test: Test, repeats: usize, hosts: &[usize]) -> Vec<usize> {
    let mut kinds: BTreeMap<(Metric, bool), Vec<Series>> = BTreeMap::new();
    for host in hosts.iter().filter(|host| !state.excluded.contains(host)) {
        let attempts = state.log.attempts(&[stage], &Job { test, hosts: vec![*host] });
        let mut series: Vec<(Metric, Series)> = Vec::new();
        for readings in &attempts.measured {
            for (index, reading) in readings.iter().enumerate() {
                let is_same =
                    |(metric, series): &(Metric, Series)| (*metric, series.rank) == (reading.metric, reading.rank);
                // Each measurement usually has the same order.
                let found = series.get(index).is_some_and(is_same).then_some(index);
                match found.or_else(|| series.iter().position(is_same)) {
                    Some(index) => series[index].1.values.push(reading.value.ln()),
                    None => {
                        let values = vec![reading.value.ln()];
                        series.push((reading.metric, Series { host: *host, rank: reading.rank, values }));
                    }
                }
            }
        }
        for (metric, series) in series {
            kinds.entry((metric, series.rank.is_some())).or_default().push(series);
        }
    }
    if stage == Stage::Soak {
        kinds.values_mut().for_each(|series| remove_common_drift(series, repeats));
    }
    // Tests of all hosts, ranks and metrics of this stage.
    let inputs = if state.criteria.input { Metric::INPUTS.len() as u32 } else { 0 };
    let tests: u32 = state.fleet.iter().map(|host| 3 * host.ranks + 4 + inputs).sum();
    let false_alarm = state.false_alarms() / f64::from(tests);
    let mut slow: BTreeMap<usize, Vec<(Option<u32>, Evidence)>> = BTreeMap::new();
    let mut undecided: BTreeMap<usize, Vec<(Option<u32>, Evidence)>> = BTreeMap::new();
    for ((metric, is_rank), series) in &kinds {
        let values: Vec<&[f64]> = series.iter().map(|series| &series.values[..]).collect();
        let noise = Deviation::of_repeats(values.iter().copied());
        let found = Comparison::new(&values, QUANTILE, noise, false_alarm, state.criteria);
        let Some(comparison) = found else { continue };
        state.comparisons.alone.insert((state.hardware(hosts), *metric, *is_rank), comparison);
        for Series { host, rank, values } in series {
            let (decision, sum) = comparison.decide(values);
            let evidence = || comparison.evidence(stage, *metric, values, sum);
            match decision {
                Decision::AsOthers => {}
                Decision::Undecided => {
                    let found = undecided.entry(*host).or_default();
                    if comparison.is_rather_slow(values) {
                        found.push((*rank, evidence()));
                    }
                }
                Decision::Slower => slow.entry(*host).or_default().push((*rank, evidence())),
            }
        }
    }
    for (host, found) in &slow {
        report(state, *host, found, undecided.get(host).map_or(&[], Vec::as_slice));
    }
    let mut again = Vec::new();
    for (host, evidence) in undecided.into_iter().filter(|(host, _)| !slow.contains_key(host)) {
        let most = repeats.max(REPEATS) - REPEATS + state.max_repeats();
        if state.log.attempts(&[stage], &Job { test, hosts: vec![host] }).len() < most {
            again.push(host);
        } else if !evidence.is_empty() {
            let evidence = evidence.into_iter().map(|(_, evidence)| evidence).collect();
            state.report(Subject::Host(host), Cause::Host, Fitness::Suspect, evidence);
        }
    }
    again
}

/// Removes the change over time that the hosts have in common: from each of the first `repeats` values, the difference
/// between the median of all hosts and that of their first values. [`drifts`](crate::accept::drift::drifts) reports it.
fn remove_common_drift(series: &mut [Series], repeats: usize) {
    let median_of = |series: &[Series], index: usize| {
        median(&series.iter().filter_map(|series| series.values.get(index).copied()).collect::<Vec<f64>>())
    };
    let Some(first) = median_of(series, 0) else { return };
    for index in 1..repeats {
        let change = median_of(series, index).unwrap_or(first) - first;
        series.iter_mut().filter_map(|series| series.values.get_mut(index)).for_each(|value| *value -= change);
    }
}

/// Reports a slow host: its GPUs if at most half of them are slow, or undecided but rather slow.
fn report(state: &mut State, host: usize, slow: &[(Option<u32>, Evidence)], rather_slow: &[(Option<u32>, Evidence)]) {
    let ranks = |of: &[(Option<u32>, Evidence)]| of.iter().filter_map(|(rank, _)| *rank).collect::<BTreeSet<u32>>();
    let (ranks, rather_slow) = (ranks(slow), ranks(rather_slow));
    let evidence = |rank: Option<u32>| -> Vec<Evidence> {
        slow.iter().filter(|(of, _)| rank.is_none() || *of == rank).map(|(_, evidence)| evidence.clone()).collect()
    };
    let is_gpu = !ranks.is_empty() && 2 * ranks.union(&rather_slow).count() <= state.fleet[host].ranks as usize;
    if is_gpu {
        for rank in ranks {
            let evidence = evidence(Some(rank));
            state.problems.push(Problem {
                subject: Subject::Gpu(host, rank),
                cause: Cause::Gpu,
                fitness: Fitness::Unfit,
                evidence,
            });
        }
    }
    let cause = if is_gpu { Cause::Gpu } else { Cause::Host };
    state.report(Subject::Host(host), cause, Fitness::Unfit, evidence(None));
}
