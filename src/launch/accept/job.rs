//! Runs one job of a round: starts it on its hosts, awaits it, and reduces its record to readings.

use std::path::Path;

use ringmark_core::accept::{HostState, Job, JobFingerprints, Outcome, Reading, Test};
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::bandwidth::BandwidthRecord;
use ringmark_core::benchmark::input::InputRecord;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::dimension::{Case, DeviceKind};

use crate::launch::accept::measure::TestData;
use crate::launch::accept::{measure, readings};
use crate::launch::cluster::hosts::Host;
use crate::launch::job::job_launch::{JobFiles, JobLaunch};
use crate::launch::job::launcher::{LaunchConfig, Launcher};
use crate::launch::job::process::ProcessOutcome;
use crate::launch::job::run_launch::{JobEnd, JobLimits};
use crate::launch::local::interrupt::Interrupt;
use crate::launch::local::side_by_side::{MAX_PROGRAMS, in_parallel};
use crate::launch::sweep::folder;

/// Command of a host that answers.
const ECHO: [&str; 2] = ["echo", "here"];

/// Runs jobs on any of the hosts.
pub struct TestRunner<'a> {
    /// Builds the command lines.
    pub launcher: &'a Launcher<'a>,
    /// Hosts and launch settings.
    pub config: &'a LaunchConfig,
    /// Device that the ranks are expected to use.
    pub device: DeviceKind,
    /// Images of the input jobs.
    pub data: TestData,
    /// Limits of each job.
    pub limits: JobLimits,
    /// Folder of logs and records, absolute.
    pub folder: &'a Path,
    /// Set when the user interrupts.
    pub interrupt: &'a Interrupt,
}

/// Result of a job.
pub struct TestResult {
    /// Readings, or the failure.
    pub outcome: Outcome,
    /// Fingerprints of training.
    pub fingerprints: Option<JobFingerprints>,
    /// State of the host during training alone.
    pub state: Option<HostState>,
}

impl TestRunner<'_> {
    /// Returns the hosts of a job.
    pub fn hosts(&self, job: &Job) -> Vec<Host> {
        let all = self.config.hosts.all();
        job.hosts.iter().map(|index| all[*index].clone()).collect()
    }

    /// Returns the launch of `job` on `hosts`, with files called `name`.
    pub fn launch<'a>(&'a self, job: &Job, hosts: &'a [Host], name: &str) -> JobLaunch<'a> {
        let ranks = if job.test == Test::Input { 1 } else { hosts.iter().map(|host| host.slots).min().unwrap_or(1) };
        let case = Case { nodes: hosts.len() as u32, gpus_per_node: ranks };
        let record = self.folder.join(name).with_extension("json");
        let files = JobFiles { log: self.folder.join(name).with_extension("log"), record };
        let arguments =
            measure::arguments(job.test, case, (self.device, self.config.device), &self.data, &files.record);
        self.launcher.job(case, hosts, &arguments, &files)
    }

    /// Runs `job` to its end. A failure is an outcome; an error means that the log cannot be written. Returns `None` if the
    /// user interrupted.
    pub fn run(&self, job: &Job, name: &str) -> anyhow::Result<Option<TestResult>> {
        let hosts = self.hosts(job);
        let launch = self.launch(job, &hosts, name);
        // An earlier session may have been killed in this job.
        folder::rename_earlier(&[launch.log_now(), launch.files.record.clone()])?;
        let (mut fingerprints, mut state) = (None, None);
        let outcome = match job.test {
            Test::Training => self.measure(&launch, |record: &RunRecord| {
                (fingerprints, state) = (readings::fingerprints(record), readings::host_state(record));
                readings::training(record)
            }),
            Test::Exchange => self.measure::<BandwidthRecord>(&launch, readings::exchange),
            Test::Input => self.measure::<InputRecord>(&launch, readings::input),
        };
        if self.interrupt.is_set() {
            launch.close_failed("interrupted");
            return Ok(None);
        }
        match &outcome {
            Outcome::Measured(_) => launch.close(None)?,
            Outcome::Failed { reason, .. } => launch.close_failed(reason),
        }
        Ok(Some(TestResult { outcome: with_index_in_fleet(outcome, job), fingerprints, state }))
    }

    /// Returns the outcome of a launch; a failed host is its index among the hosts of the job.
    fn measure<R: Record>(&self, launch: &JobLaunch, read: impl FnOnce(&R) -> Vec<Reading>) -> Outcome {
        let query = |rank: u32, line: &[&str]| self.launcher.query_host(launch, rank, line, self.interrupt);
        let starter = self.config.starter;
        if let Some((host, reason)) = self.lost_host(launch) {
            let log = launch.create_log(self.config.starter);
            let reason = log.map_or_else(|error| format!("{error:#}"), |_| reason);
            return Outcome::Failed { host: Some(host), reason };
        }
        let (failure, named) = match launch.run(starter, self.limits, self.interrupt, &query, |_| Ok(())) {
            Ok(end) => {
                let record = launch.read_record(starter, R::read);
                let failure = end.ended.failure_with_record(starter, &record);
                match (failure, record) {
                    (None, Ok(record)) => return Outcome::Measured(read(&record)),
                    (failure, record) => {
                        let reason = failure.or_else(|| record.err()).unwrap_or_default();
                        let is_whole = matches!(end.ended, ProcessOutcome::Exited(status, _) if status.success());
                        (reason, if is_whole { Vec::new() } else { named_hosts(launch, &end) })
                    }
                }
            }
            Err(error) => (format!("{error:#}"), Vec::new()),
        };
        self.failed(launch, failure, &named)
    }

    /// Returns a host that the scheduler no longer reaches, and its message, if a job on it would end the scheduler's job.
    fn lost_host(&self, launch: &JobLaunch) -> Option<(usize, String)> {
        if !self.config.starter.ends_with_lost_host() {
            return None;
        }
        let failures =
            in_parallel(MAX_PROGRAMS, launch.hosts, |host| self.launcher.start_failure(host, self.interrupt));
        failures.into_iter().enumerate().find_map(|(host, failure)| Some((host, failure?)))
    }

    /// Returns the failure of the only host that is `named`, or otherwise of one that no longer answers.
    fn failed(&self, launch: &JobLaunch, reason: String, named: &[usize]) -> Outcome {
        if let [host] = named[..] {
            return Outcome::Failed { host: Some(host), reason };
        }
        let is_silent = |host: &usize| {
            let first_rank = *host as u32 * launch.case.gpus_per_node;
            let answer = self.launcher.query_host(launch, first_rank, &ECHO, self.interrupt);
            // A host of Grid Engine may answer only once the job's own tasks have left their slots.
            let is_asked = self.launcher.can_query() && !self.config.starter.ends_with_lost_host();
            is_asked && !answer.is_some_and(|text| text.trim_end().ends_with(ECHO[1]))
        };
        match (0..launch.hosts.len()).find(is_silent) {
            Some(host) => {
                let reason = format!("host {} does not answer; {reason}", launch.hosts[host].name);
                Outcome::Failed { host: Some(host), reason }
            }
            None => Outcome::Failed { host: None, reason },
        }
    }
}

/// Returns the hosts of a failed job that caused its end, without repeats: those of the culprits, or the one on which the
/// scheduler could not start it.
fn named_hosts(launch: &JobLaunch, end: &JobEnd) -> Vec<usize> {
    let unstarted =
        end.unstarted_host.iter().filter_map(|name| launch.hosts.iter().position(|host| host.name == *name));
    let culprits = end.culprits.iter().map(|rank| (*rank / launch.case.gpus_per_node) as usize);
    let mut named: Vec<usize> = unstarted.chain(culprits).collect();
    named.dedup();
    named
}

fn with_index_in_fleet(outcome: Outcome, job: &Job) -> Outcome {
    match outcome {
        Outcome::Failed { host, reason } => Outcome::Failed { host: host.map(|host| job.hosts[host]), reason },
        measured @ Outcome::Measured(_) => measured,
    }
}
