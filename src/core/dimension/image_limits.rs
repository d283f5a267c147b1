//! Limits on images that are read. A file beyond a limit is refused before it takes memory or time.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::options::keyword_enum::KeywordEnum;
use crate::{keyword_enum, text_value};

keyword_enum!(
    /// Limited property of an image.
    ImageLimit {
        /// Pixels of an image, as stored and after each step of a recipe.
        Pixels = "pixels",
        /// Longer edge divided by the shorter edge.
        Aspect = "aspect",
        /// Scans of a JPEG.
        Scans = "scans",
        /// Bytes of an image file or of a record.
        Bytes = "bytes",
    }
);

/// Limits of one image, in the order of [`ImageLimit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct ImageLimits([u64; 4]);

impl Default for ImageLimits {
    /// Leaves a margin: the largest image of ImageNet has 12 million pixels, and a progressive JPEG about 10 scans.
    fn default() -> ImageLimits {
        ImageLimits([50_000_000, 100, 32, 100_000_000])
    }
}

/// Error for an image beyond a limit.
#[derive(Debug)]
pub struct OverLimit(String);

impl fmt::Display for OverLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for OverLimit {}

impl ImageLimits {
    /// Returns the value of `limit`.
    pub fn get(&self, limit: ImageLimit) -> u64 {
        self.0[limit as usize]
    }

    /// Returns a copy with another value of `limit`.
    pub fn with(mut self, limit: ImageLimit, value: u64) -> ImageLimits {
        self.0[limit as usize] = value;
        self
    }

    /// Refuses a `value` above its limit with an [`OverLimit`] that names the option; `what` describes the value.
    pub fn check(&self, limit: ImageLimit, value: u64, what: impl FnOnce() -> String) -> Result<()> {
        let most = self.get(limit);
        if value <= most {
            return Ok(());
        }
        let what = what();
        Err(OverLimit(format!("{what}; the limit is {most}: raise it with --image-limits {limit}={value}")).into())
    }
}

impl fmt::Display for ImageLimits {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = ImageLimit::ALL.iter().map(|limit| format!("{limit}={}", self.get(*limit)));
        formatter.write_str(&limits.collect::<Vec<_>>().join(","))
    }
}

impl FromStr for ImageLimits {
    type Err = anyhow::Error;

    /// Parses `pixels=200000000,aspect=1000`; a limit that is not named keeps its default.
    fn from_str(text: &str) -> Result<ImageLimits> {
        text.split(',').try_fold(ImageLimits::default(), |limits, part| {
            let (name, value) = part.split_once('=').with_context(|| {
                format!("{part:?} is not a limit: use NAME=NUMBER with one of {}", ImageLimit::KEYWORDS.join(", "))
            })?;
            let parsed = value.parse().with_context(|| format!("limit {value:?} of {name} is not a whole number"))?;
            ensure!(parsed > 0, "the limit of {name} must be at least 1");
            Ok(limits.with(name.parse()?, parsed))
        })
    }
}

text_value!(ImageLimits);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_round_trip() {
        let limits: ImageLimits = "aspect=1000,pixels=7".parse().expect("two limits");
        let expected = ImageLimits::default().with(ImageLimit::Pixels, 7).with(ImageLimit::Aspect, 1000);
        assert_eq!(limits, expected);
        assert_eq!(limits.to_string(), "pixels=7,aspect=1000,scans=32,bytes=100000000");
        assert_eq!(limits.to_string().parse::<ImageLimits>().expect("all limits"), limits);
        for (text, reason) in [
            ("100", "\"100\" is not a limit: use NAME=NUMBER with one of pixels, aspect, scans, bytes"),
            ("pixels=x", "limit \"x\" of pixels is not a whole number"),
            ("scans=0", "the limit of scans must be at least 1"),
            ("edge=3", "\"edge\" is not one of pixels, aspect, scans, bytes"),
        ] {
            assert_eq!(text.parse::<ImageLimits>().expect_err(reason).to_string(), reason);
        }
    }

    #[test]
    fn value_above_its_limit_is_rejected_with_option() {
        let limits = ImageLimits::default();
        limits.check(ImageLimit::Scans, 32, || unreachable!()).expect("at the limit");
        let error = limits.check(ImageLimit::Scans, 33, || "33 scans".to_owned()).expect_err("above it");
        assert_eq!(error.to_string(), "33 scans; the limit is 32: raise it with --image-limits scans=33");
        assert!(error.is::<OverLimit>());
    }
}
