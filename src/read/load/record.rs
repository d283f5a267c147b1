//! The record next to a log, for every benchmark.

use std::io::{BufReader, ErrorKind};
use std::path::Path;

use anyhow::{Context, ensure};
use ringmark_core::benchmark::Record;
use ringmark_core::dimension::{Bytes, UnitsPerSecond, WorkUnit};
use ringmark_core::file::atomic_file;

use crate::read::load::log;
use crate::read::load::problem::Problem;

/// Reads the record next to a log; returns `None` if there is none.
pub fn read_for_log<R: Record>(root: &Path, log: &Path) -> Result<Option<R>, Problem> {
    let path = log.with_extension("jsonl");
    match atomic_file::open(&root.join(&path)) {
        Ok(file) => R::read(BufReader::with_capacity(log::BLOCK, file))
            .map(Some)
            .context("the record cannot be used")
            .map_err(|error| Problem::from_error(&path, &error)),
        // A dangling link is a missing record, which is an error.
        Err(error) if error.kind() == ErrorKind::NotFound && !root.join(&path).is_symlink() => Ok(None),
        Err(error) => Err(Problem::in_file(&path, format!("the record cannot be read: {error}"))),
    }
}

/// Rejects impossible speeds. Below the lower limit a speed is rounded to 0, and later code divides by it; no hardware
/// reaches the upper limit.
pub fn check_speed(speed: UnitsPerSecond, unit: WorkUnit) -> anyhow::Result<()> {
    ensure!(
        (0.005..1e15).contains(&speed.0),
        "invalid speed: {:.2e} {}: the clock of the run is broken",
        speed.0,
        unit.per_second()
    );
    Ok(())
}

/// Returns the highest memory use of any rank, or `None` if the record has none.
pub fn peak_memory(of_ranks: &[Bytes]) -> Option<Bytes> {
    let most = of_ranks.iter().map(|bytes| bytes.0).max().filter(|most| *most > 0);
    most.map(Bytes)
}
