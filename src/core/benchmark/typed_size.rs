//! Sizes as they are typed: the syntax of nccl-tests, fio and dd.

use std::str::FromStr;

use anyhow::{Context, bail, ensure};

use crate::dimension::Bytes;
use crate::options::value::OptionValue;

/// Size in the syntax of nccl-tests: a number of bytes, or a number with K, M or G in steps of 1024.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TypedSize(pub Bytes);

impl FromStr for TypedSize {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<TypedSize> {
        let explain =
            || format!("{text:?} is not a size: use bytes, or a number with K, M or G (steps of 1024), such as 64K");
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let shift = match &text[digits.len()..] {
            "" | "B" => 0,
            "K" | "k" | "KB" | "KiB" => 10,
            "M" | "m" | "MB" | "MiB" => 20,
            "G" | "g" | "GB" | "GiB" => 30,
            _ => bail!(explain()),
        };
        let number: f64 = digits.parse().ok().filter(|number: &f64| number.is_finite()).with_context(explain)?;
        ensure!(number >= 0.0 && number < (1u64 << 40) as f64, explain());
        Ok(TypedSize(Bytes((number * f64::from(1u32 << shift)) as u64)))
    }
}

impl OptionValue for TypedSize {
    fn text(&self) -> String {
        self.0.0.to_string()
    }

    fn parse(text: &str) -> anyhow::Result<TypedSize> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_as_in_nccl_tests() {
        for (text, bytes) in [("8", 8), ("64K", 65_536), ("1M", 1 << 20), ("1G", 1 << 30), ("0.5k", 512)] {
            assert_eq!(text.parse::<TypedSize>().expect(text).0, Bytes(bytes));
        }
        for text in ["", "x", "8T", "-1", "1e400", "inf", "NaN"] {
            let error = text.parse::<TypedSize>().expect_err(text).to_string();
            assert!(error.contains("is not a size"), "{error}");
        }
    }
}
