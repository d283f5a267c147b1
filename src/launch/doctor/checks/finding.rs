//! What is wrong with a host, and the collector of such findings; which hosts differ from the others.

use std::collections::HashMap;
use std::hash::Hash;

use ringmark_core::dimension::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use crate::launch::doctor::host::HostFacts;

/// What is looked at; a column of the table each, but for the memory and the data that not every command asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The host answers ssh, without a password.
    Ssh,
    /// mpirun's daemon can be started, and Open MPI can keep the hosts apart.
    Mpirun,
    /// The same program is there and starts.
    Worker,
    /// libtorch, MPI, NCCL, driver and CUDA are the same.
    Versions,
    /// What else runs there.
    Load,
    /// As many devices as ranks, of one kind.
    Gpus,
    /// Free, at full clock, without errors.
    GpuState,
    /// How the devices are wired.
    Topology,
    /// Memory for the ranks of a sweep.
    Memory,
    /// Memory that may be locked.
    Memlock,
    /// /dev/shm.
    SharedMemory,
    /// Disk space for results and temporary files.
    Disk,
    /// The data that ranks read.
    Data,
    /// The time.
    Clock,
    /// The network interface that is used.
    Interface,
    /// The other hosts are reached on it.
    Links,
    /// How much it carries.
    Speed,
    /// InfiniBand and RoCE.
    Infiniband,
}

impl Check {
    /// As the table and the findings call it.
    pub fn name(&self) -> &'static str {
        match self {
            Check::Ssh => "ssh",
            Check::Mpirun => "mpirun",
            Check::Worker => "worker",
            Check::Versions => "versions",
            Check::Load => "load",
            Check::Gpus => "GPUs",
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

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A job would fail, or say something untrue.
    Error,
    /// It would run, not as well as it could.
    Warning,
}

/// Something that is wrong with a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// The host's number.
    #[serde(skip)]
    pub number: usize,
    /// Its name.
    pub host: String,
    /// What was looked at.
    pub check: Check,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub fix: String,
}

/// Collects findings about hosts by their numbers.
pub struct Findings<'a> {
    /// All of them.
    pub hosts: &'a [HostFacts],
    /// In the order in which they were found.
    pub found: Vec<Finding>,
}

impl Findings<'_> {
    /// None yet.
    pub fn new(hosts: &[HostFacts]) -> Findings<'_> {
        Findings { hosts, found: Vec::new() }
    }

    /// An error of host `number`.
    pub fn error(&mut self, number: usize, check: Check, what: impl Into<String>, fix: impl Into<String>) {
        self.add(number, check, Severity::Error, what, fix);
    }

    /// A warning of host `number`.
    pub fn warning(&mut self, number: usize, check: Check, what: impl Into<String>, fix: impl Into<String>) {
        self.add(number, check, Severity::Warning, what, fix);
    }

    /// A finding about host `number`.
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

/// What each host has, by its number, of those that have it.
pub fn values<T>(hosts: &[HostFacts], read: impl Fn(&HostFacts) -> Option<T>) -> Vec<(usize, T)> {
    hosts.iter().enumerate().filter_map(|(number, host)| Some((number, read(host)?))).collect()
}

/// A host that has something else than most.
pub struct OddOne<T> {
    /// The host's number.
    pub number: usize,
    /// What it has.
    pub own: T,
    /// What most have.
    pub usual: T,
    /// How many have that: `2 of 3 hosts`.
    pub most: String,
}

/// Whoever differs from what most have (the first's, where it is even).
pub fn odd_ones<T: Clone + Eq + Hash>(values: &[(usize, T)]) -> Vec<OddOne<T>> {
    let mut counts: HashMap<&T, usize> = HashMap::new();
    for (_, value) in values {
        *counts.entry(value).or_default() += 1;
    }
    let most = counts.values().copied().max().unwrap_or_default();
    let Some((_, usual)) = values.iter().find(|(_, value)| counts[value] == most) else { return Vec::new() };
    let most = format!("{most} of {} hosts", values.len());
    let odd = values.iter().filter(|(_, value)| value != usual);
    odd.map(|(number, own)| OddOne { number: *number, own: own.clone(), usual: usual.clone(), most: most.clone() })
        .collect()
}

/// `65 MB`, `8 GB`.
pub fn megabytes(bytes: Bytes) -> String {
    match bytes.megabytes() {
        small if small < 1e4 => format!("{small:.0} MB"),
        large => format!("{:.0} GB", large / 1e3),
    }
}
