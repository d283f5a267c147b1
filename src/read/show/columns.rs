//! A table before it is known where it is shown: names, units and cells, as aligned columns for a terminal or in Markdown.

use std::collections::BTreeSet;

use comfy_table::presets::{ASCII_MARKDOWN, NOTHING};
use comfy_table::{CellAlignment, LineStyle, Table};
use ringmark_record::untrusted_text::printable;

/// A column's name, and its unit where it has one (a speedup's is its base, where that is not 1n1g).
type Header = (String, String);

/// A table before it is known where it is shown.
pub struct Columns {
    /// Of every column.
    pub headers: Vec<Header>,
    /// Cells of every line.
    pub rows: Vec<Vec<String>>,
    /// Columns of text, which stand on the left; numbers stand on the right.
    text: BTreeSet<usize>,
}

impl Columns {
    /// Text in the first column, numbers in the others.
    pub fn new(headers: &[(&str, &str)], rows: Vec<Vec<String>>) -> Columns {
        let headers = headers.iter().map(|(name, unit)| ((*name).to_owned(), (*unit).to_owned())).collect();
        Columns { headers, rows, text: BTreeSet::from([0]) }
    }

    /// The same with text in these columns.
    pub fn with_text(self, columns: impl IntoIterator<Item = usize>) -> Columns {
        Columns { text: columns.into_iter().collect(), ..self }
    }
}

/// `92.0`, of 0.92.
pub fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// For a terminal: units below the names, numbers to the right.
pub fn aligned(columns: &Columns) -> String {
    let has_units = columns.headers.iter().any(|(_, unit)| !unit.is_empty());
    let header = |(name, unit): &Header| if has_units { format!("{name}\n{unit}") } else { name.clone() };
    let headers = columns.headers.iter().map(header);
    let mut table = Table::new();
    table.load_style(NOTHING.header_separator(LineStyle::none().fill('-')));
    table.set_header(headers).add_rows(&columns.rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if index == 0 { 0 } else { 2 }, 0));
        if !columns.text.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// For Markdown: one line of headers, numbers to the right.
pub fn piped(columns: &Columns) -> String {
    let headers = columns.headers.iter().map(|(name, unit)| match unit.as_str() {
        "" => name.clone(),
        unit => format!("{name} ({unit})"),
    });
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(headers).add_rows(&columns.rows);
    let is_number = |index: &usize| !columns.text.contains(index);
    for (_, column) in table.column_iter_mut().enumerate().filter(|(index, _)| is_number(index)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut lines: Vec<String> = table.lines().collect();
    if let Some(line) = lines.get_mut(1) {
        let rules = line.trim_matches('|').split('|').enumerate();
        let rules =
            rules.map(|(index, rule)| if is_number(&index) { rule[1..].to_owned() + ":" } else { rule.to_owned() });
        *line = format!("|{}|", rules.collect::<Vec<_>>().join("|"));
    }
    lines.join("\n")
}

/// For Markdown, as text and nothing else: names come from files, and may be made to look like a picture or like HTML.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in printable(text).chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '\\' | '`' | '*' | '[' | '|' => escaped.extend(['\\', letter]),
            letter => escaped.push(letter),
        }
    }
    escaped
}
