//! Figures of training for spreadsheets: one row per case. `lost` is the difference between the step and that of the
//! base; its parts follow. Column names contain the units: `images_per_s` or `tokens_per_s` over all ranks, `s` seconds,
//! shares from 0 to 1. `run_warnings` is the number of warnings that the tables list for the case's runs.

use ringmark_core::dimension::{Phase, WorkUnit};
use ringmark_core::options::keyword_enum::KeywordEnum;

use crate::read::analyze::results::ResultFolder;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::cost::Price;
use crate::read::analyze::training::figures::{TrainingCase, TrainingGroup};
use crate::read::analyze::training::scaling_loss::all_parts;
use crate::read::show::columns::{self, conditions, cv, figure, optional, text, utilization};
use crate::read::show::training::columns as training;
use crate::read::show::training::columns::Column;

/// Returns the cases of all groups; with a `price`, also their cost.
pub fn csv(result: &ResultFolder, price: Option<&Price>) -> anyhow::Result<String> {
    let mut columns: Vec<Column> = vec![text("group", |group: &TrainingGroup, _| group.label.clone())];
    columns.extend(conditions());
    let groups = result.training();
    columns.extend(columns::of_units(groups, training::speed));
    columns.extend(columns::of_units(groups, |unit| training::speed_per_rank("", unit)));
    columns.push(text("base", |group: &TrainingGroup, _| optional(group.base)));
    columns.extend([training::speedup(), training::efficiency(), cv()]);
    columns.extend(training::dlperf(groups));
    columns.push(training::step());
    for phase in Phase::ALL {
        columns.push(training::phase(*phase));
        columns.extend((*phase == Phase::ExposedAllreduce).then(training::exposed_share));
    }
    let runs = |_: &TrainingGroup, case: &TrainingCase| Some(case.baseline.as_ref()?.counted().count() as f64);
    columns.push(figure("runs_without_communication", runs));
    columns.extend([training::baseline_step(), training::communication_cost(), training::lost()]);
    columns.extend(all_parts().into_iter().map(training::lost_part));
    columns.extend(utilization());
    columns.extend([
        text("strategy", |group: &TrainingGroup, _| group.conditions.point.strategy.to_string()),
        text("base_strategy", |group: &TrainingGroup, _| optional(group.base_strategy())),
        text("is_reliable", |group: &TrainingGroup, case| group.is_reliable(case).to_string()),
        text("reliability_warnings", |group: &TrainingGroup, case| {
            group.reliability_warnings_of(case).map(ToString::to_string).collect::<Vec<_>>().join("; ")
        }),
        text("warnings", |group: &TrainingGroup, _| {
            group.base_warning().iter().chain(&group.warnings).cloned().collect::<Vec<_>>().join("; ")
        }),
        text("run_warnings", |_, case: &TrainingCase| case.warnings.len().to_string()),
    ]);
    let [power, ..] = training::energy(WorkUnit::default());
    let energy = columns::of_units(groups, |unit| {
        let [_, energy, _] = training::energy(unit);
        energy
    });
    let costs = [training::price(price)].into_iter().chain(training::cost(price)).collect();
    let newer = vec![
        vec![training::efficiency_margin()],
        [power].into_iter().chain(energy).collect(),
        training::accuracy().into(),
        costs,
        columns::batch().into(),
        columns::mfu().into(),
    ];
    columns::csv(groups, columns, newer)
}
