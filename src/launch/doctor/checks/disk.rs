//! Checks the disk space for results and temporary files.

use std::path::Path;

use ringmark_core::dimension::Bytes;

use crate::launch::doctor::checks::finding::{Check, Findings, Severity, megabytes};

/// Free space for results below which there is a warning: records take megabytes.
const LITTLE_SPACE: Bytes = Bytes(1_000_000_000);

/// Free space for results below which there is an error.
const NO_SPACE: Bytes = Bytes(20_000_000);

/// Free space for Open MPI's session folder below which there is a warning.
const TEMPORARY_SPACE: Bytes = Bytes(50_000_000);

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
        if let Some(space) = probe.temporary.filter(|space| space.free.0 < TEMPORARY_SPACE.0) {
            let what = format!(
                "its folder of temporary files has {} free, where Open MPI keeps its session",
                megabytes(space.free)
            );
            findings.warning(number, Check::Disk, what, "make room in /tmp, or point TMPDIR elsewhere");
        }
        // Rank 0 writes the record on the first host; this machine writes the logs.
        let (Some(results), true) = (results, number == 0 || host.is_here) else { continue };
        let folder = results.path.display();
        if let Some(space) = probe.results.filter(|space| space.free.0 < LITTLE_SPACE.0) {
            let severity = if space.free.0 < NO_SPACE.0 { Severity::Error } else { Severity::Warning };
            let what = format!("{} are free for the results in {folder}", megabytes(space.free));
            findings.add(number, Check::Disk, severity, what, "make room, or choose another --out");
        }
        match probe.results_folder {
            Some(false) => {
                let what = format!("the results' folder {folder} cannot be written to");
                findings.error(number, Check::Disk, what, "change its owner or mode, or choose another --out");
            }
            None if results.exists && probe.stopped_after.is_none() => {
                let what =
                    format!("rank 0 runs there and writes its records to {folder}, which is on this machine alone");
                let fix = "choose an --out that both share, or name this machine first in --hosts";
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
    fn there_is_room_for_the_results_where_they_are_written() {
        let space = |free| Some(Space { size: Bytes(1 << 40), free: Bytes(free) });
        let mut hosts = hosts(2);
        probe(&mut hosts, 1).results = space(0);
        assert_eq!(found_for(&hosts, DeviceChoice::Auto), []);
        probe(&mut hosts, 0).results = space(500_000_000);
        finds(&hosts, "a", Check::Disk, Severity::Warning, "500 MB are free for the results in /results");
        probe(&mut hosts, 0).results = space(5_000_000);
        finds(&hosts, "a", Check::Disk, Severity::Error, "5 MB are free");
        probe(&mut hosts, 0).results = space(1 << 40);
        probe(&mut hosts, 1).temporary = space(1_000_000);
        finds(&hosts, "b", Check::Disk, Severity::Warning, "temporary files has 1 MB free");
        probe(&mut hosts, 1).temporary = None;
        probe(&mut hosts, 0).results_folder = Some(false);
        finds(&hosts, "a", Check::Disk, Severity::Error, "/results cannot be written to");
        probe(&mut hosts, 0).results_folder = None;
        finds(&hosts, "a", Check::Disk, Severity::Error, "which is on this machine alone");
    }
}
