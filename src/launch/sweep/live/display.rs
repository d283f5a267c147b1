//! Shows a command on its way where a person is looking: lines that change, below what is printed. Elsewhere a line every half a
//! minute.

use std::cell::Cell;
use std::time::{Duration, Instant};

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ringmark_core::progress::Progress;

use crate::launch::sweep::live::lines::{headline, lines};

/// Between two lines where there is no terminal.
const INTERVAL: Duration = Duration::from_secs(30);

/// What changes, and when it was last printed where nothing can.
pub struct Display {
    term: Term,
    /// Hidden where there is no terminal, or one that cannot move its cursor.
    bar: ProgressBar,
    printed: Cell<Instant>,
}

impl Display {
    /// On the standard error where something else has the standard output.
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

    /// Whether there is a terminal whose lines can change.
    pub fn is_live(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Shows it, with `notes` below; on no terminal the line to print, where it is time for one.
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

    /// Prints above what changes, by `print`.
    pub fn above<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bar.suspend(print)
    }

    /// Clears what changes.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::sweep::live::lines::tests::progress;

    #[test]
    fn without_a_terminal_a_line_comes_every_half_a_minute() {
        let start = Instant::now();
        let display = Display::new(false, start);
        display.bar.set_draw_target(ProgressDrawTarget::hidden());
        let lines = (1..=120).filter_map(|second| {
            let line = display.show(&progress(), &[], start + Duration::from_secs(second));
            line.map(|line| (second, line))
        });
        let line = "run 3/10 - 2n2g - backward - 12/30 - 79.00 images/s +-4 % - run 0:40 - sweep about 6:10 left";
        assert_eq!(lines.collect::<Vec<_>>(), [30, 60, 90, 120].map(|second| (second, line.to_owned())));
    }
}
