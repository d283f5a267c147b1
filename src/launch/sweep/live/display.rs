//! Displays the progress of a command: on a terminal as lines that are updated in place, below the printed output;
//! otherwise as one line every 30 s.

use std::cell::Cell;
use std::time::{Duration, Instant};

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ringmark_core::progress::Progress;

use crate::launch::sweep::live::lines::{headline, lines};

/// Time between two lines if there is no terminal.
const INTERVAL: Duration = Duration::from_secs(30);

/// The display, and the time of the latest line if there is no terminal.
pub struct Display {
    term: Term,
    /// Hidden if there is no terminal, or if the terminal cannot move its cursor.
    bar: ProgressBar,
    printed: Cell<Instant>,
}

impl Display {
    /// Uses standard error if `to_error` is set, because standard output is used for something else.
    pub fn new(to_error: bool, now: Instant) -> Display {
        let (term, target) = match to_error {
            true => (Term::stderr(), ProgressDrawTarget::stderr()),
            false => (Term::stdout(), ProgressDrawTarget::stdout()),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = ProgressStyle::with_template("{msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Display { term, bar, printed: Cell::new(now) }
    }

    /// Returns true if there is a terminal whose lines can be updated.
    pub fn is_live(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Updates the display, with `notes` below. Without a terminal, returns the line to print when it is due.
    pub fn show(&self, progress: &Progress, notes: &[String], now: Instant) -> Option<String> {
        if self.is_live() {
            let (rows, columns) = self.term.size();
            let notes = notes.iter().map(|note| note.chars().take(columns.into()).collect());
            let shown = lines(progress, columns.into(), usize::from(rows).saturating_sub(notes.len()));
            self.bar.set_message(shown.into_iter().chain(notes).collect::<Vec<String>>().join("\n"));
            return None;
        }
        let is_due = now - self.printed.get() >= INTERVAL;
        is_due.then(|| {
            self.printed.set(now);
            headline(progress, usize::MAX)
        })
    }

    /// Runs `print` with the display suspended, so that its output appears above.
    pub fn above<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bar.suspend(print)
    }

    /// Clears the updated lines.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::sweep::live::lines::tests::progress;

    #[test]
    fn line_is_printed_every_30_seconds_without_a_terminal() {
        let start = Instant::now();
        let display = Display::new(false, start);
        display.bar.set_draw_target(ProgressDrawTarget::hidden());
        let lines = (1..=120).filter_map(|second| {
            let line = display.show(&progress(), &[], start + Duration::from_secs(second));
            line.map(|line| (second, line))
        });
        let line = "run 3/10 - 2n2g - backward - 12/30 - 79.00 images/s ±4 % - run 0:40 - sweep about 6:10 left";
        assert_eq!(lines.collect::<Vec<_>>(), [30, 60, 90, 120].map(|second| (second, line.to_owned())));
    }
}
