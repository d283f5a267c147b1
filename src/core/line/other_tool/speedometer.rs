//! Parser for MXNet's `Speedometer` (python/mxnet/callback.py): `Epoch[0] Batch [20]<TAB>Speed: 123.45
//! samples/sec<TAB>accuracy=0.1`, since version 1.3 `Batch [0-20]`. Every N batches it divides N times its batch size
//! by the time since its last line.
//!
//! Batches are counted from 0 in every epoch, and the clock starts after the first, so that the first line has number
//! N. Scripts such as GluonCV's print lines of the same form when `batch + 1` is a multiple of N. A range, if present,
//! is that of the metric. Early versions print one line per metric, with the same rate. The versions of 2016 with
//! FeedForward count from 1: the rate of their first window, which is part of the warm-up, is too high by a factor of N
//! / (N - 1).

use crate::line::dlperf::speed;
use crate::line::log_problem::LogProblem;
use crate::line::other_tool::tool::{Tool, ToolReader, Windows, out_of_order};
use crate::number_text::count;

/// State of the parser.
#[derive(Debug, Default)]
pub struct Speedometer {
    windows: Vec<Window>,
    /// Batches per window, known from the second line on.
    size: Option<u64>,
    /// Name of the metric on the first line; lines with another metric repeat its rate and are skipped.
    metric: Option<String>,
}

/// The batches between two lines, summed over all processes.
#[derive(Debug)]
struct Window {
    epoch: u64,
    last_batch: u64,
    /// Number of the first line that reports the window.
    line: u64,
    /// Number of processes that have reported the window.
    processes: u32,
    /// Sum of the speeds of these processes.
    speed: f64,
}

/// Values of one line.
struct Rate<'a> {
    epoch: u64,
    batch: u64,
    speed: f64,
    metric: &'a str,
}

impl ToolReader for Speedometer {
    fn read_line(&mut self, line: &str, number: u64) -> Option<Result<(), String>> {
        let (epoch, batch, rest) = split(line)?;
        let Some((speed, metric)) = rate(rest) else {
            return Some(Err(format!("Batch [{batch}] of MXNet's Speedometer without a rate above 0: repeat the run")));
        };
        Some(self.add(Rate { epoch, batch, speed, metric }, number))
    }

    fn finish(&self) -> Result<(Vec<f64>, Windows), LogProblem> {
        let first =
            self.windows.first().ok_or_else(|| LogProblem::in_log("no rate of MXNet's Speedometer in the log"))?;
        if let Some(other) = self.windows.iter().find(|other| other.processes != first.processes) {
            let [one, other_one] = [first, other]
                .map(|window| format!("Batch [{}] has {}", window.last_batch, count(window.processes, "line")));
            let what = format!("{other_one}, but {one}: truncated output: repeat the run");
            return Err(LogProblem::in_line(other.line, what));
        }
        let windows = Windows {
            tool: Tool::Speedometer,
            iterations: Some(u32::try_from(self.size()).unwrap_or(u32::MAX)),
            ranks: first.processes,
            batch_size: None,
        };
        Ok((self.windows.iter().map(|window| window.speed).collect(), windows))
    }
}

impl Speedometer {
    fn size(&self) -> u64 {
        let first = self.windows.first().map_or(1, |window| window.last_batch);
        self.size.unwrap_or(first.max(1))
    }

    fn add(&mut self, rate: Rate, number: u64) -> Result<(), String> {
        let Rate { epoch, batch, speed, metric } = rate;
        if self.metric.get_or_insert_with(|| metric.to_owned()) != metric {
            return Ok(());
        }
        // Processes synchronize in every iteration, so that a line cannot appear after another process's next line.
        let is_same = |window: &&mut Window| (window.epoch, window.last_batch) == (epoch, batch);
        if let Some(window) = self.windows.iter_mut().rev().take(2).find(is_same) {
            window.processes += 1;
            window.speed += speed;
            return Ok(());
        }
        if let (Some(first), Some(last)) = (self.windows.first(), self.windows.last()) {
            let (first, last_epoch, last_batch) = (first.last_batch, last.epoch, last.last_batch);
            let is_next_epoch = epoch == last_epoch + 1 && batch == first;
            if !is_next_epoch {
                if epoch != last_epoch {
                    return Err(format!("Epoch[{epoch}] after Epoch[{last_epoch}]: {INCOMPLETE_LOG}"));
                }
                let counts_from_0 = self.size.is_none() && batch == 2 * first + 1;
                let due = last_batch + if counts_from_0 { first + 1 } else { self.size() };
                if batch != due {
                    return Err(out_of_order(|batch| format!("Batch [{batch}]"), batch, due));
                }
                self.size.get_or_insert(batch - last_batch);
            }
        }
        self.windows.push(Window { epoch, last_batch: batch, line: number, processes: 1, speed });
        Ok(())
    }
}

const INCOMPLETE_LOG: &str = "lines are missing, or two outputs are in one log: repeat the run";

/// Splits a line into the epoch, the number of the window's last batch, and the rest. DLPerf's `Batch[`, without a
/// blank, does not match.
fn split(line: &str) -> Option<(u64, u64, &str)> {
    let (before, rest) = line.split_once("] Batch [")?;
    let (name, epoch) = before.rsplit_once('[')?;
    let (batches, rest) = rest.split_once(']')?;
    let last = batches.rsplit_once('-').map_or(batches, |(_, last)| last);
    // Numbers beyond 32 bits could overflow when added.
    let number = |text: &str| text.parse::<u32>().ok().map(u64::from);
    let is_ours = name.ends_with("Epoch") || name.ends_with("Iter");
    is_ours.then_some((number(epoch)?, number(last)?, rest))
}

fn rate(rest: &str) -> Option<(f64, &str)> {
    let (_, rest) = rest.split_once("Speed: ")?;
    let (rate, rest) = rest.split_once(" samples/sec")?;
    let metric = rest.split_once('=').map_or("", |(name, _)| name.trim());
    Some((speed(rate)?, metric))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Result<(Vec<f64>, Windows), LogProblem> {
        let mut reader = Speedometer::default();
        for (index, line) in lines.iter().enumerate() {
            let number = index as u64 + 1;
            match reader.read_line(line, number) {
                Some(Err(what)) => return Err(LogProblem::in_line(number, what)),
                taken => assert!(taken.is_some(), "{line}"),
            }
        }
        reader.finish()
    }

    fn windows(iterations: u32, ranks: u32) -> Windows {
        Windows { tool: Tool::Speedometer, iterations: Some(iterations), ranks, batch_size: None }
    }

    #[test]
    fn windows_span_batches_between_lines() {
        let old = [
            "INFO:root:Epoch[0] Batch [20]\tSpeed: 181.53 samples/sec\tTrain-accuracy=0.001563",
            "INFO:root:Epoch[0] Batch [40]\tSpeed: 190.00 samples/sec\tTrain-accuracy=0.001563",
            "INFO:root:Epoch[1] Batch [20]\tSpeed: 195.25 samples/sec\tTrain-accuracy=0.002",
        ];
        let expected = Ok((vec![181.53, 190.0, 195.25], windows(20, 1)));
        assert_eq!(read(&old), expected);
        assert_eq!(
            read(&[
                "INFO:root:Epoch[0] Batch [0-20]\tSpeed: 181.53 samples/sec\taccuracy=0.001563\ttop_k_accuracy_5=0.01",
                "INFO:root:Epoch[0] Batch [20-40]\tSpeed: 190.00 samples/sec\taccuracy=0.001563\ttop_k_accuracy_5=0.01",
                "INFO:root:Epoch[1] Batch [0-20]\tSpeed: 195.25 samples/sec\taccuracy=0.002\ttop_k_accuracy_5=0.01",
            ]),
            expected
        );
        // Logs without a metric, with one that is not reset, and from a script that reports 50 batches as number 49.
        for (lines, size) in [
            (["Iter[3] Batch [7]\tSpeed: 8.00 samples/sec", "Iter[3] Batch [14]\tSpeed: 4.00 samples/sec"], 7),
            (
                [
                    "Epoch[0] Batch [0-20]\tSpeed: 8.00 samples/sec\ta=1",
                    "Epoch[0] Batch [0-40]\tSpeed: 4.00 samples/sec\ta=1",
                ],
                20,
            ),
            (
                [
                    "Epoch[0] Batch [49]\tSpeed: 8.000000 samples/sec\ta=1\tlr=0.1",
                    "Epoch[0] Batch [99]\tSpeed: 4.000000 samples/sec\ta=1\tlr=0.1",
                ],
                50,
            ),
        ] {
            assert_eq!(read(&lines), Ok((vec![8.0, 4.0], windows(size, 1))), "{lines:?}");
        }
    }

    #[test]
    fn metric_lines_of_one_batch_are_one_rate() {
        let line =
            |batch: u32, metric: &str| format!("Epoch[0] Batch [{batch}]\tSpeed: 8.00 samples/sec\tTrain-{metric}=0.5");
        let lines = [line(20, "accuracy"), line(20, "top_k"), line(40, "accuracy"), line(40, "top_k")];
        assert_eq!(read(&lines.each_ref().map(String::as_str)), Ok((vec![8.0, 8.0], windows(20, 1))));
    }

    #[test]
    fn rates_of_processes_are_summed_in_any_order() {
        let line = |rank: u32, batch: u32, speed: f64| {
            format!(
                "[1,{rank}]<stderr>:INFO:root:Epoch[0] Batch [{batch}]\tSpeed: {speed:.2} samples/sec\taccuracy=0.5"
            )
        };
        let lines = [
            line(0, 10, 1.0),
            line(1, 10, 2.0),
            line(0, 20, 3.0),
            line(2, 10, 4.0),
            line(2, 20, 5.0),
            line(1, 20, 6.0),
        ];
        let lines = lines.each_ref().map(String::as_str);
        assert_eq!(read(&lines), Ok((vec![7.0, 14.0], windows(10, 3))));
        let error = read(&lines[..5]).expect_err("one is missing");
        assert_eq!(
            (error.line, error.what.as_str()),
            (Some(3), "Batch [20] has 2 lines, but Batch [10] has 3 lines: truncated output: repeat the run")
        );
    }

    #[test]
    fn missing_repeated_or_invalid_rates_name_the_line() {
        let line = |epoch: u32, batch: u32| format!("Epoch[{epoch}] Batch [{batch}]\tSpeed: 8.00 samples/sec\ta=0.5");
        for (lines, message) in [
            ([line(0, 20), line(0, 40), line(0, 80)], "expected Batch [60], found Batch [80]: lines are missing"),
            ([line(0, 20), line(0, 40), line(0, 70)], "expected Batch [60], found Batch [70]: lines are missing"),
            ([line(0, 20), line(0, 30), line(0, 40)], "expected Batch [40], found Batch [30]: two outputs in one log"),
            ([line(0, 20), line(0, 40), line(2, 20)], "Epoch[2] after Epoch[0]: "),
            ([line(0, 20), line(0, 40), line(1, 40)], "Epoch[1] after Epoch[0]: "),
            (
                [line(0, 20), line(0, 40), line(0, 60).replace("8.00", "inf")],
                "Batch [60] of MXNet's Speedometer without a rate",
            ),
            (
                [line(0, 20), line(0, 40), "Epoch[0] Batch [60]\tSpeed: 8".to_owned()],
                "Batch [60] of MXNet's Speedometer without",
            ),
        ] {
            let error = read(&lines.each_ref().map(String::as_str)).expect_err(message);
            assert!(error.line > Some(1) && error.what.starts_with(message), "{message}: {error:?}");
        }
        // A second run was appended to the log.
        let twice: Vec<String> = [20, 40, 60, 20, 40, 60].iter().map(|batch| line(0, *batch)).collect();
        let error = read(&twice.iter().map(String::as_str).collect::<Vec<_>>()).expect_err("two outputs");
        assert_eq!(error.line, Some(4));
        assert!(error.what.contains("expected Batch [80], found Batch [20]: two outputs in one log"), "{}", error.what);
    }

    #[test]
    fn lines_of_other_tools_are_ignored() {
        for line in [
            "INFO:root:Epoch[0] Batch[1]\tSpeed: 384.19 samples/sec",
            "INFO:root:Batch [19]\tSpeed: 1893.25 samples/sec",
            "INFO:root:Epoch[0] Time cost=12.345",
            "Epoch[x] Batch [20]\tSpeed: 1.00 samples/sec",
            "Node[0] Batch [20]\tSpeed: 1.00 samples/sec",
        ] {
            assert!(Speedometer::default().read_line(line, 1).is_none(), "{line}");
        }
    }
}
