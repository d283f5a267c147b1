//! Values of options: their text on the command line, and parsers of numbers and times.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{anyhow, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::options::keyword_enum::KeywordEnum;

/// Value of an option on the command line.
pub trait OptionValue: Sized {
    /// Returns the value as it is typed; empty without one, `yes` for a flag that is set.
    fn text(&self) -> String;
    /// Parses a typed value.
    fn parse(text: &str) -> anyhow::Result<Self>;
    /// Definition for clap.
    const SHAPE: Shape = Shape::Text;
}

/// Form in which an option's value is typed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Shape {
    /// Any text that parses.
    #[default]
    Text,
    /// A keyword of a closed set, or an alias of one.
    Keyword(&'static [&'static str], &'static [(&'static str, &'static str)]),
    /// A flag without a value.
    Flag,
}

macro_rules! number {
    ($($number:ty: $what:literal),+) => {
        $(impl OptionValue for $number {
            fn text(&self) -> String {
                self.to_string()
            }

            fn parse(text: &str) -> anyhow::Result<$number> {
                text.parse().map_err(|_| anyhow!(concat!("must be ", $what)))
            }
        })+
    };
}

number!(
    u32: "a whole number of at least 0",
    u64: "a whole number of at least 0",
    i64: "a whole number",
    f64: "a number"
);

impl OptionValue for PathBuf {
    fn text(&self) -> String {
        self.display().to_string()
    }

    fn parse(text: &str) -> anyhow::Result<PathBuf> {
        Ok(PathBuf::from(text))
    }
}

impl OptionValue for bool {
    const SHAPE: Shape = Shape::Flag;

    fn text(&self) -> String {
        if *self { "yes".to_owned() } else { String::new() }
    }

    fn parse(text: &str) -> anyhow::Result<bool> {
        Ok(!text.is_empty())
    }
}

/// Implements [`OptionValue`] for a type with `Display` and `FromStr`, and the conversions for serde's `try_from` and `into`.
#[macro_export]
macro_rules! text_value {
    ($type:ty) => {
        impl $crate::options::value::OptionValue for $type {
            fn text(&self) -> String {
                self.to_string()
            }

            fn parse(text: &str) -> ::anyhow::Result<$type> {
                text.parse()
            }
        }

        impl TryFrom<String> for $type {
            type Error = ::anyhow::Error;

            fn try_from(text: String) -> ::anyhow::Result<$type> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> String {
                value.to_string()
            }
        }
    };
}

impl<T: KeywordEnum> OptionValue for T {
    const SHAPE: Shape = Shape::Keyword(T::KEYWORDS, T::ALIASES);

    fn text(&self) -> String {
        self.keyword().to_owned()
    }

    fn parse(text: &str) -> anyhow::Result<T> {
        text.parse()
    }
}

impl<T: OptionValue> OptionValue for Option<T> {
    const SHAPE: Shape = T::SHAPE;

    fn text(&self) -> String {
        self.as_ref().map_or(String::new(), T::text)
    }

    fn parse(text: &str) -> anyhow::Result<Option<T>> {
        T::parse(text).map(Some)
    }
}

/// Values of an axis, in the order of measurement: comma-separated on the command line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ValueList<T>(pub Vec<T>);

impl<T: OptionValue + PartialEq> OptionValue for ValueList<T> {
    fn text(&self) -> String {
        self.0.iter().map(T::text).collect::<Vec<_>>().join(",")
    }

    fn parse(text: &str) -> anyhow::Result<ValueList<T>> {
        parse_list(text, T::parse).map(ValueList)
    }
}

/// Parses comma-separated values; `parse` parses one. Refuses a value that is listed twice.
pub fn parse_list<T: PartialEq>(text: &str, parse: impl Fn(&str) -> anyhow::Result<T>) -> anyhow::Result<Vec<T>> {
    let mut all = Vec::new();
    for word in text.split(',').map(str::trim) {
        let value = parse(word)?;
        ensure!(!all.contains(&value), "{word} is listed twice: list it once");
        all.push(value);
    }
    Ok(all)
}

/// Returns a parser of whole numbers in `range`; the error names the range.
pub fn number<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync
where
    T: FromStr + PartialOrd + fmt::Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("must be a whole number from {} to {}", range.start(), range.end()))
    }
}

/// Returns a parser of a time in whole seconds in `range`, also with a unit, as in `90s`, `5m`, `2h` or `30d`.
pub fn seconds(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync {
    time(range, 1, "seconds")
}

/// Returns a parser of a time of `range` minutes, in seconds. A number without a unit is minutes.
pub fn minutes(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync {
    time(range, 60, "minutes")
}

fn time(
    range: RangeInclusive<u64>,
    default: u64,
    name: &'static str,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync {
    move |text| {
        let (number, unit) = text.split_at(text.find(|next: char| !next.is_ascii_digit()).unwrap_or(text.len()));
        let seconds = match unit {
            "" => Some(default),
            "s" | "sec" | "secs" | "second" | "seconds" => Some(1),
            "m" | "min" | "mins" | "minute" | "minutes" => Some(60),
            "h" | "hour" | "hours" => Some(3600),
            "d" | "day" | "days" => Some(86_400),
            _ => None,
        };
        let time = seconds.and_then(|seconds| number.parse::<u64>().ok()?.checked_mul(seconds));
        let [shortest, longest] = [*range.start(), *range.end()].map(|limit| limit * default);
        time.filter(|time| (shortest..=longest).contains(time)).ok_or_else(|| {
            let [shortest, longest] = [shortest, longest].map(in_largest_unit);
            format!("choose a time from {shortest} to {longest}, such as 90s, 5m or 2h; a number alone is {name}")
        })
    }
}

/// Formats whole seconds in the largest unit that divides them, as in `90s`, `2h` or `30d`.
fn in_largest_unit(seconds: u64) -> String {
    let units = [("d", 86_400), ("h", 3600), ("m", 60)];
    let unit = units.into_iter().find(|(_, size)| seconds > 0 && seconds.is_multiple_of(*size));
    let (unit, size) = unit.unwrap_or(("s", 1));
    format!("{}{unit}", seconds / size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_may_have_a_unit() {
        let parse = seconds(1..=7200);
        assert_eq!(["90", "90s", "5m", "2h"].map(&parse), [90, 90, 300, 7200].map(Ok));
        assert_eq!(["30sec", "10min", "1hour", "2hours"].map(&parse), [30, 600, 3600, 7200].map(Ok));
        assert_eq!(seconds(0..=200_000)("2days"), Ok(172_800));
        for bad in ["", "m", "5 m", "5x", "0", "3h", "5d", "-1", "1.5m", "99999999999999999999h"] {
            let error = "choose a time from 1s to 2h, such as 90s, 5m or 2h; a number alone is seconds";
            assert_eq!(parse(bad), Err(error.to_owned()), "{bad}");
        }
        let parse = minutes(1..=120);
        assert_eq!(["5", "5m", "90s", "2h"].map(&parse), [300, 300, 90, 7200].map(Ok));
        assert_eq!(
            parse("30s"),
            Err("choose a time from 1m to 2h, such as 90s, 5m or 2h; a number alone is minutes".to_owned())
        );
    }
}
