//! Runs found by file name. Files that look like a log but are not a run become a [`Problem`].

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use ringmark_core::benchmark::{BenchmarkKind, RECORDS};
use ringmark_core::dimension::{BatchShape, Case, Dtype, Model, Strategy};
use ringmark_core::file::run_name::{BASELINE, MANIFEST, RunName};
use ringmark_core::options::usage::usage;

use crate::read::load::content::{benchmark_of, model_of};
use crate::read::load::folder::sweep_facts::SweepFacts;
use crate::read::load::problem::Problem;

/// Returns the naming pattern of logs, with an example.
pub(super) fn pattern() -> String {
    let example = RunName {
        baseline: false,
        case: Case::SINGLE,
        model: Model::default(),
        batch: BatchShape::per_rank(128),
        dtype: Dtype::Fp32,
        strategy: Strategy::AllReduce,
        run: 1,
    };
    format!("<case>/<model>_b<batch>_<dtype>_<run>.log, for example {example}")
}

/// A log whose name identifies its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRun {
    /// Run parsed from the path.
    pub name: RunName,
    /// Path of the log relative to the folder.
    pub log: PathBuf,
}

/// Contents of a folder.
#[derive(Debug, Default)]
pub struct Found {
    /// Runs in the order of their paths.
    pub runs: Vec<FoundRun>,
    /// Logs that are not runs, records without a log, unreadable folders, and planned runs that are missing.
    pub problems: Vec<Problem>,
    /// Facts from the manifest.
    pub sweep: SweepFacts,
    /// Benchmarks found, each with the first file that names it.
    pub(super) measured: BTreeMap<BenchmarkKind, PathBuf>,
}

pub(super) fn scan(root: &Path) -> anyhow::Result<Found> {
    check_is_folder(root).map_err(usage)?;
    let mut found = Found::default();
    let paths = entries(root).with_context(|| format!("{} cannot be read", root.display()))?;
    let baselines = root.join(BASELINE);
    for path in &paths {
        if *path == baselines
            && let Ok(below) = entries(path)
        {
            below.iter().for_each(|path| found.add_path(root, path));
        } else {
            found.add_path(root, path);
        }
    }
    Ok(found)
}

/// Returns the error for a folder that cannot be read.
pub fn unreadable(root: &Path, error: io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::NotFound => anyhow!("folder not found: {}: pass the folder that a sweep wrote", root.display()),
        _ => anyhow!(error).context(format!("{} cannot be read: pass the folder that a sweep wrote", root.display())),
    }
}

fn check_is_folder(root: &Path) -> anyhow::Result<()> {
    let metadata = fs::metadata(root).map_err(|error| unreadable(root, error))?;
    if metadata.is_dir() {
        return Ok(());
    }
    let sweep = root.ancestors().skip(1).take(2).find(|folder| folder.join(MANIFEST).is_file());
    let folder =
        sweep.map_or_else(|| format!("with {}", pattern()), |folder| format!("of its sweep, {}", folder.display()));
    bail!("{} is a file: pass the folder {folder}", root.display())
}

impl Found {
    /// Adds a file, or the files in a folder.
    fn add_path(&mut self, root: &Path, path: &Path) {
        if !path.is_dir() {
            return self.add_file(root, path);
        }
        match entries(path) {
            Ok(files) => files.iter().for_each(|file| self.add_file(root, file)),
            Err(error) => self.problems.push(Problem::in_file(
                below(root, path),
                format!("the folder cannot be read: {error}: change its permissions"),
            )),
        }
    }

    /// Adds one file to the runs or the problems, or ignores it.
    fn add_file(&mut self, root: &Path, file: &Path) {
        let path = below(root, file);
        // Parsed relative to the root, so that a log directly in a root named 1n1g is not mistaken for a run.
        let name = RunName::parse(&path);
        match (file.extension().and_then(OsStr::to_str), name) {
            (Some("log"), Some(name)) => self.runs.push(FoundRun { name, log: path }),
            // Written by another benchmark, which may share a folder with a sweep.
            (Some("log"), None) if RECORDS.iter().any(|format| format.has_file(&path)) => {}
            (Some("log"), None) if in_case(&path) || is_named_like_a_run(&path) => {
                self.problems.push(Problem::in_file(path, format!("not a run name: expected {}", pattern())));
            }
            (Some("jsonl"), Some(_)) if !file.with_extension("log").exists() => {
                self.problems
                    .push(Problem::in_file(path, "record without a log: restore the log, or remove the record"));
            }
            _ => {}
        }
    }

    /// Keeps one log per run: run numbers `1` and `01` name the same run, and the first log by path wins.
    pub(super) fn remove_duplicate_logs(&mut self) {
        let mut first: HashMap<RunName, PathBuf> = HashMap::new();
        let problems = &mut self.problems;
        self.runs.retain(|run| match first.get(&run.name) {
            None => first.insert(run.name, run.log.clone()).is_none(),
            Some(other) => {
                let what = format!("names the same run as {}: assign it another run number", other.display());
                problems.push(Problem::in_file(&run.log, what));
                false
            }
        });
    }

    /// Returns true if `file` is the record of one of the runs in `root`, or of a run that a problem excludes.
    pub fn has_record(&self, root: &Path, file: &Path) -> bool {
        let problems = self.problems.iter().map(|problem| &problem.path);
        self.runs
            .iter()
            .map(|run| &run.log)
            .chain(problems)
            .any(|path| root.join(path).with_extension("jsonl") == *file)
    }

    /// Returns the benchmark of these runs; training if no record and no manifest names one, as with DLPerf's logs.
    /// Fails if the folder mixes benchmarks.
    pub fn benchmark(&self, root: &Path) -> anyhow::Result<BenchmarkKind> {
        if self.measured.len() > 1 {
            let each = self.measured.iter().map(|(kind, file)| format!("runs of {kind} ({})", file.display()));
            return Err(usage(anyhow!(
                "{} mixes benchmarks: {}: use one folder per benchmark",
                root.display(),
                each.collect::<Vec<_>>().join(", ")
            )));
        }
        Ok(self.measured.keys().next().copied().unwrap_or(BenchmarkKind::Train))
    }

    /// Notes the benchmarks of the records next to the logs.
    pub(super) fn find_benchmarks(&mut self, root: &Path) {
        for run in &self.runs {
            let record = run.log.with_extension("jsonl");
            if let Some(benchmark) = benchmark_of(&root.join(&record)) {
                self.measured.entry(benchmark).or_insert(record);
            }
        }
    }
}

/// Returns the sorted paths in a folder, with plain run numbers (`_1`) before those with leading zeros (`_01`).
pub(super) fn entries(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    Ok(paths)
}

pub(super) fn below(root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(root).unwrap_or(path).to_owned()
}

pub(super) fn is_case(folder: &Path) -> bool {
    folder.file_name().and_then(OsStr::to_str).is_some_and(|name| name.parse::<Case>().is_ok())
}

fn in_case(file: &Path) -> bool {
    file.parent().is_some_and(is_case)
}

fn is_named_like_a_run(file: &Path) -> bool {
    file.file_name().and_then(OsStr::to_str).is_some_and(|name| model_of(name).is_some())
}
