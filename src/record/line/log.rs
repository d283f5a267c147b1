//! A log from its first byte to its last: the speed of every iteration, and what makes them incomplete. Not generic over
//! what is read: a log can be of any length, and this package is compiled for speed.

use std::io::{self, BufRead, ErrorKind};

use crate::line::dlperf::{self, Line};

/// A line that is much longer, in bytes, is read in parts; keeps a file without line ends out of memory.
const LONGEST_LINE: usize = 1 << 20;

/// What a log says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Log {
    /// Of every iteration in order, warm-up included, in images/s over all ranks.
    pub speeds: Vec<f64>,
    /// On the last iteration's line, where it has one.
    pub last_loss: Option<f64>,
    /// The launcher's word that the run failed.
    pub failure: Option<Remark>,
    /// The first thing that makes the speeds incomplete or ambiguous.
    pub damage: Option<Remark>,
}

/// What is said of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Number of the line it is about, from 1; `None` of the whole log.
    pub line: Option<u64>,
    /// What, and what to do.
    pub what: String,
}

/// Reads a log of any length and content.
pub fn read(input: &mut dyn BufRead) -> io::Result<Log> {
    let mut log = Log::default();
    let mut last_batch = 0;
    let mut lines = 0;
    let mut is_empty = true;
    let mut other_tool = None;
    each_line(input, |line| {
        let number = lines + 1;
        lines += u64::from(line.ends_with(b"\n"));
        is_empty = false;
        let in_line = |what: String| Remark { line: Some(number), what };
        let damage = match dlperf::parse(line) {
            Line::Other => {
                if log.speeds.is_empty() && other_tool.is_none() {
                    other_tool = tool_of(line).map(|tool| in_line(tool.to_owned()));
                }
                None
            }
            Line::Failed(reason) => {
                log.failure.get_or_insert_with(|| in_line(format!("the run failed: {reason}: repeat it")));
                None
            }
            Line::Malformed => Some(format!("an iteration without a speed, {:?}: repeat the run", excerpt(line))),
            Line::Iteration { batch, speed, loss } => {
                let batch = u64::from(batch);
                // Some writers count from 0; after the first line the numbers have to go up by one.
                let due = if log.speeds.is_empty() { batch.min(1) } else { last_batch + 1 };
                let damage = (batch != due).then(|| out_of_order(batch, due));
                let damage = damage.or_else(|| not_finite(batch, loss));
                log.speeds.push(speed.0);
                log.last_loss = loss;
                last_batch = batch;
                damage
            }
        };
        if let Some(what) = damage {
            log.damage.get_or_insert_with(|| in_line(what));
        }
    })?;
    if log.speeds.is_empty() && log.damage.is_none() {
        let of_log = |what: &str| Remark { line: None, what: what.to_owned() };
        log.damage = Some(match (is_empty, other_tool) {
            (true, _) => of_log("the log is empty: the run ended before it wrote anything, repeat it"),
            (false, None) => of_log("no iteration in the log: the run ended before its first one, repeat it"),
            (false, Some(Remark { line, what })) => Remark {
                line,
                what: format!("the line is {what}, and not a rate of one iteration over all ranks: it is not read"),
            },
        });
    }
    Ok(log)
}

/// Shows `look` every line with its end, where it lies in the input's own block: only what goes on in the next one is copied.
fn each_line(input: &mut dyn BufRead, mut look: impl FnMut(&[u8])) -> io::Result<()> {
    let mut begun = Vec::new();
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
            if begun.is_empty() {
                look(line);
            } else {
                begun.extend_from_slice(line);
                look(&begun);
                begun.clear();
            }
            rest = next;
        }
        begun.extend_from_slice(rest);
        if begun.len() > LONGEST_LINE {
            look(&begun);
            begun.clear();
        }
        input.consume(length);
    }
    if !begun.is_empty() {
        look(&begun);
    }
    Ok(())
}

/// Which other program writes lines like this one, and what its rate is of.
fn tool_of(line: &[u8]) -> Option<&'static str> {
    let text = String::from_utf8_lossy(line);
    let after = |mark: &str| text.split_once(mark).map(|(_, rest)| rest);
    let is_number = |text: &str| text.bytes().next().is_some_and(|byte| byte.is_ascii_digit());
    if after(" Batch [").is_some_and(|rest| is_number(rest) && rest.contains("Speed: ")) {
        return Some("MXNet's Speedometer, a rate per window of batches of one process");
    }
    if after("Iter #").is_some_and(|rest| is_number(rest) && rest.contains(" img/sec per ")) {
        return Some("Horovod's synthetic benchmark, a rate per GPU over ten batches");
    }
    if text.contains("images/sec: ") && text.contains("jitter = ") {
        return Some("tf_cnn_benchmarks', a mean since the start");
    }
    None
}

fn out_of_order(batch: u64, due: u64) -> String {
    let cause = if batch < due { "two outputs in one log" } else { "lines are missing" };
    format!("Batch[{batch}] where Batch[{due}] is due: {cause}, repeat the run")
}

fn not_finite(batch: u64, loss: Option<f64>) -> Option<String> {
    let loss = loss.filter(|loss| !loss.is_finite())?;
    Some(format!("the loss of Batch[{batch}] is {loss}: repeat the run, with a smaller --lr if it stays so"))
}

/// The first characters of a line, enough to recognize it.
fn excerpt(line: &[u8]) -> String {
    const LENGTH: usize = 60;
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end();
    if text.chars().count() <= LENGTH { text.to_owned() } else { text.chars().take(LENGTH).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_shortened_between_characters() {
        assert_eq!(excerpt(b"short\r\n"), "short");
        assert_eq!(excerpt("é".repeat(70).as_bytes()), format!("{}…", "é".repeat(60)));
    }

    #[test]
    fn lines_of_other_tools_are_called_by_their_name() {
        for (line, tool) in [
            ("INFO:root:Epoch[0] Batch [20]\tSpeed: 1234.50 samples/sec\taccuracy=0.1", "MXNet's Speedometer"),
            ("INFO:root:Epoch[0] Batch [0-20]\tSpeed: 1234.50 samples/sec", "MXNet's Speedometer"),
            ("Iter #0: 312.4 img/sec per GPU", "Horovod's synthetic benchmark"),
            ("10\timages/sec: 287.6 +/- 0.4 (jitter = 1.2)\t7.608", "tf_cnn_benchmarks"),
        ] {
            let text = format!("starting\n{line}\n{line}\n");
            let damage = read(&mut text.as_bytes()).expect("readable").damage.expect("no iteration of DLPerf's");
            assert_eq!(damage.line, Some(2));
            assert!(damage.what.contains(tool) && damage.what.ends_with("it is not read"), "{}", damage.what);
        }
        let damage = read(&mut &b"starting\n"[..]).expect("readable").damage.expect("nothing");
        assert!(damage.what.contains("ended before its first one"), "{}", damage.what);
    }
}
