//! What the folders of a report hold: runs of sweeps, bandwidth runs, or both; each under a name of its own.

use std::fs::{self, File};
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ringmark_record::bandwidth::record::BandwidthRecord;
use ringmark_record::case::Case;
use ringmark_record::files::BANDWIDTH_RECORD;
use ringmark_record::usage::usage;

use crate::read::extract;
use crate::read::figures::Group;
use crate::read::problem::Problem;

/// One folder.
#[derive(Debug, PartialEq)]
pub struct ResultFolder {
    /// Last part of its path, and more of it where that is another's too.
    pub name: String,
    /// Runs of training; none in a folder of bandwidth runs.
    pub groups: Vec<Group>,
    /// Bandwidth runs that count, by ranks.
    pub bandwidth: Vec<BandwidthRun>,
    /// What is not in the figures, and why.
    pub problems: Vec<Problem>,
}

/// One case of `ringmark bandwidth`.
#[derive(Debug, PartialEq)]
pub struct BandwidthRun {
    /// Nodes and ranks.
    pub case: Case,
    /// All of it.
    pub record: BandwidthRecord,
}

/// Reads every folder; an error where one holds nothing at all.
pub fn read(folders: &[PathBuf], warmup: Option<u32>) -> anyhow::Result<Vec<ResultFolder>> {
    let names = names(folders)?;
    folders.iter().zip(names).map(|(folder, name)| read_one(folder, name, warmup)).collect()
}

fn read_one(folder: &Path, name: String, warmup: Option<u32>) -> anyhow::Result<ResultFolder> {
    let mut problems = Vec::new();
    let bandwidth = bandwidth_runs(folder, &mut problems);
    let has_bandwidth = !(bandwidth.is_empty() && problems.is_empty());
    let groups = match extract::read(folder, warmup) {
        Ok(extraction) => {
            problems.splice(0..0, extraction.problems);
            extraction.groups
        }
        // A folder of bandwidth runs alone has none of training.
        Err(_) if has_bandwidth => Vec::new(),
        Err(error) => return Err(error),
    };
    Ok(ResultFolder { name, groups, bandwidth, problems })
}

/// Every `<case>/bandwidth.json` of a sound run; the others become problems.
fn bandwidth_runs(folder: &Path, problems: &mut Vec<Problem>) -> Vec<BandwidthRun> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut cases: Vec<Case> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    cases.sort_by_key(|case| (case.ranks(), *case));
    let mut runs = Vec::new();
    for case in cases {
        let path = Path::new(&case.to_string()).join(BANDWIDTH_RECORD);
        let record = match File::open(folder.join(&path)) {
            Ok(file) => BandwidthRecord::read(BufReader::new(file)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
            Err(error) => Err(error.into()),
        };
        match record {
            Err(error) => problems.push(Problem::in_file(path, format!("the record cannot be used: {error:#}"))),
            Ok(BandwidthRecord { failure: Some(failure), .. }) => {
                problems.push(Problem::in_file(path, format!("the run failed: {failure}: repeat it")));
            }
            Ok(record) => runs.push(BandwidthRun { case, record }),
        }
    }
    runs
}

/// As few last parts of each path as tell it from all others.
fn names(folders: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let resolved = |folder: &PathBuf| {
        let whole = fs::canonicalize(folder)
            .with_context(|| format!("{} cannot be read: give the folder that a sweep wrote", folder.display()));
        Ok(whole.map_err(usage)?.iter().map(|part| part.to_string_lossy().into_owned()).collect::<Vec<String>>())
    };
    let paths = folders.iter().map(resolved).collect::<anyhow::Result<Vec<_>>>()?;
    let last = |path: &[String], count: usize| path[path.len().saturating_sub(count)..].join("/");
    let name = |index: usize| {
        let path = &paths[index];
        let is_unique = |count: &usize| {
            let others = paths.iter().enumerate().filter(|(other, _)| *other != index);
            others.map(|(_, other)| last(other, *count)).all(|other| other != last(path, *count))
        };
        (1..=path.len()).find(is_unique).map(|count| last(path, count))
    };
    let names = (0..paths.len()).map(|index| name(index).ok_or(index)).collect::<Result<Vec<String>, usize>>();
    names.or_else(|index| {
        bail!(usage(anyhow::anyhow!("{} is given twice: give each folder once", folders[index].display())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_short_as_they_can_be() {
        let parent = tempfile::TempDir::new().expect("a temporary folder");
        let folders = ["a/first", "b/first", "b/second"].map(|folder| parent.path().join(folder));
        folders.iter().for_each(|folder| fs::create_dir_all(folder).expect("made"));
        assert_eq!(names(&folders).expect("they are there"), ["a/first", "b/first", "second"]);
        let error = names(&[folders[0].clone(), parent.path().join("a/../a/first")]).expect_err("one folder");
        assert!(error.to_string().contains("first is given twice"), "{error}");
        let error = names(&[parent.path().join("missing")]).expect_err("no folder");
        assert!(
            error.is::<ringmark_record::usage::UsageError>() && error.to_string().contains("missing cannot be read")
        );
    }
}
