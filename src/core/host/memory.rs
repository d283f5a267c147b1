//! Memory that this process may take, as limited by the host and by its control groups, and the kernel's count of
//! processes that it killed for lack of memory.

use std::path::{Path, PathBuf};

use crate::dimension::Bytes;
use crate::host::control_group;
use crate::host::heartbeat::{OutOfMemory, OutOfMemoryCount};
use crate::host::kernel_file::{first_line, first_line_with, proc_kilobytes};

struct FileNames {
    limit: &'static str,
    used: &'static str,
    /// Keys in `memory.stat` of cached files, which the kernel drops when memory is needed.
    reclaimable: [&'static str; 2],
    /// File with the line `oom_kill`.
    kills: &'static str,
}

/// Names of the files of control groups, in version 1 and in version 2.
const FILE_NAMES: [FileNames; 2] = [
    FileNames {
        limit: "memory.limit_in_bytes",
        used: "memory.usage_in_bytes",
        reclaimable: ["total_inactive_file ", "total_active_file "],
        kills: "memory.oom_control",
    },
    FileNames {
        limit: "memory.max",
        used: "memory.current",
        reclaimable: ["inactive_file ", "active_file "],
        kills: "memory.events",
    },
];

const OOM_KILL_KEY: &str = "oom_kill ";

/// Returns the memory that this process may still take: the host's, or less if a control group limits it.
pub fn available() -> Bytes {
    let host = proc_kilobytes("/proc/meminfo", "MemAvailable:") * 1024;
    let left = groups().into_iter().filter_map(|(names, folder)| {
        let reclaimable = names.reclaimable.iter().filter_map(|key| number(&folder, "memory.stat", key)).sum::<u64>();
        Some((limit(names, &folder)? + reclaimable).saturating_sub(number(&folder, names.used, "")?))
    });
    Bytes(left.fold(host, u64::min))
}

/// Returns the memory that this process could take if no other program ran: the host's, or less if a control group limits
/// it.
pub fn total() -> Bytes {
    let host = proc_kilobytes("/proc/meminfo", "MemTotal:") * 1024;
    Bytes(groups().into_iter().filter_map(|(names, folder)| limit(names, &folder)).fold(host, u64::min))
}

/// Returns the size of the last-level cache of the first core; `None` if the kernel does not report it.
pub fn last_level_cache() -> Option<Bytes> {
    let caches = std::fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?.flatten();
    let size = |cache: std::fs::DirEntry| kibibytes(&first_line(cache.path().join("size")));
    caches.filter_map(size).max_by_key(|bytes| bytes.0)
}

/// Parses `2048K`.
fn kibibytes(text: &str) -> Option<Bytes> {
    Some(Bytes(text.strip_suffix('K')?.parse::<u64>().ok()? * 1024))
}

/// Returns the memory of this process that counts against its limit of private memory (`RLIMIT_DATA`), touched or not.
pub fn private() -> Bytes {
    Bytes(proc_kilobytes("/proc/self/status", "VmData:") * 1024)
}

/// Returns the memory of this process that counts against its limit of address space (`RLIMIT_AS`), including shared
/// libraries.
pub fn mapped() -> Bytes {
    Bytes(proc_kilobytes("/proc/self/status", "VmSize:") * 1024)
}

/// Returns the number of processes that the kernel has killed for lack of memory so far, on this host and in this
/// process's control group.
pub fn out_of_memory_kills() -> OutOfMemory {
    let count = |file: PathBuf| {
        let kills = first_line_with(&file, OOM_KILL_KEY).parse().ok()?;
        Some(OutOfMemoryCount { file: file.display().to_string(), kills })
    };
    let groups = groups();
    // The kernel counts in the group of the process itself, which is the innermost.
    let group = groups.iter().find_map(|(names, folder)| count(folder.join(names.kills)));
    let limit = groups.iter().filter_map(|(names, folder)| limit(names, folder)).min().map(Bytes);
    OutOfMemory { host: count(PathBuf::from("/proc/vmstat")), group, limit }
}

/// Returns this process's group and its ancestors, innermost first, as far as they exist.
fn groups() -> Vec<(&'static FileNames, PathBuf)> {
    let folders = control_group::folders(&control_group::list(), "memory").into_iter();
    let with_names = |folder: PathBuf| {
        let names = FILE_NAMES.iter().find(|names| folder.join(names.used).exists())?;
        Some((names, folder))
    };
    folders.filter_map(with_names).collect()
}

/// Returns the limit in bytes; `None` without one, which version 1 represents by a number larger than any host's
/// memory.
fn limit(names: &FileNames, folder: &Path) -> Option<u64> {
    number(folder, names.limit, "").filter(|bytes| *bytes < 1 << 60)
}

/// Returns the number after `key` in a file of a group; an empty `key` reads the first line.
fn number(folder: &Path, file: &str, key: &str) -> Option<u64> {
    let path = folder.join(file).display().to_string();
    let text = if key.is_empty() { first_line(&path) } else { first_line_with(&path, key) };
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_files_are_read() {
        assert_eq!((kibibytes("2048K"), kibibytes("2M"), kibibytes("")), (Some(Bytes(2 << 20)), None, None));
        assert!(available().0 > 0 && private().0 > 0 && mapped().0 > private().0);
        let OutOfMemory { host, .. } = out_of_memory_kills();
        assert_eq!(host.expect("Linux 4.13 or newer").file, "/proc/vmstat");
    }
}
