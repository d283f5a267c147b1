//! Images/s for spreadsheets: one row per point. Column names contain the units; `run_warnings` is the number of
//! warnings that the tables list for the point's runs.

use anyhow::Context;

use crate::read::analyze::extraction::Extraction;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::score::figures::{ScorePoint, ScoreTable};

const COLUMNS: [&str; 22] = [
    "model",
    "dtype",
    "batch_size_per_device",
    "device",
    "profile",
    "case",
    "nodes",
    "gpus_per_node",
    "ranks",
    "runs_counted",
    "runs_found",
    "images_per_s",
    "cv",
    "peak_memory_bytes",
    "teraflops_per_s",
    "share_of_matrix_product",
    "share_of_published_peak",
    "image_size",
    "warnings",
    "run_warnings",
    "is_reliable",
    "reliability_warnings",
];

pub fn csv(extraction: &Extraction<ScoreTable>) -> anyhow::Result<String> {
    let mut lines = csv::Writer::from_writer(Vec::new());
    lines.write_record(COLUMNS)?;
    for table in &extraction.groups {
        for point in &table.points {
            lines.write_record(fields(table, point))?;
        }
    }
    let bytes = lines.into_inner().context("memory takes every line")?;
    Ok(String::from_utf8(bytes)?)
}

fn text<T: ToString>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Returns the fields in the order of [`COLUMNS`].
fn fields(table: &ScoreTable, point: &ScorePoint) -> [String; COLUMNS.len()] {
    let key = point.key();
    let conditions = table.conditions.as_ref();
    let utilization = table.utilization(point);
    [
        key.model.to_string(),
        key.dtype.to_string(),
        key.batch_size.to_string(),
        text(table.device()),
        text(conditions.map(|conditions| conditions.profile)),
        key.case.to_string(),
        key.case.nodes.to_string(),
        key.case.gpus_per_node.to_string(),
        key.case.ranks().to_string(),
        point.counted().count().to_string(),
        point.runs.len().to_string(),
        text(point.figures.map(|figures| figures.speed.0)),
        text(point.figures.and_then(|figures| figures.cv)),
        text(point.peak_memory().map(|peak| peak.0)),
        text(utilization.map(|it| it.teraflops_per_second.0)),
        text(utilization.and_then(|it| it.share_of_matrix_product)),
        text(utilization.and_then(|it| it.share_of_published_peak)),
        text(conditions.map(|conditions| conditions.image_size(key.model))),
        table.warnings.join("; "),
        point.warnings.len().to_string(),
        (!table.is_doubtful(point)).to_string(),
        table.reliability_of(point).iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
    ]
}
