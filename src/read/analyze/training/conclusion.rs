//! Summary sentence for a group of runs: the result of its largest case, and the cause of most of the scaling loss.

use std::collections::HashMap;

use ringmark_core::benchmark::warning::WarningKind;
use ringmark_core::dimension::WorkUnit;
use ringmark_core::number_text::{four_digits, percent};
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::stats::scaling_loss::{Difference, LossPart};
use ringmark_core::stats::welch::RUNS_OF_INTERVAL;

use crate::read::analyze::training::figures::{Figures, TrainingCase, TrainingGroup};
use crate::read::analyze::training::scaling_loss::{self, CaseLoss};

/// Returns a sentence such as `1n2g: speedup 1.85 of 2, efficiency 92 %; most of the loss is waiting for rank 1 on
/// host b`.
pub fn group_conclusion(group: &TrainingGroup) -> Option<String> {
    let (case, figures) = group.cases.iter().rev().find_map(|case| Some((case, case.figures.as_ref()?)))?;
    let doubt = if group.is_reliable(case) { "" } else { " (unreliable)" };
    let speed = speed(case, figures, group.conditions.point.batch.unit()) + doubt;
    let Some(base) = group.base.filter(|base| *base != case.case) else { return Some(speed) };
    let times = f64::from(case.case.ranks()) / f64::from(base.ranks());
    let Figures { speedup, efficiency, .. } = figures;
    let reached =
        format!("{}: speedup {speedup:.2} of {times}, efficiency {:.0} %{doubt}", case.case, 100.0 * efficiency);
    // Losses of disturbed runs are those of the disturbance.
    let lost =
        scaling_loss::case_loss(group, case).filter(|_| doubt.is_empty()).and_then(|loss| loss_text(&loss, case));
    Some(lost.map_or_else(|| reached.clone(), |lost| format!("{reached}; {lost}")))
}

/// Returns the speed of a case that has no base.
fn speed(case: &TrainingCase, figures: &Figures, unit: WorkUnit) -> String {
    let runs = case.counted().count();
    let spread = figures.cv.map(|cv| format!(", CV {} over {runs} runs", percent(cv))).unwrap_or_default();
    format!("{}: {} {}{spread}", case.case, four_digits(figures.speed.0), unit.per_second())
}

/// Returns the largest cause of the loss, or that none is significant; `None` if only the total was measured.
fn loss_text(loss: &CaseLoss, case: &TrainingCase) -> Option<String> {
    let Difference { seconds, margin } = loss.loss.total;
    if margin.is_none() {
        return Some(format!("fewer than {RUNS_OF_INTERVAL} runs per case are too few to break down the loss"));
    }
    if loss.is_uncertain() {
        return Some("the runs vary too much to break down the loss".to_owned());
    }
    if seconds <= 0.0 {
        return Some("no scaling loss".to_owned());
    }
    // The margins of two parts are combined as those of independent values.
    let margin = |one: Difference, other: Difference| one.margin.unwrap_or(0.0).hypot(other.margin.unwrap_or(0.0));
    // The two parts of compute can cancel out through noise; the total is then more accurate.
    let largest = |parts: &[(LossPart, Difference)]| {
        let mut parts = parts.to_vec();
        parts.sort_by(|(_, one), (_, other)| other.seconds.total_cmp(&one.seconds));
        let (_, first) = *parts.first()?;
        // A small part with a wide interval may be the largest, too.
        let is_rival = |(_, other): &(LossPart, Difference)| first.seconds - other.seconds <= margin(first, *other);
        let rival = parts[1..].iter().copied().find(is_rival);
        first.margin.is_some_and(|margin| first.seconds > margin).then(|| (parts[0], rival))
    };
    let finest = loss.loss.finest();
    if finest.is_empty() {
        return None;
    }
    let Some(((part, largest), rival)) = largest(&finest).or_else(|| largest(&loss.loss.parts)) else {
        return Some("the runs vary too much to locate the loss".to_owned());
    };
    let share = loss.loss.share(largest.seconds)?;
    let named = |part: LossPart| match part {
        LossPart::Waiting => format!("waiting for {}", straggler(case).as_deref().unwrap_or("the slowest rank")),
        part => part.name().to_owned(),
    };
    if let Some((other, second)) = rival {
        return Some(format!(
            "the largest part of the loss is {}, {:.0} %, or {}, {:.0} %: their intervals overlap",
            named(part),
            100.0 * share,
            named(other),
            100.0 * loss.loss.share(second.seconds)?
        ));
    }
    let what = match part {
        LossPart::Waiting => named(part),
        part => format!("{} ({})", part.name(), part.meaning()),
    };
    Some(match share > 0.5 {
        true => format!("most of the loss is {what}"),
        false => format!("the largest part of the loss is {what}, {:.0} %", 100.0 * share),
    })
}

/// Returns the straggler that most runs name in a warning, if any.
pub fn straggler(case: &TrainingCase) -> Option<String> {
    let named = |kind: WarningKind| {
        let warnings = case.counted().flat_map(|run| &run.warnings).filter(move |warning| warning.kind == kind);
        let abouts: Vec<&str> = warnings.map(|warning| warning.about.as_str()).collect();
        let mut counts: HashMap<&str, usize> = HashMap::new();
        abouts.iter().for_each(|about| *counts.entry(about).or_default() += 1);
        abouts.iter().max_by_key(|about| counts[**about]).map(|about| (*about).to_owned())
    };
    let slow = WarningKind::ALL.iter().take_while(|kind| **kind != WarningKind::Oversubscribed);
    slow.copied().find_map(named)
}
