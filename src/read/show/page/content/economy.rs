//! Power, energy and money of every case.

use std::collections::BTreeSet;

use crate::read::analyse::energy;
use crate::read::show::economy;
use crate::read::show::page::content::series::{Series, Setting};
use crate::read::show::page::document::{Block, Column, Row, Table};

/// One a series, with the columns of [`economy::columns`]. None where neither power nor a price is known.
pub fn blocks(setting: &Setting) -> Vec<Block> {
    setting.series.iter().filter_map(|series| block(setting, series)).collect()
}

fn block(setting: &Setting, series: &Series) -> Option<Block> {
    let (columns, legend) = economy::columns(series.group, series.price)?;
    let row = |cells: &Vec<String>| Row { cells: cells.clone(), style: Some(series.style), ..Row::default() };
    let header = |(index, (name, unit)): (usize, &(String, String))| match (index, unit.is_empty()) {
        (0, _) => Column::text(name),
        (_, true) => Column::numbers(name, ""),
        (_, false) => Column::numbers(format!("{name}, {unit}"), ""),
    };
    let table = Table {
        columns: columns.headers.iter().enumerate().map(header).collect(),
        rows: columns.rows.iter().map(row).collect(),
        bars: None,
    };
    let parts = series.group.cases.iter().filter_map(energy::of_case).flat_map(|energy| energy.of);
    let parts: BTreeSet<String> = parts.collect();
    let of = match parts.is_empty() {
        true => String::new(),
        false => format!(" Power here: {}.", parts.into_iter().collect::<Vec<_>>().join(", ")),
    };
    let price = series.price.map(|price| format!(" At {price}.")).unwrap_or_default();
    let title = if setting.series.len() > 1 {
        format!("{} of {}", economy::TITLE, series.name)
    } else {
        economy::TITLE.to_owned()
    };
    Some(Block { table: Some(table), reading: format!("{}{of}{price}", legend.join(" ")), ..Block::new(title, "") })
}
