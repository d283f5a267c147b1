//! Reader of a whole log: the speed of every iteration, and the problems that make them incomplete. It takes a trait
//! object because a log can be of any length: a generic function would be compiled with the caller, and this package is
//! optimized for speed.

use std::io::{self, BufRead, ErrorKind};

use memchr::memmem;

use crate::line::dlperf::{self, Batch, LogLine};
use crate::line::log_problem::LogProblem;
use crate::line::other_tool::tool::{Windows, out_of_order};
use crate::line::other_tool::{OtherLines, mixed_log_error};

/// Maximum length of a line in bytes; a longer one is read in parts, so that a file without line ends does not fill the
/// memory.
const MAX_LINE_LENGTH: usize = 1 << 20;

/// Contents of a log.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Log {
    /// Speed of every iteration in order, including warm-up, in images/s over all ranks.
    pub speeds: Vec<f64>,
    /// Windows that the speeds refer to, if another tool wrote the log.
    pub windows: Option<Windows>,
    /// Loss on the last iteration's line, if it has one.
    pub last_loss: Option<f64>,
    /// Launcher's statement that the run failed.
    pub failure: Option<LogProblem>,
    /// First problem that makes the speeds incomplete or ambiguous.
    pub damage: Option<LogProblem>,
}

/// Reads a log of any length and content.
pub fn read(input: &mut dyn BufRead) -> io::Result<Log> {
    let mut log = Log::default();
    let mut last_batch = None;
    let mut lines = 0;
    let mut is_empty = true;
    let mut others = OtherLines::default();
    let per_second = memmem::Finder::new("/sec");
    for_each_line(input, |line| {
        let number = lines + 1;
        lines += u64::from(line.ends_with(b"\n"));
        is_empty = false;
        let damage = match dlperf::parse(line) {
            LogLine::Other if dlperf::is_program_line(line) => None,
            // Many lines between iterations are not from a benchmark; all lines with rates contain this.
            LogLine::Other if !log.speeds.is_empty() && per_second.find(line).is_none() => None,
            LogLine::Other => others.read_line(line, number).and_then(|(tool, taken)| match log.speeds.is_empty() {
                true => taken.err(),
                false => Some(mixed_log_error(tool.title(), DLPERF)),
            }),
            LogLine::Failed(reason) => {
                log.failure
                    .get_or_insert_with(|| LogProblem::in_line(number, format!("the run failed: {reason}: repeat it")));
                None
            }
            LogLine::Malformed => {
                Some(format!("no iteration number or valid speed in {:?}: repeat the run", excerpt(line)))
            }
            LogLine::Iteration { batch, speed, loss } => {
                let damage = others.tool().map(|tool| mixed_log_error(DLPERF, tool.title()));
                let damage = damage.or_else(|| sequence_error(batch, last_batch));
                let damage = damage.or_else(|| loss_error(batch, loss));
                log.speeds.push(speed.0);
                log.last_loss = loss;
                last_batch = Some(batch);
                damage
            }
        };
        if let Some(what) = damage {
            log.damage.get_or_insert_with(|| LogProblem::in_line(number, what));
        }
    })?;
    if log.speeds.is_empty() && log.damage.is_none() {
        match others.finish() {
            Some(Ok((speeds, windows))) => (log.speeds, log.windows) = (speeds, Some(windows)),
            Some(Err(remark)) => log.damage = Some(remark),
            None if is_empty => {
                log.damage =
                    Some(LogProblem::in_log("the log is empty: the run ended before it wrote anything, repeat it"));
            }
            None => {
                let what = "no iteration in the log: the run ended before its first one, repeat it";
                log.damage = Some(LogProblem::in_log(what));
            }
        }
    }
    Ok(log)
}

/// Writer of the iteration lines, in messages.
const DLPERF: &str = "DLPerf";

/// Calls `look` with every line including its end, as a slice of the input's own buffer; only a line that continues in
/// the next buffer is copied.
fn for_each_line(input: &mut dyn BufRead, mut look: impl FnMut(&[u8])) -> io::Result<()> {
    let mut pending = Vec::new();
    loop {
        let block = match input.fill_buf() {
            Ok([]) => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            block => block?,
        };
        let length = block.len();
        let mut rest = block;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, next) = rest.split_at(end + 1);
            if pending.is_empty() {
                look(line);
            } else {
                pending.extend_from_slice(line);
                look(&pending);
                pending.clear();
            }
            rest = next;
        }
        pending.extend_from_slice(rest);
        if pending.len() > MAX_LINE_LENGTH {
            look(&pending);
            pending.clear();
        }
        input.consume(length);
    }
    if !pending.is_empty() {
        look(&pending);
    }
    Ok(())
}

/// Returns an error text if the iteration of this line does not follow `last`. Some writers count from 0; after the
/// first line of an epoch the numbers must increase by one.
fn sequence_error(batch: Batch, last: Option<Batch>) -> Option<String> {
    let number = match last {
        Some(last) if last.epoch == batch.epoch => last.number.saturating_add(1),
        _ if batch.epoch == last.map_or(0, |last| last.epoch.saturating_add(1)) => batch.number.min(1),
        _ => {
            let place = last.map_or_else(|| "in the first line".to_owned(), |last| format!("after {last}"));
            return Some(format!("{batch} {place}: lines are missing, or two outputs are in one log: repeat the run"));
        }
    };
    let name = |number: u64| Batch { number: number as u32, ..batch }.to_string();
    (batch.number != number).then(|| out_of_order(name, batch.number.into(), number.into()))
}

fn loss_error(batch: Batch, loss: Option<f64>) -> Option<String> {
    let loss = loss.filter(|loss| !loss.is_finite())?;
    Some(format!("the loss of {batch} is {loss}: repeat the run, with a smaller --lr if this recurs"))
}

/// Returns the first characters of a line, enough to recognize it.
fn excerpt(line: &[u8]) -> String {
    const LENGTH: usize = 60;
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end();
    if text.chars().count() <= LENGTH { text.to_owned() } else { text.chars().take(LENGTH).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dimension::{UnitsPerSecond, WorkUnit};
    use crate::line::other_tool::tool::Tool;

    #[test]
    fn long_line_is_cut_between_characters() {
        assert_eq!(excerpt(b"short\r\n"), "short");
        assert_eq!(excerpt("é".repeat(70).as_bytes()), format!("{}…", "é".repeat(60)));
    }

    /// Two windows of 20 iterations.
    const SPEEDOMETER: &str = "INFO:root:Epoch[0] Batch [20]\tSpeed: 100.00 samples/sec\taccuracy=0.1\n\
                               INFO:root:Epoch[0] Batch [40]\tSpeed: 120.00 samples/sec\taccuracy=0.1\n";

    #[test]
    fn log_of_another_tool_has_window_speeds() {
        let log = read(&mut format!("starting\n{SPEEDOMETER}INFO:root:Epoch[0] Time cost=12.3\n").as_bytes());
        let log = log.expect("readable");
        assert_eq!((log.speeds, log.damage), (vec![100.0, 120.0], None));
        let windows = log.windows.expect("no single iterations");
        assert_eq!((windows.tool, windows.iterations, windows.ranks), (Tool::Speedometer, Some(20), 1));
        let log = read(&mut &b"starting\n"[..]).expect("readable");
        assert!(log.damage.is_some_and(|damage| damage.what.contains("ended before its first one")));
    }

    #[test]
    fn batches_are_counted_per_epoch() {
        let damage = |batches: &[(u32, u32)]| {
            let line = |(epoch, number): &(u32, u32)| {
                dlperf::write(Batch { epoch: *epoch, number: *number }, UnitsPerSecond(8.0), WorkUnit::Image, 1.0)
                    + "\n"
            };
            let log = read(&mut batches.iter().map(line).collect::<String>().as_bytes()).expect("readable");
            log.damage.map(|damage| damage.what)
        };
        assert_eq!(damage(&[(0, 1), (0, 2), (1, 1), (1, 2), (2, 1)]), None);
        let skipped =
            "Epoch[2] Batch[1] after Batch[1]: lines are missing, or two outputs are in one log: repeat the run";
        assert_eq!(damage(&[(0, 1), (2, 1)]).as_deref(), Some(skipped));
        let late = "expected Epoch[1] Batch[1], found Epoch[1] Batch[2]: lines are missing: repeat the run";
        assert_eq!(damage(&[(0, 1), (1, 2)]).as_deref(), Some(late));
        assert!(damage(&[(1, 1)]).is_some_and(|what| what.starts_with("Epoch[1] Batch[1] in the first line: ")));
    }

    #[test]
    fn mixed_logs_are_rejected_at_the_first_foreign_line() {
        let dlperf = "INFO:root:Epoch[0] Batch[1]\tSpeed: 384.19 samples/sec\n";
        let horovod = "Iter #0: 312.4 img/sec per GPU\n";
        let tensorflow = "1\timages/sec: 287.6 +/- 0.0 (jitter = 0.0)\t7.608\n";
        for (text, line, what) in [
            (format!("{dlperf}{horovod}"), 2, "a line of Horovod's synthetic benchmark in a log of DLPerf: "),
            (format!("{SPEEDOMETER}{dlperf}"), 3, "a line of DLPerf in a log of MXNet's Speedometer: "),
            (format!("{SPEEDOMETER}{tensorflow}"), 3, "a line of tf_cnn_benchmarks in a log of MXNet's Speedometer: "),
        ] {
            let damage = read(&mut text.as_bytes()).expect("readable").damage.expect("a mixture");
            assert_eq!(damage.line, Some(line), "{}", damage.what);
            assert!(
                damage.what.starts_with(what) && damage.what.ends_with("use one log per output"),
                "{}",
                damage.what
            );
        }
    }
}
