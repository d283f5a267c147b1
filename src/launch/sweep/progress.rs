//! What the terminal shows of a run while it goes: which one it is, images/s so far, time left of the run and of the sweep.
//! Nothing where standard output is no terminal. Not for the figures of a sweep: those are read from the files.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ringmark_record::dimension::units::ImagesPerSecond;
use ringmark_record::line::dlperf::{self, Line};
use ringmark_record::stats::summary;

use crate::launch::sweep::benchmark::{ExpectedTime, Follower, SessionProgress};

/// Follows a run by the lines of its iterations.
pub struct RunProgress {
    /// Hidden where standard output is no terminal.
    bar: ProgressBar,
    iterations: u32,
    warmup: u32,
    /// Of the iterations after warm-up.
    speeds: Vec<f64>,
    /// When the first iteration was seen to end, and its number.
    first: Option<(Instant, u32)>,
    /// What this run and those after it will take.
    expected: Option<ExpectedTime>,
}

impl RunProgress {
    /// Of the run called `title`; it has `iterations`, the first `warmup` of which do not count.
    pub fn new(title: &str, iterations: u32, warmup: u32, progress: SessionProgress) -> RunProgress {
        let bar = ProgressBar::with_draw_target(Some(iterations.into()), ProgressDrawTarget::stdout());
        let style = ProgressStyle::with_template("{prefix} {bar:20} {pos}/{len} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(format!("[{}/{}] {title}", progress.number, progress.of));
        let mut run =
            RunProgress { bar, iterations, warmup, speeds: Vec::new(), first: None, expected: progress.expected };
        run.show("starting".to_owned(), None);
        run
    }

    /// DLPerf's mean of rates after warm-up; `None` where no iteration came after it.
    pub fn mean(&self) -> Option<ImagesPerSecond> {
        summary::mean(&self.speeds).map(ImagesPerSecond)
    }

    fn take(&mut self, line: &[u8], now: Instant) {
        let Line::Iteration { batch, speed, .. } = dlperf::parse(line) else { return };
        if batch > self.warmup {
            self.speeds.push(speed.0);
        }
        let (since, first) = *self.first.get_or_insert((now, batch));
        // A mean of the time per iteration, by those that were timed here.
        let left = batch.checked_sub(first).filter(|timed| *timed > 0).map(|timed| {
            let per_iteration = (now - since).as_secs_f64() / f64::from(timed);
            Duration::from_secs_f64(per_iteration * f64::from(self.iterations.saturating_sub(batch)))
        });
        self.bar.set_position(batch.into());
        let speed = match self.mean() {
            Some(mean) => format!("{mean:.2} so far"),
            None => format!("{speed:.2} (warm-up)"),
        };
        self.show(speed, left);
    }

    fn show(&mut self, what: String, left: Option<Duration>) {
        let mut message = what;
        if let Some(left) = left {
            message += &format!(", {} left", whole_seconds(left));
        }
        if let Some(sweep) = self.expected.map(|expected| expected.rest + left.unwrap_or(expected.job)) {
            message += &format!(", sweep {} left", whole_seconds(sweep));
        }
        self.bar.set_message(message);
    }
}

impl Follower for RunProgress {
    fn line(&mut self, line: &[u8]) -> anyhow::Result<()> {
        self.take(line, Instant::now());
        Ok(())
    }

    fn finish(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// `3m 20s`.
fn whole_seconds(duration: Duration) -> String {
    humantime::format_duration(Duration::from_secs(duration.as_secs_f64().round() as u64)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: SessionProgress = SessionProgress { number: 1, of: 1, expected: None };

    fn run(progress: &mut RunProgress, batch: u32, speed: f64, now: Instant) {
        progress.take(dlperf::write(batch, ImagesPerSecond(speed), 6.9).as_bytes(), now);
    }

    #[test]
    fn the_mean_leaves_out_warm_up_and_noise() {
        let mut progress = RunProgress::new("1n1g run 1 of 1", 4, 2, FIRST);
        for (batch, speed) in [(1, 1.0), (2, 2.0), (3, 30.0), (4, 50.0)] {
            run(&mut progress, batch, speed, Instant::now());
            progress.line(b"some warning\n").expect("taken");
        }
        assert_eq!(progress.mean(), Some(ImagesPerSecond(40.0)));
        assert_eq!(RunProgress::new("", 4, 2, FIRST).mean(), None);
    }

    #[test]
    fn speed_and_time_left_are_shown_as_they_become_known() {
        let start = Instant::now();
        let expected = Some(ExpectedTime { job: Duration::from_secs(40), rest: Duration::from_secs(100) });
        let session = SessionProgress { number: 2, of: 10, expected };
        let mut progress = RunProgress::new("1n2g run 2 of 5", 12, 2, session);
        assert_eq!(progress.bar.prefix(), "[2/10] 1n2g run 2 of 5");
        assert_eq!(progress.bar.message(), "starting, sweep 2m 20s left");
        let mut shown = |batch: u32| {
            run(&mut progress, batch, 20.5, start + Duration::from_secs(3) * batch);
            progress.bar.message()
        };
        assert_eq!(shown(1), "20.50 images/s (warm-up), sweep 2m 20s left");
        assert_eq!(shown(2), "20.50 images/s (warm-up), 30s left, sweep 2m 10s left");
        assert_eq!(shown(4), "20.50 images/s so far, 24s left, sweep 2m 4s left");
    }
}
