//! Integrity of a sweep's folder: files of runs are compared with the hashes in the manifest, and files of
//! `ringmark extract` with newly computed figures.

use std::fs;
use std::path::{Path, PathBuf};

use ringmark_core::dimension::Strategy;
use ringmark_core::file::sha256;
use ringmark_core::manifest::{Manifest, RunState};
use serde_json::Value;

use crate::read::load::content::{HASHES, RESULT_ENDING};
use crate::read::load::folder::{self, FoundRun};
use crate::read::load::problem::Problem;

/// Comparison of the files of finished runs with their hashes in the manifest.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Integrity {
    /// Number of runs whose files have hashes in the manifest.
    pub with_hashes: usize,
    /// Number of finished runs without hashes.
    pub without_hashes: usize,
    /// Files that were changed or are missing.
    pub changes: Vec<Problem>,
    /// Runs that are not in the manifest.
    pub unlisted: Vec<Problem>,
}

impl Integrity {
    /// Checks the sweep below `root`, whose logs are `found`.
    pub fn read(root: &Path, manifest: &Manifest, found: &[FoundRun]) -> Integrity {
        let is_known = |run: &&FoundRun| manifest.runs.iter().any(|known| known.name == run.name);
        let unlisted = found.iter().filter(|run| !is_known(run)).map(folder::unlisted_run);
        let mut integrity = Integrity { unlisted: unlisted.collect(), ..Integrity::default() };
        for run in manifest.runs.iter().filter(|run| run.state == RunState::Finished) {
            let changes = match &run.sha256 {
                Some(hashes) => {
                    integrity.with_hashes += 1;
                    hashes.changes(root, run.name)
                }
                None => {
                    integrity.without_hashes += 1;
                    Vec::new()
                }
            };
            let below = |file: PathBuf| file.strip_prefix(root).map(Path::to_owned).unwrap_or(file);
            integrity.changes.extend(changes.into_iter().map(|(file, what)| Problem::in_file(below(file), what)));
        }
        integrity
    }
}

/// Files that `ringmark extract` wrote into a folder, compared with what it computes now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outputs {
    /// Number of existing files.
    pub compared: usize,
    /// Files with different figures, or changed since they were written.
    pub stale: Vec<Problem>,
    /// Notes about files that could not be compared.
    pub notes: Vec<String>,
    /// Advice for a stale file.
    fix: &'static str,
}

impl Outputs {
    /// Compares the files of extract in the folder `root`, whose names begin with `name`. The result file must have the
    /// figures of `result`, but its wording may be that of another version. Files with the other `endings` must have the
    /// hashes that it contains. `are_runs_intact` is false if files of runs were changed.
    pub fn read(root: &Path, name: &str, result: &str, endings: &[&str], are_runs_intact: bool) -> Outputs {
        let fix = if are_runs_intact { "extract again" } else { "restore the files of the runs" };
        let mut outputs = Outputs { fix, ..Outputs::default() };
        let mut hashes = None;
        let name = written_name(root, name);
        let result_file = format!("{name}{RESULT_ENDING}");
        if let Ok(stored) = fs::read_to_string(root.join(&result_file)) {
            let [old, new] = [&stored, result].map(|text| serde_json::from_str::<Value>(text).unwrap_or_default());
            let is_same = new.is_object() && is_within(&old, &new);
            outputs.add(result_file.clone(), is_same, "its figures do not match these runs");
            hashes = old.get(HASHES).cloned();
        }
        for file in endings.iter().map(|ending| format!("{name}{ending}")) {
            let Ok(stored) = fs::read_to_string(root.join(&file)) else { continue };
            let hash = hashes.as_ref().map(|hashes| hashes.get(&file));
            let is_same = hash.is_none_or(|hash| hash.is_some_and(|hash| *hash == sha256::hash_text(&stored)));
            let problem = match hash {
                Some(None) => format!("its hash is missing from {result_file}"),
                _ => "it was changed after `ringmark extract` wrote it".to_owned(),
            };
            outputs.add(file, is_same, &problem);
        }
        if outputs.compared > 1 && hashes.is_none() {
            let note = "extract's files were written by an earlier version without hashes: only the result's JSON was compared";
            outputs.notes.push(note.to_owned());
        }
        outputs
    }

    fn add(&mut self, file: String, is_same: bool, problem: &str) {
        self.compared += 1;
        self.stale.extend((!is_same).then(|| Problem::in_file(file, format!("{problem}: {}", self.fix))));
    }
}

/// Returns the name of the result files in `root`: that of the folder, or the one that it had before it was renamed.
fn written_name(root: &Path, name: &str) -> String {
    let names = fs::read_dir(root).into_iter().flatten().flatten().filter_map(|entry| {
        let file = entry.file_name().into_string().ok()?;
        file.strip_suffix(RESULT_ENDING).map(str::to_owned)
    });
    let names: Vec<String> = names.collect();
    match names.as_slice() {
        [only] => only.clone(),
        _ => name.to_owned(),
    }
}

/// Renamed JSON keys: old name, new name.
const RENAMED: [(&str, &str); 8] = [
    ("is_quotable", "is_reliable"),
    ("objections", "reliability_warnings"),
    ("images_per_second", "units_per_second"),
    ("images_per_second_per_rank", "units_per_second_per_rank"),
    ("joules_per_image", "joules_per_unit"),
    ("images_per_second_per_watt", "units_per_second_per_watt"),
    ("kv_store", STRATEGY),
    ("base_kv_store", "base_strategy"),
];

/// Key of a strategy, whose name in version 0.1 may be another one.
const STRATEGY: &str = "strategy";

/// Key of the format version, which changes when keys are renamed.
const SCHEMA: &str = "schema";

/// Key of the folder's name, which may change.
const NAME: &str = "name";

/// Keys of sentences. Their wording depends on the version, so only their presence is compared.
const SENTENCES: [&str; 3] = ["reliability_warnings", "warnings", "left_out"];

/// Returns true if `new` contains every figure of `old`.
fn is_within(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => old.iter().all(|(key, value)| {
            let renamed = RENAMED.iter().find(|(old, _)| old == key).map_or(key.as_str(), |(_, name)| name);
            let other = new.get(key).or_else(|| new.get(renamed));
            [SCHEMA, HASHES, NAME].contains(&key.as_str())
                || other.is_some_and(|other| match SENTENCES.contains(&renamed) {
                    true => is_empty(value) == is_empty(other),
                    false => is_within(value, other) || is_earlier_name(renamed, value, other),
                })
        }),
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_within(old, new))
        }
        _ => old == new,
    }
}

/// Returns true if `old` is the name in version 0.1 of the strategy `new`.
fn is_earlier_name(key: &str, old: &Value, new: &Value) -> bool {
    key.ends_with(STRATEGY) && old.as_str().is_some_and(|old| *new == Strategy::name_of_today(old))
}

fn is_empty(sentences: &Value) -> bool {
    sentences.as_array().map_or(sentences.is_null(), Vec::is_empty)
}
