//! Progress of a running command: on its own terminal, from another shell or host through a file in its folder, and
//! as Prometheus metrics. Nothing here ends or delays a run; results are read from the files of the runs.
//!
//! | module | contents |
//! |---|---|
//! | [`run`] | speed and time left of a run, from its log and its ranks |
//! | [`session_progress`] | position and time left of a session; pure |
//! | [`latest`] | latest progress, shared between the displays |
//! | [`lines`] | progress as terminal lines; pure |
//! | [`display`] | prints these lines on a terminal |
//! | [`state_file`] | writes the progress into the folder once a second |
//! | [`watch`] | `ringmark watch`: reads that file and shows it |
//! | [`metrics`] | progress as Prometheus metrics; pure |
//! | [`http`] | serves the metrics |

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
use ringmark_core::host::unix_time;
use ringmark_core::progress::{CommandEnd, FinishedRun, JobCounts, JobProgress, Progress};

use crate::launch::job::launcher::LaunchConfig;
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::local::interrupt;
use crate::launch::sweep::live::http::MetricsServer;
use crate::launch::sweep::live::latest::Latest;
use crate::launch::sweep::live::state_file::StateFile;
use crate::output::message::Printer;

/// Publishes the progress of a command while it runs.
#[derive(Debug)]
pub struct Live {
    latest: Latest,
    initial: Progress,
    path: PathBuf,
    _file: Option<StateFile>,
    _metrics: Option<MetricsServer>,
}

impl Live {
    /// Runs a command of `kind` in the folder `out` while publishing its progress; its end is published last. Fails
    /// first if the port of the metrics cannot be opened.
    pub fn during<T>(
        (kind, printer): (BenchmarkKind, Printer),
        launch: &LaunchConfig,
        out: &Path,
        run: impl FnOnce(&Live) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let latest = Latest::default();
        let host = LaunchEnvironment::read().host_name;
        let initial = Progress::begin(kind, host, process::id(), unix_time());
        let path = out.join(PROGRESS);
        if launch.dry_run {
            return run(&Live { latest, initial, path, _file: None, _metrics: None });
        }
        let open = |address| {
            let (latest, initial) = (latest.clone(), initial.clone());
            MetricsServer::open(address, move || metrics::text(latest.get().as_ref().unwrap_or(&initial)))
        };
        let metrics = launch.metrics.map(open).transpose()?;
        if let Some(metrics) = &metrics {
            printer.line(&format!("metrics: {}", metrics.url()));
        }
        let file = StateFile::open(path.clone(), latest.clone());
        let live = Live { latest, initial, path, _file: Some(file), _metrics: metrics };
        let outcome = run(&live);
        if let Some(last) = live.latest.get() {
            let failure = outcome.as_ref().err().map(|error| format!("{error:#}"));
            let is_interrupted = failure.is_some() && interrupt::exit_status().is_some();
            let end = Some(CommandEnd { failure, is_interrupted });
            live.latest.set(Progress { updated: unix_time(), left: None, end, ..last });
        }
        outcome
    }

    /// Removes the progress file of an earlier command, so that it is not mistaken for this one's. This command has
    /// exclusive use of the folder.
    pub fn remove_stale(&self) {
        if self.latest.get().is_none() {
            // If it cannot be removed, the first update replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Adds a row to the table.
    pub fn finish_run(&self, run: FinishedRun) {
        let mut progress = self.latest.get().unwrap_or_else(|| self.initial.clone());
        progress.finished.push(run);
        self.latest.set(Progress { updated: unix_time(), ..progress });
    }

    /// Publishes the progress between two jobs or within one.
    pub fn publish(&self, jobs: JobCounts, left: Option<Duration>, job: Option<JobProgress>) -> Progress {
        let left = left.map(|left| Seconds(left.as_secs_f64()));
        let progress = self.latest.get().unwrap_or_else(|| self.initial.clone());
        let progress = Progress { updated: unix_time(), jobs, left, job, ..progress };
        self.latest.set(progress.clone());
        progress
    }
}
