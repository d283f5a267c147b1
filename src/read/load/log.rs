//! Log files of runs; the parser is in [`ringmark_core::line::log`].

use std::io::BufReader;
use std::path::Path;

use ringmark_core::file::atomic_file;
use ringmark_core::line::log::{self, Log};

use crate::read::load::problem::Problem;

/// Read buffer in bytes: large enough for few system calls, small enough to stay in the processor's cache.
pub(super) const BLOCK: usize = 1 << 17;

/// Reads a log of any length and content. Fails only if the file itself cannot be read.
pub fn read(root: &Path, path: &Path) -> Result<Log, Problem> {
    let file = atomic_file::open(&root.join(path));
    let log = file.and_then(|file| log::read(&mut BufReader::with_capacity(BLOCK, file)));
    log.map_err(|error| Problem::in_file(path, format!("the log cannot be read: {error}")))
}
