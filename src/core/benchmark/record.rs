//! Interfaces shared by the records of all benchmarks.

use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use schemars::{JsonSchema, Schema, schema_for};

use crate::benchmark::warning::Warning;
use crate::benchmark::{BenchmarkKind, RunProfile};
use crate::dimension::{Case, Seconds};
use crate::file::atomic_file;
use crate::file::run_name::{Point, RunName};
use crate::host::{Environment, Observed, RankPlace};
use crate::options::option_table::Options;

/// Identification of a run in its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLabel {
    /// Nodes and ranks per node, as launched.
    pub case: Case,
    /// Number of the run in its case, from 1.
    pub run: u32,
    /// Profile of the run.
    pub profile: RunProfile,
}

impl RunLabel {
    /// Name of the worker's option for the case.
    pub const CASE: &str = "case";
    /// Name of the worker's option for the number of the run.
    pub const RUN: &str = "run";
    /// Name of the worker's flag for the quick profile.
    pub const QUICK: &str = "quick";

    /// Returns the worker's arguments for this label.
    pub fn arguments(self) -> Vec<String> {
        let option = |name: &str| format!("--{name}");
        let mut arguments = vec![option(Self::CASE), self.case.to_string(), option(Self::RUN), self.run.to_string()];
        arguments.extend((self.profile == RunProfile::Quick).then(|| option(Self::QUICK)));
        arguments
    }
}

/// Fields that every record contains, regardless of the benchmark.
#[derive(Debug, Clone, Copy)]
pub struct RecordHead<'a> {
    /// Start of the run, seconds since 1970 UTC.
    pub started: Seconds,
    /// Software and hardware of rank 0.
    pub environment: &'a Environment,
    /// Location and device of every rank.
    pub ranks: &'a [RankPlace],
}

/// Record of a run of any benchmark.
pub trait Record: Sized {
    /// Value of the first field, which identifies the file format.
    const KIND: &'static str;

    /// Reads and checks a record.
    fn read(input: impl BufRead) -> anyhow::Result<Self>;

    /// Reads and checks the record in a file, which must be that of a valid run.
    fn read_valid(file: &Path) -> anyhow::Result<Self> {
        let input = BufReader::new(atomic_file::open(file).context("the record cannot be read")?);
        let record = Self::read(input).context("the record cannot be used")?;
        record.check_valid()?;
        Ok(record)
    }

    /// Returns the fields that every record contains.
    fn head(&self) -> RecordHead<'_>;

    /// Returns the reason the run is not valid; `None` for a valid one.
    fn failure(&self) -> Option<String>;

    /// Fails with the reason if the run is not valid.
    fn check_valid(&self) -> anyhow::Result<()> {
        self.failure().map_or(Ok(()), |failure| bail!("the run failed: {failure}: repeat it"))
    }

    /// Returns the use of hosts and ranks during the run; `None` if it did not end.
    fn observed(&self) -> Option<Observed<'_>>;

    /// Returns the warnings about the figures of a valid run.
    fn warnings(&self) -> &[Warning];

    /// Returns true if the run failed only because its figures miss a minimum set by the user.
    fn is_miss(&self) -> bool {
        false
    }
}

/// Format of a benchmark's record.
#[expect(missing_docs, reason = "field names are self-explanatory")]
pub struct RecordFormat {
    pub benchmark: BenchmarkKind,
    /// Kind in the header of its files.
    pub kind: &'static str,
    pub name: &'static str,
    /// JSON Schema of a file, or of a line of it.
    pub schema: fn() -> Schema,
    /// Files in a folder of results; `None` for a benchmark with sweeps.
    pub folder: Option<RecordFolder>,
}

/// Files of a benchmark without sweeps in a folder of results.
pub struct RecordFolder {
    /// Returns true for a path, relative to the folder, that only this benchmark writes.
    pub has_file: fn(&Path) -> bool,
    /// Returns true for a file name of this benchmark, in any folder.
    pub has_name: fn(&Path) -> bool,
    /// Description of the folder for an error: `a result of ..`.
    pub description: &'static str,
}

impl RecordFormat {
    /// Returns the format of a record that is one document; `name` is that of its schema.
    pub const fn document<R: Record + JsonSchema>(
        benchmark: BenchmarkKind,
        name: &'static str,
        folder: Option<RecordFolder>,
    ) -> RecordFormat {
        RecordFormat { benchmark, kind: R::KIND, name, schema: || schema_for!(R), folder }
    }

    /// Returns true if `path`, relative to a folder of results, is a file of this benchmark, which has no sweeps.
    pub fn has_file(&self, path: &Path) -> bool {
        self.folder.as_ref().is_some_and(|folder| (folder.has_file)(path))
    }
}

/// Record of one run of a sweep over axes.
pub trait SweepRecord: Record {
    /// Configuration type of the benchmark.
    type Config: Options;

    /// Returns the configuration of the run.
    fn config(&self) -> &Self::Config;

    /// Returns the start and the end of the last iteration, seconds since 1970 UTC. The duration excludes the time
    /// before the first iteration.
    fn period(&self) -> [Seconds; 2];

    /// Returns the identification of the run.
    fn label(&self) -> RunLabel;

    /// Returns the part of the configuration that the run's name repeats.
    fn point(&self) -> Point;

    /// Checks that this record is a valid record for a run of this name. Fails if the run failed, the record belongs to
    /// another run, or its ranks do not match its case.
    fn check(&self, name: &RunName) -> anyhow::Result<()> {
        self.check_valid()?;
        let (case, point) = (self.label().case, self.point());
        ensure!(
            case == name.case && point.is_named(name.point()),
            "contains case {case}, {point}, but has another file name: restore the original name"
        );
        let ranks = self.head().ranks;
        ensure!(ranks.len() == case.ranks() as usize, "{} ranks ran in case {case}: repeat the run", ranks.len());
        if let Some((place, rank)) = (0..).zip(ranks).find(|(place, rank)| rank.rank != *place) {
            bail!("expected rank {place}, found rank {}: repeat the run", rank.rank);
        }
        ensure!(
            ranks.iter().all(|rank| rank.device == ranks[0].device),
            "some ranks ran on the CPU and some on GPUs: repeat the run with --device cpu or cuda"
        );
        self.check_place(name)
    }

    /// Checks that a run of this name can belong to this benchmark.
    fn check_place(&self, name: &RunName) -> anyhow::Result<()>;
}
