//! Interface between a session and a benchmark: jobs, records, figures and printed lines. A benchmark is its configuration,
//! which implements [`Benchmark`]; [`session`](crate::launch::sweep::session) runs the jobs.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::bail;
use ringmark_core::benchmark::{BenchmarkKind, Record};
use ringmark_core::dimension::Case;
use ringmark_core::file::run_name::RunName;
use ringmark_core::host::MemoryShortage;
use ringmark_core::manifest::Conditions;
use ringmark_core::progress::{FinishedRun, JobProgress};

use crate::launch::job::request::{JobFiles, ServerRanks};
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::local::print::Printer;
use crate::launch::sweep::cost::JobCost;

/// One job of a plan, before it is known how it is launched.
#[derive(Debug, Clone, PartialEq)]
pub struct JobPlan {
    /// What messages call it: `1n2g run 3 of 5`.
    pub title: String,
    /// Line that is printed before it starts.
    pub announcement: Option<String>,
    /// Shape.
    pub case: Case,
    /// Its name in the manifest; `None` of a benchmark that keeps none.
    pub run: Option<RunName>,
    /// CPU threads of a rank, where they are known.
    pub threads: Option<u32>,
    /// Processes beside the ranks.
    pub servers: ServerRanks,
    /// Files and folders that every rank reads.
    pub data: Vec<PathBuf>,
    /// What it leaves.
    pub files: JobFiles,
    /// Of one that writes checkpoints.
    pub checkpoint: Option<JobCheckpoint>,
    /// The worker's command and options.
    pub arguments: Vec<String>,
    /// What it will take.
    pub cost: JobCost,
}

impl JobPlan {
    /// A job of equal cost to all others, without name in a manifest, servers and data.
    pub fn new(title: String, case: Case, files: JobFiles, arguments: Vec<String>) -> JobPlan {
        JobPlan {
            title,
            announcement: None,
            case,
            run: None,
            threads: None,
            servers: ServerRanks::default(),
            data: Vec::new(),
            files,
            checkpoint: None,
            arguments,
            cost: JobCost::EQUAL,
        }
    }
}

/// The checkpoint of a job, which is there until the job is finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobCheckpoint {
    /// Where the ranks write it.
    pub file: PathBuf,
    /// Whether an earlier attempt left it, and the job goes on from it.
    pub is_taken_up: bool,
}

impl JobCheckpoint {
    /// Removes the file, where it is there.
    pub fn remove(&self) -> anyhow::Result<()> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                bail!("checkpoint {} cannot be removed: {error}: remove it", self.file.display())
            }
            _ => Ok(()),
        }
    }
}

/// What a plan depends on besides the configuration.
#[derive(Debug, Clone, Copy)]
pub struct PlanContext<'a> {
    /// This machine.
    pub environment: &'a LaunchEnvironment,
    /// What the sweep was begun with that is resumed.
    pub begun: Option<&'a Conditions>,
}

/// Follows a job while it runs.
pub trait Follower {
    /// Takes the next line, with its newline; an error ends the job.
    fn line(&mut self, line: &[u8]) -> anyhow::Result<()>;

    /// Adds to what is known of the job, twice a second; how long it will go on, where that is known. Where it fills in
    /// how many iterations there are, a line of it is printed now and then.
    fn look(&mut self, job: &mut JobProgress, now: Instant) -> Option<Duration> {
        let _ = (job, now);
        None
    }
}

/// Why a job does not count, as a sentence for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The user interrupted the job: nothing else is shown.
    Interrupted(String),
    /// The path of the log is shown too.
    Explained(String),
    /// No rank gave a reason: the end of the log is shown too.
    Unexplained(String),
}

impl Failure {
    /// The sentence.
    pub fn reason(&self) -> &str {
        match self {
            Failure::Interrupted(reason) | Failure::Explained(reason) | Failure::Unexplained(reason) => reason,
        }
    }
}

/// What came of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum JobOutcome<F> {
    /// It counts.
    Sound(F),
    /// It has figures that miss what the user demanded; and the reason. The jobs after it run all the same.
    Missed(F, String),
    /// Its device has no memory for its batch, which is a result where others run with smaller ones.
    OutOfMemory(MemoryShortage),
    /// It does not count. No job runs after it.
    Failed(Failure),
}

impl<F> JobOutcome<F> {
    /// Its figures.
    pub fn figures(&self) -> Option<&F> {
        match self {
            JobOutcome::Sound(figures) | JobOutcome::Missed(figures, _) => Some(figures),
            JobOutcome::OutOfMemory(_) | JobOutcome::Failed(_) => None,
        }
    }

    /// Why it does not pass.
    pub fn failure(&self) -> Option<&str> {
        match self {
            JobOutcome::Sound(_) | JobOutcome::OutOfMemory(_) => None,
            JobOutcome::Missed(_, reason) => Some(reason),
            JobOutcome::Failed(failure) => Some(failure.reason()),
        }
    }
}

/// A job that ran.
#[derive(Debug, Clone, PartialEq)]
pub struct EndedJob<F> {
    /// As it was planned.
    pub job: JobPlan,
    /// Time that it ran; `None` if an earlier session ran it.
    pub took: Option<Duration>,
    /// What came of it.
    pub outcome: JobOutcome<F>,
}

/// The output about a job that has ended and counts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// Its row of the table.
    pub run: Option<FinishedRun>,
    /// Lines below it.
    pub lines: Vec<String>,
}

/// How a session treats the jobs and messages of a benchmark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionRules {
    /// Where messages go.
    pub printer: Printer,
    /// True if its jobs precede those that the user asked for.
    pub is_trial: bool,
    /// True if the output of its jobs is shown: a failure then does not repeat the end of the log.
    pub shows_output: bool,
    /// True if too little memory for a batch is a result, because smaller ones run as well.
    pub expects_shortage: bool,
}

/// A benchmark.
pub trait Benchmark {
    /// What rank 0 writes.
    type Record: Record;
    /// What is kept of a job for the lines that are printed.
    type Figures;
    /// Follows a job's output.
    type Follower: Follower;

    /// Which one it is.
    fn kind(&self) -> BenchmarkKind;

    /// Returns how a session treats its jobs and messages.
    fn rules(&self) -> SessionRules {
        SessionRules::default()
    }

    /// Every job in the order in which they run.
    fn plan(&self, context: PlanContext) -> anyhow::Result<Vec<JobPlan>>;

    /// The benchmark as one that keeps a manifest; `None` if it keeps none.
    fn resumable(&self) -> Option<&dyn Resumable<Record = Self::Record>> {
        None
    }

    /// Follows the output of `job`.
    fn follow(&self, job: &JobPlan) -> Self::Follower;

    /// The figures of a job that ended well, or why it has none. A job of an earlier session has no follower.
    fn figures(&self, record: Self::Record, follower: Option<Self::Follower>) -> Result<Self::Figures, String>;

    /// Reports the last job of `ended`, which counts.
    fn report(&self, ended: &[EndedJob<Self::Figures>]) -> Report {
        let _ = ended;
        Report::default()
    }

    /// After the last job, or the one that failed: prints what all of them say. `planned` are all jobs of the plan but those
    /// without memory, `is_complete` says that each of them counts.
    fn finish(&self, planned: &[JobPlan], ended: &[EndedJob<Self::Figures>], is_complete: bool) -> anyhow::Result<()>;
}

/// A benchmark of many jobs that keeps a manifest, by which `--resume` continues it.
pub trait Resumable {
    /// Record of a job.
    type Record: Record;

    /// Returns the options on which figures depend, by name. Those of
    /// [`AXIS_OPTIONS`](crate::launch::sweep::plan::AXIS_OPTIONS) may hold several values.
    fn conditions(&self, context: PlanContext) -> BTreeMap<String, String>;

    /// Returns the lines before the first job.
    fn header_lines(&self, context: PlanContext) -> Vec<String>;

    /// Returns the line that ends the header, and precedes the commands of a dry run.
    fn warning(&self) -> Option<&'static str>;

    /// Reads the log and record of a finished run. The error describes what is missing or wrong.
    fn check_finished(&self, run: RunName) -> Result<Self::Record, String>;
}
