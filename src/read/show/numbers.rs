//! Formats of numbers and marks of unreliable ones.

use ringmark_core::dimension::units;
use ringmark_core::dimension::{Seconds, TeraflopsPerSecond};

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

/// Three digits, and at most three decimals.
pub fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        ..1.0 => 3,
        1.0..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// In 1e12 operations a second.
pub fn teraflops(rate: TeraflopsPerSecond) -> String {
    three_digits(rate.0)
}

/// In milliseconds, 2 decimals; what rounds to nothing has no sign.
pub fn milliseconds(time: Seconds) -> String {
    let text = format!("{:.2}", time.0 * 1e3);
    if text == "-0.00" { "0.00".to_owned() } else { text }
}

/// For a big figure: four digits at most, thousands apart.
pub fn big(value: f64) -> String {
    match value.abs() {
        ..10.0 => format!("{value:.2}"),
        10.0..1000.0 => format!("{value:.1}"),
        _ => thousands(value),
    }
}

/// `9 580`, with a thin space that does not break.
fn thousands(value: f64) -> String {
    let text = units::thousands(value, '\u{202f}');
    if value < 0.0 { format!("\u{2212}{text}") } else { text }
}

/// `1 run`, `3 runs`.
pub fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
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
    fn rates_have_three_digits() {
        let texts = [0.0567, 0.567, 5.674, 56.74, 567.4].map(|rate| teraflops(TeraflopsPerSecond(rate)));
        assert_eq!(texts, ["0.057", "0.567", "5.67", "56.7", "567"]);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [9.579, 95.79, 957.9, 9579.74, 95_797_400.0].map(big),
            ["9.58", "95.8", "957.9", "9\u{202f}580", "95\u{202f}797\u{202f}400"]
        );
        assert_eq!([0.00123, -1e-9, -0.002].map(|time| milliseconds(Seconds(time))), ["1.23", "0.00", "-2.00"]);
        assert_eq!([count(1, "run"), count(0, "run")], ["1 run", "0 runs"]);
        assert_eq!(list(&["a".to_owned(), "b".to_owned(), "c".to_owned()]), "a, b and c");
    }
}
