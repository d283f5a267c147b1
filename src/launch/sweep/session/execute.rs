//! Runs one job of a session: starts and watches it, and derives its outcome from its end and its record.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::train::interruption::{self, Interruption};
use ringmark_core::dimension::Seconds;
use ringmark_core::host::{MemoryShortage, unix_time};
use ringmark_core::line::dlperf::{self, LogLine};
use ringmark_core::manifest::{ObservedEnvironment, RunState};
use ringmark_core::options::usage::{ERROR, error_line};

use crate::launch::cluster::hosts::Hosts;
use crate::launch::job::job_launch::JobLaunch;
use crate::launch::job::launcher::{LaunchConfig, Launcher};
use crate::launch::job::process::{JobEvent, ProcessOutcome, split_lines};
use crate::launch::job::run_launch::{JobEnd, JobLimits};
use crate::launch::job::watch::WatchedRanks;
use crate::launch::local::interrupt::Interrupt;
use crate::launch::sweep::benchmark::{
    Benchmark, EndedJob, Failure, Follower, JobCheckpoint, JobLoss, JobOutcome, PlannedJob,
};
use crate::launch::sweep::ledger::Ledger;
use crate::launch::sweep::live::Live;
use crate::launch::sweep::live::display::Display;
use crate::launch::sweep::live::session_progress::{SessionProgress, seen};
use crate::output::message::{Printer, print_error, print_line};

/// Runs jobs of `benchmark`.
pub struct JobRunner<'a, B> {
    pub benchmark: &'a B,
    pub launch: &'a LaunchConfig,
    pub launcher: &'a Launcher<'a>,
    /// Hosts of the ranks.
    pub hosts: &'a Hosts,
    pub printer: &'a Printer,
    pub live: &'a Live,
    /// Largest number of restarts of a job.
    pub restarts: u32,
}

impl<B: Benchmark> JobRunner<'_, B> {
    /// Returns the launch settings and output files of a job.
    pub fn job_for(&self, plan: &PlannedJob) -> JobLaunch<'_> {
        let PlannedJob { case, threads, servers, arguments, files, restarts, .. } = plan;
        JobLaunch {
            threads: *threads,
            servers: servers.clone(),
            restarts: restarts.clone(),
            ..self.launcher.job(*case, self.hosts.for_case(*case), arguments, files)
        }
    }

    /// Runs one job. A failure becomes its outcome, the last line of its log, and its state in the ledger. The outcome
    /// is returned even if log and ledger can no longer be written.
    pub fn execute(
        &self,
        job: &PlannedJob,
        progress: &SessionProgress,
        mut ledger: Option<&mut Ledger>,
        interrupt: &Interrupt,
    ) -> anyhow::Result<EndedJob<B::Figures>> {
        let launch = self.job_for(job);
        // A checkpoint that is not resumed belongs to an abandoned attempt.
        job.checkpoint.iter().filter(|checkpoint| !checkpoint.is_resumed).try_for_each(JobCheckpoint::remove)?;
        if let (Some(ledger), Some(run)) = (&mut ledger, job.run) {
            ledger.start(run)?;
        }
        let start = Instant::now();
        let LaunchConfig { timeout, stall_timeout, .. } = *self.launch;
        let mut follower = self.benchmark.follow(job);
        let display = Display::new(self.printer.to_error, start);
        let look = |follower: &mut B::Follower, ranks| {
            let now = Instant::now();
            let mut seen = seen(job, now - start, ranks);
            let left = follower.observe(&mut seen, now);
            seen.keep_slowest_hosts(self.launch.watched_ranks);
            let is_followed = seen.iterations.is_some();
            let left = progress.left(now - start, left);
            let progress = self.live.publish(progress.counts, left, Some(seen));
            if let Some(line) = display.show(&progress, &[], now).filter(|_| is_followed) {
                print_line(&line);
            }
        };
        look(&mut follower, WatchedRanks::none());
        let query = |rank: u32, line: &[&str]| self.launcher.query_host(&launch, rank, line, interrupt);
        let limits = JobLimits { timeout, stall_timeout };
        let mut times = JobTimes { iterations: VecDeque::from([start]), start, continued: None };
        let end = launch.run(self.launch.starter, limits, interrupt, &query, |event| match event {
            JobEvent::Block(block) => {
                times.update(block, Instant::now());
                let mut follow = || split_lines(block).try_for_each(|line| follower.line(line));
                if self.benchmark.rules().shows_output { display.above(follow) } else { follow() }
            }
            JobEvent::Ranks(ranks) => {
                look(&mut follower, ranks);
                Ok(())
            }
        });
        display.clear();
        let now = Instant::now();
        let mut position = seen(job, now - start, WatchedRanks::none());
        follower.observe(&mut position, now);
        let has_trained = position.iteration > 0 || job.restarts.is_some();
        let is_lost = |end: &&JobEnd| is_loss(&launch, end, has_trained);
        let loss = end.as_ref().ok().filter(is_lost).map(|end| self.loss(&launch, end, position.iteration, &times));
        let outcome = match end {
            Ok(JobEnd { shortage: Some(memory), .. }) if self.benchmark.rules().expects_shortage => {
                JobOutcome::OutOfMemory(memory)
            }
            Ok(JobEnd { ended, .. }) => self.conclude(&launch, &ended, follower, ledger.as_deref_mut()),
            Err(error) => failed(format!("{error:#}")),
        };
        let outcome = match outcome {
            JobOutcome::Sound(figures) => match launch.close(None) {
                Ok(()) => JobOutcome::Sound(figures),
                Err(error) => failed(format!("{error:#}")),
            },
            outcome => outcome,
        };
        self.record_end(job, &launch, &outcome, ledger)?;
        let done = job.restarts.as_ref().map_or(0, |history| history.interruptions.len());
        // The cause of a loss is in the line of the restart.
        if loss.is_none() || done >= self.restarts as usize {
            self.print_unexplained(job, &launch, &outcome);
        }
        if let (JobOutcome::Sound(_), Some(checkpoint)) = (&outcome, &job.checkpoint) {
            checkpoint.remove()?;
        }
        Ok(EndedJob { loss, ..EndedJob::new(job.clone(), Some(start.elapsed()), false, outcome) })
    }

    /// Describes the loss that ended a job just now after `iteration`.
    fn loss(&self, launch: &JobLaunch, end: &JobEnd, iteration: u32, times: &JobTimes) -> JobLoss {
        let (now, seconds) = (Instant::now(), |time: Duration| Seconds(time.as_secs_f64()));
        let stopped = unix_time();
        let hosts = launch.process_hosts();
        let is_stopped = matches!(end.ended, ProcessOutcome::Stopped(_));
        let suspects = end.culprits.iter().filter(|_| is_stopped).filter_map(|process| hosts.get(*process as usize));
        JobLoss {
            started: Seconds(stopped.0 - seconds(now - times.start).0),
            interruption: Interruption {
                cause: end.ended.failure(self.launch.starter).unwrap_or_default(),
                replaced: Vec::new(),
                iteration,
                redone: 0,
                stopped,
                detection: seconds(end.detected.saturating_duration_since(times.last_iteration(end.detected))),
                stop: seconds(now - end.detected),
                start: None,
                load: None,
            },
            continued: times.continued,
            suspects: suspects.map(|host| (*host).to_owned()).collect(),
        }
    }

    /// Derives the outcome from the end of a job and its record, or from why there is none.
    fn conclude(
        &self,
        launch: &JobLaunch,
        end: &ProcessOutcome,
        follower: B::Follower,
        ledger: Option<&mut Ledger>,
    ) -> JobOutcome<B::Figures> {
        let record = launch.read_record(self.launch.starter, B::Record::read);
        let failure = match (end, &record) {
            (ProcessOutcome::Stopped(reason), Ok(record)) if record.failure().is_none() => {
                print_error(&format!("warning: the run was complete when its ranks were stopped: {reason}"));
                None
            }
            _ => end.failure_with_record(self.launch.starter, &record),
        };
        let record = match record {
            Ok(record) => record,
            Err(missing) => {
                let reason = failure.unwrap_or(missing);
                return JobOutcome::Failed(match end {
                    ProcessOutcome::Interrupted => Failure::Interrupted(reason),
                    end if end.is_unexplained() => Failure::Unexplained(reason),
                    _ => Failure::Explained(reason),
                });
            }
        };
        let admit = |ledger: &mut Ledger| ledger.admit(ran_on(&record)).err();
        let failure = failure.or_else(|| ledger.and_then(admit));
        match (failure, end.is_miss(&record)) {
            (Some(reason), false) if *end == ProcessOutcome::Interrupted => {
                JobOutcome::Failed(Failure::Interrupted(reason))
            }
            (Some(reason), false) => failed(reason),
            (failure, _) => match (self.benchmark.figures(record, Some(follower)), failure) {
                (Ok(figures), None) => JobOutcome::Sound(figures),
                (Ok(figures), Some(reason)) => JobOutcome::Missed(figures, reason),
                (Err(reason), _) => failed(reason),
            },
        }
    }

    /// Records a job's end in the manifest, and a failure at the end of its log.
    fn record_end(
        &self,
        job: &PlannedJob,
        launch: &JobLaunch,
        outcome: &JobOutcome<B::Figures>,
        ledger: Option<&mut Ledger>,
    ) -> anyhow::Result<()> {
        let ledger = ledger.zip(job.run);
        let (reason, state) = match outcome {
            JobOutcome::OutOfMemory(memory) => (at_batch(job, *memory), RunState::OutOfMemory { memory: *memory }),
            outcome => match outcome.failure() {
                Some(reason) => (reason.to_owned(), RunState::Failed { reason: reason.to_owned() }),
                None => {
                    let Some((ledger, run)) = ledger else { return Ok(()) };
                    let ended = ledger.end(run, RunState::Finished);
                    return ended.map_err(|error| anyhow!("{} is finished, but {error:#}", job.title));
                }
            },
        };
        launch.close_failed(&reason);
        if let Some(Err(error)) = ledger.map(|(ledger, run)| ledger.end(run, state)) {
            print_error(&error_line(error));
        }
        Ok(())
    }

    /// Prints the end of a job's log if nothing else explains its failure.
    fn print_unexplained(&self, job: &PlannedJob, launch: &JobLaunch, outcome: &JobOutcome<B::Figures>) {
        let is_unexplained = matches!(outcome, JobOutcome::Failed(Failure::Unexplained(_)));
        let tail = || launch.tail().unwrap_or_else(|error| format!("    {error:#}"));
        // A benchmark that shows its output has shown it up to the first error. The last line is the launcher's.
        let is_new = |tail: &String| {
            let has_error = || tail.lines().rev().skip(1).any(|line| line.trim_start().starts_with(ERROR));
            !self.benchmark.rules().shows_output || has_error()
        };
        if let Some(tail) = is_unexplained.then(tail).filter(is_new) {
            print_error(&format!("{}: last lines of {}:\n{tail}", job.title, launch.log_now().display()));
        }
    }
}

/// Arrivals of iterations that are kept. Only few arrive while a job is being ended.
const MAX_ARRIVALS: usize = 1024;

/// Times of a job, from its output.
struct JobTimes {
    start: Instant,
    /// Latest arrivals of lines of iterations; the start before the first one.
    iterations: VecDeque<Instant>,
    /// Start and load times of a job that continues after an interruption.
    continued: Option<[Seconds; 2]>,
}

impl JobTimes {
    fn update(&mut self, block: &[u8], now: Instant) {
        let mut has_iterations = false;
        for line in split_lines(block) {
            has_iterations |= matches!(dlperf::parse(line), LogLine::Iteration { .. });
            self.continued = interruption::parse_times(line).or(self.continued);
        }
        if has_iterations {
            self.iterations.truncate(MAX_ARRIVALS - 1);
            self.iterations.push_front(now);
        }
    }

    /// Returns the last arrival of an iteration until `detected`. A rank that was stopped prints more when it is ended.
    fn last_iteration(&self, detected: Instant) -> Instant {
        self.iterations.iter().copied().find(|arrival| *arrival <= detected).unwrap_or(self.start)
    }
}

/// Returns true if a rank, a process or a host was lost, so that the same job may succeed. A record contains the reason
/// of a run that does not count, such as a loss that is not finite. Before the first iteration of the first attempt, an error that
/// a rank reports is one of the options, the data or the memory.
fn is_loss(launch: &JobLaunch, end: &JobEnd, has_trained: bool) -> bool {
    let is_lost = match &end.ended {
        ProcessOutcome::Stopped(_) => true,
        ProcessOutcome::Exited(status, _) => !status.success(),
        ProcessOutcome::TimedOut(..) | ProcessOutcome::Interrupted => false,
    };
    let is_refused = end.is_own_error && !has_trained;
    is_lost && !is_refused && end.shortage.is_none() && !launch.files.record.exists()
}

fn failed<F>(reason: String) -> JobOutcome<F> {
    JobOutcome::Failed(Failure::Explained(reason))
}

/// Returns `out of memory at batch 64: 15.1 of 16.0 GB`.
pub fn at_batch(job: &PlannedJob, memory: MemoryShortage) -> String {
    job.run.map_or_else(|| format!("out of memory: {memory}"), |run| memory.at_batch(run.batch))
}

pub fn ran_on(record: &impl Record) -> ObservedEnvironment {
    let head = record.head();
    ObservedEnvironment::from_record(head.environment, head.ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_that_are_printed_at_the_end_do_not_count() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let line = b"INFO:root:Epoch[0] Batch[1]\tSpeed: 257.48 samples/sec\tloss=2.527156\n";
        let mut times = JobTimes { iterations: VecDeque::from([start]), start, continued: None };
        assert_eq!(times.last_iteration(at(1)), start);
        for seconds in [2, 3, 15] {
            times.update(line, at(seconds));
        }
        times.update(b"# restarted\n", at(16));
        assert_eq!([1, 2, 13, 15].map(|detected| times.last_iteration(at(detected))), [0, 2, 3, 15].map(at));
        (0..3000).for_each(|seconds| times.update(line, at(20 + seconds)));
        assert_eq!((times.iterations.len(), times.last_iteration(at(5000))), (MAX_ARRIVALS, at(3019)));
    }
}
