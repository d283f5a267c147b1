//! Effect of uneven batch sizes per rank (`--work-load`).

use crate::read::show::page::content::series::{PageSeries, Setting};
use crate::read::show::page::document::Block;
use crate::read::show::work_load::{LEGEND, TITLE, table};

/// Returns a block for each series in which a case has several ranks with uneven work.
pub fn blocks(setting: &Setting) -> Vec<Block> {
    let block = |series: &PageSeries| {
        let table = table(series.group)?.with_style(series.style);
        Some(Block { table: Some(table), ..Block::new(setting.titled(TITLE, series), LEGEND.join(" ")) })
    };
    setting.series.iter().filter_map(block).collect()
}
