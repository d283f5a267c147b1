//! Warnings about other influences on hosts during a run: too many threads, CPU quotas, heat, memory, other processes,
//! virtual machines and the network.

use std::collections::HashSet;

use crate::benchmark::Record;
use crate::benchmark::warning::{Warning, WarningKind};
use crate::dimension::DeviceKind;
use crate::host::host_list::compact;
use crate::host::observed::{Observed, RankSums};
use crate::host::{HostUse, InitialLoad, RankPlace};
use crate::number_text::{percent, plural};
use crate::validity::subject::{name, subjects, warning};
use crate::validity::thresholds::{
    GPU_TROUBLE, HEAT, HEAT_EVENTS, HEAVY_FOREIGN_LOAD, MIN_ELAPSED, OTHER_LOAD, QUOTA, STEAL,
};

/// Threads of ranks and the cores they share.
#[derive(PartialEq)]
struct Oversubscription {
    /// True if the numbers are totals over all hosts (containers) of a machine.
    is_of_machine: bool,
    threads: u64,
    cores: u64,
    /// Threads per rank that would fit; 0 if even one does not.
    fitting: u64,
}

/// Returns the threads and cores of a host whose ranks have more threads than cores, because their compute times then
/// depend on the scheduler. Counts the usable cores of a host, or the shared cores of a machine with several hosts.
fn oversubscription(host: &HostUse, seen: &Observed) -> Option<Oversubscription> {
    let RankSums { ranks, threads: own, .. } = seen.on_host(host);
    let together = seen.on_machine(&host.machine).threads;
    let (cores_of_ranks, cores) = (u64::from(host.cores_of_ranks), u64::from(host.cores));
    let (is_of_machine, threads, cores) = if own > cores_of_ranks {
        (false, own, cores_of_ranks)
    } else if together > cores {
        (true, together, cores)
    } else {
        return None;
    };
    Some(Oversubscription {
        is_of_machine,
        threads,
        cores,
        fitting: cores.saturating_mul(own) / threads / ranks.max(1),
    })
}

pub(super) fn oversubscribed_hosts<'a>(seen: &Observed<'a>) -> HashSet<&'a str> {
    seen.host_use.iter().filter(|host| oversubscription(host, seen).is_some()).map(|host| host.host.as_str()).collect()
}

/// Warns about oversubscribed hosts, once for all hosts with the same numbers.
pub(super) fn oversubscribed(seen: &Observed) -> Vec<Warning> {
    let mut groups: Vec<(Oversubscription, Vec<&str>)> = Vec::new();
    for host in seen.host_use {
        let Some(crowd) = oversubscription(host, seen) else { continue };
        match groups.iter_mut().find(|(other, _)| *other == crowd) {
            Some((_, hosts)) => hosts.push(&host.host),
            None => groups.push((crowd, vec![&host.host])),
        }
    }
    let warn = |(Oversubscription { is_of_machine, threads, cores, fitting }, hosts): (Oversubscription, Vec<&str>)| {
        let about = hosts_named(&hosts);
        let place = match (is_of_machine, hosts.len()) {
            (true, 1) => format!("{about} and of hosts on the same machine"),
            (true, _) => format!("{about} on one machine"),
            (false, 1) => about.clone(),
            (false, _) => format!("each of the {about}"),
        };
        let fewer = if fitting == 0 { String::new() } else { format!(", or --threads {fitting}") };
        let text = format!(
            "the ranks of {place} have {threads} threads on {cores} cores: slow ranks cannot be identified: use fewer \
             ranks{fewer}"
        );
        warning(WarningKind::Oversubscribed, about, text)
    };
    groups.into_iter().map(warn).collect()
}

/// Formats host names: `host a`, or `hosts node[1-64]`.
fn hosts_named(hosts: &[&str]) -> String {
    format!("host{} {}", plural(hosts.len()), compact(hosts.iter().copied()))
}

pub(super) fn quotas(seen: &Observed) -> Vec<Warning> {
    let ranks = seen.ranks;
    let held_back = |rank: usize| {
        let elapsed = seen.host_of(&ranks[rank])?.elapsed;
        let throttled = seen.rank_use[rank].throttled?;
        let possible = elapsed.0 * f64::from(ranks[rank].threads.max(1));
        (elapsed >= MIN_ELAPSED && throttled.0 >= QUOTA * possible).then_some((throttled, elapsed))
    };
    let warn = |(about, members): (String, Vec<usize>)| {
        let (throttled, elapsed) = held_back(members[0])?;
        let text = format!(
            "{about} was throttled by the CPU quota of its control group for {:.1} of core time in {:.1}: raise or \
             remove the quota (cpu.max, cpu.cfs_quota_us, a container's --cpus)",
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
            "the GPU of {} was throttled for heat or power {how}, at {:.0} degrees: check its cooling and power \
             supply, or exclude it",
            name(place),
            gpu.temperature[1]
        );
        found.push(warning(WarningKind::Heat, name(place), text));
    }
    let events = |host: &HostUse| host.heat_events.unwrap_or(0) as f64;
    let text = |about: &str, worst: &HostUse, is_one: bool| {
        let times =
            if is_one { events(worst).to_string() } else { format!("up to {} ({})", events(worst), worst.host) };
        format!("the cores of {about} were throttled for heat {times} times: check the cooling, or use fewer threads")
    };
    found.extend(worst_host_warning(WarningKind::Heat, seen.host_use.iter(), events, HEAT_EVENTS as f64, text));
    found
}

pub(super) fn memory(seen: &Observed) -> Vec<Warning> {
    let ranks = seen.ranks;
    // Program pages are also read from disk, once: memory is short only if the host reads back swap.
    let is_short = |rank: usize| {
        let swaps = seen.host_of(&ranks[rank]).is_some_and(|host| host.swapped_in.0 > 0);
        swaps && seen.rank_use[rank].major_faults >= u64::from(seen.iterations)
    };
    let warn = |(about, members): (String, Vec<usize>)| {
        let faults = members.iter().map(|rank| seen.rank_use[*rank].major_faults).fold(0, u64::saturating_add);
        let text = format!(
            "{about} waited {faults} times for memory from disk, and the host swaps: use a smaller --batch-size or \
             fewer ranks, or free memory on the host"
        );
        warning(WarningKind::Memory, about, text)
    };
    subjects(ranks, is_short).into_iter().map(warn).collect()
}

/// Returns one host per machine, because hosts of the same machine have the same counters.
fn machines<'a>(seen: &Observed<'a>) -> impl Iterator<Item = &'a HostUse> {
    let mut known = HashSet::new();
    let first = seen.host_use.iter().filter(move |host| known.insert(host.machine.as_str()));
    first.filter(|host| host.cores > 0 && host.elapsed >= MIN_ELAPSED)
}

/// Returns the number of cores kept busy by processes outside the run.
fn other_cores(machine: &HostUse, seen: &Observed) -> f64 {
    if seen.rank_use.len() != seen.ranks.len() {
        return 0.0;
    }
    (machine.busy.0 - seen.on_machine(&machine.machine).core_time).max(0.0) / machine.elapsed.0
}

/// Returns the stolen share of the machine's core time.
fn stolen(machine: &HostUse) -> f64 {
    machine.steal.0 / machine.elapsed.0 / f64::from(machine.cores)
}

/// Share of a machine's core time used by other processes and other virtual machines.
#[derive(Debug, Clone, PartialEq)]
pub struct ForeignLoad {
    /// Name of a host on the machine.
    pub host: String,
    /// Share of the core time of all cores, 0 to 1.
    pub share: f64,
    /// True if it is the load before the first job of the command, because the run is too short to measure its own.
    pub is_before: bool,
}

impl ForeignLoad {
    /// Returns true if figures of a run with this load are unreliable.
    pub fn is_heavy(&self) -> bool {
        self.share > HEAVY_FOREIGN_LOAD
    }

    /// Returns a line that explains parentheses around figures.
    pub fn legend(&self) -> String {
        let (share, host) = (percent(self.share), &self.host);
        format!(
            "in parentheses: unreliable, other processes used {share} of the cores of {host}: stop them, then repeat"
        )
    }
}

/// Returns the load before a run that is too short to measure its own.
fn only_load_before<'a>(seen: &Observed<'a>) -> Option<&'a InitialLoad> {
    seen.load_before.filter(|_| machines(seen).next().is_none())
}

/// Returns the largest foreign load of any machine; `None` if the record does not contain it.
pub fn foreign_load(record: &impl Record) -> Option<ForeignLoad> {
    let seen = &record.observed()?;
    let of_machine = |machine: &HostUse| ForeignLoad {
        host: machine.host.clone(),
        share: other_cores(machine, seen) / f64::from(machine.cores) + stolen(machine),
        is_before: false,
    };
    let measured = machines(seen).map(of_machine).max_by(|one, other| one.share.total_cmp(&other.share));
    measured.or_else(|| {
        let before = only_load_before(seen)?;
        Some(ForeignLoad { host: before.hosts.clone(), share: before.share(), is_before: true })
    })
}

/// Returns true if a rank that computes on the CPU shares its cores with a load above the warning thresholds.
pub(super) fn is_loaded(place: &RankPlace, seen: &Observed) -> bool {
    let is_loaded = |host: &HostUse| {
        let share = other_cores(host, seen) / f64::from(host.cores);
        host.elapsed >= MIN_ELAPSED && (share >= OTHER_LOAD || stolen(host) >= STEAL)
    };
    place.device == DeviceKind::Cpu && seen.host_of(place).is_some_and(is_loaded)
}

pub(super) fn other_load(seen: &Observed) -> Vec<Warning> {
    let share = |machine: &HostUse| other_cores(machine, seen) / f64::from(machine.cores);
    let text = |about: &str, worst: &HostUse, is_one: bool| {
        let (taken, cores) =
            (percent(share(worst)), format!("{:.1} of {} cores", other_cores(worst, seen), worst.cores));
        let what = if is_one {
            format!("{taken} of {about}'s core time ({cores})")
        } else {
            format!("up to {taken} of the core time of {about} ({}: {cores})", worst.host)
        };
        format!("other processes used {what}: stop them, or repeat the run later")
    };
    worst_host_warning(WarningKind::OtherLoad, machines(seen), share, OTHER_LOAD, text)
}

/// Warns about other programs before a run that is too short to measure them.
pub(super) fn load_before(seen: &Observed) -> Vec<Warning> {
    let warn = |InitialLoad { hosts, load, cores }: &InitialLoad| {
        let text = format!(
            "other processes ran on {hosts} before the first run (load {load:.1} on {cores} cores), and this run is too \
             short to measure them: stop them, then repeat it"
        );
        warning(WarningKind::OtherLoad, format!("hosts {hosts}"), text)
    };
    only_load_before(seen).map(warn).into_iter().collect()
}

pub(super) fn steal(seen: &Observed) -> Vec<Warning> {
    let text = |about: &str, worst: &HostUse, is_one: bool| {
        let taken = percent(stolen(worst));
        let what = if is_one {
            format!("{taken} of {about}'s core time")
        } else {
            format!("up to {taken} ({}) of the core time of {about}", worst.host)
        };
        format!(
            "the hypervisor gave {what} to other virtual machines: use an instance with dedicated cores, or repeat \
             the run"
        )
    };
    worst_host_warning(WarningKind::Steal, machines(seen), stolen, STEAL, text)
}

/// Returns one warning for all `hosts` whose `share` is at least `limit`. `text` receives their names, the worst host,
/// and true if it is the only one.
fn worst_host_warning<'a>(
    kind: WarningKind,
    hosts: impl Iterator<Item = &'a HostUse>,
    share: impl Fn(&HostUse) -> f64,
    limit: f64,
    text: impl Fn(&str, &HostUse, bool) -> String,
) -> Vec<Warning> {
    let found: Vec<&HostUse> = hosts.filter(|host| share(host) >= limit).collect();
    let worst = found.iter().copied().max_by(|one, other| share(one).total_cmp(&share(other)));
    let warn = |worst: &HostUse| {
        let about = hosts_named(&found.iter().map(|host| host.host.as_str()).collect::<Vec<_>>());
        let text = text(&about, worst, found.len() == 1);
        warning(kind, about, text)
    };
    worst.map(warn).into_iter().collect()
}
