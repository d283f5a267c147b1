//! Tables of the terminal that the report shows unchanged: FLOP rates, uneven work, waits for sharded weights, and
//! checkpoints.

use crate::output::table::Table;
use crate::read::analyze::training::figures::TrainingGroup;
use crate::read::show::page::content::series::{PageSeries, Setting};
use crate::read::show::page::document::Block;
use crate::read::show::{checkpoints, utilization, weight_waits, work_load};

/// Returns a block for each series and table with rows.
pub fn blocks(setting: &Setting) -> Vec<Block> {
    let block = |series: &PageSeries, title: &str, note: String, table: Option<Table>| {
        let table = table?.with_style(series.style);
        Some(Block { table: Some(table), ..Block::new(setting.titled(title, series), note) })
    };
    let of_series = |series: &PageSeries| {
        let group: &TrainingGroup = series.group;
        let notes = weight_waits::notes(group).into_iter().map(|note| format!("{note}."));
        let note = std::iter::once(weight_waits::LEGEND.join(" ")).chain(notes).collect::<Vec<_>>().join(" ");
        let recompute = utilization::recompute_cost(group).map(|cost| format!(" {cost}.")).unwrap_or_default();
        let rates = utilization::tables(group).into_iter().enumerate().map(|(number, (title, legend, table))| {
            let recompute = if number == 0 { &recompute } else { "" };
            block(series, title, format!("{}.{recompute}", legend.join(" ")), Some(table))
        });
        let uneven = block(series, work_load::TITLE, work_load::LEGEND.join(" "), work_load::table(group));
        let waits = block(series, weight_waits::TITLE, note, weight_waits::table(group));
        let saved = block(series, checkpoints::TITLE, checkpoints::LEGEND.join(" "), checkpoints::table(group));
        rates.chain([uneven, waits, saved]).collect::<Vec<_>>()
    };
    setting.series.iter().flat_map(of_series).flatten().collect()
}
