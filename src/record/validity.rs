//! What a reader of a run's figures should be warned of, worked out from its record alone, so that it can be worked out
//! again. A warning changes no figure and no exit status; what makes a run fail is told by the run itself.
//!
//! All thresholds are here, those for stragglers in [`crate::stats::straggler`]. They are meant to be silent on a machine
//! that is left alone: a warning that comes in every run is read by nobody.

use std::collections::BTreeMap;

use crate::environment::{DeviceKind, RankPlace};
use crate::host_use::HostUse;
use crate::run::{Iteration, RunEnd, RunRecord, Warning, WarningKind};
use crate::stats::straggler::{self, Kind, Straggler, deviation};
use crate::stats::summary::{mean, median};
use crate::units::Seconds;

/// Summed step times and wall clock are of one run: what lies between them is the loop itself, below 0.1 %.
const WALL_CLOCK: f64 = 0.02;

/// Change from the first to the last quarter that is worth a word: beyond the difference between two runs on a quiet machine.
const DRIFT: f64 = 0.03;

/// Standard errors that a change must have: at four, noise makes one in ten thousand.
const DRIFT_ERRORS: f64 = 4.0;

/// Fewest iterations of a quarter whose median says something.
const QUARTER: usize = 5;

/// An iteration is an outlier beyond both: so far above the median, and so many robust standard deviations.
const OUTLIER: f64 = 0.1;
const OUTLIER_DEVIATIONS: f64 = 5.0;

/// Outliers matter where they took this share of the run beyond their due: the mean speed is then wrong by as much.
const OUTLIER_LOSS: f64 = 0.02;

/// fp16 skips a few updates while it looks for its scale, in warm-up; later one in 2000 is its rule.
const SKIPPED: f64 = 0.05;

/// Share of the machine's core time that others may take: what an idle desktop does is 1 to 3 %.
const OTHER_LOAD: f64 = 0.05;

/// Share of the machine's core time that other virtual machines may take; where cores are not shared it is 0.
const STEAL: f64 = 0.02;

/// Share of a rank's core time for which a quota may hold it back: a benchmark should have none.
const QUOTA: f64 = 0.01;

/// Share of the run for which a GPU may be slowed for heat.
const HEAT: f64 = 0.01;

/// Times that cores may be slowed for heat; a short peak makes one or two.
const HEAT_EVENTS: u64 = 10;

/// NVML's reasons that are trouble: hardware slowdown, software and hardware thermal slowdown, power brake. Not the power
/// cap, which every large GPU reaches in training.
const GPU_TROUBLE: u64 = 0x8 | 0x20 | 0x40 | 0x80;

/// A clock that fell by more is named beside a drift.
const CLOCK: f64 = 0.05;

/// Counters of the kernel go by hundredths of a second: shorter runs are not judged by them.
const SHORTEST: Seconds = Seconds(1.0);

/// Every warning, the gravest first; the first `warmup` iterations do not count.
pub fn warnings(record: &RunRecord, warmup: usize) -> Vec<Warning> {
    let mut found = Vec::new();
    let counted = record.iterations.get(warmup..).unwrap_or_default();
    let Some(end) = record.end.as_ref().filter(|_| !counted.is_empty()) else {
        return found;
    };
    let ranks = &record.header.ranks;
    let crowded = crowded_hosts(ranks, end);
    found.extend(crowded.values().cloned());
    found.extend(slow_ranks(counted, ranks, |host| crowded.contains_key(host)));
    if end.rank_use.len() == ranks.len() {
        found.extend(quotas(ranks, end));
        found.extend(heat(ranks, end));
        found.extend(other_load(ranks, end));
        found.extend(memory(ranks, end));
    }
    found.extend(steal(end));
    found.extend(drift(counted, end));
    found.extend(outliers(counted));
    found.extend(skipped(counted));
    found.extend(wall_clock(&record.iterations, end));
    found.sort_by_key(|warning| warning.kind);
    found
}

fn warning(kind: WarningKind, about: impl Into<String>, text: String) -> Warning {
    Warning { kind, about: about.into(), text }
}

const RUN: &str = "the run";

// --- ranks --------------------------------------------------------------------------------------------------------------

/// `rank 3 on host d`.
fn name(place: &RankPlace) -> String {
    format!("rank {} on host {}", place.rank, place.host)
}

/// What is said of all ranks of a host is said of the host: names, each with its ranks as places in the list.
fn subjects(ranks: &[RankPlace], is_meant: impl Fn(usize) -> bool) -> Vec<(String, Vec<usize>)> {
    let mut subjects = Vec::new();
    for host in hosts(ranks) {
        let here: Vec<usize> = (0..ranks.len()).filter(|rank| ranks[*rank].host == host).collect();
        if here.len() > 1 && here.iter().all(|rank| is_meant(*rank)) {
            subjects.push((format!("host {host}"), here));
        } else {
            let meant = here.into_iter().filter(|rank| is_meant(*rank));
            subjects.extend(meant.map(|rank| (name(&ranks[rank]), vec![rank])));
        }
    }
    subjects
}

/// In the order of their first ranks.
fn hosts(ranks: &[RankPlace]) -> Vec<&str> {
    let mut hosts: Vec<&str> = Vec::new();
    for place in ranks {
        if !hosts.contains(&place.host.as_str()) {
            hosts.push(&place.host);
        }
    }
    hosts
}

/// Hosts whose ranks have more threads than cores: who computes how long is then what the scheduler makes of it. Counts for
/// a host what it may use, and for a machine of several hosts (containers) what all of them share.
fn crowded_hosts(ranks: &[RankPlace], end: &RunEnd) -> BTreeMap<String, Warning> {
    let threads = |is_meant: &dyn Fn(&str) -> bool| -> u32 {
        let computing = ranks.iter().filter(|place| place.device == DeviceKind::Cpu && is_meant(&place.host));
        computing.map(|place| place.threads).sum()
    };
    let crowded = |host: &HostUse| {
        let own = threads(&|name| name == host.host);
        let is_neighbour = |name: &str| end.host_use.iter().any(|other| other.host == name && other.machine == host.machine);
        let together = threads(&is_neighbour);
        let (what, threads, cores) = if own > host.cores_of_ranks {
            ("", own, host.cores_of_ranks)
        } else if together > host.cores {
            (" and the hosts that share its machine", together, host.cores)
        } else {
            return None;
        };
        let text = format!(
            "the ranks of host {}{what} have {threads} threads and {cores} cores: they take turns, and who of them is slow \
             cannot be told: choose fewer ranks, or --threads {}",
            host.host,
            (cores * own / threads / count(ranks, &host.host)).max(1)
        );
        Some((host.host.clone(), warning(WarningKind::Oversubscribed, format!("host {}", host.host), text)))
    };
    end.host_use.iter().filter_map(crowded).collect()
}

fn count(ranks: &[RankPlace], host: &str) -> u32 {
    ranks.iter().filter(|place| place.host == host).count().max(1) as u32
}

/// Stragglers by own compute time alone, among the ranks whose hosts are not crowded.
fn slow_ranks(counted: &[Iteration], ranks: &[RankPlace], is_crowded: impl Fn(&str) -> bool) -> Vec<Warning> {
    let is_judged = |place: &RankPlace| place.device == DeviceKind::Cuda || !is_crowded(&place.host);
    let judged: Vec<usize> = (0..ranks.len()).filter(|rank| is_judged(&ranks[*rank])).collect();
    if counted.iter().any(|iteration| iteration.before_allreduce.len() != ranks.len()) {
        return Vec::new();
    }
    let of_judged = |list: fn(&Iteration) -> &[Seconds]| -> Vec<Vec<f64>> {
        judged.iter().map(|rank| counted.iter().map(|iteration| list(iteration)[*rank].0).collect()).collect()
    };
    let own = of_judged(|iteration| &iteration.before_allreduce);
    let exposed = of_judged(|iteration| &iteration.exposed_allreduce);
    let mut found = straggler::stragglers(&own, &exposed, &steps(counted));
    found.iter_mut().for_each(|straggler| straggler.rank = judged[straggler.rank]);
    let of_kind = |kind: Kind, rank: usize| found.iter().find(|found| (found.kind, found.rank) == (kind, rank));

    let mut warnings = Vec::new();
    for kind in [Kind::Chronic, Kind::Occasional, Kind::Once] {
        for (about, members) in subjects(ranks, |rank| of_kind(kind, rank).is_some()) {
            let members: Vec<&Straggler> = members.into_iter().filter_map(|rank| of_kind(kind, rank)).collect();
            warnings.push(slow(kind, about, &members, counted));
        }
    }
    warnings
}

/// One warning for a rank, or for all ranks of a host.
fn slow(kind: Kind, about: String, members: &[&Straggler], counted: &[Iteration]) -> Warning {
    let average = |part: fn(&Straggler) -> f64| {
        mean(&members.iter().map(|straggler| part(straggler)).collect::<Vec<f64>>()).unwrap_or_default()
    };
    let (share, factor, wait) =
        (average(|one| one.share), average(|one| one.factor), Seconds(average(|one| one.wait)));
    let several = match members {
        [_] => String::new(),
        _ => {
            let numbers: Vec<String> = members.iter().map(|straggler| straggler.rank.to_string()).collect();
            format!(" (ranks {})", numbers.join(", "))
        }
    };
    let iterations = members.first().map(|first| stretches(&first.iterations, counted)).unwrap_or_default();
    let times = format!("{factor:.2} times the others' own compute time");
    let (kind, text) = match kind {
        Kind::Chronic => (
            WarningKind::Straggler,
            format!(
                "{about} is a straggler{several}: in {} of the iterations, {times}; each of these waited {} for it: \
                 look for other processes, a CPU quota, heat or a low clock there, or leave it out",
                percent(share),
                milliseconds(wait)
            ),
        ),
        Kind::Occasional => (
            WarningKind::SlowAtTimes,
            format!(
                "{about} is slow at times{several}: in {} of the iterations ({iterations}), {times}; each of these \
                 waited {} for it: look for what else runs there now and then",
                percent(share),
                milliseconds(wait)
            ),
        ),
        Kind::Once => (
            WarningKind::SlowOnce,
            format!(
                "{about} was slow once{several}: in iteration {iterations}, {times}; the others waited {} for it: repeat \
                 the run; if it does not come again, it was no fault of the rank",
                milliseconds(Seconds(average(|one| one.wait * one.iterations.len() as f64)))
            ),
        ),
    };
    warning(kind, about, text)
}

/// `3-5, 9, 12, ...` from places in `counted`.
fn stretches(places: &[usize], counted: &[Iteration]) -> String {
    const SHOWN: usize = 5;
    let stretches: Vec<&[usize]> = places.chunk_by(|one, next| one + 1 == *next).collect();
    let number = |place: usize| counted[place].iteration;
    let word = |stretch: &&[usize]| match **stretch {
        [first, .., last] => format!("{}-{}", number(first), number(last)),
        [only] => number(only).to_string(),
        [] => String::new(),
    };
    let mut words: Vec<String> = stretches.iter().take(SHOWN).map(word).collect();
    if stretches.len() > SHOWN {
        words.push("...".to_owned());
    }
    words.join(", ")
}

fn quotas(ranks: &[RankPlace], end: &RunEnd) -> Vec<Warning> {
    let held_back = |rank: usize| {
        let elapsed = host_of(&ranks[rank], end)?.elapsed;
        let throttled = end.rank_use[rank].throttled?;
        let possible = elapsed.0 * f64::from(ranks[rank].threads.max(1));
        (elapsed >= SHORTEST && throttled.0 >= QUOTA * possible).then_some((throttled, elapsed))
    };
    let warn = |(about, members): (String, Vec<usize>)| {
        let (throttled, elapsed) = held_back(members[0])?;
        let text = format!(
            "{about} was held back by the CPU quota of its control group for {:.1} of core time in {:.1}: raise or remove \
             it (cpu.max, cpu.cfs_quota_us, a container's --cpus)",
            throttled, elapsed
        );
        Some(warning(WarningKind::Quota, about, text))
    };
    subjects(ranks, |rank| held_back(rank).is_some()).into_iter().filter_map(warn).collect()
}

fn host_of<'a>(place: &RankPlace, end: &'a RunEnd) -> Option<&'a HostUse> {
    end.host_use.iter().find(|host| host.host == place.host)
}

fn heat(ranks: &[RankPlace], end: &RunEnd) -> Vec<Warning> {
    let mut found = Vec::new();
    for (place, used) in ranks.iter().zip(&end.rank_use) {
        let Some((gpu, host)) = used.gpu.as_ref().zip(host_of(place, end)) else { continue };
        let slowed = gpu.slowed_for_heat.filter(|slowed| slowed.0 >= HEAT * host.elapsed.0);
        let reasons = gpu.reasons[1] & GPU_TROUBLE;
        let how = match slowed {
            Some(slowed) => format!("for {slowed:.1} of {:.1}", host.elapsed),
            None if reasons != 0 => format!("and still was when the run ended (reasons 0x{reasons:x})"),
            None => continue,
        };
        let text = format!(
            "the GPU of {} was slowed for heat or power {how}, at {:.0} degrees: look at its cooling and power supply, or \
             leave it out",
            name(place),
            gpu.temperature[1]
        );
        found.push(warning(WarningKind::Heat, name(place), text));
    }
    for host in &end.host_use {
        if let Some(events @ HEAT_EVENTS..) = host.heat_events {
            let text = format!(
                "the cores of host {} were slowed for heat {events} times: look at its cooling, or choose fewer threads",
                host.host
            );
            found.push(warning(WarningKind::Heat, format!("host {}", host.host), text));
        }
    }
    found
}

fn memory(ranks: &[RankPlace], end: &RunEnd) -> Vec<Warning> {
    // Pages of programs come from a disk as well, once: only where the host reads back swap is memory short.
    let is_short = |rank: usize| {
        let swaps = host_of(&ranks[rank], end).is_some_and(|host| host.swapped_in.0 > 0);
        swaps && end.rank_use[rank].major_faults >= u64::from(end.iterations)
    };
    let warn = |(about, members): (String, Vec<usize>)| {
        let faults: u64 = members.iter().map(|rank| end.rank_use[*rank].major_faults).sum();
        let text = format!(
            "{about} waited {faults} times for memory from a disk, and the host swaps: choose a smaller --batch-size or \
             fewer ranks, or free memory there"
        );
        warning(WarningKind::Memory, about, text)
    };
    subjects(ranks, is_short).into_iter().map(warn).collect()
}

// --- hosts --------------------------------------------------------------------------------------------------------------

/// One host of every machine: the counters of its neighbours are the same.
fn machines(end: &RunEnd) -> impl Iterator<Item = &HostUse> {
    let is_first = |(index, host): &(usize, &HostUse)| end.host_use[..*index].iter().all(|known| known.machine != host.machine);
    let judged = end.host_use.iter().enumerate().filter(is_first).map(|(_, host)| host);
    judged.filter(|host| host.cores > 0 && host.elapsed >= SHORTEST)
}

fn other_load(ranks: &[RankPlace], end: &RunEnd) -> Vec<Warning> {
    let warn = |machine: &HostUse| {
        let is_here = |place: &RankPlace| host_of(place, end).is_some_and(|host| host.machine == machine.machine);
        let here = ranks.iter().zip(&end.rank_use).filter(|(place, _)| is_here(place));
        let own: f64 = here.map(|(_, used)| used.core_time.0).sum();
        let cores = (machine.busy.0 - own).max(0.0) / machine.elapsed.0;
        let share = cores / f64::from(machine.cores);
        let text = format!(
            "other processes took {} of host {}'s core time ({cores:.1} of {} cores): stop them, or repeat the run when they \
             are done",
            percent(share),
            machine.host,
            machine.cores
        );
        (share >= OTHER_LOAD).then(|| warning(WarningKind::OtherLoad, format!("host {}", machine.host), text))
    };
    machines(end).filter_map(warn).collect()
}

fn steal(end: &RunEnd) -> Vec<Warning> {
    let warn = |machine: &HostUse| {
        let share = machine.steal.0 / machine.elapsed.0 / f64::from(machine.cores);
        let text = format!(
            "the hypervisor gave {} of host {}'s core time to other virtual machines: choose an instance with cores of its \
             own, or repeat the run",
            percent(share),
            machine.host
        );
        (share >= STEAL).then(|| warning(WarningKind::Steal, format!("host {}", machine.host), text))
    };
    machines(end).filter_map(warn).collect()
}

// --- iterations ---------------------------------------------------------------------------------------------------------

/// Mean over ranks.
fn steps(counted: &[Iteration]) -> Vec<f64> {
    let step = |iteration: &Iteration| mean(&iteration.step.iter().map(|step| step.0).collect::<Vec<f64>>());
    counted.iter().filter_map(step).collect()
}

/// Change of the step time from the first to the last quarter as a share of the first, where it is a trend: more than
/// [`DRIFT`], more than noise, and never back by more than noise from a quarter to the next.
///
/// A quarter of m iterations with robust standard deviation s has a median with the standard error `1.2533 s / sqrt(m)`.
/// Steps of 100, 102, 104 and 106 ms in the four quarters of 100 iterations, s = 1 ms: error 0.25 ms, of a difference
/// 0.35 ms; 6 ms are 6 % and 17 errors: a drift of 0.06.
fn trend(steps: &[f64]) -> Option<f64> {
    let length = steps.len() / 4;
    if length < QUARTER {
        return None;
    }
    let quarters = [0, steps.len() / 4, steps.len() / 2, steps.len() - length].map(|start| &steps[start..start + length]);
    let medians = quarters.map(|quarter| median(quarter).unwrap_or_default());
    let spread = median(&quarters.map(|quarter| deviation(quarter).unwrap_or_default()))?;
    let error = 1.2533 * spread / (length as f64).sqrt() * 2f64.sqrt();
    let total = medians[3] - medians[0];
    let is_trend = medians.windows(2).all(|pair| (pair[1] - pair[0]) * total.signum() >= -error);
    let change = total / medians[0];
    (change.abs() > DRIFT && total.abs() > DRIFT_ERRORS * error && is_trend).then_some(change)
}

fn drift(counted: &[Iteration], end: &RunEnd) -> Option<Warning> {
    let change = trend(&steps(counted))?;
    let text = if change < 0.0 {
        format!(
            "the step became {} shorter from the first quarter of the run to the last: the warm-up was too short: raise \
             --warmup",
            percent(-change)
        )
    } else {
        format!(
            "the step became {} longer from the first quarter of the run to the last{}: look for heat and other load, and \
             run longer to see where it ends",
            percent(change),
            fallen_clocks(end)
        )
    };
    Some(warning(WarningKind::Drift, RUN, text))
}

fn fallen_clocks(end: &RunEnd) -> String {
    let fallen = |host: &HostUse| {
        let [before, after] = host.clock_mhz?;
        let text = format!(" (the clock of host {} fell from {before:.0} to {after:.0} MHz)", host.host);
        (after < before * (1.0 - CLOCK)).then_some(text)
    };
    end.host_use.iter().filter_map(fallen).collect()
}

fn outliers(counted: &[Iteration]) -> Option<Warning> {
    let steps = steps(counted);
    let usual = median(&steps)?;
    let limit = usual + (OUTLIER * usual).max(OUTLIER_DEVIATIONS * deviation(&steps)?);
    let far: Vec<f64> = steps.iter().copied().filter(|step| *step > limit).collect();
    let lost = far.iter().map(|step| step - usual).sum::<f64>() / steps.iter().sum::<f64>();
    let text = format!(
        "{} of {} iterations took up to {:.1} times the median step, and {} of the run's time beyond their due: the mean \
         speed is lower by as much: repeat the run on a quiet machine",
        far.len(),
        steps.len(),
        far.iter().copied().fold(0.0, f64::max) / usual,
        percent(lost)
    );
    (lost >= OUTLIER_LOSS).then(|| warning(WarningKind::Outliers, RUN, text))
}

fn skipped(counted: &[Iteration]) -> Option<Warning> {
    let skipped = counted.iter().filter(|iteration| iteration.skipped).count();
    let text = format!(
        "{skipped} of {} updates after warm-up were skipped for a gradient that was not finite: lower --loss-scale or --lr",
        counted.len()
    );
    (skipped as f64 >= SKIPPED * counted.len() as f64 && skipped > 0).then(|| warning(WarningKind::Skipped, RUN, text))
}

fn wall_clock(iterations: &[Iteration], end: &RunEnd) -> Option<Warning> {
    let summed: f64 = iterations.iter().filter_map(|iteration| Some(iteration.step.first()?.0)).sum();
    let apart = (summed / end.wall.0 - 1.0).abs();
    let text = format!(
        "rank 0's step times add up to {:.3}, the wall clock says {:.3}: one of the two clocks is wrong: do not quote this \
         run",
        Seconds(summed),
        end.wall
    );
    (apart > WALL_CLOCK || apart.is_nan()).then(|| warning(WarningKind::WallClock, RUN, text))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn milliseconds(time: Seconds) -> String {
    format!("{:.1} ms", time.0 * 1e3)
}
