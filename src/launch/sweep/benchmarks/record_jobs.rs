//! Benchmarks whose results are records of their own: each job writes one. Standard output is that of the jobs, and added
//! lines begin with `#`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ringmark_core::benchmark::{BenchmarkKind, Record};
use ringmark_core::dimension::Case;

use crate::launch::job::launcher::LaunchConfig;
use crate::launch::local::results_folder;
use crate::launch::sweep::benchmark::{Benchmark, EndedJob, PlanContext, PlannedJob, SessionRules};
use crate::launch::sweep::benchmarks::output_filter::OutputFilter;
use crate::launch::sweep::live::Live;
use crate::launch::sweep::session::{self, RestartConfig, SessionConfig};
use crate::output::message::Printer;

/// The jobs of a command, all planned, with what is printed after them.
pub struct RecordJobs<'a, R> {
    pub kind: BenchmarkKind,
    /// Hosts and launch settings.
    pub launch: &'a LaunchConfig,
    /// Folder of logs and records.
    pub out: &'a PathBuf,
    pub jobs: Vec<PlannedJob>,
    /// Lines of a dry run.
    pub plan: Vec<String>,
    /// True if the standard output has the figures as JSON instead: the output of the jobs is not shown, and messages go to
    /// standard error.
    pub is_json: bool,
    pub conclude: Conclusion<'a, R>,
}

/// Function that prints the results of the jobs.
pub type Conclusion<'a, R> = Box<dyn Fn(&[EndedJob<R>], Printer) -> anyhow::Result<()> + 'a>;

impl<R: Record> RecordJobs<'_, R> {
    /// Runs the jobs one after the other, or prints their commands.
    pub fn run(&self) -> anyhow::Result<()> {
        let RecordJobs { launch, out, .. } = *self;
        let cases: Vec<Case> = self.jobs.iter().map(|job| job.case).collect();
        Live::during((self.kind, self.rules().printer), launch, out, |live| {
            let (repeat, cooldown, restarts) = (&[], Duration::ZERO, &RestartConfig::NONE);
            let config = SessionConfig { cases: &cases, launch, out, resume: false, repeat, cooldown, restarts, live };
            session::run(config, self)
        })?;
        Ok(())
    }
}

/// Returns the line printed before a job, which measures `what`.
pub fn announcement(what: &str, log: &Path) -> Option<String> {
    Some(format!("{what}, log: {}", log.display()))
}

impl<R: Record> Benchmark for RecordJobs<'_, R> {
    type Record = R;
    type Figures = R;
    type Follower = OutputFilter;

    fn kind(&self) -> BenchmarkKind {
        self.kind
    }

    fn rules(&self) -> SessionRules {
        let printer = Printer { mark: "# ", to_error: self.is_json };
        SessionRules { printer, shows_output: true, ..SessionRules::default() }
    }

    fn plan(&self, _: PlanContext) -> anyhow::Result<Vec<PlannedJob>> {
        Ok(self.jobs.clone())
    }

    fn plan_lines(&self) -> Vec<String> {
        self.plan.iter().cloned().chain([results_folder::line(self.out)]).collect()
    }

    fn follow(&self, _: &PlannedJob) -> OutputFilter {
        OutputFilter::new(!self.is_json)
    }

    fn figures(&self, record: R, _: Option<OutputFilter>) -> Result<R, String> {
        Ok(record)
    }

    fn finish(&self, ended: &[EndedJob<R>], _: bool) -> anyhow::Result<()> {
        let printer = self.rules().printer;
        let concluded = (self.conclude)(ended, printer);
        printer.line(&format!("logs and records are in {}", self.out.display()));
        concluded
    }
}
