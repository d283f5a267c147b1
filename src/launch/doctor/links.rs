//! The links between the hosts: which agent measures which link and when, and which host is to blame for what is missing
//! or slow.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ringmark_core::dimension::{GigabytesPerSecond, Seconds};
use ringmark_core::host::{Order, Reply};
use ringmark_core::stats::summary;
use schemars::JsonSchema;
use serde::Serialize;

use crate::launch::cluster::interface::{CommonNetwork, NetworkFault};
use crate::launch::doctor::agent::Agent;
use crate::launch::local::interrupt::Interrupt;
use crate::launch::local::side_by_side::{AGENTS, side_by_side};

/// How long a pair sends in each direction.
const SEND: Seconds = Seconds(0.3);

/// Rounds at most, which is every pair of 32 hosts; of more hosts each meets 31 others, and beyond 1024 fewer: the agents
/// that are waited for at a time make each round longer.
const ROUNDS: usize = 31;

/// Rounds at least.
const FEWEST_ROUNDS: usize = 4;

/// Slow links are measured again, all of them and again, until there were so many measurements.
const AGAIN: usize = 24;

/// A link that carries less than this part of the usual is measured again, and is slow if it still does.
const SLOW: f64 = 0.5;

/// The usual is what a quarter of the links carry or more: of three hosts one bad cable slows four links of six, so that
/// their median would be slow itself.
const USUAL_PERCENT: f64 = 75.0;

/// The link from one host to another, by their numbers.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Link {
    /// Who sent.
    pub from: usize,
    /// Who received.
    pub to: usize,
    /// What came of it.
    pub state: LinkState,
}

/// What a link carried.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// It leads there.
    Open {
        /// Half the time of a byte there and back.
        #[serde(rename = "latency_seconds")]
        latency: Seconds,
        /// Of one TCP connection, where it was measured.
        #[serde(rename = "gigabytes_per_second")]
        speed: Option<GigabytesPerSecond>,
        /// The address that the packets left from, where it is not the one of this network.
        detour: Option<std::net::Ipv4Addr>,
    },
    /// It does not, and why.
    Closed(String),
}

impl Link {
    /// Whether it leads there.
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

/// Every host and the next one, the last and the first.
pub fn ring(hosts: usize) -> Vec<(usize, usize)> {
    if hosts < 2 { Vec::new() } else { (0..hosts).map(|host| (host, (host + 1) % hosts)).collect() }
}

/// Every pair of hosts once, in rounds in which no host comes twice: one stays and the others go round it. Where these
/// would be more than `at_most`, that many of them, evenly spread.
pub fn rounds(hosts: usize, at_most: usize) -> Vec<Vec<(usize, usize)>> {
    // One more seat, empty, where they cannot all be paired.
    let seats = hosts + hosts % 2;
    let count = seats.saturating_sub(1);
    let round = |turn: usize| -> Vec<(usize, usize)> {
        let seat = |index: usize| if index == 0 { 0 } else { (index - 1 + turn) % count + 1 };
        let pairs = (0..seats / 2).map(|index| (seat(index), seat(seats - 1 - index)));
        pairs.filter(|(first, second)| *first < hosts && *second < hosts).collect()
    };
    let taken = count.min(at_most);
    (0..taken).map(|turn| round(turn * count / taken)).filter(|pairs| !pairs.is_empty()).collect()
}

/// The agents of all hosts, each taking connections at its place in one network.
pub struct LinkMeter<'a> {
    agents: &'a [Mutex<Agent>],
    network: &'a CommonNetwork,
    ports: Vec<u16>,
    interrupt: &'a Interrupt,
}

impl<'a> LinkMeter<'a> {
    /// Has them listen. `Err` names those that cannot, and why.
    pub fn listen(
        agents: &'a [Mutex<Agent>],
        network: &'a CommonNetwork,
        interrupt: &'a Interrupt,
    ) -> Result<LinkMeter<'a>, Vec<NetworkFault>> {
        let numbers: Vec<usize> = (0..agents.len()).collect();
        let answers = side_by_side(AGENTS, &numbers, |number| {
            let order = Order::Listen(network.places[*number].address);
            match lock(&agents[*number]).ask(&order, Duration::ZERO) {
                Ok(Reply::Listening(port)) => Ok(port),
                Ok(other) => Err(NetworkFault { host: *number, what: format!("its agent answers {other:?}") }),
                Err(what) => Err(NetworkFault { host: *number, what }),
            }
        });
        let faults: Vec<NetworkFault> = answers.iter().filter_map(|answer| answer.clone().err()).collect();
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(LinkMeter { agents, network, ports: answers.into_iter().flatten().collect(), interrupt })
    }

    /// Whether each reaches the next.
    pub fn reach_next(&self) -> Vec<Link> {
        side_by_side(AGENTS, &ring(self.ports.len()), |(from, to)| self.measure(*from, *to, None))
    }

    /// Every pair in both directions, no host twice at a time; what is slow again, with nobody beside it: the best counts,
    /// because hosts that do something else as well make a link slow now and then, and a bad cable always does.
    pub fn measure_all(&self) -> Vec<Link> {
        let mut links = Vec::new();
        let at_most = (ROUNDS * AGENTS / self.ports.len().max(AGENTS)).max(FEWEST_ROUNDS);
        for round in rounds(self.ports.len(), at_most) {
            if self.interrupt.asked() {
                return links;
            }
            let both = side_by_side(AGENTS, &round, |(first, second)| {
                [self.measure(*first, *second, Some(SEND)), self.measure(*second, *first, Some(SEND))]
            });
            links.extend(both.into_iter().flatten());
        }
        let mut measured = 0;
        while measured < AGAIN && !self.interrupt.asked() {
            let slow = slow(&links);
            if slow.is_empty() {
                break;
            }
            measured += slow.len();
            for number in slow {
                let again = self.measure(links[number].from, links[number].to, Some(SEND));
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
        let state = match lock(&self.agents[from]).ask(&order, time) {
            Ok(Reply::Measured { from: source, latency, speed }) => {
                let detour = (source != places[from].address).then_some(source);
                LinkState::Open { latency, speed, detour }
            }
            Ok(other) => LinkState::Closed(format!("its agent answers {other:?}")),
            Err(reason) => LinkState::Closed(reason),
        };
        Link { from, to, state }
    }
}

fn lock(agent: &Mutex<Agent>) -> std::sync::MutexGuard<'_, Agent> {
    agent.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a good link carries.
pub fn usual_speed(links: &[Link]) -> Option<GigabytesPerSecond> {
    let speeds: Vec<f64> = links.iter().filter_map(Link::speed).collect();
    summary::percentile(&speeds, USUAL_PERCENT).map(GigabytesPerSecond)
}

/// The links, by their numbers, that carry far less than the others.
pub fn slow(links: &[Link]) -> Vec<usize> {
    let usual = usual_speed(links).map_or(0.0, |usual| usual.0);
    let is_slow = |link: &Link| link.speed().is_some_and(|speed| speed < SLOW * usual);
    links.iter().enumerate().filter(|(_, link)| is_slow(link)).map(|(number, _)| number).collect()
}

/// Faulty links blamed on as few hosts as explain them: again and again the host that most of the rest have in
/// common; of equals the one that is named last, since the first is where people look anyway. Each with its links, by
/// their place in `links`.
pub fn blame(links: &[(usize, usize)]) -> Vec<(usize, Vec<usize>)> {
    let mut of_hosts: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (number, (from, to)) in links.iter().enumerate() {
        for host in [from, to] {
            of_hosts.entry(*host).or_default().insert(number);
        }
    }
    // How many are left, and the host.
    let mut order: BTreeSet<(usize, usize)> = of_hosts.iter().map(|(host, its)| (its.len(), *host)).collect();
    let mut blamed = Vec::new();
    while let Some((1.., host)) = order.pop_last() {
        let its = of_hosts.remove(&host).unwrap_or_default();
        for number in &its {
            let (from, to) = links[*number];
            let other = if from == host { to } else { from };
            if let Some(left) = of_hosts.get_mut(&other) {
                order.remove(&(left.len(), other));
                left.remove(number);
                order.insert((left.len(), other));
            }
        }
        blamed.push((host, its.into_iter().collect()));
    }
    blamed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_meets_once_and_nobody_is_in_two_places() {
        for hosts in 2..=33 {
            let all = rounds(hosts, usize::MAX);
            let mut met = BTreeSet::new();
            for round in &all {
                let mut busy = BTreeSet::new();
                for (first, second) in round {
                    assert!(busy.insert(*first) && busy.insert(*second), "{hosts}: {round:?}");
                    assert!(met.insert((*first.min(second), *first.max(second))), "{hosts}: {first} and {second}");
                }
            }
            assert_eq!(met.len(), hosts * (hosts - 1) / 2, "{hosts}");
        }
        assert_eq!(rounds(1, ROUNDS), Vec::<Vec<(usize, usize)>>::new());
        assert_eq!((rounds(32, ROUNDS).len(), rounds(200, ROUNDS).len()), (31, 31));
    }

    #[test]
    fn a_ring_goes_round() {
        assert_eq!(ring(3), [(0, 1), (1, 2), (2, 0)]);
        assert_eq!(ring(1), []);
    }

    fn link(from: usize, to: usize, speed: f64) -> Link {
        let state = LinkState::Open { latency: Seconds(1e-5), speed: Some(GigabytesPerSecond(speed)), detour: None };
        Link { from, to, state }
    }

    #[test]
    fn slow_is_below_half_of_the_usual() {
        let links = [link(0, 1, 1.2), link(1, 0, 1.1), link(0, 2, 0.5), link(2, 0, 1.0)];
        assert_eq!(slow(&links), [2]);
        assert_eq!(usual_speed(&links), Some(GigabytesPerSecond(1.125)));
        let closed = Link { from: 0, to: 1, state: LinkState::Closed("no answer".to_owned()) };
        assert_eq!((slow(std::slice::from_ref(&closed)), usual_speed(&[closed])), (vec![], None));
    }

    #[test]
    fn the_host_that_slow_ways_have_in_common_is_blamed() {
        assert_eq!(blame(&[(0, 2), (2, 1), (3, 2)]), [(2, vec![0, 1, 2])]);
        // Two hosts each slow to all: whatever the first does not explain the second does.
        assert_eq!(blame(&[(0, 1), (1, 2), (1, 3), (4, 5)]), [(1, vec![0, 1, 2]), (5, vec![3])]);
        assert_eq!(blame(&[]), []);
    }
}
