//! Checks the memory of the ranks, the limit of locked memory, and /dev/shm.

use std::collections::BTreeMap;

use ringmark_core::dimension::Bytes;

use crate::launch::doctor::checks::finding::{Check, Findings, megabytes};
use crate::launch::doctor::probe::Port;
use crate::launch::job::job_launch::NeededMemory;

/// Space in /dev/shm for each rank on a GPU: NCCL's buffers.
const SHARED_MEMORY_ON_GPU: Bytes = Bytes(64 << 20);

/// Space in /dev/shm for each rank on the CPU: Open MPI's queues.
const SHARED_MEMORY_ON_CPU: Bytes = Bytes(16 << 20);

/// Checks that each host has the memory that its ranks and servers need in the most demanding job.
pub fn check_needed_memory(findings: &mut Findings, needed: &BTreeMap<String, NeededMemory>) {
    for (number, host) in findings.hosts.iter().enumerate() {
        let Some(needed) = needed.get(&host.host).copied() else { continue };
        let available = host.inspection.as_ref().and_then(|inspection| inspection.available_memory);
        if let Some(available) = available.filter(|available| available.0 < needed.total().0) {
            const FEWER_IMAGES: &str = "choose a smaller --batch-size, --cases with fewer ranks per host";
            const MORE_SERVERS: &str = "more --servers, other --server-hosts";
            let (processes, fix) = match (needed.ranks.0, needed.servers.0) {
                (_, 0) => ("ranks", FEWER_IMAGES.to_owned()),
                (0, _) => ("servers", format!("choose {MORE_SERVERS}")),
                _ => ("ranks and servers", format!("{FEWER_IMAGES}, {MORE_SERVERS}")),
            };
            let (needed, available) = (megabytes(needed.total()), megabytes(available));
            let what = format!("{processes} need about {needed} of memory, but {available} is available");
            let fix = format!("{fix}, or stop other processes on the host");
            findings.error(number, Check::Memory, what, fix);
        }
    }
}

/// Checks that the ranks' transports have the memory that they need.
pub fn check_memory(findings: &mut Findings) {
    for (number, host) in findings.hosts.iter().enumerate() {
        let Some(probe) = &host.probe else { continue };
        if let Some(limit) = probe.memlock.filter(|_| probe.ports.iter().any(Port::is_up)) {
            let what = format!("locked memory is limited to {}; InfiniBand needs it unlimited", megabytes(limit));
            let fix = "set memlock to unlimited in /etc/security/limits.conf and for sshd's service; in a container: \
                use --ulimit memlock=-1 or --cap-add=IPC_LOCK";
            findings.warning(number, Check::Memlock, what, fix);
        }
        let per_rank = if probe.gpus.list().is_empty() { SHARED_MEMORY_ON_CPU } else { SHARED_MEMORY_ON_GPU };
        let needed = Bytes(per_rank.0 * u64::from(host.slots));
        if let Some(space) = probe.shared_memory.filter(|space| space.free.0 < needed.0) {
            let what = format!(
                "/dev/shm has {} free, but ranks may need {}; SIGBUS kills a rank that gets no space",
                megabytes(space.free),
                megabytes(needed)
            );
            let fix = "remove stale files from it, or enlarge it: mount -o remount,size=8g /dev/shm; in a container: \
                use --shm-size=8g";
            findings.warning(number, Check::SharedMemory, what, fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::launch::doctor::checks::fixtures::{self, *};

    #[test]
    fn insufficient_host_memory_is_an_error() {
        let mut hosts = fixtures::hosts(2);
        inspection(&mut hosts, 0).available_memory = Some(Bytes(16_000_000_000));
        inspection(&mut hosts, 1).available_memory = Some(Bytes(2_000_000_000));
        let found = |hosts: &[HostFacts], needed: &[(&str, u64, u64)]| {
            let mut findings = Findings::new(hosts);
            let entry = |(host, ranks, servers): &(&str, u64, u64)| {
                ((*host).to_owned(), NeededMemory { ranks: Bytes(*ranks), servers: Bytes(*servers) })
            };
            let needed = needed.iter().map(entry).collect();
            check_needed_memory(&mut findings, &needed);
            findings.found
        };
        let all = found(&hosts, &[("a", 3_000_000_000, 0), ("b", 3_000_000_000, 0)]);
        assert_eq!((all.len(), all[0].host.as_str(), all[0].severity), (1, "b", Severity::Error));
        expect!["ranks need about 3000 MB of memory, but 2000 MB is available"].assert_eq(&all[0].what);
        for enough in [&[("b", 1_000_000_000, 0)][..], &[("a", 3_000_000_000, 0)], &[]] {
            assert_eq!(found(&hosts, enough), Vec::new());
        }
        let found = [(0, 3_000_000_000), (1_500_000_000, 1_500_000_000)].map(|(ranks, servers)| {
            let all = found(&hosts, &[("b", ranks, servers)]);
            format!("{}: {}", all[0].what, all[0].fix)
        });
        expect![[r#"
            servers need about 3000 MB of memory, but 2000 MB is available: choose more --servers, other --server-hosts, or stop other processes on the host
            ranks and servers need about 3000 MB of memory, but 2000 MB is available: choose a smaller --batch-size, --cases with fewer ranks per host, more --servers, other --server-hosts, or stop other processes on the host"#]].assert_eq(&found.join("\n"));
    }

    #[test]
    fn memlock_and_shared_memory_limits_are_reported() {
        let mut hosts = gpu_hosts(2);
        probe(&mut hosts, 1).memlock = Some(Bytes(8_388_608));
        assert_finding(&hosts, "b", Check::Memlock, Severity::Warning, "locked memory is limited to 8 MB");
        let mut hosts = fixtures::hosts(2);
        probe(&mut hosts, 1).memlock = Some(Bytes(8_388_608));
        assert_eq!(findings_for(&hosts, DeviceChoice::Auto), []);

        // A container's 64 MB are enough for two ranks without GPUs, but not for two with GPUs.
        let small = Some(FileSystemSpace { size: Bytes(64 << 20), free: Bytes(64 << 20) });
        probe(&mut hosts, 0).shared_memory = small;
        assert_eq!(findings_for(&hosts, DeviceChoice::Auto), []);
        let mut hosts = gpu_hosts(2);
        probe(&mut hosts, 0).shared_memory = small;
        assert_finding(
            &hosts,
            "a",
            Check::SharedMemory,
            Severity::Warning,
            "has 67 MB free, but ranks may need 134 \
             MB",
        );
    }
}
