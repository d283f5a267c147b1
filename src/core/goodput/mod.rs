//! Goodput of training under failures, the result of `ringmark goodput`: measured costs of checkpoints and failures, runs
//! with different intervals between checkpoints, and predictions.
//!
//! | module | contents |
//! |---|---|
//! | [`account`] | where the time of a run with interruptions went |
//! | [`costs`] | costs of checkpoints and failures from short runs, and the predictions that follow from them |

pub mod account;
pub mod costs;

use std::path::Path;

use anyhow::Context;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::goodput::account::{Account, Activity, TimeUse};
pub use crate::goodput::costs::{CheckpointTimes, FailureTimes, HostPrediction, MeasuredRuns, RunLength};

use crate::dimension::{Case, Seconds, UnitsPerSecond, WorkUnit};
use crate::file::{atomic_file, schema};
use crate::stats::allreduce_model::Band;

/// Name of the file.
pub const GOODPUT: &str = "goodput.json";

/// Version of this file format.
pub const SCHEMA: u32 = 1;

/// Kind of file, in its first field.
pub const KIND: &str = "ringmark-goodput";

/// Content of `goodput.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Goodput {
    /// Always `ringmark-goodput`.
    pub kind: String,
    /// Version of the format.
    pub schema: u32,
    /// Version of ringmark.
    pub program: String,
    /// Command line.
    pub command: Vec<String>,
    /// Network, precision and batch: `MXNet LeNet, fp32, batch size 4 per rank`.
    pub what: String,
    /// Nodes and ranks of all runs.
    pub case: Case,
    /// Unit of the speeds.
    pub unit: WorkUnit,
    /// Mean time between the injected failures of the whole job.
    pub mtbf: Seconds,
    /// Seed of their times, ranks and kinds.
    pub failure_seed: u32,
    /// Speed without checkpoints and failures: mean of the undisturbed runs.
    pub undisturbed_speed: UnitsPerSecond,
    /// Cost of a checkpoint.
    pub checkpoint: CheckpointTimes,
    /// Cost of each kind of failure.
    pub failures: Vec<FailureTimes>,
    /// Best time between checkpoints to first order (Young): `sqrt(2 x stall x MTBF)`.
    pub young_interval: Seconds,
    /// Best time between checkpoints to a higher order (Daly), and at least the time that a checkpoint needs to be written.
    pub best_interval: Seconds,
    /// One run for each requested interval.
    pub intervals: Vec<IntervalResult>,
    /// Goodput of other numbers of hosts with the same MTBF of a host, each with its best interval.
    pub predictions: Vec<HostPrediction>,
}

/// A run with one interval between checkpoints, under failures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IntervalResult {
    /// Interval as requested: seconds, or `auto` for the best one.
    pub requested: String,
    /// Folder of the run, in that of the file.
    pub folder: String,
    /// Length of the run, and its interval.
    pub length: RunLength,
    /// Predicted goodput, from the costs and the MTBF alone: percentiles 2.5, 50 and 97.5 of simulated runs. Absent if
    /// the run would hardly end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Band>,
    /// Measured times.
    pub measured: Account,
}

impl Goodput {
    /// Reads the file in `folder`; `None` if there is none.
    pub fn find(folder: &Path) -> anyhow::Result<Option<Goodput>> {
        let path = folder.join(GOODPUT);
        if !path.is_file() {
            return Ok(None);
        }
        let read = || schema::read_document(atomic_file::open(&path)?, KIND, SCHEMA, "goodput result");
        read().map(Some).with_context(|| path.display().to_string())
    }
}
