//! The spread of every rank: its own compute time, until it joins the first all-reduce, over the iterations of all runs.
//! Who is slow here is whom the others wait for.

use std::collections::BTreeMap;

use ringmark_record::case::Case;
use ringmark_record::environment::RankPlace;
use ringmark_record::stats::straggler::THRESHOLD;
use ringmark_record::stats::summary::{Spread, median};

use crate::read::figures::CaseRuns;
use crate::read::report::charts::Chart;
use crate::read::report::charts::ranks::{HostOfRanks, RankChart, RankSpread};
use crate::read::report::content::series::{Series, Setting};
use crate::read::report::content::words::{count, list, percent};
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

/// The ranks of one case.
struct CaseRanks<'a> {
    case: Case,
    ranks: Vec<Rank<'a>>,
}

/// A chart a case of several ranks whose records have the ranks' own times. `None` where there is none.
pub fn block(setting: &Setting, series: &Series) -> Option<Block> {
    let cases: Vec<CaseRanks> = series.group.cases.iter().map(case_ranks).filter(|case| case.ranks.len() > 1).collect();
    if cases.is_empty() {
        return None;
    }
    let note = format!(
        "Own compute time of every rank: from the start of an iteration until it joins the first all-reduce, so that no wait \
         for another is in it. A rank whose median is more than {} % above that of all ranks counts as slow: the others wait \
         for it. {}",
        THRESHOLD * 100.0,
        verdict(&cases)
    );
    let title =
        if setting.series.len() > 1 { format!("Every rank of {}", series.name) } else { "Every rank".to_owned() };
    Some(Block {
        charts: vec![cases.iter().map(chart).collect()],
        table: Some(table(series, &cases)),
        ..Block::new(title, note)
    })
}

fn case_ranks(case: &CaseRuns) -> CaseRanks<'_> {
    CaseRanks { case: case.case, ranks: ranks(case) }
}

/// Who is slow, and in which cases.
fn verdict(cases: &[CaseRanks]) -> String {
    let mut slow: Vec<(String, Vec<String>)> = Vec::new();
    for case in cases {
        for rank in case.ranks.iter().filter(|rank| rank.is_slow) {
            let name = format!("rank {} on {}", rank.place.rank, rank.place.host);
            match slow.iter_mut().find(|(known, _)| *known == name) {
                Some((_, cases)) => cases.push(case.case.to_string()),
                None => slow.push((name, vec![case.case.to_string()])),
            }
        }
    }
    match slow.is_empty() {
        true => "None is slow.".to_owned(),
        false => {
            let slow: Vec<String> = slow.iter().map(|(name, cases)| format!("{name} ({})", cases.join(", "))).collect();
            format!("Slow: {}.", list(&slow))
        }
    }
}

fn chart(case: &CaseRanks) -> Chart {
    let mut hosts: Vec<HostOfRanks> = Vec::new();
    for rank in &case.ranks {
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
    let hosts_in_words = count(hosts.len(), "host");
    Chart::Ranks(RankChart {
        title: format!("{}: own compute time", case.case),
        description: format!("{} ranks on {hosts_in_words}", case.ranks.len()),
        axis: "ms".to_owned(),
        hosts,
    })
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

fn table(series: &Series, cases: &[CaseRanks]) -> Table {
    let columns = vec![
        Column::words("case"),
        Column::numbers("rank", ""),
        Column::words("host"),
        Column::words("device").minor(),
        Column::numbers("own p5", "ms").minor(),
        Column::numbers("own p50", "ms"),
        Column::numbers("own p95", "ms"),
        Column::numbers("of usual", "%"),
        Column::numbers("step", "ms").minor(),
        Column::numbers("waiting", "ms"),
        Column::numbers("exposed", "ms"),
    ];
    let mut rows = Vec::new();
    for case in cases {
        let usual = usual(&case.ranks);
        for rank in &case.ranks {
            let Spread { low, middle, high } = rank.own;
            let place = rank.place;
            let mut cells = vec![case.case.to_string(), place.rank.to_string()];
            cells.extend([place.host.clone(), place.device_name.clone()]);
            cells.extend([low, middle, high].map(|time| format!("{time:.2}")));
            cells.push(percent(middle / usual));
            cells.extend([rank.step, rank.waiting, rank.exposed].map(|time| format!("{time:.2}")));
            rows.push(Row { cells, bar: Some(middle), style: Some(series.style), is_marked: rank.is_slow });
        }
    }
    Table { columns, rows, bars: Some("own p50") }
}
