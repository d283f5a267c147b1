//! A command while it runs, for whoever watches: on its own terminal, from another shell or host by a file in its folder, by
//! a scrape of its metrics. Not for figures, which are read from the files of runs; and nothing here ends or delays a run.
//!
//! | module | what it is for |
//! |---|---|
//! | [`run`] | speed and time left of a run, by its lines and its ranks |
//! | [`session_progress`] | how far a session is, and what is left of it; pure |
//! | [`latest`] | what was said last, for those who pass it on |
//! | [`lines`] | a command on its way as lines of a terminal; pure |
//! | [`display`] | shows these where a person is looking |
//! | [`state_file`] | writes it into the folder once a second |
//! | [`watch`] | `ringmark watch`: reads that file and shows it |
//! | [`metrics`] | a command on its way as metrics for Prometheus; pure |
//! | [`http`] | serves them |

pub mod display;
pub mod http;
pub mod latest;
pub mod lines;
pub mod metrics;
pub mod run;
pub mod session_progress;
pub mod state_file;
pub mod watch;

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::dimension::Seconds;
use ringmark_core::file::run_name::PROGRESS;
use ringmark_core::progress::{CommandEnd, FinishedRun, JobCounts, JobProgress, Progress};

use crate::launch::job::launcher::LaunchConfig;
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::local::print::Printer;
use crate::launch::sweep::live::http::MetricsServer;
use crate::launch::sweep::live::latest::{Latest, now};
use crate::launch::sweep::live::state_file::StateFile;

/// Those who watch a command, for as long as it runs.
#[derive(Debug)]
pub struct Live {
    latest: Latest,
    begun: Progress,
    path: PathBuf,
    _file: Option<StateFile>,
    _metrics: Option<MetricsServer>,
}

impl Live {
    /// Runs a command of `kind` into the folder `out`, which may be watched meanwhile; how it ends is the last that is said.
    /// A port that cannot be listened at is refused first.
    pub fn during<T>(
        (kind, printer): (BenchmarkKind, Printer),
        launch: &LaunchConfig,
        out: &Path,
        run: impl FnOnce(&Live) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let latest = Latest::default();
        let host = LaunchEnvironment::read().host_name;
        let begun = Progress::begin(kind, host, process::id(), now());
        let path = out.join(PROGRESS);
        if launch.dry_run {
            return run(&Live { latest, begun, path, _file: None, _metrics: None });
        }
        let open = |address| {
            let (latest, begun) = (latest.clone(), begun.clone());
            MetricsServer::open(address, move || metrics::text(latest.get().as_ref().unwrap_or(&begun)))
        };
        let metrics = launch.metrics.map(open).transpose()?;
        if let Some(metrics) = &metrics {
            printer.line(&format!("metrics: {}", metrics.url()));
        }
        let file = StateFile::open(path.clone(), latest.clone());
        let live = Live { latest, begun, path, _file: Some(file), _metrics: metrics };
        let outcome = run(&live);
        if let Some(last) = live.latest.get() {
            let failure = outcome.as_ref().err().map(|error| format!("{error:#}"));
            live.latest.set(Progress { said: now(), left: None, end: Some(CommandEnd { failure }), ..last });
        }
        outcome
    }

    /// Removes the last word of an earlier command, which must not be taken for this one's. The folder is this one's alone.
    pub fn forget_earlier(&self) {
        if self.latest.get().is_none() {
            // Where it cannot be removed, the first word replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Adds a row to the table.
    pub fn finish_run(&self, run: FinishedRun) {
        let mut progress = self.latest.get().unwrap_or_else(|| self.begun.clone());
        progress.finished.push(run);
        self.latest.set(Progress { said: now(), ..progress });
    }

    /// Says where the command is, between two jobs or in one.
    pub fn say(&self, jobs: JobCounts, left: Option<Duration>, job: Option<JobProgress>) -> Progress {
        let left = left.map(|left| Seconds(left.as_secs_f64()));
        let progress = self.latest.get().unwrap_or_else(|| self.begun.clone());
        let progress = Progress { said: now(), jobs, left, job, ..progress };
        self.latest.set(progress.clone());
        progress
    }
}
