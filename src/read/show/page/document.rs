//! Content of a report: headlines, findings, and sections of charts and tables.

use ringmark_core::benchmark::BenchmarkKind;

use crate::output::table::{Style, Table};
use crate::read::analyze::assessment::Trust;
use crate::read::show::page::charts::Chart;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Document {
    pub title: String,
    /// Time, hosts and command of each measurement.
    pub provenance: Vec<String>,
    /// Links below the title.
    pub links: Vec<Link>,
    /// Headlines, one per group of runs.
    pub headlines: Vec<Headline>,
    /// Explains parentheses around figures; empty without any.
    pub legend: String,
    /// Warnings, and problems such as missing runs.
    pub findings: Vec<Findings>,
    pub sections: Vec<Section>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub text: String,
    /// `https://..`, or a path relative to the page.
    pub address: String,
}

/// Summary of a group of runs, with its main figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Headline {
    /// Style of its lines and bars in charts and tables.
    pub style: Style,
    pub name: String,
    /// Benchmark, network and devices.
    pub what: String,
    /// Trust in measured speeds; `None` for a verdict.
    pub trust: Option<Trust>,
    pub reasons: Vec<String>,
    pub conclusion: Option<String>,
    pub figures: Vec<Figure>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub label: String,
    /// `23.5`, or a dash.
    pub value: String,
    /// `images/s`; may be empty.
    pub unit: String,
    pub note: String,
    /// Parts of the figure, shown as a bar with a legend; may be empty.
    pub parts: Vec<Share>,
    pub is_doubtful: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    pub class: &'static str,
    pub name: &'static str,
    /// Share of the whole; negative for a gain, in which case the others add up to more than 1.
    pub share: f64,
}

impl Share {
    /// Returns true if a bar can show the part: a gain has no length.
    pub fn is_drawn(&self) -> bool {
        self.share > 0.0
    }
}

/// Minimum share of a part that is mentioned.
const SMALL: f64 = 0.02;

impl Figure {
    /// Returns a reliable figure without parts.
    pub fn new(
        label: impl Into<String>,
        value: impl Into<String>,
        unit: impl Into<String>,
        note: impl Into<String>,
    ) -> Figure {
        Figure {
            label: label.into(),
            value: value.into(),
            unit: unit.into(),
            note: note.into(),
            parts: Vec::new(),
            is_doubtful: false,
        }
    }

    /// Returns the parts that are large enough to mention, in descending order, with text: `53 % waiting`.
    pub fn large_parts(&self) -> Vec<(Share, String)> {
        let mut parts: Vec<Share> = self.parts.iter().copied().filter(|part| part.share.abs() >= SMALL).collect();
        parts.sort_by(|one, other| other.share.total_cmp(&one.share));
        parts.into_iter().map(|part| (part, format!("{:.0} % {}", part.share * 100.0, part.name))).collect()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Findings {
    /// Title with the name of the result: `Warnings: laptop`.
    pub title: String,
    pub lines: Vec<String>,
    /// Remedy for all of them.
    pub fix: Option<String>,
    /// True for findings that affect figures.
    pub is_grave: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Runs that may be compared.
    Runs,
    BatchSizes,
    /// Records of one benchmark without sweeps.
    Records(BenchmarkKind),
    Environment,
    /// Hosts that `ringmark accept` tested.
    Fleet,
    /// Training under failures.
    Goodput,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    pub subject: Subject,
    pub title: String,
    pub note: String,
    pub blocks: Vec<Block>,
}

/// Charts with their explanation, and the table below them.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    pub title: String,
    /// Explanation of the values; may be empty.
    pub note: String,
    /// Explanations of columns that a narrow terminal may omit, each with the name of the column.
    pub column_notes: Vec<(&'static str, String)>,
    /// Line above the charts, never folded; may be empty.
    pub remark: String,
    /// Explanation of the charts, shown only with them; may be empty.
    pub reading: String,
    /// Rows of charts; the charts of a row are side by side if there is enough space.
    pub charts: Vec<Vec<Chart>>,
    pub table: Option<Table>,
    /// Preformatted lines, for example a topology.
    pub lines: Vec<String>,
}

impl Block {
    /// Returns the explanation of the values, with those of the columns that are shown; `width` is that of a terminal.
    pub fn full_note(&self, width: Option<usize>) -> String {
        let columns = self.table.iter().flat_map(|table| table.shown_columns(width));
        let shown: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
        let notes = self.column_notes.iter().filter(|(column, _)| shown.contains(column)).map(|(_, note)| note);
        std::iter::once(&self.note).chain(notes).filter(|note| !note.is_empty()).cloned().collect::<Vec<_>>().join(" ")
    }

    pub fn new(title: impl Into<String>, note: impl Into<String>) -> Block {
        Block {
            title: title.into(),
            note: note.into(),
            column_notes: Vec::new(),
            remark: String::new(),
            reading: String::new(),
            charts: Vec::new(),
            table: None,
            lines: Vec::new(),
        }
    }
}
