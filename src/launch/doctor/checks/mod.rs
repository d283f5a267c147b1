//! What is wrong with the hosts, from what was found on them. Pure: facts in, findings out, each with its cure.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::Path;

use ringmark_record::config::DeviceChoice;
use ringmark_record::inspection::{Inspection, Library};
use ringmark_record::units::{Bytes, GigabytesPerSecond};
use serde::Serialize;

use crate::launch::cluster::interface::CommonNetwork;
use crate::launch::doctor::host::HostFacts;
use crate::launch::doctor::links::{self, Outcome, Way};
use crate::launch::doctor::probe::{Gpu, Gpus, Port, Probe, WorkerFile};

/// A clock that is further off makes times of different hosts incomparable.
const CLOCK_SECONDS: f64 = 1.0;

/// ssh to a host of the same network takes a small part of this.
const SSH_SECONDS: f64 = 5.0;

/// /dev/shm for each rank: NCCL's buffers on a GPU, Open MPI's queues without.
const SHARED_MEMORY: (Bytes, Bytes) = (Bytes(64 << 20), Bytes(16 << 20));

/// Disk for results below which there is a warning, and an error: records are megabytes.
const RESULTS_SPACE: (Bytes, Bytes) = (Bytes(1_000_000_000), Bytes(20_000_000));

/// Disk for Open MPI's session.
const TEMPORARY_SPACE: Bytes = Bytes(50_000_000);

/// GPU memory that may be taken with nobody on the device: the driver's own.
const IDLE_MEMORY: Bytes = Bytes(1_500_000_000);

/// A GPU that is at work and below this share of its highest clock is slow.
const CLOCK_SHARE: f64 = 0.9;

/// NVML's bits for a lower clock.
const SLOW_REASONS: [(u64, &str, &str); 6] = [
    (0x2, "an application clock is set", "nvidia-smi -rac"),
    (0x4, "power cap", "raise the limit (nvidia-smi -pl), or compare only with devices of the same limit"),
    (0x8, "hardware slowdown", "see to its cooling and power supply: nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER"),
    (0x20, "too hot (software slowdown)", "see to its cooling: nvidia-smi -q -d TEMPERATURE"),
    (0x40, "too hot (hardware slowdown)", "see to its cooling: nvidia-smi -q -d TEMPERATURE"),
    (0x80, "power brake", "see to the power supply of the chassis: nvidia-smi -q -d POWER"),
];

/// What is looked at; a column of the table each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The host answers ssh, without a password.
    Ssh,
    /// mpirun's daemon can be started, and Open MPI can tell the hosts apart.
    Mpirun,
    /// The same program is there and starts.
    Worker,
    /// libtorch, MPI, NCCL, driver and CUDA are the same.
    Versions,
    /// As many devices as ranks, of one kind.
    Gpus,
    /// Free, at full clock, without errors.
    GpuState,
    /// How the devices are wired.
    Topology,
    /// Memory that may be locked.
    Memlock,
    /// /dev/shm.
    SharedMemory,
    /// Room for results and temporary files.
    Disk,
    /// The time.
    Clock,
    /// The network interface that is used.
    Interface,
    /// The other hosts are reached on it.
    Peers,
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
            Check::Gpus => "GPUs",
            Check::GpuState => "GPU state",
            Check::Topology => "topology",
            Check::Memlock => "memlock",
            Check::SharedMemory => "/dev/shm",
            Check::Disk => "disk",
            Check::Clock => "clock",
            Check::Interface => "interface",
            Check::Peers => "reaches",
            Check::Speed => "slowest way",
            Check::Infiniband => "IB",
        }
    }
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A job would fail, or say something untrue.
    Error,
    /// It would run, not as well as it could.
    Warning,
}

/// Something that is wrong with a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    pub cure: String,
}

/// What the facts are judged by.
pub struct Asked<'a> {
    /// Path of the worker.
    pub worker: &'a Path,
    /// What the ranks are to use.
    pub device: DeviceChoice,
    /// Folder of the results, where there is to be one.
    pub results: Option<&'a Path>,
    /// Whether that folder is on this machine already.
    pub has_results: bool,
}

/// Collects findings about hosts by their numbers.
struct Findings<'a> {
    hosts: &'a [HostFacts],
    found: Vec<Finding>,
}

impl Findings<'_> {
    fn add(
        &mut self,
        number: usize,
        check: Check,
        severity: Severity,
        what: impl Into<String>,
        cure: impl Into<String>,
    ) {
        let host = self.hosts[number].host.clone();
        self.found.push(Finding { number, host, check, severity, what: what.into(), cure: cure.into() });
    }
}

/// Everything but the ways between the hosts; in the order of the checks, then of the hosts.
pub fn of_hosts(hosts: &[HostFacts], asked: &Asked) -> Vec<Finding> {
    let mut findings = Findings { hosts, found: Vec::new() };
    check_ssh(&mut findings);
    check_mpirun(&mut findings);
    check_worker(&mut findings, asked.worker);
    check_versions(&mut findings);
    if asked.device != DeviceChoice::Cpu {
        check_gpus(&mut findings, asked.device);
        check_gpu_state(&mut findings);
        check_topology(&mut findings);
    }
    check_processors(&mut findings, asked.device);
    check_memory(&mut findings);
    check_disk(&mut findings, asked);
    check_clock(&mut findings);
    check_infiniband(&mut findings);
    findings.found
}

fn check_ssh(findings: &mut Findings) {
    for (number, host) in findings.hosts.iter().enumerate() {
        if let Some(refusal) = &host.refusal {
            findings.add(number, Check::Ssh, Severity::Error, &refusal.what, &refusal.cure);
        }
        if let Some(warning) = &host.warning {
            findings.add(number, Check::Ssh, Severity::Warning, &warning.what, &warning.cure);
        }
        if let Some(last) = host.probe.as_ref().and_then(|probe| probe.stopped_after.as_ref()) {
            let what = format!("it stops answering after {last}: what it is asked next hangs");
            let cure = "log in and see which of df, ompi_info and nvidia-smi hangs: a file system that does not answer does so";
            findings.add(number, Check::Ssh, Severity::Error, what, cure);
        }
        if let Some(time) = host.ssh.filter(|time| time.0 > SSH_SECONDS) {
            let what = format!("ssh takes {time:.1} to come through, and every launch waits for it");
            let cure = "look for a name server that does not answer (UseDNS no), or a slow start-up file of the shell";
            findings.add(number, Check::Ssh, Severity::Warning, what, cure);
        }
    }
}

fn check_mpirun(findings: &mut Findings) {
    let mut names: HashMap<&str, usize> = HashMap::new();
    for (number, host) in findings.hosts.iter().enumerate() {
        let Some(probe) = &host.probe else { continue };
        if !probe.orted && !host.is_here {
            let what = "a command run by ssh does not find orted there, which mpirun starts on every host";
            let cure =
                "install Open MPI there (scripts/setup.sh), or add its bin to the PATH that a shell without login has";
            findings.add(number, Check::Mpirun, Severity::Error, what, cure);
        }
        match names.get(probe.name.as_str()) {
            Some(first) => {
                let first = &findings.hosts[*first].host;
                let what =
                    format!("it calls itself {}, as {first} does: Open MPI takes the two for one host", probe.name);
                let cure =
                    "give each host a name of its own (hostnamectl set-hostname); if it is one host, name it once";
                findings.add(number, Check::Mpirun, Severity::Error, what, cure);
            }
            None => {
                names.insert(&probe.name, number);
            }
        }
    }
    let versions =
        values(findings.hosts, |host| Some(host.probe.as_ref()?.mpirun.clone()).filter(|text| !text.is_empty()));
    for (number, version, usual, share) in odd_ones(&versions) {
        let what = format!("it has {version}, {share} have {usual}");
        findings.add(
            number,
            Check::Mpirun,
            Severity::Error,
            what,
            "install the same Open MPI on all hosts (scripts/setup.sh)",
        );
    }
}

fn check_worker(findings: &mut Findings, worker: &Path) {
    const COPY: &str = "copy the program there, to the same path: a shared folder, or --sync";
    let worker = worker.display();
    for (number, host) in findings.hosts.iter().enumerate() {
        let Some(probe) = &host.probe else { continue };
        match probe.worker {
            WorkerFile::Missing => {
                findings.add(number, Check::Worker, Severity::Error, format!("there is no {worker}"), COPY);
            }
            WorkerFile::Refused => {
                findings.add(
                    number,
                    Check::Worker,
                    Severity::Error,
                    format!("{worker} may not be executed"),
                    format!("chmod +x {worker}"),
                );
            }
            _ => {}
        }
        if let Some(words) = &host.worker_failure {
            // The loader begins with the name as well.
            let words = words.strip_prefix(&format!("{worker}: ")).unwrap_or(words);
            let cure = if words.contains("shared libraries") || words.contains("symbol") || words.contains("version `")
            {
                "run scripts/setup.sh there, so that the libraries lie where they do here, or let --sync bring them"
            } else {
                "run it there by hand and see: ringmark-worker agent </dev/null"
            };
            findings.add(number, Check::Worker, Severity::Error, format!("{worker} does not start: {words}"), cure);
        }
    }
    let hashes = values(findings.hosts, |host| match &host.probe.as_ref()?.worker {
        WorkerFile::Hash(hash) => Some(hash.clone()),
        _ => None,
    });
    for (number, hash, usual, share) in odd_ones(&hashes) {
        let short = |hash: &str| hash.chars().take(12).collect::<String>();
        let what =
            format!("{worker} is another program: its SHA-256 is {}, {share} have {}", short(&hash), short(&usual));
        findings.add(number, Check::Worker, Severity::Error, what, COPY);
    }
}

/// What to compare: its name, what a host has of it, how bad a difference is, and its cure.
type Version = (&'static str, fn(&HostFacts) -> Option<String>, Severity, &'static str);

fn check_versions(findings: &mut Findings) {
    fn of(host: &HostFacts, read: impl FnOnce(&Inspection) -> Option<String>) -> Option<String> {
        host.inspection.as_ref().and_then(read)
    }
    fn built(library: &Library) -> String {
        format!("{} ({} at {})", library.version, library.bytes, library.path)
    }
    const SAME: &str = "install the same on all hosts: scripts/setup.sh, or --sync";
    const LIBRARY: &str = "look at LD_LIBRARY_PATH there, then scripts/setup.sh, or --sync";
    let compared: [Version; 6] = [
        ("ringmark-worker", |host| of(host, |found| Some(found.ringmark_version.clone())), Severity::Error, SAME),
        (
            "libtorch",
            |host| of(host, |found| Some(format!("{} ({})", found.libtorch.version, found.libtorch.bytes))),
            Severity::Error,
            LIBRARY,
        ),
        ("MPI", |host| of(host, |found| Some(found.mpi.version.clone())), Severity::Error, SAME),
        ("NCCL", |host| of(host, |found| Some(found.nccl.as_ref()?.version.clone())), Severity::Error, LIBRARY),
        (
            "CUDA runtime",
            |host| of(host, |found| found.nccl.as_ref().and(found.cuda_runtime.clone())),
            Severity::Error,
            SAME,
        ),
        (
            "NVIDIA driver",
            |host| Some(host.probe.as_ref()?.gpus.list().first()?.driver.clone()),
            Severity::Warning,
            "install one driver on all hosts: each may have its own speed",
        ),
    ];
    for (name, read, severity, cure) in compared {
        for (number, version, usual, share) in odd_ones(&values(findings.hosts, read)) {
            let path = match (name, &findings.hosts[number].inspection) {
                ("libtorch", Some(found)) => format!(", {}", built(&found.libtorch)),
                ("NCCL", Some(Inspection { nccl: Some(nccl), .. })) => format!(", {}", built(nccl)),
                _ => String::new(),
            };
            let what = format!("{name} is {version}{path}; {share} have {usual}");
            findings.add(number, Check::Versions, severity, what, cure);
        }
    }
    for (number, host) in findings.hosts.iter().enumerate() {
        let copies = host.inspection.as_ref().map(|found| found.nccl_copies.as_slice()).unwrap_or_default();
        if copies.len() > 1 {
            let what = format!("one process gets {} copies of NCCL: {}", copies.len(), copies.join(", "));
            let cure = "take the one that libtorch does not use out of LD_LIBRARY_PATH, LD_PRELOAD and NCCL's plugins";
            findings.add(number, Check::Versions, Severity::Error, what, cure);
        }
    }
}

/// Devices that a rank could use there; `None` where the worker did not tell.
fn usable_devices(host: &HostFacts) -> Option<u32> {
    let found = host.inspection.as_ref()?;
    Some(if found.cuda_missing.is_some() { 0 } else { found.devices })
}

fn check_gpus(findings: &mut Findings, device: DeviceChoice) {
    let somewhere = findings.hosts.iter().any(|host| usable_devices(host).is_some_and(|devices| devices > 0));
    let needed = device == DeviceChoice::Cuda || somewhere;
    let severity = if needed { Severity::Error } else { Severity::Warning };
    for (number, host) in findings.hosts.iter().enumerate() {
        let Some(probe) = &host.probe else { continue };
        const STUCK: &str = "look for Xid in dmesg, then reset the device or restart the host; or choose --device cpu";
        match &probe.gpus {
            Gpus::Hang => {
                findings.add(number, Check::Gpus, severity, "nvidia-smi does not answer within 8 s", STUCK);
                continue;
            }
            Gpus::Fail(words) => {
                findings.add(number, Check::Gpus, severity, format!("nvidia-smi fails: {words}"), STUCK);
                continue;
            }
            Gpus::None if needed => {
                let what = if somewhere { "it has no GPU, other hosts have" } else { "it has no GPU" };
                let cure = "take it out of --hosts, install the NVIDIA driver, or choose --device cpu";
                findings.add(number, Check::Gpus, Severity::Error, what, cure);
                continue;
            }
            Gpus::None | Gpus::Unknown => continue,
            Gpus::There(_) => {}
        }
        let missing = host.inspection.as_ref().and_then(|found| found.cuda_missing.as_ref());
        if let Some(missing) = missing {
            let what = format!("it has {}, and the worker cannot use them: {missing}", listed(probe.gpus.list()));
            let cure = "scripts/setup.sh there installs the CUDA half of libtorch; or choose --device cpu";
            findings.add(number, Check::Gpus, severity, what, cure);
            continue;
        }
        let devices = usable_devices(host).unwrap_or_else(|| probe.gpus.list().len() as u32);
        if devices < host.slots {
            let what = format!("{} ranks are to run there, it shows {devices} GPUs", host.slots);
            let cure =
                "lower its slots in --hosts, or look for the missing: nvidia-smi -L, CUDA_VISIBLE_DEVICES, dmesg";
            findings.add(number, Check::Gpus, Severity::Error, what, cure);
        }
    }
    let kinds = values(findings.hosts, |host| {
        let gpus = host.probe.as_ref()?.gpus.list();
        (!gpus.is_empty()).then(|| listed(gpus))
    });
    for (number, kind, usual, share) in odd_ones(&kinds) {
        let what = format!("it has {kind}, {share} have {usual}");
        let cure = "compare like with like: the slowest device sets the pace of all";
        findings.add(number, Check::Gpus, Severity::Warning, what, cure);
    }
}

/// `2 x NVIDIA H100 80GB HBM3`.
fn listed(gpus: &[Gpu]) -> String {
    let mut kinds: Vec<(&str, u32)> = Vec::new();
    for gpu in gpus {
        match kinds.iter_mut().find(|(name, _)| *name == gpu.name) {
            Some((_, count)) => *count += 1,
            None => kinds.push((&gpu.name, 1)),
        }
    }
    let kinds: Vec<String> = kinds.into_iter().map(|(name, count)| format!("{count} x {name}")).collect();
    kinds.join(" and ")
}

fn check_gpu_state(findings: &mut Findings) {
    for (number, host) in findings.hosts.iter().enumerate() {
        let Some(probe) = &host.probe else { continue };
        for gpu in probe.gpus.list() {
            for (what, cure) in gpu_faults(gpu) {
                let what = format!("GPU {}: {what}", gpu.index);
                findings.add(number, Check::GpuState, Severity::Warning, what, cure);
            }
        }
    }
}

/// What is wrong with one GPU, each with its cure.
fn gpu_faults(gpu: &Gpu) -> Vec<(String, String)> {
    let mut faults = Vec::new();
    let used = gpu.memory_used.unwrap_or_default();
    if !gpu.processes.is_empty() {
        let what = format!("others use it: {}", gpu.processes.join(", "));
        faults.push((what, "wait for them or end them: what they take is missing from every figure".to_owned()));
    } else if used.0 > IDLE_MEMORY.0 {
        let total = gpu.memory.unwrap_or_default();
        let what = format!("{} of {} are taken, by nobody that nvidia-smi shows", gigabytes(used), gigabytes(total));
        faults.push((what, "look in other containers and for dead processes: fuser -v /dev/nvidia*".to_owned()));
    }
    let reasons = gpu.slow_reasons.unwrap_or_default();
    let clocks = match (gpu.clock, gpu.clock_maximum) {
        (Some(clock), Some(maximum)) => format!(" ({clock} of {maximum} MHz)"),
        _ => String::new(),
    };
    for (_, reason, cure) in SLOW_REASONS.iter().filter(|(bit, ..)| reasons & bit != 0) {
        faults.push((format!("its clock is held down: {reason}{clocks}"), (*cure).to_owned()));
    }
    if let (Some(set), Some(default)) = (gpu.clock_set, gpu.clock_default)
        && set < default
        && reasons & 0x2 == 0
    {
        let what = format!("it is set to {set} MHz for applications, {default} is the default");
        faults.push((what, "nvidia-smi -rac".to_owned()));
    }
    // An idle device lowers its clock by itself.
    if let (Some(0), Some(clock), Some(maximum)) = (gpu.slow_reasons, gpu.clock, gpu.clock_maximum)
        && f64::from(clock) < CLOCK_SHARE * f64::from(maximum)
    {
        let what = format!("it runs at {clock} of {maximum} MHz, and says no reason");
        faults.push((what, "see whether its clock is locked: nvidia-smi -rgc lets it go".to_owned()));
    }
    if let Some(count) = gpu.uncorrected_errors.filter(|count| *count > 0) {
        let what = format!("{count} errors of its memory could not be corrected since the driver was loaded (ECC)");
        faults.push((what, "reset it (nvidia-smi --gpu-reset); if they come again, have it replaced".to_owned()));
    }
    faults
}

fn check_topology(findings: &mut Findings) {
    let topologies = values(findings.hosts, |host| {
        let probe = host.probe.as_ref()?;
        (!probe.topology.is_empty()).then(|| probe.topology.clone())
    });
    for (number, own, usual, share) in odd_ones(&topologies) {
        let differs = own.iter().zip(&usual).find(|(own, usual)| own != usual);
        let (own, usual) = differs.map_or(("more or fewer lines", "others"), |(own, usual)| (own, usual));
        let what = format!("its devices are wired otherwise: `{own}`, {share} have `{usual}` (nvidia-smi topo -m)");
        let cure =
            "look for a device in another slot, a missing NVLink bridge or network card, or another NUMA setting";
        findings.add(number, Check::Topology, Severity::Warning, what, cure);
    }
}

/// Ranks on the CPU are as fast as the processor.
fn check_processors(findings: &mut Findings, device: DeviceChoice) {
    let any = |host: &HostFacts| usable_devices(host).is_some_and(|devices| devices > 0);
    if device == DeviceChoice::Cuda || findings.hosts.iter().any(any) {
        return;
    }
    let processors = values(findings.hosts, |host| {
        let found = host.inspection.as_ref()?;
        Some(format!("{} cores of {}", found.cores, found.processor))
    });
    for (number, own, usual, share) in odd_ones(&processors) {
        let what = format!("it has {own}, {share} have {usual}");
        let cure = "compare like with like: the slowest host sets the pace of all";
        findings.add(number, Check::Gpus, Severity::Warning, what, cure);
    }
}

fn check_memory(findings: &mut Findings) {
    for (number, host) in findings.hosts.iter().enumerate() {
        let Some(probe) = &host.probe else { continue };
        if let Some(limit) = probe.memlock.filter(|_| probe.ports.iter().any(Port::is_up)) {
            let what =
                format!("a process may lock {} of memory only, and InfiniBand needs all of it", megabytes(limit));
            let cure = "raise memlock to unlimited in /etc/security/limits.conf and for sshd's service; \
                        in a container: --ulimit memlock=-1";
            findings.add(number, Check::Memlock, Severity::Warning, what, cure);
        }
        let a_rank = if probe.gpus.list().is_empty() { SHARED_MEMORY.1 } else { SHARED_MEMORY.0 };
        let needed = Bytes(a_rank.0 * u64::from(host.slots));
        if let Some(space) = probe.shared_memory.filter(|space| space.free.0 < needed.0) {
            let what = format!(
                "/dev/shm has {} free, the ranks there may need {}: one that finds no room is killed by SIGBUS",
                megabytes(space.free),
                megabytes(needed)
            );
            let cure = "remove what was left there, or make it larger: mount -o remount,size=8g /dev/shm; \
                        in a container: --shm-size=8g";
            findings.add(number, Check::SharedMemory, Severity::Warning, what, cure);
        }
    }
}

fn check_disk(findings: &mut Findings, asked: &Asked) {
    for (number, host) in findings.hosts.iter().enumerate() {
        let Some(probe) = &host.probe else { continue };
        if let Some(space) = probe.temporary.filter(|space| space.free.0 < TEMPORARY_SPACE.0) {
            let what = format!(
                "its folder of temporary files has {} free, where Open MPI keeps its session",
                megabytes(space.free)
            );
            findings.add(number, Check::Disk, Severity::Warning, what, "make room in /tmp, or point TMPDIR elsewhere");
        }
        // Rank 0 writes the record; it runs on the first host. The logs are written here.
        let (Some(folder), true) = (asked.results, number == 0 || host.is_here) else { continue };
        let folder = folder.display();
        if let Some(space) = probe.results.filter(|space| space.free.0 < RESULTS_SPACE.0.0) {
            let severity = if space.free.0 < RESULTS_SPACE.1.0 { Severity::Error } else { Severity::Warning };
            let what = format!("{} are free for the results in {folder}", megabytes(space.free));
            findings.add(number, Check::Disk, severity, what, "make room, or choose another --out");
        }
        match probe.results_folder {
            Some(false) => {
                let what = format!("the results' folder {folder} cannot be written to");
                findings.add(
                    number,
                    Check::Disk,
                    Severity::Error,
                    what,
                    "change its owner or mode, or choose another --out",
                );
            }
            None if asked.has_results && probe.stopped_after.is_none() => {
                let what =
                    format!("rank 0 runs there and writes its records to {folder}, which is on this machine alone");
                let cure = "choose an --out that both share, or name this machine first in --hosts";
                findings.add(number, Check::Disk, Severity::Error, what, cure);
            }
            _ => {}
        }
    }
}

fn check_clock(findings: &mut Findings) {
    for (number, host) in findings.hosts.iter().enumerate() {
        if let Some(ahead) = host.clock_ahead.filter(|ahead| ahead.0.abs() > CLOCK_SECONDS) {
            let side = if ahead.0 > 0.0 { "ahead of" } else { "behind" };
            let what = format!("its clock is {:.1} s {side} this machine's", ahead.0.abs());
            let cure = "have both follow one time server: timedatectl set-ntp true, chronyc tracking";
            findings.add(number, Check::Clock, Severity::Warning, what, cure);
        }
    }
}

fn check_infiniband(findings: &mut Findings) {
    const CURE: &str = "see ibstat and ibv_devinfo: cable, switch port, subnet manager (opensm), openibd";
    for (number, host) in findings.hosts.iter().enumerate() {
        let ports = host.probe.as_ref().map(|probe| probe.ports.as_slice()).unwrap_or_default();
        if !ports.is_empty() && !ports.iter().any(Port::is_up) {
            let what = format!("none of its InfiniBand and RoCE ports is up: {}", described(ports));
            findings.add(number, Check::Infiniband, Severity::Warning, what, CURE);
        }
    }
    let active = values(findings.hosts, |host| {
        let mut up: Vec<String> =
            host.probe.as_ref()?.ports.iter().filter(|port| port.is_up()).map(|port| port.rate.clone()).collect();
        up.sort();
        Some(up)
    });
    let listed = |rates: &[String]| if rates.is_empty() { "none".to_owned() } else { rates.join(", ") };
    for (number, own, usual, share) in odd_ones(&active) {
        let probe: Option<&Probe> = findings.hosts[number].probe.as_ref();
        let ports = probe.map(|probe| described(&probe.ports)).unwrap_or_default();
        let what =
            format!("its active InfiniBand ports are {} ({ports}), {share} have {}", listed(&own), listed(&usual));
        findings.add(number, Check::Infiniband, Severity::Warning, what, CURE);
    }
}

/// `mlx5_0:1 ACTIVE, mlx5_1:1 DOWN (Disabled)`.
fn described(ports: &[Port]) -> String {
    let describe = |port: &Port| match port.is_up() {
        true => format!("{} {}", port.name, port.state),
        false => format!("{} {} ({})", port.name, port.state, port.physical),
    };
    if ports.is_empty() {
        "there is none".to_owned()
    } else {
        ports.iter().map(describe).collect::<Vec<_>>().join(", ")
    }
}

/// What the ways between the hosts say. `places` are all hosts' in `network`, by the hosts' numbers in `present`.
pub fn of_ways(hosts: &[HostFacts], network: &CommonNetwork, present: &[usize], ways: &[Way]) -> Vec<Finding> {
    let mut findings = Findings { hosts, found: Vec::new() };
    let name = |number: usize| hosts[number].host.as_str();
    let place = |number: usize| present.iter().position(|other| *other == number).map(|index| &network.places[index]);
    let interface = |number: usize| place(number).map_or("", |place| place.interface.as_str());

    let links = values(hosts, |host| {
        let number = hosts.iter().position(|other| std::ptr::eq(other, host))?;
        let name = interface(number);
        let interfaces = &host.inspection.as_ref()?.interfaces;
        interfaces.iter().find(|interface| interface.name == name)?.link_megabits
    });
    for (number, own, usual, share) in odd_ones(&links) {
        let what = format!("its link on {} runs at {own} Mbit/s, {share} have {usual}", interface(number));
        let cure = "change cable and switch port, then see what they agree on: ethtool";
        findings.add(number, Check::Speed, Severity::Warning, what, cure);
    }

    let closed: Vec<(&Way, &String)> = ways
        .iter()
        .filter_map(|way| match &way.outcome {
            Outcome::Closed(reason) => Some((way, reason)),
            Outcome::Open { .. } => None,
        })
        .collect();
    let pairs: Vec<(usize, usize)> = closed.iter().map(|(way, _)| (way.from, way.to)).collect();
    for (number, its) in links::blame(&pairs) {
        let describe = |index: &usize| {
            let (way, reason) = closed[*index];
            format!("{} to {} ({reason})", name(way.from), name(way.to))
        };
        let what = format!("no connection on {network}: {}", its.iter().map(describe).collect::<Vec<_>>().join(", "));
        let cure = "open all ports between the hosts (firewall, security group), or choose the network that joins them \
                    with --interface";
        findings.add(number, Check::Peers, Severity::Error, what, cure);
    }

    for way in ways {
        if let Outcome::Open { detour: Some(address), .. } = way.outcome {
            let what = format!(
                "its packets to {} leave from {address}, not from {} ({})",
                name(way.to),
                interface(way.from),
                place(way.from).map_or(String::new(), |place| place.address.to_string())
            );
            let cure = "two interfaces are in one network: give each a network of its own, or see `ip route get`";
            findings.add(way.from, Check::Peers, Severity::Warning, what, cure);
        }
    }

    let slow: Vec<&Way> = links::slow(ways).into_iter().map(|number| &ways[number]).collect();
    let pairs: Vec<(usize, usize)> = slow.iter().map(|way| (way.from, way.to)).collect();
    let usual = links::usual_speed(ways).unwrap_or_default();
    for (number, its) in links::blame(&pairs) {
        let describe = |index: &usize| {
            let way = slow[*index];
            let speed = match way.outcome {
                Outcome::Open { speed: Some(speed), .. } => speed,
                _ => GigabytesPerSecond::default(),
            };
            format!("{} to {} {speed:.3}", name(way.from), name(way.to))
        };
        let its: Vec<String> = its.iter().map(describe).collect();
        let what = format!("its ways are slow: {}; a quarter of all carry {usual:.3} or more", its.join(", "));
        let cure = "look at its cable, port and duplex (ethtool), at other traffic, and at MTU: ping -M do -s 8972";
        findings.add(number, Check::Speed, Severity::Warning, what, cure);
    }
    findings.found
}

/// The finding about a host that the chosen interface does not fit.
pub fn wrong_interface(hosts: &[HostFacts], number: usize, what: String) -> Finding {
    let mut findings = Findings { hosts, found: Vec::new() };
    let cure = "choose with --interface a name that all hosts have, or the network that joins them, as 10.77.0.0/24";
    findings.add(number, Check::Interface, Severity::Error, what, cure);
    findings.found.remove(0)
}

/// The finding that `setting`, on host `number`, does not go with an interface that was named.
pub fn two_opinions(hosts: &[HostFacts], number: usize, setting: &str) -> Finding {
    let mut findings = Findings { hosts, found: Vec::new() };
    let what = format!("Open MPI takes no interface to use beside {setting}");
    let cure = "take that setting away, or leave --interface out";
    findings.add(number, Check::Interface, Severity::Error, what, cure);
    findings.found.remove(0)
}

/// What each host has, by its number, of those that have it.
fn values<T>(hosts: &[HostFacts], read: impl Fn(&HostFacts) -> Option<T>) -> Vec<(usize, T)> {
    hosts.iter().enumerate().filter_map(|(number, host)| Some((number, read(host)?))).collect()
}

/// Whoever differs from what most have (the first's, where it is even): number, own value, the usual one, and who has
/// that, as `2 of 3 hosts`.
fn odd_ones<T: Clone + Eq + Hash>(values: &[(usize, T)]) -> Vec<(usize, T, T, String)> {
    let mut counts: HashMap<&T, usize> = HashMap::new();
    for (_, value) in values {
        *counts.entry(value).or_default() += 1;
    }
    let most = counts.values().copied().max().unwrap_or_default();
    let Some((_, usual)) = values.iter().find(|(_, value)| counts[value] == most) else { return Vec::new() };
    let share = format!("{most} of {} hosts", values.len());
    let odd = values.iter().filter(|(_, value)| value != usual);
    odd.map(|(number, value)| (*number, value.clone(), usual.clone(), share.clone())).collect()
}

fn gigabytes(bytes: Bytes) -> String {
    format!("{:.1} GB", bytes.0 as f64 / 1e9)
}

/// `65 MB`, `8 GB`.
pub fn megabytes(bytes: Bytes) -> String {
    match bytes.0 as f64 / 1e6 {
        small if small < 1e4 => format!("{small:.0} MB"),
        large => format!("{:.0} GB", large / 1e3),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::Ipv4Addr;

    use ipnet::Ipv4Net;
    use ringmark_record::inspection;
    use ringmark_record::units::Seconds;

    use super::*;
    use crate::launch::cluster::interface::Place;
    use crate::launch::cluster::ssh_failure::Refusal;
    use crate::launch::doctor::probe::Space;

    fn library(version: &str) -> Library {
        Library { version: version.to_owned(), path: format!("/lib/{version}.so"), bytes: Bytes(1000) }
    }

    /// Hosts `a`, `b`, ... without a GPU, with nothing wrong.
    pub(crate) fn hosts(count: u8) -> Vec<HostFacts> {
        (0..count).map(host).collect()
    }

    fn host(number: u8) -> HostFacts {
        let plenty = Some(Space { size: Bytes(100_000_000_000), free: Bytes(50_000_000_000) });
        let host = char::from(b'a' + number).to_string();
        let address = Ipv4Net::new(Ipv4Addr::new(10, 77, 0, number + 1), 24).expect("a prefix");
        HostFacts {
            slots: 2,
            ssh: Some(Seconds(0.12)),
            probe: Some(Probe {
                name: host.clone(),
                worker: WorkerFile::Hash("0123456789abcdef".to_owned()),
                orted: true,
                mpirun: "mpirun (Open MPI) 4.1.4".to_owned(),
                shared_memory: plenty,
                temporary: plenty,
                results: plenty,
                results_folder: Some(true),
                gpus: Gpus::None,
                ..Probe::default()
            }),
            inspection: Some(Inspection {
                ringmark_version: "0.1.0".to_owned(),
                libtorch: library("2.11.0"),
                mpi: library("Open MPI v4.1.4"),
                cuda_missing: Some("no NVIDIA driver".to_owned()),
                interfaces: vec![inspection::Interface {
                    name: "eth0".to_owned(),
                    addresses: vec![address],
                    is_up: true,
                    link_megabits: Some(10_000),
                    ..inspection::Interface::default()
                }],
                processor: "AMD EPYC".to_owned(),
                cores: 2,
                ..Inspection::default()
            }),
            clock_ahead: Some(Seconds(0.001)),
            host,
            ..HostFacts::default()
        }
    }

    pub(crate) fn h100(index: u32) -> Gpu {
        Gpu {
            index: index.to_string(),
            uuid: format!("GPU-{index}"),
            name: "NVIDIA H100 80GB HBM3".to_owned(),
            driver: "550.54.15".to_owned(),
            memory: Some(Bytes(85_520_809_984)),
            memory_used: Some(Bytes(500_000_000)),
            clock: Some(345),
            clock_maximum: Some(1980),
            clock_set: Some(1980),
            clock_default: Some(1980),
            uncorrected_errors: Some(0),
            slow_reasons: Some(0x1),
            processes: Vec::new(),
        }
    }

    /// The same with two H100 and two InfiniBand ports each.
    pub(crate) fn gpu_hosts(count: u8) -> Vec<HostFacts> {
        let mut hosts = hosts(count);
        for number in 0..hosts.len() {
            probe(&mut hosts, number).gpus = Gpus::There(vec![h100(0), h100(1)]);
            probe(&mut hosts, number).topology = vec!["GPU0 GPU1".to_owned(), "GPU0 X NV18".to_owned()];
            probe(&mut hosts, number).ports = vec![port(1, "ACTIVE", "LinkUp"), port(2, "ACTIVE", "LinkUp")];
            let found = inspection(&mut hosts, number);
            (found.cuda_missing, found.devices) = (None, 2);
            (found.nccl, found.nccl_copies) = (Some(library("2.28.9")), vec!["/lib/libnccl.so.2".to_owned()]);
            found.cuda_runtime = Some("13.0".to_owned());
        }
        hosts
    }

    fn port(number: u32, state: &str, physical: &str) -> Port {
        Port {
            name: format!("mlx5_{number}:1"),
            state: state.to_owned(),
            physical: physical.to_owned(),
            layer: "InfiniBand".to_owned(),
            rate: "400 Gb/sec (4X NDR)".to_owned(),
        }
    }

    pub(crate) fn probe(hosts: &mut [HostFacts], number: usize) -> &mut Probe {
        hosts[number].probe.as_mut().expect("one")
    }

    fn inspection(hosts: &mut [HostFacts], number: usize) -> &mut Inspection {
        hosts[number].inspection.as_mut().expect("one")
    }

    fn found_for(hosts: &[HostFacts], device: DeviceChoice) -> Vec<Finding> {
        let worker = Path::new("/opt/ringmark-worker");
        of_hosts(hosts, &Asked { worker, device, results: Some(Path::new("/results")), has_results: true })
    }

    /// The one finding: host, check, severity, words.
    fn only(hosts: &[HostFacts]) -> (String, Check, Severity, String) {
        let mut findings = found_for(hosts, DeviceChoice::Auto);
        assert_eq!(findings.len(), 1, "{findings:?}");
        let Finding { host, check, severity, what, cure, .. } = findings.remove(0);
        assert!(!cure.is_empty());
        (host, check, severity, what)
    }

    fn told(hosts: &[HostFacts], host: &str, check: Check, severity: Severity, words: &str) {
        let found = only(hosts);
        assert_eq!((found.0.as_str(), found.1, found.2), (host, check, severity), "{}", found.3);
        assert!(found.3.contains(words), "{}", found.3);
    }

    #[test]
    fn nothing_is_said_of_hosts_that_are_well() {
        for device in [DeviceChoice::Auto, DeviceChoice::Cpu] {
            assert_eq!(found_for(&hosts(3), device), []);
            assert_eq!(found_for(&gpu_hosts(3), device), []);
        }
        assert_eq!(found_for(&gpu_hosts(3), DeviceChoice::Cuda), []);
    }

    #[test]
    fn a_host_that_was_not_reached_is_told_once() {
        let mut hosts = hosts(3);
        let refusal = Refusal { what: "it cannot be reached".to_owned(), cure: "switch it on".to_owned() };
        hosts[1] = HostFacts { host: "b".to_owned(), refusal: Some(refusal.clone()), ..HostFacts::default() };
        told(&hosts, "b", Check::Ssh, Severity::Error, "it cannot be reached");

        let mut hosts = super::tests::hosts(2);
        hosts[1].warning = Some(refusal);
        told(&hosts, "b", Check::Ssh, Severity::Warning, "it cannot be reached");
        hosts[1].warning = None;
        hosts[1].ssh = Some(Seconds(7.3));
        told(&hosts, "b", Check::Ssh, Severity::Warning, "ssh takes 7.3 s");
        hosts[1].ssh = None;
        probe(&mut hosts, 1).stopped_after = Some("memlock_kib".to_owned());
        told(&hosts, "b", Check::Ssh, Severity::Error, "it stops answering after memlock_kib");
    }

    #[test]
    fn mpirun_needs_its_daemon_and_distinct_names() {
        let mut hosts = hosts(3);
        probe(&mut hosts, 2).orted = false;
        told(&hosts, "c", Check::Mpirun, Severity::Error, "does not find orted");
        // Of its own machine mpirun starts no daemon.
        hosts[2].is_here = true;
        assert_eq!(found_for(&hosts, DeviceChoice::Auto), []);
        probe(&mut hosts, 2).name = "a".to_owned();
        told(&hosts, "c", Check::Mpirun, Severity::Error, "it calls itself a, as a does");
        probe(&mut hosts, 2).name = "c".to_owned();
        probe(&mut hosts, 0).mpirun = "mpirun (Open MPI) 5.0.1".to_owned();
        told(
            &hosts,
            "a",
            Check::Mpirun,
            Severity::Error,
            "(Open MPI) 5.0.1, 2 of 3 hosts have mpirun (Open MPI) 4.1.4",
        );
    }

    #[test]
    fn the_worker_is_the_same_everywhere_and_starts() {
        let mut hosts = hosts(3);
        probe(&mut hosts, 1).worker = WorkerFile::Hash("fedcba9876543210".to_owned());
        told(&hosts, "b", Check::Worker, Severity::Error, "SHA-256 is fedcba987654, 2 of 3 hosts have 0123456789ab");
        probe(&mut hosts, 1).worker = WorkerFile::Unknown;
        assert_eq!(found_for(&hosts, DeviceChoice::Auto), []);
        hosts[1].inspection = None;
        probe(&mut hosts, 1).worker = WorkerFile::Missing;
        told(&hosts, "b", Check::Worker, Severity::Error, "there is no /opt/ringmark-worker");
        probe(&mut hosts, 1).worker = WorkerFile::Refused;
        told(&hosts, "b", Check::Worker, Severity::Error, "may not be executed");
        probe(&mut hosts, 1).worker = WorkerFile::Hash("0123456789abcdef".to_owned());
        hosts[1].worker_failure = Some("error while loading shared libraries: libtorch_cpu.so".to_owned());
        told(&hosts, "b", Check::Worker, Severity::Error, "does not start: error while loading shared libraries");
        assert!(found_for(&hosts, DeviceChoice::Auto)[0].cure.contains("scripts/setup.sh"));
    }

    #[test]
    fn libraries_are_the_same_everywhere() {
        for (change, severity, words) in [
            (
                (|hosts| inspection(hosts, 2).libtorch = library("2.10.0")) as fn(&mut Vec<HostFacts>),
                Severity::Error,
                "libtorch is 2.10.0",
            ),
            (
                |hosts| inspection(hosts, 2).libtorch.bytes = Bytes(999),
                Severity::Error,
                "libtorch is 2.11.0 (999 bytes)",
            ),
            (|hosts| inspection(hosts, 2).mpi = library("Open MPI v5"), Severity::Error, "MPI is Open MPI v5"),
            (|hosts| inspection(hosts, 2).nccl = Some(library("2.30.3")), Severity::Error, "NCCL is 2.30.3"),
            (
                |hosts| inspection(hosts, 2).cuda_runtime = Some("12.6".to_owned()),
                Severity::Error,
                "CUDA runtime is 12.6",
            ),
            (
                |hosts| {
                    let gpu = |index| Gpu { driver: "570.1".to_owned(), ..h100(index) };
                    probe(hosts, 2).gpus = Gpus::There(vec![gpu(0), gpu(1)]);
                },
                Severity::Warning,
                "NVIDIA driver is 570.1; 2 of 3 hosts have 550.54.15",
            ),
            (
                |hosts| inspection(hosts, 2).nccl_copies.push("/usr/lib/libnccl.so.2".to_owned()),
                Severity::Error,
                "2 copies of NCCL: /lib/libnccl.so.2, /usr/lib/libnccl.so.2",
            ),
        ] {
            let mut hosts = gpu_hosts(3);
            change(&mut hosts);
            told(&hosts, "c", Check::Versions, severity, words);
        }
    }

    #[test]
    fn where_it_is_even_the_first_host_is_right() {
        let mut hosts = hosts(2);
        inspection(&mut hosts, 0).mpi = library("Open MPI v5");
        told(&hosts, "b", Check::Versions, Severity::Error, "MPI is Open MPI v4.1.4; 1 of 2 hosts have Open MPI v5");
    }

    #[test]
    fn devices_are_as_many_as_ranks_and_of_one_kind() {
        let mut hosts = gpu_hosts(3);
        hosts[1].slots = 4;
        told(&hosts, "b", Check::Gpus, Severity::Error, "4 ranks are to run there, it shows 2 GPUs");
        hosts[1].slots = 1;
        let old = Gpu { name: "Tesla V100-SXM2-16GB".to_owned(), ..h100(1) };
        probe(&mut hosts, 1).gpus = Gpus::There(vec![h100(0), old]);
        told(
            &hosts,
            "b",
            Check::Gpus,
            Severity::Warning,
            "it has 1 x NVIDIA H100 80GB HBM3 and 1 x Tesla V100-SXM2-16GB, 2 of 3 hosts have 2 x NVIDIA H100",
        );

        let mut mixed = gpu_hosts(2);
        mixed.push(host(2));
        (0..2).for_each(|number| probe(&mut mixed, number).ports.clear());
        told(&mixed, "c", Check::Gpus, Severity::Error, "it has no GPU, other hosts have");
        assert_eq!(found_for(&mixed, DeviceChoice::Cpu), []);
        assert_eq!(found_for(&super::tests::hosts(2), DeviceChoice::Cuda).len(), 2);
    }

    #[test]
    fn a_device_that_cannot_be_used_is_told_with_its_reason() {
        let mut hosts = gpu_hosts(2);
        inspection(&mut hosts, 1).cuda_missing = Some("no CUDA half of libtorch".to_owned());
        inspection(&mut hosts, 1).nccl = None;
        told(&hosts, "b", Check::Gpus, Severity::Error, "cannot use them: no CUDA half of libtorch");
        // With none to use anywhere, a job runs on the CPU.
        let mut alone = hosts.split_off(1);
        told(&alone, "b", Check::Gpus, Severity::Warning, "cannot use them");
        probe(&mut alone, 0).topology.clear();
        probe(&mut alone, 0).gpus = Gpus::Hang;
        told(&alone, "b", Check::Gpus, Severity::Warning, "nvidia-smi does not answer");
        probe(&mut alone, 0).gpus = Gpus::Fail("couldn't communicate with the NVIDIA driver".to_owned());
        told(&alone, "b", Check::Gpus, Severity::Warning, "nvidia-smi fails: couldn't communicate");
    }

    #[test]
    fn a_gpu_is_free_at_full_clock_and_without_errors() {
        type Fault = (&'static str, fn(&mut Gpu));
        let faults: [Fault; 10] = [
            ("GPU 1: others use it: python3 (process 7, 900 MiB)", |gpu| {
                gpu.processes.push("python3 (process 7, 900 MiB)".to_owned());
            }),
            ("GPU 1: 40.0 GB of 85.5 GB are taken, by nobody", |gpu| gpu.memory_used = Some(Bytes(40_000_000_000))),
            ("GPU 1: its clock is held down: hardware slowdown (345 of 1980 MHz)", |gpu| gpu.slow_reasons = Some(0x8)),
            ("too hot (software slowdown)", |gpu| gpu.slow_reasons = Some(0x20)),
            ("too hot (hardware slowdown)", |gpu| gpu.slow_reasons = Some(0x40)),
            ("power brake", |gpu| gpu.slow_reasons = Some(0x80)),
            ("power cap", |gpu| gpu.slow_reasons = Some(0x5)),
            ("an application clock is set", |gpu| (gpu.slow_reasons, gpu.clock_set) = (Some(0x2), Some(1200))),
            ("it is set to 1200 MHz for applications, 1980 is the default", |gpu| gpu.clock_set = Some(1200)),
            ("3 errors of its memory could not be corrected", |gpu| gpu.uncorrected_errors = Some(3)),
        ];
        for (words, break_it) in faults {
            let mut hosts = gpu_hosts(2);
            let mut gpu = h100(1);
            break_it(&mut gpu);
            probe(&mut hosts, 1).gpus = Gpus::There(vec![h100(0), gpu]);
            told(&hosts, "b", Check::GpuState, Severity::Warning, words);
            assert_eq!(found_for(&hosts, DeviceChoice::Cpu), []);
        }
        let at_work = |clock| gpu_faults(&Gpu { slow_reasons: Some(0), clock: Some(clock), ..h100(0) });
        assert_eq!(at_work(1950), []);
        assert_eq!(at_work(1410)[0].0, "it runs at 1410 of 1980 MHz, and says no reason");
        // A driver that tells nothing is not at fault.
        assert_eq!(gpu_faults(&Gpu::default()), []);
    }

    #[test]
    fn topologies_are_equal() {
        let mut hosts = gpu_hosts(3);
        probe(&mut hosts, 0).topology[1] = "GPU0 X PHB".to_owned();
        let words = "`GPU0 X PHB`, 2 of 3 hosts have `GPU0 X NV18`";
        told(&hosts, "a", Check::Topology, Severity::Warning, words);
    }

    #[test]
    fn processors_count_where_there_is_no_gpu() {
        let mut hosts = hosts(3);
        inspection(&mut hosts, 2).cores = 1;
        told(&hosts, "c", Check::Gpus, Severity::Warning, "it has 1 cores of AMD EPYC, 2 of 3 hosts have 2 cores");
        let mut hosts = gpu_hosts(3);
        inspection(&mut hosts, 2).cores = 1;
        assert_eq!(found_for(&hosts, DeviceChoice::Auto), []);
    }

    #[test]
    fn limits_of_memory_matter_where_they_are_used() {
        let mut hosts = gpu_hosts(2);
        probe(&mut hosts, 1).memlock = Some(Bytes(8_388_608));
        told(&hosts, "b", Check::Memlock, Severity::Warning, "may lock 8 MB of memory only");
        let mut hosts = super::tests::hosts(2);
        probe(&mut hosts, 1).memlock = Some(Bytes(8_388_608));
        assert_eq!(found_for(&hosts, DeviceChoice::Auto), []);

        // A container's 64 MB do for two ranks without GPUs and not for two with.
        let small = Some(Space { size: Bytes(64 << 20), free: Bytes(64 << 20) });
        probe(&mut hosts, 0).shared_memory = small;
        assert_eq!(found_for(&hosts, DeviceChoice::Auto), []);
        let mut hosts = gpu_hosts(2);
        probe(&mut hosts, 0).shared_memory = small;
        told(&hosts, "a", Check::SharedMemory, Severity::Warning, "has 67 MB free, the ranks there may need 134 MB");
    }

    #[test]
    fn there_is_room_for_the_results_where_they_are_written() {
        let space = |free| Some(Space { size: Bytes(1 << 40), free: Bytes(free) });
        let mut hosts = hosts(2);
        probe(&mut hosts, 1).results = space(0);
        assert_eq!(found_for(&hosts, DeviceChoice::Auto), []);
        probe(&mut hosts, 0).results = space(500_000_000);
        told(&hosts, "a", Check::Disk, Severity::Warning, "500 MB are free for the results in /results");
        probe(&mut hosts, 0).results = space(5_000_000);
        told(&hosts, "a", Check::Disk, Severity::Error, "5 MB are free");
        probe(&mut hosts, 0).results = space(1 << 40);
        probe(&mut hosts, 1).temporary = space(1_000_000);
        told(&hosts, "b", Check::Disk, Severity::Warning, "temporary files has 1 MB free");
        probe(&mut hosts, 1).temporary = None;
        probe(&mut hosts, 0).results_folder = Some(false);
        told(&hosts, "a", Check::Disk, Severity::Error, "/results cannot be written to");
        probe(&mut hosts, 0).results_folder = None;
        told(&hosts, "a", Check::Disk, Severity::Error, "which is on this machine alone");
    }

    #[test]
    fn clocks_agree() {
        let mut hosts = hosts(2);
        hosts[1].clock_ahead = Some(Seconds(-3.24));
        told(&hosts, "b", Check::Clock, Severity::Warning, "its clock is 3.2 s behind this machine's");
    }

    #[test]
    fn infiniband_is_up_and_equal() {
        let mut hosts = gpu_hosts(3);
        probe(&mut hosts, 2).ports[1] = port(2, "DOWN", "Disabled");
        let words = "are 400 Gb/sec (4X NDR) (mlx5_1:1 ACTIVE, mlx5_2:1 DOWN (Disabled)), 2 of 3 hosts have 400 Gb/sec";
        told(&hosts, "c", Check::Infiniband, Severity::Warning, words);
        // A port that is down on every host is not meant to be used.
        (0..2).for_each(|number| probe(&mut hosts, number).ports[1] = port(2, "DOWN", "Disabled"));
        assert_eq!(found_for(&hosts, DeviceChoice::Auto), []);
        (0..3).for_each(|number| probe(&mut hosts, number).ports = vec![port(1, "INIT", "LinkUp")]);
        let findings = found_for(&hosts, DeviceChoice::Auto);
        assert_eq!(findings.len(), 3);
        assert_eq!(findings[0].what, "none of its InfiniBand and RoCE ports is up: mlx5_1:1 INIT (LinkUp)");
    }

    pub(crate) fn network(count: u8) -> CommonNetwork {
        let place = |number| Place { interface: "eth0".to_owned(), address: Ipv4Addr::new(10, 77, 0, number + 1) };
        let network = "10.77.0.0/24".parse().ok();
        CommonNetwork { network, places: (0..count).map(place).collect(), is_named: true }
    }

    pub(crate) fn open(from: usize, to: usize, speed: Option<f64>) -> Way {
        let outcome = Outcome::Open { latency: Seconds(0.00002), speed: speed.map(GigabytesPerSecond), detour: None };
        Way { from, to, outcome }
    }

    fn of(hosts: &[HostFacts], ways: &[Way]) -> Vec<(String, Check, Severity, String)> {
        let present: Vec<usize> = (0..hosts.len()).collect();
        let findings = of_ways(hosts, &network(hosts.len() as u8), &present, ways);
        findings.into_iter().map(|found| (found.host, found.check, found.severity, found.what)).collect()
    }

    #[test]
    fn a_way_that_is_closed_is_told_with_both_ends() {
        let closed = |from, to| Way { from, to, outcome: Outcome::Closed("no answer within 3 s".to_owned()) };
        let ways = [open(0, 1, None), closed(1, 2), closed(2, 0)];
        let what = "no connection on eth0, 10.77.0.0/24: b to c (no answer within 3 s), c to a (no answer within 3 s)";
        assert_eq!(of(&hosts(3), &ways), [("c".to_owned(), Check::Peers, Severity::Error, what.to_owned())]);
    }

    #[test]
    fn slow_ways_are_laid_at_their_host_s_door() {
        for count in 3..6 {
            let bad = count - 1;
            let pairs = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
            let speed = |from, to| if from == bad || to == bad { 0.012 } else { 0.118 };
            let ways = pairs.filter(|(from, to)| from != to).map(|(from, to)| open(from, to, Some(speed(from, to))));
            let found = of(&hosts(count as u8), &ways.collect::<Vec<_>>());
            let [(host, Check::Speed, Severity::Warning, what)] = found.as_slice() else { panic!("{found:?}") };
            assert_eq!(host, ["c", "d", "e"][bad - 2]);
            assert!(what.starts_with(&format!("its ways are slow: a to {host} 0.012 GB/s, ")), "{what}");
        }
    }

    #[test]
    fn a_link_slower_than_the_others_and_a_detour_are_told() {
        let mut hosts = hosts(3);
        inspection(&mut hosts, 1).interfaces[0].link_megabits = Some(100);
        let detour = Some(Ipv4Addr::new(10, 1, 0, 1));
        let outcome = Outcome::Open { latency: Seconds(0.00002), speed: None, detour };
        let found = of(&hosts, &[Way { from: 0, to: 1, outcome }]);
        let what: Vec<(&str, &str)> = found.iter().map(|found| (found.0.as_str(), found.3.as_str())).collect();
        assert_eq!(
            what,
            [
                ("b", "its link on eth0 runs at 100 Mbit/s, 2 of 3 hosts have 10000"),
                ("a", "its packets to b leave from 10.1.0.1, not from eth0 (10.77.0.1)"),
            ]
        );
    }
}
