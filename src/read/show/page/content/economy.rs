//! Power, energy and cost of every case.

use std::collections::BTreeSet;

use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::energy;
use crate::read::show::economy;
use crate::read::show::page::content::series::{PageSeries, Setting};
use crate::read::show::page::document::Block;

/// Returns a block for each series with known power or a price.
pub fn blocks(setting: &Setting) -> Vec<Block> {
    setting.series.iter().filter_map(|series| block(setting, series)).collect()
}

fn block(setting: &Setting, series: &PageSeries) -> Option<Block> {
    let (table, legend) = economy::table(series.group, series.price)?;
    let parts = series.group.cases.iter().filter_map(energy::case_energy).flat_map(|energy| energy.of);
    let parts: BTreeSet<String> = parts.collect();
    let of = match parts.is_empty() {
        true => String::new(),
        false => format!(" Measured power: {}.", parts.into_iter().collect::<Vec<_>>().join(", ")),
    };
    let price = series.price.map(|price| format!(" Price: {price}.")).unwrap_or_default();
    Some(Block {
        table: Some(table.with_style(series.style)),
        reading: format!("{}{of}{price}", legend.join(" ")),
        ..Block::new(setting.titled(economy::title(series.group.unit(), series.price.is_some()), series), "")
    })
}
