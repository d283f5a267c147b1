//! Reader of a program's lines, one at a time.

use std::time::Duration;

use regex_lite::{Captures, Regex};

use crate::dimension::{BatchShape, Case, Seconds};
use crate::line::program::LineFormat;

/// Time or rate in a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Timing {
    /// Seconds per iteration.
    Time(f64),
    /// Images or tokens per second of all ranks.
    Units(f64),
    /// Images or tokens per second of one rank.
    RankUnits(f64),
    /// Images or sequences per second of all ranks.
    Samples(f64),
    /// Images or sequences per second of one rank.
    RankSamples(f64),
}

impl Timing {
    /// Returns the time of an iteration of `batch`.
    ///
    /// Four ranks with 8 sequences of 1024 tokens each, at 16,384 tokens/s of one rank: 0.5 s.
    pub fn time(self, batch: BatchShape, case: Case) -> Seconds {
        let ranks = f64::from(case.ranks());
        let (work, samples) = (batch.work(case), batch.work(case) / batch.units_per_sample());
        Seconds(match self {
            Timing::Time(seconds) => seconds,
            Timing::Units(rate) => work / rate,
            Timing::RankUnits(rate) => work / (rate * ranks),
            Timing::Samples(rate) => samples / rate,
            Timing::RankSamples(rate) => samples / (rate * ranks),
        })
    }

    /// Returns true for a time, false for a rate.
    pub fn is_time(self) -> bool {
        matches!(self, Timing::Time(_))
    }
}

/// Values of an iteration, or of several that one line describes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ProgramIteration {
    /// Number of the iteration in the program's count.
    pub step: Option<u64>,
    /// Time or rate.
    pub timing: Option<Timing>,
    /// Loss; may be NaN or infinite.
    pub loss: Option<f64>,
    /// Samples of all ranks.
    pub batch: Option<u64>,
    /// Arrival of its first line, since the start of the program.
    pub arrival: Duration,
}

/// Reads the lines of a program in order.
#[derive(Debug)]
pub struct LineReader {
    patterns: Vec<Regex>,
    /// Iteration whose lines are not all read.
    open: Option<ProgramIteration>,
}

impl LineReader {
    /// Creates a reader.
    ///
    /// # Errors
    ///
    /// Fails if the format is not valid.
    pub fn new(format: &LineFormat) -> anyhow::Result<LineReader> {
        Ok(LineReader { patterns: format.patterns()?, open: None })
    }

    /// Reads a line, which arrived at this time since the start of the program. Returns an iteration once its lines are
    /// complete.
    pub fn read(&mut self, line: &str, arrival: Duration) -> Option<ProgramIteration> {
        let line = without_colors(line);
        let (number, captures) =
            self.patterns.iter().enumerate().find_map(|(number, pattern)| Some((number, pattern.captures(&line)?)))?;
        if number > 0 {
            self.open.iter_mut().for_each(|open| add(open, &captures));
            return None;
        }
        let mut iteration = ProgramIteration { arrival, ..ProgramIteration::default() };
        add(&mut iteration, &captures);
        if self.patterns.len() == 1 { Some(iteration) } else { self.open.replace(iteration) }
    }

    /// Returns the iteration that the end of the output completes.
    pub fn end(&mut self) -> Option<ProgramIteration> {
        self.open.take()
    }
}

/// Adds the values of the groups that matched.
fn add(iteration: &mut ProgramIteration, captures: &Captures) {
    let value = |group: &str| number(captures.name(group)?.as_str());
    let positive = |group: &str| value(group).filter(|value| value.is_finite() && *value > 0.0);
    let timing = positive("s")
        .map(Timing::Time)
        .or(positive("ms").map(|milliseconds| Timing::Time(milliseconds / 1e3)))
        .or(positive("tokens_per_s").or(positive("images_per_s")).map(Timing::Units))
        .or(positive("rank_tokens_per_s").or(positive("rank_images_per_s")).map(Timing::RankUnits))
        .or(positive("samples_per_s").map(Timing::Samples))
        .or(positive("rank_samples_per_s").map(Timing::RankSamples));
    iteration.timing = timing.or(iteration.timing);
    iteration.step = value("step").map(|step| step as u64).or(iteration.step);
    iteration.loss = value("loss").or(iteration.loss);
    iteration.batch = value("batch").map(|batch| batch as u64).or(iteration.batch);
}

/// Parses a number with thousands separators or with the suffix K, M or B.
fn number(text: &str) -> Option<f64> {
    let text = text.replace(',', "");
    let (digits, factor) = match text.chars().last()? {
        'K' => (&text[..text.len() - 1], 1e3),
        'M' => (&text[..text.len() - 1], 1e6),
        'B' => (&text[..text.len() - 1], 1e9),
        _ => (&text[..], 1.0),
    };
    Some(digits.parse::<f64>().ok()? * factor)
}

/// Removes the escape sequences of colors: ESC `[` .. `m`.
fn without_colors(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let mut text = parts.next().unwrap_or_default().to_owned();
    parts.for_each(|part| text += part.split_once('m').map_or("", |(_, rest)| rest));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_give_the_time_of_an_iteration() {
        let case = Case { nodes: 2, gpus_per_node: 2 };
        let batch = BatchShape { sequence_length: Some(1024), ..BatchShape::per_rank(8) };
        for timing in [
            Timing::Time(0.5),
            Timing::Units(65_536.0),
            Timing::RankUnits(16_384.0),
            Timing::Samples(64.0),
            Timing::RankSamples(16.0),
        ] {
            assert_eq!(timing.time(batch, case), Seconds(0.5), "{timing:?}");
        }
    }

    #[test]
    fn numbers_may_have_separators_and_suffixes() {
        let numbers = ["5,762", "1.25K", "3M", "2.5B", "1e-3", "nan", "x", ""].map(number);
        assert_eq!(numbers[..5], [5762.0, 1250.0, 3e6, 2.5e9, 1e-3].map(Some));
        assert!(numbers[5].is_some_and(f64::is_nan) && numbers[6..] == [None, None]);
    }

    #[test]
    fn lines_of_an_iteration_are_joined() {
        let format = LineFormat::try_from("composer".to_owned()).expect("a format");
        let mut reader = LineReader::new(&format).expect("a reader");
        let mut read = |line, seconds| reader.read(line, Duration::from_secs(seconds));
        assert_eq!(read("throughput/samples_per_sec: 9.0", 0), None, "belongs to no iteration");
        assert_eq!(read("[batch=1/3]:", 1), None);
        assert_eq!(read("\t Train throughput/samples_per_sec: 8.0", 2), None);
        assert_eq!(read("anything else", 2), None);
        let first = read("[batch=2/3]:", 3).expect("an iteration");
        assert_eq!((first.step, first.timing, first.arrival.as_secs()), (Some(1), Some(Timing::Samples(8.0)), 1));
        let last = reader.end().expect("an iteration");
        assert_eq!((last.step, last.timing), (Some(2), None));
    }
}
