//! Table of simulated fleets: how many rounds `ringmark accept` needs, which defects it finds, and how often it accuses
//! a host without a defect.

#![allow(clippy::disallowed_methods, reason = "reads its command line")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{env, thread};

use nix::time::{ClockId, clock_gettime};

use ringmark_core::accept::simulation::{Defect, SimulatedFleet};
use ringmark_core::accept::{Criteria, Fitness, Measurement, Search, Stage, Subject};

/// One row: a kind of fleet.
struct Kind {
    name: &'static str,
    /// Smallest fleet in which most hosts of each hardware are good.
    least_hosts: usize,
    /// True if each host also reads images, as with `--data`.
    input: bool,
    /// Creates the fleet of a seed.
    create: fn(usize, u64) -> SimulatedFleet,
}

/// Result of one fleet.
#[derive(Default)]
struct Outcome {
    rounds: usize,
    group_rounds: usize,
    /// Hosts of defects, and those among them that the verdict names.
    defects: usize,
    found: usize,
    suspected: usize,
    /// Hosts and links without a defect that are not fit.
    false_alarms: usize,
    /// Processor time of all plans and the verdict: independent of other programs.
    planning: Duration,
}

fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock").into()
}

fn with(hosts: usize, seed: u64, defects: impl IntoIterator<Item = Defect>) -> SimulatedFleet {
    SimulatedFleet { defects: defects.into_iter().collect(), ..SimulatedFleet::new(hosts, seed) }
}

/// Returns `count` different hosts.
fn chosen(hosts: usize, seed: u64, count: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..hosts).collect();
    ringmark_core::stats::random::Random(seed ^ 0x5eed).shuffle(&mut all);
    all.truncate(count);
    all
}

fn slow_hosts(hosts: usize, seed: u64, count: usize) -> SimulatedFleet {
    let kinds = [
        |host| Defect::SlowHost { host, factor: 0.93 },
        |host| Defect::SlowGpu { host, rank: 3, factor: 0.93 },
        |host| Defect::SlowNetwork { host, factor: 0.8 },
        |host| Defect::Dead { host, from: Stage::Pairs, is_named: true },
    ];
    with(hosts, seed, chosen(hosts, seed, count).into_iter().zip(kinds.iter().cycle()).map(|(host, kind)| kind(host)))
}

const KINDS: [Kind; 18] = [
    Kind { name: "no defect", least_hosts: 1, input: false, create: SimulatedFleet::new },
    Kind { name: "no defect, with images", least_hosts: 1, input: true, create: SimulatedFleet::new },
    Kind {
        name: "1 host that reads at half the speed, with images",
        least_hosts: 1,
        input: true,
        create: |hosts, seed| {
            with(hosts, seed, chosen(hosts, seed, 1).into_iter().map(|host| Defect::SlowDisk { host, factor: 0.5 }))
        },
    },
    Kind {
        name: "no defect, 1 % of jobs 20 % slower by accident",
        least_hosts: 1,
        input: false,
        create: |hosts, seed| SimulatedFleet { accidents: 0.01, ..SimulatedFleet::new(hosts, seed) },
    },
    Kind { name: "1 bad host", least_hosts: 1, input: false, create: |hosts, seed| slow_hosts(hosts, seed, 1) },
    Kind { name: "4 bad hosts", least_hosts: 16, input: false, create: |hosts, seed| slow_hosts(hosts, seed, 4) },
    Kind { name: "16 bad hosts", least_hosts: 64, input: false, create: |hosts, seed| slow_hosts(hosts, seed, 16) },
    Kind {
        name: "1 host 5 % slower (the smallest defect)",
        least_hosts: 1,
        input: false,
        create: |hosts, seed| {
            with(hosts, seed, chosen(hosts, seed, 1).into_iter().map(|host| Defect::SlowHost { host, factor: 0.95 }))
        },
    },
    Kind { name: "1 bad link", least_hosts: 1, input: false, create: |hosts, seed| bad_links(hosts, seed, 1) },
    Kind { name: "4 bad links", least_hosts: 1, input: false, create: |hosts, seed| bad_links(hosts, seed, 4) },
    Kind {
        name: "1 link 10 % slower (in every size)",
        least_hosts: 1,
        input: false,
        create: |hosts, seed| {
            let pair = chosen(hosts, seed, 2);
            with(hosts, seed, [Defect::BadLink { hosts: [pair[0], pair[1]], factor: 0.9 }])
        },
    },
    Kind {
        name: "1 broken link, no host named",
        least_hosts: 1,
        input: false,
        create: |hosts, seed| {
            let pair = chosen(hosts, seed, 2);
            with(hosts, seed, [Defect::BrokenLink { hosts: [pair[0], pair[1]] }])
        },
    },
    Kind {
        name: "bad switch: 16 hosts at half bandwidth",
        least_hosts: 64,
        input: false,
        create: |hosts, seed| {
            let first = seed as usize % (hosts / 16) * 16;
            with(hosts, seed, (first..first + 16).map(|host| Defect::SlowNetwork { host, factor: 0.5 }))
        },
    },
    Kind {
        name: "1 host slow in 30 % of its jobs",
        least_hosts: 1,
        input: false,
        create: |hosts, seed| slow_at_times(hosts, seed, 0.3),
    },
    Kind {
        name: "1 host slow in 10 % of its jobs",
        least_hosts: 1,
        input: false,
        create: |hosts, seed| slow_at_times(hosts, seed, 0.1),
    },
    Kind {
        name: "1 host that ends all jobs of groups, not named",
        least_hosts: 1,
        input: false,
        create: |hosts, seed| {
            let defect = |host| Defect::Dead { host, from: Stage::Groups, is_named: false };
            with(hosts, seed, chosen(hosts, seed, 1).into_iter().map(defect))
        },
    },
    Kind {
        name: "a third of the hosts 10 % slower",
        least_hosts: 1,
        input: false,
        create: |hosts, seed| {
            let defect = |host| Defect::SlowHost { host, factor: 0.9 };
            with(hosts, seed, chosen(hosts, seed, hosts / 3).into_iter().map(defect))
        },
    },
    Kind {
        name: "two generations, 2 bad hosts of each",
        least_hosts: 64,
        input: false,
        create: |hosts, seed| {
            let mut fleet = SimulatedFleet::new(hosts, seed);
            fleet.hosts.iter_mut().skip(hosts * 3 / 4).for_each(|host| "H200".clone_into(&mut host.hardware));
            let slow = |host| Defect::SlowHost { host, factor: 0.93 };
            fleet.defects = [1, 2, hosts - 2, hosts - 1].map(slow).to_vec();
            fleet
        },
    },
];

fn slow_at_times(hosts: usize, seed: u64, share: f64) -> SimulatedFleet {
    let defect = |host| Defect::Intermittent { host, share, factor: 0.7 };
    with(hosts, seed, chosen(hosts, seed, 1).into_iter().map(defect))
}

fn bad_links(hosts: usize, seed: u64, count: usize) -> SimulatedFleet {
    let chosen = chosen(hosts, seed, 2 * count);
    let links = chosen.chunks(2).map(|pair| Defect::BadLink { hosts: [pair[0], pair[1]], factor: 0.6 });
    with(hosts, seed, links.collect::<Vec<Defect>>())
}

fn measure(fleet: &SimulatedFleet, input: bool, is_verbose: bool) -> Outcome {
    let search = Search::new(fleet.hosts.clone(), Criteria { input, ..Criteria::default() }, fleet.seed);
    let (mut done, mut outcome): (Vec<Measurement>, Outcome) = (Vec::new(), Outcome::default());
    let mut stages: BTreeMap<Stage, (usize, Duration)> = BTreeMap::new();
    loop {
        let begin = processor_time();
        let next = search.next(&[], &done);
        outcome.planning += processor_time() - begin;
        let Some(round) = next else { break };
        outcome.rounds += 1;
        let stage = stages.entry(round.stage).or_default();
        *stage = (stage.0 + 1, stage.1 + processor_time() - begin);
        outcome.group_rounds += usize::from(matches!(round.stage, Stage::Groups | Stage::Whole));
        done.extend(fleet.run(&round, outcome.rounds as u32));
    }
    let begin = processor_time();
    let verdict = search.verdict(&[], &done);
    outcome.planning += processor_time() - begin;
    let mut named: BTreeSet<Subject> = BTreeSet::new();
    let mut suspected: BTreeSet<Subject> = BTreeSet::new();
    for judged in verdict.hosts.iter().chain(&verdict.links).chain(&verdict.fleet) {
        match judged.fitness {
            Fitness::Unfit => drop(named.insert(judged.subject.clone())),
            Fitness::Suspect => drop(suspected.insert(judged.subject.clone())),
            Fitness::Fit | Fitness::NotTested => {}
        }
    }
    for defect in &fleet.defects {
        let subject = match *defect {
            Defect::Dead { host, .. }
            | Defect::SlowGpu { host, .. }
            | Defect::SlowHost { host, .. }
            | Defect::SlowNetwork { host, .. }
            | Defect::Intermittent { host, .. }
            | Defect::Drift { host, .. }
            | Defect::SlowDisk { host, .. }
            | Defect::Corrupt { host, .. } => Subject::Host(host),
            Defect::BadLink { hosts: [one, other], .. } | Defect::BrokenLink { hosts: [one, other] } => {
                Subject::Link(one.min(other), one.max(other))
            }
        };
        outcome.defects += 1;
        outcome.found += usize::from(named.remove(&subject));
        outcome.suspected += usize::from(suspected.remove(&subject));
    }
    if is_verbose {
        eprintln!("{:?}\n  rounds and time of planning by stage: {stages:?}", fleet.defects);
        for judged in verdict.hosts.iter().chain(&verdict.links).chain(&verdict.fleet).chain(&verdict.switches) {
            if judged.fitness > Fitness::NotTested {
                let texts: Vec<&str> = judged.evidence.iter().map(|evidence| &evidence.text[..]).collect();
                eprintln!("  {}: {} {:?}: {}", judged.name, judged.fitness, judged.cause, texts.join("; "));
            }
        }
    }
    outcome.false_alarms = named.len() + suspected.len();
    outcome
}

/// Prints the row of one kind over `fleets` seeds.
fn row(kind: &Kind, hosts: usize, fleets: u64, is_verbose: bool) {
    let next = AtomicU64::new(0);
    let work = || {
        let mut outcomes = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= fleets {
                return outcomes;
            }
            outcomes.push(measure(&(kind.create)(hosts, seed), kind.input, is_verbose));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let outcomes: Vec<Outcome> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let sum = |value: fn(&Outcome) -> usize| outcomes.iter().map(value).sum::<usize>();
    let mut rounds: Vec<usize> = outcomes.iter().map(|outcome| outcome.rounds).collect();
    rounds.sort_unstable();
    let accused = outcomes.iter().filter(|outcome| outcome.false_alarms > 0).count();
    let slowest = outcomes.iter().map(|outcome| outcome.planning).max().unwrap_or_default();
    println!(
        "| {} | {fleets} | {} [{}, {}] | {} | {} | {} | {} | {accused} | {:.2} |",
        kind.name,
        rounds[rounds.len() / 2],
        rounds[0],
        rounds[rounds.len() - 1],
        sum(|outcome| outcome.group_rounds) / outcomes.len(),
        sum(|outcome| outcome.defects),
        sum(|outcome| outcome.found),
        sum(|outcome| outcome.suspected),
        slowest.as_secs_f64(),
    );
}

fn main() {
    let (options, arguments): (Vec<String>, Vec<String>) = env::args().skip(1).partition(|text| text == "--verbose");
    let number = |index: usize| arguments.get(index).and_then(|text| text.parse::<u64>().ok());
    let (Some(hosts), Some(clean), Some(defective)) = (number(0), number(1), number(2)) else {
        eprintln!("usage: accept_fleets [--verbose] HOSTS CLEAN_FLEETS DEFECTIVE_FLEETS [PART_OF_A_KIND]");
        std::process::exit(2);
    };
    let part = arguments.get(3).map_or("", String::as_str);
    println!(
        "| fleet of {hosts} hosts | fleets | rounds | of them in groups | defects | unfit | suspect | fleets with a false alarm | planning (s) |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for kind in KINDS.iter().filter(|kind| kind.name.contains(part)) {
        if hosts < kind.least_hosts as u64 {
            continue;
        }
        let is_clean = ["no defect", "no defect, with images"].contains(&kind.name);
        row(kind, hosts as usize, if is_clean { clean } else { defective }, !options.is_empty());
    }
}
