//! The spread of every rank: its own compute time, until it joins the first all-reduce, over the iterations of all runs.
//! Who is slow here is whom the others wait for.

use std::collections::BTreeMap;

use ringmark_record::environment::RankPlace;
use ringmark_record::stats::straggler::THRESHOLD;
use ringmark_record::stats::summary::{Spread, median};

use crate::read::figures::CaseRuns;
use crate::read::report::charts::Chart;
use crate::read::report::charts::ranks::{HostOfRanks, RankChart, RankSpread};
use crate::read::report::content::series::{Series, Setting};
use crate::read::report::content::words::{list, percent};
use crate::read::report::document::{Block, Column, Row, Table};
use crate::read::run::RankTimes;

/// One rank on one host over the runs of a case, milliseconds.
struct Rank<'a> {
    place: &'a RankPlace,
    /// Medians over runs.
    own: Spread,
    step: f64,
    waiting: f64,
    exposed: f64,
    is_slow: bool,
}

/// One a case of several ranks whose records have the ranks' own times.
pub fn blocks(setting: &Setting, series: &Series) -> Vec<Block> {
    series.group.cases.iter().filter_map(|case| block(setting, series, case)).collect()
}

fn block(setting: &Setting, series: &Series, case: &CaseRuns) -> Option<Block> {
    let ranks = ranks(case);
    if ranks.len() < 2 {
        return None;
    }
    let slow: Vec<String> = ranks
        .iter()
        .filter(|rank| rank.is_slow)
        .map(|rank| format!("{} on {}", rank.place.rank, rank.place.host))
        .collect();
    let verdict = match slow.len() {
        0 => "None is slow.".to_owned(),
        1 => format!("Rank {} is slower than the others, which wait for it in every step.", slow[0]),
        _ => format!("Ranks {} are slower than the others, which wait for them in every step.", list(&slow)),
    };
    let note = format!(
        "Own compute time of every rank: from the start of an iteration until it joins the first all-reduce, so that no wait \
         for another is in it. A rank whose median is more than {} % above that of all ranks counts as slow. {verdict}",
        THRESHOLD * 100.0
    );
    let mut hosts: Vec<HostOfRanks> = Vec::new();
    for rank in &ranks {
        let Spread { low, middle, high } = rank.own;
        let place = rank.place;
        let tip = format!(
            "rank {} on {} ({}): median {middle:.2} ms, 5th percentile {low:.2}, 95th {high:.2}; waits {:.2} ms a step",
            place.rank, place.host, place.device_name, rank.waiting
        );
        let drawn = RankSpread { rank: place.rank, spread: rank.own, is_slow: rank.is_slow, tip };
        match hosts.last_mut().filter(|host| host.name == place.host) {
            Some(host) => host.ranks.push(drawn),
            None => hosts.push(HostOfRanks { name: place.host.clone(), ranks: vec![drawn] }),
        }
    }
    let title = format!("Ranks of {}", setting.named(series, case.case));
    let chart = RankChart {
        title: "Own compute time of every rank".to_owned(),
        description: format!("{} ranks on {} hosts. {verdict}", ranks.len(), hosts.len()),
        axis: "ms".to_owned(),
        hosts,
    };
    Some(Block { charts: vec![Chart::Ranks(chart)], table: Some(table(series, &ranks)), ..Block::new(title, note) })
}

/// In rank order. A rank that ran on several hosts is one on each.
fn ranks(case: &CaseRuns) -> Vec<Rank<'_>> {
    let mut runs: BTreeMap<(u32, &str), Vec<&RankTimes>> = BTreeMap::new();
    for rank in case.counted().flat_map(|run| &run.ranks) {
        runs.entry((rank.place.rank, &rank.place.host)).or_default().push(rank);
    }
    let over = |runs: &[&RankTimes], figure: fn(&RankTimes) -> Option<f64>| {
        let values = runs.iter().map(|rank| figure(rank)).collect::<Option<Vec<f64>>>()?;
        median(&values).map(|seconds| seconds * 1e3)
    };
    let mut ranks: Vec<Rank> = runs
        .into_values()
        .filter_map(|runs| {
            Some(Rank {
                place: &runs.first()?.place,
                own: Spread {
                    low: over(&runs, |rank| Some(rank.own_compute?.low))?,
                    middle: over(&runs, |rank| Some(rank.own_compute?.middle))?,
                    high: over(&runs, |rank| Some(rank.own_compute?.high))?,
                },
                step: over(&runs, |rank| Some(rank.times.step.0))?,
                waiting: over(&runs, |rank| Some(rank.times.waiting.0))?,
                exposed: over(&runs, |rank| Some(rank.times.exposed_allreduce.0))?,
                is_slow: false,
            })
        })
        .collect();
    let usual = usual(&ranks);
    for rank in &mut ranks {
        rank.is_slow = rank.own.middle > (1.0 + THRESHOLD) * usual;
    }
    ranks
}

/// Median of the ranks' medians.
fn usual(ranks: &[Rank]) -> f64 {
    median(&ranks.iter().map(|rank| rank.own.middle).collect::<Vec<f64>>()).unwrap_or(f64::INFINITY)
}

fn table(series: &Series, ranks: &[Rank]) -> Table {
    let columns = vec![
        Column::words("rank"),
        Column::words("host"),
        Column::words("device").minor(),
        Column::numbers("own p5", "ms").minor(),
        Column::numbers("own p50", "ms"),
        Column::numbers("own p95", "ms"),
        Column::numbers("to all", "%"),
        Column::numbers("step", "ms").minor(),
        Column::numbers("waiting", "ms"),
        Column::numbers("exposed", "ms"),
    ];
    let usual = usual(ranks);
    let row = |rank: &Rank| {
        let Spread { low, middle, high } = rank.own;
        let mut cells = vec![rank.place.rank.to_string(), rank.place.host.clone(), rank.place.device_name.clone()];
        cells.extend([low, middle, high].map(|time| format!("{time:.2}")));
        cells.push(percent(middle / usual));
        cells.extend([rank.step, rank.waiting, rank.exposed].map(|time| format!("{time:.2}")));
        Row { cells, bar: Some(middle), style: Some(series.style), is_marked: rank.is_slow }
    };
    Table { columns, rows: ranks.iter().map(row).collect(), bars: Some("own p50") }
}
