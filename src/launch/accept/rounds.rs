//! Runs rounds: the jobs of a round at once, and no round that would not fit into the time limit.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use ringmark_core::accept::{JobTime, Measurement, Outcome, Round, Search, Stage};
use ringmark_core::dimension::Seconds;
use ringmark_core::number_text::count;

use crate::launch::accept::job::{TestResult, TestRunner};
use crate::launch::accept::journal::JournalFile;
use crate::launch::local::side_by_side::{MAX_PROGRAMS, in_parallel};
use crate::output::message::Printer;

/// Why the rounds ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundsEnd {
    /// The search needs no more.
    Complete,
    /// The next round would exceed the time limit.
    OutOfTime,
}

/// Time limit of all rounds, from the start of the command.
pub struct Budget {
    /// Start of the command.
    pub start: Instant,
    /// Limit; `None` for no limit.
    pub limit: Option<Duration>,
    /// Limit of the soak stage, which the search would repeat endlessly.
    pub soak: Option<Duration>,
    /// Start of the soak stage.
    pub soak_start: Option<Instant>,
    /// Time of the longest round so far.
    pub longest: Duration,
}

impl Budget {
    /// Returns true if a round that takes as long as the longest one would end in time.
    fn has_time(&self, now: Instant) -> bool {
        self.limit.is_none_or(|limit| now - self.start + self.longest <= limit)
    }

    /// Returns true if the soak stage has been repeated for long enough.
    fn has_soaked(&mut self, now: Instant) -> bool {
        let soak_start = *self.soak_start.get_or_insert(now);
        self.soak.is_some_and(|limit| now - soak_start >= limit)
    }
}

/// Runs rounds until `search` needs no more.
pub fn run(
    search: &Search,
    runner: &TestRunner,
    journal: &mut JournalFile,
    budget: &mut Budget,
    printer: &Printer,
) -> anyhow::Result<RoundsEnd> {
    loop {
        let earlier = journal.journal();
        let Some(round) = search.next(&earlier.findings, &earlier.measurements) else { return Ok(RoundsEnd::Complete) };
        let start = Instant::now();
        if round.stage == Stage::Soak && budget.has_soaked(start) {
            return Ok(RoundsEnd::Complete);
        }
        if !budget.has_time(start) {
            return Ok(RoundsEnd::OutOfTime);
        }
        let number = 1 + earlier.measurements.iter().map(|measurement| measurement.round).max().unwrap_or(0);
        printer.line(&format!("round {number}, {}", describe(&round)));
        run_round(&round, number, runner, journal, budget.start, printer)?;
        budget.longest = budget.longest.max(start.elapsed());
        if runner.interrupt.is_set() {
            bail!(
                "interrupted in round {number} ({}); {} kept",
                round.stage,
                count(journal.journal().measurements.len(), "measurement")
            );
        }
    }
}

/// Describes a round: `pairs: all-reduce, 4 jobs on 8 hosts`.
pub fn describe(round: &Round) -> String {
    let hosts: usize = round.jobs.iter().map(|job| job.hosts.len()).sum();
    let mut tests: Vec<&str> = round.jobs.iter().map(|job| job.test.title()).collect();
    tests.sort_unstable();
    tests.dedup();
    format!("{}: {}, {} on {}", round.stage, tests.join(" and "), count(round.jobs.len(), "job"), count(hosts, "host"))
}

/// Returns the name of the files of job `index` of a round.
pub fn file_name(round: &Round, number: u32, index: usize) -> String {
    format!("{number:02}_{}_{:03}_{}", round.stage, index + 1, round.jobs[index].test)
}

fn run_round(
    round: &Round,
    number: u32,
    runner: &TestRunner,
    journal: &mut JournalFile,
    start: Instant,
    printer: &Printer,
) -> anyhow::Result<()> {
    let since_start = || Seconds(start.elapsed().as_secs_f64());
    let journal = Mutex::new(journal);
    let jobs: Vec<usize> = (0..round.jobs.len()).collect();
    let ends = in_parallel(MAX_PROGRAMS, &jobs, |index| -> anyhow::Result<()> {
        if runner.interrupt.is_set() {
            return Ok(());
        }
        let (job, name) = (&round.jobs[*index], file_name(round, number, *index));
        let start = since_start();
        let Some(TestResult { outcome, fingerprints, state }) = runner.run(job, &name)? else { return Ok(()) };
        let time = Some(JobTime { start, end: since_start() });
        if let Outcome::Failed { reason, .. } = &outcome {
            let hosts: Vec<String> = runner.hosts(job).into_iter().map(|host| host.name).collect();
            printer.line(&format!("  {} on {} failed: {reason}", job.test.title(), hosts.join(", ")));
        }
        let (stage, job) = (round.stage, job.clone());
        let measurement = Measurement { stage, round: number, job, outcome, fingerprints, time, state };
        journal.lock().unwrap_or_else(PoisonError::into_inner).add_measurement(measurement)
    });
    ends.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use ringmark_core::accept::{Job, Test};

    use super::*;

    #[test]
    fn round_must_fit_into_the_rest_of_the_time() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let limit = Some(Duration::from_secs(60));
        let soak = Some(Duration::from_secs(100));
        let mut budget = Budget { start, limit, longest: Duration::from_secs(35), soak, soak_start: None };
        assert!(budget.has_time(at(25)) && !budget.has_time(at(26)));
        assert!(!budget.has_soaked(at(20)) && !budget.has_soaked(at(119)) && budget.has_soaked(at(120)));
        assert!(Budget { limit: None, ..budget }.has_time(at(1000)));
    }

    #[test]
    fn files_are_named_after_round_stage_and_job() {
        let job = |host| Job { test: Test::Exchange, hosts: vec![host, host + 1] };
        let round = Round { stage: Stage::Pairs, jobs: vec![job(0), job(2)] };
        assert_eq!(describe(&round), "pairs: all-reduce, 2 jobs on 4 hosts");
        assert_eq!(file_name(&round, 3, 1), "03_pairs_002_exchange");
    }
}
