//! Where the answer of a command goes: a table for people to the standard output, and by `--json [FILE]` the same for
//! programs. Not for what is in either.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use ringmark_record::file::whole_file;
use ringmark_record::options::usage::usage;
use serde::Serialize;

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

    /// Refuses a file whose folder is not there, before work is done for it.
    pub fn check(&self) -> anyhow::Result<()> {
        let Json::File(path) = self else { return Ok(()) };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let check = ensure_folder(folder).with_context(|| format!("--json {} cannot be written", path.display()));
        check.map_err(usage)
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

    /// Writes `value` where it is asked for; whether that was in the place of the table.
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

fn ensure_folder(folder: &Path) -> anyhow::Result<()> {
    ensure!(folder.is_dir(), "there is no folder {}: make it, or choose another", folder.display());
    Ok(())
}

/// Without what a terminal obeys: names that were read from files may hold anything.
pub fn strip_control_characters(text: &str) -> String {
    text.replace(|letter: char| letter.is_control() && !['\n', '\t'].contains(&letter), " ")
}

/// To the standard output, made [`strip_control_characters`]. A closed pipe (`| head`) is no failure.
pub fn print(text: &str) -> anyhow::Result<()> {
    print_raw(&strip_control_characters(text))
}

/// To the standard output, as it is.
pub fn print_raw(text: &str) -> anyhow::Result<()> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("cannot write to the standard output"),
    }
}
