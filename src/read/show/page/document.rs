//! Content of a report: headlines, findings, and sections of charts and tables.

use crate::read::show::page::charts::Chart;
use crate::read::show::table::{Style, Table};

/// A whole report.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Names of the results.
    pub title: String,
    /// When, where and by which command each was measured.
    pub provenance: Vec<String>,
    /// Texts with addresses that the reader is sent to.
    pub links: Vec<Link>,
    /// The first screen, one a group of runs.
    pub headlines: Vec<Headline>,
    /// What a reader of the figures must know, and what is not in them.
    pub findings: Vec<Findings>,
    /// In the order in which they are read.
    pub sections: Vec<Section>,
}

/// To another page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// What it is called.
    pub text: String,
    /// `https://..`, or a path beside the page.
    pub address: String,
}

/// What a group of runs comes to, in one line of big figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Headline {
    /// Of its lines and bars further down.
    pub style: Style,
    /// Name of the result.
    pub name: String,
    /// What was measured, on what.
    pub what: String,
    /// Whether to believe the figures.
    pub trust: Trust,
    /// Why.
    pub reasons: Vec<String>,
    /// What they come to, in a sentence.
    pub conclusion: Option<String>,
    /// From left to right.
    pub figures: Vec<Figure>,
}

/// One big figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// What it is.
    pub label: String,
    /// `23.5`, or a dash.
    pub value: String,
    /// `images/s`; may be empty.
    pub unit: &'static str,
    /// What stands below it.
    pub note: String,
    /// What it is made of, for a bar and its key; may be empty.
    pub parts: Vec<Share>,
    /// True if it is unreliable.
    pub is_doubtful: bool,
}

/// A part of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// Of its colour.
    pub class: &'static str,
    /// What it is.
    pub name: &'static str,
    /// Of the whole; below 0 for a gain, so that the others may be more than 1 together.
    pub share: f64,
}

/// Parts below this share are not worth a word.
const SMALL: f64 = 0.02;

impl Figure {
    /// The parts that are worth a word, the largest first, each with its text: `53 % waiting`.
    pub fn large_parts(&self) -> Vec<(Share, String)> {
        let mut parts: Vec<Share> = self.parts.iter().copied().filter(|part| part.share.abs() >= SMALL).collect();
        parts.sort_by(|one, other| other.share.total_cmp(&one.share));
        parts.into_iter().map(|part| (part, format!("{:.0} % {}", part.share * 100.0, part.name))).collect()
    }
}

/// True if figures are reliable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Nothing speaks against them.
    Sound,
    /// Something does: see the reasons.
    WithCare,
    /// A first look, a test, or no result at all.
    Unreliable,
}

impl Trust {
    /// In a headline.
    pub fn text(self) -> &'static str {
        match self {
            Trust::Sound => "Sound",
            Trust::WithCare => "Use with caution",
            Trust::Unreliable => "Unreliable",
        }
    }
}

/// Sentences of one sort.
#[derive(Debug, Clone, PartialEq)]
pub struct Findings {
    /// `Warnings: laptop`.
    pub title: String,
    /// One for each reason.
    pub lines: Vec<String>,
    /// The remedy for all of them.
    pub fix: Option<String>,
    /// Whether figures are missing for them.
    pub is_grave: bool,
}

/// What a section is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Runs that may be compared.
    Runs,
    /// Speed and memory by batch size.
    BatchSizes,
    /// All-reduce alone.
    Bandwidth,
    /// Reading and decoding alone.
    Input,
    /// What it ran on.
    Environment,
}

/// Blocks under one heading.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// What it is about.
    pub subject: Subject,
    /// Heading.
    pub title: String,
    /// Below the heading; may be empty.
    pub note: String,
    /// What it holds.
    pub blocks: Vec<Block>,
}

/// Charts, how to read them, and the table under them.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// Heading.
    pub title: String,
    /// What has to be known of it; may be empty.
    pub note: String,
    /// Line above the charts, never folded; may be empty.
    pub remark: String,
    /// How its charts are read, where they are shown; may be empty.
    pub reading: String,
    /// Rows of charts; those of a row are side by side where there is space.
    pub charts: Vec<Vec<Chart>>,
    /// The same in numbers.
    pub table: Option<Table>,
    /// Lines to be shown as they are, as a topology's.
    pub lines: Vec<String>,
}

impl Block {
    /// Without charts, table and lines yet.
    pub fn new(title: impl Into<String>, note: impl Into<String>) -> Block {
        Block {
            title: title.into(),
            note: note.into(),
            remark: String::new(),
            reading: String::new(),
            charts: Vec::new(),
            table: None,
            lines: Vec::new(),
        }
    }
}
