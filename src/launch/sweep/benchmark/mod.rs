//! What a session has to know of a benchmark: which jobs there are, how a record is read, what counts, what is printed. A
//! benchmark is a value of its configuration that implements [`Benchmark`]; all that surrounds its jobs is
//! [`session`](crate::launch::sweep::session)'s.
//!
//! | module | what it is for |
//! |---|---|
//! | [`train`] | the benchmark of training |
//! | [`score`] | the benchmark of inference |
//! | [`bandwidth`] | the benchmark of all-reduce alone |
//! | [`axes_sweep`] | what benchmarks over axes have in common |

pub mod axes_sweep;
pub mod bandwidth;
pub mod score;
pub mod train;

use std::collections::BTreeMap;
use std::time::Duration;

use ringmark_record::benchmark::{BenchmarkKind, Record};
use ringmark_record::dimension::case::Case;
use ringmark_record::file::run_name::RunName;
use ringmark_record::manifest::Conditions;

use crate::launch::job::planned::JobFiles;
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::local::print::Printer;

/// One job of a plan, before it is known how it is launched.
#[derive(Debug, Clone, PartialEq)]
pub struct JobPlan {
    /// What messages call it: `1n2g run 3 of 5`.
    pub title: String,
    /// Shape.
    pub case: Case,
    /// Its name in the manifest; `None` of a benchmark that keeps none.
    pub run: Option<RunName>,
    /// CPU threads of a rank, where they are known.
    pub threads: Option<u32>,
    /// What it leaves.
    pub files: JobFiles,
    /// The worker's command and options.
    pub arguments: Vec<String>,
}

/// What a plan depends on besides the configuration.
#[derive(Debug, Clone, Copy)]
pub struct PlanContext<'a> {
    /// This machine.
    pub environment: &'a LaunchEnvironment,
    /// What the sweep was begun with that is resumed.
    pub begun: Option<&'a Conditions>,
}

/// How far a session is when a job starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SessionProgress {
    /// Number of this job among those that run, from 1.
    pub number: usize,
    /// How many run.
    pub of: usize,
    /// What this one will take and what those after it will, where any was measured.
    pub expected: Option<ExpectedTime>,
}

/// Times by the mean of the jobs before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedTime {
    /// Of this job.
    pub job: Duration,
    /// Of all that follow it.
    pub rest: Duration,
}

/// Follows a job's output.
pub trait Follower {
    /// Takes the next line, with its newline; an error ends the job.
    fn line(&mut self, line: &[u8]) -> anyhow::Result<()>;

    /// The job has ended: clears what is shown of it.
    fn finish(&mut self);
}

/// What came of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum JobOutcome<F> {
    /// It counts.
    Sound(F),
    /// It has figures that miss what the user demanded; and the reason. The jobs after it run all the same.
    Missed(F, String),
    /// It does not count, and why. No job runs after it.
    Failed(String),
}

impl<F> JobOutcome<F> {
    /// Its figures.
    pub fn figures(&self) -> Option<&F> {
        match self {
            JobOutcome::Sound(figures) | JobOutcome::Missed(figures, _) => Some(figures),
            JobOutcome::Failed(_) => None,
        }
    }

    /// Why it does not pass.
    pub fn failure(&self) -> Option<&str> {
        match self {
            JobOutcome::Sound(_) => None,
            JobOutcome::Missed(_, reason) | JobOutcome::Failed(reason) => Some(reason),
        }
    }
}

/// A job that ran.
#[derive(Debug, Clone, PartialEq)]
pub struct EndedJob<F> {
    /// As it was planned.
    pub job: JobPlan,
    /// How long it ran.
    pub took: Duration,
    /// What came of it.
    pub outcome: JobOutcome<F>,
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

    /// Refuses what cannot work, before anything is looked at.
    fn check(&self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Where its messages go.
    fn printer(&self) -> Printer {
        Printer { mark: "", to_error: false }
    }

    /// Every job in the order in which they run.
    fn plan(&self, context: PlanContext) -> anyhow::Result<Vec<JobPlan>>;

    /// Its options on which figures depend, by name, for a manifest by which `--resume` goes on; `None` where it keeps no
    /// manifest. Those of [`AXIS_OPTIONS`](crate::launch::sweep::plan::AXIS_OPTIONS) may hold several values.
    fn conditions(&self, context: PlanContext) -> Option<BTreeMap<String, String>>;

    /// What a dry run says before the commands, and a session with [`start`](Benchmark::start) too.
    fn caution(&self) -> Option<&'static str> {
        None
    }

    /// Lines before the first job.
    fn start(&self, context: PlanContext) -> Vec<String>;

    /// A line before each job.
    fn announce(&self, job: &JobPlan) -> Option<String> {
        let _ = job;
        None
    }

    /// Follows the output of `job`.
    fn follow(&self, job: &JobPlan, progress: SessionProgress) -> Self::Follower;

    /// Whether the output of its jobs is shown, so that the end of the log need not be where one fails.
    fn shows_output(&self) -> bool {
        false
    }

    /// The figures of a job that ended well, or why it has none.
    fn figures(&self, record: Self::Record, follower: Self::Follower) -> Result<Self::Figures, String>;

    /// Whether `failure` of a record is only that its figures miss what the user demanded.
    fn is_miss(&self, job: &JobPlan, record: &Self::Record, failure: &str) -> bool {
        let _ = (job, record, failure);
        false
    }

    /// The log and record of a finished run, both there and whole; or what is wrong with them.
    fn check_finished(&self, run: RunName) -> Result<Self::Record, String>;

    /// Lines for the last of `ended`, which counts.
    fn report(&self, ended: &[EndedJob<Self::Figures>]) -> Vec<String>;

    /// After the last job, or the one that failed: prints what all of them say. `planned` are all jobs of the plan,
    /// `is_complete` says that each of them counts.
    fn finish(&self, planned: &[JobPlan], ended: &[EndedJob<Self::Figures>], is_complete: bool) -> anyhow::Result<()>;
}
