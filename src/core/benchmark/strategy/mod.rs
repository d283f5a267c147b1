//! The [`Strategy`] of a run and its servers: configuration, options, and statistics in a record. [`placement`] assigns
//! arrays to servers.

pub mod gathers;
pub mod placement;

use anyhow::{bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::compression::GradientCompression;
use crate::benchmark::exchange::{BackendChoice, ExchangeConfig};
use crate::benchmark::strategy::gathers::GatherUse;
use crate::config_options;
use crate::dimension::{Bytes, Case, Dtype, KeyPlacement, Model, Strategy, Wire};
use crate::options::keyword_enum::KeywordEnum;

/// Arrays of all servers of a job.
#[derive(Debug, Clone, Copy)]
pub struct ServerArrays {
    /// Number of weights.
    pub weights: u64,
    /// States of the optimizer, each as long as the weights.
    pub states: usize,
    /// Type of the pushed gradients.
    pub wire: Wire,
    /// Compression of the pushed gradients.
    pub compression: GradientCompression,
}

/// Returns the minimum memory of servers that together hold `weights` weights and buffer `pushes` bytes from the
/// workers: weights, the optimizer's states, sums and the copy for the workers, all fp32.
pub fn server_memory(weights: u64, states: usize, pushes: Bytes) -> Bytes {
    Bytes((3 + states as u64) * Wire::Fp32.bytes() * weights + pushes.0)
}

/// Rejects cases of several hosts if one of the strategies is limited to one.
pub fn check_cases(strategies: &[Strategy], cases: &[Case]) -> anyhow::Result<()> {
    if let Some(case) = cases.iter().find(|case| strategies.contains(&Strategy::Local) && case.nodes > 1) {
        bail!(
            "--strategy local works on one host only, but case {case} has {}: use --strategy zero1 \
             or dist_sync, or --cases with one host",
            case.nodes
        );
    }
    Ok(())
}

config_options! {
    /// The strategy and its servers.
    #[derive(Copy)]
    StrategyConfig {
        /// Strategy that sums gradients and updates weights.
        #[serde(default = "Strategy::all_reduce", alias = "kv_store")]
        strategy: Strategy = Strategy::AllReduce => option("strategy", "NAME",
            "Strategy, such as all-reduce, zero2, fsdp: how gradients are summed and weights updated. \
             With all-reduce, every rank makes the same update; zero1, zero2 and fsdp are stages 1 to 3 of ZeRO, and \
             hsdp is stage 3 within each host; the others are kv-stores of MXNet")
            .aliases(&["kv-store"]).names_in_bandwidth(None, &["kvstore", "kv-store"]).set_in_baseline(),
        /// Server processes in addition to the ranks; only with `dist_*`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        servers: Option<u32> = None => option("servers", "N",
            "Server processes of --strategy dist_*, in addition to the ranks: the last N that mpirun starts")
            .range(1u32..=65_536).default_of_launcher("one per host of the case").aliases(&["num-servers"]).for_servers(),
        /// Placement of arrays on servers.
        #[serde(default = "KeyPlacement::balanced", skip_serializing_if = "KeyPlacement::is_balanced")]
        key_placement: KeyPlacement = KeyPlacement::Balanced => option("key-placement", "NAME",
            "Assignment of arrays to servers: balanced by size, or MXNet's hash").for_servers(),
    }
}

impl StrategyConfig {
    /// Returns the number of server processes in the job.
    pub fn server_ranks(&self) -> u32 {
        if self.strategy.has_servers() { self.servers.unwrap_or_default() } else { 0 }
    }

    /// Returns true if servers send back sums of codes instead of weights: the sums of one step's pushes of all
    /// workers.
    pub fn sends_sums(&self, compression: GradientCompression) -> bool {
        matches!(compression, GradientCompression::TwoBit { .. }) && !self.strategy.is_asynchronous()
    }

    /// Returns true if the other ranks of a job of `case` continue after a rank fails, which requires that no other
    /// rank pushes together with it.
    pub fn may_lose_ranks(&self, case: Case) -> bool {
        self.strategy.is_asynchronous() && (self.strategy == Strategy::DistAsync || case.gpus_per_node == 1)
    }

    /// Returns the minimum memory of one server in a job of `case` if each holds an equal share of `weights`; 0 without
    /// servers. On GPUs every rank pushes separately, and a server needs more.
    pub fn memory_of_server(
        &self,
        case: Case,
        ServerArrays { weights, states, wire, compression }: ServerArrays,
    ) -> Bytes {
        let pushers = if self.strategy == Strategy::DistAsync { case.ranks() } else { case.nodes };
        // Compressed pushes are small.
        let push = if compression.is_none() { wire.bytes() * weights } else { 0 };
        let all = match self.sends_sums(compression) {
            true => Bytes(Wire::Fp32.bytes() * weights),
            false => server_memory(weights, states, Bytes(u64::from(pushers) * push)),
        };
        Bytes(all.0.checked_div(u64::from(self.server_ranks())).unwrap_or_default())
    }

    /// Returns the line of the log; `None` for `all-reduce`.
    pub fn line(&self) -> Option<String> {
        let StrategyConfig { strategy, key_placement, .. } = self;
        match self.server_ranks() {
            0 if *strategy == Strategy::AllReduce => None,
            0 => Some(format!("strategy {strategy}")),
            servers => Some(format!("strategy {strategy}: servers {servers}, arrays placed by {key_placement}")),
        }
    }

    /// Sets one server per host of the case if the strategy has servers and their number is not given.
    pub fn for_case(self, case: Case) -> StrategyConfig {
        let servers = self.strategy.has_servers().then(|| self.servers.unwrap_or(case.nodes));
        StrategyConfig { servers, ..self }
    }

    /// Returns a copy with this strategy, one of several in a sweep; only `dist_*` keeps the server options.
    pub fn for_axis(self, strategy: Strategy) -> StrategyConfig {
        match strategy.has_servers() {
            true => StrategyConfig { strategy, ..self },
            false => StrategyConfig { strategy, ..StrategyConfig::default() },
        }
    }

    /// Rejects a strategy with servers if their number is not given.
    pub fn check_servers(&self) -> anyhow::Result<()> {
        ensure!(
            !self.strategy.has_servers() || self.servers.is_some(),
            "--strategy {} needs --servers N: the last N processes that mpirun starts are servers, the others ranks",
            self.strategy
        );
        Ok(())
    }

    /// Rejects more servers than the network has arrays.
    pub fn check_model(&self, model: Model) -> anyhow::Result<()> {
        match self.server_ranks() {
            0 => Ok(()),
            servers => placement::check_servers(servers as usize, model.facts().arrays as usize),
        }
    }

    /// Rejects incompatible options.
    pub fn check(&self, exchange: &ExchangeConfig, dtype: Dtype, autotune: bool) -> anyhow::Result<()> {
        let StrategyConfig { strategy, servers, key_placement } = self;
        if !strategy.has_servers() {
            ensure!(
                servers.is_none(),
                "--servers {} does not apply to --strategy {strategy}: omit --servers, or use --strategy {}",
                servers.unwrap_or_default(),
                Strategy::alternatives(Strategy::has_servers)
            );
            ensure!(
                *key_placement == KeyPlacement::Balanced,
                "--key-placement {key_placement} needs servers, but --strategy {strategy} has none: omit \
                 --key-placement, or use --strategy dist_sync"
            );
        }
        if *strategy == Strategy::AllReduce {
            return Ok(());
        }
        if let (true, Some(hierarchical)) = (strategy.has_servers(), exchange.hierarchical) {
            bail!(
                "--hierarchical {hierarchical} does not apply to --strategy {strategy}, which sums on servers: omit \
                 --hierarchical (dist_sync and dist_device_* sum on each host before they push)"
            );
        }
        ensure!(
            exchange.backend != BackendChoice::None,
            "--strategy {strategy} conflicts with --backend none, which exchanges nothing: use only one of them"
        );
        let can_skip_updates = |strategy: Strategy| !strategy.has_servers() && strategy != Strategy::Local;
        ensure!(
            dtype != Dtype::Fp16 || can_skip_updates(*strategy),
            "--dtype fp16 is not supported with --strategy {strategy}, which updates parts of the weights apart from the \
             loss scaler: use --dtype bf16, or --strategy {}",
            Strategy::alternatives(can_skip_updates)
        );
        ensure!(!autotune, "--autotune needs --strategy all-reduce, but --strategy is {strategy}: omit --autotune");
        Ok(())
    }
}

/// Statistics of a strategy other than `all-reduce`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct StrategyUse {
    /// fp32 bytes of weights that each rank updates; empty if servers do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owned: Vec<Bytes>,
    /// Statistics of every server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerUse>,
    /// Bytes that each rank sent to servers per step, on average, headers included; 0 for a rank whose pushes another
    /// rank of its host sends. Without servers: bytes that each rank sends to other ranks in the last step, if every
    /// collective sends directly from source to destination; absent in records before `fsdp`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sent_by_rank: Vec<Bytes>,
    /// Bytes that each rank received per step, likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub received_by_rank: Vec<Bytes>,
    /// Gathers of sharded weights, by phase and bucket; empty with other strategies, and in older records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gathers: Vec<GatherUse>,
    /// Staleness of the weights, with an asynchronous strategy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staleness: Option<Staleness>,
    /// Ranks that exited before the others, which continued without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<LostRank>,
}

impl StrategyUse {
    /// Returns the bytes of the server or rank that holds most, divided by the mean; 1 is even. `None` if nothing is
    /// held.
    pub fn imbalance(&self) -> Option<f64> {
        let held = self.owned.iter().copied().chain(self.servers.iter().map(|server| server.weights));
        let held: Vec<f64> = held.map(|bytes| bytes.0 as f64).collect();
        let mean = held.iter().sum::<f64>() / held.len() as f64;
        (mean > 0.0).then(|| held.iter().copied().fold(0.0, f64::max) / mean)
    }
}

/// Statistics of one server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerUse {
    /// Host name.
    pub host: String,
    /// Number of arrays, or slices of them, on the server.
    pub parts: u32,
    /// fp32 bytes of the server's weights.
    pub weights: Bytes,
    /// Bytes received per step, on average, headers included.
    pub received: Bytes,
    /// Bytes sent per step, on average, headers included.
    pub sent: Bytes,
}

/// Staleness of weights: updates of an array by other workers between a worker's pull of it and its next push, over all
/// pushes after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Staleness {
    /// Number of pushes counted.
    pub pushes: u64,
    /// Median staleness, in updates.
    pub median: u64,
    /// 95th percentile of the staleness.
    pub p95: u64,
    /// Maximum staleness.
    pub maximum: u64,
}

impl Staleness {
    /// Computes the staleness from a histogram: `counts[s]` pushes had staleness `s`. Returns `None` if there were no
    /// pushes.
    pub fn from_counts(counts: &[u64]) -> Option<Staleness> {
        let pushes: u64 = counts.iter().sum();
        let at = |share: f64| {
            let wanted = (share * pushes as f64).ceil().max(1.0) as u64;
            let mut seen = 0;
            let reached = |count: &u64| {
                seen += count;
                seen >= wanted
            };
            counts.iter().position(reached).map(|staleness| staleness as u64)
        };
        Some(Staleness {
            pushes,
            median: at(0.5)?,
            p95: at(0.95)?,
            maximum: counts.iter().rposition(|count| *count > 0)? as u64,
        })
    }
}

/// A rank that exited before the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostRank {
    /// Number of the rank.
    pub rank: u32,
    /// Host name.
    pub host: String,
    /// Last iteration for which the rank pushed anything; 0 if there is none.
    pub iteration: u32,
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::benchmark::exchange::Switch;

    #[test]
    fn server_memory_is_weights_and_pushes() {
        let of = |strategy, wire, code: &str| {
            let code = if code.is_empty() { GradientCompression::None } else { code.parse().expect("a code") };
            let config = StrategyConfig { strategy, servers: Some(2), ..StrategyConfig::default() };
            let arrays = ServerArrays { weights: 1000, states: 1, wire, compression: code };
            config.memory_of_server("3n4g".parse().expect("a case"), arrays).0
        };
        // Weights, momenta, sums and the copy, plus one push per host, or per rank if ranks do not wait for each other.
        assert_eq!(of(Strategy::DistSync, Wire::Fp32, ""), (4 * 4 + 3 * 4) * 1000 / 2);
        assert_eq!(of(Strategy::DistSync, Wire::Bf16, ""), (4 * 4 + 3 * 2) * 1000 / 2);
        assert_eq!(of(Strategy::DistAsync, Wire::Fp32, ""), (4 * 4 + 12 * 4) * 1000 / 2);
        // Codes are small; if servers return sums, only the sums count.
        assert_eq!(of(Strategy::DistSync, Wire::Fp32, "topk:0.01"), 4 * 4 * 1000 / 2);
        assert_eq!(of(Strategy::DistAsync, Wire::Fp32, "2bit"), 4 * 4 * 1000 / 2);
        assert_eq!(of(Strategy::DistSync, Wire::Fp32, "2bit"), 4 * 1000 / 2);
        assert_eq!(of(Strategy::AllReduce, Wire::Fp32, ""), 0);
    }

    #[test]
    fn rank_loss_is_survivable_with_one_rank_per_push() {
        let of = |strategy, case: &str| {
            StrategyConfig { strategy, ..StrategyConfig::default() }.may_lose_ranks(case.parse().expect("a case"))
        };
        assert!(of(Strategy::DistAsync, "2n4g") && of(Strategy::DistDeviceAsync, "4n1g"));
        assert!(
            !of(Strategy::DistDeviceAsync, "2n4g")
                && !of(Strategy::DistSync, "2n1g")
                && !of(Strategy::AllReduce, "2n1g")
        );
    }

    #[test]
    fn staleness_is_computed_from_counts() {
        // 10 pushes of 0, 8 of 1, 1 of 2, 1 of 7.
        let staleness = Staleness::from_counts(&[10, 8, 1, 0, 0, 0, 0, 1, 0]).expect("pushes");
        assert_eq!(staleness, Staleness { pushes: 20, median: 0, p95: 2, maximum: 7 });
        assert_eq!(Staleness::from_counts(&[0, 0]), None);
        assert_eq!(Staleness::from_counts(&[0, 1]).expect("one").median, 1);
    }

    #[test]
    fn imbalance_is_largest_over_mean() {
        let server = |weights| ServerUse {
            host: String::new(),
            parts: 1,
            weights: Bytes(weights),
            received: Bytes(0),
            sent: Bytes(0),
        };
        let of = |weights: &[u64]| StrategyUse {
            servers: weights.iter().map(|bytes| server(*bytes)).collect(),
            ..StrategyUse::default()
        };
        assert_eq!(of(&[30, 10]).imbalance(), Some(1.5));
        assert_eq!(of(&[]).imbalance(), None);
    }

    #[test]
    fn conflicting_strategy_options_are_rejected() {
        type Change = fn(&mut StrategyConfig, &mut ExchangeConfig, &mut Dtype);
        let changes: [Change; 5] = [
            |kv, _, _| kv.servers = Some(2),
            |kv, _, _| kv.key_placement = KeyPlacement::Hash,
            |kv, exchange, _| (kv.strategy, exchange.backend) = (Strategy::Device, BackendChoice::None),
            |kv, _, dtype| (kv.strategy, *dtype) = (Strategy::DistSync, Dtype::Fp16),
            |kv, exchange, _| (kv.strategy, exchange.hierarchical) = (Strategy::DistSync, Some(Switch::Off)),
        ];
        let refused = |change: Change| {
            let (mut kv, mut exchange, mut dtype) = (StrategyConfig::default(), ExchangeConfig::default(), Dtype::Fp32);
            change(&mut kv, &mut exchange, &mut dtype);
            kv.check(&exchange, dtype, false).expect_err("refused").to_string()
        };
        expect![[r#"
            --servers 2 does not apply to --strategy all-reduce: omit --servers, or use --strategy dist_sync, dist_device_sync, dist_async or dist_device_async
            --key-placement hash needs servers, but --strategy all-reduce has none: omit --key-placement, or use --strategy dist_sync
            --strategy device conflicts with --backend none, which exchanges nothing: use only one of them
            --dtype fp16 is not supported with --strategy dist_sync, which updates parts of the weights apart from the loss scaler: use --dtype bf16, or --strategy all-reduce, zero1, zero2, fsdp, hsdp, device or nccl
            --hierarchical off does not apply to --strategy dist_sync, which sums on servers: omit --hierarchical (dist_sync and dist_device_* sum on each host before they push)"#]].assert_eq(&changes.map(refused).join("\n"));
        let cases = ["1n4g", "2n4g"].map(|case| case.parse().expect("a case"));
        let several = check_cases(&[Strategy::AllReduce, Strategy::Local], &cases).expect_err("two hosts").to_string();
        expect![
            "--strategy local works on one host only, but case 2n4g has 2: use --strategy zero1 \
                 or dist_sync, or --cases with one host"
        ]
        .assert_eq(&several);
        check_cases(&[Strategy::Local], &cases[..1])
            .and_then(|()| check_cases(&[Strategy::AllReduce], &cases))
            .expect("they can");
        StrategyConfig::default().check(&ExchangeConfig::default(), Dtype::Fp16, true).expect("all-reduce takes all");
    }
}
