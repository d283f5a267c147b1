//! Hosts of the fleet, the jobs that measure them, and what the jobs return.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::train::Fingerprints;
use crate::dimension::Seconds;
use crate::keyword_enum;
use crate::stats::summary::median;

/// One host of the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FleetHost {
    /// Name under which the launcher reaches it.
    pub name: String,
    /// Ranks that a job starts on it: one per GPU.
    pub ranks: u32,
    /// GPU model, or processor model and cores. Only hosts with equal text are compared with each other; empty if the
    /// host could not be examined.
    pub hardware: String,
    /// Switch or rail that connects it, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<String>,
}

/// Returns the number of ranks on each host of a job: as many as the host with the fewest has.
pub fn ranks_per_host(fleet: &[FleetHost], hosts: &[usize]) -> u32 {
    hosts.iter().map(|host| fleet[*host].ranks).min().unwrap_or(0)
}

keyword_enum!(
    /// A stage of the acceptance, in order.
    Stage {
        /// Examination of each host without a job.
        Facts = "facts",
        /// Jobs on single hosts, on all of them at once.
        Alone = "alone",
        /// Jobs on pairs of hosts.
        Pairs = "pairs",
        /// Jobs on halves, quarters, eighths of the fleet.
        Groups = "groups",
        /// Jobs on all hosts that are fit so far.
        Whole = "whole",
        /// Jobs of a suspect with hosts that are known to be good.
        Confirmation = "confirmation",
        /// Repetition on all hosts, to find faults that come and go.
        Soak = "soak",
    }
);

keyword_enum!(
    /// Benchmark that a job runs.
    Test {
        /// Training with a fixed batch size.
        Training = "training",
        /// All-reduce of three sizes.
        Exchange = "exchange",
        /// Reading and decoding images.
        Input = "input",
    }
);

keyword_enum!(
    /// Measured quantity; higher is better.
    Metric {
        /// Rate of matrix products of a rank.
        MatrixRate = "matrix-rate",
        /// Rate of copies within the memory of a rank's device.
        MemoryRate = "memory-rate",
        /// Samples per second: of a rank without waiting for others, or of the whole job.
        TrainingSpeed = "training-speed",
        /// Bus bandwidth of all-reduce of the small size, where latency dominates.
        SmallBandwidth = "small-bandwidth",
        /// Bus bandwidth of all-reduce of the medium size.
        MediumBandwidth = "medium-bandwidth",
        /// Bus bandwidth of all-reduce of the large size.
        LargeBandwidth = "large-bandwidth",
        /// Images read from memory and decoded per second.
        InputSpeed = "input-speed",
        /// Images read from the disk or file server and decoded per second.
        ColdInputSpeed = "cold-input-speed",
    }
);

impl Test {
    /// Returns its name in messages.
    pub fn title(self) -> &'static str {
        match self {
            Test::Training => "training",
            Test::Exchange => "all-reduce",
            Test::Input => "input",
        }
    }
}

impl Metric {
    /// Bandwidths of the three sizes.
    pub const BANDWIDTHS: [Metric; 3] = [Metric::SmallBandwidth, Metric::MediumBandwidth, Metric::LargeBandwidth];

    /// Speeds of the input from memory and from the disk.
    pub const INPUTS: [Metric; 2] = [Metric::InputSpeed, Metric::ColdInputSpeed];

    /// Returns the unit of the values.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::MatrixRate => "TFLOP/s",
            Metric::TrainingSpeed => "samples/s",
            Metric::InputSpeed | Metric::ColdInputSpeed => "images/s",
            Metric::MemoryRate | Metric::SmallBandwidth | Metric::MediumBandwidth | Metric::LargeBandwidth => "GB/s",
        }
    }
}

/// One job on a subset of the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Job {
    /// Benchmark.
    pub test: Test,
    /// Indices of the hosts in the fleet, in ascending order.
    pub hosts: Vec<usize>,
}

impl Job {
    /// Creates the exchange of two hosts.
    pub fn of_pair(one: usize, other: usize) -> Job {
        Job { test: Test::Exchange, hosts: vec![one.min(other), one.max(other)] }
    }
}

/// Jobs that run at once, on disjoint hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Round {
    /// Stage that needs the jobs.
    pub stage: Stage,
    /// Jobs on disjoint hosts.
    pub jobs: Vec<Job>,
}

/// One measured value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reading {
    /// Quantity.
    pub metric: Metric,
    /// Value in [`Metric::unit`].
    pub value: f64,
    /// Rank within the job, host by host in the order of [`Job::hosts`]; `None` for a value of the whole job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
}

/// Result of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The job ended as it should.
    Measured(Vec<Reading>),
    /// The job failed.
    Failed {
        /// Host that the failure names, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<usize>,
        /// Reason, as the launcher reports it.
        reason: String,
    },
}

/// A job that has run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measurement {
    /// Stage of its round.
    pub stage: Stage,
    /// Number of the round, from 1.
    pub round: u32,
    /// Job that ran.
    pub job: Job,
    /// Its result.
    pub outcome: Outcome,
    /// Fingerprints of training; `None` for other tests, failed jobs, and in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprints: Option<JobFingerprints>,
    /// Time of the job; `None` in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<JobTime>,
    /// State of the host during training alone; `None` for other jobs, without sensors, and in older journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<HostState>,
}

/// State of a host during a job, from the telemetry of its record.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct HostState {
    /// Mean clock of the GPUs, or of the cores without GPUs.
    #[serde(rename = "clock_mhz")]
    pub clock: Option<f64>,
    /// Highest temperature of the GPUs, or of the processors without GPUs.
    #[serde(rename = "temperature_celsius")]
    pub temperature: Option<f64>,
    /// Memory errors of the GPUs during the job, corrected or not.
    pub memory_errors: Option<u64>,
}

impl Measurement {
    /// Returns the value of each metric: that of the job, or the median of its ranks. A training speed is per rank.
    pub fn values(&self, fleet: &[FleetHost]) -> BTreeMap<Metric, f64> {
        let Outcome::Measured(readings) = &self.outcome else { return BTreeMap::new() };
        let hosts = &self.job.hosts;
        let ranks = ranks_per_host(fleet, hosts) * hosts.len() as u32;
        let mut of_ranks: BTreeMap<Metric, Vec<f64>> = BTreeMap::new();
        let mut values = BTreeMap::new();
        for reading in readings {
            match reading.rank {
                Some(_) => of_ranks.entry(reading.metric).or_default().push(reading.value),
                None if reading.metric == Metric::TrainingSpeed => {
                    values.insert(reading.metric, reading.value / f64::from(ranks.max(1)));
                }
                None => drop(values.insert(reading.metric, reading.value)),
            }
        }
        for (metric, of_ranks) in of_ranks {
            values.entry(metric).or_insert(median(&of_ranks).unwrap_or(0.0));
        }
        values
    }
}

/// Time of a job, from the start of the command, which `--resume` starts again.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobTime {
    /// Start of the job.
    #[serde(rename = "start_seconds")]
    pub start: Seconds,
    /// End of the job.
    #[serde(rename = "end_seconds")]
    pub end: Seconds,
}

/// Fingerprints of a training job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobFingerprints {
    /// Libraries, devices and threads: only jobs with the same text have the same values.
    pub platform: String,
    /// Values of most ranks, and the first difference between ranks.
    #[serde(flatten)]
    pub values: Fingerprints,
}

keyword_enum!(
    /// Severity of a finding.
    Severity {
        /// The host cannot be used.
        Error = "error",
        /// The host can be used, but is not as it should be: a suspect.
        Suspect = "suspect",
        /// The host can be used; the finding may explain a measurement.
        Warning = "warning",
    }
);

/// Finding about a host, from its examination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Index of the host in the fleet.
    pub host: usize,
    /// Effect on the use of the host.
    pub severity: Severity,
    /// Description.
    pub what: String,
    /// Action that removes the problem.
    pub fix: String,
}
