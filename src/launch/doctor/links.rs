//! Measures the links between the hosts: schedules the measurements, and identifies the hosts behind missing or slow
//! links.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ringmark_core::dimension::{GigabytesPerSecond, Seconds};
use ringmark_core::host::{Order, Reply};
use ringmark_core::stats::pairing::rounds;
use ringmark_core::stats::summary;
use schemars::JsonSchema;
use serde::Serialize;

use crate::launch::cluster::interface::{CommonNetwork, NetworkFault};
use crate::launch::doctor::agent::Agent;
use crate::launch::local::interrupt::Interrupt;
use crate::launch::local::side_by_side::{MAX_AGENTS, in_parallel};

/// Duration for which a pair sends in each direction.
const SEND_TIME: Seconds = Seconds(0.3);

/// Maximum number of rounds: covers every pair of up to 32 hosts. With more hosts, each connects to 31 others, and with
/// more than 1024 to fewer, because the limit on concurrent agents makes each round longer.
const MAX_ROUNDS: usize = 31;

/// Minimum number of rounds.
const MIN_ROUNDS: usize = 4;

/// Slow links are measured again repeatedly, until there are this many measurements.
const MAX_REMEASUREMENTS: usize = 24;

/// Links below this fraction of the usual bandwidth are measured again, and are slow if they still are below it.
const SLOW_FRACTION: f64 = 0.5;

/// Percentile that defines the usual bandwidth: a quarter of the links reach it. With three hosts, one bad cable slows
/// four links of six, so that the median itself would be slow.
const TYPICAL_PERCENTILE: f64 = 75.0;

/// A link from one host to another, by host index.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Link {
    /// Index of the sender.
    pub from: usize,
    /// Index of the receiver.
    pub to: usize,
    /// Measured state.
    pub state: LinkState,
}

/// The result of a measurement.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// The connection works.
    Open {
        /// Half the round-trip time of one byte.
        #[serde(rename = "latency_seconds")]
        latency: Seconds,
        /// Bandwidth of one TCP connection, if it was measured.
        #[serde(rename = "gigabytes_per_second")]
        speed: Option<GigabytesPerSecond>,
        /// Source address of the packets, if it is not the one in this network.
        detour: Option<std::net::Ipv4Addr>,
    },
    /// The connection failed, with the reason.
    Closed(String),
}

impl Link {
    /// Returns true if the connection works.
    pub fn is_open(&self) -> bool {
        matches!(self.state, LinkState::Open { .. })
    }

    fn speed(&self) -> Option<f64> {
        match self.state {
            LinkState::Open { speed, .. } => speed.map(|speed| speed.0),
            LinkState::Closed(_) => None,
        }
    }
}

/// Pairs every host with the next one, and the last with the first.
pub fn ring(hosts: usize) -> Vec<(usize, usize)> {
    if hosts < 2 { Vec::new() } else { (0..hosts).map(|host| (host, (host + 1) % hosts)).collect() }
}

/// Measures links with the agents of all hosts, each of which listens on its address in one network.
pub struct LinkMeter<'a> {
    agents: &'a [Mutex<Agent>],
    network: &'a CommonNetwork,
    ports: Vec<u16>,
    interrupt: &'a Interrupt,
}

impl<'a> LinkMeter<'a> {
    /// Makes the agents listen. `Err` lists those that cannot, and why.
    pub fn listen(
        agents: &'a [Mutex<Agent>],
        network: &'a CommonNetwork,
        interrupt: &'a Interrupt,
    ) -> Result<LinkMeter<'a>, Vec<NetworkFault>> {
        let numbers: Vec<usize> = (0..agents.len()).collect();
        let answers = in_parallel(MAX_AGENTS, &numbers, |number| {
            let order = Order::Listen(network.places[*number].address);
            match lock(&agents[*number]).request(&order, Duration::ZERO) {
                Ok(Reply::Listening(port)) => Ok(port),
                Ok(other) => Err(NetworkFault {
                    host: *number,
                    what: format!(
                        "unexpected reply from the agent: \
                         {other:?}"
                    ),
                }),
                Err(what) => Err(NetworkFault { host: *number, what }),
            }
        });
        let faults: Vec<NetworkFault> = answers.iter().filter_map(|answer| answer.clone().err()).collect();
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(LinkMeter { agents, network, ports: answers.into_iter().flatten().collect(), interrupt })
    }

    /// Measures whether each host reaches the next.
    pub fn reach_next(&self) -> Vec<Link> {
        in_parallel(MAX_AGENTS, &ring(self.ports.len()), |(from, to)| self.measure(*from, *to, None))
    }

    /// Measures every pair in both directions, with no host in two pairs at a time. Slow links are measured again with
    /// no concurrent measurement, and the best result counts: other load on a host slows a link now and then, a bad
    /// cable always does.
    pub fn measure_all(&self) -> Vec<Link> {
        let mut links = Vec::new();
        let max_rounds = (MAX_ROUNDS * MAX_AGENTS / self.ports.len().max(MAX_AGENTS)).max(MIN_ROUNDS);
        for round in rounds(self.ports.len(), max_rounds) {
            if self.interrupt.is_set() {
                return links;
            }
            let both = in_parallel(MAX_AGENTS, &round, |(first, second)| {
                [self.measure(*first, *second, Some(SEND_TIME)), self.measure(*second, *first, Some(SEND_TIME))]
            });
            links.extend(both.into_iter().flatten());
        }
        let mut measured = 0;
        while measured < MAX_REMEASUREMENTS && !self.interrupt.is_set() {
            let slow = slow_links(&links);
            if slow.is_empty() {
                break;
            }
            measured += slow.len();
            for number in slow {
                let again = self.measure(links[number].from, links[number].to, Some(SEND_TIME));
                if again.speed() > links[number].speed() {
                    links[number] = again;
                }
            }
        }
        links
    }

    fn measure(&self, from: usize, to: usize, send: Option<Seconds>) -> Link {
        let places = &self.network.places;
        let order = Order::Measure { to: SocketAddrV4::new(places[to].address, self.ports[to]), send };
        let time = Duration::from_secs_f64(send.map_or(0.0, |time| time.0));
        let state = match lock(&self.agents[from]).request(&order, time) {
            Ok(Reply::Measured { from: source, latency, speed }) => {
                let detour = (source != places[from].address).then_some(source);
                LinkState::Open { latency, speed, detour }
            }
            Ok(other) => LinkState::Closed(format!("unexpected reply from the agent: {other:?}")),
            Err(reason) => LinkState::Closed(reason),
        };
        Link { from, to, state }
    }
}

fn lock(agent: &Mutex<Agent>) -> std::sync::MutexGuard<'_, Agent> {
    agent.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the bandwidth of a good link.
pub fn typical_speed(links: &[Link]) -> Option<GigabytesPerSecond> {
    let speeds: Vec<f64> = links.iter().filter_map(Link::speed).collect();
    summary::percentile(&speeds, TYPICAL_PERCENTILE).map(GigabytesPerSecond)
}

/// Returns the indices of links that are far slower than the others.
pub fn slow_links(links: &[Link]) -> Vec<usize> {
    let usual = typical_speed(links).map_or(0.0, |usual| usual.0);
    let is_slow = |link: &Link| link.speed().is_some_and(|speed| speed < SLOW_FRACTION * usual);
    links.iter().enumerate().filter(|(_, link)| is_slow(link)).map(|(number, _)| number).collect()
}

/// Attributes faulty links to as few hosts as explain them: repeatedly picks the host that most of the remaining links
/// share. If several are tied, picks the highest index, because users check the first host anyway. Returns each host
/// with its indices into `links`.
pub fn blame(links: &[(usize, usize)]) -> Vec<(usize, Vec<usize>)> {
    let mut links_by_host: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (number, (from, to)) in links.iter().enumerate() {
        for host in [from, to] {
            links_by_host.entry(*host).or_default().insert(number);
        }
    }
    // Number of unexplained links, and the host.
    let mut order: BTreeSet<(usize, usize)> =
        links_by_host.iter().map(|(host, indices)| (indices.len(), *host)).collect();
    let mut blamed = Vec::new();
    while let Some((1.., host)) = order.pop_last() {
        let indices = links_by_host.remove(&host).unwrap_or_default();
        for number in &indices {
            let (from, to) = links[*number];
            let other = if from == host { to } else { from };
            if let Some(left) = links_by_host.get_mut(&other) {
                order.remove(&(left.len(), other));
                left.remove(number);
                order.insert((left.len(), other));
            }
        }
        blamed.push((host, indices.into_iter().collect()));
    }
    blamed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_connects_each_host_to_the_next() {
        assert_eq!(ring(3), [(0, 1), (1, 2), (2, 0)]);
        assert_eq!(ring(1), []);
    }

    fn link(from: usize, to: usize, speed: f64) -> Link {
        let state = LinkState::Open { latency: Seconds(1e-5), speed: Some(GigabytesPerSecond(speed)), detour: None };
        Link { from, to, state }
    }

    #[test]
    fn slow_links_are_below_half_the_typical_speed() {
        let links = [link(0, 1, 1.2), link(1, 0, 1.1), link(0, 2, 0.5), link(2, 0, 1.0)];
        assert_eq!(slow_links(&links), [2]);
        assert_eq!(typical_speed(&links), Some(GigabytesPerSecond(1.125)));
        let closed = Link { from: 0, to: 1, state: LinkState::Closed("no answer".to_owned()) };
        assert_eq!((slow_links(std::slice::from_ref(&closed)), typical_speed(&[closed])), (vec![], None));
    }

    #[test]
    fn host_common_to_slow_links_is_blamed() {
        assert_eq!(blame(&[(0, 2), (2, 1), (3, 2)]), [(2, vec![0, 1, 2])]);
        // Two hosts each slow to all: the second explains what the first does not.
        assert_eq!(blame(&[(0, 1), (1, 2), (1, 3), (4, 5)]), [(1, vec![0, 1, 2]), (5, vec![3])]);
        assert_eq!(blame(&[]), []);
    }
}
