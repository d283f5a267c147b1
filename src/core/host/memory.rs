//! Memory that this process may take: the host's, and its control group's where that has a limit; and what the kernel counts
//! of processes that it ended for want of memory.

use std::path::{Path, PathBuf};

use crate::dimension::Bytes;
use crate::host::control_group;
use crate::host::heartbeat::{OutOfMemory, OutOfMemoryCount};
use crate::host::kernel_file::{first_line, first_line_with, proc_kilobytes};

/// What the files of a version of control groups are called.
struct Names {
    limit: &'static str,
    used: &'static str,
    /// Of `memory.stat`: files that the kernel keeps only while nobody needs the memory.
    kept: [&'static str; 2],
    /// The file with the line `oom_kill`.
    kills: &'static str,
}

/// In version 1 and in version 2.
const NAMES: [Names; 2] = [
    Names {
        limit: "memory.limit_in_bytes",
        used: "memory.usage_in_bytes",
        kept: ["total_inactive_file ", "total_active_file "],
        kills: "memory.oom_control",
    },
    Names {
        limit: "memory.max",
        used: "memory.current",
        kept: ["inactive_file ", "active_file "],
        kills: "memory.events",
    },
];

/// The key of the kernel's counter, in each of its files.
const KILLS: &str = "oom_kill ";

/// Memory that this process may still take: the host's, or less where a control group says so.
pub fn available() -> Bytes {
    let host = proc_kilobytes("/proc/meminfo", "MemAvailable:") * 1024;
    let left = groups().into_iter().filter_map(|(names, folder)| {
        let kept = names.kept.iter().filter_map(|key| number(&folder, "memory.stat", key)).sum::<u64>();
        Some((limit(names, &folder)? + kept).saturating_sub(number(&folder, names.used, "")?))
    });
    Bytes(left.fold(host, u64::min))
}

/// What of this process's own counts against its limit of private memory (`RLIMIT_DATA`), touched or not.
pub fn private() -> Bytes {
    Bytes(proc_kilobytes("/proc/self/status", "VmData:") * 1024)
}

/// What of this process's own counts against its limit of address space (`RLIMIT_AS`), shared libraries included.
pub fn mapped() -> Bytes {
    Bytes(proc_kilobytes("/proc/self/status", "VmSize:") * 1024)
}

/// How many processes the kernel has ended for want of memory so far, on this host and in this process's control group.
pub fn ended_for_want_of_it() -> OutOfMemory {
    let count = |file: PathBuf| {
        let kills = first_line_with(&file.display().to_string(), KILLS).parse().ok()?;
        Some(OutOfMemoryCount { file: file.display().to_string(), kills })
    };
    let groups = groups();
    // The kernel counts in the group of the process itself, which is the innermost.
    let group = groups.iter().find_map(|(names, folder)| count(folder.join(names.kills)));
    let limit = groups.iter().filter_map(|(names, folder)| limit(names, folder)).min().map(Bytes);
    OutOfMemory { host: count(PathBuf::from("/proc/vmstat")), group, limit }
}

/// This process's group and those around it, innermost first, as far as they are there.
fn groups() -> Vec<(&'static Names, PathBuf)> {
    let folders = control_group::folders(&control_group::list(), "memory").into_iter();
    let with_names = |folder: PathBuf| {
        let names = NAMES.iter().find(|names| folder.join(names.used).exists())?;
        Some((names, folder))
    };
    folders.filter_map(with_names).collect()
}

/// In bytes; `None` without a limit. Version 1 says so by a number that no host has.
fn limit(names: &Names, folder: &Path) -> Option<u64> {
    number(folder, names.limit, "").filter(|bytes| *bytes < 1 << 60)
}

/// What stands behind `key` in a file of a group; its first line without one.
fn number(folder: &Path, file: &str, key: &str) -> Option<u64> {
    let path = folder.join(file).display().to_string();
    let text = if key.is_empty() { first_line(&path) } else { first_line_with(&path, key) };
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_files_are_read() {
        assert!(available().0 > 0 && private().0 > 0 && mapped().0 > private().0);
        let OutOfMemory { host, .. } = ended_for_want_of_it();
        assert_eq!(host.expect("Linux 4.13 or newer").file, "/proc/vmstat");
    }
}
