//! Kernel counters of this process and its machine, and their differences. Their interpretation is in ringmark_core's
//! validity.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ringmark_core::dimension::{Bytes, Seconds};
use ringmark_core::host::kernel_file::first_line;
use ringmark_core::host::{HostUse, RankUse, control_group};

/// Unit of the times that the kernel reports to processes (USER_HZ), regardless of its own.
const TICKS_PER_SECOND: f64 = 100.0;

/// Counters of the whole machine since its start.
pub struct HostCounters {
    cores: u32,
    busy: f64,
    steal: f64,
    pages_from_swap: u64,
    heat_events: Option<u64>,
    clock_mhz: Option<f64>,
}

impl HostCounters {
    pub fn read() -> HostCounters {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let stat = text("/proc/stat");
        let times = core_times(&stat);
        HostCounters {
            cores: stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count() as u32,
            busy: times[..3].iter().sum(),
            steal: times[7],
            pages_from_swap: number_after(&text("/proc/vmstat"), "pswpin").unwrap_or(0),
            heat_events: heat_events(),
            clock_mhz: clock_mhz(),
        }
    }

    /// Returns the differences from here to `later`.
    pub fn until(&self, later: &HostCounters) -> HostUse {
        // Pages of 4 kB; larger pages are not swapped as a whole.
        let pages = later.pages_from_swap.saturating_sub(self.pages_from_swap);
        HostUse {
            // The host name would not do: containers on one machine have different host names.
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

/// Returns the seconds of all cores from the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq,
/// steal. Interrupt times are not counted as busy: the network's are caused by this benchmark.
pub fn core_times(stat: &str) -> [f64; 8] {
    let numbers = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let mut times = [0.0; 8];
    for (time, ticks) in times.iter_mut().zip(numbers) {
        *time = ticks.parse().unwrap_or(0.0) / TICKS_PER_SECOND;
    }
    times
}

/// Returns the number of thermal throttling events of cores and packages, if the kernel counts them (Intel only).
fn heat_events() -> Option<u64> {
    let folders = fs::read_dir("/sys/devices/system/cpu").ok()?.flatten();
    let counts = folders.flat_map(|folder| {
        ["core_throttle_count", "package_throttle_count"]
            .into_iter()
            .filter_map(move |name| number_in(&folder.path().join("thermal_throttle").join(name)))
    });
    counts.fold(None, |sum, count| Some(sum.unwrap_or(0) + count))
}

/// Returns the mean clock of the cores in MHz. Samples at most 16 of them, because some kernels query each core.
pub fn clock_mhz() -> Option<f64> {
    const MAX_SAMPLED_CORES: usize = 16;
    let folders: Vec<_> = fs::read_dir("/sys/devices/system/cpu").ok()?.flatten().collect();
    let some = folders.iter().step_by(folders.len().div_ceil(MAX_SAMPLED_CORES).max(1));
    let scaled = some.filter_map(|folder| number_in(&folder.path().join("cpufreq/scaling_cur_freq")));
    let mut clocks: Vec<f64> = scaled.map(|kilohertz| kilohertz as f64 / 1e3).collect();
    if clocks.is_empty() {
        let table = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let clock = |line: &str| line.strip_prefix("cpu MHz")?.split_once(':')?.1.trim().parse::<f64>().ok();
        clocks = table.lines().filter_map(clock).collect();
    }
    ringmark_core::stats::summary::mean(&clocks)
}

/// Counters of this process since its start.
pub struct RankCounters {
    core_time: f64,
    major_faults: u64,
    /// Seconds of throttling by cgroup file: the process's own group and its ancestors.
    throttled: BTreeMap<PathBuf, f64>,
}

impl RankCounters {
    pub fn read() -> RankCounters {
        let (core_time, major_faults) =
            process_counters(&fs::read_to_string("/proc/self/stat").unwrap_or_default()).unwrap_or_default();
        let groups = control_group::folders(&control_group::list(), "cpu").into_iter();
        let throttled = groups.map(|folder| folder.join("cpu.stat")).filter_map(|file| {
            let seconds = throttled(&fs::read_to_string(&file).ok()?)?;
            Some((file, seconds))
        });
        RankCounters { core_time, major_faults, throttled: throttled.collect() }
    }

    /// Returns the differences from here to `later`.
    pub fn until(&self, later: &RankCounters) -> RankUse {
        // A group that this process was moved to in between has counted earlier times.
        let both = later.throttled.iter().filter_map(|(file, after)| Some(after - self.throttled.get(file)?));
        RankUse {
            core_time: Seconds((later.core_time - self.core_time).max(0.0)),
            major_faults: later.major_faults.saturating_sub(self.major_faults),
            throttled: both.reduce(f64::max).map(|seconds| Seconds(seconds.max(0.0))),
            gpu: None,
        }
    }
}

/// Returns core time in seconds and major faults from /proc/self/stat: fields 14 (utime) and 15 (stime), 16 and 17 of
/// children that have ended, and 12 (majflt), counted from 1. Field 2, the name in parentheses, may contain any text. Threads that have ended are included.
fn process_counters(stat: &str) -> Option<(f64, u64)> {
    let (_, fields) = stat.rsplit_once(") ")?;
    // The first of these is field 3.
    let field = |number: usize| fields.split(' ').nth(number - 3)?.parse::<u64>().ok();
    let ticks: u64 = (14..=17).map(field).sum::<Option<u64>>()?;
    Some((ticks as f64 / TICKS_PER_SECOND, field(12)?))
}

/// Returns the seconds of throttling in a group's cpu.stat: nanoseconds in version 1, microseconds in version 2.
fn throttled(stat: &str) -> Option<f64> {
    let nanoseconds = number_after(stat, "throttled_time").map(|time| time as f64 / 1e9);
    nanoseconds.or_else(|| Some(number_after(stat, "throttled_usec")? as f64 / 1e6))
}

pub fn number_in(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the number in the line `name number` of a table.
fn number_after(table: &str, name: &str) -> Option<u64> {
    table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn core_times_include_all_cores() {
        let times = core_times("cpu  200 100 50 1000 7 1 2 30 0 0\ncpu0 100 50 25 500 3 1 1 15 0 0\n");
        assert_eq!(times, [2.0, 1.0, 0.5, 10.0, 0.07, 0.01, 0.02, 0.3]);
        assert_eq!(core_times(""), [0.0; 8]);
    }

    #[test]
    fn process_counters_accept_any_name() {
        let stat = "4711 (a) b) (c) S 1 4711 4711 0 -1 4194560 5000 0 12 0 250 50 9 9 20 0 3 0 100 0 0";
        assert_eq!(process_counters(stat), Some((3.18, 12)));
        assert_eq!(process_counters("4711"), None);
    }

    #[test]
    fn throttled_time_is_read_from_cgroup_v1_and_v2() {
        assert_eq!(throttled("nr_periods 10\nnr_throttled 5\nthrottled_time 2500000000\n"), Some(2.5));
        assert_eq!(throttled("usage_usec 7\nnr_throttled 5\nthrottled_usec 2500000\n"), Some(2.5));
        assert_eq!(throttled("usage_usec 7\n"), None);
    }

    #[test]
    fn throttled_time_counts_from_the_first_reading() {
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
    fn own_work_counts_for_process_and_host() {
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
