//! The rule by which gradients change the weights, and its constants.

use crate::options::keyword_enum::KeywordEnum;
use crate::{config_options, keyword_enum};

keyword_enum!(
    /// Weight update rule, named as in MXNet.
    Optimizer {
        /// Gradient descent, with classical momentum if it is not 0.
        Sgd = "sgd",
        /// Gradient descent with Nesterov momentum, PyTorch's `nesterov=True`.
        Nag = "nag",
        /// Adam, with an L2 penalty in the gradient.
        Adam = "adam",
        /// Adam with decoupled weight decay.
        AdamW = "adamw",
    }

    /// Rule of the weight update with a network's summed gradients inside the measured time, with measure.py's constants or
    /// PyTorch's; without one, `none`, every rank gets the sums.
    #[schemars(with = "String", extend("enum" = OptimizerChoice::KEYWORDS))]
    OptimizerChoice {
        /// No update.
        None = "none" | "None",
        ..
    }
);

keyword_enum!(
    /// Weights that decay.
    #[derive(Default)]
    DecayedWeights {
        /// All parameters.
        // In records that predate the option.
        #[default]
        All = "all",
        /// Parameters with at least two dimensions: no biases and no scales of normalization.
        Matrices = "matrices",
    }
);

impl DecayedWeights {
    /// Returns true if all parameters decay.
    pub fn is_all(&self) -> bool {
        *self == DecayedWeights::All
    }
}

impl Default for Optimizer {
    /// Returns the rule of DLPerf, and of records that predate this option.
    fn default() -> Optimizer {
        Optimizer::Nag
    }
}

impl Optimizer {
    /// Returns true if the rule has the constants of [`AdamConfig`] instead of a momentum.
    pub fn is_adam(self) -> bool {
        matches!(self, Optimizer::Adam | Optimizer::AdamW)
    }

    /// Returns the names of the arrays that an update leaves for the next one, each as long as the weights.
    pub fn state_names(self, momentum: f64) -> &'static [&'static str] {
        match self {
            Optimizer::Adam | Optimizer::AdamW => &["first_moments", "second_moments"],
            Optimizer::Sgd | Optimizer::Nag if momentum > 0.0 => &["momenta"],
            Optimizer::Sgd | Optimizer::Nag => &[],
        }
    }
}

/// Largest decay rate of Adam's moments; 1 would keep them at zero.
const MAX_BETA: f64 = 0.999_999;

config_options! {
    /// Constants of Adam, with PyTorch's defaults.
    #[derive(Copy)]
    AdamConfig {
        /// Decay rate of the first moments.
        beta1: f64 = 0.9 => option("adam-beta1", "FACTOR", "Decay rate of the first moments of adam and adamw")
            .range(0.0..=MAX_BETA),
        /// Decay rate of the second moments.
        beta2: f64 = 0.999 => option("adam-beta2", "FACTOR", "Decay rate of the second moments of adam and adamw")
            .range(0.0..=MAX_BETA),
        /// Term added to the square root of the second moments.
        epsilon: f64 = 1e-8 => option("adam-eps", "NUMBER",
            "Term added to the square root of the second moments of adam and adamw").range(1e-30..=1.0),
    }
}
