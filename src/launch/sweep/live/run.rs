//! Speed and time left of a run, from the log lines of its iterations or, without such lines, from the reports of its
//! ranks. Results are computed from the files instead.

use std::time::{Duration, Instant};

use ringmark_core::benchmark::train::program::TO_THE_END;
use ringmark_core::dimension::{BatchShape, UnitsPerSecond};
use ringmark_core::line::dlperf::{self, Batch, LogLine};
use ringmark_core::progress::{JobProgress, RankProgress};
use ringmark_core::stats::{summary, welch};

use crate::launch::sweep::benchmark::Follower;
use crate::launch::sweep::cost::ValidationCost;

/// Progress of a run.
pub struct RunProgress {
    title: String,
    iterations: u32,
    warmup: u32,
    /// Samples of an iteration; set if iterations write no lines.
    batch: Option<BatchShape>,
    validation: Option<ValidationCost>,
    /// Batch number in the last line.
    last_batch: Option<Batch>,
    /// Number and speed of the last iteration that ended.
    last: Option<(u32, UnitsPerSecond)>,
    /// Speeds of the iterations after warm-up, in units of work per second.
    speeds: Vec<f64>,
    /// Number of the first iteration that ended, and the time of its line.
    first: Option<(Instant, u32)>,
    /// Time of the last line.
    last_time: Option<Instant>,
}

impl RunProgress {
    /// Creates the progress of a run of `iterations`, the first `warmup` of which are not measured.
    pub fn new(title: String, iterations: u32, warmup: u32) -> RunProgress {
        RunProgress {
            title,
            iterations,
            warmup,
            batch: None,
            validation: None,
            last_batch: None,
            last: None,
            speeds: Vec::new(),
            first: None,
            last_time: None,
        }
    }

    /// Sets the validation at the end of each epoch.
    pub fn validating(self, validation: Option<ValidationCost>) -> RunProgress {
        RunProgress { validation, ..self }
    }

    /// Sets the samples of an iteration of a run whose iterations write no lines.
    pub fn without_lines(self, batch: BatchShape) -> RunProgress {
        RunProgress { batch: Some(batch), ..self }
    }

    /// Returns total work over total time after warm-up, as in the log; `None` if no iteration followed it.
    pub fn speed(&self) -> Option<UnitsPerSecond> {
        summary::harmonic_mean(&self.speeds).map(UnitsPerSecond)
    }

    fn parse_line(&mut self, line: &[u8], now: Instant) {
        match dlperf::parse(line) {
            LogLine::Iteration { batch, speed, .. } => {
                let iterations = self.last_batch.map_or(batch.number, |last| batch.since(last));
                self.last_batch = Some(batch);
                self.end_iteration(self.last.map_or(0, |(last, _)| last) + iterations, speed, now);
            }
            _ if dlperf::is_resumption(line) => {
                // The iterations so far ran in an earlier process.
                (self.first, self.last_time) = (self.last.map(|(batch, _)| (now, batch)), Some(now));
            }
            _ => {}
        }
    }

    fn end_iteration(&mut self, number: u32, speed: UnitsPerSecond, now: Instant) {
        if number > self.warmup {
            self.speeds.push(speed.0);
        }
        self.first.get_or_insert((now, number));
        (self.last, self.last_time) = (Some((number, speed)), Some(now));
    }

    /// Updates the last iteration and its speed from the reports of the ranks.
    fn update_from_ranks(&mut self, ranks: &[RankProgress], now: Instant) {
        let Some(batch) = self.batch else { return };
        let workers = || ranks.iter().filter(|rank| !rank.is_server);
        let ended = workers().map(|rank| rank.iteration).min().unwrap_or_default().saturating_sub(1);
        let work = batch.samples_per_rank(workers().count() as u32) * batch.units_per_sample();
        let speed: Option<f64> = workers().map(|rank| Some(work / rank.step?.0)).sum();
        let is_new = ended > self.last.map_or(0, |(last, _)| last);
        if let Some(speed) = speed.filter(|speed| is_new && speed.is_finite() && *speed > 0.0) {
            self.end_iteration(ended, UnitsPerSecond(speed), now);
        }
    }

    /// Returns the time left of the run, from the iterations that were timed here.
    fn left(&self, now: Instant) -> Option<Duration> {
        if self.iterations == TO_THE_END {
            return None;
        }
        let ((since, first), (last, _), seen) = (self.first?, self.last?, self.last_time?);
        let at = |iteration: u32| self.validation.map_or(f64::from(iteration), |of| of.at(iteration));
        let all = self.validation.map_or(f64::from(self.iterations), |of| of.including_validation(self.iterations));
        let timed = Some(at(last) - at(first)).filter(|timed| *timed > 0.0)?;
        let whole = (seen - since).as_secs_f64() * (all - at(last)).max(0.0) / timed;
        Some(Duration::try_from_secs_f64(whole).ok()?.saturating_sub(now - seen))
    }
}

impl Follower for RunProgress {
    fn line(&mut self, line: &[u8]) -> anyhow::Result<()> {
        self.parse_line(line, Instant::now());
        Ok(())
    }

    fn observe(&mut self, job: &mut JobProgress, now: Instant) -> Option<Duration> {
        self.update_from_ranks(&job.ranks, now);
        job.title.clone_from(&self.title);
        job.iteration = job.iteration.max(self.last.map_or(0, |(ended, _)| ended));
        (job.iterations, job.warmup) = (Some(self.iterations).filter(|all| *all < TO_THE_END), self.warmup);
        job.units_per_second = self.last.map(|(_, speed)| speed);
        job.mean_units_per_second = self.speed();
        let mean = job.mean_units_per_second.filter(|mean| mean.0 > 0.0);
        job.margin = mean.zip(welch::margin_of_mean(&self.speeds)).map(|(mean, margin)| margin / mean.0);
        self.left(now)
    }
}

#[cfg(test)]
mod tests {
    use ringmark_core::benchmark::train::config::TrainConfig;
    use ringmark_core::dimension::WorkUnit;

    use super::*;
    use crate::launch::sweep::cost::EpochSamples;
    use crate::launch::sweep::live::lines::tests::job;

    fn run(progress: &mut RunProgress, batch: u32, speed: f64, now: Instant) {
        // Two iterations per epoch.
        let batch = Batch::at_iteration(batch, Some(2));
        progress.parse_line(dlperf::write(batch, UnitsPerSecond(speed), WorkUnit::Image, 6.9).as_bytes(), now);
    }

    #[test]
    fn speed_excludes_warm_up_and_other_lines() {
        let mut progress = RunProgress::new("1n1g".to_owned(), 4, 2);
        for (batch, speed) in [(1, 1.0), (2, 2.0), (3, 30.0), (4, 50.0)] {
            run(&mut progress, batch, speed, Instant::now());
            progress.line(b"some warning\n").expect("taken");
        }
        // 2 / (1/30 + 1/50).
        assert_eq!(progress.speed(), Some(UnitsPerSecond(37.5)));
        assert_eq!(RunProgress::new(String::new(), 4, 2).speed(), None);
    }

    #[test]
    fn known_job_progress_is_filled_in() {
        let mut progress = RunProgress::new("1n2g".to_owned(), 12, 2);
        let (start, mut job) = (Instant::now(), job());
        assert_eq!(progress.observe(&mut job, start), None);
        let known = (job.title.as_str(), job.iteration, job.iterations, job.warmup, job.units_per_second);
        assert_eq!(known, ("1n2g", 12, Some(12), 2, None));
        job.iteration = 2;
        for (batch, speed) in [(1, 10.0), (2, 20.0), (3, 20.0), (4, 22.0)] {
            run(&mut progress, batch, speed, start + Duration::from_secs(3) * batch);
        }
        assert_eq!(progress.observe(&mut job, start + Duration::from_secs(13)), Some(Duration::from_secs(23)));
        assert_eq!((job.iteration, job.units_per_second), (4, Some(UnitsPerSecond(22.0))));
        // For 20 and 22 the mean is 21, the standard error 1, and Student's t with one degree of freedom 12.7.
        let mean = job.mean_units_per_second.map_or(0.0, |mean| mean.0);
        assert!((mean - 2.0 / (1.0 / 20.0 + 1.0 / 22.0)).abs() < 1e-9, "{mean}");
        assert!((job.margin.expect("two speeds") - 12.706 / mean).abs() < 1e-3, "{:?}", job.margin);
    }

    #[test]
    fn run_without_output_uses_rank_reports() {
        let mut progress = RunProgress::new("2n2g".to_owned(), 20, 4).without_lines(BatchShape::per_rank(8));
        let (start, mut job) = (Instant::now(), job());
        let mut look = |iteration: u32, second: u64| {
            job.ranks.iter_mut().for_each(|rank| rank.iteration = iteration);
            let left = progress.observe(&mut job, start + Duration::from_secs(second));
            (left, job.units_per_second.map(|speed| speed.0.round()), job.mean_units_per_second.is_some())
        };
        // Four ranks process 8 images in 0.4 s each; the server does not train.
        assert_eq!(look(1, 0), (None, None, false));
        assert_eq!(look(4, 1), (None, Some(80.0), false));
        // From the third to the eleventh iteration in 4 s: nine are left.
        assert_eq!(look(12, 5), (Some(Duration::from_millis(4500)), Some(80.0), true));
        assert_eq!(look(12, 6).0, Some(Duration::from_millis(3500)));
    }

    /// A slow iteration does not extend the estimate until it is overdue.
    #[test]
    fn remaining_time_uses_completed_iterations() {
        let mut progress = RunProgress::new("1n1g".to_owned(), 11, 1);
        let start = Instant::now();
        for batch in 1..=6 {
            run(&mut progress, batch, 8.0, start + Duration::from_secs(10 + u64::from(batch)));
        }
        let left = |second| progress.left(start + Duration::from_secs(second));
        assert_eq!([16, 18, 60].map(left), [5, 3, 0].map(|seconds| Some(Duration::from_secs(seconds))));
    }

    /// The lines of the iterations in its checkpoint arrive at once, and are no measure of the current speed.
    #[test]
    fn remaining_time_of_resumed_run_uses_new_iterations() {
        let mut progress = RunProgress::new("1n1g".to_owned(), 20, 1);
        let start = Instant::now();
        (1..=10).for_each(|batch| run(&mut progress, batch, 8.0, start));
        progress.parse_line(dlperf::write_resumption(10).as_bytes(), start);
        assert_eq!(progress.left(start), None);
        run(&mut progress, 11, 8.0, start + Duration::from_secs(3));
        assert_eq!(progress.left(start + Duration::from_secs(3)), Some(Duration::from_secs(27)));
        assert_eq!(progress.speed(), Some(UnitsPerSecond(8.0)));
    }

    /// Ten iterations per epoch; the predictions after them take as long as four iterations.
    #[test]
    fn remaining_time_includes_future_validations() {
        let train = TrainConfig { batch_size: 1, ..TrainConfig::default() };
        let validation = ValidationCost::new(&train, 1, EpochSamples { trained: 10, predicted: 12 });
        let mut progress = RunProgress::new("1n1g".to_owned(), 20, 1).validating(Some(validation));
        let start = Instant::now();
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        for batch in 1..=10 {
            run(&mut progress, batch, 8.0, after(batch.into()));
        }
        // Ten iterations and the predictions of two epochs are left.
        assert_eq!(progress.left(after(10)), Some(Duration::from_secs(18)));
        run(&mut progress, 11, 8.0, after(15));
        assert_eq!(progress.left(after(15)), Some(Duration::from_secs(13)));
    }
}
