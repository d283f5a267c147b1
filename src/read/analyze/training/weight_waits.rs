//! Exposed communication of a strategy that shards weights, by phase; the formulas are in
//! `ringmark_core::benchmark::strategy::gathers`.

use ringmark_core::benchmark::strategy::gathers::{GatherCause, GatherUse, longest_wait, wait_in};
use ringmark_core::dimension::{Phase, Seconds};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::read::analyze::training::figures::TrainingCase;

/// Times per iteration in the median run of a case, means over ranks; of an even number of runs, the slower of the middle
/// two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WeightWaits {
    /// Waits for weights in forward.
    pub forward_seconds: Seconds,
    /// Waits for weights in backward.
    pub backward_seconds: Seconds,
    /// Rest of the exposed communication: sums of gradients.
    pub sums_seconds: Seconds,
    /// Gather with the longest wait; absent if computation waited for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest: Option<GatherUse>,
    /// Cause of the longest wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<GatherCause>,
}

impl WeightWaits {
    /// Describes the longest wait, its cause and a remedy.
    pub fn text(&self) -> Option<String> {
        Some(self.longest.as_ref()?.text(self.cause?))
    }
}

/// Returns the waits of a case; `None` with other strategies, for a single rank, and in older records.
pub fn case_weight_waits(case: &TrainingCase) -> Option<WeightWaits> {
    case.of_median_run(|run, measured| {
        let gathers = &run.recorded.as_ref()?.facts.strategy.as_ref()?.gathers;
        if gathers.is_empty() {
            return None;
        }
        let exposed = measured.figures.times?.phases[Phase::ExposedAllreduce];
        let [forward_seconds, backward_seconds] =
            [Phase::Forward, Phase::Backward].map(|phase| wait_in(phase, gathers));
        let sums_seconds = Seconds((exposed.0 - forward_seconds.0 - backward_seconds.0).max(0.0));
        let (longest, cause) = longest_wait(gathers).map(|(gather, cause)| (gather.clone(), cause)).unzip();
        Some(WeightWaits { forward_seconds, backward_seconds, sums_seconds, longest, cause })
    })
}
