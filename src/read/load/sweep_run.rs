//! What the rules of a sweep need of each of its runs: when it ran, on what, and whether it did what was asked; and whether
//! its files are as the sweep left them. Not for figures.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ringmark_record::benchmark::SweepRecord;
use ringmark_record::dimension::units::Seconds;
use ringmark_record::file::run_name::{self, RunName};
use ringmark_record::manifest::{Manifest, RanOn, RunState};
use ringmark_record::options::option_table::{self, Unlike};

use crate::read::load::every_record;
use crate::read::load::problem::Problem;

/// The option that the sweep itself sets in a baseline.
const SET_IN_BASELINES: &str = "--backend";

/// One run by its record.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepRun {
    /// Which.
    pub name: RunName,
    /// When it started and ended, seconds since 1970 UTC.
    pub period: [Seconds; 2],
    /// Hosts, devices, software.
    pub ran_on: RanOn,
    /// Options with other values than the sweep was asked for.
    pub unlike: Vec<Unlike>,
    /// Attempts at it before, whose files are kept.
    pub attempts_before: u32,
}

impl SweepRun {
    /// The run of this name below `root`; `None` where its record says nothing. `asked` are the options of the sweep.
    pub fn read<R: SweepRecord>(root: &Path, name: RunName, asked: &BTreeMap<String, String>) -> Option<SweepRun> {
        let record: R = every_record::beside(root, &name.log(Path::new(""))).ok().flatten()?;
        let mut unlike = option_table::unlike(record.config(), asked);
        unlike.retain(|option| !(name.baseline && option.name == SET_IN_BASELINES));
        let is_kept = |attempt: &u32| run_name::of_attempt(&name.log(root), *attempt).exists();
        Some(SweepRun {
            name,
            period: record.period(),
            ran_on: RanOn::of(record.environment(), record.ranks()),
            unlike,
            attempts_before: (1..).take_while(is_kept).last().unwrap_or_default(),
        })
    }
}

/// Whether the files of finished runs are as they were left.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Integrity {
    /// Runs whose files have hashes in the manifest.
    pub with_hashes: usize,
    /// Finished runs that have none.
    pub without_hashes: usize,
    /// Files that were changed, or are gone.
    pub changes: Vec<Problem>,
}

impl Integrity {
    /// Of the sweep below `root`.
    pub fn read(root: &Path, manifest: &Manifest) -> Integrity {
        let mut integrity = Integrity::default();
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
