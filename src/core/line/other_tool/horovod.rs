//! Rank 0's output of Horovod's synthetic benchmarks (examples/*/*_synthetic_benchmark*.py).
//! `Iter #0: 123.4 img/sec per GPU` is a rate over `--num-batches-per-iter` batches, a number that no line contains.
//! `Total img/sec on 4 GPU(s): 493.6 +-22.4` is the mean of these rates, and 1.96 standard deviations, times the ranks.
//! Warm-up precedes the first line.
//!
//! The Keras version has no separate warm-up and leaves the first `Iter` out of the mean; it alone does not print
//! `Running benchmark...`.

use crate::line::dlperf::speed;
use crate::line::log_problem::LogProblem;
use crate::line::other_tool::tool::{Tool, ToolReader, Windows, out_of_order};
use crate::stats::summary::mean;

/// State of the reader.
#[derive(Debug, Default)]
pub struct Horovod {
    batch_size: Option<u32>,
    has_warmup: bool,
    /// Rates of one rank.
    rates: Vec<f64>,
    total: Option<Total>,
}

#[derive(Debug, Clone, Copy)]
struct Total {
    line: u64,
    ranks: u32,
    speed: f64,
}

/// Slightly more than the rounding error of a rate with one decimal.
const ROUNDING: f64 = 0.0501;

impl ToolReader for Horovod {
    fn read_line(&mut self, line: &str, number: u64) -> Option<Result<(), String>> {
        if let Some((index, rate)) = iter(line) {
            return Some(self.add(index, speed(rate)));
        }
        if let Some((ranks, rate)) = total(line) {
            return Some(self.end(number, ranks.parse().ok(), speed(rate)));
        }
        if self.rates.is_empty() {
            self.has_warmup |= line.ends_with("Running benchmark...");
            let size = line.split_once("Batch size: ").and_then(|(_, size)| size.parse().ok());
            self.batch_size = size.or(self.batch_size);
        }
        None
    }

    fn finish(&self) -> Result<(Vec<f64>, Windows), LogProblem> {
        let Some(Total { line, ranks, speed }) = self.total else {
            return Err(LogProblem::in_log(
                "output of Horovod's synthetic benchmark without its last line, 'Total img/sec on N GPU(s)': \
                 truncated output: repeat the run",
            ));
        };
        let counted = self.rates.get(usize::from(!self.has_warmup)..).unwrap_or_default();
        let all_ranks = f64::from(ranks);
        let own = mean(counted)
            .map(|mean| mean * all_ranks)
            .filter(|own| (own - speed).abs() <= ROUNDING * (all_ranks + 1.0));
        if own.is_none() {
            let what = format!(
                "the total is {speed} img/sec on {ranks} ranks, not the mean of the {} Iter lines: lines are missing: \
                 repeat the run",
                counted.len()
            );
            return Err(LogProblem::in_line(line, what));
        }
        let windows = Windows { tool: Tool::Horovod, iterations: None, ranks, batch_size: self.batch_size };
        Ok((counted.iter().map(|rate| rate * all_ranks).collect(), windows))
    }
}

impl Horovod {
    fn add(&mut self, index: u64, rate: Option<f64>) -> Result<(), String> {
        let due = self.rates.len() as u64;
        if index != due {
            return Err(out_of_order(|index| format!("Iter #{index}"), index, due));
        }
        let rate = rate.ok_or_else(|| format!("Iter #{index} without a rate above 0: repeat the run"))?;
        self.rates.push(rate);
        Ok(())
    }

    fn end(&mut self, line: u64, ranks: Option<u32>, speed: Option<f64>) -> Result<(), String> {
        let (Some(ranks), Some(speed)) = (ranks.filter(|ranks| *ranks > 0), speed) else {
            return Err("a total without ranks or a rate above 0: repeat the run".to_owned());
        };
        if self.total.replace(Total { line, ranks, speed }).is_some() {
            return Err("a second total: two outputs in one log: repeat the run".to_owned());
        }
        Ok(())
    }
}

/// Returns the number and rate of an `Iter` line.
fn iter(line: &str) -> Option<(u64, &str)> {
    let (_, rest) = line.split_once("Iter #")?;
    let (index, rest) = rest.split_once(": ")?;
    let (rate, _) = rest.split_once(" img/sec per ")?;
    Some((index.parse().ok()?, rate))
}

/// Returns the ranks and rate of the last line.
fn total(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once("Total img/sec on ")?;
    let (ranks, rest) = rest.split_once(' ')?;
    let (_, rest) = rest.split_once("(s): ")?;
    Some((ranks, rest.split_once(" +-").map_or(rest, |(rate, _)| rate)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: [&str; 10] = [
        "Model: resnet50",
        "Batch size: 32",
        "Number of GPUs: 4",
        "Running warmup...",
        "Running benchmark...",
        "[1,0]<stdout>:Iter #0: 123.4 img/sec per GPU",
        "Iter #1: 120.0 img/sec per GPU",
        "Iter #2: 121.1 img/sec per GPU",
        "Img/sec per GPU: 121.5 +-2.8",
        "Total img/sec on 4 GPU(s): 486.0 +-11.2",
    ];

    fn read(lines: &[&str]) -> Result<(Vec<f64>, Windows), LogProblem> {
        let mut reader = Horovod::default();
        for (number, line) in (1..).zip(lines) {
            if let Some(Err(what)) = reader.read_line(line, number) {
                return Err(LogProblem::in_line(number, what));
            }
        }
        reader.finish()
    }

    #[test]
    fn iter_lines_are_windows_scaled_by_total_ranks() {
        let (speeds, windows) = read(&LOG).expect("a sound log");
        let expected = [4.0 * 123.4, 4.0 * 120.0, 4.0 * 121.1];
        assert_eq!(speeds, expected);
        assert_eq!(windows, Windows { tool: Tool::Horovod, iterations: None, ranks: 4, batch_size: Some(32) });
    }

    #[test]
    fn keras_version_excludes_first_iter() {
        let mut log = LOG.to_vec();
        log.retain(|line| !line.starts_with("Running"));
        // The first is left out: (120.0 + 121.1) / 2 x 4.
        let last = log.len() - 1;
        log[last] = "Total img/sec on 4 GPU(s): 482.2 +-2.2";
        assert_eq!(read(&log).expect("a sound log").0, [480.0, 4.0 * 121.1]);
        log[last] = "Total img/sec on 4 GPU(s): 486.0 +-11.2";
        assert!(read(&log).is_err(), "the mean of all three");
    }

    #[test]
    fn missing_or_changed_lines_are_reported() {
        let with = |place: usize, line: &'static str| {
            let mut log = LOG.to_vec();
            log[place] = line;
            log
        };
        for (log, line, message) in [
            (LOG[..9].to_vec(), None, "output of Horovod's synthetic benchmark without its last line"),
            (with(6, ""), Some(8), "expected Iter #1, found Iter #2: lines are missing"),
            (with(7, "Iter #0: 121.1 img/sec per GPU"), Some(8), "expected Iter #2, found Iter #0: two outputs"),
            (with(7, "Iter #2: nan img/sec per GPU"), Some(8), "Iter #2 without a rate above 0"),
            (with(7, ""), Some(10), "the total is 486 img/sec on 4 ranks, not the mean of the 2 Iter lines"),
            (with(9, "Total img/sec on 8 GPU(s): 486.0 +-11.2"), Some(10), "the total is 486 img/sec on 8 ranks, not"),
            (with(9, "Total img/sec on 0 GPU(s): 0.0 +-0.0"), Some(10), "a total without ranks or a rate above 0"),
            (with(8, LOG[9]), Some(10), "a second total: two outputs in one log"),
        ] {
            let error = read(&log).expect_err(message);
            assert_eq!(error.line, line, "{error:?}");
            assert!(error.what.starts_with(message), "{message}: {}", error.what);
        }
    }
}
