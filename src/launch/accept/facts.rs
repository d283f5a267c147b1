//! The facts of the hosts: the doctor's examination, with its findings as `accept` judges them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringmark_core::accept;
use ringmark_core::host::HostLoad;
use ringmark_core::number_text::count;
use ringmark_core::stats::summary::median;

use crate::launch::cluster::hosts::Host;
use crate::launch::cluster::interface::InterfaceChoice;
use crate::launch::cluster::remote::Remote;
use crate::launch::cluster::sync::CopyFailure;
use crate::launch::doctor::checks::finding::{Check, Finding, Outlier, Severity, outliers, values};
use crate::launch::doctor::checks::gpu::gpu_models;
use crate::launch::doctor::checks::ssh::SLOW_SSH_SECONDS;
use crate::launch::doctor::examination::examine;
use crate::launch::doctor::host::{HostFacts, InspectionSettings};
use crate::launch::doctor::network::NetworkTestScope;
use crate::launch::doctor::report;
use crate::launch::job::launcher::{LaunchConfig, Launcher};
use crate::launch::job::starter::Starter;
use crate::launch::local::interrupt::Interrupt;

/// Facts of all hosts.
#[derive(Debug, Default)]
pub struct Facts {
    /// Problems.
    pub findings: Vec<accept::Finding>,
    /// Description of each host's devices; hosts with the same text are compared. Empty if unknown.
    pub hardware: Vec<String>,
    /// Cores of the smallest host, if known.
    pub cores: Option<u32>,
    /// Line about the network of the hosts.
    pub network: Option<String>,
    /// Interface for the jobs, if it matters.
    pub interface: Option<InterfaceChoice>,
    /// Loads of other programs.
    pub busy: Vec<HostLoad>,
}

impl Facts {
    /// Adds an error for each host to which the worker could not be copied, unless the examination already found that ssh
    /// does not reach it.
    pub fn add_failed_copies(&mut self, failures: &[CopyFailure], hosts: &[Host]) {
        let is_reached = |host: usize| !self.findings.iter().any(|found| found.host == host && is_ssh_error(found));
        let named = |failure: &CopyFailure| hosts.iter().position(|host| host.name == failure.host);
        let found = failures.iter().filter_map(|failure| Some((named(failure)?, failure)));
        let found = found.filter(|(host, _)| is_reached(*host)).map(|(host, failure)| accept::Finding {
            host,
            severity: accept::Severity::Error,
            what: format!("sync: {}", failure.what),
            fix: failure.fix.clone(),
        });
        let found: Vec<accept::Finding> = found.collect();
        // First, because a missing worker is their consequence.
        self.findings.splice(0..0, found);
    }
}

fn is_ssh_error(found: &accept::Finding) -> bool {
    found.severity == accept::Severity::Error && found.what.starts_with(Check::Ssh.name())
}

/// Visits all hosts; returns what they have and what is wrong with them.
pub fn collect(
    launcher: &Launcher,
    config: &LaunchConfig,
    results: &Path,
    data: &[PathBuf],
    interrupt: &Interrupt,
) -> anyhow::Result<Facts> {
    let needed = BTreeMap::new();
    let visit = InspectionSettings::for_jobs(launcher, config, results, &needed, data, interrupt);
    let examination = examine(&visit, launcher.hosts(), NetworkTestScope::Quick)?;
    let late = late_hosts(&examination.hosts, &|number| {
        let remote = Remote::new(&launcher.hosts()[number], &config.ssh, launcher.environment());
        let answer = remote.run(&["true"], &[], SSH_LIMIT, interrupt).ok();
        answer.map_or(SSH_LIMIT, |answer| answer.took).as_secs_f64()
    });
    let judged = examination.findings.iter().map(|found| finding(found, &late, config.starter));
    let findings = judged.chain(missing_gpus(&examination.hosts)).collect();
    Ok(Facts {
        findings,
        hardware: examination.hosts.iter().map(hardware).collect(),
        cores: examination.hosts.iter().filter_map(|host| Some(host.inspection.as_ref()?.cores)).min(),
        network: examination.network.line(),
        busy: report::busy(&examination.hosts),
        interface: examination.network.interface,
    })
}

/// Multiple of the typical time to connect from which a host is late.
const LATE: f64 = 3.0;

/// Longest time of a second connection.
const SSH_LIMIT: Duration = Duration::from_secs(15);

/// Returns the hosts that answer late although most others do not: a suspect is the host, not the network or this machine.
/// `repeat` connects to a host again and returns the seconds; a host is late only both times.
fn late_hosts(hosts: &[HostFacts], repeat: &dyn Fn(usize) -> f64) -> Vec<usize> {
    let times: Vec<(usize, f64)> = values(hosts, |host| Some(host.ssh?.0));
    let typical = median(&times.iter().map(|(_, time)| *time).collect::<Vec<f64>>()).unwrap_or_default();
    let is_late = |time: f64| time > SLOW_SSH_SECONDS.max(LATE * typical);
    let late = times.iter().map(|(number, time)| (*number, *time));
    late.filter(|(number, time)| is_late(*time) && is_late(repeat(*number))).map(|(number, _)| number).collect()
}

fn finding(found: &Finding, late: &[usize], starter: Starter) -> accept::Finding {
    let check = if found.check == Check::Ssh { starter.remote_program() } else { found.check.name() };
    let severity = match (found.severity, found.check) {
        // srun starts the ranks without Open MPI's daemon.
        (Severity::Error, Check::Mpirun) if !starter.runs_mpirun() => accept::Severity::Warning,
        (Severity::Warning, Check::Ssh) if late.contains(&found.number) => accept::Severity::Suspect,
        // Which end of a link is at fault, only other pairs of hosts show.
        (Severity::Warning, _) | (Severity::Error, Check::Links) => accept::Severity::Warning,
        (Severity::Error, _) => accept::Severity::Error,
    };
    let what = format!("{check}: {}", found.what);
    accept::Finding { host: found.number, severity, what, fix: found.fix.clone() }
}

/// Finds hosts with fewer GPUs than most hosts with GPUs of the same model. The doctor accepts them if they have fewer ranks.
fn missing_gpus(hosts: &[HostFacts]) -> Vec<accept::Finding> {
    let gpus = |host: &HostFacts| host.probe.as_ref().map(|probe| probe.gpus.list().to_vec()).unwrap_or_default();
    let mut numbers: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
    for (host, gpus) in hosts.iter().map(gpus).enumerate().filter(|(_, gpus)| !gpus.is_empty()) {
        numbers.entry(gpu_models(&gpus)).or_default().push((host, gpus.len()));
    }
    let missing = numbers.values().flat_map(|numbers| outliers(numbers)).filter(|host| host.value < host.usual);
    let finding = |Outlier { number, value, usual, most }: Outlier<usize>| accept::Finding {
        host: number,
        severity: accept::Severity::Error,
        what: format!("{}: {} found; {most} have {usual}", Check::Gpus.name(), count(value as u64, "GPU")),
        fix: "find the missing GPUs: nvidia-smi -L, lspci, dmesg".to_owned(),
    };
    missing.map(finding).collect()
}

/// Describes the devices of a host without their number: a host with a missing GPU is compared with the others.
fn hardware(host: &HostFacts) -> String {
    let gpus = host.probe.as_ref().map(|probe| probe.gpus.list()).unwrap_or_default();
    match &host.inspection {
        Some(found) if found.devices > 0 => gpu_models(gpus),
        Some(found) => format!("{} of {}", count(found.cores, "core"), found.processor),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use ringmark_core::dimension::Seconds;

    use super::*;
    use crate::launch::doctor::checks::finding::Findings;
    use crate::launch::doctor::checks::fixtures::{gpu_hosts, h100, probe};
    use crate::launch::doctor::checks::ssh::check_ssh;
    use crate::launch::doctor::probe::{Gpu, Gpus};
    use crate::launch::job::slurm::StepGpus;

    #[test]
    fn missing_gpu_is_an_error_of_its_host() {
        let mut hosts = gpu_hosts(4);
        probe(&mut hosts, 1).gpus = Gpus::Found(vec![h100(0)]);
        // Another model is not compared.
        probe(&mut hosts, 3).gpus = Gpus::Found(vec![Gpu { name: "Tesla V100".to_owned(), ..h100(0) }]);
        let found = missing_gpus(&hosts);
        assert_eq!(
            found.iter().map(|found| (found.host, found.severity)).collect::<Vec<_>>(),
            [(1, accept::Severity::Error)]
        );
        expect!["GPUs: 1 GPU found; 2 of 3 hosts have 2"].assert_eq(&found[0].what);
        assert_eq!(hardware(&hosts[0]), hardware(&hosts[1]));
        assert_ne!(hardware(&hosts[0]), hardware(&hosts[3]));
    }

    #[test]
    fn late_host_is_a_suspect_unless_most_are_late() {
        let late = |seconds: [f64; 4], again: f64| {
            let mut hosts = gpu_hosts(4);
            hosts.iter_mut().zip(seconds).for_each(|(host, time)| host.ssh = Some(Seconds(time)));
            let mut findings = Findings::new(&hosts);
            check_ssh(&mut findings);
            let late = late_hosts(&hosts, &|number| seconds[number].min(again));
            let found = findings.found.iter().map(|found| finding(found, &late, Starter::Mpirun));
            found.map(|found| (found.host, found.severity)).collect::<Vec<_>>()
        };
        assert_eq!(late([0.3, 0.2, 7.0, 0.4], 8.0), [(2, accept::Severity::Suspect)]);
        assert_eq!(late([0.3, 0.2, 7.0, 0.4], 0.3), [(2, accept::Severity::Warning)]);
        assert_eq!(late([0.3, 0.2, 4.0, 0.4], 8.0), []);
        assert_eq!(late([6.0, 7.0, 7.0, 8.0], 8.0), [0, 1, 2, 3].map(|host| (host, accept::Severity::Warning)));
    }

    #[test]
    fn failed_copy_is_an_error_unless_ssh_failed_before() {
        let hosts = ["a", "b", "c"].map(|name| Host { name: name.to_owned(), slots: 1 });
        let found = |host, what: &str| accept::Finding {
            host,
            severity: accept::Severity::Error,
            what: what.to_owned(),
            fix: String::new(),
        };
        let copy = |host: &str| CopyFailure { host: host.to_owned(), what: "no space".to_owned(), fix: String::new() };
        let (ssh, worker) = (found(1, "ssh: host unreachable"), found(2, "worker: missing"));
        let mut facts = Facts { findings: vec![ssh.clone(), worker.clone()], ..Facts::default() };
        facts.add_failed_copies(&[copy("b"), copy("c")], &hosts);
        assert_eq!(facts.findings, [found(2, "sync: no space"), ssh, worker]);
    }

    #[test]
    fn closed_link_is_not_an_error_of_a_host() {
        let of_starter = |check, severity, starter| {
            let (what, fix) = ("what".to_owned(), "fix".to_owned());
            finding(&Finding { number: 2, host: "c".to_owned(), check, severity, what, fix }, &[], starter)
        };
        let of = |check, severity| of_starter(check, severity, Starter::Mpirun).severity;
        assert_eq!(of(Check::Links, Severity::Error), accept::Severity::Warning);
        assert_eq!(of(Check::Worker, Severity::Error), accept::Severity::Error);
        assert_eq!(of(Check::GpuState, Severity::Warning), accept::Severity::Warning);
        assert_eq!(of(Check::Mpirun, Severity::Error), accept::Severity::Error);
        let of_slurm = |check| of_starter(check, Severity::Error, Starter::Slurm(StepGpus::Unknown));
        assert_eq!(of_slurm(Check::Mpirun).severity, accept::Severity::Warning);
        assert_eq!(of_slurm(Check::Ssh).what, "srun: what");
    }
}
