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
    each_line(input, |line| {
        let number = lines + 1;
        lines += u64::from(line.ends_with(b"\n"));
        is_empty = false;
        let in_line = |what: String| Remark { line: Some(number), what };
        let damage = match dlperf::parse(line) {
            Line::Other => None,
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
        let what = match is_empty {
            true => "the log is empty: the run ended before it wrote anything, repeat it",
            false => "no iteration in the log: the run ended before its first one, repeat it",
        };
        log.damage = Some(Remark { line: None, what: what.to_owned() });
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
}
