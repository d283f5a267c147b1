//! Checks that the data is readable and identical on every host.

use std::path::PathBuf;

use crate::launch::doctor::checks::finding::{Check, Findings, values};
use crate::launch::doctor::probe::DataState;

/// Checks that every host with ranks can read each path of `data`, with the same contents as on this machine, or else
/// as on the first host that can read it.
pub fn check_data(findings: &mut Findings, data: &[PathBuf]) {
    for (index, path) in data.iter().enumerate() {
        let path = path.display();
        let found = values(findings.hosts, |host| {
            let state = host.probe.as_ref()?.data.get(index)?;
            host.has_ranks().then_some(*state)
        });
        let readable = || found.iter().filter(|(_, state)| state.is_readable());
        let local = readable().find(|(number, _)| findings.hosts[*number].is_here);
        let reference = local.or_else(|| readable().next()).copied();
        for &(number, state) in &found {
            match (state, reference) {
                (DataState::Unknown, _) => {
                    let fix = "check that its disk or file server responds";
                    findings.warning(number, Check::Data, format!("{path} did not respond within 3 s"), fix);
                }
                (DataState::Missing, _) => {
                    let fix = "copy the data to the host, or use a path that all hosts share";
                    findings.error(number, Check::Data, format!("{path} not found"), fix);
                }
                (DataState::Refused, _) => {
                    let fix = "change its owner or mode";
                    findings.error(number, Check::Data, format!("{path} is not readable"), fix);
                }
                (state, Some((other, usual))) if state != usual => {
                    let other = &findings.hosts[other].host;
                    let what = format!("{path} is {state}, but {usual} on host {other}");
                    findings.error(number, Check::Data, what, "copy it again: all ranks must read the same data");
                }
                (DataState::File { .. } | DataState::Folder { .. }, _) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::launch::doctor::checks::fixtures::*;

    const RECORDS: DataState = DataState::File { size: Bytes(110_024) };

    fn found(hosts: &[HostFacts]) -> Vec<(String, Severity, String)> {
        let mut findings = Findings::new(hosts);
        check_data(&mut findings, &["/data/train.rec", "/data/images"].map(PathBuf::from));
        findings.found.into_iter().map(|finding| (finding.host, finding.severity, finding.what)).collect()
    }

    #[test]
    fn missing_unreadable_or_different_data_is_reported() {
        let mut hosts = hosts(3);
        let folder = |entries| DataState::Folder { entries };
        (0..3).for_each(|number| probe(&mut hosts, number).data = vec![RECORDS, folder(1000)]);
        assert_eq!(found(&hosts), []);
        probe(&mut hosts, 0).data[0] = DataState::Missing;
        probe(&mut hosts, 1).data[1] = DataState::Refused;
        probe(&mut hosts, 2).data[1] = folder(999);
        let error = |host: &str, what: &str| (host.to_owned(), Severity::Error, what.to_owned());
        let counts = "/data/images is a folder with 999 entries, but a folder with 1000 entries on host a";
        assert_eq!(
            found(&hosts),
            [error("a", "/data/train.rec not found"), error("b", "/data/images is not readable"), error("c", counts)]
        );
        // This machine's copy is the reference.
        hosts[2].is_here = true;
        expect!["/data/images is a folder with 1000 entries, but a folder with 999 entries on host c"]
            .assert_eq(&found(&hosts)[1].2);
        // Hosts with servers only do not read data. A host that did not answer in time has its own finding.
        (hosts[0].slots, probe(&mut hosts, 1).data) = (0, vec![DataState::Unknown]);
        let slow = ("b".to_owned(), Severity::Warning, "/data/train.rec did not respond within 3 s".to_owned());
        assert_eq!(found(&hosts), [slow]);
    }

    #[test]
    fn different_file_sizes_are_reported() {
        let mut hosts = hosts(2);
        for (number, state) in [RECORDS, DataState::File { size: Bytes(80_000) }].into_iter().enumerate() {
            probe(&mut hosts, number).data = vec![state];
        }
        let [(host, Severity::Error, what)] = &found(&hosts)[..] else { panic!("{:?}", found(&hosts)) };
        assert_eq!(host, "b");
        expect!["/data/train.rec is a file of 80000 bytes, but a file of 110024 bytes on host a"].assert_eq(what);
    }
}
