//! Folders of cases with a record of each: `<case>/bandwidth.json`.

use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow, ensure};
use ringmark_core::benchmark::{BenchmarkKind, Record};
use ringmark_core::dimension::Case;
use ringmark_core::options::usage::usage;

/// Returns the cases that have a folder in `root`, by ranks, then nodes.
///
/// # Errors
///
/// Fails if `root` cannot be read; the message asks for the folder of `benchmark`.
pub fn cases_in(root: &Path, benchmark: BenchmarkKind) -> anyhow::Result<Vec<Case>> {
    ensure!(!root.is_file(), usage(anyhow!("{} is a file: pass the folder with the result", root.display())));
    let advice = || format!("{} cannot be read: pass the folder that `ringmark {benchmark}` wrote", root.display());
    let folders = fs::read_dir(root).with_context(advice).map_err(usage)?;
    let cases = folders.filter_map(|folder| folder.ok()?.file_name().to_str()?.parse::<Case>().ok());
    let mut cases: Vec<Case> = cases.collect();
    cases.sort_by_key(|case| (case.ranks(), *case));
    Ok(cases)
}

/// Reads the record of a valid run of `case`. Fails if it has another number of ranks.
pub fn read_case<R: Record>(path: &Path, case: Case) -> anyhow::Result<R> {
    let record = R::read_valid(path)?;
    let ranks = record.head().ranks.len();
    ensure!(
        ranks == case.ranks() as usize,
        "contains {ranks} ranks, but its folder name states another number: restore the original name"
    );
    Ok(record)
}
