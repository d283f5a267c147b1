//! What a reader of a run's figures should be warned of, worked out from its record alone, so that it can be worked out
//! again. A warning changes no figure and no exit status; what makes a run fail is told by the run itself.
//!
//! All thresholds are here, those for stragglers in [`crate::stats::straggler`]. They are meant to be silent on a machine
//! that is left alone: a warning that comes in every run is read by nobody.

use std::collections::BTreeMap;

use crate::benchmark::train::iteration::Iteration;
use crate::benchmark::train::record::RunEnd;
use crate::benchmark::train::record::RunRecord;
use crate::device::DeviceKind;
use crate::environment::RankPlace;
use crate::phase::Phase;
use crate::resource_use::HostUse;
use crate::stats::straggler;
use crate::stats::straggler::Kind;
use crate::stats::straggler::Straggler;
use crate::stats::straggler::deviation;
use crate::stats::summary::mean;
use crate::stats::summary::median;
use crate::units::Seconds;
use crate::warning::Warning;
use crate::warning::WarningKind;

/// Summed step times and wall clock are of one run: what lies between them is the loop itself, below 0.1 %.
const WALL_CLOCK: f64 = 0.02;

/// Change from the first to the last quarter that is worth a word: beyond the difference between two runs on a quiet machine.
const DRIFT: f64 = 0.03;

/// Standard errors that a change must have: at four, noise makes one in ten thousand.
const DRIFT_ERRORS: f64 = 4.0;

/// Fewest iterations of a quarter: in a shorter run every stretch of other work looks like a trend.
const QUARTER: usize = 10;

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
    let steps = steps(counted);
    let is_crowded = |host: &str| crowded.contains_key(host);
    found.extend(slow_ranks(counted, &steps, ranks, end, is_crowded, record.header.exchanges()));
    if end.rank_use.len() == ranks.len() {
        found.extend(quotas(ranks, end));
        found.extend(heat(ranks, end));
        found.extend(memory(ranks, end));
    }
    found.extend(other_load(ranks, end));
    found.extend(steal(end));
    found.extend(drift(&steps, end));
    found.extend(outliers(&steps));
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
    let threads = |is_meant: &dyn Fn(&str) -> bool| -> u64 {
        let computing = ranks.iter().filter(|place| place.device == DeviceKind::Cpu && is_meant(&place.host));
        computing.map(|place| u64::from(place.threads)).sum()
    };
    let crowded = |host: &HostUse| {
        let own = threads(&|name| name == host.host);
        let is_neighbour =
            |name: &str| end.host_use.iter().any(|other| other.host == name && other.machine == host.machine);
        let together = threads(&is_neighbour);
        let (cores_of_ranks, cores) = (u64::from(host.cores_of_ranks), u64::from(host.cores));
        let (what, threads, cores) = if own > cores_of_ranks {
            ("", own, cores_of_ranks)
        } else if together > cores {
            (" and the hosts that share its machine", together, cores)
        } else {
            return None;
        };
        let ranks = ranks.iter().filter(|place| place.host == host.host).count().max(1) as u64;
        let fewer = match cores.saturating_mul(own) / threads / ranks {
            0 => String::new(),
            fitting => format!(", or --threads {fitting}"),
        };
        let text = format!(
            "the ranks of host {}{what} have {threads} threads and {cores} cores: they take turns, and who of them is slow \
             cannot be told: choose fewer ranks{fewer}",
            host.host
        );
        Some((host.host.clone(), warning(WarningKind::Oversubscribed, format!("host {}", host.host), text)))
    };
    end.host_use.iter().filter_map(crowded).collect()
}

/// Stragglers by own compute time alone, among the ranks whose hosts are not crowded. Where no rank `exchanges` anything
/// nobody waits for them.
fn slow_ranks(
    counted: &[Iteration],
    steps: &[f64],
    ranks: &[RankPlace],
    end: &RunEnd,
    is_crowded: impl Fn(&str) -> bool,
    exchanges: bool,
) -> Vec<Warning> {
    let is_judged = |place: &RankPlace| place.device == DeviceKind::Cuda || !is_crowded(&place.host);
    let judged: Vec<usize> = (0..ranks.len()).filter(|rank| is_judged(&ranks[*rank])).collect();
    if counted.iter().any(|iteration| iteration.before_allreduce.len() != ranks.len()) {
        return Vec::new();
    }
    let of_judged = |list: fn(&Iteration) -> &[Seconds]| -> Vec<Vec<f64>> {
        judged.iter().map(|rank| counted.iter().map(|iteration| list(iteration)[*rank].0).collect()).collect()
    };
    let own = of_judged(|iteration| &iteration.before_allreduce);
    let exposed = of_judged(|iteration| &iteration.phases[Phase::ExposedAllreduce]);
    let mut found = straggler::stragglers(&own, &exposed, steps);
    found.iter_mut().for_each(|straggler| straggler.rank = judged[straggler.rank]);
    // Single slow iterations on a host with other load are that load's doing, and it is named.
    found.retain(|straggler| straggler.kind == Kind::Chronic || !is_loaded(&ranks[straggler.rank], ranks, end));
    let of_kind = |kind: Kind, rank: usize| found.iter().find(|found| (found.kind, found.rank) == (kind, rank));

    let mut warnings = Vec::new();
    for kind in [Kind::Chronic, Kind::Occasional, Kind::Once] {
        for (about, members) in subjects(ranks, |rank| of_kind(kind, rank).is_some()) {
            let members: Vec<&Straggler> = members.into_iter().filter_map(|rank| of_kind(kind, rank)).collect();
            warnings.push(slow(kind, about, &members, counted, exchanges));
        }
    }
    warnings
}

/// One warning for a rank, or for all ranks of a host.
fn slow(kind: Kind, about: String, members: &[&Straggler], counted: &[Iteration], exchanges: bool) -> Warning {
    let average = |part: fn(&Straggler) -> f64| {
        mean(&members.iter().map(|straggler| part(straggler)).collect::<Vec<f64>>()).unwrap_or_default()
    };
    let (share, factor, wait) = (average(|one| one.share), average(|one| one.factor), Seconds(average(|one| one.wait)));
    let several = match members {
        [_] => String::new(),
        _ => {
            let numbers: Vec<String> = members.iter().map(|straggler| straggler.rank.to_string()).collect();
            format!(" (ranks {})", numbers.join(", "))
        }
    };
    let iterations = members.first().map(|first| stretches(&first.iterations, counted)).unwrap_or_default();
    let times = format!("{factor:.2} times the others' own compute time");
    let waited = |who: &str, wait: Seconds| match exchanges {
        true => format!("; {who} waited {} for it", milliseconds(wait)),
        false => String::new(),
    };
    let (kind, text) = match kind {
        Kind::Chronic => (
            WarningKind::Straggler,
            format!(
                "{about} is a straggler{several}: in {} of the iterations, {times}{}: look for other processes, a CPU \
                 quota, heat or a low clock there, or leave it out",
                percent(share),
                waited("each of these", wait)
            ),
        ),
        Kind::Occasional => (
            WarningKind::SlowAtTimes,
            format!(
                "{about} is slow at times{several}: in {} of the iterations ({iterations}), {times}{}: look for what \
                 else runs there now and then",
                percent(share),
                waited("each of these", wait)
            ),
        ),
        Kind::Once => (
            WarningKind::SlowOnce,
            format!(
                "{about} was slow once{several}: in iteration {iterations}, {times}{}: repeat the run; if it does not \
                 come again, it was no fault of the rank",
                waited("the others", Seconds(average(|one| one.wait * one.iterations.len() as f64)))
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
        let faults = members.iter().map(|rank| end.rank_use[*rank].major_faults).fold(0, u64::saturating_add);
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
    let is_first =
        |(index, host): &(usize, &HostUse)| end.host_use[..*index].iter().all(|known| known.machine != host.machine);
    let judged = end.host_use.iter().enumerate().filter(is_first).map(|(_, host)| host);
    judged.filter(|host| host.cores > 0 && host.elapsed >= SHORTEST)
}

/// Cores that processes which are not the run's kept busy.
fn other_cores(machine: &HostUse, ranks: &[RankPlace], end: &RunEnd) -> f64 {
    if end.rank_use.len() != ranks.len() {
        return 0.0;
    }
    let is_here = |place: &RankPlace| host_of(place, end).is_some_and(|host| host.machine == machine.machine);
    let here = ranks.iter().zip(&end.rank_use).filter(|(place, _)| is_here(place));
    let own: f64 = here.map(|(_, used)| used.core_time.0).sum();
    (machine.busy.0 - own).max(0.0) / machine.elapsed.0
}

/// Share of the machine's core time.
fn stolen(machine: &HostUse) -> f64 {
    machine.steal.0 / machine.elapsed.0 / f64::from(machine.cores)
}

/// Whether a rank that computes on cores shares them with anything that is warned of.
fn is_loaded(place: &RankPlace, ranks: &[RankPlace], end: &RunEnd) -> bool {
    let is_loaded = |host: &HostUse| {
        let share = other_cores(host, ranks, end) / f64::from(host.cores);
        host.elapsed >= SHORTEST && (share >= OTHER_LOAD || stolen(host) >= STEAL)
    };
    place.device == DeviceKind::Cpu && host_of(place, end).is_some_and(is_loaded)
}

fn other_load(ranks: &[RankPlace], end: &RunEnd) -> Vec<Warning> {
    let warn = |machine: &HostUse| {
        let cores = other_cores(machine, ranks, end);
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
        let text = format!(
            "the hypervisor gave {} of host {}'s core time to other virtual machines: choose an instance with cores of its \
             own, or repeat the run",
            percent(stolen(machine)),
            machine.host
        );
        (stolen(machine) >= STEAL).then(|| warning(WarningKind::Steal, format!("host {}", machine.host), text))
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
    let quarters =
        [0, steps.len() / 4, steps.len() / 2, steps.len() - length].map(|start| &steps[start..start + length]);
    let medians = quarters.map(|quarter| median(quarter).unwrap_or_default());
    let spread = median(&quarters.map(|quarter| deviation(quarter).unwrap_or_default()))?;
    let error = 1.2533 * spread / (length as f64).sqrt() * 2f64.sqrt();
    let total = medians[3] - medians[0];
    let is_trend = medians.windows(2).all(|pair| (pair[1] - pair[0]) * total.signum() >= -error);
    let change = total / medians[0];
    (change.abs() > DRIFT && total.abs() > DRIFT_ERRORS * error && is_trend).then_some(change)
}

fn drift(steps: &[f64], end: &RunEnd) -> Option<Warning> {
    let change = trend(steps)?;
    let text = if change < 0.0 {
        format!(
            "the step became {} shorter from the first quarter of the run to the last: the warm-up was too short, or \
             something else ran at first: raise --warmup, or repeat the run",
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

fn outliers(steps: &[f64]) -> Option<Warning> {
    let usual = median(steps)?;
    let limit = usual + (OUTLIER * usual).max(OUTLIER_DEVIATIONS * deviation(steps)?);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::Profile;
    use crate::benchmark::train::config::TrainConfig;
    use crate::benchmark::train::record::RunHeader;
    use crate::benchmark::train::record::SCHEMA;
    use crate::environment::Environment;
    use crate::exchange::BackendChoice;
    use crate::phase::Phases;
    use crate::resource_use::GpuUse;
    use crate::resource_use::RankUse;
    use crate::units::Bytes;

    const ITERATIONS: usize = 60;

    /// So many ranks on each host, one thread each, 60 iterations of 100 ms of which 50 ms are own compute time, on hosts
    /// of four cores with nothing else to do.
    fn record(hosts: &[(&str, u32)]) -> RunRecord {
        let places = hosts.iter().flat_map(|(host, ranks)| (0..*ranks).map(move |local| (*host, local)));
        let ranks: Vec<RankPlace> = places
            .enumerate()
            .map(|(rank, (host, local_rank))| RankPlace {
                rank: rank as u32,
                local_rank,
                host: host.to_owned(),
                device: DeviceKind::Cpu,
                device_name: "processor".to_owned(),
                threads: 1,
                process: 100,
            })
            .collect();
        let each = |time: f64| vec![Seconds(time); ranks.len()];
        // A little noise, the same in every iteration of the same number.
        let iteration = |iteration: usize| {
            let noise = 1.0 + 0.002 * ((iteration * 7 % 10) as f64 - 4.5);
            Iteration {
                iteration: iteration as u32,
                step: each(0.1 * noise),
                phases: Phases::from_fn(|phase| match phase {
                    Phase::Forward => each(0.03 * noise),
                    Phase::Backward => each(0.05 * noise),
                    Phase::ExposedAllreduce | Phase::Optimizer => each(0.01),
                }),
                before_allreduce: each(0.05 * noise),
                loss: vec![6.9; ranks.len()],
                loss_scale: 1.0,
                skipped: false,
            }
        };
        let elapsed = 0.1 * ITERATIONS as f64;
        let host_use = |(host, ranks): &(&str, u32)| HostUse {
            host: (*host).to_owned(),
            machine: format!("kernel of {host}"),
            cores: 4,
            cores_of_ranks: 4,
            elapsed: Seconds(elapsed),
            busy: Seconds(elapsed * (f64::from(*ranks) + 0.05)),
            ..HostUse::default()
        };
        let iterations: Vec<Iteration> = (1..=ITERATIONS).map(iteration).collect();
        let wall = Seconds(iterations.iter().map(|iteration| iteration.step[0].0).sum());
        RunRecord {
            end: Some(RunEnd {
                failure: None,
                iterations: ITERATIONS as u32,
                skipped_steps: 0,
                wall,
                parameter_checksums: vec!["00ff".to_owned(); ranks.len()],
                peak_memory: vec![Bytes(1); ranks.len()],
                host_use: hosts.iter().map(host_use).collect(),
                rank_use: vec![RankUse { core_time: Seconds(elapsed), ..RankUse::default() }; ranks.len()],
                warnings: Vec::new(),
            }),
            header: RunHeader {
                schema: SCHEMA,
                case: "1n2g".parse().expect("a case"),
                run: 1,
                profile: Profile::Full,
                started: Seconds(0.0),
                config: TrainConfig::default(),
                backend: "mpi".to_owned(),
                buckets: vec![Bytes(8)],
                tuning: None,
                environment: Environment::default(),
                ranks,
            },
            iterations,
        }
    }

    const TWO: [(&str, u32); 2] = [("c", 2), ("d", 2)];

    /// Own compute time of `rank` in the iterations that are meant, and the waits of the others.
    fn slow_down(record: &mut RunRecord, ranks: &[usize], factor: f64, is_meant: impl Fn(u32) -> bool) {
        for iteration in record.iterations.iter_mut().filter(|iteration| is_meant(iteration.iteration)) {
            for rank in ranks {
                iteration.before_allreduce[*rank].0 *= factor;
            }
            for (rank, exposed) in iteration.phases[Phase::ExposedAllreduce].iter_mut().enumerate() {
                exposed.0 += if ranks.contains(&rank) { 0.0 } else { 0.05 * (factor - 1.0) };
            }
        }
    }

    fn end(record: &mut RunRecord) -> &mut RunEnd {
        record.end.as_mut().expect("an end")
    }

    /// The one warning that there is.
    fn only(record: &RunRecord) -> (WarningKind, String, String) {
        let found = warnings(record, 10);
        let [warning] = found.as_slice() else { panic!("{found:?}") };
        (warning.kind, warning.about.clone(), warning.text.clone())
    }

    #[track_caller]
    fn expect(record: &RunRecord, kind: WarningKind, about: &str, text: &str) {
        let actual = only(record);
        assert_eq!((actual.0, actual.1.as_str()), (kind, about));
        assert!(actual.2.starts_with(text), "{}", actual.2);
    }

    #[test]
    fn a_quiet_run_has_no_warning() {
        for hosts in [&TWO[..], &[("a", 1)], &[("a", 4)]] {
            assert_eq!(warnings(&record(hosts), 10), []);
        }
    }

    #[test]
    fn a_record_of_before_is_judged_by_what_it_has() {
        let mut old = record(&TWO);
        slow_down(&mut old, &[3], 2.0, |_| true);
        end(&mut old).host_use.clear();
        end(&mut old).rank_use.clear();
        old.iterations.iter_mut().for_each(|iteration| iteration.before_allreduce.clear());
        assert_eq!(warnings(&old, 10), []);
        end(&mut old).wall = Seconds(6.5);
        expect(
            &old,
            WarningKind::WallClock,
            "the run",
            "rank 0's step times add up to 6.000 s, the wall clock says 6.500 s",
        );
        // Cut off, or nothing after warm-up.
        old.end = None;
        assert_eq!(warnings(&old, 10), []);
        assert_eq!(warnings(&record(&TWO), ITERATIONS), []);
        assert_eq!(warnings(&record(&TWO), ITERATIONS + 1), []);
    }

    #[test]
    fn a_slow_rank_and_a_slow_host_are_named_and_who_waits_for_them_is_not() {
        let mut slow = record(&TWO);
        slow_down(&mut slow, &[3], 1.93, |_| true);
        expect(
            &slow,
            WarningKind::Straggler,
            "rank 3 on host d",
            "rank 3 on host d is a straggler: in 100.0 % of the iterations, 1.93 times the others' own compute time; each of \
             these waited 46.5 ms for it: ",
        );
        let mut slow = record(&[("c", 4), ("d", 2)]);
        slow_down(&mut slow, &[4, 5], 1.5, |_| true);
        expect(
            &slow,
            WarningKind::Straggler,
            "host d",
            "host d is a straggler (ranks 4, 5): in 100.0 % of the iterations, 1.50 times",
        );
        slow.header.config.exchange.backend = BackendChoice::None;
        expect(
            &slow,
            WarningKind::Straggler,
            "host d",
            "host d is a straggler (ranks 4, 5): in 100.0 % of the iterations, 1.50 times the others' own compute time: look",
        );
        let mut once = record(&TWO);
        slow_down(&mut once, &[1], 10.0, |iteration| iteration == 57);
        expect(
            &once,
            WarningKind::SlowOnce,
            "rank 1 on host c",
            "rank 1 on host c was slow once: in iteration 57, 10.00 times the others' own compute time; the others waited \
             450.0 ms for it: repeat the run",
        );
        let mut at_times = record(&TWO);
        slow_down(&mut at_times, &[1], 2.0, |iteration| [20, 21, 22, 31, 40].contains(&iteration));
        expect(
            &at_times,
            WarningKind::SlowAtTimes,
            "rank 1 on host c",
            "rank 1 on host c is slow at times: in 10.0 % of the iterations (20-22, 31, 40), 2.00 times",
        );
        // Where the host has other load it is that which is told, unless the rank is always slow.
        let busy = |record: &mut RunRecord| end(record).host_use[0].busy = Seconds(6.0 * 2.9);
        busy(&mut at_times);
        assert_eq!(only(&at_times).0, WarningKind::OtherLoad);
        let mut always = record(&TWO);
        slow_down(&mut always, &[1], 2.0, |_| true);
        busy(&mut always);
        let kinds: Vec<WarningKind> = warnings(&always, 10).iter().map(|warning| warning.kind).collect();
        assert_eq!(kinds, [WarningKind::Straggler, WarningKind::OtherLoad]);
        // In warm-up everybody may be late.
        let mut early = record(&TWO);
        slow_down(&mut early, &[1], 10.0, |iteration| iteration <= 10);
        assert_eq!(warnings(&early, 10), []);
    }

    #[test]
    fn on_crowded_hosts_nobody_is_named() {
        let mut crowded = record(&TWO);
        slow_down(&mut crowded, &[3], 1.93, |_| true);
        end(&mut crowded).host_use[1].cores_of_ranks = 1;
        expect(
            &crowded,
            WarningKind::Oversubscribed,
            "host d",
            "the ranks of host d have 2 threads and 1 cores: they take turns, and who of them is slow cannot be told: choose \
             fewer ranks",
        );
        let mut threads = record(&[("a", 2)]);
        threads.header.ranks.iter_mut().for_each(|place| place.threads = 4);
        assert!(
            only(&threads).2.ends_with(
                "have 8 threads and 4 cores: they take turns, and who of them is slow cannot be \
             told: choose fewer ranks, or --threads 2"
            ),
            "{}",
            only(&threads).2
        );
        // Its neighbours are judged, without it.
        let mut neighbour = record(&[("c", 3), ("d", 3)]);
        slow_down(&mut neighbour, &[0, 3, 4, 5], 1.5, |_| true);
        end(&mut neighbour).host_use[1].cores_of_ranks = 2;
        let found: Vec<String> = warnings(&neighbour, 10).into_iter().map(|warning| warning.about).collect();
        assert_eq!(found, ["rank 0 on host c", "host d"]);
        // Two containers of one machine with four cores: three ranks each are too many, though each sees four cores.
        let mut containers = record(&[("c", 3), ("d", 3)]);
        slow_down(&mut containers, &[0], 1.5, |_| true);
        end(&mut containers).host_use.iter_mut().for_each(|host| host.machine = "one".to_owned());
        let found = warnings(&containers, 10);
        assert!(found.iter().all(|warning| warning.kind == WarningKind::Oversubscribed), "{found:?}");
        assert!(
            found[0].text.contains("host c and the hosts that share its machine have 6 threads and 4 cores"),
            "{found:?}"
        );
        // The cores are not what a GPU computes on.
        let mut gpus = record(&TWO);
        slow_down(&mut gpus, &[3], 1.93, |_| true);
        gpus.header.ranks.iter_mut().for_each(|place| place.device = DeviceKind::Cuda);
        end(&mut gpus).host_use[1].cores_of_ranks = 1;
        assert_eq!(only(&gpus).1, "rank 3 on host d");
    }

    #[test]
    fn what_hosts_did_besides_is_told() {
        type Change = fn(&mut RunEnd);
        let cases: [(WarningKind, &str, &str, Change); 8] = [
            (
                WarningKind::OtherLoad,
                "host d",
                "other processes took 22.5 % of host d's core time (0.9 of 4 cores): stop them",
                |end| end.host_use[1].busy = Seconds(6.0 * 2.9),
            ),
            (WarningKind::Steal, "host c", "the hypervisor gave 2.5 % of host c's core time", |end| {
                end.host_use[0].steal = Seconds(0.6)
            }),
            (
                WarningKind::Quota,
                "rank 2 on host d",
                "rank 2 on host d was held back by the CPU quota of its control group for 3.0 s of core time in 6.0 s: ",
                |end| end.rank_use[2].throttled = Some(Seconds(3.0)),
            ),
            (WarningKind::Quota, "host d", "host d was held back by the CPU quota", |end| {
                end.rank_use[2..].iter_mut().for_each(|used| used.throttled = Some(Seconds(3.0)))
            }),
            (WarningKind::Heat, "host c", "the cores of host c were slowed for heat 12 times", |end| {
                end.host_use[0].heat_events = Some(12)
            }),
            (
                WarningKind::Heat,
                "rank 1 on host c",
                "the GPU of rank 1 on host c was slowed for heat or power for 1.5 s of 6.0 s, at 88 degrees: ",
                |end| {
                    let gpu =
                        GpuUse { slowed_for_heat: Some(Seconds(1.5)), temperature: [40.0, 88.0], ..GpuUse::default() };
                    end.rank_use[1].gpu = Some(gpu);
                },
            ),
            (
                WarningKind::Heat,
                "rank 1 on host c",
                "the GPU of rank 1 on host c was slowed for heat or power and still was when the run ended (reasons 0x60)",
                |end| end.rank_use[1].gpu = Some(GpuUse { reasons: [0x4, 0x64], ..GpuUse::default() }),
            ),
            (
                WarningKind::Memory,
                "rank 3 on host d",
                "rank 3 on host d waited 60 times for memory from a disk, and the host swaps: ",
                |end| (end.rank_use[3].major_faults, end.host_use[1].swapped_in) = (60, Bytes(4096)),
            ),
        ];
        for (kind, about, text, change) in cases {
            let mut changed = record(&TWO);
            change(end(&mut changed));
            expect(&changed, kind, about, text);
        }
    }

    #[test]
    fn what_is_usual_on_a_host_is_not_told() {
        type Change = fn(&mut RunEnd);
        let changes: [Change; 7] = [
            // The counters of a kernel are the same from all its hosts.
            |end| {
                for host in &mut end.host_use {
                    (host.machine, host.busy) = ("one".to_owned(), Seconds(6.0 * 4.1));
                }
            },
            |end| end.host_use[0].steal = Seconds(0.2),
            |end| end.rank_use[2].throttled = Some(Seconds(0.05)),
            |end| end.host_use[0].heat_events = Some(2),
            // The power cap, which large GPUs reach, and idleness after the run.
            |end| end.rank_use[1].gpu = Some(GpuUse { reasons: [0x1, 0x5], ..GpuUse::default() }),
            // Programs are read from a disk, once.
            |end| end.rank_use[3].major_faults = 1000,
            |end| end.host_use[0].clock_mhz = Some([5000.0, 3000.0]),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut changed = record(&TWO);
            change(end(&mut changed));
            assert_eq!(warnings(&changed, 10), [], "change {number}");
        }
    }

    #[test]
    fn a_drift_is_told_and_noise_is_not() {
        let drifting = |total: f64| {
            let mut drifting = record(&TWO);
            for (index, iteration) in drifting.iterations.iter_mut().enumerate() {
                iteration.step.iter_mut().for_each(|step| step.0 *= 1.0 + total * index as f64 / ITERATIONS as f64);
            }
            end(&mut drifting).wall = Seconds(drifting.iterations.iter().map(|iteration| iteration.step[0].0).sum());
            drifting
        };
        let mut slower = drifting(0.2);
        expect(
            &slower,
            WarningKind::Drift,
            "the run",
            "the step became 12.1 % longer from the first quarter of the run to",
        );
        end(&mut slower).host_use[1].clock_mhz = Some([3400.0, 2600.0]);
        assert!(only(&slower).2.contains(" (the clock of host d fell from 3400 to 2600 MHz): look for heat"));
        expect(&drifting(-0.2), WarningKind::Drift, "the run", "the step became 13.");
        assert_eq!(warnings(&drifting(0.02), 10), []);

        // Normal noise of 5 %, as the sum of twelve.
        let mut state = 1u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        for length in [40, 100] {
            let mut named = 0;
            for _ in 0..1000 {
                let steps: Vec<f64> =
                    (0..length).map(|_| 0.1 + 0.005 * ((0..12).map(|_| uniform()).sum::<f64>() - 6.0)).collect();
                named += u32::from(trend(&steps).is_some());
            }
            assert!(named <= 2, "{named} of 1000 runs of {length} iterations");
        }
        // A stretch in the middle is no trend.
        let burst: Vec<f64> = (0..100).map(|index| if (30..60).contains(&index) { 0.2 } else { 0.1 }).collect();
        assert_eq!(trend(&burst), None);
        let worked: Vec<f64> =
            (0..100).map(|index| 0.1 + 0.002 * f64::from(index / 25) + 0.0001 * f64::from(index % 5)).collect();
        assert!((trend(&worked).expect("a drift") - 0.006 / 0.1002).abs() < 1e-9);
    }

    #[test]
    fn outliers_are_told_where_they_cost_something() {
        let with_outliers = |count: usize, factor: f64| {
            let mut record = record(&TWO);
            for iteration in record.iterations.iter_mut().skip(15).step_by(11).take(count) {
                iteration.step.iter_mut().for_each(|step| step.0 *= factor);
            }
            end(&mut record).wall = Seconds(record.iterations.iter().map(|iteration| iteration.step[0].0).sum());
            record
        };
        expect(
            &with_outliers(3, 3.0),
            WarningKind::Outliers,
            "the run",
            "3 of 50 iterations took up to 3.0 times the median step, and 10.7 % of the run's time beyond their due: ",
        );
        assert_eq!(warnings(&with_outliers(3, 1.2), 10), []);
    }

    #[test]
    fn skipped_updates_are_told_beyond_those_that_look_for_a_scale() {
        let mut skipping = record(&TWO);
        skipping.iterations[..10].iter_mut().for_each(|iteration| iteration.skipped = true);
        skipping.iterations[30].skipped = true;
        assert_eq!(warnings(&skipping, 10), []);
        skipping.iterations[30..33].iter_mut().for_each(|iteration| iteration.skipped = true);
        expect(&skipping, WarningKind::Skipped, "the run", "3 of 50 updates after warm-up were skipped");
    }
}
