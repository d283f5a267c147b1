//! What is traced: the options that every benchmark with iterations has.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, anyhow, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::options::option_table::{OptionSpec, Options};
use crate::{config_options, keyword_enum, text_value};

/// Iterations that are traced where nobody says which: the first ones after warm-up.
const USUAL_ITERATIONS: u32 = 5;

/// Longest range. An iteration of a large network has some thousand spans a rank, and rank 0 holds those of all ranks.
const MOST_ITERATIONS: u32 = 100;

keyword_enum!(
    /// How a trace is written.
    TraceFormat {
        /// Trace Event Format, which Perfetto and Chrome open.
        Chrome = "chrome" | "perfetto",
        /// Horovod's timeline: a process for each array of gradients.
        Horovod = "horovod",
    }
);

/// Iterations from one to another, both included, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct IterationRange {
    first: u32,
    last: u32,
}

impl IterationRange {
    /// Both included.
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
            .ok_or_else(|| anyhow!("{text:?} is no range of iterations: write 30-35, or 30 for one, counted from 1"))
    }
}

text_value!(IterationRange);

config_options! {
    /// What is traced, and where it goes.
    #[derive(Eq)]
    TraceConfig {
        /// Where rank 0 writes the trace of all ranks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<PathBuf> = None => option("trace", "FILE", "Where rank 0 writes a timeline of all ranks")
            .for_worker(),
        /// Which iterations; `None` are the first five after warm-up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        iterations: Option<IterationRange> = None => option("trace-iterations", "FIRST-LAST",
            "Iterations that are traced, counted from 1").default_is("the first five after warm-up"),
        /// How it is written.
        format: TraceFormat = TraceFormat::Chrome => option("trace-format", "FORMAT",
            "How a timeline is written: for Perfetto and Chrome, or as Horovod writes its own"),
        /// Whether the times of these iterations are told by layer.
        #[serde(default)]
        profile_layers: bool = false => option("profile-layers", "",
            "Print the time of each layer in these iterations, and what share of the device's rate it reached"),
    }
}

impl TraceConfig {
    /// The options of a benchmark without gradients of named arrays, which Horovod's timeline is of.
    pub fn options_of_layers() -> impl Iterator<Item = OptionSpec<TraceConfig>> {
        TraceConfig::options().into_iter().filter(|option| option.name() != "trace-format")
    }

    /// The options of one without layers either.
    pub fn options_of_spans() -> impl Iterator<Item = OptionSpec<TraceConfig>> {
        TraceConfig::options_of_layers().filter(|option| option.name() != "profile-layers")
    }

    /// Whether nothing was typed.
    pub fn is_default(&self) -> bool {
        *self == TraceConfig::default()
    }

    /// The iterations that are traced of so many, of which the first `warmup` warm up; `None` where nothing is.
    pub fn traced(&self, warmup: u32, iterations: u32) -> Option<RangeInclusive<u32>> {
        let is_asked = self.file.is_some() || self.profile_layers;
        let usual = || warmup + 1..=iterations.min(warmup + USUAL_ITERATIONS);
        is_asked.then(|| self.iterations.map_or_else(usual, IterationRange::range))
    }

    /// Refuses more iterations than a trace holds.
    ///
    /// # Errors
    ///
    /// Names the option, its value and the limit.
    pub fn check_number(&self) -> Result<()> {
        let Some(range) = self.iterations else { return Ok(()) };
        let number = range.last - range.first + 1;
        ensure!(
            number <= MOST_ITERATIONS,
            "--trace-iterations {range} are {number} iterations, and a trace holds {MOST_ITERATIONS}, which rank 0 keeps in memory: \
             choose fewer"
        );
        Ok(())
    }

    /// The same, and iterations that a run of so many does not have.
    ///
    /// # Errors
    ///
    /// Names the option, its value and the run's length.
    pub fn check(&self, iterations: u32) -> Result<()> {
        self.check_number()?;
        let Some(range) = self.iterations else { return Ok(()) };
        ensure!(
            range.last <= iterations,
            "--trace-iterations {range}: the run has iterations 1 to {iterations}: choose some of them"
        );
        Ok(())
    }

    /// Why there is no trace where none of its iterations was done.
    pub fn never_came(&self) -> String {
        match self.iterations {
            Some(range) => format!("none of the iterations of --trace-iterations {range} was done"),
            None => "no iteration was done after warm-up".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_written_as_it_is_read() {
        let range: IterationRange = "30-35".parse().expect("a range");
        assert_eq!((range.to_string(), range.range()), ("30-35".to_owned(), 30..=35));
        assert_eq!("7".parse::<IterationRange>().expect("one").range(), 7..=7);
        for text in ["", "0-3", "5-4", "a-b", "3-", "-3"] {
            let error = text.parse::<IterationRange>().expect_err(text).to_string();
            assert!(error.contains("is no range of iterations"), "{error}");
        }
    }

    #[test]
    fn the_first_iterations_after_warm_up_are_traced() {
        let asked = TraceConfig { file: Some("a.json".into()), ..TraceConfig::default() };
        assert_eq!(asked.traced(20, 120), Some(21..=25));
        assert_eq!(asked.traced(2, 4), Some(3..=4));
        assert_eq!(TraceConfig::default().traced(20, 120), None);
        let profile = TraceConfig { profile_layers: true, iterations: "3-4".parse().ok(), ..TraceConfig::default() };
        assert_eq!(profile.traced(20, 120), Some(3..=4));
        profile.check(4).expect("it has them");
        let error = profile.check(3).expect_err("it has not").to_string();
        assert_eq!(error, "--trace-iterations 3-4: the run has iterations 1 to 3: choose some of them");
        let many = |range: &str| TraceConfig { iterations: range.parse().ok(), ..TraceConfig::default() };
        many("7-106").check(200).expect("a hundred");
        let error = many("7-107").check(200).expect_err("too many").to_string();
        assert!(error.starts_with("--trace-iterations 7-107 are 101 iterations, and a trace holds 100"), "{error}");
    }
}
