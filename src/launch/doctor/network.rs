//! Chooses the network of the hosts, and checks whether they reach each other on it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, PoisonError};

use schemars::JsonSchema;
use serde::Serialize;

use crate::launch::cluster::interface::{
    self, CommonNetwork, HostAddress, HostNetworks, InterfaceChoice, NetworkFault,
};
use crate::launch::doctor::agent::Agent;
use crate::launch::doctor::checks::finding::Finding;
use crate::launch::doctor::checks::network as checks;
use crate::launch::doctor::host::{HostFacts, InspectionSettings};
use crate::launch::doctor::links::{Link, LinkMeter};
use crate::launch::local::interrupt::Interrupt;

/// Extent of the network measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkTestScope {
    /// Each host connects to the next.
    Quick,
    /// Every pair, with its bandwidth.
    Full,
}

/// Facts about the links between the hosts.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct NetworkFacts {
    /// Network that the hosts use among themselves.
    pub chosen: Option<CommonNetwork>,
    /// Reason for the choice.
    pub reason: String,
    /// Other networks that the hosts could use.
    pub others: Vec<String>,
    /// Interfaces that lead into a host but not out of it.
    pub left_out: Vec<String>,
    /// Indices of the hosts that `chosen` has addresses for, in order: those whose worker replied.
    pub present: Vec<usize>,
    /// Links that were measured, by host index.
    pub links: Vec<Link>,
    /// Interface that jobs are to use, if it matters.
    #[serde(skip)]
    pub interface: Option<InterfaceChoice>,
}

impl NetworkFacts {
    /// Returns the address of a host in the network.
    pub fn place(&self, number: usize) -> Option<&HostAddress> {
        let index = self.present.binary_search(&number).ok()?;
        self.chosen.as_ref()?.places.get(index)
    }

    /// Returns `interface: eth0, 10.77.0.0/24 (the host names resolve to it)`; `None` if there is no choice to make.
    pub fn line(&self) -> Option<String> {
        let network = self.chosen.as_ref()?;
        let mut line = format!("interface: {network} ({})", self.reason);
        if !self.others.is_empty() {
            line += &format!("; alternatives for --interface: {}", self.others.join(" or "));
        }
        if !self.left_out.is_empty() {
            line += &format!("; excluded: {}, local to each host", self.left_out.join(", "));
        }
        Some(line)
    }
}

/// Chooses the network and measures its links with the `agents` of the hosts that have one.
pub fn examine(
    visit: &InspectionSettings,
    facts: &[HostFacts],
    agents: Vec<Option<Agent>>,
    depth: NetworkTestScope,
) -> (NetworkFacts, Vec<Finding>) {
    let (present, agents): (Vec<usize>, Vec<Mutex<Agent>>) =
        agents.into_iter().enumerate().filter_map(|(number, agent)| Some((number, Mutex::new(agent?)))).unzip();
    let agents = OpenAgents(agents);
    let hosts: Vec<HostNetworks> = present.iter().map(|number| networks_of(facts, *number)).collect();
    // With several hosts, one agent alone has no peer to connect to.
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
        let (mut found, faults) = measure(&agents.0, candidate, depth, visit.interrupt);
        for link in &mut found {
            (link.from, link.to) = (present[link.from], present[link.to]);
        }
        let is_open = faults.is_empty() && found.iter().all(Link::is_open);
        // If no network is open, the faults of the first candidate are reported.
        if is_open || chosen.is_none() {
            findings = wrong(faults);
            findings.extend(checks::check_links(facts, candidate, &present, &found));
            (links, chosen) = (found, Some(candidate.clone()));
        }
        if is_open {
            break;
        }
    }

    // A required interface conflicts with an excluded one.
    let conflict = open_mpi_settings(visit, facts).into_iter().find(|(_, setting)| setting.contains("exclude"));
    if let Some((number, setting)) = conflict.filter(|_| visit.is_multi_host && choice.named.is_some()) {
        findings.push(checks::conflicting_interface(facts, number, &setting));
    }
    let found = chosen.as_ref().and_then(CommonNetwork::interface).filter(|_| choice.existing_setting.is_none());
    let others = choice.candidates.iter().filter(|other| Some(*other) != chosen.as_ref());
    let facts = NetworkFacts {
        reason: choice.reason(chosen.as_ref()),
        others: others.map(CommonNetwork::to_string).collect(),
        left_out: interface::internal_interfaces(&hosts).into_iter().map(str::to_owned).collect(),
        interface: choice.named.or(found),
        chosen,
        present,
        links,
    };
    (facts, findings)
}

/// Agents that exit at once when they are dropped, instead of one after the other.
struct OpenAgents(Vec<Mutex<Agent>>);

impl Drop for OpenAgents {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|agent| agent.get_mut().unwrap_or_else(PoisonError::into_inner).close());
    }
}

/// Candidate networks, the best first.
#[derive(Default)]
struct NetworkChoice {
    candidates: Vec<CommonNetwork>,
    /// Interface that the user named.
    named: Option<InterfaceChoice>,
    /// Option or variable that named it; empty if none did.
    reason: String,
    /// Other interface setting of Open MPI, which then gets no second one: it rejects conflicting settings.
    existing_setting: Option<String>,
}

impl NetworkChoice {
    fn reason(&self, chosen: Option<&CommonNetwork>) -> String {
        let reason = match chosen {
            Some(network) if self.reason.is_empty() && network.is_named => "the host names resolve to it",
            Some(_) if self.reason.is_empty() => "all hosts have it",
            _ => &self.reason,
        };
        let existing_setting = self.existing_setting.iter().map(|existing_setting| {
            format!(
                ", but Open MPI uses \
                 another setting: {existing_setting}"
            )
        });
        existing_setting.fold(reason.to_owned(), |reason, existing_setting| reason + &existing_setting)
    }
}

/// Returns the interface that the user named, or the candidates. `Err` lists hosts that are not in that network, by
/// their index in `hosts`. `facts` cover all hosts, including those that did not reply.
fn choose(
    visit: &InspectionSettings,
    hosts: &[HostNetworks],
    facts: &[HostFacts],
) -> Result<NetworkChoice, Vec<NetworkFault>> {
    const VARIABLE: &str = "OMPI_MCA_btl_tcp_if_include";
    let is_one = |text: &&String| visit.is_multi_host && text.parse::<InterfaceChoice>().is_ok();
    let from_variable = visit.environment.tcp_interface.as_ref().filter(is_one).and_then(|text| text.parse().ok());
    let from_user = visit.options.interface.clone().map(|interface| (interface, "--interface"));
    if let Some((interface, reason)) = from_user.or(from_variable.map(|interface| (interface, VARIABLE))) {
        let candidates = vec![interface::resolve(&interface, hosts)?];
        return Ok(NetworkChoice {
            candidates,
            named: Some(interface),
            reason: reason.to_owned(),
            existing_setting: None,
        });
    }
    if !visit.is_multi_host {
        return Ok(NetworkChoice::default());
    }
    let candidates = interface::candidates(hosts);
    if candidates.is_empty() {
        let fault = |(number, host): (usize, &HostNetworks)| {
            let what = format!(
                "no network connects all hosts; available: \
                 {}",
                interface::describe_interfaces(host.interfaces)
            );
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
    let existing_setting = by_arguments
        .or(by_variable)
        .or_else(|| open_mpi_settings(visit, facts).into_iter().next().map(|(_, setting)| setting));
    Ok(NetworkChoice { candidates, existing_setting, ..NetworkChoice::default() })
}

/// Returns Open MPI's other interface settings, each with its host index.
fn open_mpi_settings(visit: &InspectionSettings, facts: &[HostFacts]) -> Vec<(usize, String)> {
    let excluded = visit.environment.tcp_excluded.as_ref();
    let by_variable = excluded.map(|text| (0, format!("OMPI_MCA_btl_tcp_if_exclude={text}")));
    let by_file = facts.iter().enumerate().flat_map(|(number, host)| {
        let settings = host.probe.iter().flat_map(|probe| &probe.mpi_settings);
        settings.map(move |setting| (number, format!("{setting} on {}", host.host)))
    });
    by_variable.into_iter().chain(by_file).collect()
}

/// Measures the links in `network`, by agent index; also returns the agents that cannot accept connections there.
fn measure(
    agents: &[Mutex<Agent>],
    network: &CommonNetwork,
    depth: NetworkTestScope,
    interrupt: &Interrupt,
) -> (Vec<Link>, Vec<NetworkFault>) {
    if agents.len() < 2 {
        return (Vec::new(), Vec::new());
    }
    match LinkMeter::listen(agents, network, interrupt) {
        Err(faults) => (Vec::new(), faults),
        Ok(meter) => {
            let links = meter.reach_next();
            // A host that does not reply would block every round.
            let is_open = links.iter().all(Link::is_open);
            (if is_open && depth == NetworkTestScope::Full { meter.measure_all() } else { links }, Vec::new())
        }
    }
}

/// Collects the networks of a host, and the address that its name resolves to: the one that ssh reached, or for this
/// machine the one that the other hosts saw as the source of ssh.
fn networks_of(facts: &[HostFacts], number: usize) -> HostNetworks<'_> {
    let host = &facts[number];
    let interfaces = host.inspection.as_ref().map(|found| found.interfaces.as_slice()).unwrap_or_default();
    let to_ipv4 = |address: IpAddr| match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(address) => address.to_ipv4_mapped(),
    };
    let is_own = |address: &Ipv4Addr| {
        interfaces.iter().flat_map(|interface| &interface.addresses).any(|own| own.addr() == *address)
    };
    let connection = |host: &HostFacts| host.probe.as_ref()?.connection.filter(|_| !host.is_here);
    let reached_at = match host.is_here {
        true => facts.iter().filter_map(|other| to_ipv4(connection(other)?.0)).find(is_own),
        false => connection(host).and_then(|(_, there)| to_ipv4(there)).filter(is_own),
    };
    HostNetworks { host: &host.host, interfaces, reached_at }
}
