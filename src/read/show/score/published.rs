//! Published rows of the scored networks, one section for each hardware.

use crate::read::analyse::score::figures::{self, ScoreExtraction};
use crate::read::analyse::score::published::{BATCH_SIZES, PublishedRow, SOURCE, nothing, rows};
use crate::read::show::columns::Columns;
use crate::read::show::sections::{Block, Section};

/// Returns the sections of the networks in `extraction`.
pub fn sections(extraction: &ScoreExtraction) -> Vec<Section> {
    let rows = rows(&figures::models(&extraction.tables));
    if rows.is_empty() {
        return vec![section(vec![nothing()], Vec::new())];
    }
    let of_hardware = |rows: &[PublishedRow]| {
        let cells = |row: &PublishedRow| {
            let name = row.model.facts().title.to_owned();
            std::iter::once(name).chain(row.rates.iter().map(|rate| format!("{rate:.2}"))).collect()
        };
        let sizes = BATCH_SIZES.map(|size| size.to_string());
        let headers: Vec<(&str, &str)> =
            std::iter::once(("network", "")).chain(sizes.iter().map(|size| (size.as_str(), ""))).collect();
        let columns = Columns::new(&headers, rows.iter().map(cells).collect()).with_text(0..1);
        let title = vec![format!("Published: images/s on {}", rows[0].hardware), SOURCE.to_owned()];
        section(title, vec![Block::first(columns)])
    };
    rows.chunk_by(|one, other| one.hardware == other.hardware).map(of_hardware).collect()
}

fn section(title: Vec<String>, blocks: Vec<Block>) -> Section {
    Section { title, blocks, reliability_warnings: Vec::new(), warnings: Vec::new() }
}
