//! Effect of uneven batch sizes per rank (`--work-load`) on the cases of a sweep; the formulas are in
//! `ringmark_core::stats::work_load`.

use ringmark_core::dimension::Seconds;
use ringmark_core::stats::work_load::split_times;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::read::analyze::training::figures::{TrainingCase, TrainingGroup};
use crate::read::load::run::Measured;

/// Times of the median run of a case; of an even number of runs, the slower of the middle two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkCost {
    /// Images of each rank in an iteration.
    #[serde(rename = "images")]
    pub samples: Vec<u32>,
    /// Forward and backward time per image of each rank, mean over iterations.
    pub seconds_per_image: Vec<Seconds>,
    /// Forward and backward time of the slowest rank.
    pub slowest_seconds: Seconds,
    /// Forward and backward time with equal batches: the slowest rank's time per image x an equal share of the global
    /// batch.
    pub even_seconds: Seconds,
    /// Forward and backward time if all ranks finished together: global batch / sum of the ranks' speeds.
    pub balanced_seconds: Seconds,
    /// `1 - slowest / even`: share of the compute time that the division saved; negative if it cost time.
    pub saved_of_even: f64,
    /// `1 - balanced / slowest`: share that a balanced division would save.
    pub left_to_gain: f64,
    /// Exposed all-reduce before the slowest rank joins it: mean over ranks.
    pub waiting_seconds: Seconds,
}

/// Returns the effect on a case; `None` without `--work-load`, for a single rank, or without a counted run.
pub fn case_work_cost(group: &TrainingGroup, case: &TrainingCase) -> Option<WorkCost> {
    group.conditions.recorded.as_ref()?.config.work_load.as_ref()?;
    cost_of_run(case.of_median_run(|_, run| (run.figures.ranks.len() > 1).then_some(run))?)
}

fn cost_of_run(run: &Measured) -> Option<WorkCost> {
    let samples: Vec<u32> = run.figures.ranks.iter().map(|rank| rank.samples).collect();
    let compute: Vec<f64> = run.figures.ranks.iter().map(|rank| rank.times.compute().0).collect();
    let each: Vec<f64> = samples.iter().map(|samples| f64::from(*samples)).collect();
    let split = split_times(&compute, &each)?;
    Some(WorkCost {
        samples,
        seconds_per_image: compute.iter().zip(&each).map(|(time, samples)| Seconds(time / samples)).collect(),
        slowest_seconds: Seconds(split.slowest),
        even_seconds: Seconds(split.even),
        balanced_seconds: Seconds(split.balanced),
        saved_of_even: split.saved(),
        left_to_gain: split.left(),
        waiting_seconds: run.figures.times?.waiting,
    })
}
