//! One log, line by line: the speed of every iteration, and what makes it incomplete. Not for the record beside it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use ringmark_record::log_line::{self, Line};

use crate::read::problem::Problem;

/// Longest piece of a log that is looked at as one line, in bytes; keeps a file without line ends out of memory.
const LONGEST_LINE: u64 = 1 << 20;

/// What a log says.
#[derive(Debug, Default)]
pub struct Log {
    /// Of every iteration in order, warm-up included, in images/s over all ranks.
    pub speeds: Vec<f64>,
    /// On the last iteration's line, where it has one.
    pub last_loss: Option<f64>,
    /// The launcher's word that the run failed.
    pub failure: Option<Problem>,
    /// The first thing that makes the speeds incomplete or ambiguous.
    pub damage: Option<Problem>,
}

/// Reads a log of any length and content; an error where the file itself cannot be read.
pub fn read(root: &Path, path: &Path) -> Result<Log, Problem> {
    let unreadable = |error: std::io::Error| Problem::in_file(path, format!("the log cannot be read: {error}"));
    let mut input = BufReader::new(File::open(root.join(path)).map_err(unreadable)?);
    let mut log = Log::default();
    let mut bytes = Vec::new();
    let mut last_batch = 0;
    let mut number = 0;
    loop {
        bytes.clear();
        if (&mut input).take(LONGEST_LINE).read_until(b'\n', &mut bytes).map_err(unreadable)? == 0 {
            break;
        }
        number += 1;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end();
        let damage = match log_line::parse(text) {
            Line::Other => None,
            Line::Failed(reason) => {
                let what = format!("the run failed: {reason}: repeat it");
                log.failure.get_or_insert_with(|| Problem::in_line(path, number, what));
                None
            }
            Line::Malformed => Some(format!("an iteration without a speed, {:?}: repeat the run", excerpt(text))),
            Line::Iteration { batch, speed } => {
                // Some writers count from 0; after the first line the numbers have to go up by one.
                let due = if log.speeds.is_empty() { batch.min(1) } else { last_batch + 1 };
                let damage = (batch != due).then(|| out_of_order(batch, due));
                let loss = log_line::loss(text);
                let damage = damage.or_else(|| not_finite(batch, loss));
                log.speeds.push(speed.0);
                log.last_loss = loss;
                last_batch = batch;
                damage
            }
        };
        if let Some(what) = damage {
            log.damage.get_or_insert_with(|| Problem::in_line(path, number, what));
        }
    }
    if log.speeds.is_empty() && log.damage.is_none() {
        let what = match number {
            0 => "the log is empty: the run ended before it wrote anything, repeat it",
            _ => "no iteration in the log: the run ended before its first one, repeat it",
        };
        log.damage = Some(Problem::in_file(path, what));
    }
    Ok(log)
}

fn out_of_order(batch: u32, due: u32) -> String {
    let cause = if batch < due { "two outputs in one log" } else { "lines are missing" };
    format!("Batch[{batch}] where Batch[{due}] is due: {cause}, repeat the run")
}

fn not_finite(batch: u32, loss: Option<f64>) -> Option<String> {
    let loss = loss.filter(|loss| !loss.is_finite())?;
    Some(format!("the loss of Batch[{batch}] is {loss}: repeat the run, with a smaller --lr if it stays so"))
}

/// The first characters of a line, enough to recognize it.
fn excerpt(text: &str) -> String {
    const LENGTH: usize = 60;
    if text.chars().count() <= LENGTH { text.to_owned() } else { text.chars().take(LENGTH).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_shortened_between_characters() {
        assert_eq!(excerpt("short"), "short");
        assert_eq!(excerpt(&"é".repeat(70)), format!("{}…", "é".repeat(60)));
    }
}
