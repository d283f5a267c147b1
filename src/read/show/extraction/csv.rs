//! Figures for spreadsheets: one row per case. Column names contain the units: `images_per_s` over all ranks, `s`
//! seconds, shares from 0 to 1. `run_warnings` is the number of warnings that the tables list for the case's runs.
//! `lost` is the difference between the step and that of the base; its parts follow.

use anyhow::Context;
use ringmark_core::dimension::Phase;
use ringmark_core::options::keyword_enum::KeywordEnum;

use crate::read::analyze::training::accuracy::{self, Accuracy};
use crate::read::analyze::training::cost::{Cost, Price};
use crate::read::analyze::training::energy::{self, Energy};
use crate::read::analyze::training::figures::{Extraction, Figures, Group, TrainedCase};
use crate::read::analyze::training::scaling_loss::{self, CaseLoss, all_parts};
use crate::read::analyze::utilization::Utilization;
use crate::read::load::iteration_times::IterationTimes;

/// Name of a column, and its value for a row; empty for a figure that does not exist.
type Column = (String, Box<dyn Fn(&Row) -> String>);

struct Row<'a> {
    group: &'a Group,
    case: &'a TrainedCase,
    loss: Option<CaseLoss>,
    energy: Option<Energy>,
    accuracy: Option<Accuracy>,
    cost: Option<Cost>,
}

impl Row<'_> {
    fn figures(&self) -> Option<&Figures> {
        self.case.figures.as_ref()
    }

    fn efficiency_margin(&self) -> Option<f64> {
        self.figures()?.efficiency_margin
    }

    fn times(&self) -> Option<&IterationTimes> {
        self.figures()?.times.as_ref()
    }
}

pub fn csv(extraction: &Extraction, price: Option<&Price>) -> anyhow::Result<String> {
    let line = |group, case| Row {
        group,
        case,
        loss: scaling_loss::case_loss(group, case),
        energy: energy::case_energy(case),
        accuracy: accuracy::case_accuracy(case),
        cost: price.and_then(|price| price.case_cost(group, case)),
    };
    let lines = extraction.groups.iter().flat_map(|group| group.cases.iter().map(move |case| (group, case)));
    let lines: Vec<Row> = lines.map(|(group, case)| line(group, case)).collect();
    // Newer columns appear only if they have values, so that the output for older results does not change.
    let mut columns = columns();
    let has_margins = lines.iter().any(|line| line.efficiency_margin().is_some());
    columns.extend(has_margins.then(|| column("efficiency_margin", |line| text(line.efficiency_margin()))));
    columns.extend(lines.iter().any(|line| line.energy.is_some()).then(energy_columns).into_iter().flatten());
    columns.extend(lines.iter().any(|line| line.accuracy.is_some()).then(accuracy_columns).into_iter().flatten());
    columns.extend(lines.iter().any(|line| line.cost.is_some()).then(cost_columns).into_iter().flatten());
    let mut table = csv::Writer::from_writer(Vec::new());
    table.write_record(columns.iter().map(|(name, _)| name))?;
    for line in &lines {
        table.write_record(columns.iter().map(|(_, field)| field(line)))?;
    }
    let bytes = table.into_inner().context("memory takes every line")?;
    Ok(String::from_utf8(bytes)?)
}

fn text<T: ToString>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn column(name: &str, field: impl Fn(&Row) -> String + 'static) -> Column {
    (name.to_owned(), Box::new(field))
}

fn figure(name: &str, figure: fn(&Figures) -> f64) -> Column {
    column(name, move |line| text(line.figures().map(figure)))
}

fn columns() -> Vec<Column> {
    let mut columns = conditions();
    columns.extend(speeds());
    columns.extend(times());
    columns.extend(losses());
    columns.push(column("peak_memory_bytes", |line| text(line.case.peak_memory().map(|peak| peak.0))));
    columns.extend(arithmetic());
    columns.push(column("kv_store", |line| line.group.conditions.kv_store.to_string()));
    columns.push(column("base_kv_store", |line| text(line.group.base_kv_store())));
    columns.push(column("is_reliable", |line| line.group.is_reliable(line.case).to_string()));
    columns.push(column("reliability_warnings", |line| {
        line.group.scaling_reliability_warnings(line.case).map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }));
    columns.push(column("warnings", |line| line.group.warnings.join("; ")));
    columns.push(column("run_warnings", |line| line.case.warnings.len().to_string()));
    columns
}

fn energy_columns() -> Vec<Column> {
    vec![
        column("power_watts", |line| text(line.energy.as_ref().map(|it| it.watts))),
        column("joules_per_image", |line| text(line.energy.as_ref().map(|it| it.joules_per_image))),
    ]
}

fn accuracy_columns() -> Vec<Column> {
    vec![
        column("validation_loss", |line| text(line.accuracy.as_ref().and_then(|it| it.loss))),
        column("top_1", |line| text(line.accuracy.as_ref().map(|it| it.top_1))),
        column("top_5", |line| text(line.accuracy.as_ref().map(|it| it.top_5))),
    ]
}

fn cost_columns() -> Vec<Column> {
    vec![
        column("price", |line| text(line.cost.as_ref().map(|it| it.price.clone()))),
        column("imagenet_epoch_s", |line| text(line.cost.as_ref().map(|it| it.seconds_per_epoch.0))),
        column("imagenet_epoch_cost", |line| text(line.cost.as_ref().map(|it| it.of_epoch))),
        column("imagenet_90_epochs_cost", |line| text(line.cost.as_ref().map(|it| it.of_90_epochs))),
        column("cost_over_base", |line| text(line.cost.as_ref().map(|it| it.over_base))),
    ]
}

fn arithmetic() -> Vec<Column> {
    fn rate(line: &Row, value: fn(&Utilization) -> Option<f64>) -> String {
        text(line.group.utilization(line.case).as_ref().and_then(value))
    }
    vec![
        column("teraflops_per_s", |line| rate(line, |it| Some(it.teraflops_per_second.0))),
        column("share_of_matrix_product", |line| rate(line, |it| it.share_of_matrix_product)),
        column("share_of_published_peak", |line| rate(line, |it| it.share_of_published_peak)),
    ]
}

fn conditions() -> Vec<Column> {
    vec![
        column("group", |line| line.group.label.clone()),
        column("model", |line| line.group.conditions.model.to_string()),
        column("dtype", |line| line.group.conditions.dtype.to_string()),
        column("batch_size_per_device", |line| line.group.conditions.batch_size.to_string()),
        column("device", |line| text(line.group.conditions.recorded.as_ref().map(|recorded| recorded.device))),
        column("profile", |line| text(line.group.conditions.recorded.as_ref().map(|recorded| recorded.profile))),
        column("case", |line| line.case.case.to_string()),
        column("nodes", |line| line.case.case.nodes.to_string()),
        column("gpus_per_node", |line| line.case.case.gpus_per_node.to_string()),
        column("ranks", |line| line.case.case.ranks().to_string()),
        column("runs_counted", |line| line.case.counted().count().to_string()),
        column("runs_found", |line| line.case.runs.len().to_string()),
    ]
}

fn speeds() -> Vec<Column> {
    vec![
        figure("speed_images_per_s", |figures| figures.speed.0),
        figure("speed_per_rank_images_per_s", |figures| figures.per_rank.0),
        column("base", |line| text(line.group.base)),
        figure("speedup_over_base", |figures| figures.speedup),
        figure("efficiency", |figures| figures.efficiency),
        column("cv", |line| text(line.figures().and_then(|figures| figures.cv))),
        figure("dlperf_average_speed_images_per_s", |figures| figures.dlperf.average_speed.0),
        figure("dlperf_median_speed_images_per_s", |figures| figures.dlperf.median_speed.0),
        column("dlperf_speedup", |line| text(line.figures().and_then(|figures| figures.dlperf.speedup))),
    ]
}

fn times() -> Vec<Column> {
    let mut columns = vec![column("step_s", |line| text(line.times().map(|times| times.step.0)))];
    for phase in Phase::ALL {
        let name = format!("{}_s", phase.keyword());
        columns.push(column(&name, |line| text(line.times().map(|times| times.phases[*phase].0))));
        if *phase == Phase::ExposedAllreduce {
            let share = |line: &Row| text(line.times().map(IterationTimes::exposed_share));
            columns.push(column("exposed_allreduce_share", share));
        }
    }
    columns.push(column("runs_without_communication", |line| {
        text(line.case.baseline.as_ref().map(|baseline| baseline.counted().count()))
    }));
    columns.push(column("step_without_communication_s", |line| {
        text(line.case.baseline.as_ref().and_then(|baseline| Some(baseline.figures.as_ref()?.times?.step.0)))
    }));
    columns.push(column("communication_cost", |line| text(line.case.communication_cost())));
    columns
}

fn losses() -> Vec<Column> {
    let mut columns = vec![column("lost_s", |line| text(line.loss.as_ref().map(|loss| loss.loss.total.seconds)))];
    for part in all_parts() {
        let name = format!("lost_{}_s", part.key());
        columns
            .push(column(&name, move |line| text(line.loss.as_ref().and_then(|loss| Some(loss.part(part)?.seconds)))));
    }
    columns
}
