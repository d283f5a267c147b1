//! Headlines of a report page: speed, efficiency and scaling loss. Reliability is in `trust`.

use std::collections::BTreeMap;

use ringmark_core::dimension::{Case, Model, WorkUnit};
use ringmark_core::number_text::{four_digits, percent, three_digits};
use ringmark_core::stats::scaling_loss::{Difference, LossPart};

use crate::output::table::Style;
use crate::read::analyze::batch_sizes::{BatchFigures, BatchPoint, BatchSeries, BatchTable};
use crate::read::analyze::published::Workload;
use crate::read::analyze::results::ResultFolder;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::conclusion;
use crate::read::analyze::training::cost::Price;
use crate::read::analyze::training::energy;
use crate::read::analyze::training::figures::{Figures, TrainingCase, TrainingGroup};
use crate::read::analyze::training::scaling_loss::{self, CaseLoss};
use crate::read::analyze::training::title;
use crate::read::show::columns;
use crate::read::show::numbers::{billions, count, percent_number};
use crate::read::show::page::content::batch_sizes::{self, PageTable};
use crate::read::show::page::content::scaling_loss::class;
use crate::read::show::page::content::series::{self, PageSeries, Setting};
use crate::read::show::page::document::{Figure, Headline, Share};
use crate::read::show::training::columns::{self as training, Column};

/// Returns a headline for each series. A table by batch size that does not scale gets one headline for all its series.
pub fn headlines(results: &[ResultFolder], settings: &[Setting], by_size: &[PageTable]) -> Vec<Headline> {
    let (together, scored): (Vec<&PageTable>, Vec<&PageTable>) =
        by_size.iter().filter(|table| !table.is_scaling()).partition(|table| table.workload == Workload::Training);
    let is_covered =
        |group: &TrainingGroup| together.iter().any(|table| table.groups.iter().any(|it| std::ptr::eq(*it, group)));
    let of_table = |table: &PageTable| by_batch_size(&results[table.result], table);
    let of_setting = |setting: &Setting| -> Vec<Headline> {
        let series = setting.series.iter().filter(|series| !is_covered(series.group));
        let is_only = results.len() == 1 && setting.series.len() == 1;
        series.map(|series| headline(&results[series.style.color], setting, series, is_only)).collect()
    };
    let of_training = together.iter().map(|table| of_table(table)).chain(settings.iter().flat_map(of_setting));
    of_training.chain(scored.iter().map(|table| of_table(table))).collect()
}

/// Returns the headline of a table by batch size: the fastest point of each network.
fn by_batch_size(result: &ResultFolder, table: &PageTable) -> Headline {
    let (trust, reasons) = table.assessment.trust(result.problems.len());
    let device = series::device_title(table.table.device);
    let mut best: BTreeMap<Model, (&BatchSeries, &BatchPoint, &BatchFigures)> = BTreeMap::new();
    for series in &table.table.series {
        for (point, figures) in series.measured() {
            let known = best.entry(series.model).or_insert((series, point, figures));
            if figures.speed > known.2.speed {
                *known = (series, point, figures);
            }
        }
    }
    let figure = |(model, (series, point, figures)): (Model, (&BatchSeries, &BatchPoint, &BatchFigures))| {
        let memory = figures.peak_memory.map(|peak| format!(", {} GB", billions(peak.0 as f64))).unwrap_or_default();
        let share = figures.utilization.and_then(|it| Some(format!(", {}", it.share_text()?))).unwrap_or_default();
        Figure {
            label: model.facts().title.to_owned(),
            value: four_digits(figures.speed.0),
            unit: model.unit().per_second().to_owned(),
            note: format!("batch size {}, {}, {}{memory}{share}", point.batch_size, series.dtype, series.case),
            parts: Vec::new(),
            is_doubtful: point.is_doubtful,
        }
    };
    Headline {
        style: Style { color: table.result, shape: 0 },
        name: table.name.clone(),
        what: format!("{}, {device}: {}", batch_sizes::title(table.workload), table.conditions()),
        trust: Some(trust),
        reasons,
        conclusion: gain(&table.table),
        figures: best.into_iter().map(figure).collect(),
    }
}

/// Formats the gain from larger batches:
/// `batch size 32 compared with 1: 1.90x the speed (AlexNet, fp32, 1n1g) to 2.40x (ResNet-18, fp32, 1n1g)`.
fn gain(table: &BatchTable) -> Option<String> {
    let ends = |series: &BatchSeries| {
        let (first, last) = (series.measured().next()?, series.measured().last()?);
        (first.0.batch_size < last.0.batch_size).then(|| [first.0, last.0].map(|point| point.batch_size))
    };
    // The widest range, which most series cover unless they ran out of memory.
    let widest = table.series.iter().filter_map(ends).max_by_key(|[first, last]| last / first.max(&1))?;
    let gain = |series: &BatchSeries| {
        let speed = |size: u32| Some(series.measured().find(|(point, _)| point.batch_size == size)?.1.speed.0);
        let name = format!("{}, {}, {}", series.model.facts().title, series.dtype, series.case);
        Some((speed(widest[1])? / speed(widest[0])?, name))
    };
    let mut gains: Vec<(f64, String)> = table.series.iter().filter_map(gain).collect();
    gains.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let text = |(gain, name): &(f64, String), what: &str| format!("{gain:.2}x{what} ({name})");
    let range = match &gains[..] {
        [] => return None,
        [one] => text(one, " the speed"),
        [first, .., last] => format!("{} to {}", text(first, " the speed"), text(last, "")),
    };
    let is_doubtful = table.series.iter().flat_map(|series| &series.points).any(|point| point.is_doubtful);
    let doubt = if is_doubtful { " (unreliable)" } else { "" };
    Some(format!("batch size {} compared with {}: {range}{doubt}", widest[1], widest[0]))
}

/// Returns the headline of a series, named by its conditions if it is the only one of the only result.
fn headline(result: &ResultFolder, setting: &Setting, series: &PageSeries, is_only: bool) -> Headline {
    let group = series.group;
    let (trust, reasons) = group.assessment().trust(result.problems.len());
    let size =
        largest(group).map(|(case, _)| format!("; {}", size(case.case, title::process(group)))).unwrap_or_default();
    let quick = if group.is_quick() { " (quick)" } else { "" };
    let (name, what) = match is_only {
        true => (format!("{}{quick}", setting.title), format!("{}{size}", series::device(group))),
        false => (series.name.clone(), format!("{}: {}{size}", setting.title, series::device(group))),
    };
    Headline {
        style: series.style,
        name,
        what,
        trust: Some(trust),
        reasons,
        conclusion: conclusion::group_conclusion(group),
        figures: figures(group, series.price),
    }
}

/// Formats `4n8g: 4 nodes of 8 ranks`.
fn size(case: Case, process: &str) -> String {
    format!("{case}: {} of {}", count(case.nodes as usize, "node"), count(case.gpus_per_node as usize, process))
}

fn largest(group: &TrainingGroup) -> Option<(&TrainingCase, &Figures)> {
    group.cases.iter().rev().find_map(|case| Some((case, case.figures.as_ref()?)))
}

fn figures(group: &TrainingGroup, price: Option<&Price>) -> Vec<Figure> {
    let nothing = || "\u{2013}".to_owned();
    let Some((case, figures)) = largest(group) else {
        return vec![Figure::new("Speed", nothing(), "", "no run counts")];
    };
    let name = case.case;
    // The value of a column, with the same unit and parentheses as in the tables.
    let of_column = |label: &str, column: Column, note: String| Figure {
        label: format!("{label} of {name}"),
        value: column.text(group, case).unwrap_or_else(nothing),
        unit: column.heading.unit.clone(),
        note,
        parts: Vec::new(),
        is_doubtful: column.is_doubtful(group, case),
    };
    let per_process = format!("{} per {}", four_digits(figures.per_rank.0), title::process(group));
    let mut shown = vec![of_column("Speed", training::speed(group.unit()), per_process)];
    if let Some(times) = figures.times {
        let exposed = format!("{} exposed communication", percent(times.exposed_share()));
        shown.push(of_column("Step", training::step(), exposed));
    }
    if let Some(it) = group.utilization(case) {
        let share = it.share_text().unwrap_or_else(|| "no matmul rate in these records".to_owned());
        shown.push(of_column("FLOP rate", columns::teraflops(), share));
    }
    if let Some(it) = energy::case_energy(case) {
        let unit = group.unit().per_second();
        let note = format!("{} {}/W at {} W", three_digits(it.units_per_second_per_watt), unit, three_digits(it.watts));
        let [_, energy, _] = training::energy(group.unit());
        shown.push(of_column("Energy", energy, note));
    }
    if let Some((price, it)) = price.and_then(|price| Some((price, price.case_cost(group, case)?))) {
        let note = format!("{} over {}, at {price}", percent(it.over_base), group.base.unwrap_or(Case::SINGLE));
        let (what, value) = match group.unit() {
            WorkUnit::Image => ("90 epochs of ImageNet", it.of_90_epochs),
            WorkUnit::Token => ("1e9 tokens", it.of_epoch),
        };
        let value = format!("{}{}", price.currency, three_digits(value));
        let cost = Figure::new(format!("{what} on {name}"), value, "", note);
        shown.push(Figure { is_doubtful: !group.is_speed_reliable(case), ..cost });
    }
    let base = group.base.unwrap_or(Case::SINGLE);
    if base == name {
        let note = "a single case has no scaling".to_owned();
        shown.push(Figure::new(format!("Efficiency of {name}"), nothing(), "", note));
        return shown;
    }
    let ideal = f64::from(name.ranks()) / f64::from(base.ranks());
    let over = group.base_text().unwrap_or_else(|| base.to_string());
    let margin = figures.efficiency_margin.map(|margin| format!("95 % interval \u{b1} {}, ", percent_number(margin)));
    let note = format!("{}speedup {:.2} of {ideal} over {over}", margin.unwrap_or_default(), figures.speedup);
    shown.push(of_column("Efficiency", training::efficiency(), note));
    let lost = 1.0 - figures.efficiency;
    let label = if lost < 0.0 { "Scaling gain" } else { "Scaling loss" };
    let split = scaling_loss::case_loss(group, case).filter(|_| group.is_reliable(case));
    let note = match &split {
        _ if group.conditions.program().is_some() => "the parts of another program are unknown".to_owned(),
        _ if figures.times.is_none() => "only records contain the parts".to_owned(),
        _ if figures.efficiency_margin.is_none() => {
            format!("{}: too few for a confidence interval", count(case.counted().count(), "run"))
        }
        Some(loss) if loss.is_uncertain() => "not significant: the interval contains 0; use more --runs".to_owned(),
        _ => String::new(),
    };
    let parts = split.filter(|loss| !loss.is_uncertain()).map(|loss| parts(&loss)).unwrap_or_default();
    let loss = Figure::new(format!("{label} of {name}"), percent_number(lost.abs()), "%", note);
    shown.push(Figure { parts, is_doubtful: !group.is_reliable(case), ..loss });
    shown
}

/// Returns the shares of the loss by part; gains are negative.
fn parts(loss: &CaseLoss) -> Vec<Share> {
    let share = |(part, difference): &(LossPart, Difference)| {
        let share = loss.loss.share(difference.seconds)?;
        Some(Share { class: class(*part), name: part.name(), share })
    };
    loss.loss.parts.iter().filter_map(share).collect()
}
