//! Manifest of a sweep in progress: checks which earlier runs still count, and writes every run's state to disk before
//! anything depends on it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use ringmark_core::accept::JOURNAL;
use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::benchmark::strategy::StrategyConfig;
use ringmark_core::dimension::{BatchShape, Strategy};
use ringmark_core::file::run_name::{self, BASELINE, MANIFEST, RunName};
use ringmark_core::goodput::GOODPUT;
use ringmark_core::host::{MemoryShortage, unix_time};
use ringmark_core::manifest::{
    Conditions, FileHashes, Manifest, Mismatch, MismatchKind, ObservedEnvironment, RunState, STRATEGY,
};
use ringmark_core::number_text::count;
use ringmark_core::options::option_table::{OptionSpec, Options};
use ringmark_core::options::usage::usage;
use ringmark_core::shell::CommandWords;

use crate::launch::local::disk_error;
use crate::launch::sweep::conditions::SERVER_HOSTS;
use crate::launch::sweep::folder;
use crate::launch::sweep::plan::{AXIS_OPTIONS, joined};

/// Failure of a run that was in progress when ringmark was killed.
const KILLED: &str = "ringmark was killed during the run";

/// A sweep as the current command requests it.
#[derive(Debug)]
pub struct RequestedSweep<'a> {
    /// Benchmark to run.
    pub benchmark: BenchmarkKind,
    /// Folder of its results.
    pub out: &'a Path,
    /// Command that continues it.
    pub command: CommandWords,
    /// Conditions that its figures depend on.
    pub conditions: Conditions,
    /// True if a spare host may take the place of another, so that host names may differ.
    pub has_spare_hosts: bool,
}

/// Manifest of one folder, rewritten at every change.
#[derive(Debug)]
pub struct Ledger {
    out: PathBuf,
    manifest: Manifest,
    /// Runs of an earlier attempt with other settings, whose files are moved aside by the first write.
    superseded: Vec<RunName>,
    has_spare_hosts: bool,
}

impl Ledger {
    /// Starts a sweep in a folder that has no manifest yet; writes nothing.
    pub fn begin(sweep: RequestedSweep) -> anyhow::Result<Ledger> {
        let RequestedSweep { benchmark, out, command, conditions, has_spare_hosts } = sweep;
        reject_used_folder(out, true)?;
        let manifest = Manifest::new(benchmark, command.texts(), conditions);
        Ok(Ledger { out: out.to_owned(), manifest, superseded: Vec::new(), has_spare_hosts })
    }

    /// Resumes the sweep in `manifest` if its conditions match or none of its runs is finished; writes nothing. Also returns a line for every run that
    /// was started and does not count, and is run again. `check` returns the environment of a finished run, or what is
    /// wrong with its files. Finished runs in `repeat` are run again too.
    pub fn resume(
        sweep: RequestedSweep,
        mut manifest: Manifest,
        repeat: &[RunName],
        check: impl Fn(RunName) -> Result<ObservedEnvironment, String>,
    ) -> anyhow::Result<(Ledger, Vec<String>)> {
        let RequestedSweep { benchmark, out, command, conditions, has_spare_hosts } = sweep;
        if manifest.benchmark != benchmark {
            return Err(usage(anyhow!(
                "--resume: {} contains a sweep of {}, not of {benchmark}: choose another --out",
                out.display(),
                manifest.benchmark
            )));
        }
        add_servers(&mut manifest.conditions.options, &conditions.options);
        add_axis_values(&mut manifest.conditions.options, &conditions.options);
        let mismatches = manifest.conditions.mismatches(&conditions);
        let (mut superseded, mut notes) = (Vec::new(), Vec::new());
        let is_any_finished = manifest.runs.iter().any(|run| run.state == RunState::Finished);
        if !mismatches.is_empty() && !is_any_finished {
            // Nothing is comparable yet: the sweep starts again with these settings.
            let changes: Vec<String> = mismatches.iter().map(Mismatch::to_string).collect();
            notes.push(format!("note: settings changed ({}); no run was complete", changes.join("; ")));
            superseded = std::mem::take(&mut manifest.runs).into_iter().map(|run| run.name).collect();
            manifest.conditions = conditions.clone();
        } else if !mismatches.is_empty() {
            let earlier: CommandWords = manifest.command.into_iter().collect();
            let words = [earlier.texts(), command.texts()].concat();
            let is_set = |mismatch: &&Mismatch| {
                mismatch.kind != MismatchKind::Option || words.iter().any(|word| word.starts_with(&mismatch.what))
            };
            let (set, mut unset): (Vec<&Mismatch>, Vec<&Mismatch>) = mismatches.iter().partition(is_set);
            let mut shown: Vec<String> = set.into_iter().map(Mismatch::to_string).collect();
            if shown.is_empty() {
                shown = std::mem::take(&mut unset).into_iter().map(Mismatch::to_string).collect();
            }
            let names: Vec<&str> = unset.iter().map(|mismatch| mismatch.what.as_str()).collect();
            shown.extend((!names.is_empty()).then(|| {
                format!("and {} that neither command sets: {}", count(names.len(), "option"), names.join(", "))
            }));
            let same = earlier.without("--out").with("--out", out).with_program("ringmark");
            return Err(usage(anyhow!(
                "--resume: the sweep in {} has other settings, so new runs would not be comparable:\n{}\n\
                 use the same settings ({same}), or choose another --out",
                out.display(),
                joined(&shown, "\n")
            )));
        }
        if conditions.hosts.len() > manifest.conditions.hosts.len() {
            manifest.conditions.hosts = conditions.hosts;
        }
        manifest.command = command.texts();
        // Taken from the records of the finished runs instead.
        manifest.ran_on = ObservedEnvironment::default();
        let mut ledger = Ledger { out: out.to_owned(), manifest, superseded, has_spare_hosts };
        let check = |run: RunName| match repeat.contains(&run) {
            true => Err("repeat requested".to_owned()),
            false => check(run),
        };
        notes.extend(ledger.check(repeat, check));
        Ok((ledger, notes))
    }

    /// Compares the manifest with the files in the folder.
    fn check(
        &mut self,
        repeat: &[RunName],
        check: impl Fn(RunName) -> Result<ObservedEnvironment, String>,
    ) -> Vec<String> {
        let mut notes = Vec::new();
        let (out, known, has_spare_hosts) = (&self.out, &mut self.manifest.ran_on, self.has_spare_hosts);
        for run in &mut self.manifest.runs {
            let mut check = || admit(known, check(run.name)?, has_spare_hosts);
            let changed = || run.change(out).map(|(file, change)| format!("{}: {change}", file.display()));
            let fault = match &run.state {
                RunState::Planned => continue,
                RunState::OutOfMemory { .. } if !repeat.contains(&run.name) => continue,
                RunState::OutOfMemory { memory } => Some(memory.at_batch(run.name.batch)),
                RunState::Failed { reason } => Some(reason.clone()),
                RunState::Finished => {
                    let fault = check().err().or_else(changed);
                    fault.map(|fault| format!("finished earlier, but {fault}"))
                }
                // The run may have ended without an update of the manifest; its log then has its final name.
                RunState::Running { .. } => {
                    let has_ended = run.name.log(out).exists();
                    check().err().map(|fault| if has_ended { fault } else { KILLED.to_owned() })
                }
            };
            if let Some(fault) = &fault {
                notes.push(format!("{}: the run is repeated: {fault}", run.name));
            }
            // For a run that had ended when ringmark was killed, the hashes are those of the files found now.
            run.sha256 = match (&fault, run.sha256.take()) {
                (Some(_), _) => None,
                (None, None) if run.state != RunState::Finished => FileHashes::from_files(out, run.name).ok(),
                (None, known) => known,
            };
            run.state = fault.map_or(RunState::Finished, |reason| RunState::Failed { reason });
        }
        notes
    }

    /// Adds the runs that are missing, and writes the manifest.
    pub fn write(&mut self, runs: impl IntoIterator<Item = RunName>) -> anyhow::Result<()> {
        for run in std::mem::take(&mut self.superseded) {
            self.move_aside(run)?;
        }
        for run in runs {
            self.manifest.run(run);
        }
        self.manifest.write(&self.out).map_err(|error| {
            let fix = error.chain().find_map(|cause| disk_error::fix(cause.downcast_ref()?));
            match fix {
                Some(fix) => anyhow!("{error:#}: {fix}"),
                None => error,
            }
        })
    }

    /// Returns the conditions of this sweep.
    pub fn conditions(&self) -> &Conditions {
        &self.manifest.conditions
    }

    /// Returns the command that continues this sweep.
    pub fn command(&self) -> CommandWords {
        self.manifest.command.iter().collect()
    }

    /// Returns true if this run need not run again.
    pub fn is_finished(&self, run: RunName) -> bool {
        self.manifest.is_finished(run)
    }

    /// Moves the files of an earlier attempt aside, and records that the run is in progress.
    pub fn start(&mut self, run: RunName) -> anyhow::Result<()> {
        self.move_aside(run)?;
        self.set(run, RunState::Running { since: unix_time() }, None)
    }

    /// Renames the files of an earlier attempt.
    fn move_aside(&self, run: RunName) -> anyhow::Result<()> {
        let log = run.log(&self.out);
        folder::rename_earlier(&[run_name::unfinished_log_path(&log), log, run.record(&self.out)])
    }

    /// Accepts a run whose environment matches that of the finished ones, and adds it to them. The error describes the
    /// difference.
    pub fn admit(&mut self, found: ObservedEnvironment) -> Result<(), String> {
        admit(&mut self.manifest.ran_on, found, self.has_spare_hosts)
    }

    /// Returns the shortage that makes a run pointless: see [`Manifest::shortage`].
    pub fn shortage(&self, run: RunName) -> Option<(BatchShape, MemoryShortage)> {
        self.manifest.shortage(run)
    }

    /// Records how a run ended.
    pub fn end(&mut self, run: RunName, state: RunState) -> anyhow::Result<()> {
        let hashes = (state == RunState::Finished).then(|| FileHashes::from_files(&self.out, run)).transpose()?;
        self.set(run, state, hashes)
    }

    fn set(&mut self, run: RunName, state: RunState, sha256: Option<FileHashes>) -> anyhow::Result<()> {
        let run = self.manifest.run(run);
        (run.state, run.sha256) = (state, sha256);
        self.write([])
    }
}

/// Reads the manifest of a folder that must have one.
pub fn find(out: &Path) -> anyhow::Result<Manifest> {
    let found = Manifest::find(out).map_err(|error| {
        anyhow!(
            "{error:#}: restore it from a copy, or choose another --out (`ringmark extract` reads the runs without it)"
        )
    })?;
    found.ok_or_else(|| {
        let advice = match find_run(out) {
            None => "omit --resume, or choose another --out",
            Some(_) => "`ringmark extract` reads the runs in it: choose another --out for new ones",
        };
        usage(anyhow!("--out {} contains no sweep to resume (no {MANIFEST}): {advice}", out.display()))
    })
}

/// Accepts more values of an axis, which mean more work but not another condition; an axis that lacks an earlier value
/// stays as it was.
fn add_axis_values(earlier: &mut BTreeMap<String, String>, now: &BTreeMap<String, String>) {
    for (name, earlier) in earlier.iter_mut().filter(|(name, _)| AXIS_OPTIONS.contains(&name.as_str())) {
        if let Some(now) = now.get(name)
            && earlier.split(',').all(|value| now.split(',').any(|other| other == value))
        {
            earlier.clone_from(now);
        }
    }
}

/// Accepts settings of servers as new work if no run so far has servers.
fn add_servers(earlier: &mut BTreeMap<String, String>, now: &BTreeMap<String, String>) {
    let strategies = earlier.get(STRATEGY).map_or("", String::as_str).split(',');
    if strategies.filter_map(|name| name.parse().ok()).any(Strategy::has_servers) {
        return;
    }
    let options = StrategyConfig::options().into_iter().filter(OptionSpec::is_for_servers);
    let names = options.map(|option| format!("--{}", option.name()));
    for name in names.chain([SERVER_HOSTS.to_owned()]) {
        earlier.extend(now.get_key_value(&name).map(|(name, value)| (name.clone(), value.clone())));
    }
}

fn admit(known: &mut ObservedEnvironment, found: ObservedEnvironment, has_spare_hosts: bool) -> Result<(), String> {
    let mut mismatches = known.mismatches(&found);
    mismatches.retain(|mismatch| !(has_spare_hosts && mismatch.kind == MismatchKind::HostName));
    if !mismatches.is_empty() {
        return Err(format!("environment differs from that of the finished runs: {}", joined(&mismatches, "; ")));
    }
    known.add(found);
    Ok(())
}

/// Rejects a folder that already holds results. `resumes_sweeps` is true for a command that continues a sweep with
/// `--resume`.
pub fn reject_used_folder(out: &Path, resumes_sweeps: bool) -> anyhow::Result<()> {
    let results = [(MANIFEST, "a sweep"), (JOURNAL, "an acceptance"), (GOODPUT, "a result of goodput")];
    let result = results.into_iter().map(|(file, what)| (out.join(file), what)).find(|(file, _)| file.exists());
    let Some((file, what)) = result.or_else(|| Some((find_run(out)?, "runs"))) else { return Ok(()) };
    let is_resumable = resumes_sweeps && file.ends_with(MANIFEST);
    Err(folder::used_error(out, format!("{what} ({})", file.display()), is_resumable))
}

/// Returns the log or record of a run in a folder.
fn find_run(out: &Path) -> Option<PathBuf> {
    let cases = [out.to_owned(), out.join(BASELINE)].into_iter().flat_map(fs::read_dir).flatten().flatten();
    let mut files = cases.flat_map(|case| fs::read_dir(case.path())).flatten().flatten().map(|file| file.path());
    files.find(|file| RunName::parse(file).is_some())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn options(batch_size: &str, wire: &str) -> BTreeMap<String, String> {
        [("--batch-size", batch_size), ("--wire", wire)].map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    #[test]
    fn refused_resume_names_the_folder_and_the_options_that_were_set() {
        let conditions = |batch_size, wire| Conditions { options: options(batch_size, wire), ..Conditions::default() };
        let then =
            "target/release/ringmark sweep --wire=bf16 --out old --resume".split(' ').map(str::to_owned).collect();
        let mut manifest = Manifest::new(BenchmarkKind::Train, then, conditions("8", "bf16"));
        manifest.run("1n1g/rn50_b8_fp32_1.log".parse().expect("a name")).state = RunState::Finished;
        let refused = |command: &str| {
            let sweep = RequestedSweep {
                benchmark: BenchmarkKind::Train,
                out: Path::new("new"),
                command: command.split(' ').collect(),
                conditions: conditions("128", "fp32"),
                has_spare_hosts: false,
            };
            let check = |_| Err(String::new());
            Ledger::resume(sweep, manifest.clone(), &[], check).expect_err("other settings").to_string()
        };
        expect![[r#"
            --resume: the sweep in new has other settings, so new runs would not be comparable:
            --wire: bf16 then, fp32 now
            and 1 option that neither command sets: --batch-size
            use the same settings (ringmark sweep --wire=bf16 --resume --out new), or choose another --out"#]]
        .assert_eq(&refused("ringmark sweep --out new --resume"));
        expect![[r"
            --resume: the sweep in new has other settings, so new runs would not be comparable:
            --batch-size: 8 then, 128 now
            --wire: bf16 then, fp32 now
            use the same settings (ringmark sweep --wire=bf16 --resume --out new), or choose another --out"]]
        .assert_eq(&refused("ringmark sweep --batch-size 128 --out new --resume"));
    }

    #[test]
    fn only_removed_axis_values_are_a_mismatch() {
        let after = |then: &str, now: &str| {
            let mut then = options(then, "fp32");
            add_axis_values(&mut then, &options(now, "fp32,bf16"));
            assert_eq!(then["--wire"], "fp32", "not an axis");
            then["--batch-size"].clone()
        };
        assert_eq!(after("128", "64,128"), "64,128");
        assert_eq!(after("128", "64"), "128");
        assert_eq!(after("1,2,4", "1,2"), "1,2,4");
        assert_eq!(after("1", "16"), "1");
    }
}
