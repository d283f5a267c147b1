//! The network of the hosts: which one it is, by whose choice, and whether they reach each other on it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;

use schemars::JsonSchema;
use serde::Serialize;

use crate::launch::cluster::interface::{
    self, CommonNetwork, HostAddress, HostNetworks, InterfaceChoice, NetworkFault,
};
use crate::launch::doctor::agent::Agent;
use crate::launch::doctor::checks::finding::Finding;
use crate::launch::doctor::checks::network as checks;
use crate::launch::doctor::host::{HostFacts, Visit};
use crate::launch::doctor::links::{Link, LinkMeter};
use crate::launch::local::interrupt::Interrupt;

/// How much of the network is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Whether each host reaches the next.
    Quick,
    /// Every pair, with its bandwidth.
    Full,
}

/// What was found about the links between the hosts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct NetworkFacts {
    /// The network that the hosts use among themselves.
    pub chosen: Option<CommonNetwork>,
    /// Why it is that one.
    pub reason: String,
    /// Others that they could use.
    pub others: Vec<String>,
    /// Interfaces that lead into a host and not out of it.
    pub left_out: Vec<String>,
    /// The hosts that `chosen` has places for, by their numbers, in order: those whose worker answered.
    pub present: Vec<usize>,
    /// The links that were measured, by the hosts' numbers.
    pub links: Vec<Link>,
    /// What jobs are to use, where it matters.
    #[serde(skip)]
    pub interface: Option<InterfaceChoice>,
}

impl NetworkFacts {
    /// A host's place in the network.
    pub fn place(&self, number: usize) -> Option<&HostAddress> {
        let index = self.present.binary_search(&number).ok()?;
        self.chosen.as_ref()?.places.get(index)
    }

    /// `interface: eth0, 10.77.0.0/24 (the hosts' names lead there)`; `None` where there is none to choose.
    pub fn line(&self) -> Option<String> {
        let network = self.chosen.as_ref()?;
        let mut line = format!("interface: {network} ({})", self.reason);
        if !self.others.is_empty() {
            line += &format!("; --interface may choose {} as well", self.others.join(", or "));
        }
        if !self.left_out.is_empty() {
            line += &format!("; left out: {}, inside each host", self.left_out.join(", "));
        }
        Some(line)
    }
}

/// Chooses the network and measures the links in it, with the `agents` of those hosts that have one.
pub fn find(
    visit: &Visit,
    facts: &[HostFacts],
    agents: Vec<Option<Agent>>,
    depth: Depth,
) -> (NetworkFacts, Vec<Finding>) {
    let (present, agents): (Vec<usize>, Vec<Mutex<Agent>>) =
        agents.into_iter().enumerate().filter_map(|(number, agent)| Some((number, Mutex::new(agent?)))).unzip();
    let hosts: Vec<HostNetworks> = present.iter().map(|number| networks_of(facts, *number)).collect();
    // One of several has nobody to talk to.
    if hosts.len() < facts.len().min(2) {
        return (NetworkFacts::default(), Vec::new());
    }
    let wrong = |faults: Vec<NetworkFault>| -> Vec<Finding> {
        let finding = |fault: NetworkFault| checks::wrong_interface(facts, present[fault.host], fault.what);
        faults.into_iter().map(finding).collect()
    };
    let choice = match choose(visit, &hosts, facts) {
        Ok(choice) => choice,
        Err(faults) => return (NetworkFacts::default(), wrong(faults)),
    };

    let (mut links, mut findings, mut chosen) = (Vec::new(), Vec::new(), None);
    for candidate in &choice.candidates {
        let (mut found, faults) = measure(&agents, candidate, depth, visit.interrupt);
        for link in &mut found {
            (link.from, link.to) = (present[link.from], present[link.to]);
        }
        let is_open = faults.is_empty() && found.iter().all(Link::is_open);
        // Where none is open, what the first one lacks is reported.
        if is_open || chosen.is_none() {
            findings = wrong(faults);
            findings.extend(checks::of_links(facts, candidate, &present, &found));
            (links, chosen) = (found, Some(candidate.clone()));
        }
        if is_open {
            break;
        }
    }

    // An interface that is to be used does not go with one that is not to be.
    let conflict = settings(visit, facts).into_iter().find(|(_, setting)| setting.contains("exclude"));
    if let Some((number, setting)) = conflict.filter(|_| visit.several && choice.named.is_some()) {
        findings.push(checks::two_opinions(facts, number, &setting));
    }
    let found = chosen.as_ref().and_then(CommonNetwork::interface).filter(|_| choice.settled.is_none());
    let others = choice.candidates.iter().filter(|other| Some(*other) != chosen.as_ref());
    let facts = NetworkFacts {
        reason: choice.reason(chosen.as_ref()),
        others: others.map(CommonNetwork::to_string).collect(),
        left_out: interface::inner(&hosts).into_iter().map(str::to_owned).collect(),
        interface: choice.named.or(found),
        chosen,
        present,
        links,
    };
    (facts, findings)
}

/// Networks to try, the best first.
#[derive(Default)]
struct Choice {
    candidates: Vec<CommonNetwork>,
    /// What the user named.
    named: Option<InterfaceChoice>,
    /// Who named it; empty where nobody did.
    reason: String,
    /// What Open MPI was given otherwise, so that it gets nothing more: it takes no two opinions.
    settled: Option<String>,
}

impl Choice {
    fn reason(&self, chosen: Option<&CommonNetwork>) -> String {
        let reason = match chosen {
            Some(network) if self.reason.is_empty() && network.is_named => "the hosts' names lead there",
            Some(_) if self.reason.is_empty() => "all hosts have it",
            _ => &self.reason,
        };
        let settled = self.settled.iter().map(|settled| format!(", but Open MPI is not told so: it follows {settled}"));
        settled.fold(reason.to_owned(), |reason, settled| reason + &settled)
    }
}

/// What the user named, or what there is to choose from. `Err` names hosts that are not in it, by their place in
/// `hosts`. `facts` are of all hosts, those included that did not answer.
fn choose(visit: &Visit, hosts: &[HostNetworks], facts: &[HostFacts]) -> Result<Choice, Vec<NetworkFault>> {
    const VARIABLE: &str = "OMPI_MCA_btl_tcp_if_include";
    let is_one = |text: &&String| visit.several && text.parse::<InterfaceChoice>().is_ok();
    let from_variable = visit.environment.tcp_interface.as_ref().filter(is_one).and_then(|text| text.parse().ok());
    let from_user = visit.options.interface.clone().map(|interface| (interface, "--interface"));
    if let Some((interface, reason)) = from_user.or(from_variable.map(|interface| (interface, VARIABLE))) {
        let candidates = vec![interface::named(&interface, hosts)?];
        return Ok(Choice { candidates, named: Some(interface), reason: reason.to_owned(), settled: None });
    }
    if !visit.several {
        return Ok(Choice::default());
    }
    let candidates = interface::candidates(hosts);
    if candidates.is_empty() {
        let fault = |(number, host): (usize, &HostNetworks)| {
            let what = format!("no network joins all hosts; it has {}", interface::described(host.interfaces));
            NetworkFault { host: number, what }
        };
        return Err(hosts.iter().enumerate().map(fault).collect());
    }
    let by_arguments = visit
        .options
        .arguments
        .iter()
        .any(|argument| argument.contains("_tcp_if_"))
        .then(|| "--launcher-args".to_owned());
    let by_variable = visit.environment.tcp_interface.as_ref().map(|text| format!("{VARIABLE}={text}"));
    let settled =
        by_arguments.or(by_variable).or_else(|| settings(visit, facts).into_iter().next().map(|(_, setting)| setting));
    Ok(Choice { candidates, settled, ..Choice::default() })
}

/// What else Open MPI gets about interfaces, and on which host.
fn settings(visit: &Visit, facts: &[HostFacts]) -> Vec<(usize, String)> {
    let excluded = visit.environment.tcp_excluded.as_ref();
    let by_variable = excluded.map(|text| (0, format!("OMPI_MCA_btl_tcp_if_exclude={text}")));
    let by_file = facts.iter().enumerate().flat_map(|(number, host)| {
        let settings = host.probe.iter().flat_map(|probe| &probe.mpi_settings);
        settings.map(move |setting| (number, format!("{setting} on {}", host.host)))
    });
    by_variable.into_iter().chain(by_file).collect()
}

/// The links in `network`, by the agents' numbers; and which agents cannot take connections there.
fn measure(
    agents: &[Mutex<Agent>],
    network: &CommonNetwork,
    depth: Depth,
    interrupt: &Interrupt,
) -> (Vec<Link>, Vec<NetworkFault>) {
    if agents.len() < 2 {
        return (Vec::new(), Vec::new());
    }
    match LinkMeter::listen(agents, network, interrupt) {
        Err(faults) => (Vec::new(), faults),
        Ok(meter) => {
            let links = meter.reach_next();
            // A host that does not answer would hold up every round.
            let is_open = links.iter().all(Link::is_open);
            (if is_open && depth == Depth::Full { meter.measure_all() } else { links }, Vec::new())
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
