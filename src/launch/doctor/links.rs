//! The ways between the hosts: who is asked to measure which and when, the measuring by their agents, and who is to
//! blame for what is missing or slow.

use std::net::SocketAddrV4;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ringmark_record::inspection::{Order, Reply};
use ringmark_record::stats::summary;
use ringmark_record::units::{GigabytesPerSecond, Seconds};
use serde::Serialize;

use crate::launch::cluster::interface::CommonNetwork;
use crate::launch::doctor::agent::Agent;
use crate::launch::doctor::host::side_by_side;
use crate::launch::job::process::Interrupt;

/// How long a pair sends in each direction.
const SEND: Seconds = Seconds(0.3);

/// Rounds at most, which is every pair of 32 hosts; of more hosts each meets 31 others.
const ROUNDS: usize = 31;

/// A way that carries less than this share of the usual is measured again, and is slow if it still does.
const SLOW: f64 = 0.5;

/// The usual is what a quarter of the ways carry or more: of three hosts one bad cable slows four ways of six, so that
/// their median would be slow itself.
const USUAL_PERCENT: f64 = 75.0;

/// The way from one host to another, by their numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Way {
    /// Who sent.
    pub from: usize,
    /// Who received.
    pub to: usize,
    /// What came of it.
    pub outcome: Outcome,
}

/// What a way carried.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It leads there.
    Open {
        /// Half the time of a byte there and back.
        latency: Seconds,
        /// Of one TCP connection, where it was measured.
        speed: Option<GigabytesPerSecond>,
        /// The address that the packets left from, where it is not the one of this network.
        detour: Option<std::net::Ipv4Addr>,
    },
    /// It does not, and why.
    Closed(String),
}

impl Way {
    /// Whether it leads there.
    pub fn is_open(&self) -> bool {
        matches!(self.outcome, Outcome::Open { .. })
    }

    fn speed(&self) -> Option<f64> {
        match self.outcome {
            Outcome::Open { speed, .. } => speed.map(|speed| speed.0),
            Outcome::Closed(_) => None,
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
pub struct Peers<'a> {
    agents: &'a [Mutex<Agent>],
    network: &'a CommonNetwork,
    ports: Vec<u16>,
    interrupt: &'a Interrupt,
}

impl<'a> Peers<'a> {
    /// Has them listen. `Err` names those that cannot, and why.
    pub fn listen(
        agents: &'a [Mutex<Agent>],
        network: &'a CommonNetwork,
        interrupt: &'a Interrupt,
    ) -> Result<Peers<'a>, Vec<(usize, String)>> {
        let numbers: Vec<usize> = (0..agents.len()).collect();
        let answers = side_by_side(&numbers, |number| {
            let order = Order::Listen(network.places[*number].address);
            match lock(&agents[*number]).ask(&order, Duration::ZERO) {
                Ok(Reply::Listening(port)) => Ok(port),
                Ok(other) => Err((*number, format!("its agent answers {other:?}"))),
                Err(reason) => Err((*number, reason)),
            }
        });
        let faults: Vec<(usize, String)> = answers.iter().filter_map(|answer| answer.clone().err()).collect();
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Peers { agents, network, ports: answers.into_iter().flatten().collect(), interrupt })
    }

    /// Whether each reaches the next.
    pub fn reach_next(&self) -> Vec<Way> {
        side_by_side(&ring(self.ports.len()), |(from, to)| self.measure(*from, *to, None))
    }

    /// Every pair in both directions, no host twice at a time; what is slow once more, with nobody beside it.
    pub fn measure_all(&self) -> Vec<Way> {
        let mut ways = Vec::new();
        for round in rounds(self.ports.len(), ROUNDS) {
            if self.interrupt.asked() {
                return ways;
            }
            let both = side_by_side(&round, |(first, second)| {
                [self.measure(*first, *second, Some(SEND)), self.measure(*second, *first, Some(SEND))]
            });
            ways.extend(both.into_iter().flatten());
        }
        for number in slow(&ways) {
            let again = self.measure(ways[number].from, ways[number].to, Some(SEND));
            if again.speed() > ways[number].speed() {
                ways[number] = again;
            }
        }
        ways
    }

    fn measure(&self, from: usize, to: usize, send: Option<Seconds>) -> Way {
        let places = &self.network.places;
        let order = Order::Measure { to: SocketAddrV4::new(places[to].address, self.ports[to]), send };
        let time = Duration::from_secs_f64(send.map_or(0.0, |time| time.0));
        let outcome = match lock(&self.agents[from]).ask(&order, time) {
            Ok(Reply::Measured { from: source, latency, speed }) => {
                let detour = (source != places[from].address).then_some(source);
                Outcome::Open { latency, speed, detour }
            }
            Ok(other) => Outcome::Closed(format!("its agent answers {other:?}")),
            Err(reason) => Outcome::Closed(reason),
        };
        Way { from, to, outcome }
    }
}

fn lock(agent: &Mutex<Agent>) -> std::sync::MutexGuard<'_, Agent> {
    agent.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a good way carries.
pub fn usual_speed(ways: &[Way]) -> Option<GigabytesPerSecond> {
    let speeds: Vec<f64> = ways.iter().filter_map(Way::speed).collect();
    summary::percentile(&speeds, USUAL_PERCENT).map(GigabytesPerSecond)
}

/// The ways, by their numbers, that carry far less than the others.
pub fn slow(ways: &[Way]) -> Vec<usize> {
    let usual = usual_speed(ways).map_or(0.0, |usual| usual.0);
    let is_slow = |way: &Way| way.speed().is_some_and(|speed| speed < SLOW * usual);
    ways.iter().enumerate().filter(|(_, way)| is_slow(way)).map(|(number, _)| number).collect()
}

/// Faulty ways laid at the door of as few hosts as explain them: again and again the host that most of the rest have in
/// common; of equals the one that is named last, since the first is where people look anyway. Each with its ways, by
/// their place in `ways`.
pub fn blame(ways: &[(usize, usize)]) -> Vec<(usize, Vec<usize>)> {
    let mut left: Vec<usize> = (0..ways.len()).collect();
    let mut blamed = Vec::new();
    while !left.is_empty() {
        let touches = |host: usize, way: &usize| ways[*way].0 == host || ways[*way].1 == host;
        let count = |host: usize| left.iter().filter(|way| touches(host, way)).count();
        let hosts = left.iter().flat_map(|way| [ways[*way].0, ways[*way].1]);
        let Some(host) = hosts.max_by_key(|host| (count(*host), *host)) else { break };
        let (its, others) = left.iter().partition(|way| touches(host, way));
        left = others;
        blamed.push((host, its));
    }
    blamed
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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

    fn way(from: usize, to: usize, speed: f64) -> Way {
        let outcome = Outcome::Open { latency: Seconds(1e-5), speed: Some(GigabytesPerSecond(speed)), detour: None };
        Way { from, to, outcome }
    }

    #[test]
    fn slow_is_below_half_of_the_usual() {
        let ways = [way(0, 1, 1.2), way(1, 0, 1.1), way(0, 2, 0.5), way(2, 0, 1.0)];
        assert_eq!(slow(&ways), [2]);
        assert_eq!(usual_speed(&ways), Some(GigabytesPerSecond(1.125)));
        let closed = Way { from: 0, to: 1, outcome: Outcome::Closed("no answer".to_owned()) };
        assert_eq!((slow(std::slice::from_ref(&closed)), usual_speed(&[closed])), (vec![], None));
    }

    #[test]
    fn the_host_that_slow_ways_have_in_common_is_blamed() {
        assert_eq!(blame(&[(0, 2), (2, 1), (3, 2)]), [(2, vec![0, 1, 2])]);
        // Two hosts each slow to all: whoever is not told by the first is told by the second.
        assert_eq!(blame(&[(0, 1), (1, 2), (1, 3), (4, 5)]), [(1, vec![0, 1, 2]), (5, vec![3])]);
        assert_eq!(blame(&[]), []);
    }
}
