//! Comparison of the runs in a folder with the manifest of their sweep.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use ringmark_core::dimension::{Case, DeviceChoice};
use ringmark_core::file::run_name::{MANIFEST, RunName};
use ringmark_core::manifest::{Manifest, RunOfSweep, RunState};
use ringmark_core::number_text::count;
use ringmark_core::shell::CommandWords;

use crate::read::load::folder::found::{Found, FoundRun, below};
use crate::read::load::folder::sweep_facts::{Shortage, SweepFacts};
use crate::read::load::problem::Problem;

/// Compares the runs with the sweep's manifest, if there is one. Runs that changed since the sweep wrote them, and runs
/// that the sweep did not write, do not count.
pub(super) fn apply(found: &mut Found, root: &Path) {
    let manifest = match Manifest::find(root) {
        Ok(None) => return,
        Ok(Some(manifest)) => manifest,
        Err(error) => {
            // Skips the path, which the problem contains already.
            let what: Vec<String> = error.chain().skip(1).map(ToString::to_string).collect();
            let remedy =
                "restore the file from a copy; without it runs cannot be checked, and the sweep cannot be resumed";
            return found.problems.push(Problem::in_file(MANIFEST, format!("{}: {remedy}", what.join(": "))));
        }
    };
    found.measured.entry(manifest.benchmark).or_insert(MANIFEST.into());
    let command = resume_command_here(manifest.command.iter().collect(), root);
    let planned = PlannedRuns::new(&manifest, found, root);
    let known: HashSet<RunName> = manifest.runs.iter().map(|run| run.name).collect();
    found.problems.extend(planned.changes.iter().cloned());
    found.problems.extend(found.runs.iter().filter(|run| !known.contains(&run.name)).map(unlisted_run));
    found.problems.extend(planned.missing(&command));
    found.runs.retain(|run| planned.counting.contains(&run.name));
    let device = manifest.conditions.options.get("--device").and_then(|device| device.parse().ok());
    found.sweep = SweepFacts {
        resume_command: Some(command),
        device: device.filter(|device| *device != DeviceChoice::Auto),
        shortages: planned.shortages,
        absent: planned.absent,
        is_without_single: manifest.runs.iter().all(|run| run.name.case != Case::SINGLE),
    };
}

/// Runs of a manifest by what became of them.
#[derive(Default)]
struct PlannedRuns {
    /// Runs whose log and record count, or explain a failure.
    counting: HashSet<RunName>,
    /// Batches that do not fit into memory.
    shortages: Vec<Shortage>,
    /// Runs whose files are missing or were changed.
    absent: Vec<RunName>,
    /// Number of runs without figures, except those without memory.
    missing: usize,
    /// Missing runs by reason, without failed ones that have a log.
    reasons: Vec<(String, Vec<RunName>)>,
    /// Files that changed after the run.
    changes: Vec<Problem>,
}

impl PlannedRuns {
    fn new(manifest: &Manifest, found: &Found, root: &Path) -> PlannedRuns {
        let with_log: HashSet<RunName> = found.runs.iter().map(|run| run.name).collect();
        let mut all = PlannedRuns::default();
        for run in &manifest.runs {
            let shortage = manifest.shortage(run.name).filter(|_| run.state != RunState::Finished);
            match shortage {
                Some((tried, memory)) => all.add_shortage(Shortage::new(run.name, tried, memory)),
                None => all.add(run, with_log.contains(&run.name), root),
            }
        }
        all
    }

    fn add_shortage(&mut self, shortage: Shortage) {
        if !self.shortages.contains(&shortage) {
            self.shortages.push(shortage);
        }
    }

    fn add(&mut self, run: &RunOfSweep, has_log: bool, root: &Path) {
        let change = run.change(root).filter(|_| has_log);
        let what = match &run.state {
            RunState::Finished if has_log && change.is_none() => {
                self.counting.insert(run.name);
                return;
            }
            RunState::Planned => "not yet run".to_owned(),
            RunState::Running { .. } => "running or interrupted".to_owned(),
            RunState::Failed { reason } => format!("the run failed: {reason}"),
            RunState::Finished => "finished, but its log is missing".to_owned(),
            RunState::OutOfMemory { memory } => memory.at_batch(run.name.batch),
        };
        self.missing += 1;
        if let Some((file, what)) = change {
            self.absent.push(run.name);
            self.changes.push(Problem::in_file(below(root, &file), what));
            return;
        }
        if has_log {
            self.counting.insert(run.name);
        } else {
            self.absent.push(run.name);
        }
        // The log explains a failure in more detail.
        if !(has_log && matches!(run.state, RunState::Failed { .. })) {
            match self.reasons.iter_mut().find(|(known, _)| *known == what) {
                Some((_, runs)) => runs.push(run.name),
                None => self.reasons.push((what, vec![run.name])),
            }
        }
    }

    /// Returns the problem of the runs without figures, if there are any.
    fn missing(&self, command: &CommandWords) -> Option<Problem> {
        let runs = format!("{} {}", count(self.missing, "run"), if self.missing == 1 { "is" } else { "are" });
        let reasons = self.reasons.iter().map(|(what, runs)| format!("{what}: {}", listed(runs)));
        let reasons: Vec<String> = reasons.collect();
        let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
        (self.missing > 0)
            .then(|| Problem::in_file(MANIFEST, format!("{runs} missing{reasons}: resume with: {command}")))
    }
}

/// Maximum number of missing runs that a message lists.
const MAX_LISTED: usize = 4;

/// Lists runs: `1n1g/rn50_b4_fp32_2.log, 1n2g/rn50_b4_fp32_1.log and 3 more`.
fn listed(runs: &[RunName]) -> String {
    let listed = if runs.len() == MAX_LISTED + 1 { runs.len() } else { MAX_LISTED };
    let names: Vec<String> = runs.iter().take(listed).map(RunName::to_string).collect();
    let more = runs.len() - names.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    names.join(", ") + &more
}

/// Returns the resume command for the sweep in `root`, even if the folder was moved or copied, also from another machine.
fn resume_command_here(command: CommandWords, root: &Path) -> CommandWords {
    let is_root = |out: &str| fs::canonicalize(out).ok() == fs::canonicalize(root).ok();
    let command = match command.value("--out") {
        Some(out) if !is_root(&out) => command.set("--out", root),
        _ => command,
    };
    let path = command.own().first().map(PathBuf::from);
    // The path of another machine or folder.
    match path.as_deref().filter(|path| !path.is_file()).and_then(Path::file_name) {
        Some(name) => command.with_program(name),
        None => command,
    }
}

/// Returns the problem for a run that the sweep in its folder did not write.
pub fn unlisted_run(run: &FoundRun) -> Problem {
    Problem::in_file(&run.log, "not written by the sweep in this folder: move it to another folder")
}
