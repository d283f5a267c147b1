//! Checks that every host has the same worker and libraries, and that the worker starts.

use std::path::Path;

use ringmark_core::host::{Inspection, Library};

use crate::launch::doctor::checks::finding::{Check, Findings, Outlier, Severity, outliers, values};
use crate::launch::doctor::host::HostFacts;
use crate::launch::doctor::probe::WorkerFile;

/// Checks that the worker exists and starts.
pub fn check_worker(findings: &mut Findings, worker: &Path) {
    const COPY: &str = "copy the program to the same path on the host, or use a shared folder or --sync";
    let worker = worker.display();
    for (number, host) in findings.hosts.iter().enumerate() {
        let Some(probe) = &host.probe else { continue };
        match probe.worker {
            WorkerFile::Missing => {
                findings.error(number, Check::Worker, format!("{worker} not found"), COPY);
            }
            WorkerFile::Refused => {
                findings.error(
                    number,
                    Check::Worker,
                    format!("{worker} is not executable"),
                    format!("chmod +x {worker}"),
                );
            }
            _ => {}
        }
        if let Some(failure) = &host.worker_failure {
            // The dynamic loader's message begins with the program.
            let starts = ["error: ", &format!("{worker}: ")];
            let reason = starts.iter().find_map(|start| failure.strip_prefix(start)).unwrap_or(failure);
            let is_loader_error = ["shared libraries", "symbol", "version `"].iter().any(|part| reason.contains(part));
            let fix = if is_loader_error {
                "run scripts/setup.sh there (ringmark-setup with the Debian package) to install the libraries at the \
                 same paths, or use --sync"
            } else {
                "run it by hand on the host: ringmark-worker agent </dev/null"
            };
            findings.error(number, Check::Worker, format!("{worker} does not start: {reason}"), fix);
        }
    }
    let hashes = values(findings.hosts, |host| match &host.probe.as_ref()?.worker {
        WorkerFile::Hash(hash) => Some(hash.clone()),
        _ => None,
    });
    for Outlier { number, value: hash, usual, most } in outliers(&hashes) {
        let short = |hash: &str| hash.chars().take(12).collect::<String>();
        let what = format!("{worker} differs: SHA-256 is {}; {most} have {}", short(&hash), short(&usual));
        findings.error(number, Check::Worker, what, COPY);
    }
}

/// A version to compare between hosts.
struct Version {
    name: &'static str,
    /// Reads the version of one host.
    read: fn(&HostFacts) -> Option<String>,
    /// Severity of a difference.
    severity: Severity,
    fix: &'static str,
}

/// Checks that the worker's libraries are the same on all hosts.
pub fn check_versions(findings: &mut Findings) {
    fn inspected(host: &HostFacts, read: impl FnOnce(&Inspection) -> Option<String>) -> Option<String> {
        host.inspection.as_ref().and_then(read)
    }
    fn describe_library(library: &Library) -> String {
        format!("{} ({} at {})", library.version, library.bytes, library.path)
    }
    const SAME: &str = "install the same version on all hosts: run scripts/setup.sh, or use --sync";
    const LIBRARY: &str = "check LD_LIBRARY_PATH there, then run scripts/setup.sh, or use --sync";
    let compared = [
        Version {
            name: "ringmark-worker",
            read: |host| inspected(host, |found| Some(found.ringmark_version.clone())),
            severity: Severity::Error,
            fix: SAME,
        },
        Version {
            name: "libtorch",
            read: |host| {
                inspected(host, |found| Some(format!("{} ({})", found.libtorch.version, found.libtorch.bytes)))
            },
            severity: Severity::Error,
            fix: LIBRARY,
        },
        Version {
            name: "MPI",
            read: |host| inspected(host, |found| Some(found.mpi.version.clone())),
            severity: Severity::Error,
            fix: SAME,
        },
        Version {
            name: "NCCL",
            read: |host| inspected(host, |found| Some(found.nccl.as_ref()?.version.clone())),
            severity: Severity::Error,
            fix: LIBRARY,
        },
        Version {
            name: "CUDA runtime",
            read: |host| inspected(host, |found| found.nccl.as_ref().and(found.cuda_runtime.clone())),
            severity: Severity::Error,
            fix: SAME,
        },
        Version {
            name: "NVIDIA driver",
            read: |host| Some(host.probe.as_ref()?.gpus.list().first()?.driver.clone()),
            severity: Severity::Warning,
            fix: "install the same driver on all hosts: speed may differ between drivers",
        },
    ];
    for Version { name, read, severity, fix } in compared {
        for Outlier { number, value, usual, most } in outliers(&values(findings.hosts, read)) {
            let path = match (name, &findings.hosts[number].inspection) {
                ("libtorch", Some(found)) => format!(", {}", describe_library(&found.libtorch)),
                ("NCCL", Some(Inspection { nccl: Some(nccl), .. })) => format!(", {}", describe_library(nccl)),
                _ => String::new(),
            };
            let what = format!("{name} is {value}{path}; {most} have {usual}");
            findings.add(number, Check::Versions, severity, what, fix);
        }
    }
    for (number, host) in findings.hosts.iter().enumerate() {
        let copies = host.inspection.as_ref().map(|found| found.nccl_copies.as_slice()).unwrap_or_default();
        if copies.len() > 1 {
            let what = format!("worker loads {} copies of NCCL: {}", copies.len(), copies.join(", "));
            let fix = "remove the one that libtorch does not use from LD_LIBRARY_PATH, LD_PRELOAD and NCCL's plugins";
            findings.error(number, Check::Versions, what, fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::doctor::checks::fixtures::*;

    #[test]
    fn different_missing_or_failing_worker_is_reported() {
        let mut hosts = hosts(3);
        probe(&mut hosts, 1).worker = WorkerFile::Hash("fedcba9876543210".to_owned());
        assert_finding(
            &hosts,
            "b",
            Check::Worker,
            Severity::Error,
            "SHA-256 is fedcba987654; 2 of 3 hosts have 0123456789ab",
        );
        probe(&mut hosts, 1).worker = WorkerFile::Unknown;
        assert_eq!(findings_for(&hosts, DeviceChoice::Auto), []);
        hosts[1].inspection = None;
        probe(&mut hosts, 1).worker = WorkerFile::Missing;
        assert_finding(&hosts, "b", Check::Worker, Severity::Error, "/opt/ringmark-worker not found");
        probe(&mut hosts, 1).worker = WorkerFile::Refused;
        assert_finding(&hosts, "b", Check::Worker, Severity::Error, "is not executable");
        probe(&mut hosts, 1).worker = WorkerFile::Hash("0123456789abcdef".to_owned());
        hosts[1].worker_failure = Some("error while loading shared libraries: libtorch_cpu.so".to_owned());
        assert_finding(
            &hosts,
            "b",
            Check::Worker,
            Severity::Error,
            "does not start: error while loading shared libraries",
        );
        assert!(findings_for(&hosts, DeviceChoice::Auto)[0].fix.contains("scripts/setup.sh"));
    }

    #[test]
    fn different_library_versions_are_reported() {
        for (change, severity, text) in [
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
                    probe(hosts, 2).gpus = Gpus::Found(vec![gpu(0), gpu(1)]);
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
            assert_finding(&hosts, "c", Check::Versions, severity, text);
        }
    }

    #[test]
    fn first_host_is_the_reference_in_a_tie() {
        let mut hosts = hosts(2);
        inspection(&mut hosts, 0).mpi = library("Open MPI v5");
        assert_finding(
            &hosts,
            "b",
            Check::Versions,
            Severity::Error,
            "MPI is Open MPI v4.1.4; 1 of 2 hosts have Open MPI v5",
        );
    }
}
