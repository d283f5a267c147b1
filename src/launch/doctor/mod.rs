//! Looks at every host before a job does: `ringmark doctor`, and its quick part before a sweep. Nothing on a host is
//! changed, and nothing is left there.
//!
//! | room | what it is for |
//! |---|---|
//! | [`host`] | one host visited: script, agent, clock |
//! | [`probe`] | the script that needs no worker, and its answers |
//! | [`agent`] | the driver's end of `ringmark-worker agent` |
//! | [`network`] | which network the hosts use, and whether they reach each other on it |
//! | [`links`] | the ways between the hosts, measured |
//! | [`checks`] | what is wrong, and the cure |
//! | [`report`] | the table and the lines below it |

pub mod agent;
pub mod checks;
pub mod host;
pub mod links;
pub mod network;

pub mod probe;
pub mod report;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{bail, ensure};
use ringmark_record::config::DeviceChoice;
use ringmark_record::units::Seconds;
use serde::Serialize;

use crate::answer::{self, Json};
use crate::launch::cluster::hosts::{Host, Hosts};
use crate::launch::cluster::sync::Sync;
use crate::launch::doctor::agent::Agent;
use crate::launch::doctor::checks::{Asked, Finding, Severity};
use crate::launch::doctor::host::{HostFacts, Visit};
use crate::launch::doctor::network::{Depth, NetworkFacts};
use crate::launch::job::mpirun::{MpirunOptions, Surroundings};
use crate::launch::job::planned::{self, LaunchConfig, Launcher};
use crate::launch::job::process::Interrupt;

/// Columns of the table where it goes to no terminal.
const WIDTH: usize = 120;

/// What `ringmark doctor` is asked to do.
#[derive(Debug, Clone, PartialEq)]
pub struct DoctorConfig {
    /// Whom to look at.
    pub hosts: Hosts,
    /// The worker, where it is not the one beside this program or on `PATH`.
    pub worker: Option<PathBuf>,
    /// Folder on every host to which the worker is copied first; then the copy is looked at.
    pub sync: Option<PathBuf>,
    /// What the user set about mpirun, ssh and the interface.
    pub mpirun: MpirunOptions,
    /// Folder that results are to go to.
    pub out: Option<PathBuf>,
    /// What the ranks are to use.
    pub device: DeviceChoice,
    /// How much to measure.
    pub depth: Depth,
    /// Where to write all of it; `-` for standard output in the place of the table.
    pub json: Json,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Examination {
    /// Every host, in the order in which they were named.
    pub hosts: Vec<HostFacts>,
    /// How they reach each other.
    pub network: NetworkFacts,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// How long it took.
    pub took: Seconds,
}

impl Examination {
    /// Whether a job would fail.
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }
}

/// Looks, shows what was found; an error where a job would fail.
pub fn run(config: &DoctorConfig) -> anyhow::Result<()> {
    config.json.check()?;
    let surroundings = Surroundings::read();
    let worker = planned::find_worker(config.worker.as_deref(), &surroundings)?;
    let results = config.out.as_deref().map(planned::absolute_out).transpose()?;
    let sync = config.sync.as_ref().map(|folder| Sync::plan(folder, &worker, config.device)).transpose()?;
    let interrupt = Interrupt::install()?;
    if let Some(sync) = &sync {
        // Beside the table, which may be JSON for a program.
        sync.run(config.hosts.all(), &config.mpirun, &surroundings, &interrupt, |line| eprintln!("{line}"))?;
    }
    let visit = Visit {
        worker: sync.as_ref().map_or(&worker, Sync::worker),
        results: results.as_deref(),
        device: config.device,
        several: config.hosts.all().len() > 1,
        options: &config.mpirun,
        surroundings: &surroundings,
        interrupt: &interrupt,
    };
    let examination = examine(&visit, config.hosts.all(), config.depth)?;

    if !config.json.give(&examination)? {
        let width = terminal_size::terminal_size().map_or(WIDTH, |(width, _)| width.0.into());
        let mut text = report::table(&examination, width) + "\n\n";
        let lines = examination.network.line().into_iter().chain(report::findings(&examination.findings));
        lines.for_each(|line| text += &(line + "\n"));
        answer::print(&text)?;
    }
    let summary = report::summary(&examination);
    ensure!(!examination.has_errors(), "{summary}: a job on these hosts would fail");
    if !config.json.is_instead() {
        println!("{summary}: a job may run on these hosts");
    }
    Ok(())
}

/// The quick part, where it is asked for, on the hosts that jobs use: warnings are told, errors stop; the network is
/// `launcher`'s from then on. The line that says which it is.
pub fn before_jobs(launcher: &mut Launcher, out: &Path, interrupt: &Interrupt) -> anyhow::Result<Option<String>> {
    let LaunchConfig { doctor, device, .. } = *launcher.config();
    if !doctor {
        return Ok(None);
    }
    let results = planned::absolute_out(out)?;
    let hosts = launcher.hosts();
    let visit = Visit {
        worker: launcher.program(),
        results: Some(&results),
        device,
        several: hosts.len() > 1,
        options: launcher.options(),
        surroundings: launcher.surroundings(),
        interrupt,
    };
    let examination = examine(&visit, hosts, Depth::Quick)?;
    report::findings(&examination.findings).iter().for_each(|line| eprintln!("{line}"));
    if examination.has_errors() {
        bail!(
            "{}: nothing was started. `ringmark doctor` shows more, --no-doctor leaves this out",
            report::summary(&examination)
        );
    }
    let line = examination.network.line();
    if let Some(interface) = examination.network.interface {
        launcher.use_interface(interface);
    }
    Ok(line)
}

/// Visits all hosts, measures the ways between them, judges.
fn examine(visit: &Visit, hosts: &[Host], depth: Depth) -> anyhow::Result<Examination> {
    let start = Instant::now();
    let (facts, agents): (Vec<HostFacts>, Vec<Option<Agent>>) = visit.all(hosts).into_iter().unzip();
    let asked = Asked {
        worker: visit.worker,
        device: visit.device,
        results: visit.results,
        has_results: visit.results.is_some_and(Path::is_dir),
    };
    let mut findings = checks::of_hosts(&facts, &asked);
    let (network, more) = network::find(visit, &facts, agents, depth);
    ensure!(!visit.interrupt.asked(), "interrupted");
    findings.extend(more);
    Ok(Examination { hosts: facts, network, findings, took: Seconds(start.elapsed().as_secs_f64()) })
}
