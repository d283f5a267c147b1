//! Comparison of the strategies of a sweep, case by case.

use std::collections::BTreeSet;

use ringmark_core::dimension::{Bytes, Case, Model, Phase, WorkUnit};
use ringmark_core::file::run_name::Point;
use ringmark_core::number_text::percent_number;
use ringmark_core::stats::allreduce_model::Algorithm;

use crate::output::table::Table;
use crate::read::analyze::training::figures::{TrainingCase, TrainingGroup};
use crate::read::analyze::training::title::common_base;
use crate::read::load::run::Recorded;
use crate::read::show::columns::{self, figure, is_speed_doubtful};
use crate::read::show::numbers::billions;
use crate::read::show::text::Paragraph;
use crate::read::show::training::columns::{self as training, Column};

/// Comparison of strategies under otherwise equal conditions.
pub struct Comparison {
    /// Title with the conditions that they share.
    pub title: String,
    /// A row for each case and strategy.
    pub table: Table,
    /// Sentence about the base if it is common to all.
    pub note: Option<String>,
}

/// Explanation of the columns.
pub const LEGEND: &str = "strategy: how gradients are summed and weights updated; relative: speed relative to all-reduce in the same case; \
    step: one iteration; exposed: exchange not hidden by forward and backward; memory: peak of any rank; fits: parameters of \
    the network that would fill a rank's memory, if memory grows with them; sent: by a rank in a step";

/// Returns a comparison for each set of groups that differ only in the strategy.
pub fn comparisons<'a>(groups: impl Iterator<Item = &'a TrainingGroup>) -> Vec<Comparison> {
    let mut sets: Vec<Vec<&TrainingGroup>> = Vec::new();
    for group in groups {
        let alike = |other: &&TrainingGroup| other.conditions.with_all_reduce() == group.conditions.with_all_reduce();
        match sets.iter_mut().find(|set| set.first().is_some_and(alike)) {
            Some(set) => set.push(group),
            None => sets.push(vec![group]),
        }
    }
    sets.iter().filter(|set| set.len() > 1).map(|set| comparison(set)).collect()
}

/// Returns the comparisons as text, without warnings: the sections of the groups contain them.
pub fn sections(groups: &[TrainingGroup]) -> Vec<Paragraph> {
    let section = |Comparison { title, table, note }: Comparison| {
        let legend = Paragraph::Legend([vec![LEGEND.to_owned()], Vec::new()]);
        let note = note.map(|note| Paragraph::Note(vec![note]));
        [Paragraph::Heading(vec![title]), Paragraph::Table(table), legend].into_iter().chain(note)
    };
    comparisons(groups.iter()).into_iter().flat_map(section).collect()
}

fn comparison(groups: &[&TrainingGroup]) -> Comparison {
    let Point { model, dtype, batch, .. } = groups[0].conditions.point;
    let cases: BTreeSet<(u32, Case)> =
        groups.iter().flat_map(|group| &group.cases).map(|case| (case.case.ranks(), case.case)).collect();
    let rows = cases.into_iter().flat_map(|(_, case)| {
        let mut all_reduce = groups.iter().filter(|group| group.conditions.point.strategy.is_all_reduce());
        let all_reduce = all_reduce.find_map(|group| group.case(case));
        groups
            .iter()
            .copied()
            .filter_map(move |group| Some(columns::row(group, group.case(case)?, &shown(all_reduce, batch.unit()))))
    });
    Comparison {
        title: format!("Comparison of strategies: {}, {dtype}, {batch}", model.facts().title),
        table: Table { columns: columns::headings(&shown(None, batch.unit())), rows: rows.collect(), bars: None },
        note: groups.iter().find_map(|group| common_base(group)),
    }
}

/// Returns the columns for a case; `all_reduce` has its runs with `--strategy all-reduce`.
fn shown(all_reduce: Option<&TrainingCase>, unit: WorkUnit) -> Vec<Column<'_>> {
    let of_all_reduce = move |_: &TrainingGroup, case: &TrainingCase| {
        Some(case.figures.as_ref()?.speed.0 / all_reduce?.figures.as_ref()?.speed.0)
    };
    let is_all_reduce_doubtful = all_reduce.is_some_and(|case| !case.speed_reliability_warnings.is_empty());
    vec![
        columns::case(),
        columns::numbers_of_text("strategy", |group: &TrainingGroup, _| group.conditions.point.strategy.to_string()),
        training::speed(unit),
        figure("", of_all_reduce).shown("relative", "%", percent_number).doubted(if is_all_reduce_doubtful {
            |_, _| true
        } else {
            is_speed_doubtful
        }),
        training::efficiency().minor(),
        training::step(),
        training::phase(Phase::ExposedAllreduce),
        columns::peak_memory(),
        figure("", |group: &TrainingGroup, case| largest_network(group.conditions.point.model, case))
            .shown("fits", "1e9", billions),
        figure("", |_, case: &TrainingCase| sent(case)).shown("sent", "GB", billions),
    ]
}

/// Returns `parameters x memory of a rank / peak memory`: the number of parameters at which the peak would reach the
/// memory. `None` without the memory in the record.
///
/// For GPT-2 124M with a peak of 2.17 GB, a rank with 12.2 GB fits 0.70e9 parameters.
fn largest_network(model: Model, case: &TrainingCase) -> Option<f64> {
    // `None` is the smallest value.
    let memory = case.ranks().map(|rank| Some(rank.memory?.0)).min()??;
    let peak = case.peak_memory().filter(|peak| peak.0 > 0)?;
    Some(model.facts().parameters as f64 * memory as f64 / peak.0 as f64)
}

/// Returns the bytes that a rank sends in a step, of the rank that sends most; `None` without a record.
fn sent(case: &TrainingCase) -> Option<f64> {
    let Recorded { conditions, facts, .. } = case.runs.iter().find_map(|run| run.recorded.as_ref())?;
    let config = &conditions.config;
    match &facts.strategy {
        Some(used) => used.sent_by_rank.iter().map(|bytes| bytes.0 as f64).reduce(f64::max),
        None if config.gradient_compression.is_none() => {
            let sent = |bucket: &Bytes| config.exchange.wire.size_of(*bucket).0 as f64;
            Some(Algorithm::Ring.volume(case.case) * facts.buckets.iter().map(sent).sum::<f64>())
        }
        None => None,
    }
}
