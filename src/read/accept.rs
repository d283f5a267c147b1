//! Report of a fleet that `ringmark accept` tested: its verdict, hosts and pairs.

use std::fs;
use std::path::Path;

use anyhow::Context;
use ringmark_core::accept::limits::lowest_shares;
use ringmark_core::accept::{Header, Journal, Search, VERDICT, Verdict};
use ringmark_core::shell;

use crate::read::load::environment::moment;
use crate::read::load::folder::name_of;
use crate::read::show::page::content::fleet;
use crate::read::show::page::document::{Document, Link};

/// Returns the verdict of the run, or the one that the measurements support if it was interrupted.
pub fn verdict(folder: &Path, journal: &Journal) -> anyhow::Result<Verdict> {
    let file = folder.join(VERDICT);
    if file.exists() {
        let read = || -> anyhow::Result<Verdict> { Ok(serde_json::from_slice(&fs::read(&file)?)?) };
        let mut verdict = read().with_context(|| file.display().to_string())?;
        if verdict.lowest_shares.is_empty() {
            verdict.lowest_shares = lowest_shares(&journal.header.fleet, &journal.measurements);
        }
        let last = journal.measurements.iter().map(|measurement| measurement.round).max().unwrap_or(0);
        if verdict.rounds == last && verdict.hosts.len() == journal.header.fleet.len() {
            return Ok(verdict);
        }
    }
    let header = &journal.header;
    let search = Search::new(header.fleet.clone(), header.criteria.clone(), header.seed);
    Ok(search.verdict(&journal.findings, &journal.measurements))
}

/// Returns the start, the version and the command, which continues the run if stages are not complete.
fn provenance(header: &Header, verdict: &Verdict) -> String {
    let started = header.started.and_then(moment).map(|moment| format!("started {moment} UTC"));
    let command = shell::join(&header.command);
    let command = match verdict.unfinished_stages() {
        Some(_) => format!("resume with: {command}"),
        None => command.trim_end_matches(" --resume").to_owned(),
    };
    started.into_iter().chain([format!("ringmark {}", header.program), command]).collect::<Vec<_>>().join(" \u{b7} ")
}

/// Returns the report.
pub fn document(folder: &Path, journal: &Journal, verdict: &Verdict, links: &[Link]) -> anyhow::Result<Document> {
    let header = &journal.header;
    Ok(Document {
        title: name_of(folder)?,
        provenance: vec![provenance(header, verdict)],
        links: links.to_vec(),
        headlines: vec![fleet::headline(journal, verdict)],
        sections: vec![fleet::section(journal, verdict)],
        ..Document::default()
    })
}
