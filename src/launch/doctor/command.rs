//! `ringmark doctor`, and the quick check before jobs. Neither changes anything on the hosts.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{bail, ensure};
use ringmark_core::dimension::DeviceChoice;

use crate::launch::cluster::hosts::Host;
use crate::launch::cluster::remote::SshOptions;
use crate::launch::cluster::sync::{CopyFailure, Sync};
use crate::launch::doctor::checks::finding::{Finding, Severity};
use crate::launch::doctor::examination::{Examination, examine};
use crate::launch::doctor::host::InspectionSettings;
use crate::launch::doctor::network::NetworkTestScope;
use crate::launch::doctor::report;
use crate::launch::job::job_launch::StarterOptions;
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::local::interrupt::Interrupt;
use crate::launch::local::results_folder;
use crate::launch::local::worker::find_worker;
use crate::output::message::{colored, print_error, print_line};
use crate::output::{self, Json};

/// Width of the table, in columns, if the output is not a terminal.
const WIDTH: usize = 120;

/// A `ringmark doctor` command.
#[derive(Debug, Clone, PartialEq)]
pub struct DoctorConfig {
    /// Hosts to check.
    pub hosts: Vec<Host>,
    /// Path of the worker, if it is not next to this program or on `PATH`.
    pub worker: Option<PathBuf>,
    /// Folder on every host to which the worker is copied first; the copy is then checked.
    pub sync: Option<PathBuf>,
    /// User's options for mpirun and the interface.
    pub options: StarterOptions,
    /// Options for ssh.
    pub ssh: SshOptions,
    /// Folder for the results.
    pub out: Option<PathBuf>,
    /// Files and folders that the ranks read.
    pub data: Vec<PathBuf>,
    /// Device that the ranks are to use.
    pub device: DeviceChoice,
    /// Extent of the measurement.
    pub depth: NetworkTestScope,
    /// Destination of the results as JSON; `-` prints them to standard output instead of the table.
    pub json: Json,
}

/// Checks the hosts and prints the findings. Returns an error if a job would fail.
pub fn run(config: &DoctorConfig) -> anyhow::Result<()> {
    config.json.check(&[])?;
    let environment = LaunchEnvironment::read();
    let worker = find_worker(config.worker.as_deref(), &environment)?;
    let results = config.out.as_deref().map(results_folder::absolute).transpose()?;
    let sync = config.sync.as_ref().map(|folder| Sync::plan(folder, &worker, config.device)).transpose()?;
    let interrupt = Interrupt::install()?;
    if let Some(sync) = &sync {
        // To standard error, because standard output may be JSON.
        CopyFailure::refuse(&sync.run(&config.hosts, &config.ssh, &environment, &interrupt, print_error)?)?;
    }
    let visit = InspectionSettings {
        worker: sync.as_ref().map_or(&worker, Sync::worker),
        results: results.as_deref(),
        device: config.device,
        needed: &BTreeMap::new(),
        data: &config.data,
        is_multi_host: config.hosts.len() > 1,
        ssh: &config.ssh,
        options: &config.options,
        environment: &environment,
        interrupt: &interrupt,
    };
    let examination = examine(&visit, &config.hosts, config.depth)?;

    if !config.json.write(&examination)? {
        let width = terminal_size::terminal_size().map_or(WIDTH, |(width, _)| width.0.into());
        let mut text = report::table(&examination, width) + "\n\n";
        let lines = examination.network.line().into_iter().chain(report::findings(&examination.findings));
        lines.chain(report::busy_hosts(&examination.hosts)).for_each(|line| text += &(line + "\n"));
        output::print_raw(&colored(&text))?;
    }
    let summary = report::summary(&examination);
    ensure!(!examination.has_errors(), "{summary}: a job on these hosts would fail");
    if !config.json.is_instead() {
        print_line(&format!("{summary}: a job can run on these hosts"));
    }
    Ok(())
}

/// Runs the quick checks on the hosts of the jobs: prints warnings, and returns all errors as one. Returns the findings
/// and the network that connects the hosts.
pub fn check_before_jobs(visit: &InspectionSettings, hosts: &[Host]) -> anyhow::Result<Examination> {
    let examination = examine(visit, hosts, NetworkTestScope::Quick)?;
    let lines = report::findings(&examination.findings).into_iter().chain(report::busy_hosts(&examination.hosts));
    lines.for_each(|line| print_error(&line));
    if examination.has_errors() {
        bail!(
            "{}: no job was started: run `ringmark doctor --hosts {}{}` for details, or use --no-doctor to skip these \
             checks",
            report::summary(&examination),
            hosts.iter().map(Host::to_string).collect::<Vec<_>>().join(","),
            if visit.device == DeviceChoice::Cuda { " --device cuda" } else { "" }
        );
    }
    Ok(examination)
}

/// Checks the last of `hosts`, a spare host, beside the others. The error lists what the doctor finds wrong with it.
pub fn check_spare_host(visit: &InspectionSettings, hosts: &[Host]) -> anyhow::Result<()> {
    let examination = examine(visit, hosts, NetworkTestScope::Quick)?;
    let is_error = |finding: &&Finding| finding.severity == Severity::Error && finding.number + 1 == hosts.len();
    let errors: Vec<&str> = examination.findings.iter().filter(is_error).map(|finding| finding.what.as_str()).collect();
    ensure!(errors.is_empty(), "{}", errors.join("; "));
    Ok(())
}
