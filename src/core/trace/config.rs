//! Trace options of every benchmark with iterations.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, anyhow, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::options::option_table::{OptionSpec, Options};
use crate::{config_options, keyword_enum, text_value};

/// Default number of traced iterations: the first ones after warm-up.
const DEFAULT_ITERATIONS: u32 = 5;

/// Maximum length of the range. An iteration of a large network has a few thousand spans per rank, and rank 0 holds
/// those of all ranks.
const MAX_ITERATIONS: u32 = 100;

keyword_enum!(
    /// File format of a trace.
    TraceFormat {
        /// Trace Event Format, for Perfetto and Chrome.
        Chrome = "chrome" | "perfetto",
        /// Horovod's timeline: a process for each array of gradients.
        Horovod = "horovod",
    }
);

/// Range of iterations, both ends included, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct IterationRange {
    first: u32,
    last: u32,
}

impl IterationRange {
    /// Returns the range, with both ends included.
    pub fn range(self) -> RangeInclusive<u32> {
        self.first..=self.last
    }
}

impl fmt::Display for IterationRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.first, self.last)
    }
}

impl FromStr for IterationRange {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<IterationRange> {
        let numbers = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let range = number(numbers.0).zip(number(numbers.1)).map(|(first, last)| IterationRange { first, last });
        range
            .filter(|IterationRange { first, last }| (1..=*last).contains(first))
            .ok_or_else(|| anyhow!("{text:?} is not a range of iterations: use 30-35, or 30 for one, counted from 1"))
    }
}

text_value!(IterationRange);

config_options! {
    /// Traced iterations, and the file and format of the trace.
    #[derive(Eq)]
    TraceConfig {
        /// File to which rank 0 writes the trace of all ranks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<PathBuf> = None => option("trace", "FILE", "File for a timeline of all ranks, written by rank 0")
            .for_worker(),
        /// Traced iterations; `None` selects the first five after warm-up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        iterations: Option<IterationRange> = None => option("trace-iterations", "FIRST-LAST",
            "Iterations to trace, counted from 1").default_is("the first five after warm-up"),
        /// Format of the trace.
        format: TraceFormat = TraceFormat::Chrome => option("trace-format", "FORMAT",
            "Format of the timeline: for Perfetto and Chrome, or that of Horovod"),
        /// True if the times of these iterations are printed by layer.
        #[serde(default)]
        profile_layers: bool = false => option("profile-layers", "",
            "Print the time of each layer in the traced iterations, and its rate relative to a plain matrix product on \
             this device")
            .variable("RINGMARK_PROFILE_LAYERS"),
        /// True if the times of these iterations are printed by operator of libtorch.
        #[serde(default)]
        profile_operators: bool = false => option("profile-operators", "",
            "Print the time of libtorch's operators, and of a GPU's kernels, in the traced iterations")
            .variable("RINGMARK_PROFILE_OPERATORS"),
    }
}

impl TraceConfig {
    /// Returns the options of a benchmark without gradients of named arrays, which Horovod's timeline consists of.
    pub fn options_of_layers() -> impl Iterator<Item = OptionSpec<TraceConfig>> {
        TraceConfig::options().into_iter().filter(|option| option.name() != "trace-format")
    }

    /// Returns the options of a benchmark that has no layers either.
    pub fn options_of_spans() -> impl Iterator<Item = OptionSpec<TraceConfig>> {
        TraceConfig::options_of_layers().filter(|option| !option.name().starts_with("profile-"))
    }

    /// Returns true if a profile of the traced iterations is printed.
    pub fn is_profiled(&self) -> bool {
        self.profile_layers || self.profile_operators
    }

    /// Returns the traced iterations of a run of `iterations`, of which the first `warmup` are warm-up; `None` if
    /// nothing is traced.
    pub fn traced(&self, warmup: u32, iterations: u32) -> Option<RangeInclusive<u32>> {
        let is_requested = self.file.is_some() || self.is_profiled();
        let usual = || warmup + 1..=iterations.min(warmup + DEFAULT_ITERATIONS);
        is_requested.then(|| self.iterations.map_or_else(usual, IterationRange::range))
    }

    /// Refuses more iterations than a trace may contain. The error names the option, its value and the limit.
    pub fn check_number(&self) -> Result<()> {
        let Some(range) = self.iterations else { return Ok(()) };
        let number = range.last - range.first + 1;
        ensure!(
            number <= MAX_ITERATIONS,
            "--trace-iterations {range} selects {number} iterations, but rank 0 can keep {MAX_ITERATIONS} in memory: \
             choose fewer"
        );
        Ok(())
    }

    /// Refuses iterations that a run of `iterations` does not have, or more than a trace may contain. The error names
    /// the option, its value and the run's length.
    pub fn check(&self, iterations: u32) -> Result<()> {
        self.check_number()?;
        let Some(range) = self.iterations else { return Ok(()) };
        ensure!(
            range.last <= iterations,
            "--trace-iterations {range} is out of range: choose iterations from 1 to {iterations}"
        );
        Ok(())
    }

    /// Returns the reason for a missing trace if none of its iterations was executed.
    pub fn missing_iterations(&self) -> String {
        match self.iterations {
            Some(range) => format!("no iteration of --trace-iterations {range} was run"),
            None => "no iteration was run after warm-up".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iteration_range_round_trips() {
        let range: IterationRange = "30-35".parse().expect("a range");
        assert_eq!((range.to_string(), range.range()), ("30-35".to_owned(), 30..=35));
        assert_eq!("7".parse::<IterationRange>().expect("one").range(), 7..=7);
        for text in ["", "0-3", "5-4", "a-b", "3-", "-3"] {
            let error = text.parse::<IterationRange>().expect_err(text).to_string();
            assert!(error.contains("is not a range of iterations"), "{error}");
        }
    }

    #[test]
    fn first_iterations_after_warm_up_are_traced() {
        let requested = TraceConfig { file: Some("a.json".into()), ..TraceConfig::default() };
        assert_eq!(requested.traced(20, 120), Some(21..=25));
        assert_eq!(requested.traced(2, 4), Some(3..=4));
        assert_eq!(TraceConfig::default().traced(20, 120), None);
        let profile = TraceConfig { profile_layers: true, iterations: "3-4".parse().ok(), ..TraceConfig::default() };
        assert_eq!(profile.traced(20, 120), Some(3..=4));
        profile.check(4).expect("it has them");
        let error = profile.check(3).expect_err("it has not").to_string();
        assert_eq!(error, "--trace-iterations 3-4 is out of range: choose iterations from 1 to 3");
        let many = |range: &str| TraceConfig { iterations: range.parse().ok(), ..TraceConfig::default() };
        many("7-106").check(200).expect("a hundred");
        let error = many("7-107").check(200).expect_err("too many").to_string();
        assert!(
            error.starts_with(
                "--trace-iterations 7-107 selects 101 iterations, but rank 0 can keep \
                                   100"
            ),
            "{error}"
        );
    }
}
