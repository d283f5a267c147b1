//! A simulated cluster with its own cost model of sharded training: collectives in one queue of their ranks, started when
//! every one of these has requested them, and ranks that wait for weights, for places and for sums.

use ringmark_core::benchmark::strategy::{StrategyConfig, StrategyUse};
use ringmark_core::benchmark::train::{Iteration, RunRecord};
use ringmark_core::dimension::{BackendName, Bytes, Case, Phase, Phases, Seconds, Strategy};

use crate::support::model_cluster::{ModelCluster, place_ranks};
use ringmark_core::stats::random::Random;

/// Sizes of the buckets in bytes, in backward order.
const BUCKETS: [f64; 6] = [26e6, 18e6, 27e6, 25.6e6, 24e6, 6e6];
/// Share of forward and of backward that computes each bucket.
const COMPUTE: [f64; 6] = [0.1, 0.15, 0.25, 0.2, 0.2, 0.1];
const FORWARD: f64 = 0.030;
const BACKWARD: f64 = 0.060;
/// Seconds to update all weights on one rank.
const UPDATE: f64 = 0.008;
const OTHER: f64 = 0.0005;

/// Algorithm of a reduce-scatter or an all-gather between hosts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Algorithm {
    /// One ring over all ranks.
    Ring,
    /// Half of the array to the most distant rank, then a quarter, and so on: log2 n steps.
    Halving,
    /// Every host sends each other host its part, in one step for each host.
    Hosts,
}

#[derive(Debug, Clone, Copy)]
pub struct ShardCluster {
    pub strategy: Strategy,
    pub algorithm: Algorithm,
    /// Latency in seconds and bandwidth in bytes per second of a host's link.
    pub network: (f64, f64),
    /// Bytes per second of copies inside a host.
    pub memory: f64,
    /// Relative deviation of a rank's compute time between iterations, and between buckets.
    pub jitter: f64,
    /// Relative deviation of all times between runs.
    pub drift: f64,
}

/// Collectives of an iteration among groups of ranks; those of a group run one after the other.
struct Queue {
    /// Ranks of each group.
    groups: Vec<Vec<usize>>,
    free: Vec<f64>,
}

impl Queue {
    fn new(groups: Vec<Vec<usize>>) -> Queue {
        Queue { free: vec![0.0; groups.len()], groups }
    }

    /// Returns the end, for each rank, of a collective that takes `seconds` and that the ranks request at these times.
    fn run(&mut self, requests: &[f64], seconds: f64) -> Vec<f64> {
        let mut ends = vec![0.0; requests.len()];
        for (ranks, free) in self.groups.iter().zip(&mut self.free) {
            *free = seconds + ranks.iter().map(|rank| requests[*rank]).fold(*free, f64::max);
            ranks.iter().for_each(|rank| ends[*rank] = *free);
        }
        ends
    }
}

/// A rank in an iteration.
#[derive(Clone)]
struct Rank {
    now: f64,
    /// Relative duration of its work.
    factor: f64,
    phases: Phases<f64>,
    /// Compute time until the first sum.
    before: f64,
}

struct Ranks<'a> {
    all: Vec<Rank>,
    jitter: f64,
    noise: &'a mut Random,
}

impl Ranks<'_> {
    fn now(&self) -> Vec<f64> {
        self.all.iter().map(|rank| rank.now).collect()
    }

    fn compute(&mut self, phase: Phase, seconds: f64) {
        for rank in &mut self.all {
            let seconds = seconds * rank.factor * (1.0 + self.jitter * self.noise.normal()).max(0.5);
            rank.now += seconds;
            rank.phases[phase] += seconds;
        }
    }

    /// Waits for the end of a collective, which each rank has at its own time.
    fn wait(&mut self, phase: Phase, ends: &[f64]) {
        for (rank, end) in self.all.iter_mut().zip(ends) {
            rank.phases[phase] += (end - rank.now).max(0.0);
            rank.now = rank.now.max(*end);
        }
    }
}

impl ShardCluster {
    pub fn backend(&self) -> BackendName {
        if self.algorithm == Algorithm::Hosts { BackendName::SharedMemory } else { BackendName::Nccl }
    }

    /// Returns the time of a reduce-scatter or an all-gather.
    pub fn collective(&self, case: Case, bytes: f64) -> f64 {
        let inside = if case.ranks() > 1 { bytes / self.memory } else { 0.0 };
        self.through_network(case, bytes) + inside
    }

    fn through_network(&self, case: Case, bytes: f64) -> f64 {
        let (latency, rate) = self.network;
        let (hosts, ranks) = (f64::from(case.nodes), f64::from(case.ranks()));
        match self.algorithm {
            _ if case.nodes == 1 => 0.0,
            Algorithm::Ring => (ranks - 1.0) * (latency + bytes / ranks / rate),
            Algorithm::Halving => ranks.log2() * latency + bytes * (hosts - 1.0) / hosts / rate,
            Algorithm::Hosts => (hosts - 1.0) * (latency + bytes / hosts / rate),
        }
    }

    /// Returns the ranks that divide the weights, as a case of their own.
    fn owners(&self, case: Case) -> Case {
        if self.strategy == Strategy::Hsdp { Case { nodes: 1, ..case } } else { case }
    }

    /// Returns the groups of ranks that divide the weights, each with the next `self.owners(case).ranks()` ranks.
    fn groups(&self, case: Case) -> Vec<Vec<usize>> {
        let owners = self.owners(case).ranks() as usize;
        (0..case.ranks() as usize / owners).map(|group| (group * owners..(group + 1) * owners).collect()).collect()
    }

    /// Returns the time that the owners of a bucket's parts take to add them over the hosts, all at the same time through
    /// the link of their host: a reduce-scatter and an all-gather among one rank of each, which copies its own part.
    fn between_hosts(&self, case: Case, bucket: usize) -> f64 {
        let (owners, bytes) = (Case { gpus_per_node: 1, ..case }, BUCKETS[bucket]);
        let copy = if case.nodes > 1 { bytes / f64::from(case.gpus_per_node) / self.memory } else { 0.0 };
        2.0 * (self.through_network(owners, bytes) + copy)
    }

    /// Runs forward, backward and the sums of gradients. `collectives` are those of the ranks that divide the weights.
    fn passes(&self, case: Case, slow: f64, collectives: &mut Queue, ranks: &mut Ranks) {
        let (exposed, buckets) = (Phase::ExposedAllreduce, BUCKETS.len());
        let is_gathered = self.strategy.shards_weights();
        let seconds = |bucket: usize| slow * self.collective(self.owners(case), BUCKETS[bucket]);
        let mut gathered = vec![ranks.now(); buckets];
        if is_gathered {
            gathered[buckets - 1] = collectives.run(&ranks.now(), seconds(buckets - 1));
        }
        for bucket in (0..buckets).rev() {
            ranks.wait(exposed, &gathered[bucket]);
            if is_gathered && bucket > 0 {
                gathered[bucket - 1] = collectives.run(&ranks.now(), seconds(bucket - 1));
            }
            ranks.compute(Phase::Forward, COMPUTE[bucket] * FORWARD);
        }
        let same_part = |local| (local..case.ranks() as usize).step_by(case.gpus_per_node as usize).collect();
        let mut hosts = Queue::new((0..case.gpus_per_node as usize).map(same_part).collect());
        let (mut summed, mut added): (Vec<Vec<f64>>, _) = (Vec::new(), ranks.now());
        let mut add = |ranks: &Ranks, bucket| added = hosts.run(&ranks.now(), slow * self.between_hosts(case, bucket));
        let is_added = self.strategy == Strategy::Hsdp;
        // Collectives in host memory make no progress during backward.
        let is_hidden = self.algorithm != Algorithm::Hosts;
        for bucket in 0..buckets {
            ranks.wait(exposed, &gathered[bucket]);
            // Two buckets have places: the weights of the first two are still there after forward.
            if is_gathered && (2..buckets).contains(&(bucket + 1)) {
                gathered[bucket + 1] = collectives.run(&ranks.now(), seconds(bucket + 1));
            }
            ranks.compute(Phase::Backward, COMPUTE[bucket] * BACKWARD);
            if bucket == 0 || is_gathered {
                let compute = |rank: &Rank| rank.phases[Phase::Forward] + rank.phases[Phase::Backward];
                ranks.all.iter_mut().for_each(|rank| rank.before = compute(rank));
            }
            if let (true, Some(before)) = (self.strategy.shards_gradients(), bucket.checked_sub(2)) {
                ranks.wait(exposed, &summed[before]);
                if is_added && is_hidden {
                    add(ranks, before);
                }
            }
            summed.push(collectives.run(&ranks.now(), seconds(bucket)));
        }
        let first = if is_hidden { buckets - 2 } else { 0 };
        for (bucket, ends) in summed.iter().enumerate().skip(first) {
            ranks.wait(exposed, ends);
            if is_added {
                add(ranks, bucket);
            }
        }
        ranks.wait(exposed, &added);
    }
}

impl ModelCluster for ShardCluster {
    const OF_TRUTH: u32 = 100;
    const OF_RUN: u32 = 14;

    fn iteration(&self, case: Case, number: u32, slow: f64, noise: &mut Random) -> Iteration {
        let rank = |noise: &mut Random| {
            let factor = slow * (1.0 + self.jitter * noise.normal()).max(0.5);
            Rank { now: 0.0, factor, phases: Phases::default(), before: 0.0 }
        };
        let all = (0..case.ranks()).map(|_| rank(noise)).collect();
        let mut ranks = Ranks { all, jitter: self.jitter, noise };
        let mut collectives = Queue::new(self.groups(case));
        if case.ranks() == 1 {
            ranks.compute(Phase::Forward, FORWARD);
            ranks.compute(Phase::Backward, BACKWARD);
        } else {
            self.passes(case, slow, &mut collectives, &mut ranks);
        }
        ranks.jitter = 0.0;
        ranks.all.iter_mut().for_each(|rank| rank.factor = slow);
        ranks.compute(Phase::Optimizer, UPDATE / f64::from(self.owners(case).ranks()));
        if case.ranks() > 1 && !self.strategy.shards_weights() {
            for bytes in BUCKETS {
                let ends = collectives.run(&ranks.now(), slow * self.collective(case, bytes));
                ranks.wait(Phase::Optimizer, &ends);
            }
        }
        let seconds = |of: &dyn Fn(&Rank) -> f64| ranks.all.iter().map(|rank| Seconds(of(rank))).collect::<Vec<_>>();
        Iteration {
            iteration: number,
            step: seconds(&|rank| rank.now + OTHER),
            phases: Phases::from_fn(|phase| seconds(&|rank| rank.phases[phase])),
            before_allreduce: seconds(&|rank| rank.before),
            loss: vec![6.9; ranks.all.len()],
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
        made.header.backend = BackendName::Solo;
        if case.ranks() > 1 {
            made.header.config.strategy = StrategyConfig { strategy: self.strategy, ..StrategyConfig::default() };
            made.header.backend = self.backend();
            made.header.buckets = BUCKETS.map(|bytes| Bytes(bytes as u64)).into();
            made.end.as_mut().expect("a whole record").strategy = Some(StrategyUse::default());
        }
    }
}
