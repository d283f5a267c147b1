//! Fault-free hosts for the tests of the checks, assertions about findings, and re-exports for modifying the hosts.

pub use std::collections::BTreeMap;
pub use std::net::Ipv4Addr;
pub use std::path::Path;

pub use ipnet::Ipv4Net;
pub use ringmark_core::dimension::Bytes;
pub use ringmark_core::dimension::DeviceChoice;
pub use ringmark_core::dimension::GigabytesPerSecond;
pub use ringmark_core::dimension::Seconds;
pub use ringmark_core::host::inspection;
pub use ringmark_core::host::inspection::Inspection;
pub use ringmark_core::host::inspection::Library;

pub use crate::launch::cluster::interface::{CommonNetwork, HostAddress};
pub use crate::launch::cluster::ssh_failure::SshFailure;
pub use crate::launch::doctor::checks::disk::ResultsFolder;
pub use crate::launch::doctor::checks::finding::{Check, Finding, Severity};
pub use crate::launch::doctor::checks::{JobRequirements, check_hosts};
pub use crate::launch::doctor::host::HostFacts;
pub use crate::launch::doctor::links::{Link, LinkState};
pub use crate::launch::doctor::probe::{FileSystemSpace, Gpu, Gpus, Port, Probe, WorkerFile};

pub fn library(version: &str) -> Library {
    Library { version: version.to_owned(), path: format!("/lib/{version}.so"), bytes: Bytes(1000) }
}

/// Returns hosts `a`, `b`, ... without a GPU and without faults.
pub fn hosts(count: u8) -> Vec<HostFacts> {
    (0..count).map(host).collect()
}

/// Returns a host without faults; host number 0 is `a`.
pub fn host(number: u8) -> HostFacts {
    let plenty = Some(FileSystemSpace { size: Bytes(100_000_000_000), free: Bytes(50_000_000_000) });
    let host = char::from(b'a' + number).to_string();
    let address = Ipv4Net::new(Ipv4Addr::new(10, 77, 0, number + 1), 24).expect("a prefix");
    HostFacts {
        slots: 2,
        ssh: Some(Seconds(0.12)),
        probe: Some(Probe {
            name: host.clone(),
            worker: WorkerFile::Hash("0123456789abcdef".to_owned()),
            load: Some(0.1),
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

/// Returns a GPU without faults.
pub fn h100(index: u32) -> Gpu {
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
        pcie_generation: Some(5),
        pcie_lanes: Some(16),
        pcie_lanes_maximum: Some(16),
        nvlinks_active: Some(18),
        nvlinks: Some(18),
        row_pending: Some(false),
        row_failed: Some(false),
        slow_reasons: Some(0x1),
        processes: Vec::new(),
    }
}

/// Returns fault-free hosts with two H100 and two InfiniBand ports each.
pub fn gpu_hosts(count: u8) -> Vec<HostFacts> {
    let mut hosts = hosts(count);
    for number in 0..hosts.len() {
        probe(&mut hosts, number).gpus = Gpus::Found(vec![h100(0), h100(1)]);
        probe(&mut hosts, number).topology = vec!["GPU0 GPU1".to_owned(), "GPU0 X NV18".to_owned()];
        probe(&mut hosts, number).ports = vec![port(1, "ACTIVE", "LinkUp"), port(2, "ACTIVE", "LinkUp")];
        let found = inspection(&mut hosts, number);
        (found.cuda_missing, found.devices) = (None, 2);
        (found.nccl, found.nccl_copies) = (Some(library("2.28.9")), vec!["/lib/libnccl.so.2".to_owned()]);
        found.cuda_runtime = Some("13.0".to_owned());
    }
    hosts
}

pub fn port(number: u32, state: &str, physical: &str) -> Port {
    Port {
        name: format!("mlx5_{number}:1"),
        state: state.to_owned(),
        physical: physical.to_owned(),
        layer: "InfiniBand".to_owned(),
        rate: "400 Gb/sec (4X NDR)".to_owned(),
        can_be_opened: true,
        errors: BTreeMap::new(),
    }
}

/// Returns a host's facts from the script, which does not need the worker.
pub fn probe(hosts: &mut [HostFacts], number: usize) -> &mut Probe {
    hosts[number].probe.as_mut().expect("one")
}

/// Returns a host's facts from the worker.
pub fn inspection(hosts: &mut [HostFacts], number: usize) -> &mut Inspection {
    hosts[number].inspection.as_mut().expect("one")
}

/// Returns the findings for hosts that are to use `device`.
pub fn findings_for(hosts: &[HostFacts], device: DeviceChoice) -> Vec<Finding> {
    let worker = Path::new("/opt/ringmark-worker");
    let results = Some(ResultsFolder { path: Path::new("/results"), exists: true });
    check_hosts(hosts, &JobRequirements { worker, device, results, needed: &BTreeMap::new(), data: &[] })
}

/// Returns the only finding: host, check, severity, text.
pub fn only_finding(hosts: &[HostFacts]) -> (String, Check, Severity, String) {
    let mut findings = findings_for(hosts, DeviceChoice::Auto);
    assert_eq!(findings.len(), 1, "{findings:?}");
    let Finding { host, check, severity, what, fix, .. } = findings.remove(0);
    assert!(!fix.is_empty());
    (host, check, severity, what)
}

/// Asserts that this is the only finding.
pub fn assert_finding(hosts: &[HostFacts], host: &str, check: Check, severity: Severity, text: &str) {
    let found = only_finding(hosts);
    assert_eq!((found.0.as_str(), found.1, found.2), (host, check, severity), "{}", found.3);
    assert!(found.3.contains(text), "{}", found.3);
}

/// Returns the network that the hosts' names resolve to.
pub fn network(count: u8) -> CommonNetwork {
    let place = |number| HostAddress { interface: "eth0".to_owned(), address: Ipv4Addr::new(10, 77, 0, number + 1) };
    let network = "10.77.0.0/24".parse().ok();
    CommonNetwork { network, places: (0..count).map(place).collect(), is_named: true }
}

pub fn open(from: usize, to: usize, speed: Option<f64>) -> Link {
    let state = LinkState::Open { latency: Seconds(0.00002), speed: speed.map(GigabytesPerSecond), detour: None };
    Link { from, to, state }
}
