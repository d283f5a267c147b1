//! Where the answer of a command goes: a table for people to the standard output, and by `--json [FILE]` the same for
//! programs. Not for what is in either.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::input::InputRecord;
use ringmark_core::dimension::Case;
use ringmark_core::file::run_name::{INPUT_LOG, INPUT_RECORD, LOCK, MANIFEST, PROGRESS};
use ringmark_core::file::whole_file;
use ringmark_core::manifest;
use ringmark_core::options::usage::usage;
use ringmark_core::untrusted_text::printable_lines;
use serde::Serialize;
use serde_json::Value;

/// What `--json` says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Json {
    /// No JSON is asked for.
    #[default]
    No,
    /// In the place of the table.
    Instead,
    /// Into a file, beside the table.
    File(PathBuf),
}

impl From<Option<PathBuf>> for Json {
    /// As typed: `-` is the standard output.
    fn from(typed: Option<PathBuf>) -> Json {
        match typed {
            None => Json::No,
            Some(path) if path == Path::new("-") => Json::Instead,
            Some(path) => Json::File(path),
        }
    }
}

impl Json {
    /// Whether JSON takes the table's place.
    pub fn is_instead(&self) -> bool {
        *self == Json::Instead
    }

    /// Refuses, before work is done for it, a file whose folder does not exist, one of the `inputs`, and a file of a sweep.
    pub fn check(&self, inputs: &[&Path]) -> anyhow::Result<()> {
        let Json::File(path) = self else { return Ok(()) };
        let folder = path.parent().map_or(Path::new("."), if_empty);
        let check = ensure_folder(folder).with_context(|| format!("--json {} cannot be written", path.display()));
        check.map_err(usage)?;
        check_target("--json", path, inputs)
    }

    /// Removes an answer from before: where there will be none, it must not be taken for one.
    pub fn forget(&self) -> anyhow::Result<()> {
        match self {
            Json::File(path) if path.is_file() => {
                fs::remove_file(path).with_context(|| format!("--json {} cannot be written anew", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Writes `value` as JSON if requested; returns true if it replaced the table.
    pub fn write(&self, value: &impl Serialize) -> anyhow::Result<bool> {
        self.write_text(|| Ok(serde_json::to_string_pretty(value)? + "\n"))
    }

    /// As [`write`](Json::write), of JSON that is text already; it is not asked for unless it is needed.
    pub fn write_text(&self, text: impl FnOnce() -> anyhow::Result<String>) -> anyhow::Result<bool> {
        match self {
            Json::No => {}
            Json::Instead => print(&text()?)?,
            Json::File(path) => {
                let text = text()?;
                whole_file::write(path, |file| Ok(file.write_all(text.as_bytes())?))?;
            }
        }
        Ok(self.is_instead())
    }
}

/// Refuses to replace a file that the command reads, one of `inputs`, or that belongs to a sweep. `option` is the option that
/// names `path`.
pub fn check_target(option: &str, path: &Path, inputs: &[&Path]) -> anyhow::Result<()> {
    // The link itself is what a new file would replace.
    let place = path.parent().and_then(|folder| fs::canonicalize(if_empty(folder)).ok()).zip(path.file_name());
    let place = place.map(|(folder, name)| folder.join(name));
    let target = fs::canonicalize(path).ok().filter(|target| target.is_file());
    let Some((target, place)) = target.zip(place) else { return Ok(()) };
    let is_input = |input: &&Path| fs::canonicalize(input).is_ok_and(|input| input == target);
    let what = if inputs.iter().any(is_input) {
        "is an input of this command"
    } else if is_of_sweep(&target) || is_of_sweep(&place) {
        "belongs to a sweep"
    } else {
        return Ok(());
    };
    Err(usage(anyhow!("{option} {} {what} and is not overwritten: choose another file", path.display())))
}

/// Returns true for an existing file that a sweep or another measuring command wrote: whatever lies in the folder of a case, and
/// the files of the whole.
fn is_of_sweep(path: &Path) -> bool {
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let is_in_case = path.parent().and_then(name).is_some_and(|folder| folder.parse::<Case>().is_ok());
    let is_whole = || match name(path).as_deref() {
        Some(LOCK | PROGRESS) => true,
        Some(MANIFEST) => is_of_kind(path, manifest::KIND),
        Some(INPUT_RECORD) => is_of_kind(path, InputRecord::KIND),
        Some(INPUT_LOG) => path.with_file_name(INPUT_RECORD).exists(),
        _ => false,
    };
    is_in_case || is_whole()
}

/// Returns false only if the file is another JSON file of ringmark's.
fn is_of_kind(path: &Path, kind: &str) -> bool {
    let read: Option<Value> = fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let other = read.as_ref().and_then(|value| value["kind"].as_str());
    other.is_none_or(|other| other == kind)
}

fn if_empty(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

fn ensure_folder(folder: &Path) -> anyhow::Result<()> {
    ensure!(folder.is_dir(), "there is no folder {}: make it, or choose another", folder.display());
    Ok(())
}

/// Strips terminal escape sequences: names read from files may contain any.
pub fn strip_control_characters(text: &str) -> String {
    printable_lines(text).into_owned()
}

/// To the standard output, made [`strip_control_characters`]. A closed pipe (`| head`) is no failure.
pub fn print(text: &str) -> anyhow::Result<()> {
    print_raw(&strip_control_characters(text))
}

/// Prints a line beside the answer on the standard error, without control characters. A closed pipe is no failure.
pub fn print_note(text: &str) {
    let _ = writeln!(io::stderr(), "{}", printable_lines(text));
}

/// To the standard output, as it is.
pub fn print_raw(text: &str) -> anyhow::Result<()> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("cannot write to the standard output"),
    }
}
