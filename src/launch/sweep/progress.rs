//! What the terminal shows of a run while it goes, and the mean that is told when it is done. Not for the figures of
//! a sweep: those are read from the files.

use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ringmark_record::log_line::{self, Line};
use ringmark_record::stats::summary;
use ringmark_record::units::ImagesPerSecond;

/// Prints a line on the standard output. What it says is in the files as well: where it cannot be written, on a disk
/// that is full, say, nothing ends for it.
pub fn say(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// The same on the standard error.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Follows a run by the lines of its iterations.
pub struct RunProgress {
    /// Hidden where standard output is no terminal.
    bar: ProgressBar,
    warmup: u32,
    /// Of the iterations after warm-up.
    speeds: Vec<f64>,
}

impl RunProgress {
    /// `title` is what stands before the bar; the run has `iterations`, the first `warmup` of which do not count.
    pub fn new(title: String, iterations: u32, warmup: u32) -> RunProgress {
        let bar = ProgressBar::with_draw_target(Some(iterations.into()), ProgressDrawTarget::stdout());
        let style = ProgressStyle::with_template("{prefix} {bar:30} iteration {pos} of {len} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(title);
        bar.set_message("(starting)");
        RunProgress { bar, warmup, speeds: Vec::new() }
    }

    /// Takes the next line of the log.
    pub fn line(&mut self, line: &str) {
        if let Line::Iteration { batch, speed, .. } = log_line::parse(line) {
            self.bar.set_position(batch.into());
            self.bar.set_message(format!("{speed:.2}"));
            if batch > self.warmup {
                self.speeds.push(speed.0);
            }
        }
    }

    /// Clears the bar; DLPerf's mean of rates after warm-up, `None` where no iteration came after it.
    pub fn finish(self) -> Option<ImagesPerSecond> {
        self.bar.finish_and_clear();
        summary::mean(&self.speeds).map(ImagesPerSecond)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_leaves_out_warm_up_and_noise() {
        let mut progress = RunProgress::new("1n1g run 1 of 1".to_owned(), 4, 2);
        for (batch, speed) in [(1, 1.0), (2, 2.0), (3, 30.0), (4, 50.0)] {
            progress.line(&log_line::write(batch, ImagesPerSecond(speed), 6.9));
            progress.line("some warning");
        }
        assert_eq!(progress.finish(), Some(ImagesPerSecond(40.0)));
        assert_eq!(RunProgress::new(String::new(), 4, 2).finish(), None);
    }
}
