//! Comparison of the kv-stores of a sweep, case by case.

use std::collections::BTreeSet;

use ringmark_core::dimension::{Case, Phase, Seconds};
use ringmark_core::number_text::four_digits;

use crate::output::table::Table;
use crate::read::analyze::training::figures::{Figures, Group, TrainedCase};
use crate::read::analyze::training::title::common_base;
use crate::read::show::numbers::{marked, milliseconds};
use crate::read::show::text::Paragraph;

/// Comparison of kv-stores under otherwise equal conditions.
pub struct Comparison {
    /// Title with the conditions that they share.
    pub title: String,
    /// A row for each case and kv-store.
    pub table: Table,
    /// Sentence about the base if it is common to all.
    pub note: Option<String>,
}

/// Explanation of the columns.
pub const LEGEND: &str = "of ring: speed relative to ring in the same case; exposed: exchange not hidden by backward";

/// Returns a comparison for each set of groups that differ only in the kv-store.
pub fn comparisons<'a>(groups: impl Iterator<Item = &'a Group>) -> Vec<Comparison> {
    let mut sets: Vec<Vec<&Group>> = Vec::new();
    for group in groups {
        let alike = |other: &&Group| other.conditions.with_ring() == group.conditions.with_ring();
        match sets.iter_mut().find(|set| set.first().is_some_and(alike)) {
            Some(set) => set.push(group),
            None => sets.push(vec![group]),
        }
    }
    sets.iter().filter(|set| set.len() > 1).map(|set| comparison(set)).collect()
}

/// Returns the comparisons as text, without warnings: the sections of the groups contain them.
pub fn sections(groups: &[Group]) -> Vec<Paragraph> {
    let section = |Comparison { title, table, note }: Comparison| {
        let legend = Paragraph::Legend([vec![LEGEND.to_owned()], Vec::new()]);
        let note = note.map(|note| Paragraph::Note(vec![note]));
        [Paragraph::Heading(vec![title]), Paragraph::Table(table), legend].into_iter().chain(note)
    };
    comparisons(groups.iter()).into_iter().flat_map(section).collect()
}

fn comparison(groups: &[&Group]) -> Comparison {
    let conditions = &groups[0].conditions;
    let (model, dtype, batch_size) = (conditions.model.facts().title, conditions.dtype, conditions.batch_size);
    let headers = [
        ("case", ""),
        ("kv-store", ""),
        ("speed", "images/s"),
        ("of ring", "%"),
        ("speedup", ""),
        ("efficiency", "%"),
        ("step", "ms"),
        ("exposed", "ms"),
    ];
    let cases: BTreeSet<(u32, Case)> =
        groups.iter().flat_map(|group| &group.cases).map(|case| (case.case.ranks(), case.case)).collect();
    let rows = cases.into_iter().flat_map(|(_, case)| {
        let mut ring = groups.iter().filter(|group| group.conditions.kv_store.is_ring());
        let ring = ring.find_map(|group| group.case(case));
        groups.iter().filter_map(move |group| Some(row(group, group.case(case)?, ring)))
    });
    Comparison {
        title: format!("Comparison of kv-stores: {model}, {dtype}, batch size {batch_size}"),
        table: Table::new(&headers, rows.collect::<Vec<_>>()),
        note: groups.iter().find_map(|group| common_base(group)),
    }
}

fn row(group: &Group, case: &TrainedCase, ring: Option<&TrainedCase>) -> Vec<String> {
    let name = vec![case.case.to_string(), group.conditions.kv_store.to_string()];
    let Some(Figures { speed, speedup, efficiency, times, .. }) = &case.figures else {
        return name.into_iter().chain(vec!["-".to_owned(); 6]).collect();
    };
    let is_speed_doubtful = group.speed_reliability_warnings(case).next().is_some();
    let is_ring_doubtful = ring.is_some_and(|ring| !ring.speed_reliability_warnings.is_empty());
    let nothing = || "-".to_owned();
    let of_ring = ring.and_then(|ring| Some(100.0 * speed.0 / ring.figures.as_ref()?.speed.0));
    let of_ring = of_ring.map(|share| marked(format!("{share:.1}"), is_speed_doubtful || is_ring_doubtful));
    let milliseconds = |time: Seconds| marked(milliseconds(time), is_speed_doubtful);
    let figures = [
        marked(four_digits(speed.0), is_speed_doubtful),
        of_ring.unwrap_or_else(nothing),
        marked(format!("{speedup:.2}"), !group.is_reliable(case)),
        marked(format!("{:.1}", 100.0 * efficiency), !group.is_reliable(case)),
        times.map_or_else(nothing, |times| milliseconds(times.step)),
        times.map_or_else(nothing, |times| milliseconds(times.phases[Phase::ExposedAllreduce])),
    ];
    name.into_iter().chain(figures).collect()
}
