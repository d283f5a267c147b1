//! Layout of the blocks of a section on a wide screen. Sizes are estimates; content that does not fit after all
//! scrolls. Narrow screens and paper have a single column.

use crate::output::table::{Column, Row, Table};
use crate::read::show::page::charts::Chart;
use crate::read::show::page::document::Block;

/// Width of a column in pixels, on the narrowest screen with two columns.
const HALF: f64 = 504.0;

/// Approximate widths in pixels: a letter in a table, the space between columns, the narrowest bars.
const LETTER: f64 = 7.8;
const SPACE: f64 = 14.0;
const BARS: f64 = 70.0;

/// Number of letters from which text in a table is wrapped.
pub const LONG: usize = 32;

/// Maximum number of letters of a preformatted line in a column.
const LINE: usize = 64;

/// Maximum number of charts below each other in a column.
const CHARTS: usize = 2;

/// Maximum number of hosts of a matrix in a column.
const HOSTS: usize = 12;

/// Maximum number of rows of a transposed table.
const FEW: usize = 3;

/// Layout of a block on a page with two columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockLayout {
    /// Both columns.
    Whole,
    /// One column; the previous or next block is in the other.
    Half,
    /// Both columns: chart in one, table in the other.
    Beside,
}

impl BlockLayout {
    pub fn class(self) -> Option<&'static str> {
        match self {
            BlockLayout::Whole => None,
            BlockLayout::Half => Some("half"),
            BlockLayout::Beside => Some("beside"),
        }
    }
}

/// Returns the layout of each block: blocks that fit into a column are paired; a remaining one has its table beside its
/// chart.
pub fn layouts(blocks: &[Block]) -> Vec<BlockLayout> {
    let mut layouts = Vec::new();
    while let Some(block) = blocks.get(layouts.len()) {
        let next = blocks.get(layouts.len() + 1);
        if !fits(block) {
            layouts.push(BlockLayout::Whole);
        } else if next.is_some_and(fits) {
            layouts.extend([BlockLayout::Half; 2]);
        } else {
            layouts.push(if has_one_chart(block) { BlockLayout::Beside } else { BlockLayout::Whole });
        }
    }
    layouts
}

/// Returns true if the table is transposed because it is too wide for a column.
pub fn is_turned(table: &Table, layout: BlockLayout) -> bool {
    layout != BlockLayout::Whole && width(table) > HALF
}

fn has_one_chart(block: &Block) -> bool {
    block.charts.iter().flatten().count() == 1 && block.table.is_some()
}

fn fits(block: &Block) -> bool {
    let narrow = |charts: &Vec<Chart>| charts.len() <= CHARTS && !charts.iter().any(needs_the_width);
    block.charts.iter().all(narrow)
        && block.charts.len() <= CHARTS
        && block.lines.iter().all(|line| line.chars().count() <= LINE)
        && block.table.as_ref().is_none_or(|table| width(table) <= HALF || can_be_turned(table))
}

fn needs_the_width(chart: &Chart) -> bool {
    match chart {
        Chart::StepTimes(_) | Chart::Spans(_) => true,
        Chart::Matrix(chart) => chart.names.len() > HOSTS,
        Chart::Lines(_) | Chart::Bars(_) | Chart::Stack(_) | Chart::Ranks(_) | Chart::Waterfall(_) => false,
    }
}

fn can_be_turned(table: &Table) -> bool {
    (1..=FEW).contains(&table.rows.len()) && turned_width(table) <= HALF
}

fn pixels(letters: usize) -> f64 {
    LETTER * letters.min(LONG) as f64 + SPACE
}

/// Returns the lengths of a column's name and unit; the unit is below the name, or behind it in a transposed table.
fn head(column: &Column) -> [usize; 2] {
    [&column.name, &column.unit].map(|word| word.chars().count())
}

fn cell(row: &Row, index: usize) -> usize {
    row.cells.get(index).map_or(0, |cell| cell.chars().count())
}

/// Returns the width of the table in pixels.
fn width(table: &Table) -> f64 {
    let column = |(index, column): (usize, &Column)| {
        pixels(table.rows.iter().map(|row| cell(row, index)).chain(head(column)).max().unwrap_or(0))
    };
    let bars = if table.bars.is_some() && table.longest_bar() > 0.0 { BARS } else { 0.0 };
    table.columns.iter().enumerate().map(column).sum::<f64>() + bars
}

/// Returns the width of the transposed table in pixels: the names of the columns, then each row.
fn turned_width(table: &Table) -> f64 {
    let names = pixels(table.columns.iter().map(|column| head(column).iter().sum::<usize>() + 1).max().unwrap_or(0));
    let row = |row: &Row| pixels((0..table.columns.len()).map(|index| cell(row, index)).max().unwrap_or(0));
    names + table.rows.iter().map(row).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::show::page::charts::matrix::MatrixChart;
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
    fn small_blocks_are_paired_and_wide_ones_are_not() {
        let (small, wide) = (|| block(1, table(3, 30)), || block(1, table(9, 30)));
        use BlockLayout::{Beside, Half, Whole};
        for (blocks, expected) in [
            (vec![], vec![]),
            (vec![small(), small()], vec![Half, Half]),
            (vec![small(), small(), small()], vec![Half, Half, Beside]),
            (vec![wide(), small(), small(), wide()], vec![Whole, Half, Half, Whole]),
            (vec![small(), wide(), small()], vec![Beside, Whole, Beside]),
            (vec![block(3, table(2, 2)), block(2, table(2, 2))], vec![Whole; 2]),
            (vec![Block::new("nothing", "")], vec![Whole]),
        ] {
            assert_eq!(layouts(&blocks), expected);
        }
    }

    #[test]
    fn matrix_of_few_hosts_is_paired() {
        let matrix = |hosts: usize| {
            let [title, description] = [const { String::new() }; 2];
            let names = vec![String::new(); hosts];
            let chart = MatrixChart { title, description, names, kinds: Vec::new(), cells: Vec::new() };
            Block { charts: vec![vec![Chart::Matrix(chart)]], ..Block::new("pairs", "") }
        };
        let stages = || block(0, table(3, 3));
        assert_eq!(layouts(&[matrix(8), stages()]), [BlockLayout::Half; 2]);
        assert_eq!(layouts(&[matrix(64), stages()]), [BlockLayout::Whole; 2]);
    }

    #[test]
    fn wide_table_is_transposed_at_half_width() {
        let [few, many, narrow] = [table(9, 2), table(9, 30), table(3, 2)];
        assert_eq!(layouts(&[block(1, few.clone())]), [BlockLayout::Beside]);
        assert!(
            is_turned(&few, BlockLayout::Beside)
                && is_turned(&few, BlockLayout::Half)
                && !is_turned(&few, BlockLayout::Whole)
        );
        assert_eq!(layouts(&[block(1, many)]), [BlockLayout::Whole]);
        assert!(!is_turned(&narrow, BlockLayout::Half));
    }
}
