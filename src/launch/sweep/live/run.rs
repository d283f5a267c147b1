//! What is shown of a run while it goes: which one it is, where its slowest rank is, images/s so far, time left of the
//! sweep. On a terminal it is one line that changes, elsewhere a line every half a minute. Not for the figures of a sweep:
//! those are read from the files.

use std::time::{Duration, Instant};

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ringmark_record::dimension::units::ImagesPerSecond;
use ringmark_record::host::heartbeat::Stage;
use ringmark_record::line::dlperf::{self, Line};
use ringmark_record::stats::{summary, welch};

use crate::launch::local::print::print_line;
use crate::launch::sweep::benchmark::{Follower, SessionProgress};
use crate::launch::sweep::cost::ValidationCost;

/// Between two lines where standard output is no terminal.
const INTERVAL: Duration = Duration::from_secs(30);

/// How many parts of the line may be left out where there is no room.
const SHORTEST: u32 = 3;

/// Follows a run by the lines of its iterations and the reports of its ranks.
pub struct RunProgress {
    /// Hidden where standard output is no terminal.
    bar: ProgressBar,
    /// What the run is called.
    title: String,
    session: SessionProgress,
    iterations: u32,
    warmup: u32,
    validation: Option<ValidationCost>,
    started: Instant,
    /// Number and speed of the last iteration that ended.
    last: Option<(u32, ImagesPerSecond)>,
    /// Of the iterations after warm-up.
    speeds: Vec<f64>,
    /// When the first iteration was seen to end, and its number.
    first: Option<(Instant, u32)>,
    /// When the last one was seen to end.
    seen: Instant,
    /// Iteration and stage of the rank that is furthest behind.
    place: Option<(u32, Stage)>,
    /// When the last line was printed.
    printed: Instant,
}

impl RunProgress {
    /// Of the run called `title`; it has `iterations`, the first `warmup` of which do not count.
    pub fn new(title: String, iterations: u32, warmup: u32, session: SessionProgress) -> RunProgress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout());
        let style = ProgressStyle::with_template("{wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let now = Instant::now();
        let run = RunProgress {
            bar,
            title,
            session,
            iterations,
            warmup,
            validation: None,
            started: now,
            last: None,
            speeds: Vec::new(),
            first: None,
            seen: now,
            place: None,
            printed: now,
        };
        run.bar.set_message(run.line_at(now));
        run
    }

    /// The same of a run whose epochs end with this.
    pub fn validating(self, validation: Option<ValidationCost>) -> RunProgress {
        RunProgress { validation, ..self }
    }

    /// All images over all time after warm-up, as the log has it; `None` where no iteration came after it.
    pub fn speed(&self) -> Option<ImagesPerSecond> {
        summary::harmonic_mean(&self.speeds).map(ImagesPerSecond)
    }

    fn take(&mut self, line: &[u8], now: Instant) {
        let Line::Iteration { batch, speed, .. } = dlperf::parse(line) else {
            if dlperf::is_taken_up(line) {
                // The iterations so far were done at another time.
                (self.first, self.seen) = (self.last.map(|(batch, _)| (now, batch)), now);
            }
            return;
        };
        if batch > self.warmup {
            self.speeds.push(speed.0);
        }
        self.first.get_or_insert((now, batch));
        (self.last, self.seen) = (Some((batch, speed)), now);
    }

    /// Shows where the run is; on no terminal the line to print, where it is time for one.
    fn show(&mut self, now: Instant) -> Option<String> {
        if !self.bar.is_hidden() {
            let width = usize::from(Term::stdout().size().1);
            self.bar.set_message(self.line_within(now, width));
            return None;
        }
        let line = self.line_at(now);
        let is_due = now - self.printed >= INTERVAL;
        is_due.then(|| {
            self.printed = now;
            line
        })
    }

    /// As [`line_at`](RunProgress::line_at); where that is longer than `width`, without what is missed least.
    fn line_within(&self, now: Instant, width: usize) -> String {
        let fitting = (0..SHORTEST).map(|shorter| self.shortened(now, shorter)).find(|line| line.len() <= width);
        fitting.unwrap_or_else(|| self.shortened(now, SHORTEST))
    }

    /// `run 3/10 - 1n2g - backward - 12/30 - 1.2 images/s +-4 % - run 0:40 - sweep about 6:10 left`.
    fn line_at(&self, now: Instant) -> String {
        self.shortened(now, 0)
    }

    /// The same without its first, second and third least part: the time of the run, the interval, the stage.
    fn shortened(&self, now: Instant, shorter: u32) -> String {
        let SessionProgress { number, of, .. } = self.session;
        let elapsed = now - self.started;
        let mut parts = vec![format!("run {number}/{of}"), self.title.clone()];
        parts.extend(self.place.filter(|_| shorter < SHORTEST).map(|(_, stage)| name(stage)));
        let begun = self.place.map_or(0, |(iteration, _)| iteration);
        let iteration = self.last.map_or(begun, |(ended, _)| ended.max(begun));
        if iteration > 0 {
            parts.push(format!("{iteration}/{}", self.iterations));
        }
        parts.extend(self.speed_text(shorter < 2));
        parts.extend((shorter < 1).then(|| format!("run {}", clock(elapsed))));
        let left = self.session.session_left(elapsed, self.left(now));
        parts.extend(left.map(|left| format!("sweep about {} left", clock(left))));
        parts.join(" - ")
    }

    /// The speed so far; with the half-width of the 95 % confidence interval of the mean, where it has one that tells
    /// something and there is room for it.
    fn speed_text(&self, has_margin: bool) -> Option<String> {
        let Some(speed) = self.speed() else {
            return self.last.map(|(_, speed)| format!("{:.1} images/s (warm-up)", speed.0));
        };
        let margin = welch::margin_of_mean(&self.speeds).filter(|_| has_margin && speed.0 > 0.0);
        let margin = margin.map(|margin| margin / speed.0).filter(|margin| *margin < 1.0);
        let margin = margin.map(|margin| format!(" +-{:.0} %", 100.0 * margin)).unwrap_or_default();
        Some(format!("{:.1} images/s{margin}", speed.0))
    }

    /// Time left of the run, by the iterations that were timed here.
    fn left(&self, now: Instant) -> Option<Duration> {
        let ((since, first), (last, _)) = (self.first?, self.last?);
        let at = |iteration: u32| self.validation.map_or(f64::from(iteration), |of| of.at(iteration));
        let all = self.validation.map_or(f64::from(self.iterations), |of| of.behind(self.iterations));
        let timed = Some(at(last) - at(first)).filter(|timed| *timed > 0.0)?;
        let whole = (self.seen - since).as_secs_f64() * (all - at(last)).max(0.0) / timed;
        Some(Duration::try_from_secs_f64(whole).ok()?.saturating_sub(now - self.seen))
    }
}

impl Follower for RunProgress {
    fn line(&mut self, line: &[u8]) -> anyhow::Result<()> {
        self.take(line, Instant::now());
        Ok(())
    }

    fn place(&mut self, place: Option<(u32, Stage)>) {
        self.place = place;
        if let Some(line) = self.show(Instant::now()) {
            print_line(&line);
        }
    }

    fn finish(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// What a rank does; the number of a bucket would change faster than it can be read.
fn name(stage: Stage) -> String {
    match stage {
        Stage::Exchange { operation, .. } => operation.text().to_owned(),
        stage => stage.to_string(),
    }
}

/// `0:40`, `1:02:03`.
fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().round() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use ringmark_record::benchmark::train::config::TrainConfig;

    use super::*;
    use crate::launch::sweep::cost::EpochImages;

    const FIRST: SessionProgress =
        SessionProgress { number: 1, of: 1, work: 1.0, later_work: 0.0, pauses: Duration::ZERO, pace: None };

    fn run(progress: &mut RunProgress, batch: u32, speed: f64, now: Instant) {
        progress.take(dlperf::write(batch, ImagesPerSecond(speed), 6.9).as_bytes(), now);
    }

    #[test]
    fn the_speed_leaves_out_warm_up_and_noise() {
        let mut progress = RunProgress::new("1n1g".to_owned(), 4, 2, FIRST);
        for (batch, speed) in [(1, 1.0), (2, 2.0), (3, 30.0), (4, 50.0)] {
            run(&mut progress, batch, speed, Instant::now());
            progress.line(b"some warning\n").expect("taken");
        }
        // 2 / (1/30 + 1/50).
        assert_eq!(progress.speed(), Some(ImagesPerSecond(37.5)));
        assert_eq!(RunProgress::new(String::new(), 4, 2, FIRST).speed(), None);
    }

    #[test]
    fn place_speed_and_time_left_are_shown_as_they_become_known() {
        // The second of ten equal runs, whose first took 40 s.
        let session = SessionProgress { number: 2, of: 10, work: 5.0, later_work: 40.0, pace: Some(8.0), ..FIRST };
        let mut progress = RunProgress::new("1n2g".to_owned(), 12, 2, session);
        let start = progress.started;
        let after = |seconds: u32| start + Duration::from_secs(1) * seconds;
        assert_eq!(progress.line_at(after(1)), "run 2/10 - 1n2g - run 0:01 - sweep about 5:59 left");
        progress.place = Some((0, Stage::Joining));
        let joining = "run 2/10 - 1n2g - MPI's initialization - run 0:02 - sweep about 5:58 left";
        assert_eq!(progress.line_at(after(2)), joining);
        let mut shown = |batch: u32, speed: f64, stage: Stage| {
            run(&mut progress, batch, speed, after(3 * batch));
            progress.place = Some((batch + 1, stage));
            progress.line_at(after(3 * batch))
        };
        assert_eq!(
            shown(1, 10.0, Stage::Forward),
            "run 2/10 - 1n2g - forward - 2/12 - 10.0 images/s (warm-up) - run 0:03 - sweep about 5:57 left"
        );
        assert_eq!(
            shown(2, 20.0, Stage::Backward),
            "run 2/10 - 1n2g - backward - 3/12 - 20.0 images/s (warm-up) - run 0:06 - sweep about 5:50 left"
        );
        assert_eq!(
            shown(3, 20.0, Stage::all_reduce(3)),
            "run 2/10 - 1n2g - all-reduce - 4/12 - 20.0 images/s - run 0:09 - sweep about 5:47 left"
        );
        // Of 20 and 22 the mean is 21, the standard error 1, and Student's t of one degree of freedom 12.7.
        assert_eq!(
            shown(4, 22.0, Stage::Optimizer),
            "run 2/10 - 1n2g - optimizer - 5/12 - 21.0 images/s +-61 % - run 0:12 - sweep about 5:44 left"
        );
    }

    #[test]
    fn the_first_run_tells_the_time_of_those_after_it() {
        let session = SessionProgress { of: 4, work: 2.0, later_work: 6.0, pauses: Duration::from_secs(30), ..FIRST };
        let mut progress = RunProgress::new("1n1g".to_owned(), 11, 1, session);
        let start = progress.started;
        assert!(!progress.line_at(start).contains("left"));
        for batch in 1..=6 {
            run(&mut progress, batch, 8.0, start + Duration::from_secs(10 + u64::from(batch)));
        }
        // 16 s of it are over and 5 s are left; the others take three times these 21 s.
        let line = progress.line_at(start + Duration::from_secs(16));
        assert!(line.ends_with("8.0 images/s +-0 % - run 0:16 - sweep about 1:38 left"), "{line}");
        // An iteration that takes its time does not make the run longer until it is overdue.
        assert_eq!(progress.left(start + Duration::from_secs(18)), Some(Duration::from_secs(3)));
        assert_eq!(progress.left(start + Duration::from_secs(60)), Some(Duration::ZERO));
    }

    /// The lines of what its checkpoint holds come at once, and say nothing of how fast it is now.
    #[test]
    fn the_time_left_of_a_run_that_was_taken_up_is_by_what_was_done_since() {
        let mut progress = RunProgress::new("1n1g".to_owned(), 20, 1, FIRST);
        let start = progress.started;
        (1..=10).for_each(|batch| run(&mut progress, batch, 8.0, start));
        progress.take(dlperf::write_taken_up(10).as_bytes(), start);
        assert_eq!(progress.left(start), None);
        run(&mut progress, 11, 8.0, start + Duration::from_secs(3));
        assert_eq!(progress.left(start + Duration::from_secs(3)), Some(Duration::from_secs(27)));
        assert_eq!(progress.speed(), Some(ImagesPerSecond(8.0)));
    }

    /// Ten iterations an epoch; what is predicted behind them takes as long as four of them.
    #[test]
    fn the_time_left_has_the_predictions_that_are_to_come() {
        let train = TrainConfig { batch_size: 1, ..TrainConfig::default() };
        let validation = ValidationCost::of(&train, 1, EpochImages { trained: 10, predicted: 12 });
        let mut progress = RunProgress::new("1n1g".to_owned(), 20, 1, FIRST).validating(Some(validation));
        let start = progress.started;
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        for batch in 1..=10 {
            run(&mut progress, batch, 8.0, after(batch.into()));
        }
        // Ten iterations and twice the predictions are to come.
        assert_eq!(progress.left(after(10)), Some(Duration::from_secs(18)));
        run(&mut progress, 11, 8.0, after(15));
        assert_eq!(progress.left(after(15)), Some(Duration::from_secs(13)));
    }

    #[test]
    fn without_a_terminal_a_line_comes_every_half_a_minute() {
        let mut progress = RunProgress::new("1n1g".to_owned(), 4, 2, FIRST);
        progress.bar.set_draw_target(ProgressDrawTarget::hidden());
        let start = progress.started;
        let lines = (1..=120).filter_map(|second| progress.show(start + Duration::from_secs(second)));
        assert_eq!(
            lines.collect::<Vec<_>>(),
            ["0:30", "1:00", "1:30", "2:00"].map(|time| format!("run 1/1 - 1n1g - run {time}"))
        );
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
    }
}
