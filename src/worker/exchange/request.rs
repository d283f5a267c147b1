//! Configuration of an exchange, and the rule by which a sum of gradients changes the weights.

use ringmark_core::benchmark::compression::GradientCompression;
use ringmark_core::benchmark::exchange::{ExchangeConfig, Switch};
use ringmark_core::benchmark::optimizer::{AdamConfig, Optimizer};
use ringmark_core::benchmark::strategy::StrategyConfig;
use ringmark_core::benchmark::train::TrainConfig;
use ringmark_core::dimension::Dtype;

use crate::ffi::torch::update::{AdamStep, SgdStep};

/// Requested exchange, the same on every rank and server.
#[derive(Debug, Clone)]
pub struct ExchangeRequest {
    /// Buckets, wire and backend.
    pub exchange: ExchangeConfig,
    /// Location of the sums and of the update.
    pub strategy: StrategyConfig,
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
            strategy: config.strategy,
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
    /// The same step with every sum, not divided by the ranks, as in MXNet's measure.py. Its states.
    Fixed(UpdateStep, &'static [&'static str]),
    /// The weights become the sum, as in MXNet's kv-stores without an optimizer.
    Assign,
}

/// Constants of one update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum UpdateStep {
    Sgd(SgdStep),
    Adam(AdamStep),
}

/// Constants of an optimizer, as they apply to the mean of the gradients.
#[derive(Debug, Clone, Copy)]
pub struct Constants {
    pub learning_rate: f64,
    /// Momentum of sgd and nag.
    pub momentum: f64,
    /// Constants of adam and adamw.
    pub adam: AdamConfig,
    pub weight_decay: f64,
}

impl UpdateStep {
    /// Returns the step with sums of gradients: see [`optimizer`](crate::exchange::optimizer). Adam's step does not
    /// depend on the size of the gradients, so the rate for a sum over some of the ranks is scaled by their share.
    pub fn new(optimizer: Optimizer, constants: Constants, ranks: RankCounts) -> UpdateStep {
        let Constants { learning_rate, momentum, adam: AdamConfig { beta1, beta2, epsilon }, weight_decay } = constants;
        let (summed, averaged) = (f64::from(ranks.summed), f64::from(ranks.averaged));
        let adam = |is_decoupled| AdamStep {
            learning_rate: learning_rate * summed / averaged,
            betas: [beta1, beta2],
            epsilon: epsilon * summed,
            weight_decay: weight_decay * if is_decoupled { 1.0 } else { summed },
            is_decoupled,
        };
        let sgd = |is_nesterov| SgdStep {
            learning_rate: learning_rate / averaged,
            momentum,
            is_nesterov,
            weight_decay: weight_decay * summed,
        };
        match optimizer {
            Optimizer::Sgd => UpdateStep::Sgd(sgd(false)),
            Optimizer::Nag => UpdateStep::Sgd(sgd(true)),
            Optimizer::Adam => UpdateStep::Adam(adam(false)),
            Optimizer::AdamW => UpdateStep::Adam(adam(true)),
        }
    }

    /// Returns the step for weights that do not decay.
    pub fn without_decay(self) -> UpdateStep {
        match self {
            UpdateStep::Sgd(step) => UpdateStep::Sgd(SgdStep { weight_decay: 0.0, ..step }),
            UpdateStep::Adam(step) => UpdateStep::Adam(AdamStep { weight_decay: 0.0, ..step }),
        }
    }

    /// Returns true if the update depends on the number of updates before it.
    pub fn is_counted(self) -> bool {
        matches!(self, UpdateStep::Adam(_))
    }
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

impl RankCounts {
    /// Counts of a sum that is applied as it is.
    pub const UNDIVIDED: RankCounts = RankCounts { all: 1, summed: 1, averaged: 1 };
}

impl UpdateRule {
    /// Returns the constants of update number `update`, counted from 1; `None` if the weights become the sum.
    pub fn step(&self, update: u32, ranks: RankCounts) -> Option<UpdateStep> {
        match self {
            UpdateRule::Training(config) => {
                let constants = Constants {
                    learning_rate: config.learning_rate_at(update, ranks.all),
                    momentum: config.momentum,
                    adam: config.adam,
                    weight_decay: config.weight_decay,
                };
                Some(UpdateStep::new(config.optimizer, constants, ranks))
            }
            UpdateRule::Fixed(step, _) => Some(*step),
            UpdateRule::Assign => None,
        }
    }

    /// Returns the maximum norm of the mean gradient, if it is limited.
    pub fn clip_norm(&self) -> Option<f64> {
        match self {
            UpdateRule::Training(config) => config.clip_norm,
            _ => None,
        }
    }

    /// Returns true if a parameter of this number of dimensions decays.
    pub fn decays(&self, dimensions: usize) -> bool {
        match self {
            UpdateRule::Training(config) => config.decayed_weights.is_all() || dimensions >= 2,
            _ => true,
        }
    }

    /// Returns the initial loss scale, if the rule has one.
    pub fn loss_scale(&self) -> Option<f64> {
        match self {
            UpdateRule::Training(config) => (config.dtype == Dtype::Fp16).then_some(config.loss_scale),
            _ => None,
        }
    }

    /// Returns the names of the arrays that an update leaves for the next one.
    pub fn state_names(&self) -> &'static [&'static str] {
        match self {
            UpdateRule::Training(config) => config.optimizer.state_names(config.momentum),
            UpdateRule::Fixed(_, names) => names,
            UpdateRule::Assign => &[],
        }
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
        let constants = |rule: &UpdateRule, summed| match rule
            .step(7, RankCounts { all: 4, summed, averaged: 4 })
            .expect("an update")
        {
            UpdateStep::Sgd(step) => (step.learning_rate, step.weight_decay),
            UpdateStep::Adam(step) => panic!("{step:?}"),
        };
        assert_eq!(constants(&rule, 4), (rate, 4.0 * decay));
        assert_eq!(constants(&rule, 1), (rate, decay), "an asynchronous push");
        let fixed = SgdStep { learning_rate: 0.01, momentum: 0.0, is_nesterov: false, weight_decay: 0.0 };
        assert_eq!(constants(&UpdateRule::Fixed(UpdateStep::Sgd(fixed), &[]), 4), (0.01, 0.0));
        assert!(UpdateRule::Assign.step(1, RankCounts { all: 1, summed: 1, averaged: 1 }).is_none());
    }

    #[test]
    fn adam_scales_the_constants_that_the_sum_scales() {
        let constants =
            Constants { learning_rate: 2.0, momentum: 0.0, adam: AdamConfig::default(), weight_decay: 0.25 };
        let step =
            |optimizer, summed| match UpdateStep::new(optimizer, constants, RankCounts { all: 4, summed, averaged: 4 })
            {
                UpdateStep::Adam(step) => (step.learning_rate, step.epsilon / 1e-8, step.weight_decay),
                UpdateStep::Sgd(step) => panic!("{step:?}"),
            };
        assert_eq!(step(Optimizer::Adam, 4), (2.0, 4.0, 1.0));
        assert_eq!(step(Optimizer::AdamW, 4), (2.0, 4.0, 0.25));
        assert_eq!(step(Optimizer::AdamW, 1), (0.5, 1.0, 0.25), "an asynchronous push");
    }
}
