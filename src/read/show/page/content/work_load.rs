//! What the division of the batch cost, where `--work-load` divided it unevenly.

use crate::read::show::page::content::series::{Series, Setting};
use crate::read::show::page::document::{Block, Column, Row, Table};
use crate::read::show::work_load::{HEADERS, LEGEND, TITLE, rows};

/// One a series; none where no case had several ranks with uneven work.
pub fn blocks(setting: &Setting) -> Vec<Block> {
    let block = |series: &Series| {
        let rows: Vec<Row> = rows(series.group)
            .into_iter()
            .map(|(cells, is_doubtful)| Row { cells, style: Some(series.style), is_doubtful, ..Row::default() })
            .collect();
        let title = if setting.series.len() > 1 { format!("{TITLE}: {}", series.name) } else { TITLE.to_owned() };
        let column = |(name, unit): (&'static str, &'static str)| match name {
            "case" => Column::text(name),
            _ => Column::numbers(name, unit),
        };
        let table = Table { columns: HEADERS.map(column).into(), rows, bars: None };
        (!table.rows.is_empty()).then(|| Block { table: Some(table), ..Block::new(title, LEGEND.join(" ")) })
    };
    setting.series.iter().filter_map(block).collect()
}
