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
pub const SCHEMA: u32 = 2;

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
    /// Mean time between failures of one host in the predictions. Absent in files of schema 1: `mtbf` times the hosts of
    /// `case`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_mtbf: Option<Seconds>,
    /// Goodput of other numbers of hosts, each with its best interval.
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
        read().map(|goodput| Some(Goodput::upgrade(goodput))).with_context(|| path.display().to_string())
    }

    /// Schema 1 counted the time of slower iterations as useful.
    fn upgrade(mut self) -> Goodput {
        if self.schema < 2 {
            self.schema = SCHEMA;
            for IntervalResult { length, measured, .. } in &mut self.intervals {
                *measured = measured.clone().with_useful(length.work);
            }
        }
        self
    }

    /// Returns the measured costs.
    pub fn measured(&self) -> MeasuredRuns {
        let iteration =
            self.intervals.first().map(|one| one.length.interval.0 / f64::from(one.length.checkpoint_every));
        MeasuredRuns {
            iteration: Seconds(iteration.unwrap_or_default()),
            speed: self.undisturbed_speed,
            checkpoint: self.checkpoint,
            failures: self.failures.clone(),
        }
    }

    /// Returns the MTBF of one host in the predictions.
    pub fn host_mtbf(&self) -> Seconds {
        self.host_mtbf.unwrap_or(Seconds(self.mtbf.0 * f64::from(self.case.nodes)))
    }

    /// Replaces the predictions by those for other hosts; the previous MTBF and numbers for `None`.
    pub fn predict(&mut self, host_mtbf: Option<Seconds>, hosts: Option<&[u32]>) {
        let before: Vec<u32> = self.predictions.iter().map(|prediction| prediction.hosts).collect();
        let host_mtbf = host_mtbf.unwrap_or(self.host_mtbf());
        let measured = self.measured();
        let predict = |hosts: &u32| measured.predict_hosts(host_mtbf, *hosts, self.failure_seed);
        self.predictions = hosts.unwrap_or(&before).iter().filter_map(predict).collect();
        self.host_mtbf = Some(host_mtbf);
    }
}
