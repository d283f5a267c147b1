//! Tables of text and numbers, aligned for a terminal or in Markdown.

// The names of most fields need no explanation.
#![allow(missing_docs)]

use comfy_table::presets::{ASCII_MARKDOWN, NOTHING};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle};
use ringmark_core::untrusted_text::printable;

/// Maximum length of a bar in Markdown.
const BAR: usize = 20;

/// Minimum and maximum length of a bar on a terminal.
const BARS: [usize; 2] = [8, 40];

/// Maximum width of text that is never wrapped, such as names.
const LONG: usize = 40;

/// Color and shape of a series in all charts and tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Index that selects the color, usually that of the result.
    pub color: usize,
    /// Index of the series, which selects marker and dashes.
    pub shape: usize,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    /// Name of the column whose values the bars show; `None` without bars.
    pub bars: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub name: String,
    /// `ms`; may be empty.
    pub unit: String,
    /// True for text, which is left-aligned and escaped; numbers are right-aligned.
    pub is_text: bool,
    /// True if a narrow terminal omits it.
    pub is_minor: bool,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Row {
    pub cells: Vec<String>,
    /// Length of its bar, in the unit of the column with bars.
    pub bar: Option<f64>,
    pub style: Option<Style>,
    /// True if it is highlighted.
    pub is_marked: bool,
    pub is_doubtful: bool,
}

impl Column {
    pub fn text(name: impl Into<String>) -> Column {
        Column { name: name.into(), unit: String::new(), is_text: true, is_minor: false }
    }

    pub fn numbers(name: impl Into<String>, unit: impl Into<String>) -> Column {
        Column { name: name.into(), unit: unit.into(), is_text: false, is_minor: false }
    }

    /// Marks the column as omitted on narrow terminals.
    pub fn minor(self) -> Column {
        Column { is_minor: true, ..self }
    }
}

impl From<Vec<String>> for Row {
    fn from(cells: Vec<String>) -> Row {
        Row { cells, ..Row::default() }
    }
}

impl Table {
    /// Creates a table without bars; `headers` are names and units. The first column contains text, the others numbers.
    pub fn new(headers: &[(&str, &str)], rows: Vec<impl Into<Row>>) -> Table {
        let column = |(name, unit): &(&str, &str)| Column::numbers(*name, *unit);
        let columns = headers.iter().map(column).collect();
        Table { columns, rows: rows.into_iter().map(Into::into).collect(), bars: None }.with_text(1)
    }

    /// Marks the first `number` columns as text.
    pub fn with_text(mut self, number: usize) -> Table {
        self.columns.iter_mut().take(number).for_each(|column| column.is_text = true);
        self
    }

    /// Removes the column of this name if no row has a value in it.
    pub fn without_empty(mut self, name: &str) -> Table {
        let index = self.columns.iter().position(|column| column.name == name);
        if let Some(index) = index.filter(|index| self.rows.iter().all(|row| row.cells[*index] == "-")) {
            self.columns.remove(index);
            self.rows.iter_mut().for_each(|row| drop(row.cells.remove(index)));
        }
        self
    }

    pub fn with_style(mut self, style: Style) -> Table {
        self.rows.iter_mut().for_each(|row| row.style = Some(style));
        self
    }

    /// Returns the length of the longest bar; 0 without bars.
    pub fn longest_bar(&self) -> f64 {
        self.rows.iter().filter_map(|row| row.bar).filter(|bar| bar.is_finite()).fold(0.0, f64::max)
    }

    /// Returns the columns of the table for a terminal of `width` columns; `None` is unlimited.
    pub fn shown_columns(&self, width: Option<usize>) -> impl Iterator<Item = &Column> {
        self.fitting_columns(width.unwrap_or(usize::MAX)).into_iter().map(|index| &self.columns[index])
    }

    /// Returns the indices of the columns for `width`: omits minor columns from the right until the table fits.
    fn fitting_columns(&self, width: usize) -> Vec<usize> {
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        while columns_of(&self.align(&shown, None)) > width {
            let Some(last) = shown.iter().rposition(|index| self.columns[*index].is_minor) else { break };
            shown.remove(last);
        }
        shown
    }

    /// Returns the table for a terminal of `width` columns: omits minor columns and wraps long text if the table is too
    /// wide, and draws bars in the remaining space.
    pub fn aligned(&self, width: usize) -> String {
        let columns = self.fitting_columns(width);
        let shown = self.align(&columns, None);
        let used = columns_of(&shown);
        if used > width {
            return self.align(&columns, Some(width));
        }
        let room = width.saturating_sub(used + 2).min(BARS[1]);
        let longest = self.longest_bar();
        if room < BARS[0] || longest <= 0.0 || self.bars.is_none() {
            return shown;
        }
        let header = shown.lines().count().saturating_sub(self.rows.len());
        let with_bar = |(index, line): (usize, &str)| {
            let row = index.checked_sub(header).and_then(|row| self.rows.get(row));
            let bar = row.and_then(|row| row.bar).map(|length| bar(length / longest, room)).unwrap_or_default();
            if bar.is_empty() { line.to_owned() } else { format!("{line:used$}  {bar}") }
        };
        shown.lines().enumerate().map(with_bar).collect::<Vec<_>>().join("\n")
    }

    /// Aligns the columns with these indices, with units below the names. Columns of long text are wrapped at `width`.
    fn align(&self, shown: &[usize], width: Option<usize>) -> String {
        let columns = || shown.iter().map(|index| &self.columns[*index]);
        let has_units = columns().any(|column| !column.unit.is_empty());
        let header = |Column { name, unit, .. }: &Column| match has_units {
            true => format!("{name}\n{unit}"),
            false => name.clone(),
        };
        let row = |row: &Row| shown.iter().map(|index| cell(row, *index)).collect::<Vec<_>>();
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING.header_separator(LineStyle::none().fill('-')));
        table.set_header(columns().map(header)).add_rows(self.rows.iter().map(row));
        if let Some(width) = width {
            let width = u16::try_from(width).unwrap_or(u16::MAX);
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        for ((position, column), index) in table.column_iter_mut().enumerate().zip(shown) {
            column.set_padding((if position == 0 { 0 } else { 2 }, 0));
            let is_text = self.columns[*index].is_text;
            if !is_text {
                column.set_cell_alignment(CellAlignment::Right);
            }
            if !is_text || self.rows.iter().all(|row| columns_of(&cell(row, *index)) <= LONG) {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        table.trim_fmt()
    }

    /// Returns the table in Markdown, with one header line, and a column of bars if there are any.
    pub fn markdown(&self) -> String {
        let longest = self.longest_bar();
        let bars = self.bars.filter(|_| longest > 0.0);
        let header = |Column { name, unit, .. }: &Column| match unit.as_str() {
            "" => escaped(name),
            unit => format!("{} ({})", escaped(name), escaped(unit)),
        };
        let row = |row: &Row| {
            let cells = self.columns.iter().enumerate().map(|(index, column)| match column.is_text {
                true => escaped(&cell(row, index)),
                false => cell(row, index),
            });
            let bar = || row.bar.map(|length| bar(length / longest, BAR)).unwrap_or_default();
            cells.chain(bars.map(|_| bar())).collect::<Vec<_>>()
        };
        let headers = self.columns.iter().map(header).chain(bars.map(|name| format!("{name} (bar)")));
        let is_number = |index: usize| self.columns.get(index).is_some_and(|column| !column.is_text);
        let mut table = comfy_table::Table::new();
        table.load_style(ASCII_MARKDOWN);
        table.set_header(headers).add_rows(self.rows.iter().map(row));
        for (_, column) in table.column_iter_mut().enumerate().filter(|(index, _)| is_number(*index)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut lines: Vec<String> = table.lines().collect();
        if let Some(line) = lines.get_mut(1) {
            let rule = |(index, rule): (usize, &str)| match is_number(index) {
                true => rule[1..].to_owned() + ":",
                false => rule.to_owned(),
            };
            let rules = line.trim_matches('|').split('|').enumerate().map(rule);
            *line = format!("|{}|", rules.collect::<Vec<_>>().join("|"));
        }
        lines.join("\n")
    }
}

/// Returns the number of terminal columns of a text.
fn columns_of(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

/// Returns a cell without line breaks and column separators: names come from files.
fn cell(row: &Row, index: usize) -> String {
    printable(row.cells.get(index).map_or("", String::as_str)).replace('|', "\u{2502}")
}

/// Escapes text for Markdown: a name from a file must not become an image, a link or HTML.
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

/// Draws a bar over `share` of `columns`, in steps of an eighth; a value above 0 has at least one step.
fn bar(share: f64, columns: usize) -> String {
    const PARTS: [&str; 8] = ["", "\u{258f}", "\u{258e}", "\u{258d}", "\u{258c}", "\u{258b}", "\u{258a}", "\u{2589}"];
    if share.is_nan() || share <= 0.0 {
        return String::new();
    }
    let eighths = ((share.min(1.0) * columns as f64 * 8.0).round() as usize).max(1);
    "\u{2588}".repeat(eighths / 8) + PARTS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn bar_length_is_its_share() {
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
    fn bars_fill_the_available_width() {
        let wide = table().aligned(33);
        assert!(wide.lines().any(|line| line.ends_with("2  ██████████")), "{wide}");
        assert!(wide.lines().any(|line| line.ends_with("1  █████")), "{wide}");
        assert!(wide.lines().all(|line| line.chars().count() <= 33), "{wide}");
        // Columns need the space before bars do.
        for (width, is_shown) in [(26, true), (21, true), (20, false), (15, false)] {
            let narrow = table().aligned(width);
            assert!(narrow.contains("minor") == is_shown && !narrow.contains('█'), "{narrow}");
        }
    }

    #[test]
    fn minor_columns_are_omitted_from_the_right() {
        let minor = |name: &str| Column::numbers(name, "").minor();
        let columns = vec![Column::text("case"), minor("low"), minor("high"), Column::numbers("speed", "")];
        let table = Table { columns, rows: vec![Row::default()], bars: None };
        let names = |width| table.shown_columns(width).map(|column| column.name.as_str()).collect::<Vec<_>>();
        assert_eq!(names(None), ["case", "low", "high", "speed"]);
        assert_eq!(names(Some(20)), ["case", "low", "speed"]);
        assert_eq!([names(Some(15)), names(Some(1))], [["case", "speed"]; 2]);
    }

    #[test]
    fn long_text_of_a_wide_table_is_wrapped() {
        let cells = ["link n1 - n2", "the job failed: no route to host: check the cable", "1,234"];
        let headers = [("part", ""), ("evidence", ""), ("count", "")];
        let table = Table::new(&headers, vec![cells.map(str::to_owned).to_vec()]).with_text(2);
        expect![[r#"
            part          evidence                                           count
            ----------------------------------------------------------------------
            link n1 - n2  the job failed: no route to host: check the cable  1,234"#]]
        .assert_eq(&table.aligned(80));
        expect![[r#"
            part          evidence                       count
            --------------------------------------------------
            link n1 - n2  the job failed: no route to    1,234
                          host: check the cable"#]]
        .assert_eq(&table.aligned(50));
    }

    #[test]
    fn markdown_has_a_column_of_bars() {
        let text = table().markdown();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("speed (bar)") && lines[1].ends_with("-|"), "{text}");
        assert!(lines[3].contains("████████████████████ |"), "{text}");
        assert_eq!(lines.iter().map(|line| line.matches('|').count()).collect::<Vec<_>>(), [5; 5]);
    }

    #[test]
    fn names_in_tables_are_escaped() {
        assert_eq!(cell(&vec!["a|b\nc".to_owned()].into(), 0), "a│b c");
        assert_eq!(escaped("<script>\n&"), "&lt;script> &amp;");
    }
}
