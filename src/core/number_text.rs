//! Numbers in messages and tables, each form by one function.

use std::fmt::Display;

use crate::dimension::{Bytes, Seconds};

/// `1 run`, `3 runs`.
pub fn count<N: Copy + Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    format!("{number} {noun}{}", plural(number))
}

/// Ending of a regular noun: none for one, `s` otherwise.
pub fn plural<N: PartialEq + From<u8>>(number: N) -> &'static str {
    if number == N::from(1) { "" } else { "s" }
}

/// Formats a share as a percentage: `92.0 %` for 0.92.
pub fn percent(share: f64) -> String {
    format!("{} %", percent_number(share))
}

/// `92.0` of a share of 0.92, for a column or a label that has the unit.
pub fn percent_number(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// `34.5` of a share of a rate that is a limit; `>100` if it is exceeded: the limit was measured
/// on a busy machine, or the work needs fewer operations than counted (Winograd).
pub fn share_of_limit(share: f64) -> String {
    let text = percent_number(share);
    if share > 1.0 && text != "100.0" { ">100".to_owned() } else { text }
}

/// Returns the figure, in parentheses if it is unreliable. All tables use these parentheses.
pub fn marked(figure: String, is_unreliable: bool) -> String {
    if is_unreliable { format!("({figure})") } else { figure }
}

/// Coefficient of variation in percent, with two significant digits: `0.35`, `12`.
pub fn cv_percent(cv: f64) -> String {
    significant(cv * 100.0, 2)
}

/// `102.2 GB`.
pub fn gigabytes(bytes: Bytes) -> String {
    format!("{:.1} GB", bytes.gigabytes())
}

/// Formats a rounded number without its sign, with a thousands separator: `9,580`.
pub fn thousands(value: f64, separator: char) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(separator);
        }
        text.push(digit);
    }
    text
}

/// Formats a throughput with four significant digits: `0.317`, `14.70`, `813.3`, `9,580`.
pub fn four_digits(value: f64) -> String {
    significant(value, 4)
}

/// Formats a time or a rate with three significant digits: `0.057`, `5.67`, `56.7`, `9,580`.
pub fn three_digits(value: f64) -> String {
    significant(value, 3)
}

/// A time with three significant digits in seconds, minutes, hours or days: `45.0 s`, `2.50 min`, `30.0 h`, `200 d`.
pub fn time(Seconds(seconds): Seconds) -> String {
    let (unit, name) = match seconds {
        ..120.0 => (1.0, "s"),
        120.0..7200.0 => (60.0, "min"),
        7200.0..172_800.0 => (3600.0, "h"),
        _ => (86_400.0, "d"),
    };
    format!("{} {name}", three_digits(seconds / unit))
}

/// A time in milliseconds with three significant digits: `5.67 ms`.
pub fn milliseconds(time: Seconds) -> String {
    format!("{} ms", milliseconds_number(time))
}

/// `5.67` of a time of 0.00567 s, for a column or a label that has the unit.
pub fn milliseconds_number(time: Seconds) -> String {
    three_digits(time.0 * 1e3)
}

/// Removes zeros after the decimal point: `3.0000` becomes `3`.
pub fn without_trailing_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

/// At most three decimals, thousands separated by commas, no sign before a zero.
fn significant(value: f64, digits: usize) -> String {
    let size = value.abs();
    let whole_digits = if size < 1.0 { 0 } else { (size.log10() as usize).saturating_add(1) };
    let decimals = digits.saturating_sub(whole_digits).min(3);
    let text = match decimals {
        0 => thousands(value, ','),
        _ => format!("{size:.decimals$}"),
    };
    let is_zero = text.bytes().all(|digit| matches!(digit, b'0' | b'.'));
    if value < 0.0 && !is_zero { format!("-{text}") } else { text }
}

/// Parses `92%`, with the sign, as 0.92.
pub fn parse_percent(text: &str) -> Option<f64> {
    Some(text.strip_suffix('%')?.trim().parse::<f64>().ok()? / 100.0)
}

/// Joins rising numbers that follow each other: 0, 2, 3 and 4 are `0` and `2-4`.
pub fn ranges(numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let text = |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.into_iter().map(text).collect()
}

/// Formats a size in the largest binary unit that gives an integer, as on the command line; otherwise in MB.
pub fn binary_size(bytes: Bytes) -> String {
    let mut value = bytes.0;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024 {
            return format!("{value} {unit}");
        }
        if !value.is_multiple_of(1024) {
            break;
        }
        value /= 1024;
    }
    format!("{:.3} MB", bytes.0 as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn percentages_round_trip() {
        assert_eq!(["92 %", "0.5%", "92", "%", "x%"].map(parse_percent), [Some(0.92), Some(0.005), None, None, None]);
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!([0.4, 999.6, -1e6].map(|value| thousands(value, ',')), ["0", "1,000", "1,000,000"]);
    }

    #[test]
    fn figures_have_significant_digits() {
        let values = [0.0567, 0.5674, 5.674, 14.7, 813.26, 9579.74, -32.04, -1e-9];
        expect![["0.057 0.567 5.674 14.70 813.3 9,580 -32.04 0.000"]].assert_eq(&values.map(four_digits).join(" "));
        expect![["0.057 0.567 5.67 14.7 813 9,580 -32.0 0.000"]].assert_eq(&values.map(three_digits).join(" "));
    }

    #[test]
    fn times_have_a_unit() {
        let times = [-1.5, 45.0, 150.0, 7200.0, 200.0 * 86_400.0].map(|seconds| time(Seconds(seconds)));
        expect![["-1.50 s, 45.0 s, 2.50 min, 2.00 h, 200 d"]].assert_eq(&times.join(", "));
        assert_eq!(milliseconds(Seconds(0.005_674)), "5.67 ms");
        assert_eq!(["3.0000", "0.50", "100"].map(without_trailing_zeros), ["3", "0.5", "100"]);
    }

    #[test]
    fn ranges_and_counts_are_short() {
        assert_eq!(ranges([0, 2, 3, 4, 9]), ["0", "2-4", "9"]);
        assert_eq!(ranges([]), [""; 0]);
        assert_eq!([count(1_u32, "run"), count(0_usize, "run")], ["1 run", "0 runs"]);
        assert_eq!((percent(0.92), gigabytes(Bytes(1_260_000_000))), ("92.0 %".to_owned(), "1.3 GB".to_owned()));
    }
}
