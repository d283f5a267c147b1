//! Suspects together with hosts that are known to be good, and hosts that are slow only at times.
//!
//! A host is slow at times if more of its jobs were slow than chance gives: with k slow ones of its n jobs, and the share
//! q of slow jobs of all other hosts, `P(Binomial(n, q) >= k) < false_alarm` (no assumption about the noise). A pair
//! counts for both hosts, until one of them is found. Jobs of hosts and links that are already unfit do not count.
//!
//! Example: 3 of 17 jobs were slow, and 4 of 8,000 others: q = 5 / 8,001, chance = 1.6e-7.

use std::collections::{BTreeMap, BTreeSet};

use crate::accept::fleet::{Job, Measurement, Outcome, Stage, Test};
use crate::accept::search::state::{Candidate, Hardware, State};
use crate::accept::verdict::{Cause, Evidence, Fitness, Subject};
use crate::number_text::count;
use crate::stats::counts::binomial_tail;
use crate::stats::sequential::Decision;

/// Good partners of a suspect.
const PARTNERS: usize = 2;

/// Error rate of one job of a suspect with a good partner.
const ERROR: f64 = 1e-3;

/// Chance below which a host with slow jobs is measured again.
const DOUBT: f64 = 0.01;

/// Slow jobs and all jobs of one host.
#[derive(Default)]
struct Tally {
    slow: usize,
    /// Slow jobs that a bad link explains as well.
    explained: usize,
    jobs: usize,
    is_training: bool,
}

/// Confirms hosts that were slow with every partner, and measures those with single slow jobs again. Counts only
/// measurements before round `end`.
pub fn confirm_hosts(state: &mut State, done: &[Measurement], end: u32) -> Vec<Job> {
    let mut needed = Vec::new();
    let slow = state.slow_jobs(done);
    let partners = GoodPartners::new(state, done, &slow);
    let suspects: Vec<usize> = state
        .problems
        .iter()
        .filter(|problem| problem.cause == Cause::Network)
        .filter_map(|problem| problem.subject.host())
        .collect();
    for host in suspects {
        match is_slow_with(state, host, &partners.of(state, host)) {
            Err(jobs) => needed.extend(jobs),
            Ok(Some(false)) => state.weaken(host, "fast with two good partners afterwards"),
            Ok(_) => {}
        }
    }
    needed.extend(slow_at_times(state, done, &slow, end, &partners));
    needed
}

/// Finds hosts that are slow at times; returns jobs for those in doubt.
pub fn slow_at_times(
    state: &mut State,
    done: &[Measurement],
    slow_jobs: &[bool],
    end: u32,
    partners: &GoodPartners,
) -> Vec<Job> {
    let rate = state.false_alarms() / (state.fleet.len() * state.criteria.max_repeats as usize) as f64;
    let is_counted = |done: &Measurement| {
        done.round < end && done.job.hosts.len() <= 2 && done.stage != Stage::Groups && done.stage != Stage::Whole
    };
    // All of them, also with hosts or links that are no longer counted below: the number of repeats is limited.
    let mut confirmations = vec![0; state.fleet.len()];
    for done in done.iter().filter(|done| is_counted(done) && done.stage == Stage::Confirmation) {
        done.job.hosts.iter().for_each(|host| confirmations[*host] += 1);
    }
    loop {
        let mut tallies: Vec<Tally> = (0..state.fleet.len()).map(|_| Tally::default()).collect();
        let (mut slow, mut jobs, mut links) = (0, 0, BTreeSet::new());
        for (done, is_slow) in done.iter().zip(slow_jobs).filter(|(done, _)| is_counted(done)) {
            let named = match &done.outcome {
                Outcome::Failed { host, .. } => host.as_slice(),
                Outcome::Measured(_) => &[],
            };
            let hosts = if named.is_empty() { &done.job.hosts[..] } else { named };
            // Repeats of a bad link are one job, which the link explains.
            let has_bad_link = state.has_bad_link(&done.job.hosts);
            if state.excludes(&done.job) || (has_bad_link && !links.insert(&done.job.hosts)) {
                continue;
            }
            (slow, jobs) = (slow + usize::from(*is_slow), jobs + 1);
            for host in hosts {
                let tally = &mut tallies[*host];
                tally.slow += usize::from(*is_slow);
                tally.explained += usize::from(*is_slow && has_bad_link);
                tally.jobs += 1;
                tally.is_training |= *is_slow && done.job.test == Test::Training;
            }
        }
        let chance = |tally: &Tally| {
            let share = (slow - tally.slow + 1) as f64 / (jobs - tally.jobs + 1) as f64;
            binomial_tail(tally.jobs, share.min(1.0), tally.slow)
        };
        let doubtful = tallies.iter().enumerate().filter(|(_, tally)| tally.slow > tally.explained);
        let doubtful = doubtful.map(|(host, tally)| (host, tally, chance(tally)));
        let doubtful: Vec<(usize, &Tally, f64)> = doubtful.filter(|(_, _, chance)| *chance < DOUBT).collect();
        let Some((host, tally, chance)) = doubtful.iter().min_by(|one, other| one.2.total_cmp(&other.2)) else {
            return Vec::new();
        };
        if *chance < rate {
            let text = format!("{} of {} were slow", tally.slow, count(tally.jobs, "job"));
            let evidence = Evidence { chance: Some(*chance), ..Evidence::of_text(Stage::Confirmation, text) };
            state.report(Subject::Host(*host), Cause::Intermittent, Fitness::Unfit, vec![evidence]);
            // Its slow pairs are no bad links.
            let is_of_host =
                |subject: &Subject| matches!(subject, Subject::Link(one, other) if one == host || other == host);
            state.problems.retain(|problem| !is_of_host(&problem.subject));
            continue;
        }
        if !state.runs(Stage::Confirmation) {
            return Vec::new();
        }
        return doubtful
            .iter()
            .filter(|(host, ..)| confirmations[*host] < state.max_repeats())
            .filter_map(|(host, tally, _)| match tally.is_training {
                true => Some(Job { test: Test::Training, hosts: vec![*host] }),
                false => {
                    let partners = partners.of(state, *host);
                    let partner = partners.get(confirmations[*host] % partners.len().max(1))?;
                    Some(Job::of_pair(*host, *partner))
                }
            })
            .collect();
    }
}

/// Decides whether hosts that were slow together in a group are so as a pair, or one of them with other partners.
pub fn confirm_candidates(state: &mut State, done: &[Measurement]) -> Vec<Job> {
    let mut needed = Vec::new();
    if state.candidates.is_empty() {
        return needed;
    }
    let slow = state.slow_jobs(done);
    let partners = GoodPartners::new(state, done, &slow);
    for Candidate { hosts, evidence } in state.candidates.clone() {
        let [one, other] = hosts;
        let results = [one, other].map(|host| is_slow_with(state, host, &partners.of(state, host)));
        let pair = is_slow_with(state, one, &[other]);
        let missing: Vec<Job> =
            results.iter().chain([&pair]).filter_map(|result| result.clone().err()).flatten().collect();
        if !missing.is_empty() && state.runs(Stage::Confirmation) {
            needed.extend(missing);
            continue;
        }
        let slow: Vec<usize> = [one, other]
            .into_iter()
            .zip(&results)
            .filter(|(_, result)| **result == Ok(Some(true)))
            .map(|(host, _)| host)
            .collect();
        for host in &slow {
            state.report(Subject::Host(*host), Cause::Network, Fitness::Unfit, evidence.clone());
        }
        if slow.is_empty() {
            let fitness = if pair == Ok(Some(true)) { Fitness::Unfit } else { Fitness::Suspect };
            state.report(Subject::Link(one, other), Cause::Link, fitness, evidence);
        }
    }
    needed
}

/// Returns true if the host is slow with each of these partners; `None` if that cannot be judged. `Err` lists the jobs
/// that are needed.
fn is_slow_with(state: &State, host: usize, partners: &[usize]) -> Result<Option<bool>, Vec<Job>> {
    let mut needed = Vec::new();
    let mut is_slow = Vec::new();
    for partner in partners {
        let job = Job::of_pair(host, *partner);
        let attempts = state.log.attempts(&[Stage::Confirmation], &job);
        let is_left = attempts.len() < state.max_repeats();
        if attempts.len() < 2 && is_left {
            needed.push(job);
            continue;
        }
        if !attempts.failures.is_empty() || !attempts.named.is_empty() {
            is_slow.push(true);
            continue;
        }
        let decisions: Vec<Decision> = attempts
            .metrics()
            .into_iter()
            .filter_map(|metric| {
                let comparison = state.comparisons.pairs.get(&(state.pair_kind(&job.hosts), metric))?;
                let comparison = comparison.with_false_alarm(ERROR, state.criteria);
                Some(comparison.decide(&attempts.values(metric, state.ranks(&job.hosts))).0)
            })
            .collect();
        match decisions.into_iter().max() {
            Some(Decision::Undecided) if is_left => needed.push(job),
            Some(decision) => is_slow.push(decision == Decision::Slower),
            None => {}
        }
    }
    if !needed.is_empty() {
        return Err(needed);
    }
    Ok((!is_slow.is_empty()).then(|| is_slow.iter().all(|slow| *slow)))
}

/// Hosts of each kind without any slow job alone and in pairs.
pub struct GoodPartners(BTreeMap<Hardware, Vec<usize>>);

impl GoodPartners {
    /// Finds the good hosts.
    pub fn new(state: &State, done: &[Measurement], slow_jobs: &[bool]) -> GoodPartners {
        let is_early = |done: &Measurement| matches!(done.stage, Stage::Alone | Stage::Pairs);
        let slow = done.iter().zip(slow_jobs).filter(|(done, is_slow)| **is_slow && is_early(done));
        let slow: BTreeSet<usize> = slow.flat_map(|(done, _)| done.job.hosts.iter().copied()).collect();
        let good = state.classes_of(|host| !state.excluded.contains(&host) && !state.left_out.contains(&host));
        // All others if there is none.
        let chosen = |hosts: Vec<usize>| {
            let fast: Vec<usize> = hosts.iter().copied().filter(|host| !slow.contains(host)).collect();
            if fast.len() < PARTNERS { hosts } else { fast }
        };
        GoodPartners(good.into_iter().map(|(kind, hosts)| (kind, chosen(hosts))).collect())
    }

    /// Returns two partners for a host; different hosts get different partners, so that their jobs can run concurrently.
    fn of(&self, state: &State, host: usize) -> Vec<usize> {
        let good = self.0.get(&state.hardware[host]).map_or(&[][..], Vec::as_slice);
        let first = PARTNERS * host % good.len().max(1);
        // Hosts can have been found since.
        let is_partner = |good: &&usize| **good != host && !state.excluded.contains(*good);
        good.iter().cycle().skip(first).take(good.len()).filter(is_partner).take(PARTNERS).copied().collect()
    }
}
