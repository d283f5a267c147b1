//! Figures for spreadsheets: one line a case.

use anyhow::Context;
use ringmark_record::run::Profile;
use ringmark_record::stats::scaling_loss::Part;

use crate::read::analyse::figures::{CaseRuns, Extraction, Figures, Group};
use crate::read::analyse::scaling_loss;
use crate::read::load::step_times::StepTimes;

/// Columns of the CSV, units in their names: `images_per_s` over all ranks, `s` seconds, shares from 0 to 1; `run_warnings`
/// is the number of those that the tables list for the case's runs; `lost` is the step less that of the base, and its parts.
const COLUMNS: [&str; 38] = [
    "group",
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
    "average_speed_images_per_s",
    "median_speed_images_per_s",
    "images_over_time_images_per_s",
    "per_gpu_images_per_s",
    "base",
    "speedup_over_base",
    "efficiency",
    "cv",
    "step_s",
    "forward_s",
    "backward_s",
    "exposed_allreduce_s",
    "exposed_allreduce_share",
    "optimizer_s",
    "runs_without_communication",
    "step_without_communication_s",
    "communication_cost",
    "lost_s",
    "lost_compute_s",
    "lost_compute_crowded_s",
    "lost_compute_overlapped_s",
    "lost_transfer_s",
    "lost_waiting_s",
    "lost_optimizer_s",
    "lost_other_s",
    "warnings",
    "run_warnings",
];

/// One line a case, all groups below each other; a figure that does not exist is an empty field.
pub fn csv(extraction: &Extraction) -> anyhow::Result<String> {
    let mut table = csv::Writer::from_writer(Vec::new());
    table.write_record(COLUMNS)?;
    for group in &extraction.groups {
        for case in &group.cases {
            table.write_record(csv_fields(group, case))?;
        }
    }
    let bytes = table.into_inner().context("memory takes every line")?;
    Ok(String::from_utf8(bytes)?)
}

fn csv_fields(group: &Group, case: &CaseRuns) -> [String; COLUMNS.len()] {
    fn text<T: ToString>(value: Option<T>) -> String {
        value.map(|value| value.to_string()).unwrap_or_default()
    }
    let figures = case.figures.as_ref();
    let figure = |figure: fn(&Figures) -> f64| text(figures.map(figure));
    let times = figures.and_then(|figures| figures.times);
    let time = |time: fn(&StepTimes) -> f64| text(times.as_ref().map(time));
    let recorded = group.conditions.recorded.as_ref();
    let loss = scaling_loss::of_case(group, case);
    let lost = |part| text(loss.as_ref().and_then(|loss| Some(loss.part(part)?.mean)));
    [
        group.label.clone(),
        group.conditions.dtype.to_string(),
        group.conditions.batch_size.to_string(),
        text(recorded.map(|recorded| recorded.device)),
        text(recorded.map(|recorded| if recorded.profile == Profile::Quick { "quick" } else { "full" })),
        case.case.to_string(),
        case.case.nodes.to_string(),
        case.case.gpus_per_node.to_string(),
        case.case.ranks().to_string(),
        case.counted().count().to_string(),
        case.runs.len().to_string(),
        figure(|figures| figures.average_speed.0),
        figure(|figures| figures.median_speed.0),
        figure(|figures| figures.images_over_time.0),
        figure(|figures| figures.per_gpu.0),
        text(group.base),
        figure(|figures| figures.speedup),
        figure(|figures| figures.efficiency),
        text(figures.and_then(|figures| figures.cv)),
        time(|times| times.step.0),
        time(|times| times.forward.0),
        time(|times| times.backward.0),
        time(|times| times.exposed_allreduce.0),
        time(StepTimes::exposed_share),
        time(|times| times.optimizer.0),
        text(case.baseline.as_ref().map(|baseline| baseline.counted().count())),
        text(case.baseline.as_ref().and_then(|baseline| Some(baseline.figures.as_ref()?.times?.step.0))),
        text(case.communication_cost()),
        text(loss.as_ref().map(|loss| loss.loss.total.mean)),
        lost(Part::Compute),
        lost(Part::ComputeCrowded),
        lost(Part::ComputeOverlapped),
        lost(Part::Transfer),
        lost(Part::Waiting),
        lost(Part::Optimizer),
        lost(Part::Other),
        group.warnings.join("; "),
        case.warnings.len().to_string(),
    ]
}
