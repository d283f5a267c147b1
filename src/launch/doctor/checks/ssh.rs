//! Checks that the hosts answer ssh, that mpirun's daemon can be started there, and that clocks agree.

use std::collections::HashMap;

use crate::launch::doctor::checks::finding::{Check, Findings, Outlier, outliers, values};
use crate::launch::local::open_mpi::OpenMpi;

/// Largest clock difference at which times of different hosts are still comparable.
const MAX_CLOCK_DIFFERENCE: f64 = 1.0;

/// Threshold for a slow connection. ssh within one network takes a small fraction of this.
pub const SLOW_SSH_SECONDS: f64 = 5.0;

/// Checks that ssh connects without a password and in time.
pub fn check_ssh(findings: &mut Findings) {
    for (number, host) in findings.hosts.iter().enumerate() {
        if let Some(refusal) = &host.refusal {
            findings.error(number, Check::Ssh, &refusal.what, &refusal.fix);
        }
        if let Some(warning) = &host.warning {
            findings.warning(number, Check::Ssh, &warning.what, &warning.fix);
        }
        if let Some(last) = host.probe.as_ref().and_then(|probe| probe.stopped_after.as_ref()) {
            let what = format!("host probe hung after {last}");
            let fix = "log in and check which of df, ompi_info and nvidia-smi hangs, for example on an unresponsive \
                file system";
            findings.error(number, Check::Ssh, what, fix);
        }
        if let Some(time) = host.ssh.filter(|time| time.0 > SLOW_SSH_SECONDS) {
            let what = format!("ssh takes {time:.1} to connect, which delays every launch");
            let fix = "check for an unresponsive name server (UseDNS no) or a slow shell start-up file";
            findings.warning(number, Check::Ssh, what, fix);
        }
    }
}

/// Checks that Open MPI can start its daemon and distinguish the hosts.
pub fn check_mpirun(findings: &mut Findings) {
    let here = findings.hosts.iter().find(|host| host.is_here).and_then(|host| host.probe.as_ref());
    let mpirun_here = here.map_or("", |probe| &probe.mpirun);
    let mut names: HashMap<&str, usize> = HashMap::new();
    for (number, host) in findings.hosts.iter().enumerate() {
        let Some(probe) = &host.probe else { continue };
        if !probe.orted && !host.is_here {
            let daemon = OpenMpi::from_version(mpirun_here).daemon();
            let what = format!("{daemon}, which mpirun starts on every host, is not on the PATH of ssh commands");
            let fix =
                "install Open MPI there (scripts/setup.sh), or add its bin folder to the PATH of non-login shells";
            findings.error(number, Check::Mpirun, what, fix);
        }
        match names.get(probe.name.as_str()) {
            Some(first) => {
                let first = &findings.hosts[*first].host;
                let what =
                    format!("host name is {}, the same as on {first}: Open MPI treats both as one host", probe.name);
                let fix =
                    "give each host a unique name (hostnamectl set-hostname); if both are the same host, list it once";
                findings.error(number, Check::Mpirun, what, fix);
            }
            None => {
                names.insert(&probe.name, number);
            }
        }
    }
    let versions =
        values(findings.hosts, |host| Some(host.probe.as_ref()?.mpirun.clone()).filter(|text| !text.is_empty()));
    for Outlier { number, value: version, usual, most } in outliers(&versions) {
        let what = format!("version is {version}; {most} have {usual}");
        findings.error(number, Check::Mpirun, what, "install the same Open MPI on all hosts (scripts/setup.sh)");
    }
}

/// Checks that times of different hosts are comparable.
pub fn check_clock(findings: &mut Findings) {
    for (number, host) in findings.hosts.iter().enumerate() {
        if let Some(ahead) = host.clock_ahead.filter(|ahead| ahead.0.abs() > MAX_CLOCK_DIFFERENCE) {
            let side = if ahead.0 > 0.0 { "ahead of" } else { "behind" };
            let what = format!("clock is {:.1} s {side} this machine's", ahead.0.abs());
            let fix = "synchronize both with the same time server: timedatectl set-ntp true, chronyc tracking";
            findings.warning(number, Check::Clock, what, fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::doctor::checks::fixtures::{self, *};

    #[test]
    fn unreachable_host_is_reported_once() {
        let mut hosts = hosts(3);
        let refusal = SshFailure { what: "host unreachable".to_owned(), fix: "switch it on".to_owned() };
        hosts[1] = HostFacts { host: "b".to_owned(), refusal: Some(refusal.clone()), ..HostFacts::default() };
        assert_finding(&hosts, "b", Check::Ssh, Severity::Error, "host unreachable");

        let mut hosts = fixtures::hosts(2);
        hosts[1].warning = Some(refusal);
        assert_finding(&hosts, "b", Check::Ssh, Severity::Warning, "host unreachable");
        hosts[1].warning = None;
        hosts[1].ssh = Some(Seconds(7.3));
        assert_finding(&hosts, "b", Check::Ssh, Severity::Warning, "ssh takes 7.3 s");
        hosts[1].ssh = None;
        probe(&mut hosts, 1).stopped_after = Some("memlock_kib".to_owned());
        assert_finding(&hosts, "b", Check::Ssh, Severity::Error, "host probe hung after memlock_kib");
    }

    #[test]
    fn missing_orted_and_duplicate_host_names_are_reported() {
        let mut hosts = hosts(3);
        probe(&mut hosts, 2).orted = false;
        assert_finding(
            &hosts,
            "c",
            Check::Mpirun,
            Severity::Error,
            "orted, which mpirun starts on every host, is not on the \
             PATH",
        );
        // mpirun starts no daemon on its own machine.
        hosts[2].is_here = true;
        assert_eq!(findings_for(&hosts, DeviceChoice::Auto), []);
        probe(&mut hosts, 2).name = "a".to_owned();
        assert_finding(&hosts, "c", Check::Mpirun, Severity::Error, "host name is a, the same as on a");
        probe(&mut hosts, 2).name = "c".to_owned();
        probe(&mut hosts, 0).mpirun = "mpirun (Open MPI) 5.0.1".to_owned();
        assert_finding(
            &hosts,
            "a",
            Check::Mpirun,
            Severity::Error,
            "(Open MPI) 5.0.1; 2 of 3 hosts have mpirun (Open MPI) 4.1.4",
        );
    }

    #[test]
    fn clock_difference_is_reported() {
        let mut hosts = hosts(2);
        hosts[1].clock_ahead = Some(Seconds(-3.24));
        assert_finding(&hosts, "b", Check::Clock, Severity::Warning, "clock is 3.2 s behind this machine's");
    }
}
