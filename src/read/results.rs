//! Reading of result folders: loads the runs of each benchmark and computes their figures.

use std::path::Path;

use anyhow::anyhow;
use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::manifest::without_option;
use ringmark_core::options::usage::{UsageError, usage};
use ringmark_core::shell;

use crate::read::analyze::results::{AnyExtraction, ResultFolder};
use crate::read::analyze::score;
use crate::read::analyze::training::figures::{self, Extraction};
use crate::read::load::folder::{self, Found, Reader, name_of, not_training};
use crate::read::load::run::{Readable, Run};
use crate::read::load::{bandwidth, input};

/// Reads everything in a folder except traces: runs of a sweep, of bandwidth and of input. Returns an error if there is
/// nothing; it suggests `reader` for results in subfolders.
pub fn read(folder: &Path, name: String, warmup: Option<u32>, reader: Reader) -> anyhow::Result<ResultFolder> {
    let bandwidth = bandwidth::find(folder)?;
    let input = input::find(folder);
    let has_others = input.is_some() || !(bandwidth.cases.is_empty() && bandwidth.problems.is_empty());
    let mut result = ResultFolder { name, bandwidth: bandwidth.cases, ..ResultFolder::default() };
    (result.command, result.groups, result.scoring, result.shortages, result.problems) =
        match folder::find(folder, reader).and_then(|found| read_sweep(folder, found, warmup)) {
            Ok(AnyExtraction::Training(it)) => (it.resume_command, it.groups, Vec::new(), it.shortages, it.problems),
            Ok(AnyExtraction::Score(it)) => (it.resume_command, Vec::new(), it.groups, it.shortages, it.problems),
            // A folder of bandwidth or input runs contains no others.
            Err(error) if has_others && !error.is::<UsageError>() => Default::default(),
            Err(error) => return Err(error),
        };
    result.command = result.command.map(|command| without_folder(&command));
    result.problems.extend(bandwidth.problems);
    match input.transpose() {
        Ok(record) => result.input = record,
        Err(problem) => result.problems.push(problem),
    }
    Ok(result)
}

/// Reads the runs `found` in `folder`, which a sweep of any benchmark wrote. `warmup` applies to training only.
pub fn read_sweep(folder: &Path, found: Found, warmup: Option<u32>) -> anyhow::Result<AnyExtraction> {
    match found.benchmark(folder)? {
        BenchmarkKind::Train => Ok(AnyExtraction::Training(training(folder, found, warmup)?)),
        BenchmarkKind::Score if warmup.is_some() => Err(usage(anyhow!(
            "--warmup: the scoring records in {} contain no warm-up passes: omit --warmup",
            folder.display()
        ))),
        BenchmarkKind::Score => {
            let runs = runs(folder, &found, None);
            Ok(AnyExtraction::Score(score::figures::extract(&name_of(folder)?, runs, found.problems, &found.sweep)))
        }
        // These have no sweeps: [`read`] reads their records.
        other @ (BenchmarkKind::Bandwidth | BenchmarkKind::Input) => Err(not_training(folder, other)),
    }
}

/// Reads the training runs below `folder`. Rejects a folder of another benchmark.
pub fn read_training(folder: &Path, warmup: Option<u32>) -> anyhow::Result<Extraction> {
    read_training_for(Reader::Extract, folder, warmup)
}

/// Like [`read_training`], for another command.
pub fn read_training_for(reader: Reader, folder: &Path, warmup: Option<u32>) -> anyhow::Result<Extraction> {
    let found = folder::find(folder, reader)?;
    match found.benchmark(folder)? {
        BenchmarkKind::Train => training(folder, found, warmup),
        other => Err(not_training(folder, other)),
    }
}

fn training(folder: &Path, found: Found, warmup: Option<u32>) -> anyhow::Result<Extraction> {
    let runs = runs(folder, &found, warmup);
    Ok(figures::extract(&name_of(folder)?, runs, found.problems, &found.sweep))
}

fn runs<R: Readable>(folder: &Path, found: &Found, warmup: Option<u32>) -> Vec<Run<R>> {
    found.runs.iter().map(|found| Run::read(folder, found, warmup)).collect()
}

/// Returns the command that resumes a sweep without its folder, which depends on the reader.
fn without_folder(command: &str) -> String {
    let words = without_option(shell_words::split(command).unwrap_or_default(), "--out");
    shell::join(words.iter().filter(|word| *word != "--resume"))
}
