//! What else hosts did while the run went on: too many threads, quotas, heat, memory, other processes, other machines.

use std::collections::{BTreeMap, HashSet};

use crate::benchmark::warning::{Warning, WarningKind};
use crate::dimension::DeviceKind;
use crate::host::{HostUse, RankPlace};
use crate::validity::observed::{Observed, RankSums};
use crate::validity::subject::{name, percent, subjects, warning};
use crate::validity::thresholds::{GPU_TROUBLE, HEAT, HEAT_EVENTS, OTHER_LOAD, QUOTA, SHORTEST, STEAL};

/// Hosts whose ranks have more threads than cores: who computes how long is then what the scheduler makes of it. Counts for
/// a host what it may use, and for a machine of several hosts (containers) what all of them share.
pub(super) fn crowded_hosts(seen: &Observed) -> BTreeMap<String, Warning> {
    let crowded = |host: &HostUse| {
        let RankSums { ranks, threads: own, .. } = seen.on_host(host);
        let together = seen.on_machine(&host.machine).threads;
        let (cores_of_ranks, cores) = (u64::from(host.cores_of_ranks), u64::from(host.cores));
        let (what, threads, cores) = if own > cores_of_ranks {
            ("", own, cores_of_ranks)
        } else if together > cores {
            (" and the hosts that share its machine", together, cores)
        } else {
            return None;
        };
        let fewer = match cores.saturating_mul(own) / threads / ranks.max(1) {
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
    seen.host_use.iter().filter_map(crowded).collect()
}

pub(super) fn quotas(seen: &Observed) -> Vec<Warning> {
    let ranks = seen.ranks;
    let held_back = |rank: usize| {
        let elapsed = seen.host_of(&ranks[rank])?.elapsed;
        let throttled = seen.rank_use[rank].throttled?;
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

pub(super) fn heat(seen: &Observed) -> Vec<Warning> {
    let ranks = seen.ranks;
    let mut found = Vec::new();
    for (place, used) in ranks.iter().zip(seen.rank_use) {
        let Some((gpu, host)) = used.gpu.as_ref().zip(seen.host_of(place)) else { continue };
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
    for host in seen.host_use {
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

pub(super) fn memory(seen: &Observed) -> Vec<Warning> {
    let ranks = seen.ranks;
    // Pages of programs come from a disk as well, once: only where the host reads back swap is memory short.
    let is_short = |rank: usize| {
        let swaps = seen.host_of(&ranks[rank]).is_some_and(|host| host.swapped_in.0 > 0);
        swaps && seen.rank_use[rank].major_faults >= u64::from(seen.iterations)
    };
    let warn = |(about, members): (String, Vec<usize>)| {
        let faults = members.iter().map(|rank| seen.rank_use[*rank].major_faults).fold(0, u64::saturating_add);
        let text = format!(
            "{about} waited {faults} times for memory from a disk, and the host swaps: choose a smaller --batch-size or \
             fewer ranks, or free memory there"
        );
        warning(WarningKind::Memory, about, text)
    };
    subjects(ranks, is_short).into_iter().map(warn).collect()
}

/// One host of every machine: the counters of its neighbours are the same.
fn machines<'a>(seen: &Observed<'a>) -> impl Iterator<Item = &'a HostUse> {
    let mut known = HashSet::new();
    let first = seen.host_use.iter().filter(move |host| known.insert(host.machine.as_str()));
    first.filter(|host| host.cores > 0 && host.elapsed >= SHORTEST)
}

/// Cores that processes which are not the run's kept busy.
fn other_cores(machine: &HostUse, seen: &Observed) -> f64 {
    if seen.rank_use.len() != seen.ranks.len() {
        return 0.0;
    }
    (machine.busy.0 - seen.on_machine(&machine.machine).core_time).max(0.0) / machine.elapsed.0
}

/// Share of the machine's core time.
fn stolen(machine: &HostUse) -> f64 {
    machine.steal.0 / machine.elapsed.0 / f64::from(machine.cores)
}

/// What processes that are not the run's, and other virtual machines, took of a machine's core time.
#[derive(Debug, Clone, PartialEq)]
pub struct ForeignLoad {
    /// A host of the machine.
    pub host: String,
    /// Of the core time of all its cores, 0 to 1.
    pub share: f64,
}

/// Of the machine where it was largest; `None` where no record tells.
pub fn foreign_load(seen: &Observed) -> Option<ForeignLoad> {
    let of_machine = |machine: &HostUse| ForeignLoad {
        host: machine.host.clone(),
        share: other_cores(machine, seen) / f64::from(machine.cores) + stolen(machine),
    };
    machines(seen).map(of_machine).max_by(|one, other| one.share.total_cmp(&other.share))
}

/// Whether a rank that computes on cores shares them with anything that is warned of.
pub(super) fn is_loaded(place: &RankPlace, seen: &Observed) -> bool {
    let is_loaded = |host: &HostUse| {
        let share = other_cores(host, seen) / f64::from(host.cores);
        host.elapsed >= SHORTEST && (share >= OTHER_LOAD || stolen(host) >= STEAL)
    };
    place.device == DeviceKind::Cpu && seen.host_of(place).is_some_and(is_loaded)
}

pub(super) fn other_load(seen: &Observed) -> Vec<Warning> {
    let warn = |machine: &HostUse| {
        let cores = other_cores(machine, seen);
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
    machines(seen).filter_map(warn).collect()
}

pub(super) fn steal(seen: &Observed) -> Vec<Warning> {
    let warn = |machine: &HostUse| {
        let text = format!(
            "the hypervisor gave {} of host {}'s core time to other virtual machines: choose an instance with cores of its \
             own, or repeat the run",
            percent(stolen(machine)),
            machine.host
        );
        (stolen(machine) >= STEAL).then(|| warning(WarningKind::Steal, format!("host {}", machine.host), text))
    };
    machines(seen).filter_map(warn).collect()
}
