//! What a strategy and its servers are asked to do, and by which rule a sum of gradients changes the weights.

use ringmark_core::benchmark::compression::GradientCompression;
use ringmark_core::benchmark::exchange::{ExchangeConfig, Switch};
use ringmark_core::benchmark::kv_store::KvStoreConfig;
use ringmark_core::benchmark::train::TrainConfig;
use ringmark_core::dimension::Dtype;

use crate::ffi::torch::shim::SgdStep;

/// What is asked, the same on every rank and server.
#[derive(Debug, Clone)]
pub struct ExchangeRequest {
    /// Buckets, wire and backend.
    pub exchange: ExchangeConfig,
    /// Where gradients are summed and weights updated.
    pub kv_store: KvStoreConfig,
    /// Whether an exchange begins before the last gradient is ready.
    pub overlap: Switch,
    /// The code that gradients are exchanged by.
    pub compression: GradientCompression,
    /// First iterations that the figures leave out.
    pub warmup: u32,
    /// What becomes of the sums.
    pub rule: UpdateRule,
    /// Whether the ranks wait for each other in every iteration, whatever the kv-store: none goes on without another.
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

/// What becomes of a sum of gradients.
#[derive(Debug, Clone)]
pub enum UpdateRule {
    /// Training's update of the weights.
    Training(Box<TrainConfig>),
    /// `w -= rate x sum`: MXNet's `sgd` as its measure.py makes it, without momentum, decay and division by the batch.
    Sgd {
        /// The rate.
        learning_rate: f64,
    },
    /// The weights become the sum, as in MXNet's kv-stores without an optimizer.
    Assign,
}

/// How many ranks there are.
#[derive(Debug, Clone, Copy)]
pub struct RankCounts {
    /// In the job: the learning rate goes with them.
    pub all: u32,
    /// Those whose gradients are in a sum: one with `--backend none`, those of one push with asynchronous servers, else all.
    pub summed: u32,
    /// Those whose mean an update is a part of: with asynchronous servers all, of which each push is one part; one with
    /// `--backend none`.
    pub averaged: u32,
}

impl UpdateRule {
    /// Constants of update number `update`, from 1, by a sum; `None` where the weights become the sum.
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

    /// First scale of the loss, where there is one.
    pub fn loss_scale(&self) -> Option<f64> {
        match self {
            UpdateRule::Training(config) => (config.dtype == Dtype::Fp16).then_some(config.loss_scale),
            _ => None,
        }
    }

    /// Whether an update needs what earlier ones left.
    pub fn has_momentum(&self) -> bool {
        matches!(self, UpdateRule::Training(config) if config.momentum > 0.0)
    }

    /// Whether the weights become the sum.
    pub fn assigns(&self) -> bool {
        matches!(self, UpdateRule::Assign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn training_takes_the_mean_and_measure_py_the_sum() {
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
