//! One run of a sweep: its log, the record beside it, and whether it counts.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::Path;

use ringmark_core::benchmark::train::{RunRecord, TrainConfig};
use ringmark_core::benchmark::warning::Warning;
use ringmark_core::benchmark::{RecordHead, RunProfile, SweepRecord};
use ringmark_core::dimension::{Bytes, DeviceKind, ImagesPerSecond, Seconds};
use ringmark_core::host::{Environment, HostUse, RankPlace};
use ringmark_core::line::log::Log;
use ringmark_core::validity::ForeignLoad;

use crate::read::load::environment::{self, EnvironmentText};
use crate::read::load::folder::FoundRun;
use crate::read::load::log;
use crate::read::load::problem::Problem;
use crate::read::load::record::{self, DeviceRates};

/// A record whose runs have figures.
pub trait Readable: SweepRecord<Config: Clone + Debug + PartialEq> + Clone + Debug + PartialEq {
    /// What only records of this benchmark contain.
    type Facts: Clone + Debug + PartialEq;
    /// Figures of a run of this benchmark alone.
    type Figures: Clone + Debug + PartialEq;

    /// Returns the configuration, with everything that may differ between two runs of one measurement at its default.
    fn shared_config(&self, warmup: Option<u32>) -> Self::Config;

    /// Returns what only this record contains.
    fn facts(&self) -> Self::Facts;

    /// Adds what only this record contains to a description.
    fn add_facts(_facts: &Self::Facts, _all: &mut EnvironmentText) {}

    /// Computes the figures of a run that did not fail, or says why it does not count.
    fn measure(
        found: &FoundRun,
        log: Log,
        record: Option<Self>,
        warmup: Option<u32>,
    ) -> Result<Measured<Self>, Problem>;
}

/// A run that was found, counted or not.
#[derive(Debug, Clone, PartialEq)]
pub struct Run<R: Readable = RunRecord> {
    /// Which run, and where its log is.
    pub found: FoundRun,
    /// What its record says; `None` without a readable record (DLPerf's logs have none).
    pub recorded: Option<Recorded<R>>,
    /// Its figures, or why it has none.
    pub outcome: Result<Measured<R>, Problem>,
}

/// What a record says of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded<R: Readable = RunRecord> {
    /// What has to be equal for two runs to be compared.
    pub conditions: RecordedConditions<R::Config>,
    /// Where its ranks ran.
    pub ranks: Vec<RankPlace>,
    /// Versions of what ran.
    pub software: String,
    /// What rank 0 found.
    pub environment: Environment,
    /// Start, seconds since 1970 UTC.
    pub started: Seconds,
    /// What only this benchmark records.
    pub facts: R::Facts,
}

/// Conditions that two runs of one measurement share.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedConditions<C = TrainConfig> {
    /// Kind of every rank's device.
    pub device: DeviceKind,
    /// How the run was meant.
    pub profile: RunProfile,
    /// What was asked; what may differ is at its default.
    pub config: C,
}

/// Figures of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured<R: Readable = RunRecord> {
    /// Images/s of all ranks.
    pub speed: ImagesPerSecond,
    /// Memory of the rank that held most: on a GPU what tensors held, on the CPU what was resident. `None` without a record
    /// that contains it.
    pub peak_memory: Option<Bytes>,
    /// What its devices can do, as far as a record contains it.
    pub device_rates: DeviceRates,
    /// Use of every host during the run; none without a record that contains it.
    pub host_use: Vec<HostUse>,
    /// Share of the hosts' core time that other programs took; `None` without a record that contains it.
    pub foreign_load: Option<ForeignLoad>,
    /// Computed again from the record; none without one.
    pub warnings: Vec<Warning>,
    /// Figures of this benchmark alone.
    pub figures: R::Figures,
}

impl<R: Readable> Run<R> {
    /// Reads the run at `root`/`found.log`; `warmup` overrides what the record (or else DLPerf) says.
    pub fn read(root: &Path, found: &FoundRun, warmup: Option<u32>) -> Run<R> {
        Run::judge(found, log::read(root, &found.log), record::beside(root, &found.log), warmup)
    }

    /// Judges a run by its log and its record; `Ok(None)` if there is no record.
    pub fn judge(
        found: &FoundRun,
        log: Result<Log, Problem>,
        record: Result<Option<R>, Problem>,
        warmup: Option<u32>,
    ) -> Run<R> {
        let recorded = record.as_ref().ok().and_then(Option::as_ref).map(|record| Recorded::new(record, warmup));
        let outcome = log.and_then(|log| match log.failure {
            Some(remark) => Err(Problem::in_log(&found.log, remark)),
            None => R::measure(found, log, record?, warmup),
        });
        Run { found: found.clone(), recorded, outcome }
    }

    /// Returns the mean time of an iteration: the speed in these is the run's images. `None` if the run does not count.
    pub fn mean_iteration(&self) -> Option<Seconds> {
        let images = f64::from(self.found.name.batch_size) * f64::from(self.found.name.case.ranks());
        Some(Seconds(images / self.outcome.as_ref().ok()?.speed.0))
    }
}

impl<R: Readable> Recorded<R> {
    fn new(record: &R, warmup: Option<u32>) -> Recorded<R> {
        let RecordHead { started, environment, ranks } = record.head();
        Recorded {
            conditions: RecordedConditions {
                device: ranks.first().map_or(DeviceKind::Cpu, |rank| rank.device),
                profile: record.label().profile,
                config: record.shared_config(warmup),
            },
            ranks: ranks.to_vec(),
            software: record::software(environment),
            environment: environment.clone(),
            started,
            facts: record.facts(),
        }
    }

    /// Returns the fields that the records of all benchmarks contain.
    pub fn head(&self) -> RecordHead<'_> {
        RecordHead { started: self.started, environment: &self.environment, ranks: &self.ranks }
    }

    /// Returns the names of the devices of all ranks.
    pub fn device_names(&self) -> BTreeSet<String> {
        record::device_names(&self.ranks)
    }
}

/// Describes what the runs that count ran on; nothing of runs without a record.
pub fn environment<'a, R: Readable + 'a>(runs: impl IntoIterator<Item = &'a Run<R>>) -> EnvironmentText {
    let mut all = EnvironmentText::new();
    for run in runs.into_iter().filter(|run| run.outcome.is_ok()) {
        if let Some(recorded) = &run.recorded {
            environment::add_environment(&mut all, &recorded.environment);
            environment::add_ranks(&mut all, &recorded.ranks);
            R::add_facts(&recorded.facts, &mut all);
        }
    }
    all
}
