//! Hosts that compute other values than the others: their gradients and weights differ though seed and data are equal.

use std::collections::BTreeMap;

use crate::accept::fleet::{FleetHost, JobFingerprints, Measurement, Stage, ranks_per_host};
use crate::accept::verdict::{Evidence, Fitness};
use crate::benchmark::train::{Fingerprints, RankDifference};
use crate::number_text::{count, plural};
use crate::stats::counts::majority;

/// Run of a host alone.
struct Run<'a> {
    host: usize,
    stage: Stage,
    values: &'a Fingerprints,
}

/// A host that computes other values, and the evidence of one or several jobs.
pub type CorruptHost = (usize, Fitness, Evidence);

/// Returns the hosts that compute other values in these measurements. A host occurs again for other evidence.
pub fn corrupt_hosts<'a>(fleet: &[FleetHost], done: impl IntoIterator<Item = &'a Measurement>) -> Vec<CorruptHost> {
    let mut found = Vec::new();
    let mut kinds: BTreeMap<(&str, &str), Vec<Run>> = BTreeMap::new();
    for done in done {
        let Some(JobFingerprints { platform, values }) = &done.fingerprints else { continue };
        if let Some(difference) = &values.difference {
            found.extend(between_ranks(fleet, done, difference));
        }
        if let [host] = done.job.hosts[..] {
            let runs = kinds.entry((&fleet[host].hardware, platform)).or_default();
            runs.push(Run { host, stage: done.stage, values });
        }
    }
    found.extend(kinds.values().flat_map(|runs| between_hosts(runs)));
    found
}

/// Returns the hosts whose ranks differ from others in the same job; all of them are suspect without a majority.
fn between_ranks(fleet: &[FleetHost], done: &Measurement, difference: &RankDifference) -> Vec<CorruptHost> {
    let RankDifference { values, iteration, ranks } = difference;
    let hosts = &done.job.hosts;
    let per_host = ranks_per_host(fleet, hosts).max(1);
    let all = per_host as usize * hosts.len();
    let mut of_hosts: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for rank in ranks {
        if let Some(host) = hosts.get((rank / per_host) as usize) {
            of_hosts.entry(*host).or_default().push((rank % per_host).to_string());
        }
    }
    let others = all.saturating_sub(ranks.len());
    let place = format!("in iteration {iteration} of round {}", done.round);
    let found = |(host, ranks): (usize, Vec<String>)| {
        let (fitness, text) = if others > 0 {
            let (plural, names) = (plural(ranks.len()), ranks.join(", "));
            (
                Fitness::Unfit,
                format!("{values} of its rank{plural} {names} differ {place} from those of {others} of {all} ranks"),
            )
        } else {
            (Fitness::Suspect, format!("{values} of the {all} ranks differ {place}, and no value has a majority"))
        };
        (host, fitness, Evidence::of_text(done.stage, text))
    };
    of_hosts.into_iter().map(found).collect()
}

/// Returns the hosts of one kind with runs that differ from most runs. Without a majority all hosts are suspect, unless
/// most hosts do not repeat their own values: then training on this hardware is not deterministic.
fn between_hosts(runs: &[Run]) -> Vec<CorruptHost> {
    let values: Vec<&Fingerprints> = runs.iter().map(|run| run.values).collect();
    let mut of_hosts: BTreeMap<usize, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        of_hosts.entry(run.host).or_default().push(run);
    }
    let is_same = |one: &Fingerprints, other: &Fingerprints| one.first_difference(other).is_none();
    let Some(usual) = majority(&values) else {
        let repeats = |runs: &&Vec<&Run>| runs.iter().all(|run| is_same(run.values, runs[0].values));
        if of_hosts.len() > 1 && 2 * of_hosts.values().filter(repeats).count() < of_hosts.len() {
            return Vec::new();
        }
        let suspect = |(host, runs): (usize, Vec<&Run>)| {
            let text = "its gradients or weights differ from those of other jobs with the same seed on this hardware, and no \
                        value has a majority";
            (host, Fitness::Suspect, Evidence::of_text(runs[0].stage, text.to_owned()))
        };
        return of_hosts.into_iter().map(suspect).collect();
    };
    let agreeing = of_hosts.values().filter(|runs| runs.iter().all(|run| is_same(run.values, usual))).count();
    let found = |(host, runs): (&usize, &Vec<&Run>)| {
        let different: Vec<&&Run> = runs.iter().filter(|run| !is_same(run.values, usual)).collect();
        let (values, iteration) = different.first()?.values.first_difference(usual)?;
        let others = match (agreeing, of_hosts.len() - 1) {
            (0, _) => "its other jobs with the same seed".to_owned(),
            (agreeing, others) => format!("{agreeing} of {}", count(others, "other host")),
        };
        let text = format!(
            "{values} differ from those of {others}, first in iteration {iteration}, in {} of {}",
            different.len(),
            count(runs.len(), "job")
        );
        Some((*host, Fitness::Unfit, Evidence::of_text(different[0].stage, text)))
    };
    of_hosts.iter().filter_map(found).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::accept::criteria::Criteria;
    use crate::accept::fleet::{Job, Test};
    use crate::accept::search::Search;
    use crate::accept::simulation::SimulatedFleet;
    use crate::accept::verdict::Verdict;
    use crate::benchmark::train::RankFingerprints;

    /// Returns the fingerprints of ranks that have these gradients in iterations 1 to 3.
    fn fingerprints(ranks: &[[u64; 3]]) -> Option<JobFingerprints> {
        let rank = |gradients: &[u64; 3]| RankFingerprints { gradients: gradients.to_vec(), weights: vec![7; 3] };
        let ranks: Vec<RankFingerprints> = ranks.iter().map(rank).collect();
        Some(JobFingerprints { platform: "libtorch 2".to_owned(), values: Fingerprints::from_ranks(&ranks) })
    }

    /// Returns the verdict on this number of hosts; `gradients` gives those of a host in a run, from 0.
    fn verdict(hosts: usize, gradients: impl Fn(usize, usize) -> [u64; 3]) -> Verdict {
        let fleet = SimulatedFleet::new(hosts, 1);
        let criteria = Criteria { stages: vec![Stage::Alone], ..Criteria::default() };
        let search = Search::new(fleet.hosts.clone(), criteria, 1);
        let (_, mut done) = fleet.accept(&search);
        let mut runs = vec![0; hosts];
        for done in done.iter_mut().filter(|done| done.job.test == Test::Training) {
            let host = done.job.hosts[0];
            done.fingerprints = fingerprints(&[gradients(host, runs[host])]);
            runs[host] += 1;
        }
        search.verdict(&[], &done)
    }

    fn lines(verdict: &Verdict) -> String {
        let bad = verdict.hosts.iter().filter(|host| host.fitness != Fitness::Fit);
        let line = |host: &crate::accept::verdict::Judged| {
            let evidence: Vec<&str> = host.evidence.iter().map(|evidence| &evidence.text[..]).collect();
            let cause = host.cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
            format!("{}: {}{cause}: {}", host.name, host.fitness, evidence.join("; "))
        };
        bad.map(line).collect::<Vec<_>>().join("\n")
    }

    const GOOD: [u64; 3] = [1, 2, 3];
    const FLIPPED: [u64; 3] = [1, 9, 3];

    #[test]
    fn host_with_other_gradients_than_most_is_unfit() {
        expect![""].assert_eq(&lines(&verdict(8, |_, _| GOOD)));
        let one = verdict(8, |host, _| if host == 5 { FLIPPED } else { GOOD });
        expect!["n0006: unfit (corruption): gradients differ from those of 7 of 7 other hosts, first in iteration 2, in 2 of 2 jobs"]
            .assert_eq(&lines(&one));
        let cure = one.hosts[5].cure.as_deref().expect("a cure");
        assert!(cure.contains("ECC"), "{cure}");
    }

    #[test]
    fn host_that_differs_from_itself_is_unfit() {
        let once = |bad: usize| move |host, run| if host == bad && run == 1 { FLIPPED } else { GOOD };
        expect!["n0003: unfit (corruption): gradients differ from those of 3 of 3 other hosts, first in iteration 2, in 1 of 2 jobs"]
            .assert_eq(&lines(&verdict(4, once(2))));
    }

    #[test]
    fn hosts_without_a_majority_are_suspect_unless_nothing_repeats() {
        let halves = verdict(4, |host, _| if host < 2 { FLIPPED } else { GOOD });
        assert!(halves.hosts.iter().all(|host| host.fitness == Fitness::Suspect), "{}", lines(&halves));
        let random = verdict(4, |host, run| [1, 2, 10 * host as u64 + run as u64]);
        expect![""].assert_eq(&lines(&random));
    }

    #[test]
    fn other_hardware_is_not_compared() {
        let fleet = SimulatedFleet::new(4, 1);
        let mut hosts = fleet.hosts;
        hosts[3].hardware = "another GPU".to_owned();
        let run = |host: usize, values| Measurement {
            stage: Stage::Alone,
            round: 1,
            job: Job { test: Test::Training, hosts: vec![host] },
            outcome: crate::accept::Outcome::Measured(Vec::new()),
            fingerprints: fingerprints(&[values]),
            time: None,
            state: None,
        };
        assert_eq!(corrupt_hosts(&hosts, &[run(0, GOOD), run(1, GOOD), run(2, GOOD), run(3, FLIPPED)]), []);
    }

    #[test]
    fn rank_of_a_group_names_its_host() {
        let mut hosts = SimulatedFleet::new(3, 1).hosts;
        hosts.iter_mut().for_each(|host| host.ranks = 2);
        let group = |ranks: &[[u64; 3]]| Measurement {
            stage: Stage::Groups,
            round: 9,
            job: Job { test: Test::Training, hosts: vec![0, 2] },
            outcome: crate::accept::Outcome::Measured(Vec::new()),
            fingerprints: fingerprints(ranks),
            time: None,
            state: None,
        };
        let found = |done: Measurement| {
            let line = |(host, fitness, evidence): &CorruptHost| format!("{host} {fitness}: {}", evidence.text);
            corrupt_hosts(&hosts, &[done]).iter().map(line).collect::<Vec<_>>().join("\n")
        };
        expect!["2 unfit: gradients of its rank 1 differ in iteration 2 of round 9 from those of 3 of 4 ranks"]
            .assert_eq(&found(group(&[GOOD, GOOD, GOOD, FLIPPED])));
        expect![[r#"
            0 suspect: gradients of the 4 ranks differ in iteration 2 of round 9, and no value has a majority
            2 suspect: gradients of the 4 ranks differ in iteration 2 of round 9, and no value has a majority"#]]
        .assert_eq(&found(group(&[GOOD, GOOD, FLIPPED, FLIPPED])));
    }
}
