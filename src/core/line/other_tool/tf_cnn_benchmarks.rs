//! Output of TensorFlow's `tf_cnn_benchmarks` (benchmark_cnn.py). Its lines of steps,
//! `10<TAB>images/sec: 123.4 +/- 0.4 (jitter = 1.2)<TAB>7.608`, are the batch size over the mean time of all steps
//! since the warm-up (or a moving average of it). They are not the rate of a window and are therefore not read.
//! `total images/sec: 493.60` is the images of all workers over the time of all steps: one window.
//!
//! Every process prints all of it. Only the header contains the number of devices: `Batch size:  512 global`, then
//! `128 per device`.

use crate::line::dlperf::speed;
use crate::line::log_problem::LogProblem;
use crate::line::other_tool::tool::{Tool, ToolReader, Windows};
use crate::stats::summary::harmonic_mean;

/// State of the reader.
#[derive(Debug, Default)]
pub struct TfCnnBenchmarks {
    mode: Option<String>,
    /// Images per iteration, of all devices and of each.
    batch_sizes: [Option<u32>; 2],
    /// Number of processes that printed their first step.
    started: usize,
    /// Total over all processes, as printed by each process that has ended.
    totals: Vec<f64>,
}

/// Name of the mode that trains without evaluation in between.
const TRAINING: &str = "training";

impl ToolReader for TfCnnBenchmarks {
    fn read_line(&mut self, line: &str, _: u64) -> Option<Result<(), String>> {
        if let Some((_, rate)) = line.split_once("total images/sec: ") {
            let speed = speed(rate).ok_or("total images/sec is not a rate above 0: repeat the run");
            return Some(speed.map(|speed| self.totals.push(speed)).map_err(str::to_owned));
        }
        if let Some((step, _)) = line.split_once("\timages/sec: ").filter(|(_, rest)| rest.contains("(jitter = ")) {
            self.started += usize::from(step.rsplit(|letter: char| !letter.is_ascii_digit()).next() == Some("1"));
            return Some(Ok(()));
        }
        if let Some((_, mode)) = line.split_once("Mode:        ") {
            self.mode = Some(mode.to_owned());
        }
        for (size, end) in self.batch_sizes.iter_mut().zip([" global", " per device"]) {
            let number = line.strip_suffix(end).and_then(|line| line.rsplit([' ', ':']).next()?.parse().ok());
            *size = number.or(*size);
        }
        None
    }

    fn finish(&self) -> Result<(Vec<f64>, Windows), LogProblem> {
        let error = |what: String| Err(LogProblem::in_log(what));
        let ended = self.totals.len();
        let Some(speed) = harmonic_mean(&self.totals).filter(|_| ended >= self.started) else {
            return error(format!(
                "output of tf_cnn_benchmarks is truncated ('total images/sec' occurs {ended} times for {} processes): \
                 repeat the run",
                self.started
            ));
        };
        let (Some(mode), [Some(all), Some(each)]) = (&self.mode, self.batch_sizes) else {
            return error(
                "output of tf_cnn_benchmarks without its header ('Mode:', 'Batch size: N global' and 'N per device'), \
                 which gives the number of devices: keep it in the log"
                    .to_owned(),
            );
        };
        if mode != TRAINING {
            return error(format!("tf_cnn_benchmarks ran in mode '{mode}', not '{TRAINING}': omit this log"));
        }
        let ranks = all.checked_div(each).filter(|ranks| *ranks > 0 && all % each == 0);
        let Some(ranks) = ranks.filter(|ranks| ended <= *ranks as usize) else {
            return error(format!(
                "'total images/sec' of tf_cnn_benchmarks occurs {ended} times, but its batch size is {all} in total \
                 and {each} per device: two outputs in one log: repeat the run"
            ));
        };
        let windows = Windows { tool: Tool::TfCnnBenchmarks, iterations: None, ranks, batch_size: Some(each) };
        Ok((vec![speed], windows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: [&str; 9] = [
        "Mode:        training",
        "Batch size:  512 global",
        "             128 per device",
        "Num batches: 100",
        "Step\tImg/sec\ttotal_loss",
        "1\timages/sec: 123.4 +/- 0.0 (jitter = 0.0)\t7.800",
        "10\timages/sec: 122.8 +/- 0.3 (jitter = 0.4)\t7.750",
        "----------------------------------------------------------------",
        "total images/sec: 490.25",
    ];

    fn read(lines: &[&str]) -> Result<(Vec<f64>, Windows), LogProblem> {
        let mut reader = TfCnnBenchmarks::default();
        for (number, line) in (1..).zip(lines) {
            if let Some(Err(what)) = reader.read_line(line, number) {
                return Err(LogProblem::in_line(number, what));
            }
        }
        reader.finish()
    }

    fn expect_one_window(lines: &[&str], speed: f64) {
        let (speeds, windows) = read(lines).expect("a sound log");
        assert!(speeds.len() == 1 && (speeds[0] - speed).abs() < 1e-9, "{speeds:?}");
        let expected = Windows { tool: Tool::TfCnnBenchmarks, iterations: None, ranks: 4, batch_size: Some(128) };
        assert_eq!(windows, expected);
    }

    #[test]
    fn total_is_one_rate_for_all_devices() {
        expect_one_window(&LOG, 490.25);
        // Two processes of two devices each, after mpirun's tags: 2 / (1 / 400 + 1 / 600).
        let tagged: Vec<String> = [0, 1]
            .iter()
            .flat_map(|rank| LOG.map(|line| format!("[1,{rank}]<stdout>:{line}")))
            .map(|line| {
                if line.starts_with("[1,0]") {
                    line.replace("490.25", "400.00")
                } else {
                    line.replace("490.25", "600.00")
                }
            })
            .collect();
        expect_one_window(&tagged.iter().map(String::as_str).collect::<Vec<_>>(), 480.0);
    }

    #[test]
    fn incomplete_log_is_rejected() {
        let with = |from: &str, to: &str| LOG.map(|line| line.replace(from, to));
        for (log, message) in [
            (with("total images/sec: 490.25", ""), "occurs 0 times for 1 processes"),
            (with("global", ""), "without its header"),
            (with("per device", ""), "without its header"),
            (with("Mode:", ""), "without its header"),
            (with("training", "forward only"), "in mode 'forward only', not 'training'"),
            (with("128 per", "100 per"), "occurs 1 times, but its batch size is 512 in total and 100 per device"),
            (with("128 per", "0 per"), "occurs 1 times, but its batch size is 512 in total and 0 per device"),
            (with("490.25", "nan"), "total images/sec is not a rate above 0"),
        ] {
            let error = read(&log.each_ref().map(String::as_str)).expect_err(message);
            assert!(error.what.contains(message), "{message}: {}", error.what);
        }
        let fivefold = [LOG; 5].concat();
        assert!(read(&fivefold).expect_err("of four ranks").what.contains("occurs 5 times"));
    }
}
