//! Whether what lies in the folder of a sweep is what was written there: files of runs by their hashes in the manifest, the
//! files of extract by making them again. Not for what is in them.

use std::fs;
use std::path::{Path, PathBuf};

use ringmark_core::manifest::{Manifest, RunState};
use serde_json::Value;

use crate::read::load::folder::{self, FoundRun};
use crate::read::load::problem::Problem;

/// Whether the files of finished runs are as they were left.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Integrity {
    /// Runs whose files have hashes in the manifest.
    pub with_hashes: usize,
    /// Finished runs that have none.
    pub without_hashes: usize,
    /// Files that were changed, or are gone.
    pub changes: Vec<Problem>,
    /// Runs that the manifest does not know.
    pub strangers: Vec<Problem>,
}

impl Integrity {
    /// Of the sweep below `root`, where `found` are the logs that lie there.
    pub fn read(root: &Path, manifest: &Manifest, found: &[FoundRun]) -> Integrity {
        let is_known = |run: &&FoundRun| manifest.runs.iter().any(|known| known.name == run.name);
        let strangers = found.iter().filter(|run| !is_known(run)).map(folder::stranger);
        let mut integrity = Integrity { strangers: strangers.collect(), ..Integrity::default() };
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

/// What `ringmark extract` wrote into a folder, against what it writes now.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outputs {
    /// Files that are there.
    pub compared: usize,
    /// Those that say something else.
    pub stale: Vec<Problem>,
    /// That an earlier ringmark wrote them.
    pub notes: Vec<String>,
}

impl Outputs {
    /// Of `files`, names and contents, in the folder `root`. JSON of an earlier ringmark may lack keys; where it does, text
    /// for people may look otherwise and is not compared.
    pub fn read(root: &Path, files: &[(PathBuf, String)]) -> Outputs {
        let mut outputs = Outputs::default();
        let mut is_of_earlier = false;
        for (file, text) in files {
            let Ok(stored) = fs::read_to_string(root.join(file)) else { continue };
            outputs.compared += 1;
            if stored == *text {
                continue;
            }
            let [old, new] = [&stored, text].map(|text| serde_json::from_str::<Value>(text).ok());
            is_of_earlier |= old.zip(new).is_some_and(|(old, new)| is_within(&old, &new));
            if !is_of_earlier {
                let what = "it is not what `ringmark extract` writes of these runs: extract again";
                outputs.stale.push(Problem::in_file(file, what));
            }
        }
        if is_of_earlier {
            let note = "the files of extract are of an earlier ringmark: their JSON says the same, the others were not compared";
            outputs.notes.push(note.to_owned());
        }
        outputs
    }
}

/// Keys of JSON that were called otherwise: old name, new name.
const RENAMED: [(&str, &str); 2] = [("is_quotable", "is_reliable"), ("objections", "reliability_warnings")];

/// Version of the format, which is another where keys were renamed.
const SCHEMA: &str = "schema";

/// Whether all that `old` says is in `new`.
fn is_within(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let renamed = |key: &str| RENAMED.iter().find(|(old, _)| *old == key).and_then(|(_, name)| new.get(*name));
            let is_in_new = |(key, value): (&String, &Value)| {
                key == SCHEMA || new.get(key).or_else(|| renamed(key)).is_some_and(|other| is_within(value, other))
            };
            old.iter().all(is_in_new)
        }
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_within(old, new))
        }
        _ => old == new,
    }
}
