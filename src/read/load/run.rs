//! One run of a sweep: its log, its record, and its outcome.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::Path;

use ringmark_core::benchmark::train::{RunRecord, TrainConfig};
use ringmark_core::benchmark::warning::Warning;
use ringmark_core::benchmark::{RecordHead, RunProfile, SweepRecord};
use ringmark_core::dimension::{Bytes, DeviceKind, Seconds, UnitsPerSecond};
use ringmark_core::host::{Environment, HostUse, RankPlace};
use ringmark_core::line::log::Log;
use ringmark_core::validity::ForeignLoad;

use crate::read::load::device_rates::DeviceRates;
use crate::read::load::environment::{self, EnvironmentText};
use crate::read::load::folder::FoundRun;
use crate::read::load::log;
use crate::read::load::problem::Problem;
use crate::read::load::record;

/// A record whose runs have figures.
pub trait Readable: SweepRecord<Config: Clone + Debug + PartialEq> + Clone + Debug + PartialEq {
    /// Fields that only records of this benchmark contain.
    type Facts: Clone + Debug + PartialEq;
    /// Figures that only this benchmark has.
    type Figures: Clone + Debug + PartialEq;

    /// Returns the configuration, with defaults for everything that may differ between two runs of one measurement.
    fn shared_config(&self, warmup: Option<u32>) -> Self::Config;

    /// Returns the fields that only this record contains.
    fn facts(&self) -> Self::Facts;

    /// Adds the fields that only this record contains to a description.
    fn add_facts(_facts: &Self::Facts, _all: &mut EnvironmentText) {}

    /// Computes the figures of a run that did not fail, or returns the reason why it does not count.
    fn measure(
        found: &FoundRun,
        log: Log,
        record: Option<Self>,
        warmup: Option<u32>,
    ) -> Result<Measured<Self>, Problem>;
}

/// A run in a folder, counted or not.
#[derive(Debug, Clone, PartialEq)]
pub struct Run<R: Readable = RunRecord> {
    /// Name of the run and path of its log.
    pub found: FoundRun,
    /// Contents of its record; `None` without a readable record (DLPerf's logs have none).
    pub recorded: Option<Recorded<R>>,
    /// Figures, or the reason why there are none.
    pub outcome: Result<Measured<R>, Problem>,
}

/// Contents of a run's record.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded<R: Readable = RunRecord> {
    /// Conditions that must be equal for two runs to be compared.
    pub conditions: RecordedConditions<R::Config>,
    /// Location of each rank.
    pub ranks: Vec<RankPlace>,
    /// Versions of the software.
    pub software: String,
    /// Environment as recorded by rank 0.
    pub environment: Environment,
    /// Start in seconds since 1970 UTC.
    pub started: Seconds,
    /// Fields that only this benchmark records.
    pub facts: R::Facts,
}

/// Conditions that two runs of one measurement share.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedConditions<C = TrainConfig> {
    /// Kind of every rank's device.
    pub device: DeviceKind,
    /// Profile of the run.
    pub profile: RunProfile,
    /// Options of the run, with defaults for those that may differ.
    pub config: C,
}

/// Figures of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured<R: Readable = RunRecord> {
    /// Images/s of all ranks.
    pub speed: UnitsPerSecond,
    /// Peak memory of the rank that used most: tensor memory on a GPU, resident memory on the CPU. `None` if no record
    /// contains it.
    pub peak_memory: Option<Bytes>,
    /// Arithmetic rates of the devices, as far as a record contains them.
    pub device_rates: DeviceRates,
    /// Resource usage of every host during the run; empty if no record contains it.
    pub host_use: Vec<HostUse>,
    /// Core time that other processes and virtual machines used; `None` if no record contains it.
    pub foreign_load: Option<ForeignLoad>,
    /// Warnings, recomputed from the record; empty without one.
    pub warnings: Vec<Warning>,
    /// Figures that only this benchmark has.
    pub figures: R::Figures,
}

impl<R: Readable> Run<R> {
    /// Reads the run at `root`/`found.log`; `warmup` overrides the value of the record (or of DLPerf).
    pub fn read(root: &Path, found: &FoundRun, warmup: Option<u32>) -> Run<R> {
        Run::judge(found, log::read(root, &found.log), record::read_for_log(root, &found.log), warmup)
    }

    /// Evaluates a run by its log and its record; `Ok(None)` if there is no record.
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

    /// Returns the mean time of an iteration, which at the run's speed gives the work of an iteration. `None` if the run
    /// does not count.
    pub fn mean_iteration(&self) -> Option<Seconds> {
        let work = self.found.name.batch.work(self.found.name.case);
        Some(Seconds(work / self.outcome.as_ref().ok()?.speed.0))
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
            software: environment::software(environment),
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
        environment::device_names(&self.ranks)
    }
}

/// Describes the hardware and software of the runs that count; empty for runs without a record.
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
