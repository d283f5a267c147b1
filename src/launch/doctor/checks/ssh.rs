//! Checks that the hosts answer ssh, that mpirun's daemon can be started there, and that clocks agree.

use std::collections::HashMap;

use crate::launch::doctor::checks::finding::{Check, Findings, OddOne, odd_ones, values};

/// Largest clock difference at which times of different hosts are still comparable.
const CLOCK_SECONDS: f64 = 1.0;

/// Threshold for a slow connection. ssh within one network takes a small fraction of this.
const SSH_SECONDS: f64 = 5.0;

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
            let what = format!("it stops answering after {last}: what it is asked next hangs");
            let fix = "log in and see which of df, ompi_info and nvidia-smi hangs: a file system that does not answer does so";
            findings.error(number, Check::Ssh, what, fix);
        }
        if let Some(time) = host.ssh.filter(|time| time.0 > SSH_SECONDS) {
            let what = format!("ssh takes {time:.1} to come through, and every launch waits for it");
            let fix = "look for a name server that does not answer (UseDNS no), or a slow start-up file of the shell";
            findings.warning(number, Check::Ssh, what, fix);
        }
    }
}

/// Checks that Open MPI can start its daemon and distinguish the hosts.
pub fn check_mpirun(findings: &mut Findings) {
    let mut names: HashMap<&str, usize> = HashMap::new();
    for (number, host) in findings.hosts.iter().enumerate() {
        let Some(probe) = &host.probe else { continue };
        if !probe.orted && !host.is_here {
            let what = "a command run by ssh does not find orted there, which mpirun starts on every host";
            let fix =
                "install Open MPI there (scripts/setup.sh), or add its bin to the PATH that a shell without login has";
            findings.error(number, Check::Mpirun, what, fix);
        }
        match names.get(probe.name.as_str()) {
            Some(first) => {
                let first = &findings.hosts[*first].host;
                let what =
                    format!("it calls itself {}, as {first} does: Open MPI takes the two for one host", probe.name);
                let fix =
                    "give each host a name of its own (hostnamectl set-hostname); if it is one host, name it once";
                findings.error(number, Check::Mpirun, what, fix);
            }
            None => {
                names.insert(&probe.name, number);
            }
        }
    }
    let versions =
        values(findings.hosts, |host| Some(host.probe.as_ref()?.mpirun.clone()).filter(|text| !text.is_empty()));
    for OddOne { number, own: version, usual, most } in odd_ones(&versions) {
        let what = format!("it has {version}, {most} have {usual}");
        findings.error(number, Check::Mpirun, what, "install the same Open MPI on all hosts (scripts/setup.sh)");
    }
}

/// Checks that times of different hosts are comparable.
pub fn check_clock(findings: &mut Findings) {
    for (number, host) in findings.hosts.iter().enumerate() {
        if let Some(ahead) = host.clock_ahead.filter(|ahead| ahead.0.abs() > CLOCK_SECONDS) {
            let side = if ahead.0 > 0.0 { "ahead of" } else { "behind" };
            let what = format!("its clock is {:.1} s {side} this machine's", ahead.0.abs());
            let fix = "have both follow one time server: timedatectl set-ntp true, chronyc tracking";
            findings.warning(number, Check::Clock, what, fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::doctor::checks::fixtures::{self, *};

    #[test]
    fn a_host_that_was_not_reached_is_told_once() {
        let mut hosts = hosts(3);
        let refusal = SshFailure { what: "it cannot be reached".to_owned(), fix: "switch it on".to_owned() };
        hosts[1] = HostFacts { host: "b".to_owned(), refusal: Some(refusal.clone()), ..HostFacts::default() };
        finds(&hosts, "b", Check::Ssh, Severity::Error, "it cannot be reached");

        let mut hosts = fixtures::hosts(2);
        hosts[1].warning = Some(refusal);
        finds(&hosts, "b", Check::Ssh, Severity::Warning, "it cannot be reached");
        hosts[1].warning = None;
        hosts[1].ssh = Some(Seconds(7.3));
        finds(&hosts, "b", Check::Ssh, Severity::Warning, "ssh takes 7.3 s");
        hosts[1].ssh = None;
        probe(&mut hosts, 1).stopped_after = Some("memlock_kib".to_owned());
        finds(&hosts, "b", Check::Ssh, Severity::Error, "it stops answering after memlock_kib");
    }

    #[test]
    fn mpirun_needs_its_daemon_and_distinct_names() {
        let mut hosts = hosts(3);
        probe(&mut hosts, 2).orted = false;
        finds(&hosts, "c", Check::Mpirun, Severity::Error, "does not find orted");
        // mpirun starts no daemon on its own machine.
        hosts[2].is_here = true;
        assert_eq!(found_for(&hosts, DeviceChoice::Auto), []);
        probe(&mut hosts, 2).name = "a".to_owned();
        finds(&hosts, "c", Check::Mpirun, Severity::Error, "it calls itself a, as a does");
        probe(&mut hosts, 2).name = "c".to_owned();
        probe(&mut hosts, 0).mpirun = "mpirun (Open MPI) 5.0.1".to_owned();
        finds(
            &hosts,
            "a",
            Check::Mpirun,
            Severity::Error,
            "(Open MPI) 5.0.1, 2 of 3 hosts have mpirun (Open MPI) 4.1.4",
        );
    }

    #[test]
    fn clocks_agree() {
        let mut hosts = hosts(2);
        hosts[1].clock_ahead = Some(Seconds(-3.24));
        finds(&hosts, "b", Check::Clock, Severity::Warning, "its clock is 3.2 s behind this machine's");
    }
}
