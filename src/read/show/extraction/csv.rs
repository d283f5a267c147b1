//! Figures of training for spreadsheets: one row per case. `lost` is the difference between the step and that of the
//! base; its parts follow.

use ringmark_core::dimension::Phase;
use ringmark_core::options::keyword_enum::KeywordEnum;

use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::accuracy::{self, Accuracy};
use crate::read::analyze::training::cost::{Cost, Price};
use crate::read::analyze::training::energy::{self, Energy};
use crate::read::analyze::training::figures::{Extraction, Figures, Group, TrainedCase};
use crate::read::analyze::training::scaling_loss::{self, all_parts};
use crate::read::load::iteration_times::IterationTimes;
use crate::read::show;
use crate::read::show::csv::{column, conditions, text, utilization};

type Column<'a> = show::csv::Column<'a, Group>;

/// Returns the cases of all groups; with a `price`, also their cost.
pub fn csv(extraction: &Extraction, price: Option<&Price>) -> anyhow::Result<String> {
    let mut columns = vec![column("group", |group: &Group, _| group.label.clone())];
    columns.extend(conditions());
    columns.extend(speeds());
    columns.extend(times());
    columns.extend(losses());
    columns.extend(utilization());
    columns.push(column("kv_store", |group: &Group, _| group.conditions.kv_store.to_string()));
    columns.push(column("base_kv_store", |group: &Group, _| text(group.base_kv_store())));
    columns.push(column("is_reliable", |group: &Group, case| group.is_reliable(case).to_string()));
    columns.push(column("reliability_warnings", |group: &Group, case| {
        group.reliability_warnings_of(case).map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }));
    columns.push(column("warnings", |group: &Group, _| group.warnings.join("; ")));
    columns.push(column("run_warnings", |_, case: &TrainedCase| case.warnings.len().to_string()));
    show::csv::csv(&extraction.groups, columns, vec![margins(), energies(), accuracies(), costs(price)])
}

fn figure<'a>(name: &str, figure: fn(&Figures) -> f64) -> Column<'a> {
    column(name, move |_, case: &TrainedCase| text(case.figures.as_ref().map(figure)))
}

fn iteration_times(case: &TrainedCase) -> Option<&IterationTimes> {
    case.figures.as_ref()?.times.as_ref()
}

fn margins<'a>() -> Vec<Column<'a>> {
    let margin = |_: &Group, case: &TrainedCase| text(case.figures.as_ref().and_then(|it| it.efficiency_margin));
    vec![column("efficiency_margin", margin)]
}

fn energies<'a>() -> Vec<Column<'a>> {
    let energy =
        |name, value: fn(Energy) -> f64| column(name, move |_, case| text(energy::case_energy(case).map(value)));
    vec![energy("power_watts", |it| it.watts), energy("joules_per_image", |it| it.joules_per_image)]
}

fn accuracies<'a>() -> Vec<Column<'a>> {
    let accuracy = |name, value: fn(Accuracy) -> Option<f64>| {
        column(name, move |_, case| text(accuracy::case_accuracy(case).and_then(value)))
    };
    vec![
        accuracy("validation_loss", |it| it.loss),
        accuracy("top_1", |it| Some(it.top_1)),
        accuracy("top_5", |it| Some(it.top_5)),
    ]
}

fn costs(price: Option<&Price>) -> Vec<Column<'_>> {
    let cost = |name, value: fn(Cost) -> String| {
        column(name, move |group: &Group, case| text(price.and_then(|price| price.case_cost(group, case)).map(value)))
    };
    vec![
        cost("price", |it| it.price),
        cost("imagenet_epoch_s", |it| it.seconds_per_epoch.0.to_string()),
        cost("imagenet_epoch_cost", |it| it.of_epoch.to_string()),
        cost("imagenet_90_epochs_cost", |it| it.of_90_epochs.to_string()),
        cost("cost_over_base", |it| it.over_base.to_string()),
    ]
}

fn speeds<'a>() -> Vec<Column<'a>> {
    vec![
        figure("speed_images_per_s", |figures| figures.speed.0),
        figure("speed_per_rank_images_per_s", |figures| figures.per_rank.0),
        column("base", |group: &Group, _| text(group.base)),
        figure("speedup_over_base", |figures| figures.speedup),
        figure("efficiency", |figures| figures.efficiency),
        column("cv", |_, case: &TrainedCase| text(case.figures.as_ref().and_then(|figures| figures.cv))),
        figure("dlperf_average_speed_images_per_s", |figures| figures.dlperf.average_speed.0),
        figure("dlperf_median_speed_images_per_s", |figures| figures.dlperf.median_speed.0),
        column("dlperf_speedup", |_, case: &TrainedCase| {
            text(case.figures.as_ref().and_then(|figures| figures.dlperf.speedup))
        }),
    ]
}

fn times<'a>() -> Vec<Column<'a>> {
    let mut columns = vec![column("step_s", |_, case| text(iteration_times(case).map(|times| times.step.0)))];
    for phase in Phase::ALL {
        let time = |case: &TrainedCase| text(iteration_times(case).map(|times| times.phases[*phase].0));
        columns.push(column(format!("{}_s", phase.keyword()), move |_, case| time(case)));
        if *phase == Phase::ExposedAllreduce {
            columns.push(column("exposed_allreduce_share", |_, case| {
                text(iteration_times(case).map(IterationTimes::exposed_share))
            }));
        }
    }
    columns.push(column("runs_without_communication", |_, case: &TrainedCase| {
        text(case.baseline.as_ref().map(|baseline| baseline.counted().count()))
    }));
    columns.push(column("step_without_communication_s", |_, case: &TrainedCase| {
        text(case.baseline.as_deref().and_then(iteration_times).map(|times| times.step.0))
    }));
    columns.push(column("communication_cost", |_, case: &TrainedCase| text(case.communication_cost())));
    columns
}

fn losses<'a>() -> Vec<Column<'a>> {
    let loss = scaling_loss::case_loss;
    let mut columns =
        vec![column("lost_s", move |group, case| text(loss(group, case).map(|loss| loss.loss.total.seconds)))];
    columns.extend(all_parts().into_iter().map(|part| {
        column(format!("lost_{}_s", part.key()), move |group, case| {
            text(loss(group, case).and_then(|loss| Some(loss.part(part)?.seconds)))
        })
    }));
    columns
}
