//! Figures of training as columns of tables and CSV.

use ringmark_core::dimension::{Phase, Seconds, WorkUnit};
use ringmark_core::number_text::{four_digits, percent_number, three_digits};
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::stats::scaling_loss::LossPart;

use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::accuracy::{self, Accuracy};
use crate::read::analyze::training::cost::{Cost, Price};
use crate::read::analyze::training::energy::{self, Energy};
use crate::read::analyze::training::figures::{Figures, TrainingCase, TrainingGroup};
use crate::read::analyze::training::scaling_loss::{CaseLoss, case_loss};
use crate::read::load::iteration_times::IterationTimes;
use crate::read::show::columns::{self, figure, is_speed_doubtful, optional, text};
use crate::read::show::numbers::milliseconds_number;

pub type Column<'a> = columns::Column<'a, TrainingGroup>;

fn of_figures<'a>(csv: impl Into<String>, value: fn(&Figures) -> Option<f64>) -> Column<'a> {
    figure(csv, move |_, case: &TrainingCase| value(case.figures.as_ref()?))
}

fn of_times<'a>(csv: String, value: impl Fn(&IterationTimes) -> f64 + 'a) -> Column<'a> {
    figure(csv, move |_, case: &TrainingCase| Some(value(case.figures.as_ref()?.times.as_ref()?)))
}

fn is_scaling_doubtful(group: &TrainingGroup, case: &TrainingCase) -> bool {
    group.reliability_warnings_of(case).next().is_some()
}

/// Images or tokens per second of all ranks.
pub fn speed<'a>(unit: WorkUnit) -> Column<'a> {
    columns::speed(format!("speed_{unit}_per_s"), unit)
}

/// Lowest and highest speed of any run; not in CSV.
pub fn speed_range<'a>(unit: WorkUnit) -> [Column<'a>; 2] {
    let end = |name, end: fn(f64, f64) -> f64| {
        let value = move |_: &TrainingGroup, case: &TrainingCase| case.counted().map(|run| run.speed.0).reduce(end);
        figure("", value).shown(name, unit.per_second(), four_digits).doubted(is_speed_doubtful)
    };
    [end("lowest", f64::min), end("highest", f64::max)]
}

/// Speed per rank, or per GPU: the word in `process`.
pub fn speed_per_rank<'a>(process: &str, unit: WorkUnit) -> Column<'a> {
    let per_rank = of_figures(format!("speed_per_rank_{unit}_per_s"), |figures| Some(figures.per_rank.0));
    per_rank.shown(&format!("per {process}"), unit.per_second(), four_digits).doubted(is_speed_doubtful)
}

/// Speed relative to the base.
pub fn speedup<'a>() -> Column<'a> {
    let speedup = of_figures("speedup_over_base", |figures| Some(figures.speedup));
    speedup.shown("speedup", "", |speedup| format!("{speedup:.2}")).doubted(is_scaling_doubtful)
}

/// Scaling efficiency.
pub fn efficiency<'a>() -> Column<'a> {
    let efficiency = of_figures("efficiency", |figures| Some(figures.efficiency));
    efficiency.shown("efficiency", "%", percent_number).doubted(is_scaling_doubtful)
}

/// Half of the confidence interval of the efficiency.
pub fn efficiency_margin<'a>() -> Column<'a> {
    let margin = of_figures("efficiency_margin", |figures| figures.efficiency_margin);
    margin.shown("\u{b1}", "%", percent_number).doubted(is_scaling_doubtful)
}

/// DLPerf's speed.
pub fn dlperf_speed<'a>(unit: WorkUnit) -> Column<'a> {
    let speed = of_figures(format!("dlperf_median_speed_{unit}_per_s"), |figures| Some(figures.dlperf.median_speed.0));
    speed.shown("DLPerf", unit.per_second(), four_digits).doubted(is_speed_doubtful)
}

/// Number of epochs of the accuracy; not in CSV.
pub fn epochs<'a>() -> Column<'a> {
    of_accuracy("", |it| Some(it.epochs.into())).shown("epochs", "", |epochs| epochs.to_string())
}

/// Loss, top-1 and top-5 accuracy, and perplexity of the validation.
pub fn accuracy<'a>() -> [Column<'a>; 4] {
    let share = |share: f64| format!("{:.2}", share * 100.0);
    [
        of_accuracy("validation_loss", |it| it.loss).shown("loss", "", |loss| format!("{loss:.4}")),
        of_accuracy("top_1", |it| it.top_1).shown("top-1", "%", share),
        of_accuracy("top_5", |it| it.top_5).shown("top-5", "%", share),
        of_accuracy("perplexity", |it| it.perplexity).shown("perplexity", "", three_digits),
    ]
}

fn of_accuracy<'a>(csv: &str, value: fn(Accuracy) -> Option<f64>) -> Column<'a> {
    figure(csv, move |_, case| value(accuracy::case_accuracy(case)?))
}

/// Formats a time in seconds for a column in milliseconds.
fn in_milliseconds(seconds: f64) -> String {
    milliseconds_number(Seconds(seconds))
}

/// Mean time of an iteration.
pub fn step<'a>() -> Column<'a> {
    of_times("step_s".to_owned(), |times| times.step.0).shown("step", "ms", in_milliseconds).doubted(is_speed_doubtful)
}

/// Mean time of a phase.
pub fn phase<'a>(phase: Phase) -> Column<'a> {
    let time = of_times(format!("{}_s", phase.keyword()), move |times| times.phases[phase].0);
    time.shown(phase.title(), "ms", in_milliseconds).doubted(is_speed_doubtful)
}

/// Exposed all-reduce before and after the slowest rank joins; not in CSV.
pub fn waiting_and_transfer<'a>() -> [Column<'a>; 2] {
    [part("waiting", |times| times.waiting), part("transfer", IterationTimes::transfer)]
}

/// Rest of the step; not in CSV.
pub fn other<'a>() -> Column<'a> {
    part("other", IterationTimes::other)
}

fn part<'a>(name: &str, value: fn(&IterationTimes) -> Seconds) -> Column<'a> {
    let time = of_times(String::new(), move |times| value(times).0);
    time.shown(name, "ms", in_milliseconds).doubted(is_speed_doubtful)
}

/// Share of the exposed all-reduce in the step.
pub fn exposed_share<'a>() -> Column<'a> {
    let share = of_times("exposed_allreduce_share".to_owned(), IterationTimes::exposed_share);
    share.shown("exposed share", "%", percent_number).doubted(is_speed_doubtful)
}

/// Step of the same ranks without communication.
pub fn baseline_step<'a>() -> Column<'a> {
    let step = |_: &TrainingGroup, case: &TrainingCase| Some(case.baseline.as_ref()?.figures.as_ref()?.times?.step.0);
    let step = figure("step_without_communication_s", step).shown("baseline", "ms", in_milliseconds);
    step.doubted(is_baseline_doubtful)
}

/// Additional time of a step with communication.
pub fn communication_cost<'a>() -> Column<'a> {
    let cost = figure("communication_cost", |_: &TrainingGroup, case: &TrainingCase| case.communication_cost());
    let doubt = |group: &TrainingGroup, case: &TrainingCase| {
        is_speed_doubtful(group, case) || is_baseline_doubtful(group, case)
    };
    cost.shown("cost", "%", percent_number).doubted(doubt)
}

fn is_baseline_doubtful(group: &TrainingGroup, case: &TrainingCase) -> bool {
    case.baseline.as_deref().is_some_and(|baseline| is_speed_doubtful(group, baseline))
}

/// Mean power, energy per image or token, and speed per watt; the last one is not in CSV.
pub fn energy<'a>(unit: WorkUnit) -> [Column<'a>; 3] {
    let column = |csv: &str, name, unit: &str, value: fn(Energy) -> f64| {
        let energy = figure(csv, move |_: &TrainingGroup, case: &TrainingCase| Some(value(energy::case_energy(case)?)));
        energy.shown(name, unit, three_digits).doubted(is_speed_doubtful)
    };
    let one = unit.singular();
    [
        column("power_watts", "power", "W", |it| it.watts),
        column(&format!("joules_per_{one}"), "energy", &format!("J/{one}"), |it| it.joules_per_unit),
        column("", "per watt", unit.per_second(), |it| it.units_per_second_per_watt),
    ]
}

/// Time and cost of an epoch, cost of 90 epochs, and cost relative to the base.
pub fn cost(price: Option<&Price>) -> [Column<'_>; 4] {
    let currency = price.map_or("", |price| price.currency.as_str());
    let column = |csv, name, unit, value: fn(Cost) -> f64, format| {
        let of_case = move |group: &TrainingGroup, case: &TrainingCase| Some(value(price?.case_cost(group, case)?));
        figure(csv, of_case).shown(name, unit, format)
    };
    let hours = |seconds: f64| three_digits(seconds / 3600.0);
    [
        column("imagenet_epoch_s", "epoch time", "h", |it| it.seconds_per_epoch.0, hours).doubted(is_speed_doubtful),
        column("imagenet_epoch_cost", "epoch cost", currency, |it| it.of_epoch, three_digits)
            .doubted(is_speed_doubtful),
        column("imagenet_90_epochs_cost", "90 epochs", currency, |it| it.of_90_epochs, three_digits)
            .doubted(is_speed_doubtful),
        column("cost_over_base", "over base", "%", |it| it.over_base, percent_number),
    ]
}

/// The price, for CSV.
pub fn price(price: Option<&Price>) -> Column<'_> {
    text("price", move |group, case| {
        optional(price.and_then(|price| price.case_cost(group, case)).map(|cost| cost.price))
    })
}

/// Time that a step loses relative to the base, for CSV.
pub fn lost<'a>() -> Column<'a> {
    figure("lost_s", |group, case| Some(case_loss(group, case)?.loss.total.seconds))
}

/// Part of the loss, for CSV.
pub fn lost_part<'a>(part: LossPart) -> Column<'a> {
    let seconds = move |loss: CaseLoss| Some(loss.part(part)?.seconds);
    figure(format!("lost_{}_s", part.key()), move |group, case| seconds(case_loss(group, case)?))
}

/// DLPerf's figures, for CSV.
pub fn dlperf<'a>(groups: &[TrainingGroup]) -> Vec<Column<'a>> {
    let average = |unit: WorkUnit| {
        let csv = format!("dlperf_average_speed_{unit}_per_s");
        of_figures(csv, |figures| Some(figures.dlperf.average_speed.0))
    };
    let mut columns = columns::of_units(groups, average);
    columns.extend(columns::of_units(groups, dlperf_speed));
    columns.push(of_figures("dlperf_speedup", |figures| figures.dlperf.speedup));
    columns
}
