//! Error rates of an acceptance, and limits for the measured values.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::accept::fleet::{Metric, Stage};
use crate::benchmark::is_default;

/// Error rates and limits of an acceptance; `accept.toml` has the same keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Criteria {
    /// Probability that a fleet without a defect has a host, GPU or link that is not fit.
    pub false_alarms: f64,
    /// Smallest loss of speed that is a defect, as a share. Larger where hosts of one model differ more.
    pub smallest_defect: f64,
    /// Probability that a defect of that size is missed.
    pub missed: f64,
    /// Most measurements of one host, pair or group in a stage; a subject that is undecided after them is suspect.
    pub max_repeats: u32,
    /// Rounds of pairs; by default `log2(hosts) + 5`, or all pairs if these are fewer rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair_rounds: Option<u32>,
    /// Measurements of each host alone in the soak stage; 0 leaves it out. The largest number repeats it until a time limit.
    pub soak_rounds: u32,
    /// Measures the input of each host alone: true with `--data`, whatever a file states.
    #[serde(skip_serializing_if = "is_default")]
    pub input: bool,
    /// Stages to run; by default all.
    pub stages: Vec<Stage>,
    /// Minimum values.
    pub minimum: Vec<Minimum>,
    /// Typical values of an earlier acceptance, or of another cluster.
    pub reference: Vec<Minimum>,
}

/// A value of one metric, for jobs on a number of hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Minimum {
    /// Quantity.
    pub metric: Metric,
    /// Value in the unit of the metric. A training speed is that of one rank.
    pub value: f64,
    /// Stage whose jobs it applies to.
    pub stage: Stage,
    /// Hardware it applies to; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
}

impl Criteria {
    /// Repeats the soak until a time limit ends it.
    pub fn with_endless_soak(self) -> Criteria {
        Criteria { soak_rounds: u32::MAX, ..self }
    }

    /// Returns true if only a time limit ends the soak.
    pub fn soak_is_endless(&self) -> bool {
        self.soak_rounds == u32::MAX
    }
}

impl Default for Criteria {
    fn default() -> Criteria {
        Criteria {
            false_alarms: 0.001,
            smallest_defect: 0.05,
            missed: 0.01,
            max_repeats: 12,
            pair_rounds: None,
            soak_rounds: 0,
            input: false,
            stages: vec![Stage::Alone, Stage::Pairs, Stage::Groups, Stage::Whole, Stage::Confirmation],
            minimum: Vec::new(),
            reference: Vec::new(),
        }
    }
}
