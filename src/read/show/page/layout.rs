//! Which blocks of a section stand side by side on a wide screen. Sizes are estimated: what does not fit after all is
//! scrolled in its place. Not for how it is drawn, nor for narrow screens and paper, where everything is one column.

use crate::read::show::page::charts::Chart;
use crate::read::show::page::document::Block;
use crate::read::show::table::{Column, Row, Table};

/// Pixels of a column where two stand on the narrowest screen that has two.
const HALF: f64 = 504.0;

/// Pixels of a letter in a table, about, of the space between its columns, and of the narrowest bars.
const LETTER: f64 = 7.8;
const SPACE: f64 = 14.0;
const BARS: f64 = 70.0;

/// Letters from which words in a table are broken.
pub const LONG: usize = 32;

/// Letters of a line of text in a column.
const LINE: usize = 64;

/// Charts of a row that fit below each other in a column.
const CHARTS: usize = 2;

/// Rows up to which a table may stand.
const FEW: usize = 3;

/// Where a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In both columns.
    Whole,
    /// In one column; the block before or after it is in the other.
    Half,
    /// In both columns: its chart in one, its table in the other.
    Beside,
}

impl Place {
    /// Class of the block.
    pub fn class(self) -> Option<&'static str> {
        match self {
            Place::Whole => None,
            Place::Half => Some("half"),
            Place::Beside => Some("beside"),
        }
    }
}

/// One a block: those that fit stand in pairs, and what remains has its table beside its chart.
pub fn places(blocks: &[Block]) -> Vec<Place> {
    let mut places = Vec::new();
    while let Some(block) = blocks.get(places.len()) {
        let next = blocks.get(places.len() + 1);
        if !fits(block) {
            places.push(Place::Whole);
        } else if next.is_some_and(fits) {
            places.extend([Place::Half; 2]);
        } else {
            places.push(if has_one_chart(block) { Place::Beside } else { Place::Whole });
        }
    }
    places
}

/// Whether its table is turned, a line a column, because it is too wide for a column of the page.
pub fn is_turned(table: &Table, place: Place) -> bool {
    place != Place::Whole && width(table) > HALF
}

fn has_one_chart(block: &Block) -> bool {
    block.charts.iter().flatten().count() == 1 && block.table.is_some()
}

/// Whether all of a block fits into one column.
fn fits(block: &Block) -> bool {
    let narrow = |charts: &Vec<Chart>| charts.len() <= CHARTS && !charts.iter().any(needs_the_width);
    block.charts.iter().all(narrow)
        && block.charts.len() <= CHARTS
        && block.lines.iter().all(|line| line.chars().count() <= LINE)
        && block.table.as_ref().is_none_or(|table| width(table) <= HALF || can_be_turned(table))
}

fn needs_the_width(chart: &Chart) -> bool {
    match chart {
        Chart::Timeline(_) | Chart::Spans(_) => true,
        Chart::Lines(_) | Chart::Bars(_) | Chart::Stack(_) | Chart::Ranks(_) | Chart::Waterfall(_) => false,
    }
}

fn can_be_turned(table: &Table) -> bool {
    (1..=FEW).contains(&table.rows.len()) && turned_width(table) <= HALF
}

fn pixels(letters: usize) -> f64 {
    LETTER * letters.min(LONG) as f64 + SPACE
}

/// Of a column's name and its unit, which stands below it, or behind it where the table is turned.
fn head(column: &Column) -> [usize; 2] {
    [&column.name, &column.unit].map(|word| word.chars().count())
}

fn cell(row: &Row, index: usize) -> usize {
    row.cells.get(index).map_or(0, |cell| cell.chars().count())
}

/// Of a row under the other.
fn width(table: &Table) -> f64 {
    let column = |(index, column): (usize, &Column)| {
        pixels(table.rows.iter().map(|row| cell(row, index)).chain(head(column)).max().unwrap_or(0))
    };
    let bars = if table.bars.is_some() && table.longest_bar() > 0.0 { BARS } else { 0.0 };
    table.columns.iter().enumerate().map(column).sum::<f64>() + bars
}

/// Of a row beside the other: the names of the columns, and what each row has of them.
fn turned_width(table: &Table) -> f64 {
    let names = pixels(table.columns.iter().map(|column| head(column).iter().sum::<usize>() + 1).max().unwrap_or(0));
    let row = |row: &Row| pixels((0..table.columns.len()).map(|index| cell(row, index)).max().unwrap_or(0));
    names + table.rows.iter().map(row).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::show::page::charts::waterfall::Waterfall;

    fn chart() -> Chart {
        let end = || ("step".to_owned(), 1.0);
        let [title, description, axis] = [const { String::new() }; 3];
        Chart::Waterfall(Waterfall {
            title,
            description,
            axis,
            from: end(),
            parts: Vec::new(),
            to: end(),
            is_doubtful: false,
        })
    }

    fn table(columns: usize, rows: usize) -> Table {
        let row = Row { cells: vec!["1234.56".to_owned(); columns], bar: Some(1.0), ..Row::default() };
        Table { columns: vec![Column::numbers("waiting", "ms"); columns], rows: vec![row; rows], bars: Some("waiting") }
    }

    fn block(charts: usize, table: Table) -> Block {
        let charts = vec![vec![chart(); charts]];
        Block { charts, table: Some(table), ..Block::new("block", "") }
    }

    #[test]
    fn what_fits_stands_in_pairs_and_what_needs_the_width_has_it() {
        let (small, wide) = (|| block(1, table(3, 30)), || block(1, table(9, 30)));
        use Place::{Beside, Half, Whole};
        for (blocks, expected) in [
            (vec![], vec![]),
            (vec![small(), small()], vec![Half, Half]),
            (vec![small(), small(), small()], vec![Half, Half, Beside]),
            (vec![wide(), small(), small(), wide()], vec![Whole, Half, Half, Whole]),
            (vec![small(), wide(), small()], vec![Beside, Whole, Beside]),
            (vec![block(3, table(2, 2)), block(2, table(2, 2))], vec![Whole; 2]),
            (vec![Block::new("nothing", "")], vec![Whole]),
        ] {
            assert_eq!(places(&blocks), expected);
        }
    }

    #[test]
    fn a_wide_table_of_few_rows_is_turned_where_it_has_half_the_page() {
        let [few, many, narrow] = [table(9, 2), table(9, 30), table(3, 2)];
        assert_eq!(places(&[block(1, few.clone())]), [Place::Beside]);
        assert!(is_turned(&few, Place::Beside) && is_turned(&few, Place::Half) && !is_turned(&few, Place::Whole));
        assert_eq!(places(&[block(1, many)]), [Place::Whole]);
        assert!(!is_turned(&narrow, Place::Half));
    }
}
