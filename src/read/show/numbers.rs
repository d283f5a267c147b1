//! Number formats, and marks for unreliable numbers.

pub use ringmark_core::number_text::{count, marked, milliseconds_number, percent_number, share_of_limit};

use ringmark_core::dimension::TeraflopsPerSecond;
use ringmark_core::number_text::three_digits;

/// Mark after figures of runs with warnings.
pub const MARK: &str = "!";

/// Explains [`MARK`]; `warnings` is their location, such as `the lines that begin with warning`.
pub fn mark_legend(warnings: &str) -> String {
    format!("{MARK}: these runs count but have warnings: see {warnings}.")
}

/// Explains parentheses; `warnings` is the location of the warnings, such as `the warnings above`.
pub fn doubtful_legend(warnings: &str) -> String {
    format!("In parentheses: unreliable; {warnings} give the reason and the fix.")
}

/// Formats bytes as GB, or a number of parameters.
pub fn billions(number: f64) -> String {
    three_digits(number / 1e9)
}

pub fn teraflops(rate: TeraflopsPerSecond) -> String {
    three_digits(rate.0)
}

/// Joins items: `a`, `a and b`, `a, b and c`.
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
    fn counts_and_lists_are_formatted() {
        assert_eq!([count(1_usize, "run"), count(0_usize, "run")], ["1 run", "0 runs"]);
        assert_eq!(list(&["a".to_owned(), "b".to_owned(), "c".to_owned()]), "a, b and c");
    }
}
