//! `accept.jsonl`, the journal of an acceptance run: a header, then a line for each finding and each measurement, on disk
//! before the next step depends on it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use ringmark_core::accept::{Finding, Header, JOURNAL, Journal, Line, Measurement};

use crate::launch::local::disk_error;

/// The journal of a folder, to which lines are appended.
pub struct JournalFile {
    path: PathBuf,
    file: File,
    journal: Journal,
}

impl JournalFile {
    /// Starts a journal in a folder without one.
    pub fn begin(out: &Path, header: Header) -> anyhow::Result<JournalFile> {
        let path = out.join(JOURNAL);
        let file = OpenOptions::new().append(true).create_new(true).open(&path);
        let file = file.map_err(|error| write_error(&path, error))?;
        let mut journal = JournalFile { path, file, journal: Journal::new(header.clone()) };
        journal.append(&Line::Header(header))?;
        Ok(journal)
    }

    /// Continues `earlier`, the journal in folder `out`.
    pub fn resume(out: &Path, earlier: Journal) -> anyhow::Result<JournalFile> {
        let path = out.join(JOURNAL);
        let file = OpenOptions::new().append(true).open(&path).map_err(|error| write_error(&path, error))?;
        // A line that a crash cut off would run into the next one.
        file.set_len(earlier.whole_bytes()).map_err(|error| write_error(&path, error))?;
        Ok(JournalFile { path, file, journal: earlier })
    }

    /// Adds a finding that the journal does not contain yet.
    pub fn add_finding(&mut self, finding: Finding) -> anyhow::Result<()> {
        if !self.journal.findings.contains(&finding) {
            self.append(&Line::Finding(finding.clone()))?;
            self.journal.findings.push(finding);
        }
        Ok(())
    }

    /// Adds a measurement.
    pub fn add_measurement(&mut self, measurement: Measurement) -> anyhow::Result<()> {
        self.append(&Line::Measurement(measurement.clone()))?;
        self.journal.measurements.push(measurement);
        Ok(())
    }

    /// Returns what the file contains.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    fn append(&mut self, line: &Line) -> anyhow::Result<()> {
        let written = self.file.write_all(line.text().as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| write_error(&self.path, error))
    }
}

fn write_error(path: &Path, error: std::io::Error) -> anyhow::Error {
    let fix = disk_error::fix(&error).map_or(String::new(), |fix| format!(": {fix}"));
    anyhow!("cannot write {}: {error}{fix}", path.display())
}
