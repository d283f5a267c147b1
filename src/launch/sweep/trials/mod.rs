//! Short jobs before a sweep that determine its configuration; they are not part of its results. Each is started and
//! ended like any other job, so that nothing of it remains.
//!
//! | module | contents |
//! |---|---|
//! | [`batch_search`] | `--batch-size auto`: the largest batch that fits |
//! | [`strategy_search`] | `--autotune-over`: the fastest exchange |
//! | [`tuned_option`] | an option that is tuned, and its values; pure |

pub mod batch_search;
pub mod strategy_search;
pub mod tuned_option;

use std::path::Path;
use std::time::Duration;

use ringmark_core::benchmark::{BenchmarkKind, Record};
use ringmark_core::file::run_name::{self, RunName};

use crate::launch::job::job_launch::JobFiles;
use crate::launch::job::launcher::LaunchConfig;
use crate::launch::sweep::axes_sweep::files_in;
use crate::launch::sweep::benchmark::{
    Benchmark, EndedJob, Follower, JobOutcome, PlanContext, PlannedJob, Report, SessionRules,
};
use crate::launch::sweep::cost::JobCost;
use crate::launch::sweep::folder;
use crate::launch::sweep::live::Live;
use crate::launch::sweep::session::{self, RestartConfig, SessionConfig};

/// Creates the job of a trial with this name and these files.
pub type PlanTrial<'a> = &'a dyn Fn(RunName, JobFiles, PlanContext) -> PlannedJob;

/// Reads the result from the record of a trial, or explains why there is none.
pub type TrialFigures<'a, R, F> = &'a dyn Fn(R) -> Result<F, String>;

/// A trial job.
pub struct TrialJob<'a, R, F> {
    /// Benchmark of the job.
    pub kind: BenchmarkKind,
    /// Title in messages.
    pub title: String,
    /// Name of the run within `out`.
    pub run: RunName,
    /// Folder of the trial.
    pub out: &'a Path,
    /// Creates the job.
    pub job: PlanTrial<'a>,
    /// Reads the result of the job.
    pub figures: TrialFigures<'a, R, F>,
    /// Describes the result.
    pub sentence: fn(&F) -> String,
    /// Publishes its progress.
    pub live: &'a Live,
}

impl<R: Record, F> TrialJob<'_, R, F> {
    /// Runs the trial after moving files of an earlier one aside; `None` if its device has too little memory.
    pub fn run(&self, launch: &LaunchConfig) -> anyhow::Result<Option<F>> {
        let JobFiles { log, record } = files_in(self.out, self.run)?;
        folder::rename_earlier(&[run_name::unfinished_log_path(&log), log, record])?;
        let session = SessionConfig {
            cases: &[self.run.case],
            launch,
            out: self.out,
            resume: false,
            repeat: &[],
            cooldown: Duration::ZERO,
            restarts: &RestartConfig::NONE,
            live: self.live,
        };
        Ok(session::run(session, self)?.into_iter().find_map(|ended| match ended.outcome {
            JobOutcome::Sound(figures) => Some(figures),
            _ => None,
        }))
    }
}

/// Follower that ignores all output: a trial is too short to display.
pub struct NoFollower;

impl Follower for NoFollower {
    fn line(&mut self, _: &[u8]) -> anyhow::Result<()> {
        Ok(())
    }
}

impl<R: Record, F> Benchmark for TrialJob<'_, R, F> {
    type Record = R;
    type Figures = F;
    type Follower = NoFollower;

    fn kind(&self) -> BenchmarkKind {
        self.kind
    }

    fn plan(&self, context: PlanContext) -> anyhow::Result<Vec<PlannedJob>> {
        let job = (self.job)(self.run, files_in(self.out, self.run)?, context);
        // The trial itself determines its cost.
        Ok(vec![PlannedJob { title: self.title.clone(), cost: JobCost::EQUAL, ..job }])
    }

    fn rules(&self) -> SessionRules {
        SessionRules { is_trial: true, expects_shortage: true, ..SessionRules::default() }
    }

    fn follow(&self, _: &PlannedJob) -> NoFollower {
        NoFollower
    }

    fn figures(&self, record: R, _: Option<NoFollower>) -> Result<F, String> {
        (self.figures)(record)
    }

    fn report(&self, ended: &[EndedJob<F>]) -> Report {
        let figures = ended.last().and_then(|ended| ended.outcome.figures());
        let sentence = figures.map(|figures| format!("{}: {}", self.title, (self.sentence)(figures)));
        Report { run: None, lines: sentence.into_iter().collect() }
    }
}
