//! Exposed communication of a strategy that shards weights, by phase; the formulas are in
//! `ringmark_core::benchmark::kv_store::gathers`.

use ringmark_core::benchmark::kv_store::gathers::{self, GatherCause, GatherUse, longest_wait, wait_in};
use ringmark_core::dimension::{Phase, Seconds};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::read::analyze::training::figures::TrainingCase;
use crate::read::load::run::Run;

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
    #[serde(skip)]
    gathers: Vec<GatherUse>,
}

impl WeightWaits {
    /// Describes the longest wait, its cause and a remedy.
    pub fn text(&self) -> Option<String> {
        gathers::text(&self.gathers)
    }
}

/// Returns the waits of a case; `None` with other strategies, for a single rank, and in older records.
pub fn case_weight_waits(case: &TrainingCase) -> Option<WeightWaits> {
    let run = |run: &Run| -> Option<(f64, WeightWaits)> {
        let measured = run.outcome.as_ref().ok()?;
        let gathers = run.recorded.as_ref()?.facts.kv_store.as_ref()?.gathers.clone();
        let exposed = measured.figures.times?.phases[Phase::ExposedAllreduce];
        let [forward, backward] = [Phase::Forward, Phase::Backward].map(|phase| wait_in(phase, &gathers));
        let (longest, cause) = longest_wait(&gathers).map(|(gather, cause)| (gather.clone(), cause)).unzip();
        let sums_seconds = Seconds((exposed.0 - forward.0 - backward.0).max(0.0));
        let waits =
            WeightWaits { forward_seconds: forward, backward_seconds: backward, sums_seconds, longest, cause, gathers };
        (!waits.gathers.is_empty()).then_some((measured.speed.0, waits))
    };
    let mut runs: Vec<(f64, WeightWaits)> = case.runs.iter().filter_map(run).collect();
    runs.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let median = runs.len().checked_sub(1)? / 2;
    Some(runs.swap_remove(median).1)
}
