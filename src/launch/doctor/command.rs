//! `ringmark doctor`, and the quick look before jobs. Both return or print what was found and change nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{bail, ensure};
use ringmark_core::dimension::DeviceChoice;

use crate::launch::cluster::hosts::Host;
use crate::launch::cluster::ssh::SshOptions;
use crate::launch::cluster::sync::Sync;
use crate::launch::doctor::examination::{Examination, examine};
use crate::launch::doctor::host::Visit;
use crate::launch::doctor::network::Depth;
use crate::launch::doctor::report;
use crate::launch::job::request::StarterOptions;
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::local::interrupt::Interrupt;
use crate::launch::local::print::{coloured, print_error, print_line};
use crate::launch::local::results_folder;
use crate::launch::local::worker::find_worker;
use crate::output::{self, Json};

/// Columns of the table where it goes to no terminal.
const WIDTH: usize = 120;

/// What `ringmark doctor` is asked to do.
#[derive(Debug, Clone, PartialEq)]
pub struct DoctorConfig {
    /// Whom to look at.
    pub hosts: Vec<Host>,
    /// The worker, where it is not the one beside this program or on `PATH`.
    pub worker: Option<PathBuf>,
    /// Folder on every host to which the worker is copied first; then the copy is looked at.
    pub sync: Option<PathBuf>,
    /// What the user set about mpirun and the interface.
    pub options: StarterOptions,
    /// How ssh reaches the hosts.
    pub ssh: SshOptions,
    /// Folder that results are to go to.
    pub out: Option<PathBuf>,
    /// Files and folders that the ranks are to read.
    pub data: Vec<PathBuf>,
    /// What the ranks are to use.
    pub device: DeviceChoice,
    /// How much to measure.
    pub depth: Depth,
    /// Where to write all of it; `-` for standard output in the place of the table.
    pub json: Json,
}

/// Looks, shows what was found; an error where a job would fail.
pub fn run(config: &DoctorConfig) -> anyhow::Result<()> {
    config.json.check(&[])?;
    let environment = LaunchEnvironment::read();
    let worker = find_worker(config.worker.as_deref(), &environment)?;
    let results = config.out.as_deref().map(results_folder::absolute).transpose()?;
    let sync = config.sync.as_ref().map(|folder| Sync::plan(folder, &worker, config.device)).transpose()?;
    let interrupt = Interrupt::install()?;
    if let Some(sync) = &sync {
        // Beside the table, which may be JSON for a program.
        sync.run(&config.hosts, &config.ssh, &environment, &interrupt, print_error)?;
    }
    let visit = Visit {
        worker: sync.as_ref().map_or(&worker, Sync::worker),
        results: results.as_deref(),
        device: config.device,
        needed: &BTreeMap::new(),
        data: &config.data,
        several: config.hosts.len() > 1,
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
        output::print_raw(&coloured(&text))?;
    }
    let summary = report::summary(&examination);
    ensure!(!examination.has_errors(), "{summary}: a job on these hosts would fail");
    if !config.json.is_instead() {
        print_line(&format!("{summary}: a job may run on these hosts"));
    }
    Ok(())
}

/// The quick part, on the hosts that jobs are to use: warnings are printed, and errors are one. What was found, the network
/// that joins the hosts among it.
pub fn before_jobs(visit: &Visit, hosts: &[Host]) -> anyhow::Result<Examination> {
    let examination = examine(visit, hosts, Depth::Quick)?;
    let lines = report::findings(&examination.findings).into_iter().chain(report::busy_hosts(&examination.hosts));
    lines.for_each(|line| print_error(&line));
    if examination.has_errors() {
        bail!(
            "{}: nothing was started. `ringmark doctor` shows more, --no-doctor leaves this out",
            report::summary(&examination)
        );
    }
    Ok(examination)
}
