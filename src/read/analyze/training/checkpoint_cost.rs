//! Cost of a case's checkpoints; the formulas are in `ringmark_core::benchmark::train::checkpoint_write`.

use ringmark_core::benchmark::train::CheckpointCost;

use crate::read::analyze::training::figures::TrainingCase;

/// Returns the cost in the median run of a case; of an even number of runs, the slower of the middle two. `None` without
/// checkpoints, and in older records.
pub fn case_checkpoint_cost(case: &TrainingCase) -> Option<CheckpointCost> {
    case.of_median_run(|run, _| run.recorded.as_ref()?.facts.checkpoints)
}
