//! Text output as a list of paragraphs, rendered for a terminal or as Markdown.

use ringmark_core::untrusted_text::{printable, printable_lines};

use crate::output::table::{Table, escaped};
use crate::read::analyze::assessment::Assessment;
use crate::read::analyze::reliability;

/// Number of terminal columns that result tables are designed for.
pub const WIDTH: usize = 80;

/// Output medium of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// Plain text, wrapped to the width of a terminal.
    Terminal {
        width: usize,
        /// True if explanations of columns and figures are included.
        is_explained: bool,
    },
    Markdown,
}

/// A part of a text. Renderers escape all names and cells.
#[derive(Debug, Clone, PartialEq)]
pub enum Paragraph {
    /// Title of a page; only in Markdown.
    Title(String),
    /// Heading of a section. Further lines describe its content.
    Heading(Vec<String>),
    /// Heading of a chapter of a report; a terminal underlines it.
    Chapter(String),
    /// Heading inside a chapter; a terminal underlines it.
    Subchapter(String),
    /// Title of a table, and lines that explain its columns.
    Caption(String, Vec<&'static str>),
    /// Lines that are not wrapped.
    Lines(Vec<String>),
    /// Text that a terminal wraps.
    Text(String),
    /// Sentences that a terminal wraps, with the second and later lines of each indented.
    Sentences(Vec<String>),
    /// A name and its description.
    Name(String, String),
    Items(Vec<String>),
    /// List items with text from files.
    Quotes(Vec<String>),
    /// Links as text and address; only in Markdown.
    Links(Vec<(String, String)>),
    Table(Table),
    /// Lines in a monospace font.
    Code(Vec<String>),
    /// Lines that explain columns, then lines that explain signs in cells. A terminal shows the former only with
    /// `--explain`.
    Legend([Vec<String>; 2]),
    /// Sentences that explain figures. A terminal shows them only with `--explain`.
    Explanation(Vec<String>),
    Note(Vec<String>),
    Warnings(Vec<String>),
    /// Reasons why figures are unreliable.
    Unreliable(Vec<String>, Option<String>),
}

impl Medium {
    /// Returns the prefix of warnings.
    pub fn warning(self) -> &'static str {
        match self {
            Medium::Terminal { .. } => "warning",
            Medium::Markdown => "Warning",
        }
    }
}

/// Builds a section of results, with the trust in them below its title, given the number of problems of the folder. Warnings follow the figures on a terminal and
/// precede them on a page.
pub fn section(
    medium: Medium,
    mut title: Vec<String>,
    figures: Vec<Paragraph>,
    (assessment, problems): (Assessment, usize),
) -> Vec<Paragraph> {
    let trust = assessment.sentence(problems);
    let unreliable = unreliable(&assessment);
    let warnings = vec![unreliable, Paragraph::Warnings(assessment.warnings)];
    let parts = match medium {
        Medium::Terminal { width, .. } => {
            title.extend(wrapped(&trust, width, "").lines().map(str::to_owned));
            [Vec::new(), figures, warnings]
        }
        Medium::Markdown => [vec![Paragraph::Text(trust)], warnings, figures],
    };
    std::iter::once(Paragraph::Heading(title)).chain(parts.into_iter().flatten()).collect()
}

/// Returns the reasons why figures are unreliable, with the command that repeats the runs.
pub fn unreliable(assessment: &Assessment) -> Paragraph {
    let warnings = &assessment.reliability_warnings;
    Paragraph::Unreliable(reliability::reasons(warnings), reliability::repetition(warnings))
}

/// Returns the heading of a table at the end of a sweep: the first line of its title, and the trust in its figures.
pub fn summary_heading(title: Vec<String>, assessment: &Assessment, problems: usize) -> Paragraph {
    let trust = wrapped(&assessment.sentence(problems), WIDTH, "");
    Paragraph::Heading(title.into_iter().take(1).chain(trust.lines().map(str::to_owned)).collect())
}

/// Printed instead of explanations on a terminal.
const HINT: &str = "Meaning of the columns: --explain";

/// Renders paragraphs, separated by empty lines, without control characters.
pub fn render(paragraphs: &[Paragraph], medium: Medium) -> String {
    let is_explanation = |paragraph: &Paragraph| matches!(paragraph, Paragraph::Legend(_) | Paragraph::Explanation(_));
    let last_explanation = paragraphs.iter().rposition(is_explanation);
    let text = |(number, paragraph): (usize, &Paragraph)| match medium {
        Medium::Terminal { width, is_explained } => {
            let hint = (!is_explained && last_explanation == Some(number)).then_some(HINT);
            let text = terminal(paragraph, width, is_explained);
            let lines = [text.as_str()].into_iter().filter(|text| !text.is_empty()).chain(hint);
            lines.collect::<Vec<_>>().join("\n")
        }
        Medium::Markdown => markdown(paragraph),
    };
    let texts: Vec<String> = paragraphs.iter().enumerate().map(text).filter(|text| !text.is_empty()).collect();
    printable_lines(&(texts.join("\n\n") + "\n")).into_owned()
}

fn terminal(paragraph: &Paragraph, width: usize, is_explained: bool) -> String {
    let each =
        |word: &str, lines: &[String]| lines.iter().map(|line| format!("{word}{line}")).collect::<Vec<_>>().join("\n");
    let underlined = |title: &str, line: &str| format!("{title}\n{}", line.repeat(title.chars().count()));
    match paragraph {
        Paragraph::Title(_) | Paragraph::Links(_) => String::new(),
        Paragraph::Heading(lines) | Paragraph::Lines(lines) | Paragraph::Code(lines) => lines.join("\n"),
        Paragraph::Legend([columns, signs]) if is_explained => [&columns[..], signs].concat().join("\n"),
        Paragraph::Legend([_, signs]) => signs.join("\n"),
        Paragraph::Explanation(_) if !is_explained => String::new(),
        Paragraph::Chapter(title) => underlined(&printable(title), "="),
        Paragraph::Subchapter(title) => underlined(&printable(title), "-"),
        Paragraph::Caption(title, legend) if is_explained => format!("{title}\n({})", legend.join("\n")),
        Paragraph::Caption(title, _) => title.clone(),
        Paragraph::Text(text) => wrapped(text, width, ""),
        Paragraph::Sentences(all) | Paragraph::Explanation(all) => {
            all.iter().map(|sentence| wrapped(sentence, width, "  ")).collect::<Vec<_>>().join("\n")
        }
        Paragraph::Name(name, about) => [name.as_str(), about].join("\n").trim_end().to_owned(),
        Paragraph::Items(items) | Paragraph::Quotes(items) => each("- ", items),
        Paragraph::Table(table) => table.aligned(width),
        Paragraph::Note(lines) => {
            let text = format!("note: {}", lines.join("\n"));
            text.lines().map(|line| wrapped(line, width, "")).collect::<Vec<_>>().join("\n")
        }
        Paragraph::Warnings(lines) => each("warning: ", lines),
        Paragraph::Unreliable(lines, fix) => {
            let fix = fix.iter().map(|fix| format!("\n    fix: {fix}")).collect::<String>();
            each("warning: unreliable: ", lines) + &fix
        }
    }
}

fn markdown(paragraph: &Paragraph) -> String {
    let all = |word: &str, lines: &[String], separator: &str| {
        lines.iter().map(|line| word.to_owned() + &escaped(line)).collect::<Vec<_>>().join(separator)
    };
    match paragraph {
        Paragraph::Title(title) => format!("# {}", escaped(title)),
        Paragraph::Heading(lines) => match lines.split_first() {
            None => String::new(),
            Some((title, [])) => format!("## {}", escaped(title)),
            Some((title, about)) => format!("## {}\n\n{}", escaped(title), all("", about, "; ")),
        },
        Paragraph::Chapter(title) => format!("## {}", escaped(title)),
        Paragraph::Subchapter(title) => format!("### {}", escaped(title)),
        Paragraph::Caption(title, legend) => format!("{} ({}):", escaped(title), escaped(&legend.join(" "))),
        // Two trailing spaces are a line break.
        Paragraph::Lines(lines) | Paragraph::Sentences(lines) => all("", lines, "  \n"),
        Paragraph::Text(text) => escaped(text),
        Paragraph::Name(name, about) if about.is_empty() => format!("**{}**", escaped(name)),
        Paragraph::Name(name, about) => format!("**{}**: {}", escaped(name), escaped(about)),
        Paragraph::Items(items) => all("- ", items, "\n"),
        Paragraph::Quotes(items) => {
            items.iter().map(|item| format!("- `{}`", printable(item).replace('`', "'"))).collect::<Vec<_>>().join("\n")
        }
        Paragraph::Links(links) => {
            let link = |(text, address): &(String, String)| format!("[{}]({})", escaped(text), escaped(address));
            links.iter().map(link).collect::<Vec<_>>().join(" ")
        }
        Paragraph::Table(table) => table.markdown(),
        // A fence inside the block would end it.
        Paragraph::Code(lines) => format!("```text\n{}\n```", lines.join("\n").replace("```", "'''")),
        Paragraph::Legend([columns, signs]) => all("", &[&columns[..], signs].concat(), "\n"),
        Paragraph::Explanation(sentences) => all("", sentences, " "),
        Paragraph::Note(lines) => format!("**Note:** {}", all("", lines, " ")),
        Paragraph::Warnings(lines) => all("**Warning:** ", lines, "\n\n"),
        Paragraph::Unreliable(lines, fix) => {
            let fix = fix.iter().map(|fix| format!("\n\nFix: {}", escaped(fix))).collect::<String>();
            all("**Warning (unreliable):** ", lines, "\n\n") + &fix
        }
    }
}

/// Breaks text between words into lines of `width` columns; lines from the second on begin with `indent`.
pub fn wrapped(text: &str, width: usize, indent: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_first = lines.is_empty();
        match lines.last_mut().filter(|line| line.chars().count() + 1 + word.chars().count() <= width) {
            Some(line) => line.extend([" ", word]),
            None => lines.push(format!("{}{word}", if is_first { "" } else { indent })),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_between_words() {
        assert_eq!(wrapped("one two three", 7, ""), "one two\nthree");
        assert_eq!(wrapped("one two three", 7, "  "), "one two\n  three");
        assert_eq!(wrapped("", 7, ""), "");
        let word = "x".repeat(100);
        assert_eq!(wrapped(&format!("a {word} b c"), 80, ""), format!("a\n{word}\nb c"));
    }
}
