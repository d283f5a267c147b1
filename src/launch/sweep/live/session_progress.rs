//! Position and time left of a session. Pure functions.

use std::time::Duration;

use ringmark_core::dimension::Seconds;
use ringmark_core::progress::{JobCounts, JobProgress};

use crate::launch::job::watch::WatchedRanks;
use crate::launch::sweep::benchmark::{EndedJob, JobOutcome, PlannedJob};

/// Position of a session when a job starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SessionProgress {
    /// Number of the job among all jobs of the session, including those of an earlier session, and the number of
    /// finished jobs before it.
    pub counts: JobCounts,
    /// Work of this job, in units of [`JobCost::work`](crate::launch::sweep::cost::JobCost::work).
    work: f64,
    /// Work of all following jobs.
    later_work: f64,
    /// Total of the pauses between jobs.
    pauses: Duration,
    /// Seconds per unit of work in the previous jobs; `None` before any has ended.
    pace: Option<f64>,
}

impl SessionProgress {
    /// Returns the progress at the start of `jobs[index]`, after the jobs in `ended`, those of an earlier session
    /// first. After the last job no work is left.
    pub fn at<F>(jobs: &[PlannedJob], index: usize, cooldown: Duration, ended: &[EndedJob<F>]) -> SessionProgress {
        let work = |jobs: &[PlannedJob]| jobs.iter().map(|job| job.cost.work).sum();
        let (job, later) = jobs[index..].split_at(1.min(jobs.len() - index));
        // A resumed job did only part of its work.
        let is_whole = |job: &PlannedJob| !job.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.is_resumed);
        let timed =
            ended.iter().filter(|ended| is_whole(&ended.job)).filter_map(|ended| Some((ended.took?, &ended.job)));
        let (done, took) =
            timed.fold((0.0, Duration::ZERO), |(done, all), (took, job)| (done + job.cost.work, all + took));
        let earlier = ended.iter().filter(|ended| ended.is_earlier).count();
        let counts = |ended: &&EndedJob<F>| matches!(ended.outcome, JobOutcome::Sound(_));
        SessionProgress {
            counts: JobCounts {
                number: earlier + (index + 1).min(jobs.len()),
                of: earlier + jobs.len(),
                finished: ended.iter().filter(counts).count(),
            },
            work: work(job),
            later_work: work(later),
            pauses: cooldown * later.len() as u32,
            pace: (done > 0.0).then(|| took.as_secs_f64() / done),
        }
    }

    /// Returns the time left of the session when this job has run for `elapsed` and has `left`; `None` if the speed
    /// of neither this job nor a previous one is known.
    pub fn left(&self, elapsed: Duration, left: Option<Duration>) -> Option<Duration> {
        let of_this_job = || Some((elapsed + left?).as_secs_f64() / self.work);
        let pace = self.pace.or_else(of_this_job)?;
        let left = left.unwrap_or_else(|| Duration::from_secs_f64(pace * self.work).saturating_sub(elapsed));
        Some(left + Duration::from_secs_f64(pace * self.later_work) + self.pauses)
    }
}

/// Returns the progress of a job as reported by its ranks alone.
pub fn seen(job: &PlannedJob, elapsed: Duration, watched: WatchedRanks) -> JobProgress {
    let WatchedRanks { place, interval, ranks } = watched;
    JobProgress {
        title: job.title.clone(),
        run: job.run,
        case: job.case,
        elapsed: Seconds(elapsed.as_secs_f64()),
        iteration: place.map_or(0, |(iteration, _)| iteration),
        iterations: None,
        warmup: 0,
        stage: place.map(|(_, stage)| stage.name()),
        units_per_second: None,
        mean_units_per_second: None,
        unit: job.run.map(|run| run.batch.unit()).unwrap_or_default(),
        margin: None,
        report_interval: interval,
        ranks,
        all_ranks: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn remaining_time_uses_completed_jobs() {
        // The second of ten equal runs; the first took 40 s.
        let counts = JobCounts { number: 2, of: 10, finished: 1 };
        let session = SessionProgress { counts, work: 5.0, later_work: 40.0, pauses: Duration::ZERO, pace: Some(8.0) };
        assert_eq!(session.left(seconds(1), None), Some(seconds(359)));
        // This job's own estimate takes precedence.
        assert_eq!(session.left(seconds(9), Some(seconds(27))), Some(seconds(347)));
    }

    #[test]
    fn first_run_determines_the_remaining_time() {
        let counts = JobCounts { number: 1, of: 4, finished: 0 };
        let session = SessionProgress { counts, work: 2.0, later_work: 6.0, pauses: seconds(30), pace: None };
        assert_eq!(session.left(seconds(3), None), None);
        // 16 s of it are over and 5 s are left; the others take three times 21 s.
        assert_eq!(session.left(seconds(16), Some(seconds(5))), Some(seconds(98)));
    }
}
