//! Kv-stores of one sweep side by side: what each costs in the same case. Not for what a table of one of them says.

use std::collections::BTreeSet;

use ringmark_core::dimension::{Case, Phase};

use crate::read::analyse::figures::{Figures, Group, TrainedCase};
use crate::read::show::numbers::marked;
use crate::read::show::table::Table;
use crate::read::show::text::Paragraph;

/// One for all groups that differ in kv-store alone, where there are several.
pub fn sections(groups: &[Group]) -> Vec<Paragraph> {
    let mut tables: Vec<Vec<&Group>> = Vec::new();
    for group in groups {
        let alike = |other: &&Group| other.conditions.of_ring() == group.conditions.of_ring();
        match tables.iter_mut().find(|table| table.first().is_some_and(alike)) {
            Some(table) => table.push(group),
            None => tables.push(vec![group]),
        }
    }
    tables.iter().filter(|table| table.len() > 1).flat_map(|table| section(table)).collect()
}

/// Each warning stands with the table of its own kv-store.
fn section(groups: &[&Group]) -> [Paragraph; 2] {
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
    let title = vec![
        format!("Kv-stores side by side: {model}, {dtype}, batch size {batch_size}"),
        "of ring: the speed by that of ring in the same case; exposed: exchange that".to_owned(),
        "backward did not hide".to_owned(),
    ];
    [Paragraph::Heading(title), Paragraph::Table(Table::new(&headers, rows.collect::<Vec<_>>()))]
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
    let milliseconds = |seconds: f64| marked(format!("{:.2}", seconds * 1e3), is_speed_doubtful);
    let figures = [
        marked(format!("{:.2}", speed.0), is_speed_doubtful),
        of_ring.unwrap_or_else(nothing),
        marked(format!("{speedup:.2}"), !group.is_reliable(case)),
        marked(format!("{:.1}", 100.0 * efficiency), !group.is_reliable(case)),
        times.map_or_else(nothing, |times| milliseconds(times.step.0)),
        times.map_or_else(nothing, |times| milliseconds(times.phases[Phase::ExposedAllreduce].0)),
    ];
    name.into_iter().chain(figures).collect()
}
