//! Looks at every host before a job does: `ringmark doctor`, and its quick part before a sweep. Nothing on a host is
//! changed, and nothing is left there.
//!
//! | room | what it is for |
//! |---|---|
//! | [`host`] | one host visited: script, agent, clock |
//! | [`probe`] | the script that needs no worker, and its answers |
//! | [`ssh`] | why ssh did not come through |
//! | [`agent`] | the driver's end of `ringmark-worker agent` |
//! | [`peers`] | the ways between the hosts, measured |
//! | [`checks`] | what is wrong, and the cure |
//! | [`report`] | the table and the lines below it |

pub mod agent;
pub mod checks;
pub mod host;
pub mod peers;
pub mod probe;
pub mod report;
pub mod ssh;

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use ringmark_record::config::DeviceChoice;
use ringmark_record::units::Seconds;
use ringmark_record::whole_file;
use serde::Serialize;

use crate::launch::doctor::agent::Agent;
use crate::launch::doctor::checks::{Asked, Finding, Severity};
use crate::launch::doctor::host::{HostFacts, Visit};
use crate::launch::doctor::peers::{Outcome, Peers, Way};
use crate::launch::hosts::{Host, Hosts};
use crate::launch::interface::{self, CommonNetwork, HostNetworks, Interface, Place};
use crate::launch::job::{self, Launcher};
use crate::launch::mpirun::{MpirunOptions, Surroundings};
use crate::launch::process::Interrupt;
use crate::launch::sync::Sync;

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
    pub json: Option<PathBuf>,
}

/// How much of the network is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Whether each host reaches the next.
    Quick,
    /// Every pair, with its bandwidth.
    Full,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Examination {
    /// Every host, in the order in which they were named.
    pub hosts: Vec<HostFacts>,
    /// The network that the hosts use among themselves.
    pub network: Option<CommonNetwork>,
    /// Why it is that one.
    pub network_reason: String,
    /// Others that they could use.
    pub other_networks: Vec<String>,
    /// Interfaces that lead into a host and not out of it.
    pub left_out: Vec<String>,
    /// The hosts that `network` has places for, by their numbers: those whose worker answered.
    pub present: Vec<usize>,
    /// The ways that were measured, by the hosts' numbers.
    pub ways: Vec<Way>,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// How long it took.
    pub took: Seconds,
    /// What jobs are to be told about the interface, where it matters.
    #[serde(skip)]
    pub interface: Option<Interface>,
}

impl Examination {
    /// A host's place in the network.
    pub fn place(&self, number: usize) -> Option<&Place> {
        let index = self.present.iter().position(|present| *present == number)?;
        self.network.as_ref()?.places.get(index)
    }

    /// Whether a job would fail.
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// `interface: eth0, 10.77.0.0/24 (the hosts' names lead there)`; `None` where there is none to choose.
    pub fn interface_line(&self) -> Option<String> {
        let network = self.network.as_ref()?;
        let mut line = format!("interface: {network} ({})", self.network_reason);
        if !self.other_networks.is_empty() {
            line += &format!("; --interface may choose {} as well", self.other_networks.join(", or "));
        }
        if !self.left_out.is_empty() {
            line += &format!("; left out: {}, inside each host", self.left_out.join(", "));
        }
        Some(line)
    }
}

/// Looks, shows what was found; an error where a job would fail.
pub fn run(config: &DoctorConfig) -> anyhow::Result<()> {
    let surroundings = Surroundings::read();
    let worker = job::find_worker(config.worker.as_deref(), &surroundings)?;
    let results = config.out.as_deref().map(job::absolute_out).transpose()?;
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
        options: &config.mpirun,
        surroundings: &surroundings,
        interrupt: &interrupt,
    };
    let examination = examine(&visit, config.hosts.all(), config.depth)?;

    let is_for_programs = config.json.as_deref() == Some(Path::new("-"));
    let mut text = String::new();
    if let Some(path) = &config.json {
        let json = serde_json::to_string_pretty(&examination)? + "\n";
        match is_for_programs {
            true => text = json,
            false => whole_file::write(path, |file| Ok(file.write_all(json.as_bytes())?))?,
        }
    }
    if !is_for_programs {
        let width = terminal_size::terminal_size().map_or(WIDTH, |(width, _)| width.0.into());
        text = report::table(&examination, width) + "\n\n";
        let lines = examination.interface_line().into_iter().chain(report::findings(&examination.findings));
        lines.for_each(|line| text += &(line + "\n"));
    }
    io::stdout().write_all(text.as_bytes()).context("cannot write to the standard output")?;
    let summary = report::summary(&examination);
    ensure!(!examination.has_errors(), "{summary}: a job on these hosts would fail");
    if !is_for_programs {
        println!("{summary}: a job may run on these hosts");
    }
    Ok(())
}

/// The quick part, on the hosts that jobs use: warnings are told, errors stop; the network is `launcher`'s from then
/// on. The line that says which it is.
pub fn before_jobs(
    launcher: &mut Launcher,
    device: DeviceChoice,
    out: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<Option<String>> {
    let results = job::absolute_out(out)?;
    let visit = Visit {
        worker: launcher.program(),
        results: Some(&results),
        device,
        options: launcher.options(),
        surroundings: launcher.surroundings(),
        interrupt,
    };
    let examination = examine(&visit, launcher.hosts(), Depth::Quick)?;
    report::findings(&examination.findings).iter().for_each(|line| eprintln!("{line}"));
    if examination.has_errors() {
        bail!(
            "{}: nothing was started. `ringmark doctor` shows more, --no-doctor leaves this out",
            report::summary(&examination)
        );
    }
    let line = examination.interface_line();
    if let Some(interface) = examination.interface {
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

    let (present, agents): (Vec<usize>, Vec<Mutex<Agent>>) =
        agents.into_iter().enumerate().filter_map(|(number, agent)| Some((number, Mutex::new(agent?)))).unzip();
    let networks: Vec<HostNetworks> = present.iter().map(|number| networks_of(&facts, *number)).collect();
    // One of several has nobody to talk to.
    let is_alone = networks.len() < facts.len().min(2);
    let choice = if is_alone { Ok(Choice::default()) } else { choose(visit, &networks, facts.len()) };
    let mut ways = Vec::new();
    let choice = choice.unwrap_or_else(|faults| {
        let finding = |(index, what): (usize, String)| checks::wrong_interface(&facts, present[index], what);
        findings.extend(faults.into_iter().map(finding));
        Choice::default()
    });
    let mut network = None;
    for candidate in &choice.candidates {
        let (found, faults) = measure(&agents, candidate, depth, visit.interrupt);
        let is_open = faults.is_empty() && found.iter().all(|way| matches!(way.outcome, Outcome::Open { .. }));
        // Where none is open, what the first one lacks is told.
        if is_open || network.is_none() {
            (network, ways) = (Some((candidate, faults)), found);
        }
        if is_open {
            break;
        }
    }
    ensure!(!visit.interrupt.asked(), "interrupted");

    for way in &mut ways {
        (way.from, way.to) = (present[way.from], present[way.to]);
    }
    let mut chosen = None;
    if let Some((network, faults)) = network {
        let finding = |(index, what): (usize, String)| checks::wrong_interface(&facts, present[index], what);
        findings.extend(faults.into_iter().map(finding));
        findings.extend(checks::of_ways(&facts, network, &present, &ways));
        chosen = Some(network.clone());
    }
    let interface = match &choice.named {
        Some(interface) => Some(interface.clone()),
        None => chosen.as_ref().and_then(CommonNetwork::interface),
    };
    let others = choice.candidates.iter().filter(|other| Some(*other) != chosen.as_ref());
    let reason = match &chosen {
        Some(network) if choice.reason.is_empty() && network.is_named => "the hosts' names lead there".to_owned(),
        Some(_) if choice.reason.is_empty() => "all hosts have it".to_owned(),
        _ => choice.reason.clone(),
    };
    Ok(Examination {
        other_networks: others.map(CommonNetwork::to_string).collect(),
        left_out: interface::inner(&networks).into_iter().map(str::to_owned).collect(),
        network: chosen,
        network_reason: reason,
        hosts: facts,
        present,
        ways,
        findings,
        took: Seconds(start.elapsed().as_secs_f64()),
        interface,
    })
}

/// Networks to try, the best first.
#[derive(Default)]
struct Choice {
    candidates: Vec<CommonNetwork>,
    /// What the user named.
    named: Option<Interface>,
    /// Who named it; empty where nobody did.
    reason: String,
}

/// What the user named, or what there is to choose from. `Err` names hosts that are not in it, by their place in
/// `hosts`. `all` are the hosts, those included that did not answer.
fn choose(visit: &Visit, hosts: &[HostNetworks], all: usize) -> Result<Choice, Vec<(usize, String)>> {
    let from_variable = visit.surroundings.tcp_interface.as_ref();
    let named = match (&visit.options.interface, from_variable.filter(|_| all > 1)) {
        (Some(interface), _) => Some((interface.clone(), "--interface".to_owned())),
        // Several of them, or what Open MPI alone understands, stay its own affair.
        (None, Some(text)) => match text.parse() {
            Ok(interface) => Some((interface, "OMPI_MCA_btl_tcp_if_include".to_owned())),
            Err(_) => return Ok(Choice::default()),
        },
        (None, None) => None,
    };
    if let Some((interface, reason)) = named {
        let network = interface::named(&interface, hosts)?;
        return Ok(Choice { candidates: vec![network], named: Some(interface), reason });
    }
    // mpirun takes no two opinions.
    if all < 2 || visit.options.more.iter().any(|word| word.contains("_tcp_if_")) {
        return Ok(Choice::default());
    }
    let candidates = interface::candidates(hosts);
    if candidates.is_empty() {
        let fault = |(index, host): (usize, &HostNetworks)| {
            (index, format!("no network joins all hosts; it has {}", interface::described(host.interfaces)))
        };
        return Err(hosts.iter().enumerate().map(fault).collect());
    }
    Ok(Choice { candidates, ..Choice::default() })
}

/// The ways in `network`, by the agents' numbers; and which agents cannot take connections there.
fn measure(
    agents: &[Mutex<Agent>],
    network: &CommonNetwork,
    depth: Depth,
    interrupt: &Interrupt,
) -> (Vec<Way>, Vec<(usize, String)>) {
    if agents.len() < 2 {
        return (Vec::new(), Vec::new());
    }
    match Peers::listen(agents, network, interrupt) {
        Err(faults) => (Vec::new(), faults),
        Ok(peers) => {
            let ways = peers.reach_next();
            // A host that does not answer would hold up every round.
            let is_open = ways.iter().all(|way| matches!(way.outcome, Outcome::Open { .. }));
            (if is_open && depth == Depth::Full { peers.measure_all() } else { ways }, Vec::new())
        }
    }
}

/// What is known of a host's networks, and where its name leads: the address that ssh came to, or for this machine the
/// one that the others saw ssh come from.
fn networks_of(facts: &[HostFacts], number: usize) -> HostNetworks<'_> {
    let host = &facts[number];
    let interfaces = host.inspection.as_ref().map(|found| found.interfaces.as_slice()).unwrap_or_default();
    let four = |address: IpAddr| match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(address) => address.to_ipv4_mapped(),
    };
    let is_own = |address: &Ipv4Addr| {
        interfaces.iter().flat_map(|interface| &interface.addresses).any(|own| own.addr() == *address)
    };
    let connection = |host: &HostFacts| host.probe.as_ref()?.connection.filter(|_| !host.is_here);
    let reached_at = match host.is_here {
        true => facts.iter().filter_map(|other| four(connection(other)?.0)).find(is_own),
        false => connection(host).and_then(|(_, there)| four(there)).filter(is_own),
    };
    HostNetworks { host: &host.host, interfaces, reached_at }
}
