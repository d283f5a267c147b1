//! Reading of result folders: loads the runs of each benchmark and computes their figures.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{anyhow, ensure};
use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::file::run_name::MANIFEST;
use ringmark_core::options::usage::{UsageError, usage};

use crate::read::analyze::results::{ResultFolder, SweepGroups};
use crate::read::analyze::score::result_json::ScoreResult;
use crate::read::analyze::training::result_json::JsonResult;
use crate::read::analyze::{score, training};
use crate::read::benchmark::READERS;
use crate::read::load::folder::{self, Found, Reader, SweepFacts, name_of, not_training};
use crate::read::load::run::{Readable, Run};

/// Returns the result file of a folder, with the hashes of the files next to it.
pub fn result_file(result: &ResultFolder, files_sha256: BTreeMap<String, String>) -> anyhow::Result<String> {
    match &result.sweep {
        SweepGroups::Training(_) => JsonResult { files_sha256, ..JsonResult::new(result, None) }.text(),
        SweepGroups::Score(_) => ScoreResult { files_sha256, ..ScoreResult::new(result) }.text(),
    }
}

/// Reads everything in a folder except traces: runs of a sweep, and records of other benchmarks. Returns an error if
/// there is nothing; it suggests `reader` for results in subfolders.
pub fn read(folder: &Path, name: String, warmup: Option<u32>, reader: Reader) -> anyhow::Result<ResultFolder> {
    let records = read_records(folder, name.clone())?;
    let mut result = match (folder::find(folder, reader).and_then(|found| read_sweep(folder, found, warmup)), records) {
        (Ok(sweep), None) => sweep,
        (Ok(sweep), Some(records)) => ResultFolder {
            records: records.records,
            problems: sweep.problems.into_iter().chain(records.problems).collect(),
            ..sweep
        },
        // A folder of such records contains no runs.
        (Err(error), Some(records)) if !error.is::<UsageError>() => records,
        (Err(error), _) => return Err(error),
    };
    result.name = name;
    Ok(result)
}

/// Reads the records of benchmarks without sweeps in a folder; `None` if it has no file of them.
pub fn read_records(folder: &Path, name: String) -> anyhow::Result<Option<ResultFolder>> {
    let mut result = ResultFolder::new(name, SweepGroups::Training(Vec::new()), SweepFacts::default(), Vec::new());
    for reader in READERS {
        let (found, unusable) = (reader.find)(folder)?;
        result.records.extend(found.map(|found| (reader.benchmark, found)));
        result.problems.extend(unusable);
    }
    let is_empty = result.records.is_empty() && result.problems.is_empty();
    Ok((!is_empty).then_some(result))
}

/// Reads the runs of a sweep, or, in a folder without runs, the records of other benchmarks.
pub fn read_sweep_or_records(folder: &Path, warmup: Option<u32>, reader: Reader) -> anyhow::Result<ResultFolder> {
    match folder::find(folder, reader) {
        Ok(found) => read_sweep(folder, found, warmup),
        Err(error) => read_records_instead(folder, error),
    }
}

/// Reads the records of benchmarks without sweeps in a folder without runs. Without valid records, returns `error` or the
/// problems of the records.
pub fn read_records_instead(folder: &Path, error: anyhow::Error) -> anyhow::Result<ResultFolder> {
    if error.is::<UsageError>() || folder.join(MANIFEST).exists() {
        return Err(error);
    }
    let Some(result) = read_records(folder, name_of(folder)?)? else { return Err(error) };
    let problems = || result.left_out().iter().map(|problem| format!("\n  {problem}")).collect::<String>();
    ensure!(!result.records.is_empty(), "{} contains no valid record:{}", folder.display(), problems());
    Ok(result)
}

/// Reads the runs `found` in `folder`, which a sweep of any benchmark wrote. `warmup` applies to training only.
pub fn read_sweep(folder: &Path, mut found: Found, warmup: Option<u32>) -> anyhow::Result<ResultFolder> {
    let benchmark = found.benchmark(folder)?;
    let mut problems = std::mem::take(&mut found.problems);
    let groups = match benchmark {
        BenchmarkKind::Train => {
            let runs = runs(folder, &found, warmup);
            SweepGroups::Training(training::figures::groups(runs, &mut problems, &found.sweep))
        }
        BenchmarkKind::Score if warmup.is_some() => {
            return Err(usage(anyhow!(
                "--warmup: the inference records in {} contain no warm-up passes: omit --warmup",
                folder.display()
            )));
        }
        BenchmarkKind::Score => {
            let runs = runs(folder, &found, None);
            SweepGroups::Score(score::figures::groups(runs, &mut problems, &found.sweep))
        }
        // These have no sweeps: [`read`] reads their records.
        other => return Err(not_training(folder, other)),
    };
    Ok(ResultFolder::new(name_of(folder)?, groups, found.sweep, problems))
}

/// Reads the training runs below `folder`. Rejects a folder of another benchmark.
pub fn read_training(folder: &Path, warmup: Option<u32>) -> anyhow::Result<ResultFolder> {
    read_training_for(Reader::Extract, folder, warmup)
}

/// Like [`read_training`], for another command.
pub fn read_training_for(reader: Reader, folder: &Path, warmup: Option<u32>) -> anyhow::Result<ResultFolder> {
    let found = folder::find(folder, reader)?;
    match found.benchmark(folder)? {
        BenchmarkKind::Train => read_sweep(folder, found, warmup),
        other => Err(not_training(folder, other)),
    }
}

fn runs<R: Readable>(folder: &Path, found: &Found, warmup: Option<u32>) -> Vec<Run<R>> {
    found.runs.iter().map(|found| Run::read(folder, found, warmup)).collect()
}
