//! Communication pattern of a group's runs: all-reduce, shards over all ranks or in each host, owners, or servers. Contains the facts that a prediction
//! needs, and the reasons why some runs cannot be predicted.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_core::benchmark::compression::{GradientCompression, sums_a_word};
use ringmark_core::benchmark::strategy::ServerUse;
use ringmark_core::benchmark::strategy::placement::{bytes_by_server, check_servers, owners, place};
use ringmark_core::dimension::{
    Bytes, Case, DeviceKind, KeyPlacement, Operation, Phase, ShardCollectives, Strategy, Wire,
};
use ringmark_core::stats::exchange_growth::{self, ScalingLaws, Servers};

use crate::read::analyze::training::figures::{TrainingCase, TrainingGroup};

/// Size of 2-bit codes relative to fp32.
const TWO_BITS: f64 = 1.0 / 16.0;

/// Upper limit for the bytes of gradients; a larger value is not from a record of a run.
const MOST_BYTES: u128 = 1 << 48;

/// Part of a step with exposed time of collectives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangePart {
    /// Exposed exchange after the slowest rank has joined.
    Transfer,
    /// Optimizer phase after the update, which nothing hides.
    Return,
}

/// Communication pattern.
#[derive(Debug, Clone, PartialEq)]
pub enum ExchangePattern {
    /// All-reduce: every rank gets the sums.
    AllReduce,
    /// Every rank owns a part of each bucket.
    Shards {
        /// Reduce-scatters of each bucket in a step: one for each pass that exchanges its gradients.
        sums: usize,
        /// All-gathers of each bucket during forward and backward, at most; 0 if weights are gathered after the update.
        gathers: usize,
    },
    /// Every rank owns a part of each bucket among the ranks of its host, and the hosts add the parts by all-reduce.
    HybridShards,
    /// Every bucket has one owner among the ranks.
    Owners {
        /// Number of values in each bucket; a single bucket has a single owner.
        buckets: Vec<usize>,
    },
    /// Parameter servers that each hold a part of the weights.
    Servers(ServerSetup),
}

/// Servers of measured and predicted cases.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerSetup {
    /// Number of servers in the measured cases; `None` for one per host.
    pub number: Option<u32>,
    /// Number of servers in the predicted clusters, if given.
    pub requested: Option<u32>,
    /// True if servers run on hosts of ranks, in the measured case with the most hosts.
    pub are_on_rank_hosts: bool,
    /// Hosts that servers shared although more were available; `None` if they use all hosts of the ranks round-robin, or
    /// one host each.
    pub shared_hosts: Option<u32>,
    /// True if every rank pushes its own gradients.
    pub every_rank_pushes: bool,
    /// Bytes pushed, relative to the weights in fp32.
    pub pushed_share: f64,
    /// True if servers return packed sums of 2-bit codes instead of weights.
    pub sums_come_back: bool,
    /// Location of the servers in each measured case.
    places: BTreeMap<Case, ServerPlace>,
    placement: KeyPlacement,
    /// Number of values in each array, in the order of the network.
    arrays: Vec<usize>,
}

/// Location of the servers in a measured case.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ServerPlace {
    /// Number of hosts with servers.
    hosts: u32,
    /// Largest number of servers on a host.
    on_one_host: u32,
    are_on_rank_hosts: bool,
    /// True if a host of ranks had no server while another had several, or if a dedicated host had several.
    is_shared: bool,
}

/// Returns the compression of the gradients.
fn compression(group: &TrainingGroup) -> GradientCompression {
    let recorded = group.conditions.recorded.as_ref();
    recorded.map_or(GradientCompression::None, |recorded| recorded.config.gradient_compression)
}

impl ExchangePattern {
    /// Returns the strategy of a group, or the reason why nothing can be predicted from its runs.
    pub fn from_group(group: &TrainingGroup) -> Result<ExchangePattern, String> {
        if group.is_strong() {
            let batch = group.conditions.point.batch;
            return Err(format!(
                "{batch}: the work of a rank depends on the case: measure with --batch-size, the same for every rank"
            ));
        }
        let strategy = group.conditions.point.strategy;
        match strategy {
            Strategy::AllReduce => {
                let compression = compression(group);
                return match compression.is_none() {
                    true => Ok(ExchangePattern::AllReduce),
                    false => Err(format!(
                        "with --gradient-compression {compression} every rank receives and decodes the codes of all \
                         ranks, which no all-reduce model describes"
                    )),
                };
            }
            Strategy::Local => {
                return Err("it sums in the memory of one host, but predict extrapolates from several hosts".to_owned());
            }
            _ if strategy.is_asynchronous() => {
                return Err(
                    "its ranks do not wait for each other: the queueing time of a push at a server depends on \
                    when the other ranks push, which is unknown for larger cases, and images/s with stale weights are \
                    not comparable to those of a global batch"
                        .to_owned(),
                );
            }
            _ => {}
        }
        if group.base_case().is_none() {
            return Err("no run of it counts".to_owned());
        }
        let counts = |case: &&TrainingCase| case.figures.is_some();
        let is_recorded = |case: &TrainingCase| case.figures.as_ref().is_some_and(|figures| figures.times.is_some());
        let Some(recorded) = group.conditions.recorded.as_ref().filter(|_| {
            group.cases.iter().filter(counts).all(is_recorded) && group.base_case().is_some_and(is_recorded)
        }) else {
            return Err(
                "there are logs without records (.jsonl), and only records show the hidden part of an exchange"
                    .to_owned(),
            );
        };
        // The largest case: a single rank exchanges nothing.
        let largest = group.cases.iter().rev().filter(counts);
        let mut runs = largest.flat_map(|case| &case.runs).filter_map(|run| run.recorded.as_ref());
        let buckets = runs.next().map_or(&[][..], |run| &run.facts.buckets);
        let bytes: u128 = buckets.iter().map(|bucket| u128::from(bucket.0)).sum();
        if bytes > MOST_BYTES {
            return Err(format!("its records contain an invalid gradient size: {bytes} bytes"));
        }
        let values: Vec<usize> = buckets.iter().map(|bucket| bucket.0 as usize / size_of::<f32>()).collect();
        if strategy.has_servers() {
            return ServerSetup::from_group(group, recorded.device, recorded.config.exchange.wire, values)
                .map(ExchangePattern::Servers);
        }
        if strategy == Strategy::Hsdp {
            return Ok(ExchangePattern::HybridShards);
        }
        if group.base != Some(Case::SINGLE) {
            return Err("no run of 1n1g counts, and only its update separates the return of the weights from the \
                optimizer's time: sweep 1n1g as well"
                .to_owned());
        }
        if let Some(collectives) = strategy.shard_collectives(recorded.config.accumulate) {
            let ShardCollectives { sums, gathers } = collectives;
            return Ok(ExchangePattern::Shards { sums: sums as usize, gathers: gathers as usize });
        }
        Ok(match strategy {
            Strategy::Nccl => ExchangePattern::Owners { buckets: vec![values.iter().sum()] },
            _ => ExchangePattern::Owners { buckets: values },
        })
    }

    /// Returns the parts of a step with exposed time of collectives.
    pub fn exchange_parts(&self) -> &'static [ExchangePart] {
        match self {
            ExchangePattern::Shards { .. } => &[ExchangePart::Transfer, ExchangePart::Return],
            _ => &[ExchangePart::Transfer],
        }
    }

    /// Returns the phases that can hide the exchange.
    pub fn hiding_phases(&self) -> &'static [Phase] {
        match self {
            ExchangePattern::Shards { gathers: 1.., .. } => &[Phase::Forward, Phase::Backward],
            // The hosts also add while a rank waits for the exchange inside its host.
            ExchangePattern::HybridShards => &[Phase::Backward, Phase::ExposedAllreduce],
            _ => &[Phase::Backward],
        }
    }

    /// Returns the collectives between hosts, whose bandwidth applies.
    pub fn operations(&self) -> &'static [Operation] {
        match self {
            ExchangePattern::AllReduce | ExchangePattern::HybridShards => &[Operation::AllReduce],
            ExchangePattern::Shards { .. } => &[Operation::AllGather, Operation::ReduceScatter],
            ExchangePattern::Owners { .. } | ExchangePattern::Servers(_) => &[],
        }
    }

    /// Returns the sizes of the reduce-scatters and all-gathers in a part of the exchange, for buckets of these sizes in
    /// fp32, in backward order. An all-reduce consists of one of each.
    pub fn messages(&self, part: ExchangePart, buckets: &[Bytes], wire: Wire) -> Vec<Bytes> {
        let gradients: Vec<Bytes> = buckets.iter().map(|bucket| wire.size_of(*bucket)).collect();
        match (self, part) {
            (ExchangePattern::Shards { sums, gathers }, ExchangePart::Transfer) => {
                [gradients.repeat(*sums), buckets.repeat(*gathers)].concat()
            }
            (ExchangePattern::Shards { gathers: 0, .. }, ExchangePart::Return) => buckets.to_vec(),
            // The weights that the next forward needs first.
            (ExchangePattern::Shards { .. }, ExchangePart::Return) => buckets.last().copied().into_iter().collect(),
            _ => gradients.repeat(2),
        }
    }

    /// Sets the number of servers in the predicted clusters; an error if it is not possible.
    pub fn with_servers(mut self, servers: u32) -> anyhow::Result<ExchangePattern> {
        if let ExchangePattern::Servers(setup) = &mut self {
            check_servers(servers as usize, setup.arrays.len())?;
            setup.requested = Some(servers);
        }
        Ok(self)
    }

    /// Returns true if the exchange consists of collectives of all ranks.
    pub fn has_collectives(&self) -> bool {
        matches!(self, ExchangePattern::AllReduce | ExchangePattern::Shards { .. } | ExchangePattern::HybridShards)
    }

    /// Returns true if every rank owns a part of each bucket among all ranks.
    pub fn has_shards(&self) -> bool {
        matches!(self, ExchangePattern::Shards { .. })
    }

    /// Returns true if ranks divide every bucket among them, all ranks or those of each host.
    pub fn divides_buckets(&self) -> bool {
        self.has_shards() || self.is_hybrid()
    }

    /// Returns true if the ranks of each host divide the buckets among them.
    pub fn is_hybrid(&self) -> bool {
        *self == ExchangePattern::HybridShards
    }

    /// Returns true if every bucket has one owner.
    pub fn has_owners(&self) -> bool {
        matches!(self, ExchangePattern::Owners { .. })
    }

    /// Returns the number of servers in a case, as measured or assumed; `None` if there are none.
    pub fn server_number(&self, case: Case) -> Option<u32> {
        match self {
            ExchangePattern::Servers(setup) => Some(setup.requested_number(case)),
            _ => None,
        }
    }

    /// Returns true if a measured case has the requested number of servers.
    pub fn is_as_measured(&self, case: Case) -> bool {
        match self {
            ExchangePattern::Servers(setup) => setup.requested_number(case) == setup.measured_number(case),
            _ => true,
        }
    }

    /// Largest share of the weights that one rank updates.
    pub fn largest_share(&self, case: Case) -> f64 {
        let buckets = match self {
            ExchangePattern::Owners { buckets } => buckets,
            ExchangePattern::Shards { .. } => return 1.0 / f64::from(case.ranks()),
            ExchangePattern::HybridShards => return 1.0 / f64::from(case.gpus_per_node),
            ExchangePattern::AllReduce | ExchangePattern::Servers(_) => return 1.0,
        };
        // Owners beyond the number of buckets hold nothing.
        let mut held = vec![0; buckets.len().min(case.ranks() as usize).max(1)];
        buckets.iter().zip(owners(buckets, held.len())).for_each(|(bucket, owner)| held[owner] += bucket);
        let all: usize = buckets.iter().sum();
        held.into_iter().max().filter(|_| all > 0).map_or(1.0, |most| most as f64 / all as f64)
    }

    /// Returns the quantities that the measured exchange of a case is proportional to. The case has several hosts.
    pub fn measured_laws(&self, case: Case) -> ScalingLaws {
        match self {
            ExchangePattern::Servers(setup) => setup.servers_for(case, setup.measured_number(case)).laws(),
            _ => self.laws_of_owners(case),
        }
    }

    /// Returns those quantities for a requested case.
    pub fn laws(&self, case: Case) -> ScalingLaws {
        match self {
            ExchangePattern::Servers(setup) => setup.servers_for(case, setup.requested_number(case)).laws(),
            _ => self.laws_of_owners(case),
        }
    }

    fn laws_of_owners(&self, case: Case) -> ScalingLaws {
        let are_several = matches!(self, ExchangePattern::Owners { buckets } if buckets.len() > 1);
        exchange_growth::owners(case.nodes, are_several)
    }
}

impl ServerSetup {
    fn from_group(
        group: &TrainingGroup,
        device: DeviceKind,
        wire: Wire,
        arrays: Vec<usize>,
    ) -> Result<ServerSetup, String> {
        let config = group.conditions.recorded.as_ref().map(|recorded| recorded.config.strategy).unwrap_or_default();
        let counted = || group.cases.iter().filter(|case| case.figures.is_some());
        let is_one_a_host = |servers: &u32| counted().all(|case| case.case.nodes == *servers);
        // If the number of servers equals the number of hosts in every counted case, it is treated as the default: one
        // per host.
        let number = config.servers.filter(|servers| !is_one_a_host(servers));
        let used = |case: &TrainingCase| {
            case.runs.iter().find_map(|run| {
                let used = run.recorded.as_ref()?.facts.strategy.clone().filter(|used| !used.servers.is_empty())?;
                let ranks = run.outcome.as_ref().ok()?.figures.ranks.iter().map(|rank| rank.place.host.clone());
                Some((used, ranks.collect::<BTreeSet<String>>()))
            })
        };
        let mut places = BTreeMap::new();
        for case in counted() {
            let Some((used, ranks)) = used(case) else { continue };
            match ServerPlace::from_servers(&used.servers, &ranks) {
                Some(place) => _ = places.insert(case.case, place),
                // The exchange within one host is not used for predictions.
                None if case.case.nodes == 1 => {}
                None => {
                    return Err(format!(
                        "in {} some servers share hosts with ranks and some do not: measure with all servers on one \
                         kind of host (--server-hosts)",
                        case.case
                    ));
                }
            }
        }
        let are_on_rank_hosts = places.last_key_value().is_none_or(|(_, largest)| largest.are_on_rank_hosts);
        let alike = || places.values().filter(|place| place.are_on_rank_hosts == are_on_rank_hosts);
        let hosts = alike().map(|place| place.hosts).max();
        let shared_hosts = hosts.filter(|_| alike().any(|place| place.is_shared));
        let sums_come_back = matches!(compression(group), GradientCompression::TwoBit { .. });
        let mut pushed_share = wire.bytes() as f64 / Wire::Fp32.bytes() as f64;
        if let Some((used, _)) = counted().rev().find_map(used) {
            let most = |bytes: &[Bytes]| bytes.iter().map(|bytes| bytes.0).max().unwrap_or(0) as f64;
            let (pushed, pulled) = (most(&used.sent_by_rank), most(&used.received_by_rank));
            if sums_come_back {
                pushed_share = TWO_BITS;
            } else if pushed > 0.0 && pulled > 0.0 {
                pushed_share = pushed / pulled;
            }
        }
        Ok(ServerSetup {
            number,
            requested: None,
            are_on_rank_hosts,
            shared_hosts,
            // On the CPU, the ranks of a host first sum in shared memory.
            every_rank_pushes: device != DeviceKind::Cpu,
            pushed_share,
            sums_come_back,
            places,
            placement: config.key_placement,
            // Arrays are recorded in backward order.
            arrays: arrays.into_iter().rev().collect(),
        })
    }

    /// Returns the number of servers in a measured case.
    pub fn measured_number(&self, case: Case) -> u32 {
        self.number.unwrap_or(case.nodes)
    }

    /// Returns the number of servers in a requested case; as measured for a single host.
    pub fn requested_number(&self, case: Case) -> u32 {
        match self.requested {
            Some(requested) if case.nodes > 1 => requested,
            _ => self.measured_number(case).min(self.most()),
        }
    }

    /// Returns the number of arrays, the upper limit for the number of servers.
    fn most(&self) -> u32 {
        u32::try_from(self.arrays.len()).unwrap_or(u32::MAX).max(1)
    }

    /// Returns the assumed number of hosts for this many servers, in a case that was not measured with them.
    pub fn assumed_hosts(&self, case: Case, number: u32) -> u32 {
        let most = if self.are_on_rank_hosts { case.nodes } else { number.min(self.most()) };
        self.shared_hosts.map_or(most, |hosts| hosts.min(most)).max(1)
    }

    /// Returns the servers of a case, at their measured or assumed location.
    pub fn servers_for(&self, case: Case, number: u32) -> Servers {
        let measured = self.places.get(&case).filter(|_| number == self.measured_number(case));
        let number = number.clamp(1, self.most());
        let parts = place(&self.arrays, number as usize, self.placement);
        let bytes: Vec<f64> = bytes_by_server(&parts, number as usize).iter().map(|bytes| bytes.0 as f64).collect();
        let all = bytes.iter().sum::<f64>();
        let pushers_per_host = if self.every_rank_pushes { case.gpus_per_node } else { 1 };
        let in_a_word = if self.sums_come_back { sums_a_word(case.nodes * pushers_per_host) } else { 1 };
        let of_server = |server: usize| parts.iter().filter(|part| part.server == server).count();
        Servers {
            rank_hosts: case.nodes,
            pushers_per_host,
            on_one_host: measured
                .map_or_else(|| number.div_ceil(self.assumed_hosts(case, number)), |place| place.on_one_host),
            is_rank_host: measured.map_or(self.are_on_rank_hosts, |place| place.are_on_rank_hosts),
            share: if all > 0.0 { bytes.iter().copied().fold(0.0, f64::max) / all } else { 1.0 / f64::from(number) },
            parts: parts.len(),
            parts_of_server: (0..number as usize).map(of_server).max().unwrap_or(0),
            pushed: self.pushed_share * all,
            pulled: all / f64::from(in_a_word),
        }
    }
}

impl ServerPlace {
    /// Returns the location relative to the hosts of the ranks; `None` if only some servers run on those hosts.
    fn from_servers(servers: &[ServerUse], rank_hosts: &BTreeSet<String>) -> Option<ServerPlace> {
        let mut on_host: BTreeMap<&String, u32> = BTreeMap::new();
        for server in servers {
            *on_host.entry(&server.host).or_default() += 1;
        }
        let of_ranks = on_host.keys().filter(|host| rank_hosts.contains(**host)).count();
        let are_on_rank_hosts = of_ranks > 0;
        let most = if are_on_rank_hosts { servers.len().min(rank_hosts.len()) } else { servers.len() };
        (of_ranks == 0 || of_ranks == on_host.len()).then(|| ServerPlace {
            hosts: on_host.len() as u32,
            on_one_host: on_host.values().copied().max().unwrap_or(0),
            are_on_rank_hosts,
            is_shared: on_host.len() < most,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_codes_grow_with_the_pushers() {
        let setup = |sums_come_back, every_rank_pushes| ServerSetup {
            number: Some(1),
            requested: None,
            are_on_rank_hosts: false,
            shared_hosts: None,
            every_rank_pushes,
            pushed_share: if sums_come_back { TWO_BITS } else { 1.0 },
            sums_come_back,
            places: BTreeMap::new(),
            placement: KeyPlacement::Balanced,
            arrays: vec![1600, 6400],
        };
        let moved = |setup: ServerSetup, case: &str| {
            let servers = setup.servers_for(case.parse().expect("a case"), 1);
            (servers.pushed, servers.pulled)
        };
        assert_eq!(moved(setup(false, false), "4n2g"), (32_000.0, 32_000.0));
        // A word holds ten sums over four ranks, or seven over eight.
        assert_eq!(moved(setup(true, false), "4n2g"), (2000.0, 3200.0));
        assert_eq!(moved(setup(true, true), "4n2g"), (2000.0, 32_000.0 / 7.0));
    }
}
