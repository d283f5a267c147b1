//! Rates by batch size published by MXNet next to the measured ones of the same networks.

use std::collections::BTreeSet;

use ringmark_core::dimension::Model;
use ringmark_core::number_text::four_digits;

use crate::output::table::{Column, Row, Table};
use crate::read::analyze::batch_sizes::BatchSeries;
use crate::read::analyze::published::Workload;
use crate::read::analyze::published::by_batch_size::{self, BATCH_SIZES, PublishedRow};
use crate::read::show::numbers::marked;
use crate::read::show::page::document::Block;
use crate::read::show::published::network;

/// Returns for each network the rows of `series` with the names of their results, then the published rows; `None` if
/// nothing was published for these networks.
pub fn block(workload: Workload, series: &[(&str, &BatchSeries)]) -> Option<Block> {
    let models: BTreeSet<Model> = series.iter().map(|(_, series)| series.model).collect();
    let rows = by_batch_size::rows(workload, &models);
    let mut shown = Vec::new();
    for model in models {
        let of_model: Vec<&PublishedRow> = rows.iter().filter(|row| row.model == model).collect();
        let Some(first) = of_model.first() else { continue };
        let own = series.iter().filter(|(_, series)| series.model == model);
        shown.extend(own.map(|(name, series)| measured(name, series, first)));
        shown.extend(of_model.into_iter().map(published_row));
    }
    let numbers = BATCH_SIZES.iter().map(|size| Column::numbers(size.to_string(), ""));
    let columns = ["network", "measured on"].map(Column::text).into_iter().chain(numbers).collect();
    let mut hardware: Vec<String> = rows.iter().map(|row| format!("{}: {}", row.short, row.hardware)).collect();
    hardware.dedup();
    let hardware = hardware.join("; ");
    let note =
        format!("Images/s by batch size, not measured by ringmark: {}. {hardware}.", by_batch_size::source(workload));
    let table = Table { columns, rows: shown, bars: None };
    (!rows.is_empty()).then(|| Block { table: Some(table), ..Block::new("Published by MXNet", note) })
}

/// Returns the measured rates at the batch sizes of the published `row`.
fn measured(name: &str, series: &BatchSeries, row: &PublishedRow) -> Row {
    let rate = |size: &u32| {
        let (point, figures) = series.measured().find(|(point, _)| point.batch_size == *size)?;
        Some(marked(four_digits(figures.speed.0), point.is_doubtful))
    };
    let place = format!("{name}, {}, {}", series.case, series.dtype);
    cells(network(row), place, row.batch_sizes().iter().map(|size| rate(size).unwrap_or_else(|| "-".to_owned())))
}

fn published_row(published: &PublishedRow) -> Row {
    let rates = published.rates.iter().map(|rate| format!("{rate:.2}"));
    cells(network(published), published.short.to_owned(), rates)
}

fn cells(network: String, place: String, rates: impl Iterator<Item = String>) -> Row {
    let cells = [network, place].into_iter().chain(rates).collect();
    Row { cells, ..Row::default() }
}
