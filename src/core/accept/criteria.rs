//! Error rates of an acceptance, and limits for the measured values.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::accept::fleet::{Metric, Stage};
use crate::benchmark::is_default;
use crate::number_text::{count, percent};

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

/// Largest bandwidth of a minimum, GB/s. Values above it are in bytes a second by mistake.
const MAX_BANDWIDTH: f64 = 1e5;

impl Minimum {
    /// Returns why no measurement is compared with this value, or why it is impossible.
    fn check(&self) -> Result<(), String> {
        let Minimum { metric, value, stage, .. } = self;
        let unit = metric.unit();
        let is_of_pairs = Metric::BANDWIDTHS.contains(metric);
        let is_measured = match stage {
            Stage::Facts => false,
            Stage::Pairs => is_of_pairs,
            Stage::Groups | Stage::Whole => !Metric::INPUTS.contains(metric),
            Stage::Alone | Stage::Confirmation | Stage::Soak => true,
        };
        if !is_measured {
            return Err(format!("{metric} is not measured in the stage {stage}: choose another stage or metric"));
        }
        if !(value.is_finite() && *value > 0.0) {
            return Err(format!("value = {value} of {metric}: write a number above 0 in {unit}"));
        }
        if unit == "GB/s" && *value > MAX_BANDWIDTH {
            let gigabytes = value / 1e9;
            return Err(format!("value = {value} of {metric}: the unit is {unit}; for B/s write {gigabytes}"));
        }
        Ok(())
    }
}

impl Criteria {
    /// Returns the first value that is out of range, and what to write instead.
    pub fn check(&self) -> Result<(), String> {
        let shares =
            [("false_alarms", self.false_alarms), ("smallest_defect", self.smallest_defect), ("missed", self.missed)];
        for (name, share) in shares {
            if !(share > 0.0 && share < 1.0) {
                return Err(format!("{name} = {share}: write a share above 0 and below 1, such as 0.05 for 5 %"));
            }
        }
        for (name, number) in [("max_repeats", Some(self.max_repeats)), ("pair_rounds", self.pair_rounds)] {
            if number == Some(0) {
                return Err(format!("{name} = 0: write 1 or more; `stages` lists the stages to run"));
            }
        }
        self.minimum.iter().chain(&self.reference).try_for_each(Minimum::check)
    }

    /// Returns the limits as one line: `defects of 5.0 % or more, a false alarm once in 1000 fleets`.
    pub fn text(&self) -> String {
        let Criteria { smallest_defect, false_alarms, minimum, reference, .. } = self;
        let numbers = [(minimum, "minimum"), (reference, "reference value")]
            .into_iter()
            .filter(|(values, _)| !values.is_empty())
            .map(|(values, noun)| format!(", {}", count(values.len(), noun)));
        format!(
            "defects of {} or more, a false alarm once in {:.0} fleets{}",
            percent(*smallest_defect),
            1.0 / false_alarms,
            numbers.collect::<String>()
        )
    }

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

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn impossible_values_are_refused() {
        assert_eq!(Criteria::default().check(), Ok(()));
        let minimum = |metric, stage, value| Criteria {
            minimum: vec![Minimum { metric, value, stage, hardware: None }],
            ..Criteria::default()
        };
        let refused = [
            Criteria { smallest_defect: 5.0, ..Criteria::default() },
            Criteria { false_alarms: 0.0, ..Criteria::default() },
            Criteria { missed: f64::NAN, ..Criteria::default() },
            Criteria { max_repeats: 0, ..Criteria::default() },
            Criteria { pair_rounds: Some(0), ..Criteria::default() },
            minimum(Metric::LargeBandwidth, Stage::Pairs, 40e9),
            minimum(Metric::MatrixRate, Stage::Alone, -1.0),
            minimum(Metric::TrainingSpeed, Stage::Pairs, 100.0),
            minimum(Metric::InputSpeed, Stage::Whole, 100.0),
            minimum(Metric::LargeBandwidth, Stage::Facts, 100.0),
        ];
        expect![[r#"
            smallest_defect = 5: write a share above 0 and below 1, such as 0.05 for 5 %
            false_alarms = 0: write a share above 0 and below 1, such as 0.05 for 5 %
            missed = NaN: write a share above 0 and below 1, such as 0.05 for 5 %
            max_repeats = 0: write 1 or more; `stages` lists the stages to run
            pair_rounds = 0: write 1 or more; `stages` lists the stages to run
            value = 40000000000 of large-bandwidth: the unit is GB/s; for B/s write 40
            value = -1 of matrix-rate: write a number above 0 in TFLOP/s
            training-speed is not measured in the stage pairs: choose another stage or metric
            input-speed is not measured in the stage whole: choose another stage or metric
            large-bandwidth is not measured in the stage facts: choose another stage or metric"#]]
        .assert_eq(&refused.map(|criteria| criteria.check().expect_err("refused")).join("\n"));
        assert_eq!(minimum(Metric::LargeBandwidth, Stage::Pairs, 40.0).check(), Ok(()));
        assert_eq!(minimum(Metric::MatrixRate, Stage::Whole, 40.0).check(), Ok(()));
        expect!["defects of 5.0 % or more, a false alarm once in 1000 fleets, 1 minimum"]
            .assert_eq(&minimum(Metric::MatrixRate, Stage::Alone, 400.0).text());
    }
}
