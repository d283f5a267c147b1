//! Published rates of the scored networks, a table for each hardware.

use crate::output::table::{Column, Table};
use crate::read::analyze::extraction::Extraction;
use crate::read::analyze::score::figures::{self, ScoreTable};
use crate::read::analyze::score::published::{BATCH_SIZES, PublishedRow, SOURCE, none_published, rows};
use crate::read::show::text::Paragraph;

pub fn sections(extraction: &Extraction<ScoreTable>) -> Vec<Paragraph> {
    let rows = rows(&figures::models(&extraction.groups));
    if rows.is_empty() {
        return vec![Paragraph::Heading(vec![none_published()])];
    }
    let of_hardware = |rows: &[PublishedRow]| {
        let cells = |row: &PublishedRow| {
            let name = row.model.facts().title.to_owned();
            std::iter::once(name).chain(row.rates.iter().map(|rate| format!("{rate:.2}"))).collect::<Vec<_>>()
        };
        let sizes = BATCH_SIZES.map(|size| Column::numbers(size.to_string(), ""));
        let columns = std::iter::once(Column::text("network")).chain(sizes).collect();
        let table = Table { columns, rows: rows.iter().map(|row| cells(row).into()).collect(), bars: None };
        let title = vec![format!("Published: images/s on {}", rows[0].hardware), SOURCE.to_owned()];
        [Paragraph::Heading(title), Paragraph::Table(table)]
    };
    rows.chunk_by(|one, other| one.hardware == other.hardware).flat_map(of_hardware).collect()
}
