//! The log of a run, and its problems with their place. Not for the record beside it.

use std::io::{self, BufRead, BufReader};
use std::path::Path;

use ringmark_record::file::whole_file;
use ringmark_record::line::log::{self, Remark};

use crate::read::load::problem::Problem;

/// What is read at once, in bytes: few calls, and still in the processor's cache when it is looked at.
pub(super) const BLOCK: usize = 1 << 17;

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
    let file = whole_file::open(&root.join(path));
    let log = file.and_then(|file| read_from(BufReader::with_capacity(BLOCK, file), path));
    log.map_err(|error| Problem::in_file(path, format!("the log cannot be read: {error}")))
}

/// The same of bytes from anywhere; problems name `path`.
pub fn read_from(mut input: impl BufRead, path: &Path) -> io::Result<Log> {
    let log::Log { speeds, last_loss, failure, damage } = log::read(&mut input)?;
    let problem = |Remark { line, what }| match line {
        Some(line) => Problem::in_line(path, line, what),
        None => Problem::in_file(path, what),
    };
    Ok(Log { speeds, last_loss, failure: failure.map(problem), damage: damage.map(problem) })
}
