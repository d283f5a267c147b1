//! Figures published by others of the measured networks, as tables.

use std::collections::BTreeSet;

use ringmark_core::dimension::{Model, WorkUnit};
use ringmark_core::number_text::four_digits;
use ringmark_core::stats::scaling::speedup;

use crate::output::table::{Column, Table};
use crate::read::analyze::published::Workload;
use crate::read::analyze::published::by_batch_size::{BATCH_SIZES, PublishedRow, none_published, rows, source};
use crate::read::analyze::published::scaling::{self, MeasuredConditions, Published};
use crate::read::show::text::Paragraph;

/// Returns a table for each hardware and, of training, one for each publication of scaling; a note if there is none. Rows with
/// conditions other than all of `measured` name them.
pub fn sections(workload: Workload, models: &BTreeSet<Model>, measured: &[MeasuredConditions]) -> Vec<Paragraph> {
    let rows = rows(workload, models);
    let of_hardware = |rows: &[PublishedRow]| {
        let cells = |row: &PublishedRow| {
            let name = network(row);
            std::iter::once(name).chain(row.rates.iter().map(|rate| format!("{rate:.2}"))).collect::<Vec<_>>()
        };
        let sizes = BATCH_SIZES.map(|size| Column::numbers(size.to_string(), ""));
        let columns = std::iter::once(Column::text("network")).chain(sizes).collect();
        let table = Table { columns, rows: rows.iter().map(|row| cells(row).into()).collect(), bars: None };
        let title = vec![format!("Published: images/s on {}", rows[0].hardware), source(workload).to_owned()];
        [Paragraph::Heading(title), Paragraph::Table(table)]
    };
    let mut sections: Vec<Paragraph> = Vec::new();
    if workload == Workload::Training {
        sections
            .extend(scaling::all().filter(|row| models.contains(&row.model)).flat_map(|row| scaling(row, measured)));
    }
    sections.extend(rows.chunk_by(|one, other| one.hardware == other.hardware).flat_map(of_hardware));
    if sections.is_empty() {
        return vec![Paragraph::Heading(vec![none_published(workload)])];
    }
    sections
}

/// Returns the network's title, with the factor of its batch sizes if it is not 1.
pub fn network(row: &PublishedRow) -> String {
    let title = row.model.facts().title;
    if row.batch_factor == 1 { title.to_owned() } else { format!("{title}, batch x {}", row.batch_factor) }
}

fn scaling(row: &'static Published, measured: &[MeasuredConditions]) -> [Paragraph; 2] {
    let columns = vec![
        Column::text("case"),
        Column::numbers("ranks", ""),
        Column::numbers("speed", WorkUnit::Image.per_second()),
        Column::numbers("speedup", ""),
    ];
    let cells = |case: &scaling::PublishedCase| {
        let speedup = speedup(case.median, row.cases[0].median);
        let ranks = case.case.ranks().to_string();
        vec![case.case.to_string(), ranks, four_digits(case.median.0), format!("{speedup:.2}")]
    };
    let table = Table { columns, rows: row.cases.iter().map(|case| cells(case).into()).collect(), bars: None };
    let caveat = row.caveat.map(|caveat| format!("beware: {caveat}"));
    let unlike = row.differences(measured);
    let unlike = (!unlike.is_empty()).then(|| {
        format!(
            "conditions that differ from this result: {}",
            unlike.join(
                ", \
        "
            )
        )
    });
    let title = [format!("Published: {}, batch size {}", row.name, row.batch_size), row.source.to_owned()];
    let title = title.into_iter().chain([row.setup.to_owned()]).chain(caveat).chain(unlike).collect();
    [Paragraph::Heading(title), Paragraph::Table(table)]
}
