//! Inference figures published by MXNet next to the measured ones of the same networks.

use std::collections::BTreeSet;

use ringmark_core::dimension::Model;
use ringmark_core::number_text::four_digits;

use crate::output::table::{Column, Row, Table};
use crate::read::analyze::batch_sizes::BatchSeries;
use crate::read::analyze::score::published::{self, BATCH_SIZES, PublishedRow, SOURCE};
use crate::read::show::numbers::marked;
use crate::read::show::page::document::Block;

/// Returns for each network the rows of `scored` with the names of their results, then the published rows; `None` if
/// nothing was published for these networks.
pub fn block(scored: &[(&str, &BatchSeries)]) -> Option<Block> {
    let models: BTreeSet<Model> = scored.iter().map(|(_, series)| series.model).collect();
    let rows = published::rows(&models);
    let mut shown = Vec::new();
    for model in models.into_iter().filter(|model| rows.iter().any(|row| row.model == *model)) {
        let own = scored.iter().filter(|(_, series)| series.model == model);
        shown.extend(own.map(|(name, series)| measured(name, series)));
        shown.extend(rows.iter().filter(|row| row.model == model).map(published_row));
    }
    let numbers = BATCH_SIZES.iter().map(|size| Column::numbers(size.to_string(), ""));
    let columns = ["network", "measured on"].map(Column::text).into_iter().chain(numbers).collect();
    let mut hardware: Vec<String> = rows.iter().map(|row| format!("{}: {}", row.short, row.hardware)).collect();
    hardware.dedup();
    let hardware = hardware.join("; ");
    let note = format!("Images/s by batch size, not measured by ringmark: {SOURCE}. {hardware}.");
    let table = Table { columns, rows: shown, bars: None };
    (!rows.is_empty()).then(|| Block { table: Some(table), ..Block::new("Published by MXNet", note) })
}

fn measured(name: &str, series: &BatchSeries) -> Row {
    let rate = |size: &u32| {
        let (point, figures) = series.measured().find(|(point, _)| point.batch_size == *size)?;
        Some(marked(four_digits(figures.speed.0), point.is_doubtful))
    };
    let place = format!("{name}, {}, {}", series.case, series.dtype);
    row(series.model, place, BATCH_SIZES.iter().map(|size| rate(size).unwrap_or_else(|| "-".to_owned())))
}

fn published_row(published: &PublishedRow) -> Row {
    let rates = published.rates.iter().map(|rate| format!("{rate:.2}"));
    row(published.model, published.short.to_owned(), rates)
}

fn row(model: Model, place: String, rates: impl Iterator<Item = String>) -> Row {
    let cells = [model.facts().title.to_owned(), place].into_iter().chain(rates).collect();
    Row { cells, ..Row::default() }
}
