//! Findings about hosts, their collector, and the detection of hosts that differ from the others.

use std::collections::HashMap;
use std::hash::Hash;

use ringmark_core::dimension::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use crate::launch::doctor::host::HostFacts;

/// A check. Each is a column of the table, except memory and data, which not every command requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The host accepts ssh without a password.
    Ssh,
    /// mpirun's daemon starts, and Open MPI can distinguish the hosts.
    Mpirun,
    /// The same program is installed and starts.
    Worker,
    /// libtorch, MPI, NCCL, driver and CUDA versions match.
    Versions,
    /// Load of other programs.
    Load,
    /// One device for each rank, all of one model.
    Gpus,
    /// Cores and NUMA nodes that the ranks share.
    Numa,
    /// Governor of the processors' frequency.
    Governor,
    /// Devices are idle, at full clock and without errors.
    GpuState,
    /// Interconnect of the devices.
    Topology,
    /// Memory for the ranks of a sweep.
    Memory,
    /// Limit of locked memory.
    Memlock,
    /// Space in /dev/shm.
    SharedMemory,
    /// Disk space for results and temporary files.
    Disk,
    /// Data that the ranks read.
    Data,
    /// Clock difference.
    Clock,
    /// Network interface in use.
    Interface,
    /// The other hosts are reachable on that interface.
    Links,
    /// Bandwidth of the links.
    Speed,
    /// InfiniBand and RoCE.
    Infiniband,
}

impl Check {
    /// Returns the name in the table and the findings.
    pub fn name(&self) -> &'static str {
        match self {
            Check::Ssh => "ssh",
            Check::Mpirun => "mpirun",
            Check::Worker => "worker",
            Check::Versions => "versions",
            Check::Load => "load",
            Check::Gpus => "GPUs",
            Check::Numa => "NUMA nodes",
            Check::Governor => "governor",
            Check::GpuState => "GPU state",
            Check::Topology => "topology",
            Check::Memory => "memory",
            Check::Memlock => "memlock",
            Check::SharedMemory => "/dev/shm",
            Check::Disk => "disk",
            Check::Data => "data",
            Check::Clock => "clock",
            Check::Interface => "interface",
            Check::Links => "reaches",
            Check::Speed => "slowest link",
            Check::Infiniband => "IB",
        }
    }
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A job would fail, or produce wrong figures.
    Error,
    /// A job would run, but not at its best.
    Warning,
}

/// A problem on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// Index of the host.
    #[serde(skip)]
    pub number: usize,
    /// Name of the host.
    pub host: String,
    /// Check that found it.
    pub check: Check,
    /// Severity of the problem.
    pub severity: Severity,
    /// Description of the problem.
    pub what: String,
    /// Suggested fix.
    pub fix: String,
}

/// Collects findings about hosts by their index.
pub struct Findings<'a> {
    /// All hosts.
    pub hosts: &'a [HostFacts],
    /// Findings in the order in which they were found.
    pub found: Vec<Finding>,
}

impl Findings<'_> {
    /// Starts without findings.
    pub fn new(hosts: &[HostFacts]) -> Findings<'_> {
        Findings { hosts, found: Vec::new() }
    }

    /// Adds an error of host `number`.
    pub fn error(&mut self, number: usize, check: Check, what: impl Into<String>, fix: impl Into<String>) {
        self.add(number, check, Severity::Error, what, fix);
    }

    /// Adds a warning of host `number`.
    pub fn warning(&mut self, number: usize, check: Check, what: impl Into<String>, fix: impl Into<String>) {
        self.add(number, check, Severity::Warning, what, fix);
    }

    /// Adds a finding about host `number`.
    pub fn add(
        &mut self,
        number: usize,
        check: Check,
        severity: Severity,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let host = self.hosts[number].host.clone();
        self.found.push(Finding { number, host, check, severity, what: what.into(), fix: fix.into() });
    }
}

/// Reads a value from each host; returns those found, by host index.
pub fn values<T>(hosts: &[HostFacts], read: impl Fn(&HostFacts) -> Option<T>) -> Vec<(usize, T)> {
    hosts.iter().enumerate().filter_map(|(number, host)| Some((number, read(host)?))).collect()
}

/// A host that differs from most others.
pub struct Outlier<T> {
    /// Index of the host.
    pub number: usize,
    /// Value on this host.
    pub value: T,
    /// Value on most hosts.
    pub usual: T,
    /// Number of hosts with the usual value: `2 of 3 hosts`.
    pub most: String,
}

/// Returns the hosts that differ from the most common value (the first host's value if there is a tie).
pub fn outliers<T: Clone + Eq + Hash>(values: &[(usize, T)]) -> Vec<Outlier<T>> {
    outliers_among(values, "hosts")
}

/// Returns the same for other things than hosts, of which `noun` is the plural.
pub fn outliers_among<T: Clone + Eq + Hash>(values: &[(usize, T)], noun: &str) -> Vec<Outlier<T>> {
    let mut counts: HashMap<&T, usize> = HashMap::new();
    for (_, value) in values {
        *counts.entry(value).or_default() += 1;
    }
    let most = counts.values().copied().max().unwrap_or_default();
    let Some((_, usual)) = values.iter().find(|(_, value)| counts[value] == most) else { return Vec::new() };
    let most = format!("{most} of {} {noun}", values.len());
    let odd = values.iter().filter(|(_, value)| value != usual);
    odd.map(|(number, value)| Outlier {
        number: *number,
        value: value.clone(),
        usual: usual.clone(),
        most: most.clone(),
    })
    .collect()
}

/// Formats a size as `65 MB` or `8 GB`.
pub fn megabytes(bytes: Bytes) -> String {
    match bytes.megabytes() {
        small if small < 1e4 => format!("{small:.0} MB"),
        large => format!("{:.0} GB", large / 1e3),
    }
}
