//! `ringmark check`: validates a result for its recipients and for CI, as MLPerf's submission checker does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use ringmark_core::benchmark::RecordHead;
use ringmark_core::benchmark::score::ScoreRecord;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::file::run_name::{MANIFEST, RunName};
use ringmark_core::manifest::Manifest;
use ringmark_core::options::usage::usage;

use crate::output::{self, Json};
use crate::read::analyze::checks;
use crate::read::analyze::results::{CheckedRecord, ResultFolder, SweepGroups};
use crate::read::extract;
use crate::read::load::checked_run::CheckedRun;
use crate::read::load::folder::{self, Found, Reader};
use crate::read::load::integrity::{Integrity, Outputs};
use crate::read::results;
use crate::read::show::check::CheckedResult;

/// Options of `ringmark check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckConfig {
    /// Folder of a sweep, or of a benchmark without sweeps.
    pub folder: PathBuf,
    /// Destination of the JSON output.
    pub json: Json,
}

/// Runs all checks and prints the outcome. Fails unless every check passes.
pub fn run(config: &CheckConfig) -> anyhow::Result<()> {
    config.json.check(&[&config.folder])?;
    config.json.forget()?;
    let checked = check(&config.folder)?;
    if !config.json.write(&checked)? {
        output::print(&checked.text())?;
    }
    checked.failure().map_or(Ok(()), |failure| bail!("{failure}"))
}

fn check(root: &Path) -> anyhow::Result<CheckedResult> {
    match folder::find(root, Reader::Check) {
        Ok(found) => check_sweep(root, found),
        Err(error) => check_records(root, &results::read_records_instead(root, error)?),
    }
}

/// Checks the records of a benchmark without sweeps.
fn check_records(root: &Path, result: &ResultFolder) -> anyhow::Result<CheckedResult> {
    let benchmark = match result.records.keys().collect::<Vec<_>>()[..] {
        [one] => *one,
        _ => bail!(usage(anyhow!(
            "{} mixes benchmarks: {}: use one folder per benchmark",
            root.display(),
            result.recorded_benchmarks()
        ))),
    };
    let records: Vec<CheckedRecord> = result.records.values().flat_map(|records| records.checked()).collect();
    let logs = records.iter().filter_map(|record| record.printed.as_ref());
    let logs = logs.map(|(log, _)| (log.clone(), fs::read_to_string(root.join(log)).ok())).collect();
    let heads: Vec<RecordHead> = result.heads().collect();
    let checks = [
        Some(checks::records_complete(&records, &result.problems)),
        checks::records_unedited(&records, &logs),
        Some(checks::records_by_rules(&records, &heads)),
        Some(checks::records_reliable(&records, &result.assessment())),
    ];
    Ok(CheckedResult::new(root.display().to_string(), benchmark, checks.into_iter().flatten().collect()))
}

fn check_sweep(root: &Path, found: Found) -> anyhow::Result<CheckedResult> {
    let manifest = Manifest::find(root)?.ok_or_else(|| {
        usage(anyhow!(
            "{} contains no {MANIFEST}: pass a folder of `ringmark sweep` or `ringmark score`",
            root.display()
        ))
    })?;
    let benchmark = found.benchmark(root)?;
    let usable: BTreeSet<RunName> = found.runs.iter().map(|run| run.name).collect();
    let mut result = results::read_sweep(root, found, None)?;
    let read = match &result.sweep {
        SweepGroups::Training(_) => CheckedRun::read::<RunRecord>,
        SweepGroups::Score(_) => CheckedRun::read::<ScoreRecord>,
    };
    let runs = manifest.runs.iter().filter_map(|run| read(root, run.name, &manifest.conditions.options));
    let runs: Vec<CheckedRun> = runs.collect();
    let integrity = Integrity::read(root, &manifest, &folder::logs(root)?);
    let endings: Vec<&str> = extract::other_files(&result).iter().map(|(ending, _)| *ending).collect();
    let result_file = results::result_file(&result, BTreeMap::new())?;
    let outputs = Outputs::read(root, &folder::name_of(root)?, &result_file, &endings, integrity.changes.is_empty());
    // The result file is that of the sweep alone.
    let records = results::read_records(root, result.name.clone())?;
    result.problems.extend(records.into_iter().flat_map(|records| records.problems));
    let checks = vec![
        checks::complete(&manifest, &usable, &result.problems, &runs),
        checks::unedited(&integrity, &outputs),
        checks::rules(&runs),
        checks::reliable(&result.assessment(), &runs),
    ];
    Ok(CheckedResult::new(root.display().to_string(), benchmark, checks))
}
