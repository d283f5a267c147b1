//! Training runs as series by batch size, in the same form as those of scoring.

use std::collections::BTreeMap;

use ringmark_core::benchmark::RunProfile;
use ringmark_core::benchmark::train::TrainConfig;
use ringmark_core::dimension::{BatchShape, Case, Dtype, Model, Strategy};
use ringmark_core::file::run_name::Point;

use crate::read::analyze::batch_sizes::{self, BatchPoint, BatchSeries, BatchTable};
use crate::read::analyze::run_group::{self, RunGroup};
use crate::read::analyze::settings::AXES;
use crate::read::analyze::training::figures::{TrainingCase, TrainingGroup};
use crate::read::analyze::training::grouping::{self, GroupConditions};
use crate::read::load::environment;
use crate::read::load::folder::Shortage;
use crate::read::load::run::RecordedConditions;

/// Returns a table with its groups for every network that was trained with several batch sizes. A group without a
/// counted run gets no table of its own if another group has one: its runs may have failed before recording their
/// conditions.
pub fn tables<'a>(groups: &'a [TrainingGroup], shortages: &[Shortage]) -> Vec<(BatchTable, Vec<&'a TrainingGroup>)> {
    let (counted, failed): (Vec<&TrainingGroup>, Vec<&TrainingGroup>) =
        groups.iter().filter(|group| !group.is_strong()).partition(|group| group.base.is_some());
    let rank = |(known, groups): (&GroupConditions, &[&TrainingGroup]),
                (own, group): (&GroupConditions, &&TrainingGroup)| match group.base {
        _ if known == own => Some(0),
        Some(_) => None,
        None if groups.iter().any(|other| line_of(other) == line_of(group)) => Some(1),
        None => Some(2),
    };
    let tables = counted.into_iter().chain(failed);
    let tables = run_group::group(tables, |group| without_axes(&group.conditions), rank);
    let tables = tables.into_iter().map(|(shared, groups)| (table(&shared, &groups), groups));
    let (mut tables, groups): (Vec<BatchTable>, Vec<Vec<&TrainingGroup>>) = tables.unzip();
    batch_sizes::add_shortages(&mut tables, shortages);
    let tables = tables.into_iter().zip(groups);
    tables.filter(|(table, _)| table.series.iter().any(|series| series.points.len() > 1)).collect()
}

fn line_of(group: &TrainingGroup) -> (Model, Dtype, Strategy) {
    (group.conditions.point.model, group.conditions.point.dtype, group.conditions.point.strategy)
}

/// Returns the conditions with defaults for everything that may differ between the series of a table.
fn without_axes(conditions: &GroupConditions) -> GroupConditions {
    let defaults = TrainConfig::default();
    let model = Model::of_unit(conditions.point.model.unit());
    let recorded = conditions.recorded.as_ref().map(|recorded| RecordedConditions {
        config: TrainConfig {
            model,
            dtype: defaults.dtype,
            batch_size: defaults.batch_size,
            // Each network's own size is one condition, whatever the size.
            image_size: recorded
                .config
                .image_size
                .filter(|size| Some(*size) != conditions.point.model.image_size(None)),
            sequence_length: None,
            ..recorded.config.clone()
        },
        ..recorded.clone()
    });
    let batch =
        BatchShape { size: conditions.point.batch.size.with_number(defaults.batch_size), sequence_length: None };
    let point = Point { model, dtype: defaults.dtype, batch, strategy: conditions.point.strategy };
    GroupConditions { point, recorded, tool: conditions.tool }
}

/// Network, tokens of a sequence, precision, ranks and case of a series.
type Key = (Model, Option<u32>, Dtype, u32, Case);

fn table(shared: &GroupConditions, groups: &[&TrainingGroup]) -> BatchTable {
    let mut series: BTreeMap<Key, Vec<BatchPoint>> = BTreeMap::new();
    for group in groups {
        let Point { model, dtype, batch: BatchShape { size, sequence_length }, .. } = group.conditions.point;
        for case in &group.cases {
            let points = series.entry((model, sequence_length, dtype, case.case.ranks(), case.case)).or_default();
            let is_doubtful = !group.is_speed_reliable(case);
            points.push(BatchPoint::new(case, size.number(), group.utilization(case), is_doubtful));
        }
    }
    let line = |((model, sequence_length, dtype, _, case), mut points): (_, Vec<BatchPoint>)| {
        points.sort_by_key(|point| point.batch_size);
        BatchSeries { model, sequence_length, dtype, case, points }
    };
    let mut settings = grouping::settings(shared);
    AXES.iter().for_each(|axis| drop(settings.remove(*axis)));
    let recorded = shared.recorded.as_ref();
    let device = recorded.map(|recorded| recorded.device);
    let names = groups.iter().flat_map(|group| group.device_names.iter().cloned()).collect();
    let threads = groups.iter().flat_map(|group| group.cases.iter().flat_map(TrainingCase::threads)).collect();
    BatchTable {
        device,
        devices: environment::devices_text(&names, &threads, device),
        image_size: recorded.and_then(|recorded| recorded.config.image_size),
        strategy: shared.point.strategy,
        is_quick: recorded.is_some_and(|recorded| recorded.profile == RunProfile::Quick),
        settings,
        series: series.into_iter().map(line).collect(),
        shortages: Vec::new(),
    }
}
