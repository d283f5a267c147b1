//! Parts of a row of a result file that training and scoring share.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_core::benchmark::RunProfile;
use ringmark_core::dimension::{BatchShape, BatchSize, Bytes, DeviceKind, UnitsPerSecond, WorkUnit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::read::analyze::reliability::ReliabilityWarning;
use crate::read::analyze::run_group::{CaseOf, RunGroup};
use crate::read::analyze::utilization::Utilization;
use crate::read::load::environment::EnvironmentText;
use crate::read::load::run::{self, Run};

/// Devices, profile and throughput.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct RowHead {
    /// Kind of device; `null` without a record.
    pub device: Option<DeviceKind>,
    /// Device names, without duplicates.
    #[serde(default)]
    device_names: BTreeSet<String>,
    /// CPU threads per rank, which determine the speed of a CPU device; empty without a record.
    #[serde(default)]
    threads_per_rank: BTreeSet<u32>,
    /// Profile of the runs; `null` without a record.
    pub profile: Option<RunProfile>,
    /// Unit of the speed.
    #[serde(default)]
    unit: WorkUnit,
    /// Throughput of all ranks: a run's images or tokens over its time, median over runs; `null` if no run counts.
    #[serde(skip_deserializing)]
    units_per_second: Option<UnitsPerSecond>,
}

/// Samples of an iteration, each an image or a sequence of tokens.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct RowBatch {
    /// Samples per rank and iteration; their mean over the ranks if `--work-load` divides them unevenly.
    batch_size_per_device: u32,
    /// Samples of all ranks and iteration, if they are the same in every case (strong scaling).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    global_batch_size: Option<u32>,
    /// Tokens of a sequence; absent for images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sequence_length: Option<u32>,
}

impl RowBatch {
    /// Returns the batch of a case of `ranks` ranks.
    pub fn new(batch: BatchShape, ranks: u32) -> RowBatch {
        let global_batch_size = match batch.size {
            BatchSize::PerRank(_) => None,
            BatchSize::Global(samples) => Some(samples),
        };
        RowBatch {
            batch_size_per_device: batch.samples_per_rank(ranks) as u32,
            global_batch_size,
            sequence_length: batch.sequence_length,
        }
    }

    /// Returns the batch that the row describes.
    pub fn shape(&self) -> BatchShape {
        let size = self.global_batch_size.map(BatchSize::Global);
        BatchShape {
            size: size.unwrap_or(BatchSize::PerRank(self.batch_size_per_device)),
            sequence_length: self.sequence_length,
        }
    }
}

/// Variation between runs, memory and utilization.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct RowFigures {
    /// Sample standard deviation of the runs' speeds, divided by their mean; `null` for a single run.
    #[serde(skip_deserializing)]
    cv: Option<f64>,
    /// Peak memory of the rank that used most, in any counted run: tensor memory on a GPU, resident memory on the CPU.
    /// `null` if no record contains it.
    #[serde(skip_deserializing)]
    peak_memory_bytes: Option<Bytes>,
    /// Arithmetic performance and utilization; `null` without a record.
    #[serde(default)]
    pub arithmetic: Option<Utilization>,
}

/// Reliability of the figures.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct RowReliability {
    /// True if the figures are reliable.
    #[serde(skip_deserializing)]
    is_reliable: bool,
    /// Reasons why the figures are unreliable, each with a remedy.
    #[serde(default, alias = "objections")]
    pub reliability_warnings: Vec<ReliabilityWarning>,
    /// Number of runs in the figures.
    #[serde(default)]
    runs_counted: usize,
}

/// Runs and their conditions.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(bound(deserialize = "R: Deserialize<'de>"))]
pub struct RowRuns<R> {
    /// Warnings of the table, followed by those of the case's runs.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Runs in the order of their numbers.
    #[serde(default)]
    pub runs: Vec<R>,
    /// Options of the runs, as recorded.
    #[serde(default)]
    pub settings: BTreeMap<String, Value>,
    /// Devices, hosts, versions and environment variables of the counted runs.
    #[serde(default, alias = "surroundings")]
    pub environment: EnvironmentText,
}

/// Returns the parts of the row of a case.
pub fn parts<'a, G: RunGroup<Record: 'a>, R: From<&'a Run<G::Record>>>(
    group: &G,
    case: &'a CaseOf<G>,
) -> (RowHead, RowFigures, RowReliability, RowRuns<R>) {
    let head = RowHead {
        device: group.device(),
        device_names: group.device_names_of(case),
        threads_per_rank: case.threads(),
        profile: group.profile(),
        unit: group.point(case).batch.unit(),
        units_per_second: case.speed(),
    };
    let (cv, arithmetic) = (case.speeds().cv(), group.utilization(case));
    let figures = RowFigures { cv, peak_memory_bytes: case.peak_memory(), arithmetic };
    let reliability_warnings: Vec<ReliabilityWarning> = group.reliability_warnings_of(case).cloned().collect();
    let reliability = RowReliability {
        is_reliable: case.speed().is_some() && reliability_warnings.is_empty(),
        reliability_warnings,
        runs_counted: case.counted().count(),
    };
    let runs = RowRuns {
        warnings: group.warnings().iter().chain(&case.warnings).cloned().collect(),
        runs: case.runs.iter().map(R::from).collect(),
        settings: group.settings_of(case),
        environment: run::environment(&case.runs),
    };
    (head, figures, reliability, runs)
}
