//! What the division of the batch cost the cases of a sweep with `--work-load`; the formulas are those of
//! `ringmark_core::stats::work_split`. Not for showing it.

use ringmark_core::dimension::Seconds;
use ringmark_core::stats::work_split::split_times;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::read::analyse::figures::{Group, TrainedCase};
use crate::read::load::run::Measured;

/// Of one case: its median run, of two in the middle the slower one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkCost {
    /// Images of each rank in an iteration.
    pub images: Vec<u32>,
    /// Forward and backward of each rank over its images, a mean over iterations.
    pub seconds_per_image: Vec<Seconds>,
    /// Forward and backward of the slowest rank.
    pub slowest_seconds: Seconds,
    /// The same with even parts: the slowest rank's time of an image x an even part.
    pub even_seconds: Seconds,
    /// The same if all ranks finished together: joined batch / sum of the ranks' speeds.
    pub balanced_seconds: Seconds,
    /// `1 - slowest / even`: what the division saved of the even step's compute time; below 0 it cost.
    pub saved_of_even: f64,
    /// `1 - balanced / slowest`: what a balanced division would save.
    pub left_to_gain: f64,
    /// Exposed all-reduce until the slowest rank joined it: mean over ranks.
    pub waiting_seconds: Seconds,
}

/// Of a case of a group with `--work-load`; `None` of others, of one rank, and without a counted run.
pub fn of_case(group: &Group, case: &TrainedCase) -> Option<WorkCost> {
    group.conditions.recorded.as_ref()?.config.work_load.as_ref()?;
    let mut runs: Vec<&Measured> = case.counted().filter(|run| run.figures.ranks.len() > 1).collect();
    runs.sort_by(|one, other| one.speed.0.total_cmp(&other.speed.0));
    let median = runs.len().checked_sub(1)? / 2;
    of_run(runs.get(median)?)
}

fn of_run(run: &Measured) -> Option<WorkCost> {
    let images: Vec<u32> = run.figures.ranks.iter().map(|rank| rank.images).collect();
    let compute: Vec<f64> = run.figures.ranks.iter().map(|rank| rank.times.compute().0).collect();
    let each: Vec<f64> = images.iter().map(|images| f64::from(*images)).collect();
    let split = split_times(&compute, &each)?;
    Some(WorkCost {
        images,
        seconds_per_image: compute.iter().zip(&each).map(|(time, images)| Seconds(time / images)).collect(),
        slowest_seconds: Seconds(split.slowest),
        even_seconds: Seconds(split.even),
        balanced_seconds: Seconds(split.balanced),
        saved_of_even: split.saved(),
        left_to_gain: split.left(),
        waiting_seconds: run.figures.times?.waiting,
    })
}
