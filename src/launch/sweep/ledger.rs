//! A sweep's manifest while the sweep runs: what of an earlier one still counts, and the state of every run, on the
//! disk before anything depends on it. Not for running anything, nor for the file's format.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{anyhow, ensure};
use ringmark_record::files::{self, BASELINE, MANIFEST, RunName};
use ringmark_record::log_line::{self, Line};
use ringmark_record::manifest::{Conditions, Difference, Found, Manifest, RunState};
use ringmark_record::run::{RunHeader, RunRecord};
use ringmark_record::units::Seconds;
use ringmark_record::usage::usage;
use ringmark_record::whole_file;

use crate::launch::sweep::folder;

/// Why a run does not count that was under way when ringmark was killed.
const CUT_OFF: &str = "ringmark was ended in the middle of it";

/// The manifest of one folder, written anew at every change.
#[derive(Debug)]
pub struct Ledger {
    out: PathBuf,
    manifest: Manifest,
}

impl Ledger {
    /// Of a sweep into a folder that holds none yet, with the command that goes on with it; writes nothing.
    pub fn begin(out: &Path, command: Vec<String>, conditions: Conditions) -> anyhow::Result<Ledger> {
        refuse_used_folder(out).map_err(usage)?;
        Ok(Ledger { out: out.to_owned(), manifest: Manifest::new(command, conditions) })
    }

    /// Of the sweep that the folder holds, where it was begun under these conditions; writes nothing. With it comes a
    /// line for every run that was begun and does not count: it is missing again. A run has `iterations`.
    pub fn resume(
        out: &Path,
        command: Vec<String>,
        conditions: Conditions,
        iterations: u32,
    ) -> anyhow::Result<(Ledger, Vec<String>)> {
        let mut manifest = find(out)?;
        let differences = manifest.conditions.differences(&conditions);
        if !differences.is_empty() {
            return Err(usage(anyhow!(
                "--resume: the sweep in {} was begun with other values, new runs could not be compared with its own:\n{}\n\
                 ask for the same again, or choose another --out",
                out.display(),
                join(&differences, "\n")
            )));
        }
        if conditions.hosts.len() > manifest.conditions.hosts.len() {
            manifest.conditions.hosts = conditions.hosts;
        }
        manifest.command = command;
        // The finished runs' records are on the disk: they say it themselves.
        manifest.found = Found::default();
        let mut ledger = Ledger { out: out.to_owned(), manifest };
        let notes = ledger.check(iterations);
        Ok((ledger, notes))
    }

    /// Compares what the manifest says with what lies in the folder.
    fn check(&mut self, iterations: u32) -> Vec<String> {
        let mut notes = Vec::new();
        let (out, known) = (&self.out, &mut self.manifest.found);
        for run in &mut self.manifest.runs {
            let mut sound = || {
                let record = sound_record(out, run.name, iterations)?;
                admit(known, &record.header)
            };
            let fault = match &run.state {
                RunState::Planned => continue,
                RunState::Failed { reason } => Some(reason.clone()),
                RunState::Finished => sound().err().map(|fault| format!("it was finished, but {fault}")),
                // It may have ended, and only that not have been written down; then its log has its name.
                RunState::Running { .. } => {
                    let has_ended = run.name.log(out).exists();
                    sound().err().map(|fault| if has_ended { fault } else { CUT_OFF.to_owned() })
                }
            };
            if let Some(fault) = &fault {
                notes.push(format!("{} does not count: {fault}", run.name));
            }
            run.state = fault.map_or(RunState::Finished, |reason| RunState::Failed { reason });
        }
        notes
    }

    /// Adds these runs where they are not there, and writes the manifest.
    pub fn write(&mut self, runs: impl IntoIterator<Item = RunName>) -> anyhow::Result<()> {
        for run in runs {
            self.manifest.run(run);
        }
        self.manifest.write(&self.out).map_err(|error| {
            let cure = error.chain().find_map(|cause| folder::cure(cause.downcast_ref()?));
            match cure {
                Some(cure) => anyhow!("{error:#}: {cure}"),
                None => error,
            }
        })
    }

    /// The command that goes on with this sweep.
    pub fn command(&self) -> &[String] {
        &self.manifest.command
    }

    /// Whether this run need not run again.
    pub fn is_finished(&self, run: RunName) -> bool {
        self.manifest.is_finished(run)
    }

    /// Puts aside what an earlier attempt at this run left, and writes down that it runs.
    pub fn start(&mut self, run: RunName) -> anyhow::Result<()> {
        let log = run.log(&self.out);
        folder::put_aside(&[files::under_way(&log), log, run.record(&self.out)])?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.set(run, RunState::Running { since: Seconds(since.as_secs_f64()) })
    }

    /// Whether a sound run of this record ran on what the finished ones ran on; if so, it is one of them for the next.
    pub fn admit(&mut self, header: &RunHeader) -> Result<(), String> {
        admit(&mut self.manifest.found, header)
    }

    /// Writes down how a run ended.
    pub fn end(&mut self, run: RunName, failure: Option<&str>) -> anyhow::Result<()> {
        let state = failure.map_or(RunState::Finished, |reason| RunState::Failed { reason: reason.to_owned() });
        self.set(run, state)
    }

    fn set(&mut self, run: RunName, state: RunState) -> anyhow::Result<()> {
        self.manifest.run(run).state = state;
        self.write([])
    }
}

/// The manifest of a folder that is to hold one.
pub fn find(out: &Path) -> anyhow::Result<Manifest> {
    Manifest::find(out)?.ok_or_else(|| {
        let out = out.display();
        usage(anyhow!(
            "--out {out} holds no sweep to go on with (no {MANIFEST}): leave out --resume, or choose another --out"
        ))
    })
}

fn join(differences: &[Difference], separator: &str) -> String {
    differences.iter().map(Difference::to_string).collect::<Vec<_>>().join(separator)
}

fn admit(known: &mut Found, header: &RunHeader) -> Result<(), String> {
    let found = Found::of(header);
    let differences = known.differences(&found);
    if !differences.is_empty() {
        return Err(format!("it ran on something else than the finished runs: {}", join(&differences, "; ")));
    }
    known.add(found);
    Ok(())
}

/// The record of a run whose log and record are both there and whole, or what is wrong with them.
fn sound_record(out: &Path, run: RunName, iterations: u32) -> Result<RunRecord, String> {
    let log = run.log(out);
    check_log(&log, iterations).map_err(|error| format!("its log {} {error:#}", log.display()))?;
    let path = run.record(out);
    let check_record = || -> anyhow::Result<RunRecord> {
        let record = RunRecord::read(BufReader::new(whole_file::open(&path)?))?;
        let is_it = (record.header.case, record.header.run) == (run.case, run.run);
        ensure!(is_it && !(run.baseline && record.header.exchanges()), "it is that of another run");
        Ok(record)
    };
    let record = check_record().map_err(|error| format!("its record {} cannot be used: {error:#}", path.display()))?;
    match record.failure() {
        None => Ok(record),
        Some(failure) => Err(format!("its record says that it failed: {failure}")),
    }
}

/// Errors go on from "its log".
fn check_log(log: &Path, iterations: u32) -> anyhow::Result<()> {
    let file = whole_file::open(log).map_err(|error| anyhow!("cannot be read: {error}"))?;
    let mut count = 0;
    for line in BufReader::new(file).split(b'\n') {
        let line = line.map_err(|error| anyhow!("cannot be read: {error}"))?;
        match log_line::parse(&line) {
            Line::Iteration { .. } => count += 1,
            Line::Failed(reason) => return Err(anyhow!("says that it failed: {reason}")),
            Line::Malformed | Line::Other => {}
        }
    }
    ensure!(count == iterations, "has {count} iterations of {iterations}");
    Ok(())
}

/// Two sweeps in one folder could not be told apart afterwards.
fn refuse_used_folder(out: &Path) -> anyhow::Result<()> {
    let advice = "choose another folder, or move it away";
    let manifest = out.join(MANIFEST);
    ensure!(
        !manifest.exists(),
        "--out {} already holds a sweep ({}): go on with it by --resume, {advice}",
        out.display(),
        manifest.display()
    );
    let folders = [out.to_owned(), out.join(BASELINE)].into_iter().flat_map(fs::read_dir);
    for folder in folders.flatten().flatten() {
        for file in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            ensure!(
                RunName::parse(&file.path()).is_none(),
                "--out {} already holds runs ({}): {advice}",
                out.display(),
                file.path().display()
            );
        }
    }
    Ok(())
}
