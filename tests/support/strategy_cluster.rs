//! A simulated cluster with its own cost model of strategies, message by message. It shares only the placement of keys
//! with the model under test.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ringmark_core::benchmark::strategy::placement::{ArrayPart, owners, place};
use ringmark_core::benchmark::strategy::{ServerUse, StrategyConfig, StrategyUse};
use ringmark_core::benchmark::train::{Iteration, RunRecord};
use ringmark_core::dimension::{BackendName, Bytes, Case, KeyPlacement, Phase, Phases, Seconds, Strategy};

use crate::support::model_cluster::{ModelCluster, place_ranks};
use ringmark_core::stats::random::Random;

/// Array lengths in backward order: some arrays are cut into slices, some are not.
const ARRAYS: [usize; 12] = [
    2_050_000, 2_360_000, 4_700_000, 600_000, 2_360_000, 500_000, 1_200_000, 900_000, 4_700_000, 150_000, 6_000_000,
    10_000,
];
/// Bucket lengths of the sharded stores, in backward order.
const BUCKETS: [usize; 5] = [6_500_000, 6_400_000, 6_600_000, 6_000_000, 30_000];
const FORWARD: f64 = 0.030;
const BACKWARD: f64 = 0.060;
/// Seconds to update all weights on one rank.
const UPDATE: f64 = 0.004;
const OTHER: f64 = 0.0005;
/// Bytes per second that a process sums, or that ranks of a host move in its memory.
const MEMORY: f64 = 8e9;
/// Sender's cost of a message in seconds.
const MESSAGE: f64 = 8e-6;

/// Latency in seconds and bandwidth in bytes per second of a host's link, in each direction.
pub const NETWORKS: [(f64, f64); 3] = [(20e-6, 12e9), (20e-6, 3e9), (60e-6, 1e9)];

/// Algorithm that sends an array from all hosts to one, or from one to all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TransferPath {
    /// All through the owner's link, one host after the other.
    Straight,
    /// Like `Straight`, to the owners on all hosts at once.
    AtOnce,
    /// Tree of rounds, with half of the hosts in each.
    Tree,
    /// Pipeline from host to host, in pieces of 256 kB.
    Chain,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Exchange {
    Owners(Strategy, TransferPath),
    /// Number of servers, and true if they have dedicated hosts; `None` is one for each host of the case.
    Servers(Option<u32>, bool),
}

#[derive(Clone, Copy)]
pub struct StrategyCluster {
    pub exchange: Exchange,
    pub network: (f64, f64),
    /// Relative deviation of a rank's compute time between iterations.
    pub jitter: f64,
    /// Relative deviation of all times between runs.
    pub drift: f64,
}

/// Times at which the links and servers become free; each handles messages in order of arrival.
struct Resources(Vec<f64>);

impl Resources {
    /// Reserves the resource for `seconds`, at `time` or later, and returns the start.
    fn take(&mut self, resource: usize, time: f64, seconds: f64) -> f64 {
        let begin = self.0[resource].max(time);
        self.0[resource] = begin + seconds;
        begin
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Position {
    Leaves,
    Arrives,
    AtServer,
}

/// Time in picoseconds, a sequence number that breaks ties, worker, part, position, and true for a pull.
type Event = Reverse<(u64, usize, usize, usize, Position, bool)>;

impl StrategyCluster {
    pub fn strategy(&self) -> Strategy {
        match self.exchange {
            Exchange::Owners(strategy, _) => strategy,
            Exchange::Servers(..) => Strategy::DistSync,
        }
    }

    /// On one host only its memory counts.
    fn way(&self, case: Case, bytes: f64) -> f64 {
        let (latency, rate) = self.network;
        let Exchange::Owners(_, way) = self.exchange else { return 0.0 };
        let others = f64::from(case.nodes - 1);
        let inside = bytes / MEMORY;
        inside
            + match way {
                _ if case.nodes == 1 => 0.0,
                TransferPath::Straight | TransferPath::AtOnce => others * (latency + bytes / rate),
                TransferPath::Tree => f64::from(case.nodes).log2().ceil() * (latency + bytes / rate),
                TransferPath::Chain => bytes / rate + others * (latency + 256e3_f64.min(bytes) / rate),
            }
    }

    /// Returns the time at which each host has all weights back; `ready` returns when it has summed an array.
    fn served(&self, case: Case, ready: impl Fn(usize, usize) -> f64, slow: f64) -> Vec<f64> {
        let Exchange::Servers(number, has_own_hosts) = self.exchange else { return Vec::new() };
        let (hosts, number) = (case.nodes as usize, number.unwrap_or(case.nodes) as usize);
        let written: Vec<usize> = ARRAYS.iter().rev().copied().collect();
        let mut parts: Vec<ArrayPart> = place(&written, number, KeyPlacement::Balanced);
        parts.sort_by_key(|part| ARRAYS.len() - 1 - part.key);
        let host_of = |server: usize| if has_own_hosts { hosts + server } else { server % hosts };
        let (latency, rate) = self.network;
        let bytes = |part: usize| (parts[part].values.len() * 4) as f64;
        // Outgoing and incoming links of every host, then the servers.
        let all_hosts = if has_own_hosts { hosts + number } else { hosts };
        let mut resources = Resources(vec![0.0; 2 * all_hosts + number]);
        let mut events: BinaryHeap<Event> = BinaryHeap::new();
        let mut count = 0;
        let mut at = |events: &mut BinaryHeap<Event>,
                      time: f64,
                      worker: usize,
                      part: usize,
                      position: Position,
                      is_pull: bool| {
            count += 1;
            events.push(Reverse(((time * 1e12) as u64, count, worker, part, position, is_pull)));
        };
        for worker in 0..hosts {
            for (part, planned) in parts.iter().enumerate() {
                let ready = ready(worker, ARRAYS.len() - 1 - planned.key);
                at(&mut events, ready, worker, part, Position::Leaves, false);
            }
        }
        let (mut arrived, mut done) = (vec![0; parts.len()], vec![0.0_f64; hosts]);
        while let Some(Reverse((time, _, worker, part, position, is_pull))) = events.pop() {
            let time = time as f64 * 1e-12;
            let server = parts[part].server;
            let (from, to) = if is_pull { (host_of(server), worker) } else { (worker, host_of(server)) };
            let wire = slow * bytes(part) / rate;
            match position {
                Position::Leaves if from == to => at(&mut events, time, worker, part, Position::AtServer, is_pull),
                Position::Leaves => {
                    let begin = resources.take(2 * from, time, MESSAGE + wire);
                    at(&mut events, begin + MESSAGE + latency, worker, part, Position::Arrives, is_pull);
                }
                Position::Arrives => {
                    let begin = resources.take(2 * to + 1, time, wire);
                    at(&mut events, begin + wire, worker, part, Position::AtServer, is_pull);
                }
                Position::AtServer if is_pull => done[worker] = done[worker].max(time),
                Position::AtServer => {
                    let add = slow * bytes(part) / MEMORY;
                    let mut end = resources.take(2 * all_hosts + server, time, add) + add;
                    arrived[part] += 1;
                    if arrived[part] == hosts {
                        let update = 2.0 * add;
                        end = resources.take(2 * all_hosts + server, end, update) + update;
                        (0..hosts).for_each(|worker| at(&mut events, end, worker, part, Position::Leaves, true));
                    }
                }
            }
        }
        done
    }
}

impl ModelCluster for StrategyCluster {
    const OF_TRUTH: u32 = 100;
    const OF_RUN: u32 = 14;

    fn iteration(&self, case: Case, number: u32, slow: f64, noise: &mut Random) -> Iteration {
        let (ranks, a_host) = (case.ranks() as usize, case.gpus_per_node as usize);
        let factors: Vec<f64> = (0..ranks).map(|_| slow * (1.0 + self.jitter * noise.normal()).max(0.5)).collect();
        let compute = |rank: usize| factors[rank] * (FORWARD + BACKWARD);
        let full = |rank: usize, index: usize, of: usize| {
            factors[rank] * (FORWARD + BACKWARD * (index + 1) as f64 / of as f64)
        };
        let latest = |ranks: std::ops::Range<usize>, index: usize, of: usize| {
            ranks.map(|rank| full(rank, index, of)).fold(0.0, f64::max)
        };
        // Times at which a rank leaves the exposed phase and the optimizer's.
        let ends: Vec<(f64, f64)> = match self.exchange {
            _ if ranks == 1 => vec![(compute(0), compute(0) + slow * UPDATE)],
            Exchange::Servers(..) => {
                let ready = |host: usize, array: usize| latest(host * a_host..(host + 1) * a_host, array, ARRAYS.len());
                let done = self.served(case, ready, slow);
                let end = |rank: usize| done[rank / a_host].max(compute(rank)) + slow * 0.002;
                (0..ranks).map(|rank| (end(rank), end(rank) + slow * 0.001)).collect()
            }
            Exchange::Owners(strategy, kind) => {
                let root = |bucket: usize| if strategy == Strategy::Nccl { 0 } else { owners(&BUCKETS, ranks)[bucket] };
                let way = |bucket: usize| slow * self.way(case, (BUCKETS[bucket] * 4) as f64);
                // Buckets that share a link are sent one after the other.
                let link = |bucket: usize| if kind == TransferPath::AtOnce { root(bucket) / a_host } else { 0 };
                let (mut done, mut back) = (vec![0.0_f64; case.nodes as usize], vec![0.0_f64; case.nodes as usize]);
                for bucket in 0..BUCKETS.len() {
                    let done = &mut done[link(bucket)];
                    *done = latest(0..ranks, bucket, BUCKETS.len()).max(*done) + way(bucket);
                    back[link(bucket)] += way(bucket);
                }
                let longest = |links: &[f64]| links.iter().copied().fold(0.0, f64::max);
                let summed = longest(&done);
                let mut held = vec![0; ranks];
                (0..BUCKETS.len()).for_each(|bucket| held[root(bucket)] += BUCKETS[bucket]);
                let share = *held.iter().max().expect("a rank") as f64 / BUCKETS.iter().sum::<usize>() as f64;
                let shared = summed + slow * UPDATE * share + longest(&back);
                // A rank that only sends finishes before the owner has everything.
                let last = BUCKETS.len() - 1;
                let of_rank = |rank: usize| {
                    let early = if rank == root(last) { 0.0 } else { 0.5 * way(last) };
                    ((summed - early).max(compute(rank)), shared)
                };
                (0..ranks).map(of_rank).collect()
            }
        };
        let seconds = |of: &dyn Fn(usize) -> f64| (0..ranks).map(|rank| Seconds(of(rank))).collect::<Vec<_>>();
        Iteration {
            iteration: number,
            step: seconds(&|rank| ends[rank].1 + OTHER),
            phases: Phases::from_fn(|phase| match phase {
                Phase::Input => seconds(&|_| 0.0),
                Phase::Forward => seconds(&|rank| factors[rank] * FORWARD),
                Phase::Backward => seconds(&|rank| factors[rank] * BACKWARD),
                Phase::ExposedAllreduce => seconds(&|rank| ends[rank].0 - compute(rank)),
                Phase::Optimizer => seconds(&|rank| ends[rank].1 - ends[rank].0),
            }),
            before_allreduce: seconds(&|rank| full(rank, 0, ARRAYS.len())),
            loss: vec![6.9; ranks],
            loss_scale: 1.0,
            skipped: false,
        }
    }

    fn drift(&self) -> f64 {
        self.drift
    }

    /// The single rank uses all-reduce.
    fn describe(&self, case: Case, made: &mut RunRecord) {
        place_ranks(case, made);
        if case.ranks() > 1 {
            let strategy = self.strategy();
            let servers = match self.exchange {
                Exchange::Servers(number, has_own_hosts) => {
                    let number = number.unwrap_or(case.nodes);
                    let host = |server| {
                        if has_own_hosts { format!("server{server}") } else { format!("host{}", server % case.nodes) }
                    };
                    let of = |server| ServerUse {
                        host: host(server),
                        parts: 1,
                        weights: Bytes(1),
                        received: Bytes(1),
                        sent: Bytes(1),
                    };
                    made.header.backend = BackendName::Tcp;
                    (0..number).map(of).collect()
                }
                Exchange::Owners(..) => Vec::new(),
            };
            let number = (!servers.is_empty()).then_some(servers.len() as u32);
            let values = if servers.is_empty() { &BUCKETS[..] } else { &ARRAYS[..] };
            made.header.config.strategy = StrategyConfig { strategy, servers: number, ..StrategyConfig::default() };
            made.header.buckets = values.iter().map(|values| Bytes(*values as u64 * 4)).collect();
            made.end.as_mut().expect("a whole record").strategy =
                Some(StrategyUse { servers, ..StrategyUse::default() });
        }
    }
}
