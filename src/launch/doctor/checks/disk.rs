//! Checks the disk space for results and temporary files.

use std::path::Path;

use ringmark_core::dimension::Bytes;

use crate::launch::doctor::checks::finding::{Check, Findings, Severity, megabytes};

/// Free space for results below which there is a warning: records take megabytes.
const LOW_SPACE: Bytes = Bytes(1_000_000_000);

/// Free space for results below which there is an error.
const MIN_SPACE: Bytes = Bytes(20_000_000);

/// Free space for Open MPI's session folder below which there is a warning.
const MIN_TEMPORARY_SPACE: Bytes = Bytes(50_000_000);

/// Folder of the results.
pub struct ResultsFolder<'a> {
    /// Path of the folder.
    pub path: &'a Path,
    /// True if it already exists on this machine.
    pub exists: bool,
}

/// Checks the disk space, and that the results folder exists on the host that writes to it.
pub fn check_disk(findings: &mut Findings, results: Option<&ResultsFolder>) {
    for (number, host) in findings.hosts.iter().enumerate() {
        let Some(probe) = &host.probe else { continue };
        if let Some(space) = probe.temporary.filter(|space| space.free.0 < MIN_TEMPORARY_SPACE.0) {
            let what = format!("temporary folder has {} free; Open MPI keeps its session there", megabytes(space.free));
            findings.warning(number, Check::Disk, what, "free space in /tmp, or set TMPDIR to another folder");
        }
        // Rank 0 writes the record on the first host; this machine writes the logs.
        let (Some(results), true) = (results, number == 0 || host.is_here) else { continue };
        let folder = results.path.display();
        if let Some(space) = probe.results.filter(|space| space.free.0 < LOW_SPACE.0) {
            let severity = if space.free.0 < MIN_SPACE.0 { Severity::Error } else { Severity::Warning };
            let what = format!("only {} free for results in {folder}", megabytes(space.free));
            findings.add(number, Check::Disk, severity, what, "free some space, or choose another --out");
        }
        match probe.results_folder {
            Some(false) => {
                let what = format!("results folder {folder} is not writable");
                findings.error(number, Check::Disk, what, "change its owner or mode, or choose another --out");
            }
            None if results.exists && probe.stopped_after.is_none() => {
                let what = format!("rank 0 writes its records to {folder}, which exists only on this machine");
                let fix = "choose an --out that both machines share, or list this machine first in --hosts";
                findings.error(number, Check::Disk, what, fix);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::doctor::checks::fixtures::*;

    #[test]
    fn low_space_for_results_is_reported() {
        let space = |free| Some(FileSystemSpace { size: Bytes(1 << 40), free: Bytes(free) });
        let mut hosts = hosts(2);
        probe(&mut hosts, 1).results = space(0);
        assert_eq!(findings_for(&hosts, DeviceChoice::Auto), []);
        probe(&mut hosts, 0).results = space(500_000_000);
        assert_finding(&hosts, "a", Check::Disk, Severity::Warning, "only 500 MB free for results in /results");
        probe(&mut hosts, 0).results = space(5_000_000);
        assert_finding(&hosts, "a", Check::Disk, Severity::Error, "only 5 MB free");
        probe(&mut hosts, 0).results = space(1 << 40);
        probe(&mut hosts, 1).temporary = space(1_000_000);
        assert_finding(&hosts, "b", Check::Disk, Severity::Warning, "temporary folder has 1 MB free");
        probe(&mut hosts, 1).temporary = None;
        probe(&mut hosts, 0).results_folder = Some(false);
        assert_finding(&hosts, "a", Check::Disk, Severity::Error, "/results is not writable");
        probe(&mut hosts, 0).results_folder = None;
        assert_finding(&hosts, "a", Check::Disk, Severity::Error, "which exists only on this machine");
    }
}
