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

pub mod charts;
pub mod content;
pub mod document;
pub mod figures;
pub mod page;
pub mod results;
pub mod text;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::bail;
use ringmark_record::whole_file;

use crate::answer::{self, Json};
use crate::read::report::document::Document;

/// Columns of a table that goes to no terminal.
const WIDTH: usize = 100;

/// What `ringmark report` is asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportConfig {
    /// Folders of sweeps and of bandwidth runs.
    pub folders: Vec<PathBuf>,
    /// Where the report goes; `None` is the standard output.
    pub out: Option<PathBuf>,
    /// Its format.
    pub format: Format,
    /// First iterations to leave out, instead of what records (or DLPerf) say.
    pub warmup: Option<u32>,
    /// Whether rows that others published stand beside those that were measured alike.
    pub published: bool,
    /// Where the figures go as JSON.
    pub json: Json,
}

/// How a report is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One page.
    Html,
    /// Markdown.
    Markdown,
    /// Aligned columns for a terminal.
    Table,
}

impl Format {
    /// Every format as it is typed.
    pub const WORDS: [&'static str; 3] = ["html", "md", "table"];

    /// That of a file of this name; tables for a terminal where there is none.
    pub fn of_file(path: Option<&Path>) -> Format {
        match path.map(|path| path.extension().and_then(|extension| extension.to_str())) {
            None => Format::Table,
            Some(Some("md" | "markdown")) => Format::Markdown,
            Some(Some("txt")) => Format::Table,
            Some(_) => Format::Html,
        }
    }
}

impl FromStr for Format {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Format> {
        match text {
            "html" => Ok(Format::Html),
            "md" => Ok(Format::Markdown),
            "table" => Ok(Format::Table),
            _ => bail!("{text:?} is none of {}", Format::WORDS.join(", ")),
        }
    }
}

/// Reads, writes and prints; an error where anything was left out, after everything else was written.
pub fn run(config: &ReportConfig) -> anyhow::Result<()> {
    config.json.check()?;
    let results = results::read(&config.folders, config.warmup)?;
    let is_instead = config.json.give(&figures::of(&results))?;
    let document = content::document(&results, config.published);
    match &config.out {
        Some(path) => write(path, &render(&document, config.format, WIDTH))?,
        None if is_instead => {}
        None => {
            let width = terminal_size::terminal_size().map_or(WIDTH, |(width, _)| width.0.into());
            answer::print_harmless(&render(&document, config.format, width))?;
        }
    }
    let problems = results.iter().flat_map(|result| result.problems.iter().map(move |problem| (&result.name, problem)));
    let mut left_out = 0;
    for (name, problem) in problems {
        eprintln!("not in the figures: {name}: {problem}");
        left_out += 1;
    }
    match left_out {
        0 => Ok(()),
        1 => bail!("the figures are not complete: see the message above"),
        several => bail!("the figures are not complete: see the {several} messages above"),
    }
}

/// The whole report; a table is made for so many columns.
pub fn render(document: &Document, format: Format, width: usize) -> String {
    match format {
        Format::Html => page::html(document),
        Format::Markdown => text::markdown(document),
        Format::Table => text::terminal(document, width),
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    whole_file::write(path, |output| Ok(output.write_all(text.as_bytes())?))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}
