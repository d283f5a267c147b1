//! Facts about this machine and this process from the kernel and the environment. Independent of MPI and libtorch.
//! Counters, whose differences show activity, are in [`counters`](crate::host::counters).

#![allow(clippy::disallowed_methods, reason = "reads the environment of a rank")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::resource::{UsageWho, getrusage};
use ringmark_core::dimension::Bytes;
use ringmark_core::host::environment::{NUMA, is_allowed};
use ringmark_core::host::kernel_file::{first_line, first_line_with, proc_kilobytes};
use ringmark_core::host::processors;
pub use ringmark_core::host::processors::{allowed_processors, cores};
use xxhash_rust::xxh3::xxh3_64;

/// Returns the value of an environment variable that is set and not empty.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub fn command_line() -> Vec<String> {
    std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

pub fn processor_name() -> String {
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = information.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.to_owned())
}

/// Returns a number that is unique to this process with high probability.
pub fn random_id() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    xxh3_64(&[now.as_nanos().to_le_bytes(), u128::from(std::process::id()).to_le_bytes()].concat())
}

pub fn peak_resident() -> Bytes {
    Bytes(proc_kilobytes("/proc/self/status", "VmHWM:") * 1024)
}

/// Returns the peak memory of the largest child, descendants included, of those that have ended.
pub fn peak_resident_of_children() -> Bytes {
    Bytes(getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| 1024 * usage.max_rss().unsigned_abs()))
}

/// Resets [`peak_resident`] to the memory that is resident now, if the kernel can.
pub fn reset_peak_resident() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Returns this process's rank according to the launcher, for use before MPI is initialized.
pub fn launched_rank() -> u32 {
    const NAMES: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];
    NAMES.iter().find_map(|name| variable(name)?.parse().ok()).unwrap_or(0)
}

pub fn host_name() -> String {
    first_line("/proc/sys/kernel/hostname")
}

/// Returns the kernel's name of a process's program; empty if the process has ended.
pub fn program_of(process: i32) -> String {
    first_line(format!("/proc/{process}/comm"))
}

/// Returns the environment variables that a record may show.
pub fn variables() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| is_allowed(name))
        .collect()
}

/// Returns the environment that this process was started with, without the defaults that it has set for its own libraries.
pub fn first_variables() -> BTreeMap<String, String> {
    let text = fs::read("/proc/self/environ").unwrap_or_default();
    let entry = |entry: &[u8]| {
        let entry = String::from_utf8_lossy(entry).into_owned();
        entry.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    text.split(|byte| *byte == 0).filter_map(entry).collect()
}

/// Returns the names of operating system and kernel.
pub fn system() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("Linux");
    format!("{} {}", name.trim_matches('"'), first_line("/proc/sys/kernel/osrelease"))
}

/// Returns the memory of this machine.
pub fn memory() -> Bytes {
    Bytes(proc_kilobytes("/proc/meminfo", "MemTotal:") * 1024)
}

/// Returns the processors near a GPU in the kernel's format; empty if unknown. `bus_id` is its PCI address in the format
/// of nvidia-smi.
pub fn processors_near(bus_id: &str) -> String {
    let Some((domain, device)) = bus_id.split_once(':') else { return String::new() };
    let domain = u32::from_str_radix(domain, 16).unwrap_or_default();
    first_line(format!("/sys/bus/pci/devices/{domain:04x}:{}/local_cpulist", device.to_lowercase()))
}

/// Returns true if this process was bound to processors when it was started: the program that started it may use others.
pub fn is_bound() -> bool {
    let status = format!("/proc/{}/status", std::os::unix::process::parent_id());
    let of_parent = first_line_with(&status, "Cpus_allowed_list:");
    !of_parent.is_empty() && of_parent != allowed_processors()
}

/// Returns the distances between NUMA nodes and the processors of each, and the threads per core, from the files of
/// `system`; empty if the kernel lists no nodes.
pub fn numa_nodes(system: &Path) -> Vec<String> {
    let line = |path: PathBuf| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let node = |number: u32| {
        let folder = system.join(format!("node/node{number}"));
        Some((format!("node{number}"), line(folder.join("distance"))?, line(folder.join("cpulist"))?))
    };
    let nodes: Vec<(String, String, String)> = processors::numa_nodes(system).into_iter().filter_map(node).collect();
    if nodes.is_empty() {
        return Vec::new();
    }
    let row = |name: String, distances: Vec<String>, processors: &str| {
        let distances: String = distances.iter().map(|distance| format!("{distance:>8}")).collect();
        format!("{name:8}{distances}  {processors}")
    };
    let names = nodes.iter().map(|(name, ..)| name.clone()).collect();
    let mut lines = vec![row(NUMA.to_owned(), names, "processors")];
    lines.extend(nodes.into_iter().map(|(name, distances, processors)| {
        row(name, distances.split_whitespace().map(str::to_owned).collect(), &processors)
    }));
    let siblings = line(system.join("cpu/cpu0/topology/thread_siblings_list"));
    lines.extend(siblings.map(|siblings| format!("processors of core 0: {siblings}")));
    lines
}

/// Returns the lines that a program prints; `None` if it is missing or fails.
pub fn output(program: &str, arguments: &[&str]) -> Option<Vec<String>> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).lines().map(|line| line.trim_end().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn numa_nodes_are_a_matrix() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        };
        assert_eq!(numa_nodes(folder.path()), [""; 0]);
        write("node/node0/distance", "10 21\n");
        write("node/node0/cpulist", "0-15,32-47\n");
        write("node/node1/distance", "21 10\n");
        write("node/node1/cpulist", "16-31,48-63\n");
        write("cpu/cpu0/topology/thread_siblings_list", "0,32\n");
        expect![[r"
            NUMA       node0   node1  processors
            node0         10      21  0-15,32-47
            node1         21      10  16-31,48-63
            processors of core 0: 0,32"]]
        .assert_eq(&numa_nodes(folder.path()).join("\n"));
    }

    #[test]
    fn kernel_tables_are_parsed() {
        assert!(!allowed_processors().is_empty());
    }
}
