//! Short texts that are parts of messages and tables: counts, shares, ranges.

use std::fmt::Display;

/// `1 run`, `3 runs`.
pub fn count<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// `92.0 %` for 0.92.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_shares_are_read_as_they_are_written() {
        assert_eq!([count(0, "run"), count(1_u32, "run"), count(2_u64, "run")], ["0 runs", "1 run", "2 runs"]);
        assert_eq!(percent(0.9204), "92.0 %");
        assert_eq!(["92 %", "0.5%", "92", "%", "x%"].map(parse_percent), [Some(0.92), Some(0.005), None, None, None]);
    }

    #[test]
    fn numbers_that_follow_each_other_are_a_range() {
        assert_eq!(ranges([0, 2, 3, 4, 7, 8]), ["0", "2-4", "7-8"]);
        assert_eq!(ranges([]), [""; 0]);
    }
}
