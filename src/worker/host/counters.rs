//! What this rank and its host do while the iterations run: counters of kernel and driver, read before and after the timed
//! loop and never in it. Not for judging them: that is ringmark_record's validity.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{fs, iter};

use anyhow::{Context, Result};
use ringmark_record::environment::DeviceKind;
use ringmark_record::host_use::{GpuUse, HostUse, RankUse};
use ringmark_record::units::{Bytes, Seconds};
use serde::{Deserialize, Serialize};

use crate::host::facts::{self, first_line, output};
use crate::job::device::DeviceOfRank;
use crate::job::world::World;

/// The kernel tells processes in these, whatever it counts in itself.
const TICKS_PER_SECOND: f64 = 100.0;

/// The first look, taken.
pub struct HostWatch {
    gpu: Option<GpuLook>,
    looked: Instant,
    host: HostCounters,
    rank: RankCounters,
}

impl HostWatch {
    /// Looks for the first time; all ranks call this together, right before the timed loop.
    pub fn start(world: &World, own: &DeviceOfRank) -> HostWatch {
        let gpu = GpuLook::take(own);
        // What others still look for is not yet load.
        world.patient_barrier();
        HostWatch { gpu, looked: Instant::now(), host: HostCounters::read(), rank: RankCounters::read() }
    }

    /// Looks again, right after the timed loop: what every host and every rank did in between.
    pub fn end(self, world: &World, own: &DeviceOfRank) -> Result<(Vec<HostUse>, Vec<RankUse>)> {
        // A host's counters hold all its ranks: all of them are read at one time.
        world.patient_barrier();
        let (elapsed, host, rank) = (self.looked.elapsed(), HostCounters::read(), RankCounters::read());
        world.patient_barrier();
        let gpu = self.gpu.zip(GpuLook::take(own)).map(|(before, after)| before.until(&after));
        let cores_of_ranks = facts::cores_of_ranks(world);
        let card = Card {
            host: (world.local_rank() == 0).then(|| HostUse {
                host: world.host().to_owned(),
                cores_of_ranks,
                elapsed: Seconds(elapsed.as_secs_f64()),
                ..self.host.until(&host)
            }),
            rank: RankUse { gpu, ..self.rank.until(&rank) },
        };
        let cards = world.gather_text(&serde_json::to_string(&card)?);
        let cards: Vec<Card> = cards
            .iter()
            .map(|card| serde_json::from_str(card))
            .collect::<Result<_, _>>()
            .context("counters of a rank")?;
        let (hosts, ranks): (Vec<Option<HostUse>>, Vec<RankUse>) =
            cards.into_iter().map(|card| (card.host, card.rank)).unzip();
        Ok((hosts.into_iter().flatten().collect(), ranks))
    }
}

/// What a rank tells the others.
#[derive(Serialize, Deserialize)]
struct Card {
    /// From the first rank of every host.
    host: Option<HostUse>,
    rank: RankUse,
}

/// Of the whole machine, since it started.
struct HostCounters {
    cores: u32,
    busy: f64,
    steal: f64,
    pages_from_swap: u64,
    heat_events: Option<u64>,
    clock_mhz: Option<f64>,
}

impl HostCounters {
    fn read() -> HostCounters {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let stat = text("/proc/stat");
        let times = core_times(&stat);
        HostCounters {
            cores: stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count() as u32,
            busy: times[..3].iter().sum(),
            steal: times[7],
            pages_from_swap: number_behind(&text("/proc/vmstat"), "pswpin").unwrap_or(0),
            heat_events: heat_events(),
            clock_mhz: clock_mhz(),
        }
    }

    fn until(&self, later: &HostCounters) -> HostUse {
        // Pages of 4 kB: larger ones are not swapped whole.
        let pages = later.pages_from_swap.saturating_sub(self.pages_from_swap);
        HostUse {
            // Not the host's name: containers of one machine have names of their own.
            machine: first_line("/proc/sys/kernel/random/boot_id").chars().take(8).collect(),
            cores: later.cores,
            busy: Seconds((later.busy - self.busy).max(0.0)),
            steal: Seconds((later.steal - self.steal).max(0.0)),
            swapped_in: Bytes(pages * 4096),
            heat_events: self.heat_events.zip(later.heat_events).map(|(before, after)| after.saturating_sub(before)),
            clock_mhz: self.clock_mhz.zip(later.clock_mhz).map(|(before, after)| [before, after]),
            ..HostUse::default()
        }
    }
}

/// Seconds of all cores, from the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal. Times of
/// interrupts are nobody's: the network's are ours.
fn core_times(stat: &str) -> [f64; 8] {
    let numbers = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let mut times = [0.0; 8];
    for (time, ticks) in times.iter_mut().zip(numbers) {
        *time = ticks.parse().unwrap_or(0.0) / TICKS_PER_SECOND;
    }
    times
}

/// How often cores and packages were slowed for heat, where the kernel counts it (Intel's).
fn heat_events() -> Option<u64> {
    let folders = fs::read_dir("/sys/devices/system/cpu").ok()?.flatten();
    let counts = folders.flat_map(|folder| {
        ["core_throttle_count", "package_throttle_count"]
            .into_iter()
            .filter_map(move |name| number_in(&folder.path().join("thermal_throttle").join(name)))
    });
    counts.fold(None, |sum, count| Some(sum.unwrap_or(0) + count))
}

/// Mean over the cores.
fn clock_mhz() -> Option<f64> {
    let folders = fs::read_dir("/sys/devices/system/cpu").ok()?.flatten();
    let scaled = folders.filter_map(|folder| number_in(&folder.path().join("cpufreq/scaling_cur_freq")));
    let mut clocks: Vec<f64> = scaled.map(|kilohertz| kilohertz as f64 / 1e3).collect();
    if clocks.is_empty() {
        let table = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let clock = |line: &str| line.strip_prefix("cpu MHz")?.split_once(':')?.1.trim().parse::<f64>().ok();
        clocks = table.lines().filter_map(clock).collect();
    }
    ringmark_record::stats::summary::mean(&clocks)
}

/// Of this process, since it started.
struct RankCounters {
    core_time: f64,
    major_faults: u64,
    /// Seconds for which each group was held back, by its file: the process's own and those above.
    throttled: BTreeMap<PathBuf, f64>,
}

impl RankCounters {
    fn read() -> RankCounters {
        let (core_time, major_faults) =
            process_counters(&fs::read_to_string("/proc/self/stat").unwrap_or_default()).unwrap_or_default();
        let groups = control_groups(&fs::read_to_string("/proc/self/cgroup").unwrap_or_default());
        let throttled = groups.into_iter().filter_map(|file| {
            let seconds = throttled(&fs::read_to_string(&file).ok()?)?;
            Some((file, seconds))
        });
        RankCounters { core_time, major_faults, throttled: throttled.collect() }
    }

    fn until(&self, later: &RankCounters) -> RankUse {
        // A group that this process was moved to in between tells of times before.
        let both = later.throttled.iter().filter_map(|(file, after)| Some(after - self.throttled.get(file)?));
        RankUse {
            core_time: Seconds((later.core_time - self.core_time).max(0.0)),
            major_faults: later.major_faults.saturating_sub(self.major_faults),
            throttled: both.reduce(f64::max).map(|seconds| Seconds(seconds.max(0.0))),
            gpu: None,
        }
    }
}

/// Core time in seconds and major faults, from /proc/self/stat: fields 14 (utime), 15 (stime) and 12 (majflt), counted from 1,
/// behind a name in brackets that may hold anything. Threads that have ended are in them.
fn process_counters(stat: &str) -> Option<(f64, u64)> {
    let (_, fields) = stat.rsplit_once(") ")?;
    // The first of these is field 3.
    let field = |number: usize| fields.split(' ').nth(number - 3)?.parse::<u64>().ok();
    Some(((field(14)? + field(15)?) as f64 / TICKS_PER_SECOND, field(12)?))
}

/// Where the CPU times of this process's control group and of those above may be, for both versions of control groups.
fn control_groups(own: &str) -> Vec<PathBuf> {
    const MOUNTED: [&str; 5] = [
        "/sys/fs/cgroup",
        "/sys/fs/cgroup/unified",
        "/sys/fs/cgroup/cpu",
        "/sys/fs/cgroup/cpu,cpuacct",
        "/sys/fs/cgroup/cpuacct,cpu",
    ];
    let mut files = Vec::new();
    for line in own.lines() {
        // `0::/path` of version 2, `4:cpu,cpuacct:/path` of version 1.
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let mounts = match controllers {
            "" => &MOUNTED[..2],
            _ if controllers.split(',').any(|name| name == "cpu") => &MOUNTED[2..],
            _ => continue,
        };
        let groups = iter::successors(Some(Path::new(path)), |group| group.parent());
        // The folder itself is the group's own where a container sees no more than that.
        files.extend(groups.flat_map(|group| {
            let below = group.strip_prefix("/").unwrap_or(group);
            mounts.iter().map(move |mount| Path::new(mount).join(below).join("cpu.stat"))
        }));
    }
    files
}

/// Seconds for which a group was held back, from its cpu.stat: nanoseconds in version 1, microseconds in version 2.
fn throttled(stat: &str) -> Option<f64> {
    let nanoseconds = number_behind(stat, "throttled_time").map(|time| time as f64 / 1e9);
    nanoseconds.or_else(|| Some(number_behind(stat, "throttled_usec")? as f64 / 1e6))
}

/// nvidia-smi's word on one GPU.
struct GpuLook {
    clock_mhz: f64,
    highest_clock_mhz: f64,
    temperature: f64,
    reasons: u64,
    /// Seconds since the driver started; `None` where it does not count them.
    slowed_for_heat: Option<f64>,
}

impl GpuLook {
    /// `None` on the CPU, and where nvidia-smi is missing, does not answer, or does not know the GPU.
    fn take(own: &DeviceOfRank) -> Option<GpuLook> {
        if own.kind == DeviceKind::Cpu {
            return None;
        }
        let bus_id = own.bus_id.as_deref()?;
        let ask = |fields: &str| -> Option<String> {
            let query = [format!("--query-gpu={fields}"), "--format=csv,noheader,nounits".to_owned()];
            // A broken GPU makes it wait for minutes.
            let words = ["20", "nvidia-smi", "-i", bus_id, &query[0], &query[1]];
            output("timeout", &words)?.into_iter().next()
        };
        let look = GpuLook::parse(&ask("clocks.sm,clocks.max.sm,temperature.gpu,clocks_throttle_reasons.active")?)?;
        // A driver that does not know these fields refuses the whole question.
        let counters =
            "clocks_event_reasons_counters.sw_thermal_slowdown,clocks_event_reasons_counters.hw_thermal_slowdown";
        Some(GpuLook { slowed_for_heat: ask(counters).and_then(|line| sum_of_microseconds(&line)), ..look })
    }

    /// `1980, 1980, 41, 0x0000000000000001`.
    fn parse(line: &str) -> Option<GpuLook> {
        let mut fields = line.split(',').map(str::trim);
        let mut number = || fields.next()?.parse::<f64>().ok();
        let (clock_mhz, highest_clock_mhz, temperature) = (number()?, number()?, number()?);
        let reasons = u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok()?;
        Some(GpuLook { clock_mhz, highest_clock_mhz, temperature, reasons, slowed_for_heat: None })
    }

    fn until(&self, later: &GpuLook) -> GpuUse {
        let slowed = self.slowed_for_heat.zip(later.slowed_for_heat);
        GpuUse {
            clock_mhz: [self.clock_mhz, later.clock_mhz],
            highest_clock_mhz: later.highest_clock_mhz,
            temperature: [self.temperature, later.temperature],
            reasons: [self.reasons, later.reasons],
            slowed_for_heat: slowed.map(|(before, after)| Seconds((after - before).max(0.0))),
        }
    }
}

/// `120, 3000000`; with or without the unit, in seconds.
fn sum_of_microseconds(line: &str) -> Option<f64> {
    let number = |word: &str| word.trim().trim_end_matches(" us").parse::<f64>().ok();
    Some(line.split(',').map(number).collect::<Option<Vec<f64>>>()?.iter().sum::<f64>() / 1e6)
}

fn number_in(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number in the line `name number` of a table.
fn number_behind(table: &str, name: &str) -> Option<u64> {
    table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_times_are_those_of_all_cores() {
        let times = core_times("cpu  200 100 50 1000 7 1 2 30 0 0\ncpu0 100 50 25 500 3 1 1 15 0 0\n");
        assert_eq!(times, [2.0, 1.0, 0.5, 10.0, 0.07, 0.01, 0.02, 0.3]);
        assert_eq!(core_times(""), [0.0; 8]);
    }

    #[test]
    fn a_process_is_read_whatever_it_is_called() {
        let stat = "4711 (a) b) (c) S 1 4711 4711 0 -1 4194560 5000 0 12 0 250 50 9 9 20 0 3 0 100 0 0";
        assert_eq!(process_counters(stat), Some((3.0, 12)));
        assert_eq!(process_counters("4711"), None);
    }

    #[test]
    fn groups_of_both_versions_are_found_up_to_the_root() {
        let files =
            |own: &str| -> Vec<String> { control_groups(own).iter().map(|file| file.display().to_string()).collect() };
        let second = files("0::/a/b\n");
        assert_eq!(second.len(), 6);
        assert!(second.contains(&"/sys/fs/cgroup/a/b/cpu.stat".to_owned()), "{second:?}");
        assert!(second.contains(&"/sys/fs/cgroup/cpu.stat".to_owned()), "{second:?}");
        let first = files("5:memory:/m\n4:cpu,cpuacct:/a\n1:name=systemd:/\n");
        assert!(first.contains(&"/sys/fs/cgroup/cpu,cpuacct/a/cpu.stat".to_owned()), "{first:?}");
        assert!(first.contains(&"/sys/fs/cgroup/cpu/cpu.stat".to_owned()) && first.len() == 6, "{first:?}");
        assert!(files("").is_empty());

        assert_eq!(throttled("nr_periods 10\nnr_throttled 5\nthrottled_time 2500000000\n"), Some(2.5));
        assert_eq!(throttled("usage_usec 7\nnr_throttled 5\nthrottled_usec 2500000\n"), Some(2.5));
        assert_eq!(throttled("usage_usec 7\n"), None);
    }

    #[test]
    fn a_group_counts_from_the_first_look_on() {
        let counters = |groups: &[(&str, f64)]| RankCounters {
            core_time: 0.0,
            major_faults: 0,
            throttled: groups.iter().map(|(file, seconds)| (PathBuf::from(file), *seconds)).collect(),
        };
        let before = counters(&[("/a", 10.0), ("/", 1.0)]);
        let throttled = |after: &RankCounters| before.until(after).throttled;
        assert_eq!(throttled(&counters(&[("/a", 12.5), ("/", 1.0)])), Some(Seconds(2.5)));
        assert_eq!(throttled(&counters(&[("/new", 12.5), ("/", 1.0)])), Some(Seconds(0.0)));
        assert_eq!(throttled(&counters(&[])), None);
    }

    #[test]
    fn what_nvidia_smi_says_is_read_and_what_it_does_not_know_is_not() {
        let look = GpuLook::parse("1755, 1980, 71, 0x0000000000000024").expect("a line");
        assert_eq!(
            (look.clock_mhz, look.highest_clock_mhz, look.temperature, look.reasons),
            (1755.0, 1980.0, 71.0, 0x24)
        );
        assert!(GpuLook::parse("[N/A], 1980, 71, 0x0").is_none());
        assert!(GpuLook::parse("").is_none());
        assert_eq!(sum_of_microseconds("120, 3000000"), Some(3.00012));
        assert_eq!(sum_of_microseconds("120 us, 80 us"), Some(0.0002));
        assert_eq!(sum_of_microseconds("[N/A], 80"), None);
    }

    /// This process and its host, for real.
    #[test]
    fn work_of_this_process_is_counted_to_it_and_to_the_host() {
        let (host, rank, start) = (HostCounters::read(), RankCounters::read(), Instant::now());
        let mut sum = 0u64;
        while RankCounters::read().core_time - rank.core_time < 0.3 && start.elapsed().as_secs() < 60 {
            sum = (0..1_000_000).fold(sum, u64::wrapping_add);
        }
        assert!(sum > 0);
        let (used, host) = (rank.until(&RankCounters::read()), host.until(&HostCounters::read()));
        assert!(used.core_time.0 >= 0.3, "{used:?}");
        assert!(host.busy.0 > 0.2 && host.cores > 0 && !host.machine.is_empty(), "{host:?}");
    }
}
