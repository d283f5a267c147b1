//! Interface between a session and a benchmark: jobs, records, figures and printed lines. A benchmark is a
//! configuration that implements [`Benchmark`]; [`session`](crate::launch::sweep::session) runs its jobs.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::bail;
use ringmark_core::benchmark::train::{Interruption, RestartHistory};
use ringmark_core::benchmark::{BenchmarkKind, Record};
use ringmark_core::dimension::{Case, Seconds};
use ringmark_core::file::run_name::RunName;
use ringmark_core::host::MemoryShortage;
use ringmark_core::manifest::Conditions;
use ringmark_core::progress::{FinishedRun, JobProgress};

use crate::launch::job::job_launch::{JobFiles, ServerRanks};
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::sweep::cost::JobCost;
use crate::output::message::Printer;

/// One job of a plan, independent of how it is launched. A
/// [`JobLaunch`](crate::launch::job::job_launch::JobLaunch) launches it, and an [`EndedJob`] has its outcome.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedJob {
    /// Title in messages: `1n2g run 3 of 5`.
    pub title: String,
    /// Line printed before it starts.
    pub announcement: Option<String>,
    /// Number of nodes, and of ranks on each.
    pub case: Case,
    /// Name in the manifest; `None` for a benchmark without one.
    pub run: Option<RunName>,
    /// CPU threads of a rank, if known.
    pub threads: Option<u32>,
    /// Server processes in addition to the ranks.
    pub servers: ServerRanks,
    /// Files and folders that every rank reads.
    pub data: Vec<PathBuf>,
    /// Log and record of the job.
    pub files: JobFiles,
    /// Checkpoint, if the job writes one.
    pub checkpoint: Option<JobCheckpoint>,
    /// Earlier attempts, if the job is started again.
    pub restarts: Option<RestartHistory>,
    /// The worker's command and options.
    pub arguments: Vec<String>,
    /// Estimated cost.
    pub cost: JobCost,
}

impl PlannedJob {
    /// Returns a job with the default cost, without a name in a manifest, servers or data.
    pub fn new(title: String, case: Case, files: JobFiles, arguments: Vec<String>) -> PlannedJob {
        PlannedJob {
            title,
            announcement: None,
            case,
            run: None,
            threads: None,
            servers: ServerRanks::default(),
            data: Vec::new(),
            files,
            checkpoint: None,
            restarts: None,
            arguments,
            cost: JobCost::EQUAL,
        }
    }
}

/// The checkpoint of a job, which exists until the job is finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobCheckpoint {
    /// Path that the ranks write to.
    pub file: PathBuf,
    /// True if an earlier attempt left the file, and the job continues from it.
    pub is_resumed: bool,
}

impl JobCheckpoint {
    /// Removes the file if it exists.
    pub fn remove(&self) -> anyhow::Result<()> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                bail!("cannot remove checkpoint {}: {error}: remove it by hand", self.file.display())
            }
            _ => Ok(()),
        }
    }
}

/// Inputs of a plan other than the configuration.
#[derive(Debug, Clone, Copy)]
pub struct PlanContext<'a> {
    /// Environment of this machine.
    pub environment: &'a LaunchEnvironment,
    /// Conditions of the sweep that is resumed.
    pub resumed: Option<&'a Conditions>,
    /// True if a job of this session is started again.
    pub is_restart: bool,
}

/// Follows a job while it runs.
pub trait Follower {
    /// Processes the next line, with its newline; an error ends the job.
    fn line(&mut self, line: &[u8]) -> anyhow::Result<()>;

    /// Updates the progress of the job, twice a second; returns the remaining time if known. If it sets the number of
    /// iterations, a progress line is printed now and then.
    fn observe(&mut self, job: &mut JobProgress, now: Instant) -> Option<Duration> {
        let _ = (job, now);
        None
    }
}

/// Reason why a job does not count, as a sentence for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The user interrupted the job: nothing else is printed.
    Interrupted(String),
    /// The path of the log is printed too.
    Explained(String),
    /// No rank gave a reason: the end of the log is printed too.
    Unexplained(String),
}

impl Failure {
    /// Returns the sentence.
    pub fn reason(&self) -> &str {
        match self {
            Failure::Interrupted(reason) | Failure::Explained(reason) | Failure::Unexplained(reason) => reason,
        }
    }
}

/// Outcome of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum JobOutcome<F> {
    /// The job counts.
    Sound(F),
    /// The figures miss the user's minimum, with the reason. The remaining jobs still run.
    Missed(F, String),
    /// The device has too little memory for the batch, which is a result if smaller batches run as well.
    OutOfMemory(MemoryShortage),
    /// The job does not count, and no job runs after it.
    Failed(Failure),
}

impl<F> JobOutcome<F> {
    /// Returns the figures, if there are any.
    pub fn figures(&self) -> Option<&F> {
        match self {
            JobOutcome::Sound(figures) | JobOutcome::Missed(figures, _) => Some(figures),
            JobOutcome::OutOfMemory(_) | JobOutcome::Failed(_) => None,
        }
    }

    /// Returns the reason for a failure.
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
    /// Plan of the job.
    pub job: PlannedJob,
    /// Duration; `None` if it is unknown.
    pub took: Option<Duration>,
    /// True if an earlier session ran it.
    pub is_earlier: bool,
    /// Outcome of the job.
    pub outcome: JobOutcome<F>,
    /// Set if a rank, a process or a host was lost: the job may be started again.
    pub loss: Option<JobLoss>,
}

impl<F> EndedJob<F> {
    /// Returns a job that was not interrupted.
    pub fn new(job: PlannedJob, took: Option<Duration>, is_earlier: bool, outcome: JobOutcome<F>) -> EndedJob<F> {
        EndedJob { job, took, is_earlier, outcome, loss: None }
    }
}

/// Loss of a rank, a process or a host during a job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobLoss {
    /// Start of the job, seconds since 1970 UTC.
    pub started: Seconds,
    /// Cause and times.
    pub interruption: Interruption,
    /// Start and load times of this job after the interruption before, if training continued.
    pub continued: Option<[Seconds; 2]>,
    /// Hosts that the watchdog names.
    pub suspects: Vec<String>,
}

/// Output for a job that counts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// Row of the table.
    pub run: Option<FinishedRun>,
    /// Lines below it.
    pub lines: Vec<String>,
}

/// Rules for a benchmark's jobs and messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionRules {
    /// Destination of messages.
    pub printer: Printer,
    /// True if its jobs are trials that precede the requested ones.
    pub is_trial: bool,
    /// True if the output of its jobs is shown: a failure then does not repeat the end of the log.
    pub shows_output: bool,
    /// True if too little memory for a batch is a result, because smaller ones run as well.
    pub expects_shortage: bool,
}

/// A benchmark.
pub trait Benchmark {
    /// Record that rank 0 writes.
    type Record: Record;
    /// Figures kept of a job for the printed lines.
    type Figures;
    /// Follows a job's output.
    type Follower: Follower;

    /// Returns the kind of benchmark.
    fn kind(&self) -> BenchmarkKind;

    /// Returns how a session treats its jobs and messages.
    fn rules(&self) -> SessionRules {
        SessionRules::default()
    }

    /// Plans every job, in the order in which they run.
    fn plan(&self, context: PlanContext) -> anyhow::Result<Vec<PlannedJob>>;

    /// Returns the lines before the commands of a dry run, if the benchmark keeps no manifest.
    fn plan_lines(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the benchmark if it keeps a manifest.
    fn resumable(&self) -> Option<&dyn Resumable<Record = Self::Record>> {
        None
    }

    /// Follows the output of `job`.
    fn follow(&self, job: &PlannedJob) -> Self::Follower;

    /// Returns the figures of a job that succeeded, or why there are none. A job of an earlier session has no follower.
    fn figures(&self, record: Self::Record, follower: Option<Self::Follower>) -> Result<Self::Figures, String>;

    /// Reports the last job of `ended`, which counts.
    fn report(&self, ended: &[EndedJob<Self::Figures>]) -> Report {
        let _ = ended;
        Report::default()
    }

    /// Prints the summary after the last job, or after the one that failed; `is_complete` is true if each job of the plan
    /// counts, except those that ran out of memory.
    fn finish(&self, ended: &[EndedJob<Self::Figures>], is_complete: bool) -> anyhow::Result<()> {
        let _ = (ended, is_complete);
        Ok(())
    }
}

/// A benchmark that keeps a manifest, so that `--resume` can continue it.
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

    /// Returns the time of all iterations of a finished run.
    fn time_of_iterations(&self, record: &Self::Record) -> Option<Seconds>;
}
