//! The report without charts: Markdown, and tables for a terminal, with a bar behind each row.

use ringmark_record::untrusted_text::printable;

use crate::output::strip_control_characters;
use crate::read::show::columns::{Columns, aligned, escaped, piped};
use crate::read::show::page::document::{Block, Column, Document, Figure, Headline, Link, Row, Table};
use crate::read::show::sections::marked;

/// Longest bar of a table in Markdown.
const BAR: usize = 20;

/// Shortest and longest bar on a terminal.
const BARS: [usize; 2] = [8, 40];

/// For a terminal of so many columns.
pub fn terminal(document: &Document, width: usize) -> String {
    let mut paragraphs = Vec::new();
    for headline in &document.headlines {
        let lines = [trust(headline)].into_iter().chain(headline.conclusion.clone());
        let lines = lines.chain(headline.figures.iter().map(figure)).collect::<Vec<_>>().join("\n  ");
        paragraphs.push(format!("{}\n{}\n\n  {lines}", headline.name, headline.what));
    }
    paragraphs.extend(document.provenance.iter().filter_map(|line| wrapped(line, width)));
    for findings in &document.findings {
        let lines = findings.lines.iter().map(|line| format!("- {line}")).collect::<Vec<_>>().join("\n");
        paragraphs.push(format!("{}\n{lines}", findings.title));
    }
    for section in &document.sections {
        paragraphs.push(underlined(&section.title, '='));
        paragraphs.extend(wrapped(&section.note, width));
        for block in &section.blocks {
            paragraphs.push(underlined(&block.title, '-'));
            paragraphs.extend(wrapped(&block.note, width));
            paragraphs.extend(block.table.as_ref().map(|table| with_bars(table, width)));
            paragraphs.extend(lines(block));
        }
    }
    strip_control_characters(&(paragraphs.join("\n\n") + "\n"))
}

/// For a page of Markdown.
pub fn markdown(document: &Document) -> String {
    let mut paragraphs = vec![format!("# {}", escaped(&document.title))];
    paragraphs.extend(
        (!document.provenance.is_empty())
            .then(|| document.provenance.iter().map(|line| escaped(line)).collect::<Vec<_>>().join("  \n")),
    );
    let link = |link: &Link| format!("[{}]({})", escaped(&link.text), escaped(&link.address));
    paragraphs
        .extend((!document.links.is_empty()).then(|| document.links.iter().map(link).collect::<Vec<_>>().join(" ")));
    for headline in &document.headlines {
        let lines = [trust(headline)].into_iter().chain(headline.conclusion.clone());
        let lines = lines.chain(headline.figures.iter().map(figure)).map(|line| format!("- {}", escaped(&line)));
        let lines = lines.collect::<Vec<_>>().join("\n");
        let (name, what) = (escaped(&headline.name), escaped(&headline.what));
        paragraphs.push(format!("**{name}**: {what}\n\n{lines}"));
    }
    for findings in &document.findings {
        let lines = findings.lines.iter().map(|line| format!("- {}", escaped(line))).collect::<Vec<_>>().join("\n");
        paragraphs.push(format!("**{}**\n\n{lines}", escaped(&findings.title)));
    }
    for section in &document.sections {
        paragraphs.push(format!("## {}", escaped(&section.title)));
        paragraphs.extend((!section.note.is_empty()).then(|| escaped(&section.note)));
        for block in &section.blocks {
            paragraphs.push(format!("### {}", escaped(&block.title)));
            paragraphs.extend((!block.note.is_empty()).then(|| escaped(&block.note)));
            paragraphs.extend(block.table.as_ref().map(table_of_markdown));
            // No line of a topology begins with a fence; one that did would end the block and no more.
            paragraphs.extend(lines(block).map(|text| format!("```text\n{}\n```", text.replace("```", "'''"))));
        }
    }
    paragraphs.join("\n\n") + "\n"
}

fn figure(figure: &Figure) -> String {
    let unit = if figure.unit.is_empty() { String::new() } else { format!(" {}", figure.unit) };
    let parts = figure.large_parts().into_iter().map(|(_, text)| text);
    let notes = Some(figure.note.clone()).filter(|note| !note.is_empty()).into_iter().chain(parts);
    let notes = notes.collect::<Vec<_>>().join(", ");
    let note = if notes.is_empty() { String::new() } else { format!(" ({notes})") };
    format!("{}: {}{note}", figure.label, marked(format!("{}{unit}", figure.value), figure.is_doubtful))
}

fn trust(headline: &Headline) -> String {
    format!("{}: {}", headline.trust.text(), headline.reasons.join("; "))
}

fn lines(block: &Block) -> Option<String> {
    (!block.lines.is_empty()).then(|| block.lines.join("\n"))
}

fn underlined(title: &str, line: char) -> String {
    format!("{title}\n{}", line.to_string().repeat(title.chars().count()))
}

/// In lines of so many columns, broken between words; `None` of nothing.
fn wrapped(text: &str, width: usize) -> Option<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| line.chars().count() + 1 + word.chars().count() <= width) {
            Some(line) => *line = format!("{line} {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Aligned columns, those that matter less left out where there is no space, and bars in the space that is left.
fn with_bars(table: &Table, width: usize) -> String {
    let text = |with: fn(&Column) -> bool| aligned(&columns(table, with, None, one_line));
    let columns_of = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let mut shown = text(|_| true);
    if columns_of(&shown) + 2 + BARS[0] > width {
        shown = text(|column| !column.is_minor);
    }
    let used = columns_of(&shown);
    let room = width.saturating_sub(used + 2).min(BARS[1]);
    let longest = table.longest_bar();
    if room < BARS[0] || longest <= 0.0 || table.bars.is_none() {
        return shown;
    }
    // Behind the lines of the header, which are as many as it has rows less than lines.
    let header = shown.lines().count().saturating_sub(table.rows.len());
    let with_bar = |(index, line): (usize, &str)| {
        let row = index.checked_sub(header).and_then(|row| table.rows.get(row));
        let bar = row.and_then(|row| row.bar).map(|length| bar(length / longest, room)).unwrap_or_default();
        if bar.is_empty() { line.to_owned() } else { format!("{line:used$}  {bar}") }
    };
    shown.lines().enumerate().map(with_bar).collect::<Vec<_>>().join("\n")
}

fn table_of_markdown(table: &Table) -> String {
    let longest = table.longest_bar();
    let bars = (longest > 0.0 && table.bars.is_some()).then_some(longest);
    piped(&columns(table, |_| true, bars, |text| escaped(&one_line(text))))
}

/// Those columns that are wanted, each cell through `cell`, and one of bars where there is a longest.
fn columns(table: &Table, wanted: fn(&Column) -> bool, bars: Option<f64>, cell: fn(&str) -> String) -> Columns {
    let shown: Vec<usize> = (0..table.columns.len()).filter(|index| wanted(&table.columns[*index])).collect();
    let mut headers: Vec<(&str, &str)> =
        shown.iter().map(|index| (table.columns[*index].name.as_str(), table.columns[*index].unit)).collect();
    let mut of_text: Vec<usize> = (0..shown.len()).filter(|place| table.columns[shown[*place]].is_text).collect();
    if bars.is_some() {
        headers.push((table.bars.unwrap_or_default(), "bar"));
        of_text.push(shown.len());
    }
    let row = |row: &Row| -> Vec<String> {
        let cells = shown.iter().map(|index| cell(row.cells.get(*index).map_or("", String::as_str)));
        let bar = bars.map(|longest| row.bar.map(|length| bar(length / longest, BAR)).unwrap_or_default());
        cells.chain(bar).collect()
    };
    Columns::new(&headers, table.rows.iter().map(row).collect()).with_text(of_text)
}

/// Names come from files: none may break a table, or look like markup.
fn one_line(text: &str) -> String {
    printable(text).replace('|', "\u{2502}")
}

/// `share` of so many columns, to an eighth of one; something is shown of everything above 0.
pub fn bar(share: f64, columns: usize) -> String {
    const PARTS: [&str; 8] = ["", "\u{258f}", "\u{258e}", "\u{258d}", "\u{258c}", "\u{258b}", "\u{258a}", "\u{2589}"];
    if share.is_nan() || share <= 0.0 {
        return String::new();
    }
    let eighths = ((share.min(1.0) * columns as f64 * 8.0).round() as usize).max(1);
    "\u{2588}".repeat(eighths / 8) + PARTS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(0.5, 4), "██");
        assert_eq!(bar(0.53, 4), "██▏");
        assert_eq!(bar(1e-9, 4), "▏");
        assert_eq!([bar(0.0, 4), bar(f64::NAN, 4), bar(-1.0, 4)], ["", "", ""]);
        assert_eq!(bar(f64::INFINITY, 4), "████");
    }

    fn table() -> Table {
        let row = |name: &str, value: f64| Row {
            cells: vec![name.to_owned(), "minor".to_owned(), format!("{value}")],
            bar: Some(value),
            ..Row::default()
        };
        Table {
            columns: vec![Column::text("case"), Column::text("place").minor(), Column::numbers("speed", "images/s")],
            rows: vec![row("1n1g", 1.0), row("1n2g", 2.0), row("none", f64::NAN)],
            bars: Some("speed"),
        }
    }

    #[test]
    fn bars_fill_what_room_there_is() {
        let wide = with_bars(&table(), 33);
        assert!(wide.lines().any(|line| line.ends_with("2  ██████████")), "{wide}");
        assert!(wide.lines().any(|line| line.ends_with("1  █████")), "{wide}");
        assert!(wide.lines().all(|line| line.chars().count() <= 33), "{wide}");
        let narrow = with_bars(&table(), 26);
        assert!(!narrow.contains("minor") && narrow.contains("  ██████████"), "{narrow}");
        assert!(!with_bars(&table(), 15).contains('█'));
    }

    #[test]
    fn markdown_has_a_column_of_bars() {
        let text = table_of_markdown(&table());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("speed (bar)") && lines[1].ends_with("-|"), "{text}");
        assert!(lines[3].contains("████████████████████ |"), "{text}");
        assert_eq!(lines.iter().map(|line| line.matches('|').count()).collect::<Vec<_>>(), [5; 5]);
    }

    #[test]
    fn names_break_neither_tables_nor_pages() {
        assert_eq!(one_line("a|b\nc"), "a│b c");
        assert_eq!(escaped("<script>\n&"), "&lt;script> &amp;");
        let wide = wrapped("one two three", 7).expect("text");
        assert_eq!(wide, "one two\nthree");
        assert_eq!(wrapped("", 7), None);
    }
}
