//! `ringmark report`: shows one or several results as a page, a picture, Markdown or tables.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, ensure};
use ringmark_core::accept::Journal;
use ringmark_core::dimension::Seconds;
use ringmark_core::file::run_name::RunName;
use ringmark_core::goodput::Goodput;
use ringmark_core::keyword_enum;
use ringmark_core::options::usage::usage;

use crate::output::{self, Destination, Json};
use crate::read::accept;
use crate::read::analyze::results::ResultFolder;
use crate::read::analyze::training::cost::Price;
use crate::read::analyze::training::figures::TrainingGroup;
use crate::read::benchmark;
use crate::read::goodput;
use crate::read::load::folder::{Reader, unreadable};
use crate::read::load::trace;
use crate::read::report_json;
use crate::read::results;
use crate::read::show::page::document::{Document, Link};
use crate::read::show::page::{content, html, svg, text};
use crate::read::show::text::Medium;

/// Width of a table, in columns, if the output is not a terminal.
const WIDTH: usize = 100;

/// Configuration of `ringmark report`.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportConfig {
    /// Folders of training or scoring sweeps, and of bandwidth, input or checkpoint runs.
    pub folders: Vec<PathBuf>,
    /// Destination of the report; `None` for standard output.
    pub out: Option<PathBuf>,
    /// Format of the report; `None` to derive it from the file name.
    pub format: Option<ReportFormat>,
    /// Number of warm-up iterations, instead of the value in the records (or DLPerf's).
    pub warmup: Option<u32>,
    /// True to show published rows next to those measured under the same conditions.
    pub published: bool,
    /// Price of training per hour.
    pub price: Option<Price>,
    /// Links for the page.
    pub links: Vec<Link>,
    /// Numbers of hosts to predict from a result of goodput; as in the result for `None`.
    pub predict_hosts: Option<Vec<u32>>,
    /// Mean time between failures of one host in these predictions; as in the result for `None`.
    pub host_mtbf: Option<Seconds>,
    /// Destination of the list of hosts to drain, of a result of accept.
    pub drain_list: Option<Destination>,
    /// Destination of JSON output.
    pub json: Json,
}

impl ReportConfig {
    /// Returns the folder in which `find` finds a result that is no sweep; `None` if there is none. Rejects other folders
    /// beside it, and options for sweeps. `what` describes the result.
    fn alone<T>(&self, what: &str, find: fn(&Path) -> anyhow::Result<Option<T>>) -> anyhow::Result<Option<(&Path, T)>> {
        for folder in &self.folders {
            let Some(found) = find(folder)? else { continue };
            let name = folder.display();
            ensure!(self.folders.len() == 1, usage(anyhow!("{name} contains {what}: report it alone")));
            ensure!(
                self.warmup.is_none() && self.price.is_none() && !self.published,
                usage(anyhow!("--warmup, --published and --price do not apply to {name}: omit them"))
            );
            return Ok(Some((folder, found)));
        }
        Ok(None)
    }
}

keyword_enum!(
    /// Output format of `ringmark report`.
    ReportFormat {
        /// One page.
        Html = "html",
        /// One image: speed by case, or by batch size.
        Svg = "svg",
        /// Markdown.
        Markdown = "markdown" | "md",
        /// Aligned columns for a terminal.
        Table = "table",
    }
);

impl ReportFormat {
    /// Returns the format for a file name, or a table for the terminal without a file. Returns an error for an unknown
    /// extension.
    pub fn from_path(path: Option<&Path>) -> anyhow::Result<ReportFormat> {
        let Some(path) = path else { return Ok(ReportFormat::Table) };
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("html" | "htm") => Ok(ReportFormat::Html),
            Some("svg") => Ok(ReportFormat::Svg),
            Some("md" | "markdown") => Ok(ReportFormat::Markdown),
            Some("txt") => Ok(ReportFormat::Table),
            _ => bail!(usage(anyhow!(
                "no format for file name {}: use .html, .svg, .md or .txt, or give --format (--json FILE writes \
                 figures for programs)",
                path.display()
            ))),
        }
    }
}

/// Reads the folders and writes or prints the report; returns an error at the end if anything was excluded.
pub fn run(config: &ReportConfig) -> anyhow::Result<()> {
    config.json.check(&[])?;
    config.out.as_ref().map_or(Ok(()), |out| output::check_target("--out", out, &[]))?;
    let format = config.format.map_or_else(|| ReportFormat::from_path(config.out.as_deref()), Ok)?;
    let predicts = config.predict_hosts.is_some() || config.host_mtbf.is_some();
    let no_prediction = || usage(anyhow!("--predict-hosts and --host-mtbf need a folder of goodput: omit them"));
    config.drain_list.as_ref().map_or(Ok(()), |list| list.check("--drain-list", &config.json))?;
    if let Some((folder, journal)) = config.alone("an acceptance", Journal::find)? {
        ensure!(!predicts, no_prediction());
        let verdict = accept::verdict(folder, &journal)?;
        let mut is_instead = config.json.write(&verdict)?;
        if let Some(list) = &config.drain_list {
            list.write(&verdict.drain_list(journal.header.slurm))?;
            is_instead |= *list == Destination::Printed;
        }
        return write(config, format, is_instead, &accept::document(folder, &journal, &verdict, &config.links)?);
    }
    ensure!(config.drain_list.is_none(), usage(anyhow!("--drain-list needs a folder of accept: omit it")));
    if let Some((folder, mut goodput)) = config.alone("a result of goodput", Goodput::find)? {
        if predicts {
            goodput.predict(config.host_mtbf, config.predict_hosts.as_deref());
        }
        let is_instead = config.json.write(&goodput)?;
        return write(config, format, is_instead, &goodput::document(folder, &goodput, &config.links)?);
    }
    ensure!(!predicts, no_prediction());
    let mut results = read(&config.folders, config.warmup)?;
    results.iter_mut().for_each(|result| result.price = config.price.clone());
    let is_instead = config.json.write(&report_json::build_report(&results, config.published))?;
    write(config, format, is_instead, &document(&results, config.published, &config.links))?;
    let problems = results.iter().flat_map(|result| result.problems.iter().map(move |problem| (&result.name, problem)));
    let left_out = problems.map(|(name, problem)| format!("not in the figures: {name}: {problem}"));
    output::check_complete("the figures are", left_out)
}

/// Writes the report to the file, or prints it unless JSON `is_instead` printed.
fn write(config: &ReportConfig, format: ReportFormat, is_instead: bool, document: &Document) -> anyhow::Result<()> {
    match &config.out {
        Some(path) => output::write_file(path, &render(document, format, WIDTH)),
        None if is_instead => Ok(()),
        None => {
            let width = terminal_size::terminal_size().map_or(WIDTH, |(width, _)| width.0.into());
            output::print(&render(document, format, width))
        }
    }
}

/// Returns the whole report; `published` adds rows published by others for the same conditions.
pub fn document(results: &[ResultFolder], published: bool, links: &[Link]) -> Document {
    content::document(results, published, links, benchmark::content(results, published))
}

/// Renders the report; tables are limited to `width` columns.
pub fn render(document: &Document, format: ReportFormat, width: usize) -> String {
    match format {
        ReportFormat::Html => html::html(document),
        ReportFormat::Svg => svg::svg(document),
        ReportFormat::Markdown => text::text(document, Medium::Markdown),
        ReportFormat::Table => text::text(document, Medium::Terminal { width, is_explained: true }),
    }
}

/// Reads every folder; returns an error if one contains no results.
pub fn read(folders: &[PathBuf], warmup: Option<u32>) -> anyhow::Result<Vec<ResultFolder>> {
    let names = names(folders)?;
    folders.iter().zip(names).map(|(folder, name)| read_one(folder, name, warmup)).collect()
}

fn read_one(folder: &Path, name: String, warmup: Option<u32>) -> anyhow::Result<ResultFolder> {
    let mut result = results::read(folder, name, warmup, Reader::Report)?;
    let runs: Vec<RunName> = result.training().iter().flat_map(TrainingGroup::run_names).collect();
    result.traces = trace::read_runs(folder, runs, &mut result.problems);
    Ok(result)
}

/// Returns the shortest path suffixes that distinguish the folders.
fn names(folders: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let resolved = |folder: &PathBuf| {
        let whole = fs::canonicalize(folder).map_err(|error| unreadable(folder, error));
        Ok(whole.map_err(usage)?.iter().map(|part| part.to_string_lossy().into_owned()).collect::<Vec<String>>())
    };
    let paths = folders.iter().map(resolved).collect::<anyhow::Result<Vec<_>>>()?;
    let last = |path: &[String], count: usize| path[path.len().saturating_sub(count)..].join("/");
    let name = |index: usize| {
        let path = &paths[index];
        let is_unique = |count: &usize| {
            let others = paths.iter().enumerate().filter(|(other, _)| *other != index);
            others.map(|(_, other)| last(other, *count)).all(|other| other != last(path, *count))
        };
        (1..=path.len()).find(is_unique).map(|count| last(path, count))
    };
    let names = (0..paths.len()).map(|index| name(index).ok_or(index)).collect::<Result<Vec<String>, usize>>();
    names.or_else(|index| {
        bail!(usage(anyhow::anyhow!("{} is given twice: pass each folder once", folders[index].display())))
    })
}

#[cfg(test)]
mod tests {
    use ringmark_core::options::usage::UsageError;

    use super::*;

    #[test]
    fn names_are_the_shortest_unique_paths() {
        let parent = tempfile::TempDir::new().expect("a temporary folder");
        let folders = ["a/first", "b/first", "b/second"].map(|folder| parent.path().join(folder));
        folders.iter().for_each(|folder| fs::create_dir_all(folder).expect("made"));
        assert_eq!(names(&folders).expect("they are there"), ["a/first", "b/first", "second"]);
        let error = names(&[folders[0].clone(), parent.path().join("a/../a/first")]).expect_err("one folder");
        assert!(error.to_string().contains("first is given twice"), "{error}");
        let error = names(&[parent.path().join("missing")]).expect_err("no folder");
        assert!(error.is::<UsageError>() && error.to_string().starts_with("folder not found: "));
    }
}
