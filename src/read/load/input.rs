//! Record of `ringmark input` in a folder.

use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, bail};
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::input::InputRecord;
use ringmark_core::file::atomic_file;
use ringmark_core::file::run_name::INPUT_RECORD;

use crate::read::load::problem::Problem;

/// Reads the record in the folder `root`; returns `None` if there is none.
pub fn find(root: &Path) -> Option<Result<InputRecord, Problem>> {
    let path = root.join(INPUT_RECORD);
    path.exists().then(|| read(&path).map_err(|error| Problem::in_file(INPUT_RECORD, format!("{error:#}"))))
}

fn read(path: &Path) -> anyhow::Result<InputRecord> {
    let file = atomic_file::open(path).context("the record cannot be read")?;
    let record = InputRecord::read(BufReader::new(file)).context("the record cannot be used")?;
    if let Some(failure) = &record.failure {
        bail!("the run failed: {failure}: repeat it");
    }
    Ok(record)
}
