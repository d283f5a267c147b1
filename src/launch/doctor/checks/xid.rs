//! Checks the kernel log for errors of GPUs.

use crate::launch::doctor::checks::finding::{Check, Findings, Severity};
use crate::launch::doctor::probe::Xid;

/// Errors after which the GPU cannot be used until it is reset or replaced. Numbers and names are those of NVIDIA's
/// [Xid catalog](https://docs.nvidia.com/deploy/xid-errors/).
const FATAL: [(u32, &str); 8] = [
    (48, "double-bit ECC error"),
    (62, "internal micro-controller halt"),
    (64, "row remapper recording failure"),
    (79, "GPU has fallen off the bus"),
    (95, "uncontained memory error"),
    (119, "GSP RPC timeout"),
    (120, "GSP error"),
    (140, "unrecovered ECC error"),
];

/// Checks that the driver has written no errors to the kernel log since boot.
pub fn check_xids(findings: &mut Findings) {
    for (number, host) in findings.hosts.iter().enumerate().filter(|(_, host)| host.has_ranks()) {
        for xid in host.probe.iter().flat_map(|probe| &probe.xids) {
            let (severity, what, fix) = describe(xid);
            findings.add(number, Check::GpuState, severity, what, fix);
        }
    }
}

fn describe(xid: &Xid) -> (Severity, String, &'static str) {
    let Xid { address, number, count } = xid;
    let times = if *count == 1 { String::new() } else { format!(", {count} times") };
    let what = format!("Xid {number} of the GPU at PCI {address} since boot{times}");
    match FATAL.iter().find(|(fatal, _)| fatal == number) {
        Some((_, name)) => (
            Severity::Error,
            format!("{what}: {name}"),
            "reset the GPU (nvidia-smi --gpu-reset) and clear the kernel log (dmesg --clear), or restart the host; \
             replace the GPU if the error returns",
        ),
        None => (
            Severity::Warning,
            what,
            "look the number up in NVIDIA's Xid catalog: most of these are errors of a program; check the GPU if they \
             occur with several programs",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::doctor::checks::fixtures::*;

    #[test]
    fn fatal_errors_are_errors_and_others_warnings() {
        let reported = |xid_number: u32, count: u32| {
            let mut hosts = gpu_hosts(2);
            probe(&mut hosts, 1).xids = vec![Xid { address: "0000:3b:00".to_owned(), number: xid_number, count }];
            assert_eq!(findings_for(&hosts, DeviceChoice::Cpu), []);
            only_finding(&hosts)
        };
        let (host, check, severity, what) = reported(79, 1);
        assert_eq!((&host[..], check, severity), ("b", Check::GpuState, Severity::Error));
        assert_eq!(what, "Xid 79 of the GPU at PCI 0000:3b:00 since boot: GPU has fallen off the bus");
        // The driver has taken the page out of use.
        assert_eq!(reported(94, 1).2, Severity::Warning, "contained memory error");
        let (_, _, severity, what) = reported(13, 3);
        assert_eq!(
            (severity, &what[..]),
            (Severity::Warning, "Xid 13 of the GPU at PCI 0000:3b:00 since boot, 3 times")
        );
    }
}
