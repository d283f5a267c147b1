//! The log of a run, from its file. What it says is [`ringmark_core::line::log`]'s. Not for the record beside it.

use std::io::BufReader;
use std::path::Path;

use ringmark_core::file::whole_file;
use ringmark_core::line::log::{self, Log};

use crate::read::load::problem::Problem;

/// What is read at once, in bytes: few calls, and still in the processor's cache when it is looked at.
pub(super) const BLOCK: usize = 1 << 17;

/// Reads a log of any length and content; an error where the file itself cannot be read.
pub fn read(root: &Path, path: &Path) -> Result<Log, Problem> {
    let file = whole_file::open(&root.join(path));
    let log = file.and_then(|file| log::read(&mut BufReader::with_capacity(BLOCK, file)));
    log.map_err(|error| Problem::in_file(path, format!("the log cannot be read: {error}")))
}
