//! Checks of InfiniBand and RoCE: ports, their errors, and their access to the memory of GPUs.

use std::collections::BTreeSet;

use ringmark_core::stats::summary::median;

use crate::launch::doctor::checks::finding::{Check, Findings, Outlier, outliers, values};
use crate::launch::doctor::probe::{NvidiaModule, Port, Probe};

/// Multiple of the median that the errors of a port exceed, plus as many errors: cables are unplugged on every host.
const ERROR_FACTOR: f64 = 3.0;

/// First kernel with dma-buf for InfiniBand.
const DMA_BUF_KERNEL: (u32, u32) = (5, 12);

/// Checks that InfiniBand and RoCE ports are up, usable, and the same on all hosts.
pub fn check_ports(findings: &mut Findings) {
    const FIX: &str = "check cable, switch port, subnet manager (opensm) and openibd with ibstat and ibv_devinfo";
    for (number, host) in findings.hosts.iter().enumerate() {
        let ports = host.probe.as_ref().map(|probe| probe.ports.as_slice()).unwrap_or_default();
        if !ports.is_empty() && !ports.iter().any(Port::is_up) {
            let what = format!("no InfiniBand or RoCE port is up: {}", describe_ports(ports));
            findings.warning(number, Check::Infiniband, what, FIX);
        }
        // A container may be given only some of the machine's ports.
        let has_gpus = host.probe.as_ref().is_some_and(|probe| !probe.gpus.list().is_empty());
        let mut up = ports.iter().filter(|port| port.is_up()).peekable();
        if has_gpus && up.peek().is_some() && !up.any(|port| port.can_be_opened) {
            let what =
                format!("InfiniBand and RoCE ports cannot be opened ({}): NCCL will use TCP", describe_ports(ports));
            let fix = "in a container: use --device=/dev/infiniband, or on Kubernetes the cluster's rdma resource; \
                elsewhere: run modprobe ib_uverbs, and check the permissions of /dev/infiniband/uverbs*";
            findings.warning(number, Check::Infiniband, what, fix);
        }
    }
    let active = values(findings.hosts, |host| {
        let mut up: Vec<String> =
            host.probe.as_ref()?.ports.iter().filter(|port| port.is_up()).map(|port| port.rate.clone()).collect();
        up.sort();
        Some(up)
    });
    let listed = |rates: &[String]| if rates.is_empty() { "none".to_owned() } else { rates.join(", ") };
    for Outlier { number, value, usual, most } in outliers(&active) {
        let probe: Option<&Probe> = findings.hosts[number].probe.as_ref();
        let ports = probe.map(|probe| describe_ports(&probe.ports)).unwrap_or_default();
        let what = format!("active InfiniBand ports are {} ({ports}); {most} have {}", listed(&value), listed(&usual));
        findings.warning(number, Check::Infiniband, what, FIX);
    }
}

/// Formats ports as `mlx5_0:1 ACTIVE, mlx5_1:1 DOWN (Disabled)`.
fn describe_ports(ports: &[Port]) -> String {
    let describe = |port: &Port| match port.is_up() {
        true => format!("{} {}", port.name, port.state),
        false => format!("{} {} ({})", port.name, port.state, port.physical),
    };
    if ports.is_empty() { "none".to_owned() } else { ports.iter().map(describe).collect::<Vec<_>>().join(", ") }
}

/// Compares the error counters of the active ports of all hosts. They count since the port was started or cleared.
pub fn check_port_errors(findings: &mut Findings) {
    const FIX: &str =
        "check cable, transceiver and switch port (ibdiagnet, mlxlink), then clear the counters: perfquery -x -R";
    let hosts = findings.hosts.iter().enumerate().filter_map(|(number, host)| Some((number, host.probe.as_ref()?)));
    let ports = hosts.flat_map(|(number, probe)| probe.ports.iter().map(move |port| (number, port)));
    let ports: Vec<(usize, &Port)> = ports.filter(|(_, port)| port.is_up()).collect();
    let counters: BTreeSet<&String> = ports.iter().flat_map(|(_, port)| port.errors.keys()).collect();
    for counter in counters {
        let errors = |port: &Port| port.errors.get(counter).copied().unwrap_or_default();
        let usual =
            median(&ports.iter().map(|(_, port)| errors(port) as f64).collect::<Vec<f64>>()).unwrap_or_default();
        let is_outlier = |port: &Port| errors(port) as f64 > ERROR_FACTOR * (usual + 1.0);
        for (number, port) in ports.iter().filter(|(_, port)| is_outlier(port)) {
            let (name, all) = (&port.name, ports.len());
            let what = format!("port {name}: {counter} is {}; the median of {all} ports is {usual}", errors(port));
            findings.warning(*number, Check::Infiniband, what, FIX);
        }
    }
}

/// Checks that InfiniBand can read and write the memory of GPUs: by the module `nvidia_peermem`, or by dma-buf, which
/// needs a kernel from [`DMA_BUF_KERNEL`] on and NVIDIA's open kernel module. Otherwise NCCL copies through the host.
pub fn check_direct_access(findings: &mut Findings) {
    for (number, host) in findings.hosts.iter().enumerate().filter(|(_, host)| host.has_ranks()) {
        let Some(probe) = &host.probe else { continue };
        let is_needed = !probe.gpus.list().is_empty() && probe.ports.iter().any(Port::is_up);
        let is_old = kernel_version(&probe.kernel).is_some_and(|version| version < DMA_BUF_KERNEL);
        let reason = match probe.nvidia_module {
            _ if !is_needed || probe.has_peer_memory => continue,
            Some(NvidiaModule::Closed) => "the NVIDIA kernel module is not the open one".to_owned(),
            Some(NvidiaModule::Open) if is_old => format!("{} is older than 5.12", probe.kernel),
            Some(NvidiaModule::Open) | None => continue,
        };
        let what = format!("GPUDirect RDMA is off: nvidia_peermem is not loaded, and {reason}");
        let fix = "run modprobe nvidia_peermem, or use the open kernel module on a kernel from 5.12 on";
        findings.warning(number, Check::Infiniband, what, fix);
    }
}

/// Parses the version in `Linux 5.15.0-91-generic`.
fn kernel_version(kernel: &str) -> Option<(u32, u32)> {
    let mut numbers = kernel.split_once(' ')?.1.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::launch::doctor::checks::fixtures::*;

    #[test]
    fn inactive_or_different_infiniband_ports_are_reported() {
        let mut hosts = gpu_hosts(3);
        probe(&mut hosts, 2).ports[1] = port(2, "DOWN", "Disabled");
        let text = "are 400 Gb/sec (4X NDR) (mlx5_1:1 ACTIVE, mlx5_2:1 DOWN (Disabled)); 2 of 3 hosts have 400 Gb/sec";
        assert_finding(&hosts, "c", Check::Infiniband, Severity::Warning, text);
        // A port that is down on every host is not meant to be used.
        (0..2).for_each(|number| probe(&mut hosts, number).ports[1] = port(2, "DOWN", "Disabled"));
        assert_eq!(findings_for(&hosts, DeviceChoice::Auto), []);
        (0..3).for_each(|number| probe(&mut hosts, number).ports = vec![port(1, "INIT", "LinkUp")]);
        let findings = findings_for(&hosts, DeviceChoice::Auto);
        assert_eq!(findings.len(), 3);
        expect!["no InfiniBand or RoCE port is up: mlx5_1:1 INIT (LinkUp)"].assert_eq(&findings[0].what);
    }

    #[test]
    fn unusable_infiniband_is_reported_on_gpu_hosts() {
        let mut hosts = gpu_hosts(2);
        probe(&mut hosts, 1).ports[0].can_be_opened = false;
        assert_eq!(findings_for(&hosts, DeviceChoice::Auto), []);
        probe(&mut hosts, 1).ports[1].can_be_opened = false;
        let text = "InfiniBand and RoCE ports cannot be opened (mlx5_1:1 ACTIVE, mlx5_2:1 ACTIVE): NCCL will use TCP";
        assert_finding(&hosts, "b", Check::Infiniband, Severity::Warning, text);
        probe(&mut hosts, 1).gpus = Gpus::None;
        let infiniband = |finding: &Finding| finding.check == Check::Infiniband;
        assert!(!findings_for(&hosts, DeviceChoice::Auto).iter().any(infiniband));
    }

    #[test]
    fn port_with_more_errors_than_the_others_is_reported() {
        let mut hosts = gpu_hosts(3);
        let mut set = |number: usize, errors| {
            probe(&mut hosts, number).ports[0].errors.insert("link_downed".to_owned(), errors);
            findings_for(&hosts, DeviceChoice::Auto)
        };
        assert_eq!(set(1, 3), []);
        let found = set(1, 4);
        assert_eq!((found.len(), &found[0].host[..], found[0].severity), (1, "b", Severity::Warning));
        expect!["port mlx5_1:1: link_downed is 4; the median of 6 ports is 0"].assert_eq(&found[0].what);
        // The cables of every host were unplugged.
        hosts.iter_mut().flat_map(|host| &mut host.probe.as_mut().expect("one").ports).for_each(|port| {
            port.errors.insert("link_downed".to_owned(), 4);
        });
        assert_eq!(findings_for(&hosts, DeviceChoice::Auto), []);
    }

    #[test]
    fn missing_direct_access_is_reported() {
        let with = |kernel: &str, module, has_peer_memory| {
            let mut hosts = gpu_hosts(1);
            let probe = probe(&mut hosts, 0);
            (probe.kernel, probe.nvidia_module, probe.has_peer_memory) = (kernel.to_owned(), module, has_peer_memory);
            findings_for(&hosts, DeviceChoice::Auto).into_iter().map(|finding| finding.what).collect::<Vec<_>>()
        };
        let (open, closed) = (Some(NvidiaModule::Open), Some(NvidiaModule::Closed));
        for (kernel, module) in [("Linux 5.12.0", open), ("Linux 6.8.0-45-generic", open), ("Linux 5.4.0", None)] {
            assert_eq!(with(kernel, module, false), [""; 0], "{kernel}");
        }
        assert_eq!(with("Linux 5.4.0", closed, true), [""; 0]);
        expect!["GPUDirect RDMA is off: nvidia_peermem is not loaded, and Linux 5.4.0-150-generic is older than 5.12"]
            .assert_eq(&with("Linux 5.4.0-150-generic", open, false).join("\n"));
        expect![
            "GPUDirect RDMA is off: nvidia_peermem is not loaded, and the NVIDIA kernel module is not the open one"
        ]
        .assert_eq(&with("Linux 6.8.0", closed, false).join("\n"));
    }
}
