//! Breakdown of the step time of each case, from the records.

use ringmark_core::dimension::{Phase, Seconds};
use ringmark_core::number_text::three_digits;

use crate::output::table::{Column, Row, Table};
use crate::read::analyze::training::figures::{Figures, TrainedCase};
use crate::read::load::iteration_times::{IterationTimes, phases_to_show};
use crate::read::show::numbers::{marked, milliseconds, percent_number};
use crate::read::show::page::charts::Chart;
use crate::read::show::page::charts::stack::{StackBar, StackChart, StackGroup};
use crate::read::show::page::charts::style::phase_class;
use crate::read::show::page::content::series::{PageSeries, Setting};
use crate::read::show::page::document::Block;

struct StepPart {
    class: &'static str,
    name: &'static str,
    time: Box<dyn Fn(&IterationTimes) -> Seconds>,
}

const NOTE: &str = "Mean over ranks and iterations after warm-up, in the median run. Only all-reduce that backward \
    does not hide is part of the step: first waiting for the slowest rank, then transfer. Other is the overhead of \
    the loop.";

/// Returns the parts in the order of a step; the exposed all-reduce is split in two.
fn parts(phases: &[Phase]) -> Vec<StepPart> {
    let part = |class, name, time: Box<dyn Fn(&IterationTimes) -> Seconds>| StepPart { class, name, time };
    let of_phase = |phase: Phase| match phase {
        Phase::ExposedAllreduce => vec![
            part("waiting", "waiting", Box::new(|times| times.waiting)),
            part("transfer", "transfer", Box::new(IterationTimes::transfer)),
        ],
        phase => vec![part(phase_class(phase), phase.title(), Box::new(move |times| times.phases[phase]))],
    };
    let other = part("other", "other", Box::new(IterationTimes::other));
    phases.iter().copied().flat_map(of_phase).chain([other]).collect()
}

/// One bar: a case or its baseline.
struct Step<'a> {
    label: String,
    is_baseline: bool,
    times: &'a IterationTimes,
    is_doubtful: bool,
}

fn steps<'a>(series: &PageSeries<'a>) -> Vec<Step<'a>> {
    let times = |case: &'a TrainedCase| -> Option<&'a IterationTimes> {
        let Figures { times, .. } = case.figures.as_ref()?;
        times.as_ref()
    };
    let of_case = |case: &'a TrainedCase| {
        let step = |runs: &'a TrainedCase, is_baseline: bool| {
            let is_doubtful = series.group.speed_reliability_warnings(runs).next().is_some();
            let label = if is_baseline { format!("{} baseline", case.case) } else { case.case.to_string() };
            Some(Step { label, is_baseline, times: times(runs)?, is_doubtful })
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
            parts: parts.iter().map(|part| (part.class, part.name)).collect(),
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
        let (name, time) = (part.name, (part.time)(step.times));
        let share = percent_number(time.0 / whole);
        let value = if is_share { 100.0 * time.0 / whole } else { time.0 * 1e3 };
        let which = setting.named(series, &step.label);
        (value, format!("{which}, {name}: {} ms, {share} % of the step", milliseconds(time)))
    };
    StackBar {
        label: step.label.clone(),
        total: if is_share { String::new() } else { three_digits(whole * 1e3) },
        values: parts.iter().map(part).collect(),
        is_doubtful: step.is_doubtful,
    }
}

fn table(setting: &Setting, groups: &[(&PageSeries, Vec<Step>)], parts: &[StepPart]) -> Table {
    let several = setting.series.len() > 1;
    let mut columns = vec![Column::text("case"), Column::numbers("step", "ms")];
    if several {
        columns.insert(0, Column::text("result"));
    }
    columns.extend(parts.iter().map(|part| Column::numbers(part.name, "ms")));
    columns.push(Column::numbers("exposed", "%"));
    let rows = groups.iter().flat_map(|(series, steps)| {
        steps.iter().map(move |step| {
            let milliseconds = |time| marked(milliseconds(time), step.is_doubtful);
            let mut cells = vec![step.label.clone(), milliseconds(step.times.step)];
            if several {
                cells.insert(0, series.name.clone());
            }
            cells.extend(parts.iter().map(|part| milliseconds((part.time)(step.times))));
            cells.push(marked(percent_number(step.times.exposed_share()), step.is_doubtful));
            Row {
                cells,
                bar: Some(step.times.step.0),
                style: Some(series.style),
                is_doubtful: step.is_doubtful,
                ..Row::default()
            }
        })
    });
    Table { columns, rows: rows.collect(), bars: Some("step") }
}
