//! Figures for spreadsheets: one row per case. Column names contain the units: `images_per_s` over all ranks, `s`
//! seconds, shares from 0 to 1. `run_warnings` is the number of warnings that the tables list for the case's runs.

use anyhow::Context;

use crate::read::analyze::run_group::{CaseOf, RunGroup};
use crate::read::analyze::utilization::Utilization;

/// Name of a column, and its value for a case; empty for a figure that does not exist.
pub struct Column<'a, G: RunGroup> {
    name: String,
    field: Field<'a, G>,
}

type Field<'a, G> = Box<dyn Fn(&G, &CaseOf<G>) -> String + 'a>;

/// Creates a column.
pub fn column<'a, G: RunGroup>(
    name: impl Into<String>,
    field: impl Fn(&G, &CaseOf<G>) -> String + 'a,
) -> Column<'a, G> {
    Column { name: name.into(), field: Box::new(field) }
}

/// Returns the text of a value, if there is one.
pub fn text<T: ToString>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Returns the columns of the conditions and the number of runs.
pub fn conditions<'a, G: RunGroup>() -> Vec<Column<'a, G>> {
    vec![
        column("model", |group: &G, case| group.point(case).model.to_string()),
        column("dtype", |group: &G, case| group.point(case).dtype.to_string()),
        column("batch_size_per_device", |group: &G, case| group.point(case).batch_size.to_string()),
        column("device", |group: &G, _| text(group.device())),
        column("profile", |group: &G, _| text(group.profile())),
        column("case", |_, case| case.case.to_string()),
        column("nodes", |_, case| case.case.nodes.to_string()),
        column("gpus_per_node", |_, case| case.case.gpus_per_node.to_string()),
        column("ranks", |_, case| case.case.ranks().to_string()),
        column("runs_counted", |_, case| case.counted().count().to_string()),
        column("runs_found", |_, case| case.runs.len().to_string()),
    ]
}

/// Returns the columns of peak memory and utilization.
pub fn utilization<'a, G: RunGroup>() -> Vec<Column<'a, G>> {
    let rate = |name, value: fn(Utilization) -> Option<f64>| {
        column(name, move |group: &G, case| text(group.utilization(case).and_then(value)))
    };
    vec![
        column("peak_memory_bytes", |_, case| text(case.peak_memory().map(|peak| peak.0))),
        rate("teraflops_per_s", |it| Some(it.teraflops_per_second.0)),
        rate("share_of_matrix_product", |it| it.share_of_matrix_product),
        rate("share_of_published_peak", |it| it.share_of_published_peak),
    ]
}

/// Returns the text of the table. Columns of `newer` appear only if they have a value, so that the output for older
/// results does not change.
pub fn csv<'a, G: RunGroup>(
    groups: &[G],
    mut columns: Vec<Column<'a, G>>,
    newer: Vec<Vec<Column<'a, G>>>,
) -> anyhow::Result<String> {
    let cases: Vec<(&G, &CaseOf<G>)> =
        groups.iter().flat_map(|group| group.cases().iter().map(move |case| (group, case))).collect();
    let has_value = |column: &Column<G>| cases.iter().any(|(group, case)| !(column.field)(group, case).is_empty());
    columns.extend(newer.into_iter().filter(|columns| columns.iter().any(has_value)).flatten());
    let mut table = csv::Writer::from_writer(Vec::new());
    table.write_record(columns.iter().map(|column| &column.name))?;
    for (group, case) in cases {
        table.write_record(columns.iter().map(|column| (column.field)(group, case)))?;
    }
    Ok(String::from_utf8(table.into_inner().context("memory takes every line")?)?)
}
