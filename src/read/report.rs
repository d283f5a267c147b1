//! `ringmark report`: what several people want to see of one result or several. Engineers hover over it, managers print it.
//!
//! | room | what it is for |
//! |---|---|
//! | [`results`] | the folders, read |
//! | [`content`] | what is said of them |
//! | [`document`] | what a report says, before it is known where it is shown |
//! | [`charts`] | charts as data and as SVG |
//! | [`page`] | one HTML page that needs nothing else |
//! | [`text`] | Markdown, and tables for a terminal |
//! | [`figures`] | the figures for programs |

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use ringmark_record::usage::usage;
use ringmark_record::{whole_file, words};

use crate::output::{self, Json};
use crate::read::analyse::results;
use crate::read::load::problem;
use crate::read::show::page::document::Document;
use crate::read::show::page::{content, html, json, text};

/// Columns of a table that goes to no terminal.
const WIDTH: usize = 100;

/// What `ringmark report` is asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportConfig {
    /// Folders of sweeps and of bandwidth runs.
    pub folders: Vec<PathBuf>,
    /// Where the report goes; `None` is the standard output.
    pub out: Option<PathBuf>,
    /// Its format; `None` is what the file's name says.
    pub format: Option<Format>,
    /// First iterations to leave out, instead of what records (or DLPerf) say.
    pub warmup: Option<u32>,
    /// Whether rows that others published stand beside those that were measured alike.
    pub published: bool,
    /// Where the figures go as JSON.
    pub json: Json,
}

words!(
    /// How a report is shown.
    Format {
        /// One page.
        Html = "html",
        /// Markdown.
        Markdown = "markdown" | "md",
        /// Aligned columns for a terminal.
        Table = "table",
    }
);

impl Format {
    /// That of a file of this name; tables for a terminal where there is none. A name that says nothing is a mistake.
    pub fn of_file(path: Option<&Path>) -> anyhow::Result<Format> {
        let Some(path) = path else { return Ok(Format::Table) };
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("html" | "htm") => Ok(Format::Html),
            Some("md" | "markdown") => Ok(Format::Markdown),
            Some("txt") => Ok(Format::Table),
            _ => bail!(usage(anyhow!(
                "the name {} does not say what to write: let it end in .html, .md or .txt, or give --format (figures for \
                 programs are written by --json FILE)",
                path.display()
            ))),
        }
    }
}

/// Reads, writes and prints; an error where anything was left out, after everything else was written.
pub fn run(config: &ReportConfig) -> anyhow::Result<()> {
    config.json.check()?;
    let format = config.format.map_or_else(|| Format::of_file(config.out.as_deref()), Ok)?;
    let results = results::read(&config.folders, config.warmup)?;
    let is_instead = config.json.give(&json::of(&results))?;
    let document = content::document(&results, config.published);
    match &config.out {
        Some(path) => write(path, &render(&document, format, WIDTH))?,
        None if is_instead => {}
        None => {
            let width = terminal_size::terminal_size().map_or(WIDTH, |(width, _)| width.0.into());
            output::print(&render(&document, format, width))?;
        }
    }
    let problems = results.iter().flat_map(|result| result.problems.iter().map(move |problem| (&result.name, problem)));
    let left_out = problems.map(|(name, problem)| format!("not in the figures: {name}: {problem}"));
    problem::check_complete("the figures are", left_out)
}

/// The whole report; a table is made for so many columns.
pub fn render(document: &Document, format: Format, width: usize) -> String {
    match format {
        Format::Html => html::html(document),
        Format::Markdown => text::markdown(document),
        Format::Table => text::terminal(document, width),
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    whole_file::write(path, |output| Ok(output.write_all(text.as_bytes())?))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}
