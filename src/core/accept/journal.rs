//! Journal of an acceptance, `accept.jsonl`: a header, then one finding or measurement a line, appended as they come.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::accept::criteria::Criteria;
use crate::accept::fleet::{Finding, FleetHost, Measurement};
use crate::dimension::Seconds;
use crate::file::schema;

/// Name of the file.
pub const JOURNAL: &str = "accept.jsonl";

/// Version of this file format.
pub const SCHEMA: u32 = 1;

/// Kind of file, in its first field.
pub const KIND: &str = "ringmark-accept-journal";

/// First line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Header {
    /// Always `ringmark-accept-journal`.
    pub kind: String,
    /// Version of the format.
    pub schema: u32,
    /// Command line that resumes the acceptance, program first.
    pub command: Vec<String>,
    /// Version of ringmark.
    pub program: String,
    /// Start of the first command, seconds since 1970-01-01 UTC; absent in older journals.
    #[serde(rename = "started_seconds", default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Seconds>,
    /// All hosts.
    pub fleet: Vec<FleetHost>,
    /// Error rates and limits.
    pub criteria: Criteria,
    /// Seed of the order in which hosts are paired and grouped.
    pub seed: u64,
    /// True if Slurm starts the jobs; absent otherwise, and in older journals.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub slurm: bool,
}

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Line {
    /// First line.
    Header(Header),
    /// Job that has run.
    Measurement(Measurement),
    /// Finding of the examination.
    Finding(Finding),
}

/// Content of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Journal {
    /// First line.
    pub header: Header,
    /// Findings of the examination.
    pub findings: Vec<Finding>,
    /// Jobs that have run.
    pub measurements: Vec<Measurement>,
    whole_bytes: u64,
}

impl Header {
    /// Creates the first line of a new journal.
    pub fn new(command: Vec<String>, program: String, fleet: Vec<FleetHost>, criteria: Criteria, seed: u64) -> Header {
        Header {
            kind: KIND.to_owned(),
            schema: SCHEMA,
            command,
            program,
            started: None,
            fleet,
            criteria,
            seed,
            slurm: false,
        }
    }

    /// Reads the first line of the journal in a folder; `None` if there is none.
    pub fn find(folder: &Path) -> anyhow::Result<Option<Header>> {
        find(folder, |mut input| {
            let mut text = Vec::new();
            input.read_until(b'\n', &mut text).context("cannot be read")?;
            ensure!(text.last() == Some(&b'\n'), EMPTY);
            Header::parse(&text)
        })
    }

    fn parse(text: &[u8]) -> anyhow::Result<Header> {
        schema::check(text, KIND, SCHEMA, "journal of an acceptance")?;
        serde_json::from_slice(text).context("not a journal of an acceptance")
    }
}

/// Problem of a journal without a whole line.
const EMPTY: &str = "the journal is empty";

fn find<T>(folder: &Path, read: impl FnOnce(BufReader<File>) -> anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    let path = folder.join(JOURNAL);
    if !path.exists() {
        return Ok(None);
    }
    let read = || read(BufReader::new(File::open(&path)?));
    read().map(Some).with_context(|| format!("{}", path.display()))
}

impl Line {
    /// Returns the line with its newline.
    pub fn text(&self) -> String {
        // Plain data, which JSON can always represent.
        serde_json::to_string(self).expect("a line is JSON") + "\n"
    }
}

impl Journal {
    /// Creates a journal without findings and measurements.
    pub fn new(header: Header) -> Journal {
        Journal { header, findings: Vec::new(), measurements: Vec::new(), whole_bytes: 0 }
    }

    /// Reads the journal in a folder; `None` if there is none.
    pub fn find(folder: &Path) -> anyhow::Result<Option<Journal>> {
        find(folder, Journal::read)
    }

    /// Reads a journal. Ignores a last line without a newline: its writer was killed.
    pub fn read(mut input: impl BufRead) -> anyhow::Result<Journal> {
        let mut journal: Option<Journal> = None;
        let (mut text, mut whole_bytes, mut number) = (Vec::new(), 0, 0);
        loop {
            text.clear();
            let bytes = input.read_until(b'\n', &mut text).context("cannot be read")?;
            if text.last() != Some(&b'\n') {
                break;
            }
            number += 1;
            let Some(journal) = &mut journal else {
                whole_bytes += bytes as u64;
                journal = Some(Journal::new(Header::parse(&text)?));
                continue;
            };
            let hosts = journal.header.fleet.len();
            schema::check_texts(&text)?;
            match serde_json::from_slice(&text).with_context(|| format!("line {number} is damaged"))? {
                Line::Header(_) => anyhow::bail!("line {number} is a second header"),
                Line::Finding(finding) => {
                    ensure!(finding.host < hosts, "line {number} contains host {} of {hosts}", finding.host);
                    journal.findings.push(finding);
                }
                Line::Measurement(measurement) => {
                    let named = match measurement.outcome {
                        crate::accept::Outcome::Failed { host, .. } => host,
                        crate::accept::Outcome::Measured(_) => None,
                    };
                    let unknown = measurement.job.hosts.iter().copied().chain(named).find(|host| *host >= hosts);
                    ensure!(
                        unknown.is_none(),
                        "line {number} contains host {} of {hosts}",
                        unknown.unwrap_or_default()
                    );
                    journal.measurements.push(measurement);
                }
            }
            whole_bytes += bytes as u64;
        }
        let mut journal = journal.context(EMPTY)?;
        journal.whole_bytes = whole_bytes;
        Ok(journal)
    }

    /// Returns the length of the file up to the end of its last complete line.
    pub fn whole_bytes(&self) -> u64 {
        self.whole_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accept::fleet::{Severity, Stage};
    use crate::accept::search::Search;
    use crate::accept::simulation::SimulatedFleet;

    #[test]
    fn journal_round_trips_without_an_incomplete_line() {
        let fleet = SimulatedFleet::new(3, 1);
        let header =
            Header::new(vec!["ringmark".to_owned()], "1.0".to_owned(), fleet.hosts.clone(), Criteria::default(), 1);
        let search = Search::new(fleet.hosts.clone(), Criteria::default(), 1);
        let finding = Finding { host: 2, severity: Severity::Warning, what: "hot".to_owned(), fix: "cool".to_owned() };
        let measurements = fleet.run(&search.next(&[], &[]).expect("a round"), 1);
        let lines = [Line::Header(header.clone()), Line::Finding(finding.clone())].into_iter();
        let lines = lines.chain(measurements.iter().cloned().map(Line::Measurement));
        let text: String = lines.map(|line| line.text()).collect();
        assert!(text.starts_with("{\"kind\":\"ringmark-accept-journal\",\"schema\":1,"), "{text}");
        let cut = format!("{text}{{\"stage\":\"alone\",\"rou");
        for text in [&text, &cut] {
            let journal = Journal::read(text.as_bytes()).expect("a journal");
            assert_eq!((&journal.header, &journal.findings), (&header, &vec![finding.clone()]));
            assert_eq!(journal.measurements, measurements);
            assert_eq!(journal.whole_bytes(), text.rfind('\n').expect("lines") as u64 + 1);
        }
        let with_reference = Criteria::default().with_reference(&Journal::read(text.as_bytes()).expect("a journal"));
        assert!(with_reference.reference.iter().all(|value| value.stage == Stage::Alone && value.value > 100.0));
        assert_eq!(with_reference.reference.len(), 3);
        // Older journals contain no times.
        let older = Measurement { time: None, ..measurements[0].clone() };
        let text = Line::Header(header).text() + &Line::Measurement(older.clone()).text();
        assert!(!text.contains("seconds"), "{text}");
        assert_eq!(Journal::read(text.as_bytes()).expect("a journal").measurements, [older]);
    }

    #[test]
    fn damaged_journals_are_rejected() {
        let fleet = SimulatedFleet::new(3, 1);
        let header = Line::Header(Header::new(Vec::new(), String::new(), fleet.hosts, Criteria::default(), 1)).text();
        let error = |text: String| format!("{:#}", Journal::read(text.as_bytes()).expect_err("rejected"));
        assert_eq!(error(String::new()), "the journal is empty");
        assert_eq!(error(format!("{header}{header}")), "line 2 is a second header");
        let unknown = r#"{"host":3,"severity":"error","what":"","fix":""}"#;
        assert_eq!(error(format!("{header}{unknown}\n")), "line 2 contains host 3 of 3");
        assert!(error(format!("{header}{{}}\n")).starts_with("line 2 is damaged"));
        let later = header.replace("\"schema\":1", "\"schema\":2");
        assert!(error(later).contains("format 2 is not readable"));
    }
}
