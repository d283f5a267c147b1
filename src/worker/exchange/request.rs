//! Configuration of an exchange, and the rule by which a sum of gradients changes the weights.

use ringmark_core::benchmark::compression::GradientCompression;
use ringmark_core::benchmark::exchange::{ExchangeConfig, Switch};
use ringmark_core::benchmark::kv_store::KvStoreConfig;
use ringmark_core::benchmark::train::TrainConfig;
use ringmark_core::dimension::Dtype;

use crate::ffi::torch::shim::SgdStep;

/// Requested exchange, the same on every rank and server.
#[derive(Debug, Clone)]
pub struct ExchangeRequest {
    /// Buckets, wire and backend.
    pub exchange: ExchangeConfig,
    /// Location of the sums and of the update.
    pub kv_store: KvStoreConfig,
    pub overlap: Switch,
    pub compression: GradientCompression,
    /// Initial iterations that are not measured.
    pub warmup: u32,
    pub rule: UpdateRule,
    /// True if the ranks wait for each other in every iteration, even with an asynchronous kv-store: a failed rank then
    /// ends the job.
    pub ranks_meet: bool,
}

impl From<&TrainConfig> for ExchangeRequest {
    fn from(config: &TrainConfig) -> ExchangeRequest {
        ExchangeRequest {
            exchange: config.exchange,
            kv_store: config.kv_store,
            overlap: config.overlap,
            compression: config.gradient_compression,
            warmup: config.warmup,
            rule: UpdateRule::Training(Box::new(config.clone())),
            ranks_meet: false,
        }
    }
}

#[derive(Debug, Clone)]
pub enum UpdateRule {
    Training(Box<TrainConfig>),
    /// `w -= rate x sum`: MXNet's `sgd` as in its measure.py, without momentum, weight decay and division by the batch
    /// size.
    Sgd {
        learning_rate: f64,
    },
    /// The weights become the sum, as in MXNet's kv-stores without an optimizer.
    Assign,
}

/// Numbers of ranks that determine an update.
#[derive(Debug, Clone, Copy)]
pub struct RankCounts {
    /// Ranks of the job; the learning rate depends on them.
    pub all: u32,
    /// Ranks whose gradients are in one sum: one with `--backend none`, those of one push with asynchronous servers,
    /// otherwise all.
    pub summed: u32,
    /// Divisor of the sum: all ranks, even with asynchronous servers, where a push is a part of the mean; one with
    /// `--backend none`.
    pub averaged: u32,
}

impl UpdateRule {
    /// Returns the constants of update number `update`, counted from 1; `None` if the weights become the sum.
    pub fn step(&self, update: u32, ranks: RankCounts) -> Option<SgdStep> {
        match self {
            UpdateRule::Training(config) => Some(SgdStep {
                learning_rate: config.learning_rate_at(update, ranks.all) / f64::from(ranks.averaged),
                momentum: config.momentum,
                weight_decay: config.weight_decay * f64::from(ranks.summed),
            }),
            UpdateRule::Sgd { learning_rate } => {
                Some(SgdStep { learning_rate: *learning_rate, momentum: 0.0, weight_decay: 0.0 })
            }
            UpdateRule::Assign => None,
        }
    }

    /// Returns the initial loss scale, if the rule has one.
    pub fn loss_scale(&self) -> Option<f64> {
        match self {
            UpdateRule::Training(config) => (config.dtype == Dtype::Fp16).then_some(config.loss_scale),
            _ => None,
        }
    }

    /// Returns true if an update depends on earlier ones.
    pub fn has_momentum(&self) -> bool {
        matches!(self, UpdateRule::Training(config) if config.momentum > 0.0)
    }

    /// Returns true if the weights become the sum.
    pub fn assigns(&self) -> bool {
        matches!(self, UpdateRule::Assign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn training_uses_the_mean_and_measure_py_the_sum() {
        let training = TrainConfig { learning_rate_warmup: Some(0), ..TrainConfig::default() };
        let (rate, decay) = (training.learning_rate, training.weight_decay);
        let rule = UpdateRule::Training(Box::new(training));
        let constants = |rule: &UpdateRule, summed| {
            let step = rule.step(7, RankCounts { all: 4, summed, averaged: 4 }).expect("an update");
            (step.learning_rate, step.weight_decay)
        };
        assert_eq!(constants(&rule, 4), (rate, 4.0 * decay));
        assert_eq!(constants(&rule, 1), (rate, decay), "an asynchronous push");
        assert_eq!(constants(&UpdateRule::Sgd { learning_rate: 0.01 }, 4), (0.01, 0.0));
        assert!(UpdateRule::Assign.step(1, RankCounts { all: 1, summed: 1, averaged: 1 }).is_none());
    }
}
