//! Breakdown of the step time of each case, from the records.

use ringmark_core::dimension::{Phase, Seconds};

use crate::output::table::{Column, Row, Table};
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::figures::{Figures, TrainingCase};
use crate::read::load::iteration_times::{IterationTimes, phases_to_show};
use crate::read::show::numbers::{milliseconds_number, percent_number};
use crate::read::show::page::charts::Chart;
use crate::read::show::page::charts::stack::{StackBar, StackChart, StackGroup};
use crate::read::show::page::charts::style::phase_class;
use crate::read::show::page::content::series::{PageSeries, Setting};
use crate::read::show::page::document::Block;
use crate::read::show::training::columns as training;

/// A part of the step, with its color in charts.
struct StepPart {
    class: &'static str,
    column: training::Column<'static>,
}

const NOTE: &str = "Mean over ranks and iterations after warm-up, in the median run (of an even number of runs, the mean \
    of the two in the middle). Only all-reduce that backward does not hide is part of the step: first waiting for the \
    slowest rank, then transfer. Other is the overhead of the loop.";

/// Returns the parts in the order of a step; the exposed all-reduce is split in two.
fn parts(phases: &[Phase]) -> Vec<StepPart> {
    let part = |class, column| StepPart { class, column };
    let of_phase = |phase: Phase| match phase {
        Phase::ExposedAllreduce => {
            let [waiting, transfer] = training::waiting_and_transfer();
            vec![part("waiting", waiting), part("transfer", transfer)]
        }
        phase => vec![part(phase_class(phase), training::phase(phase))],
    };
    phases.iter().copied().flat_map(of_phase).chain([part("other", training::other())]).collect()
}

/// One bar: a case or its baseline.
struct Step<'a> {
    label: String,
    is_baseline: bool,
    case: &'a TrainingCase,
    times: &'a IterationTimes,
    is_doubtful: bool,
}

fn steps<'a>(series: &PageSeries<'a>) -> Vec<Step<'a>> {
    let times = |case: &'a TrainingCase| -> Option<&'a IterationTimes> {
        let Figures { times, .. } = case.figures.as_ref()?;
        times.as_ref()
    };
    let of_case = |case: &'a TrainingCase| {
        let step = |runs: &'a TrainingCase, is_baseline: bool| {
            let is_doubtful = !series.group.is_speed_reliable(runs);
            let label = if is_baseline { format!("{} baseline", case.case) } else { case.case.to_string() };
            Some(Step { label, is_baseline, case: runs, times: times(runs)?, is_doubtful })
        };
        step(case, false).into_iter().chain(case.baseline.as_deref().and_then(|runs| step(runs, true)))
    };
    series.group.cases.iter().flat_map(of_case).collect()
}

/// Returns `None` if no run has a record.
pub fn block(setting: &Setting) -> Option<Block> {
    let groups: Vec<(&PageSeries, Vec<Step>)> =
        setting.series.iter().map(|series| (series, steps(series))).filter(|(_, steps)| !steps.is_empty()).collect();
    if groups.is_empty() {
        return None;
    }
    let all = groups.iter().flat_map(|(_, steps)| steps).map(|step| step.times);
    let parts = parts(&phases_to_show(all));
    let bars = |is_share: bool| {
        let group = |(series, steps): &(&PageSeries, Vec<Step>)| StackGroup {
            name: series.name.clone(),
            style: series.style,
            bars: steps.iter().map(|step| bar(setting, series, step, &parts, is_share)).collect(),
        };
        groups.iter().map(group).collect()
    };
    let chart = |title: &str, axis: &str, is_share: bool| {
        Chart::Stack(StackChart {
            title: title.to_owned(),
            description: "one bar per case, divided into the parts of its mean step; the table contains the numbers"
                .to_owned(),
            axis: axis.to_owned(),
            end: is_share.then_some(100.0),
            parts: parts.iter().map(|part| (part.class, part.column.heading.name.clone())).collect(),
            groups: bars(is_share),
        })
    };
    let charts = vec![chart("Mean step", "ms", false), chart("Shares of the step", "%", true)];
    let has_baseline = groups.iter().any(|(_, steps)| steps.iter().any(|step| step.is_baseline));
    let note =
        if has_baseline { format!("{NOTE} Baseline: the same ranks without communication.") } else { NOTE.to_owned() };
    Some(Block {
        charts: vec![charts],
        table: Some(table(setting, &groups, &parts)),
        ..Block::new("Where the time of a step goes", note)
    })
}

/// Returns the bar of a step, in milliseconds or in percent of the step.
fn bar(setting: &Setting, series: &PageSeries, step: &Step, parts: &[StepPart], is_share: bool) -> StackBar {
    let whole = step.times.step.0;
    let part = |part: &StepPart| {
        let time = part.column.value(series.group, step.case).unwrap_or_default();
        let name = &part.column.heading.name;
        let share = percent_number(time / whole);
        let value = if is_share { 100.0 * time / whole } else { time * 1e3 };
        let which = setting.named(series, &step.label);
        (value, format!("{which}, {name}: {} ms, {share} % of the step", milliseconds_number(Seconds(time))))
    };
    StackBar {
        label: step.label.clone(),
        total: if is_share { String::new() } else { milliseconds_number(Seconds(whole)) },
        values: parts.iter().map(part).collect(),
        is_doubtful: step.is_doubtful,
    }
}

fn table(setting: &Setting, groups: &[(&PageSeries, Vec<Step>)], parts: &[StepPart]) -> Table {
    let several = setting.series.len() > 1;
    let (whole, exposed) = (training::step(), training::exposed_share());
    let parts = parts.iter().map(|part| &part.column);
    let shown: Vec<&training::Column> = std::iter::once(&whole).chain(parts).chain([&exposed]).collect();
    let names = several.then_some("result").into_iter().chain(["case"]).map(Column::text);
    let columns = names.chain(shown.iter().map(|column| column.heading.clone())).collect();
    let row = |series: &PageSeries, step: &Step| {
        let names = several.then(|| series.name.clone()).into_iter().chain([step.label.clone()]);
        Row {
            cells: names.chain(shown.iter().map(|column| column.cell(series.group, step.case))).collect(),
            bar: Some(step.times.step.0),
            style: Some(series.style),
            is_doubtful: step.is_doubtful,
            ..Row::default()
        }
    };
    let rows = groups.iter().flat_map(|(series, steps)| steps.iter().map(|step| row(series, step)));
    Table { columns, rows: rows.collect(), bars: Some("step") }
}
