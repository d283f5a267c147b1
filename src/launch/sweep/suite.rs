//! Suites: defaults of a sweep with several networks. PyTorch's DDP suite (`benchmarks/distributed/ddp`) also has cases
//! of its own, and baselines without communication.

use std::collections::BTreeMap;

use anyhow::{bail, ensure};
use ringmark_core::benchmark::SweepProfile;
use ringmark_core::benchmark::exchange::BackendChoice;
use ringmark_core::benchmark::optimizer::{AdamConfig, DecayedWeights, Optimizer};
use ringmark_core::benchmark::train::TrainConfig;
use ringmark_core::dimension::{Case, DeviceKind, Dtype, Model, Strategy};
use ringmark_core::keyword_enum;
use ringmark_core::options::keyword_enum::KeywordEnum;

use crate::launch::cluster::hosts::Hosts;

keyword_enum!(
    /// Networks and settings of a sweep.
    Suite {
        /// PyTorch's DDP benchmark.
        Ddp = "ddp",
        /// Language models.
        Llm = "llm",
    }
);

/// GPUs per machine in PyTorch's suite.
const MAX_GPUS_PER_HOST: u32 = 8;

impl Suite {
    /// Returns the networks. The weights and optimizer states of a billion parameters do not fit into the memory of
    /// most hosts once per core, so the language models on CPUs are GPT-2 alone.
    pub fn models(self, device: DeviceKind) -> Vec<Model> {
        match (self, device) {
            (Suite::Ddp, _) => vec![Model::Resnet50V1b, Model::Resnet101, Model::Resnext50, Model::Resnext101],
            (Suite::Llm, DeviceKind::Cuda) => vec![Model::Gpt2Small, Model::Llama1b],
            (Suite::Llm, DeviceKind::Cpu) => vec![Model::Gpt2Small],
        }
    }

    /// Returns the strategies if the user gave none, `one` if the suite does not determine them. On GPUs, those that people
    /// choose between for language models; one for which there is not enough memory is a result, too.
    pub fn strategies(self, device: DeviceKind, one: Strategy) -> Vec<Strategy> {
        match (self, device) {
            (Suite::Llm, DeviceKind::Cuda) => vec![Strategy::AllReduce, Strategy::Zero1, Strategy::Fsdp],
            _ => vec![one],
        }
    }

    /// Returns the defaults, based on those of the profile. A sweep to resume keeps the batch size of its `original`
    /// options. The recipe of the language models is nanoGPT's.
    pub fn defaults(
        self,
        profile: SweepProfile,
        device: DeviceKind,
        defaults: TrainConfig,
        original: &BTreeMap<String, String>,
    ) -> TrainConfig {
        match self {
            Suite::Ddp if profile == SweepProfile::Dlperf && !original.contains_key("--batch-size") => {
                TrainConfig { batch_size: 32, ..defaults }
            }
            Suite::Ddp => defaults,
            Suite::Llm => TrainConfig {
                dtype: if device == DeviceKind::Cuda { Dtype::Bf16 } else { defaults.dtype },
                optimizer: Optimizer::AdamW,
                learning_rate: 6e-4,
                adam: AdamConfig { beta2: 0.95, ..AdamConfig::default() },
                weight_decay: 0.1,
                decayed_weights: DecayedWeights::Matrices,
                clip_norm: Some(1.0),
                ..defaults
            },
        }
    }
}

/// Rejects a strategy that the recipe of `suite` does not fit.
pub fn check_strategies(suite: Option<Suite>, strategies: &[Strategy]) -> anyhow::Result<()> {
    let unfit = strategies.iter().find(|strategy| suite == Some(Suite::Llm) && strategy.has_servers());
    unfit.map_or(Ok(()), |strategy| {
        let fit = Strategy::alternatives(|strategy| !strategy.has_servers());
        bail!(
            "--suite llm limits the norm of all gradients, which --strategy {strategy} does not support, because its \
             servers update each part of an array alone: use --strategy {fit}, or --model without --suite"
        )
    })
}

/// Returns the groups of PyTorch's suite that fit: 1, 2 and 4 ranks of the first host, then all of its ranks (at most
/// 8) on 1, 2, .. hosts. If later hosts have fewer ranks, one more case uses all hosts.
pub fn default_cases(hosts: &Hosts, _: DeviceKind) -> Vec<Case> {
    let full = hosts.all().first().map_or(1, |host| host.slots.min(MAX_GPUS_PER_HOST));
    let small = [1, 2, 4].map(|gpus_per_node| Case { nodes: 1, gpus_per_node });
    let large = (1..).zip(hosts.all()).map(|(nodes, _)| Case { nodes, gpus_per_node: full });
    let mut cases: Vec<Case> = small.into_iter().chain(large).filter(|case| hosts.can_run(*case)).collect();
    cases.dedup();
    if cases.iter().all(|case| hosts.for_case(*case).len() < hosts.all().len()) {
        cases.push(hosts.full_case());
    }
    cases
}

/// Fails for options that leave nothing to compare.
pub fn check(train: &TrainConfig) -> anyhow::Result<()> {
    let has_exchange = train.exchange.backend != BackendChoice::None;
    ensure!(has_exchange, "--suite ddp already compares with --backend none: omit --backend none");
    ensure!(train.work_load.is_none(), "--suite ddp gives all ranks the same work, as PyTorch does: omit --work-load");
    Ok(())
}

/// Returns the baseline without communication for a run of `case`; `None` if it would be the same run: a single rank
/// without an explicit backend exchanges nothing anyway.
pub fn baseline(case: Case, train: &TrainConfig) -> Option<TrainConfig> {
    let is_alone = case.ranks() == 1 && train.exchange.backend == BackendChoice::Auto;
    // Only the run that exchanges gradients saves its weights.
    (!is_alone).then(|| TrainConfig { save: None, ..train.without_exchange() })
}

#[cfg(test)]
mod tests {
    use ringmark_core::benchmark::exchange::ExchangeConfig;

    use super::*;

    fn cases(hosts: &str) -> String {
        let cases = default_cases(&Hosts::parse_list(hosts).expect("a list"), DeviceKind::Cuda);
        cases.iter().map(Case::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn default_cases_follow_pytorch_within_the_hosts() {
        assert_eq!(cases("a:8,b:8,c:8"), "1n1g 1n2g 1n4g 1n8g 2n8g 3n8g");
        assert_eq!(cases("a:1"), "1n1g");
        assert_eq!(cases("localhost:2"), "1n1g 1n2g");
        assert_eq!(cases("localhost:64"), "1n1g 1n2g 1n4g 1n8g");
        assert_eq!(cases("a:4,b:4"), "1n1g 1n2g 1n4g 2n4g");
        assert_eq!(cases("a:8,b:8,c:4"), "1n1g 1n2g 1n4g 1n8g 2n8g 3n4g");
        assert_eq!(cases("a:1,b:1"), "1n1g 2n1g");
    }

    #[test]
    fn single_rank_has_a_baseline_only_with_a_backend() {
        let auto = TrainConfig { save: Some("weights".into()), ..TrainConfig::default() };
        let two = Case { nodes: 1, gpus_per_node: 2 };
        assert_eq!(baseline(Case::SINGLE, &auto), None);
        let exchange = ExchangeConfig { backend: BackendChoice::None, ..auto.exchange };
        let none = TrainConfig { exchange, ..TrainConfig::default() };
        assert_eq!(baseline(two, &auto), Some(none.clone()), "and saves nothing");
        let exchange = ExchangeConfig { backend: BackendChoice::Mpi, ..auto.exchange };
        assert_eq!(baseline(Case::SINGLE, &TrainConfig { exchange, ..auto.clone() }), Some(none.clone()));
        assert!(check(&auto).is_ok() && check(&none).is_err());
    }
}
