//! Formats of numbers and marks of unreliable ones.

use ringmark_core::dimension::units::three_digits;
use ringmark_core::dimension::{Seconds, TeraflopsPerSecond};
pub use ringmark_core::text::count;

/// Follows the figure of runs with warnings.
pub const MARK: &str = "!";

/// Returns the figure, in parentheses if it is unreliable.
pub fn marked(figure: String, is_doubtful: bool) -> String {
    if is_doubtful { format!("({figure})") } else { figure }
}

/// Explains [`MARK`]; `word` begins the warnings.
pub fn mark_legend(word: &str) -> String {
    format!("{MARK}: these runs count, but read the lines that begin with {word}.")
}

/// Explains parentheses; the warnings are `above` or `below`.
pub fn doubtful_legend(place: &str) -> String {
    format!("In parentheses: unreliable; the warnings {place} say why, and what to do.")
}

/// `92.0` for 0.92.
pub fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// In 1e12 operations a second.
pub fn teraflops(rate: TeraflopsPerSecond) -> String {
    three_digits(rate.0)
}

/// In milliseconds.
pub fn milliseconds(time: Seconds) -> String {
    three_digits(time.0 * 1e3)
}

/// `a`, `a and b`, `a, b and c`.
pub fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lists_read_as_a_sentence() {
        assert_eq!([count(1, "run"), count(0, "run")], ["1 run", "0 runs"]);
        assert_eq!(list(&["a".to_owned(), "b".to_owned(), "c".to_owned()]), "a, b and c");
    }
}
