//! The first screen: how fast, how efficient, what is lost, and whether to believe it.

use std::collections::BTreeSet;

use ringmark_record::benchmark::bandwidth::figures::{best_busbw, largest_busbw, wrong};
use ringmark_record::dimension::case::Case;
use ringmark_record::dimension::units::{Bytes, GigabytesPerSecond};
use ringmark_record::stats::scaling_loss::{Difference, Part};
use ringmark_record::validity::thresholds::WIDE_SPREAD;

use crate::read::analyse::conclusion;
use crate::read::analyse::figures::{CaseRuns, Figures, Group};
use crate::read::analyse::quotable::{self, Objection};
use crate::read::analyse::results::ResultFolder;
use crate::read::analyse::scaling_loss::{self, CaseLoss};
use crate::read::analyse::title;
use crate::read::show::page::charts::style::Style;
use crate::read::show::page::content::bandwidth::size as size_of_message;
use crate::read::show::page::content::numbers::{big, count, percent};
use crate::read::show::page::content::scaling_loss::class;
use crate::read::show::page::content::series::{self, Series, Setting};
use crate::read::show::page::document::{Figure, Headline, Share, Trust};

/// One a series.
pub fn headlines(results: &[ResultFolder], settings: &[Setting]) -> Vec<Headline> {
    let of_setting = |setting: &Setting| -> Vec<Headline> {
        setting.series.iter().map(|series| headline(&results[series.style.colour], setting, series)).collect()
    };
    let of_bandwidth = results.iter().enumerate().filter(|(_, result)| result.groups.is_empty()).filter_map(bandwidth);
    settings.iter().flat_map(of_setting).chain(of_bandwidth).collect()
}

/// Of a result that holds bandwidth runs alone: its largest case.
fn bandwidth((number, result): (usize, &ResultFolder)) -> Option<Headline> {
    let (case, record) = result.bandwidth.last()?;
    let objections: Vec<Objection> =
        result.bandwidth.iter().flat_map(|(case, record)| quotable::to_bandwidth(*case, record)).collect();
    let is_doubtful = !objections.is_empty();
    let figure = |label: &str, (size, rate): (Bytes, GigabytesPerSecond)| Figure {
        label: label.to_owned(),
        value: big(rate.0),
        unit: "GB/s",
        note: format!("bus bandwidth of {} on {case}", size_of_message(size)),
        parts: Vec::new(),
        is_doubtful,
    };
    let best = best_busbw(&record.results, case.ranks()).map(|best| figure("Fastest message", best));
    let largest = largest_busbw(&record.results, case.ranks()).map(|largest| figure("Largest message", largest));
    let wrong = result.bandwidth.iter().filter_map(|(_, record)| wrong(&record.results)).reduce(u64::saturating_add);
    let mut reasons = vec![match wrong {
        None => "results were not checked".to_owned(),
        Some(0) => "every result is right".to_owned(),
        Some(wrong) => format!("{wrong} elements are wrong"),
    }];
    reasons.extend((!result.problems.is_empty()).then(|| count(result.problems.len(), "problem") + " in the folder"));
    let warnings = result.bandwidth.iter().map(|(_, record)| record.warnings.len()).sum::<usize>();
    reasons.extend((warnings > 0).then(|| count(warnings, "warning")));
    reasons.splice(0..0, objections.into_iter().map(|objection| objection.reason));
    let trust = match (wrong, result.problems.is_empty() && warnings == 0) {
        _ if is_doubtful => Trust::NotToQuote,
        (Some(0), true) => Trust::Sound,
        (Some(1..), _) => Trust::NotToQuote,
        _ => Trust::WithCare,
    };
    let devices: BTreeSet<&str> = record.ranks.iter().map(|rank| rank.device_name.as_str()).collect();
    let devices = devices.into_iter().collect::<Vec<_>>().join(" / ");
    Some(Headline {
        style: Style { colour: number, shape: 0 },
        name: result.name.clone(),
        what: format!("All-reduce by {}: {devices}", record.backend),
        trust,
        reasons,
        conclusion: None,
        figures: best.into_iter().chain(largest).collect(),
    })
}

fn headline(result: &ResultFolder, setting: &Setting, series: &Series) -> Headline {
    let group = series.group;
    let (trust, reasons) = trust(result, group);
    let size =
        largest(group).map(|(case, _)| format!("; {}", size(case.case, title::process(group)))).unwrap_or_default();
    Headline {
        style: series.style,
        name: series.name.clone(),
        what: format!("{}: {}{size}", setting.title, series::device(group)),
        trust,
        reasons,
        conclusion: conclusion::of_group(group),
        figures: figures(group),
    }
}

/// `4n8g: 4 nodes of 8 ranks`.
fn size(case: Case, process: &str) -> String {
    format!("{case}: {} of {}", count(case.nodes as usize, "node"), count(case.gpus_per_node as usize, process))
}

/// The largest case that has figures.
fn largest(group: &Group) -> Option<(&CaseRuns, &Figures)> {
    group.cases.iter().rev().find_map(|case| Some((case, case.figures.as_ref()?)))
}

fn figures(group: &Group) -> Vec<Figure> {
    let figure = |label: String, value: String, unit: &'static str, note: String| Figure {
        label,
        value,
        unit,
        note,
        parts: Vec::new(),
        is_doubtful: false,
    };
    let nothing = || "\u{2013}".to_owned();
    let Some((case, figures)) = largest(group) else {
        return vec![figure("Speed".to_owned(), nothing(), "", "no run counts".to_owned())];
    };
    let name = case.case;
    let per_process = format!("{} a {}", big(figures.per_rank.0), title::process(group));
    let of_speed = |figure: Figure| Figure { is_doubtful: group.speed_objections(case).next().is_some(), ..figure };
    let of_scaling = |figure: Figure| Figure { is_doubtful: !group.is_quotable(case), ..figure };
    let mut shown = vec![of_speed(figure(format!("Speed of {name}"), big(figures.speed.0), "images/s", per_process))];
    if let Some(times) = figures.times {
        let exposed = format!("{} % of it communication without computing", percent(times.exposed_share()));
        shown.push(of_speed(figure(format!("Step of {name}"), big(times.step.0 * 1e3), "ms", exposed)));
    }
    let base = group.base.unwrap_or(Case::SINGLE);
    if base == name {
        let note = "one case alone: nothing to scale from".to_owned();
        shown.push(figure(format!("Efficiency of {name}"), nothing(), "", note));
        return shown;
    }
    let ideal = f64::from(name.ranks()) / f64::from(base.ranks());
    let speedup = format!("speedup {:.2} of {ideal} over {base}", figures.speedup);
    shown.push(of_scaling(figure(format!("Efficiency of {name}"), percent(figures.efficiency), "%", speedup)));
    let lost = 1.0 - figures.efficiency;
    let label = if lost < 0.0 { "Gained" } else { "Lost" };
    let split = scaling_loss::of_case(group, case).filter(|_| group.is_quotable(case));
    let parts = split.map(|loss| parts(&loss)).unwrap_or_default();
    let note = if figures.times.is_none() { "only records tell where" } else { "" }.to_owned();
    let loss = figure(format!("{label} by {name}"), percent(lost.abs()), "%", note);
    shown.push(of_scaling(Figure { parts, ..loss }));
    shown
}

/// Shares of what is lost; those of gains are below 0.
fn parts(loss: &CaseLoss) -> Vec<Share> {
    let share = |(part, difference): &(Part, Difference)| {
        let share = loss.loss.share(difference.seconds)?;
        Some(Share { class: class(*part), name: part.name(), share })
    };
    loss.loss.parts.iter().filter_map(share).collect()
}

/// Whether to believe the figures, and what speaks for or against it, the gravest first.
fn trust(result: &ResultFolder, group: &Group) -> (Trust, Vec<String>) {
    let counted: usize = group.cases.iter().map(|case| case.counted().count()).sum();
    let runs: usize = group.cases.iter().map(|case| case.runs.len()).sum();
    let mut trust = Trust::Sound;
    let mut reasons = Vec::new();
    let mut lower = |to: Trust, reason: String| {
        trust = if trust == Trust::NotToQuote { trust } else { to };
        reasons.push(reason);
    };
    if counted == 0 {
        lower(Trust::NotToQuote, "no run counts".to_owned());
    }
    for objection in group.all_objections() {
        lower(Trust::NotToQuote, objection.reason);
    }
    if group.conditions.recorded.is_none() {
        lower(Trust::WithCare, "logs without records: nothing but speed can be judged".to_owned());
    }
    if runs > counted {
        lower(Trust::WithCare, format!("{} left out", count(runs - counted, "run")));
    }
    // A run that was left out is a problem too, and reported already.
    let others = result.problems.len().saturating_sub(runs - counted);
    if others > 0 {
        lower(Trust::WithCare, format!("{} in the folder", count(others, "other problem")));
    }
    let warnings = group.warnings.len() + group.with_baselines().map(|case| case.warnings.len()).sum::<usize>();
    if warnings > 0 {
        lower(Trust::WithCare, count(warnings, "warning"));
    }
    let cases = || group.cases.iter().filter(|case| case.figures.is_some());
    if counted > 0 && cases().any(|case| case.counted().count() == 1) {
        lower(Trust::WithCare, "one run of a case has no spread".to_owned());
    }
    let spread = cases().filter_map(|case| case.figures.as_ref()?.cv).fold(f64::NAN, f64::max);
    if spread > WIDE_SPREAD {
        lower(Trust::WithCare, format!("runs differ by {} %, which is much", percent(spread)));
    } else if spread.is_finite() {
        reasons.push(format!("runs differ by {} %", percent(spread)));
    }
    if counted > 0 {
        reasons.push(match (counted, runs) {
            (1, 1) => "the one run counts".to_owned(),
            (counted, runs) if counted == runs => format!("all {runs} runs count"),
            (counted, runs) => format!("{counted} of {runs} runs count"),
        });
    }
    (trust, reasons)
}
