use std::collections::BTreeSet;

use super::*;
use crate::accept::fleet::{Metric, Outcome, Test};
use crate::accept::simulation::{Defect, SimulatedFleet};
use crate::accept::verdict::{Cause, Judged, Verdict};
use crate::dimension::Seconds;

const HOSTS: usize = 64;

/// Fleet of 64 hosts with two GPUs each.
fn fleet(hosts: usize, seed: u64, defects: impl IntoIterator<Item = Defect>) -> SimulatedFleet {
    let mut fleet = SimulatedFleet::new(hosts, seed);
    fleet.hosts.iter_mut().for_each(|host| host.ranks = 2);
    SimulatedFleet { defects: defects.into_iter().collect(), ..fleet }
}

fn search(fleet: &SimulatedFleet) -> Search {
    Search::new(fleet.hosts.clone(), Criteria::default(), fleet.seed)
}

/// Returns what is not fit, with fitness and cause.
fn named(verdict: &Verdict) -> Vec<(String, Fitness, Cause)> {
    let all = [&verdict.hosts, &verdict.gpus, &verdict.links, &verdict.switches, &verdict.fleet];
    let bad = all.into_iter().flatten().filter(|judged| judged.fitness != Fitness::Fit);
    bad.map(|judged: &Judged| (judged.name.clone(), judged.fitness, judged.cause.expect("a cause"))).collect()
}

fn accepted(defects: impl IntoIterator<Item = Defect>) -> (Vec<(String, Fitness, Cause)>, usize) {
    let fleet = fleet(HOSTS, 7, defects);
    let (verdict, _) = fleet.accept(&search(&fleet));
    (named(&verdict), verdict.rounds as usize)
}

fn unfit(name: &str, cause: Cause) -> (String, Fitness, Cause) {
    (name.to_owned(), Fitness::Unfit, cause)
}

#[test]
fn clean_fleets_have_no_false_alarm() {
    let mut rounds = BTreeSet::new();
    for (hosts, seeds) in [(HOSTS, 12), (8, 150), (5, 50), (3, 50), (2, 1), (1, 1)] {
        for seed in 0..seeds {
            let fleet = fleet(hosts, seed, []);
            let (verdict, _) = fleet.accept(&search(&fleet));
            match hosts {
                // Of two hosts that differ, either could be the slow one.
                1 | 2 => assert!(verdict.hosts.iter().all(|host| host.fitness == Fitness::NotTested), "{verdict:?}"),
                _ => assert_eq!(named(&verdict), [], "{hosts} hosts, seed {seed}"),
            }
            assert_eq!(verdict.unfinished, []);
            if hosts == HOSTS {
                rounds.insert(verdict.rounds);
            }
        }
    }
    // Alone 2 x 2 and repeats, pairs 12 and repeats, groups of 4 twice, 8, 16, 32, all: two jobs each.
    assert!(rounds.first() >= Some(&28) && rounds.last() <= Some(&50), "{rounds:?}");
}

#[test]
fn accidents_are_no_defects() {
    for seed in 0..5 {
        let fleet = SimulatedFleet { accidents: 0.01, ..fleet(HOSTS, seed, []) };
        assert_eq!(named(&fleet.accept(&search(&fleet)).0), [], "seed {seed}");
    }
}

#[test]
fn slow_gpu_and_host_are_distinguished() {
    let (found, _) =
        accepted([Defect::SlowGpu { host: 5, rank: 1, factor: 0.9 }, Defect::SlowHost { host: 9, factor: 0.94 }]);
    assert_eq!(found, [unfit("n0006", Cause::Gpu), unfit("n0010", Cause::Host), unfit("GPU 1 of n0006", Cause::Gpu)]);
}

#[test]
fn slow_network_and_link_are_distinguished() {
    // The pair of an early round, so that pairs find it.
    let fleet = fleet(HOSTS, 7, []);
    let (_, done) = fleet.accept(&search(&fleet));
    let pair = done.iter().find(|done| done.stage == Stage::Pairs).map(|done| &done.job.hosts[..]);
    let Some([one, other]) = pair else { panic!("{pair:?}") };
    let slow = (0..HOSTS).find(|host| host != one && host != other).expect("a host");
    let (found, _) = accepted([
        Defect::SlowNetwork { host: slow, factor: 0.85 },
        Defect::BadLink { hosts: [*one, *other], factor: 0.7 },
    ]);
    let link = format!("link {} - {}", fleet.hosts[*one].name, fleet.hosts[*other].name);
    assert_eq!(found, [unfit(&fleet.hosts[slow].name, Cause::Network), unfit(&link, Cause::Link)]);
}

/// Each of the first hosts with each of the last: too many pairs for the rounds of pairs, so that groups find some.
#[test]
fn link_between_any_hosts_is_found_in_few_rounds() {
    let clean = accepted([]).1;
    for (one, other) in [(0, 63), (1, 40), (2, 3), (30, 31), (17, 55), (62, 63)] {
        for defect in [Defect::BadLink { hosts: [one, other], factor: 0.6 }, Defect::BrokenLink { hosts: [one, other] }]
        {
            let (found, rounds) = accepted([defect]);
            let link = format!("link n{:04} - n{:04}", one + 1, other + 1);
            assert_eq!(found, [unfit(&link, Cause::Link)], "{defect:?}");
            assert!(rounds < clean + 60, "{defect:?}: {rounds}, without a defect {clean}");
        }
    }
}

#[test]
fn dead_host_is_found_in_each_stage() {
    for from in [Stage::Alone, Stage::Pairs, Stage::Groups, Stage::Whole] {
        let (found, _) = accepted([Defect::Dead { host: 20, from, is_named: true }]);
        assert_eq!(found, [unfit("n0021", Cause::Failure)], "{from}");
    }
    let (found, _) = accepted([Defect::Dead { host: 20, from: Stage::Pairs, is_named: false }]);
    assert_eq!(found, [unfit("n0021", Cause::Network)]);
    let (found, _) = accepted([Defect::Dead { host: 20, from: Stage::Groups, is_named: false }]);
    assert_eq!(found, [unfit("n0021", Cause::Network)]);
}

#[test]
fn corrupt_host_is_in_no_later_job() {
    for (from, rounds) in [(Stage::Alone, 2), (Stage::Groups, 1)] {
        let fleet = fleet(16, 2, [Defect::Corrupt { host: 5, from }]);
        let (verdict, done) = fleet.accept(&search(&fleet));
        assert_eq!(named(&verdict), [unfit("n0006", Cause::Corruption)], "{from}");
        let first = done.iter().find(|done| done.stage == from).map(|done| done.round).expect("a round");
        let later = done.iter().filter(|done| done.round >= first + rounds && done.job.hosts.contains(&5));
        assert_eq!(later.count(), 0, "{from}");
        assert!(done.iter().any(|done| done.stage == Stage::Whole && done.job.hosts.len() == 15), "{from}");
    }
}

#[test]
fn switch_of_slow_hosts_is_named() {
    let (found, _) = accepted((16..32).map(|host| Defect::SlowNetwork { host, factor: 0.6 }));
    let mut expected: Vec<_> = (16..32).map(|host| unfit(&format!("n{:04}", host + 1), Cause::Network)).collect();
    expected.push(("switch leaf02".to_owned(), Fitness::Suspect, Cause::Switch));
    assert_eq!(found, expected);
}

#[test]
fn slow_third_of_the_fleet_is_named() {
    let (found, _) = accepted((0..HOSTS / 3).map(|host| Defect::SlowHost { host, factor: 0.9 }));
    let hosts = found.iter().filter(|(_, fitness, cause)| (*fitness, *cause) == (Fitness::Unfit, Cause::Host));
    assert_eq!(hosts.count(), HOSTS / 3, "{found:?}");
}

#[test]
fn intermittent_host_is_found() {
    let found = (0..10).filter(|seed| {
        let fleet = fleet(HOSTS, *seed, [Defect::Intermittent { host: 11, share: 0.3, factor: 0.7 }]);
        let found = named(&fleet.accept(&search(&fleet)).0);
        assert!(found.iter().all(|(name, ..)| name == "n0012" || name.contains("n0012")), "seed {seed}: {found:?}");
        found.iter().any(|(name, ..)| name == "n0012")
    });
    assert!(found.count() >= 9);
}

#[test]
fn generations_are_compared_within_themselves() {
    let mut fleet = fleet(HOSTS, 3, [3, 60].map(|host| Defect::SlowHost { host, factor: 0.9 }));
    fleet.hosts[48..].iter_mut().for_each(|host| "H200".clone_into(&mut host.hardware));
    let (verdict, _) = fleet.accept(&search(&fleet));
    assert_eq!(named(&verdict), [unfit("n0004", Cause::Host), unfit("n0061", Cause::Host)]);
}

/// Eight hosts on busy processors: 8 % noise, 3 % between hosts.
#[test]
fn small_noisy_fleet_has_no_false_alarm_and_finds_large_defects() {
    let fleet =
        |seed: u64, defects: Vec<Defect>| SimulatedFleet { noise: 0.08, spread: 0.03, ..fleet(8, seed, defects) };
    for seed in 0..40 {
        let clean = fleet(seed, Vec::new());
        assert_eq!(named(&clean.accept(&search(&clean)).0), [], "seed {seed}");
        let slow = fleet(seed, vec![Defect::SlowHost { host: 2, factor: 0.4 }]);
        let found = named(&slow.accept(&search(&slow)).0);
        assert!(found.iter().any(|(name, ..)| name == "n0003"), "seed {seed}: {found:?}");
        assert!(found.iter().all(|(name, ..)| name.contains("n0003")), "seed {seed}: {found:?}");
    }
}

#[test]
fn slow_disk_is_found_only_by_input() {
    let fleet = fleet(8, 5, [Defect::SlowDisk { host: 6, factor: 0.5 }]);
    assert_eq!(named(&fleet.accept(&search(&fleet)).0), []);
    let criteria = Criteria { input: true, ..Criteria::default() };
    let search = Search::new(fleet.hosts.clone(), criteria, fleet.seed);
    let (verdict, _) = fleet.accept(&search);
    assert_eq!(named(&verdict), [unfit("n0007", Cause::Host)]);
    assert_eq!(verdict.hosts[6].evidence[0].metric, Some(Metric::ColdInputSpeed));
}

/// A host that answers late takes part, and is a suspect whatever is measured.
#[test]
fn suspect_finding_does_not_exclude_its_host() {
    let fleet = fleet(8, 3, []);
    let what = "ssh: takes 7.0 s to connect".to_owned();
    let findings = [Finding { host: 3, severity: Severity::Suspect, what, fix: "check the name server".to_owned() }];
    let search = search(&fleet);
    let round = search.next(&findings, &[]).expect("a round");
    assert_eq!(round.jobs.iter().flat_map(|job| &job.hosts).count(), 8);
    let (_, done) = fleet.accept(&search);
    let verdict = search.verdict(&findings, &done);
    assert_eq!(named(&verdict), [("n0004".to_owned(), Fitness::Suspect, Cause::Facts)]);
    assert_eq!(verdict.hosts[3].cure.as_deref(), Some("check the name server"));
}

#[test]
fn findings_exclude_hosts_and_warnings_do_not() {
    let fleet = fleet(8, 1, []);
    let finding = |host, severity| Finding { host, severity, what: "7 of 8 GPUs".to_owned(), fix: "reboot".to_owned() };
    let findings = [finding(3, Severity::Error), finding(4, Severity::Warning)];
    let round = search(&fleet).next(&findings, &[]).expect("a round");
    let hosts: Vec<usize> = round.jobs.iter().flat_map(|job| job.hosts.clone()).collect();
    assert_eq!((round.stage, hosts), (Stage::Alone, vec![0, 1, 2, 4, 5, 6, 7]));
    let verdict = search(&fleet).verdict(&findings, &[]);
    assert_eq!(verdict.hosts[3].fitness, Fitness::Unfit);
    assert_eq!(verdict.hosts[3].cure.as_deref(), Some("reboot"));
    assert_eq!(verdict.hosts[4].fitness, Fitness::NotTested);
    assert_eq!((&verdict.warnings[0].names[..], &verdict.warnings[0].hosts[..]), ("n0005", &[4][..]));
    assert_eq!(verdict.unfinished, Criteria::default().stages);
}

/// A search that is interrupted after any job continues in the same stage, and finds the same.
#[test]
fn interrupted_round_is_completed() {
    let fleet = fleet(8, 2, [Defect::SlowNetwork { host: 6, factor: 0.5 }]);
    let search = search(&fleet);
    let (verdict, all) = fleet.accept(&search);
    assert_eq!(named(&verdict), [unfit("n0007", Cause::Network)]);
    for end in (0..all.len()).step_by(7) {
        let mut done = all[..end].to_vec();
        let mut number = all[end].round;
        assert_eq!(search.next(&[], &done).map(|round| round.stage), Some(all[end].stage), "{end}");
        while let Some(round) = search.next(&[], &done) {
            number += 1;
            done.extend(fleet.run(&round, number));
        }
        assert_eq!(named(&search.verdict(&[], &done)), named(&verdict), "{end}");
    }
}

/// A search that was asked before gives the same as a new one, also about fewer or other measurements.
#[test]
fn earlier_calls_do_not_change_the_result() {
    let defects = [
        Defect::SlowNetwork { host: 6, factor: 0.5 },
        Defect::SlowHost { host: 9, factor: 0.9 },
        Defect::Corrupt { host: 3, from: Stage::Alone },
        Defect::Corrupt { host: 12, from: Stage::Groups },
    ];
    let fleet = fleet(16, 2, defects);
    let used = search(&fleet);
    let (verdict, done) = fleet.accept(&used);
    for end in (0..done.len()).chain([0, done.len() / 2]) {
        assert_eq!(used.next(&[], &done[..end]), search(&fleet).next(&[], &done[..end]), "{end}");
    }
    assert_eq!(used.verdict(&[], &done), verdict);
    let other = SimulatedFleet { defects: Vec::new(), ..fleet.clone() }.accept(&search(&fleet)).1;
    assert_eq!(used.verdict(&[], &other), search(&fleet).verdict(&[], &other));
    let error =
        Finding { host: 0, severity: Severity::Error, what: "7 of 8 GPUs".to_owned(), fix: "reboot".to_owned() };
    assert_eq!(used.next(std::slice::from_ref(&error), &done), search(&fleet).next(&[error], &done));
}

#[test]
fn rounds_use_each_host_once_and_end() {
    let defects = [
        Defect::BadLink { hosts: [1, 2], factor: 0.6 },
        Defect::SlowHost { host: 3, factor: 0.97 },
        Defect::Intermittent { host: 9, share: 0.5, factor: 0.8 },
    ];
    for hosts in [3, 4, 7, 13, 33] {
        let defects = defects.into_iter().filter(|defect| match defect {
            Defect::BadLink { .. } => hosts > 2,
            Defect::SlowHost { host, .. } | Defect::Intermittent { host, .. } => *host < hosts,
            _ => false,
        });
        let fleet = fleet(hosts, 4, defects);
        let search = search(&fleet);
        let (mut done, mut number) = (Vec::new(), 0);
        while let Some(round) = search.next(&[], &done) {
            number += 1;
            let mut busy = BTreeSet::new();
            assert!(round.jobs.iter().flat_map(|job| &job.hosts).all(|host| busy.insert(*host)), "{round:?}");
            assert!(round.jobs.iter().all(|job| job.hosts.is_sorted()), "{round:?}");
            assert!(number < 200, "{hosts}: {round:?}");
            done.extend(fleet.run(&round, number));
        }
    }
}

/// A host in doubt is measured with a good partner that fails from then on, until the partner is found. Its jobs with this
/// partner must not be planned again, although they no longer count.
#[test]
fn confirmation_ends_if_a_partner_is_found_by_its_jobs() {
    const DOUBTFUL: usize = 5;
    let healthy = fleet(HOSTS, 7, []);
    let (search, mut done, mut partner) = (search(&healthy), Vec::new(), None);
    let mut slowed: Vec<Job> = Vec::new();
    let mut number = 0;
    while let Some(round) = search.next(&[], &done) {
        number += 1;
        assert!(number < 100, "{round:?}");
        let of_doubtful = round.jobs.iter().find(|job| job.hosts.len() == 2 && job.hosts.contains(&DOUBTFUL));
        if round.stage == Stage::Confirmation && partner.is_none() {
            partner = of_doubtful.and_then(|job| job.hosts.iter().copied().find(|host| *host != DOUBTFUL));
        }
        let dead = partner.map(|host| Defect::Dead { host, from: Stage::Confirmation, is_named: true });
        let mut measured = fleet(HOSTS, 7, dead).run(&round, number);
        // Three pairs of the doubtful host are slow once: too few for unfit, too many for fit without more measurements.
        let is_slowed = |job: &&Job| round.stage == Stage::Pairs && slowed.len() < 3 && !slowed.contains(*job);
        if let Some(job) = of_doubtful.filter(is_slowed) {
            slowed.push(job.clone());
            let job = measured.iter_mut().find(|measured| measured.job == *job).expect("a job");
            let Outcome::Measured(readings) = &mut job.outcome else { panic!("{job:?}") };
            readings.iter_mut().for_each(|reading| reading.value *= 0.6);
        }
        done.extend(measured);
    }
    let partner = &healthy.hosts[partner.expect("a job that confirms the doubtful host")].name;
    assert_eq!(named(&search.verdict(&[], &done)), [unfit(partner, Cause::Intermittent)]);
    let of_doubtful = |done: &&Measurement| done.stage == Stage::Confirmation && done.job.hosts.contains(&DOUBTFUL);
    assert_eq!(done.iter().filter(of_doubtful).count(), Criteria::default().max_repeats as usize);
}

#[test]
fn verdict_has_rounds_jobs_and_time_of_each_stage() {
    let fleet = fleet(8, 1, []);
    let (verdict, mut done) = fleet.accept(&search(&fleet));
    assert_eq!(verdict.stages.iter().map(|stage| stage.rounds).sum::<u32>(), verdict.rounds);
    assert_eq!(verdict.stages.iter().map(|stage| stage.jobs as usize).sum::<usize>(), done.len());
    // Each simulated round takes 6 s.
    let alone = &verdict.stages[0];
    assert_eq!((alone.stage, alone.time), (Stage::Alone, Some(Seconds(6.0 * f64::from(alone.rounds)))));
    done[0].time = None;
    let stages = search(&fleet).verdict(&[], &done).stages;
    assert!(stages[0].time.is_none() && stages[1].time.is_some(), "{stages:?}");
}

#[test]
fn soak_finds_a_host_that_becomes_slow() {
    let fleet = fleet(8, 5, [Defect::Dead { host: 2, from: Stage::Soak, is_named: true }]);
    let criteria = Criteria { soak_rounds: 3, ..Criteria::default() };
    let search = Search::new(fleet.hosts.clone(), criteria, 5);
    let (verdict, done) = fleet.accept(&search);
    assert_eq!(named(&verdict), [unfit("n0003", Cause::Failure)]);
    let soaked = done.iter().filter(|done| done.stage == Stage::Soak && done.job.test == Test::Training);
    assert!(soaked.count() >= 3 * 7);
}

/// Runs a soak until this round, as a time limit ends it; returns the verdict.
fn soaked(fleet: &SimulatedFleet, end: u32) -> Verdict {
    let search = Search::new(fleet.hosts.clone(), Criteria::default().with_endless_soak(), fleet.seed);
    let mut done = Vec::new();
    for number in 1..=end {
        let round = search.next(&[], &done).expect("no end");
        done.extend(fleet.run(&round, number));
    }
    assert!(done.iter().any(|done| done.stage == Stage::Soak && done.job.hosts.len() == 2), "pairs");
    search.verdict(&[], &done)
}

#[test]
fn soak_that_time_ends_finds_a_slower_host_and_a_drift_of_all() {
    for seed in 0..4 {
        let verdict = soaked(&fleet(8, seed, []), 100);
        assert_eq!((named(&verdict), &verdict.unfinished[..]), (Vec::new(), &[][..]), "seed {seed}");
        assert!(verdict.drift.len() == 8 && verdict.drift.iter().all(|drift| drift.low < drift.high), "{verdict:?}");
    }
    let verdict = soaked(&fleet(8, 1, [Defect::Drift { host: 2, share: 0.002 }]), 100);
    assert!(matches!(&named(&verdict)[..], [(name, _, Cause::Host)] if name == "n0003"), "{:?}", named(&verdict));
    // All hosts become slower, so that none differs from the others.
    let all = soaked(&fleet(8, 1, (0..8).map(|host| Defect::Drift { host, share: 0.002 })), 100);
    let found = named(&all);
    assert!(
        found.len() == 8
            && found.iter().all(|(_, fitness, cause)| (*fitness, *cause) == (Fitness::Suspect, Cause::Drift)),
        "{found:?}"
    );
    assert!(all.text().contains("largest drift of 8 hosts: n000"), "{}", all.text());
}

#[test]
fn gpus_far_below_their_published_peak_are_a_warning() {
    let warnings = |factor: f64| {
        let mut fleet = fleet(8, 1, (0..8).map(|host| Defect::SlowHost { host, factor }));
        fleet.hosts.iter_mut().for_each(|host| "NVIDIA H100 80GB HBM3".clone_into(&mut host.hardware));
        fleet.accept(&search(&fleet)).0.warnings
    };
    assert_eq!(warnings(1.0), []);
    let [warning] = &warnings(0.7)[..] else { panic!("not one warning") };
    assert_eq!((warning.hosts.len(), &warning.names[..]), (8, "n[0001-0008]"));
    assert!(warning.what.contains(" % of the published peak (989.5 TFLOP/s): most GPUs reach "), "{}", warning.what);
}

#[test]
fn limits_and_reference_are_compared() {
    let slow = fleet(8, 1, (0..8).map(|host| Defect::SlowHost { host, factor: 0.8 }));
    let before = fleet(8, 1, []);
    let reference = crate::accept::limits::typical_values(&before.hosts, &before.accept(&search(&before)).1);
    let criteria = Criteria { reference, ..Criteria::default() };
    let (verdict, _) = slow.accept(&Search::new(slow.hosts.clone(), criteria, 1));
    let found = named(&verdict);
    assert!(
        found.contains(&unfit("fleet", Cause::Reference)) && found.iter().all(|found| found.0 == "fleet"),
        "{found:?}"
    );
    let minimum =
        |value: f64| crate::accept::Minimum { metric: Metric::MatrixRate, value, stage: Stage::Alone, hardware: None };
    let criteria = Criteria { minimum: vec![minimum(570.0)], ..Criteria::default() };
    let one = fleet(8, 1, [Defect::SlowHost { host: 4, factor: 0.93 }]);
    let (verdict, _) = one.accept(&Search::new(one.hosts.clone(), criteria, 1));
    assert!(verdict.hosts[4].fitness == Fitness::Unfit, "{:?}", verdict.hosts[4]);
}
