//! Sections of titles, tables, notes and warnings, as a terminal shows them and in Markdown. Not for what is in them.

use crate::read::load::folder::Shortage;
use crate::read::load::problem::Problem;
use crate::read::show::columns::{Columns, aligned, escaped, piped};

/// Behind a figure of runs with warnings.
pub const MARK: &str = "!";

/// Before a reliability warning on a terminal.
pub const UNRELIABLE: &str = "WARNING (unreliable)";

/// A figure that is unreliable.
pub fn doubtful(figure: &str) -> String {
    format!("({figure})")
}

/// The figure, [`doubtful`] or as it is.
pub fn marked(figure: String, is_doubtful: bool) -> String {
    if is_doubtful { doubtful(&figure) } else { figure }
}

/// A table, or several of the same runs, with the text about them.
pub struct Section {
    /// What was measured, on what and how.
    pub title: Vec<String>,
    /// In the order in which they are shown.
    pub blocks: Vec<Block>,
    /// Why figures in it are unreliable.
    pub reliability_warnings: Vec<String>,
    /// What a reader must know: of all its runs.
    pub warnings: Vec<String>,
}

/// A part of a section.
pub enum Block {
    /// A table, with a title of its own where it is not the first.
    Table {
        /// What it shows.
        title: Option<BlockTitle>,
        /// Names and cells.
        columns: Columns,
    },
    /// A remark, in lines.
    Note(Vec<String>),
}

/// Above a table.
pub struct BlockTitle {
    /// What it shows.
    pub text: String,
    /// What its columns mean, in lines.
    pub legend: Vec<&'static str>,
}

impl Block {
    /// The first table of a section.
    pub fn first(columns: Columns) -> Block {
        Block::Table { title: None, columns }
    }

    /// Batches that were tried and have no memory.
    pub fn of_shortages(shortages: &[Shortage]) -> Option<Block> {
        let lines: Vec<String> = shortages.iter().map(Shortage::to_string).collect();
        (!lines.is_empty()).then_some(Block::Note(lines))
    }
}

/// What [`MARK`] means; `word` is what the warnings begin with.
pub fn mark_legend(word: &str) -> String {
    format!("{MARK}: these runs count, but read the lines that begin with {word}.")
}

/// What [`doubtful`] figures mean; the lines that say why stand `above` or `below`.
pub fn doubtful_legend(place: &str) -> String {
    format!("In parentheses: unreliable; the warnings {place} say why, and what to do.")
}

/// Aligned columns; the lines of `legend` end them.
pub fn terminal(sections: &[Section], legend: &[String]) -> String {
    let mut paragraphs = Vec::new();
    for Section { title, blocks, reliability_warnings, warnings } in sections {
        paragraphs.push(title.join("\n"));
        for block in blocks {
            match block {
                Block::Note(note) => paragraphs.push(format!("NOTE: {}", note.join("\n"))),
                Block::Table { title, columns } => {
                    let title = title.iter().map(|title| format!("{}\n({})", title.text, title.legend.join("\n")));
                    paragraphs.extend(title);
                    paragraphs.push(aligned(columns));
                }
            }
        }
        for (word, lines) in [(UNRELIABLE, reliability_warnings), ("WARNING", warnings)] {
            if !lines.is_empty() {
                paragraphs.push(lines.iter().map(|line| format!("{word}: {line}")).collect::<Vec<_>>().join("\n"));
            }
        }
    }
    paragraphs.push(legend.join("\n"));
    paragraphs.join("\n\n") + "\n"
}

/// A heading for each section below one for `name`, then what was left out.
pub fn markdown(name: &str, sections: &[Section], legend: &[String], problems: &[Problem]) -> String {
    let mut paragraphs = vec![format!("# {}", escaped(name))];
    for Section { title, blocks, reliability_warnings, warnings } in sections {
        let title: Vec<String> = title.iter().map(|line| escaped(line)).collect();
        paragraphs.push(format!("## {}", title[0]));
        paragraphs.push(title[1..].join("; "));
        for (word, lines) in [("Warning (unreliable)", reliability_warnings), ("Warning", warnings)] {
            paragraphs.extend(lines.iter().map(|line| format!("**{word}:** {}", escaped(line))));
        }
        for block in blocks {
            match block {
                Block::Note(note) => paragraphs.push(format!("**Note:** {}", note.join(" "))),
                Block::Table { title, columns } => {
                    let title = title.iter().map(|title| format!("{} ({}):", title.text, title.legend.join(" ")));
                    paragraphs.extend(title);
                    paragraphs.push(piped(columns));
                }
            }
        }
    }
    paragraphs.push(legend.join("\n"));
    if !problems.is_empty() {
        let problems: Vec<String> =
            problems.iter().map(|problem| format!("- `{}`", problem.to_string().replace('`', "'"))).collect();
        paragraphs.push("## Not in the figures".to_owned());
        paragraphs.push(problems.join("\n"));
    }
    paragraphs.join("\n\n") + "\n"
}
