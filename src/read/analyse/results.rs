//! What the folders of a report hold: runs of sweeps, bandwidth runs, or both; each under a name of its own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ringmark_record::bandwidth::record::BandwidthRecord;
use ringmark_record::case::Case;
use ringmark_record::usage::usage;

use crate::read::analyse::figures::Group;
use crate::read::extract;
use crate::read::load::bandwidth;
use crate::read::load::problem::Problem;

/// One folder.
#[derive(Debug, PartialEq)]
pub struct ResultFolder {
    /// Last part of its path, and more of it where that is another's too.
    pub name: String,
    /// Runs of training; none in a folder of bandwidth runs.
    pub groups: Vec<Group>,
    /// Bandwidth runs that count, by ranks, then nodes.
    pub bandwidth: Vec<(Case, BandwidthRecord)>,
    /// What is not in the figures, and why.
    pub problems: Vec<Problem>,
}

/// Reads every folder; an error where one holds nothing at all.
pub fn read(folders: &[PathBuf], warmup: Option<u32>) -> anyhow::Result<Vec<ResultFolder>> {
    let names = names(folders)?;
    folders.iter().zip(names).map(|(folder, name)| read_one(folder, name, warmup)).collect()
}

fn read_one(folder: &Path, name: String, warmup: Option<u32>) -> anyhow::Result<ResultFolder> {
    let bandwidth = bandwidth::find(folder)?;
    let (groups, mut problems) = match extract::read(folder, warmup) {
        Ok(extraction) => (extraction.groups, extraction.problems),
        // A folder of bandwidth runs alone has none of training.
        Err(_) if !(bandwidth.cases.is_empty() && bandwidth.problems.is_empty()) => Default::default(),
        Err(error) => return Err(error),
    };
    problems.extend(bandwidth.problems);
    Ok(ResultFolder { name, groups, bandwidth: bandwidth.cases, problems })
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
