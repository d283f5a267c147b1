//! Output of a command: a table on the standard output, and the same as JSON with `--json [FILE]`. [`table`] aligns
//! columns, and [`message`] prints lines.

pub mod message;
pub mod table;

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use ringmark_core::accept::{JOURNAL, VERDICT};
use ringmark_core::benchmark::RECORDS;
use ringmark_core::dimension::Case;
use ringmark_core::file::atomic_file;
use ringmark_core::file::run_name::{LOCK, MANIFEST, PROGRESS};
use ringmark_core::file::schema::kind_of;
use ringmark_core::goodput::GOODPUT;
use ringmark_core::manifest;
use ringmark_core::options::usage::usage;
use ringmark_core::untrusted_text::printable_lines;
use serde::Serialize;

use crate::output::message::print_error;

/// Destination of the JSON output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Json {
    /// No JSON.
    #[default]
    No,
    /// Standard output, instead of the table.
    Instead,
    /// A file, in addition to the table.
    File(PathBuf),
}

impl From<Option<PathBuf>> for Json {
    /// Converts the argument of `--json` as that of a [`Destination`].
    fn from(typed: Option<PathBuf>) -> Json {
        match typed.map(Destination::from) {
            None => Json::No,
            Some(Destination::Printed) => Json::Instead,
            Some(Destination::File(path)) => Json::File(path),
        }
    }
}

impl Json {
    /// Returns true if JSON replaces the table.
    pub fn is_instead(&self) -> bool {
        *self == Json::Instead
    }

    /// Fails if the folder of the file does not exist, or if the file is one of the `inputs` or belongs to a sweep.
    /// Called before any work is done.
    pub fn check(&self, inputs: &[&Path]) -> anyhow::Result<()> {
        let Json::File(path) = self else { return Ok(()) };
        check_target("--json", path, inputs)
    }

    /// Removes an earlier output file, so that it is not mistaken for the output of a command that fails.
    pub fn forget(&self) -> anyhow::Result<()> {
        match self {
            Json::File(path) if path.is_file() => {
                fs::remove_file(path).with_context(|| format!("--json {} cannot be written again", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Writes `value` as JSON if requested; returns true if it replaced the table.
    pub fn write(&self, value: &impl Serialize) -> anyhow::Result<bool> {
        self.write_text(|| Ok(serde_json::to_string_pretty(value)? + "\n"))
    }

    /// Writes JSON text as [`write`](Json::write) does; calls `text` only if JSON is requested.
    pub fn write_text(&self, text: impl FnOnce() -> anyhow::Result<String>) -> anyhow::Result<bool> {
        match self {
            Json::No => {}
            Json::Instead => print(&text()?)?,
            Json::File(path) => {
                let text = text()?;
                atomic_file::write(path, |file| Ok(file.write_all(text.as_bytes())?))?;
            }
        }
        Ok(self.is_instead())
    }
}

/// Destination of text that is not the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Standard output.
    Printed,
    /// File that is written.
    File(PathBuf),
}

impl From<PathBuf> for Destination {
    /// Converts the argument of an option; `-` is the standard output.
    fn from(path: PathBuf) -> Destination {
        if path == Path::new("-") { Destination::Printed } else { Destination::File(path) }
    }
}

impl Destination {
    /// Fails if JSON also needs the standard output, or if the file is part of a result. `option` is the option that
    /// names the destination. Called before any work is done.
    pub fn check(&self, option: &str, json: &Json) -> anyhow::Result<()> {
        match self {
            Destination::Printed if json.is_instead() => {
                Err(usage(anyhow!("--json and {option} both need the standard output: give one of them a file")))
            }
            Destination::Printed => Ok(()),
            Destination::File(path) => check_target(option, path, &[]),
        }
    }

    /// Prints or writes the text.
    pub fn write(&self, text: &str) -> anyhow::Result<()> {
        match self {
            Destination::Printed => print(text),
            Destination::File(path) => write_file(path, text),
        }
    }
}

/// Fails if a file at `path` is one of the `inputs` or belongs to a sweep, and so must not be replaced. `option` is the
/// option that names `path`.
pub fn check_target(option: &str, path: &Path, inputs: &[&Path]) -> anyhow::Result<()> {
    let folder = path.parent().map_or(Path::new("."), if_empty);
    ensure_folder(folder).with_context(|| format!("{option} {} cannot be written", path.display())).map_err(usage)?;
    // A new file would replace a link itself, not its target.
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
    Err(usage(anyhow!("{option} {} {what} and is not overwritten: use another file", path.display())))
}

/// Returns true for an existing file of a sweep or another measurement: any file in the folder of a case, and the
/// files at the top level.
fn is_of_sweep(path: &Path) -> bool {
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let is_in_case = path.parent().and_then(name).is_some_and(|folder| folder.parse::<Case>().is_ok());
    let is_whole = || match name(path).as_deref() {
        Some(LOCK | PROGRESS | JOURNAL | VERDICT | GOODPUT) => true,
        Some(MANIFEST) => is_of_kind(path, manifest::KIND),
        Some(name) if name.ends_with(".json") || name.ends_with(".log") => {
            let (name, record) = (Path::new(name).with_extension("json"), path.with_extension("json"));
            record.exists() && RECORDS.iter().any(|it| it.has_file(&name) && is_of_kind(&record, it.kind))
        }
        _ => false,
    };
    is_in_case || is_whole()
}

/// Returns false only if the file has another kind; a file without a kind could be a damaged one of this kind.
fn is_of_kind(path: &Path, kind: &str) -> bool {
    kind_of(path).is_none_or(|other| other == kind)
}

fn if_empty(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

fn ensure_folder(folder: &Path) -> anyhow::Result<()> {
    ensure!(folder.is_dir(), "folder not found: {}: create it, or use another", folder.display());
    Ok(())
}

/// Prints to the standard output, with a replacement for each control character. A closed pipe (`| head`) is not an error.
pub fn print(text: &str) -> anyhow::Result<()> {
    print_raw(&printable_lines(text))
}

/// Prints excluded files and runs to standard error, one per line. If there are any, returns an error for the end of
/// the command; `what` is the start of its message, such as `the figures are`.
pub fn check_complete(what: &str, left_out: impl IntoIterator<Item = String>) -> anyhow::Result<()> {
    let count = left_out.into_iter().inspect(|line| print_error(line)).count();
    match count {
        0 => Ok(()),
        1 => bail!("{what} not complete: see the message above"),
        several => bail!("{what} not complete: see the {several} messages above"),
    }
}

/// Writes the output of a command to a file, and prints its name.
pub fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    atomic_file::write(path, |file| Ok(file.write_all(text.as_bytes())?))?;
    print_error(&format!("wrote {}", path.display()));
    Ok(())
}

/// Prints to the standard output without changes. A closed pipe is not an error.
pub fn print_raw(text: &str) -> anyhow::Result<()> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("cannot write to standard output"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_counts_the_excluded_runs() {
        let output_text = |lines: &[&str]| {
            let checked = check_complete("the figures are", lines.iter().map(ToString::to_string));
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(output_text(&[]), Ok(()));
        assert_eq!(output_text(&["a"]), Err("the figures are not complete: see the message above".to_owned()));
        assert_eq!(output_text(&["a", "b"]), Err("the figures are not complete: see the 2 messages above".to_owned()));
    }
}
