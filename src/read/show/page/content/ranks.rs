//! The spread of every rank: its own compute time, until it joins the first all-reduce, over the iterations of all runs.
//! Who is slow here is whom the runs' warnings name: nothing is judged a second time.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_record::benchmark::warning::{Warning, WarningKind};
use ringmark_record::dimension::case::Case;
use ringmark_record::dimension::phase::Phase;
use ringmark_record::host::environment::RankPlace;
use ringmark_record::stats::summary::{Spread, median};

use crate::read::analyse::figures::CaseRuns;
use crate::read::load::iteration_times::RankTimes;
use crate::read::show::columns::percent;
use crate::read::show::page::charts::Chart;
use crate::read::show::page::charts::ranks::{HostOfRanks, RankChart, RankSpread};
use crate::read::show::page::content::numbers::{count, list};
use crate::read::show::page::content::series::{Series, Setting};
use crate::read::show::page::document::{Block, Column, Row, Table};

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
    /// Ranks and hosts that the warnings of its runs name as slow, the gravest first.
    slow: BTreeSet<(WarningKind, &'a str)>,
}

const NOTE: &str = "Own compute time of every rank: from the start of an iteration until it joins the first all-reduce, so \
                    that no wait for another is in it. Slow is whom the warnings name: they compare the ranks in every \
                    iteration, so that a rank near the limit can be slow in one case and not in another.";

const READING: &str = "Axes begin near the fastest rank, not at 0.";

/// One a series. What own compute time is, and who is slow, is said once.
pub fn blocks(setting: &Setting) -> Vec<Block> {
    let mut blocks: Vec<Block> = setting.series.iter().filter_map(|series| block(setting, series)).collect();
    if let Some(first) = blocks.first_mut() {
        first.note = format!("{NOTE} {}", first.note);
        first.reading = READING.to_owned();
    }
    blocks
}

/// A chart a case of several ranks whose records have the ranks' own times. `None` where there is none.
fn block(setting: &Setting, series: &Series) -> Option<Block> {
    let cases: Vec<CaseRanks> = series.group.cases.iter().map(case_ranks).filter(|case| case.ranks.len() > 1).collect();
    if cases.is_empty() {
        return None;
    }
    let title =
        if setting.series.len() > 1 { format!("Every rank of {}", series.name) } else { "Every rank".to_owned() };
    Some(Block {
        charts: vec![cases.iter().map(|case| chart(series, case)).collect()],
        table: Some(table(series, &cases)),
        ..Block::new(title, verdict(&cases))
    })
}

fn case_ranks(case: &CaseRuns) -> CaseRanks<'_> {
    let warnings = case.counted().flat_map(|run| &run.warnings);
    let slow =
        warnings.filter(|warning| how(warning.kind).is_some()).map(|Warning { kind, about, .. }| (*kind, &**about));
    let slow: BTreeSet<(WarningKind, &str)> = slow.collect();
    CaseRanks { case: case.case, ranks: ranks(case, &slow), slow }
}

/// The text about warnings that name a slow rank or host.
fn how(kind: WarningKind) -> Option<&'static str> {
    match kind {
        WarningKind::Straggler => Some("is a straggler"),
        WarningKind::SlowAtTimes => Some("is slow at times"),
        WarningKind::SlowOnce => Some("was slow once"),
        _ => None,
    }
}

/// Who is slow, and in which cases.
fn verdict(cases: &[CaseRanks]) -> String {
    let mut slow: BTreeMap<(WarningKind, &str), Vec<String>> = BTreeMap::new();
    for case in cases {
        for known in &case.slow {
            slow.entry(*known).or_default().push(case.case.to_string());
        }
    }
    let slow = slow
        .into_iter()
        .filter_map(|((kind, about), cases)| Some(format!("{about} {} ({})", how(kind)?, cases.join(", "))));
    let slow: Vec<String> = slow.collect();
    if slow.is_empty() { "No warning names a rank as slow.".to_owned() } else { format!("Slow: {}.", list(&slow)) }
}

fn chart(series: &Series, case: &CaseRanks) -> Chart {
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
        style: series.style,
        hosts,
    })
}

/// In rank order. A rank that ran on several hosts is one on each.
fn ranks<'a>(case: &'a CaseRuns, slow: &BTreeSet<(WarningKind, &str)>) -> Vec<Rank<'a>> {
    let mut runs: BTreeMap<(u32, &str), Vec<&RankTimes>> = BTreeMap::new();
    for rank in case.counted().flat_map(|run| &run.ranks) {
        runs.entry((rank.place.rank, &rank.place.host)).or_default().push(rank);
    }
    let over = |runs: &[&RankTimes], figure: fn(&RankTimes) -> Option<f64>| {
        let values = runs.iter().map(|rank| figure(rank)).collect::<Option<Vec<f64>>>()?;
        median(&values).map(|seconds| seconds * 1e3)
    };
    runs.into_values()
        .filter_map(|runs| {
            let place = &runs.first()?.place;
            let names = [format!("rank {} on host {}", place.rank, place.host), format!("host {}", place.host)];
            Some(Rank {
                place,
                own: Spread {
                    low: over(&runs, |rank| Some(rank.own_compute?.low))?,
                    middle: over(&runs, |rank| Some(rank.own_compute?.middle))?,
                    high: over(&runs, |rank| Some(rank.own_compute?.high))?,
                },
                step: over(&runs, |rank| Some(rank.times.step.0))?,
                waiting: over(&runs, |rank| Some(rank.times.waiting.0))?,
                exposed: over(&runs, |rank| Some(rank.times.phases[Phase::ExposedAllreduce].0))?,
                is_slow: slow.iter().any(|(_, about)| names.iter().any(|name| name == about)),
            })
        })
        .collect()
}

/// Median of the ranks' medians.
fn usual(ranks: &[Rank]) -> f64 {
    median(&ranks.iter().map(|rank| rank.own.middle).collect::<Vec<f64>>()).unwrap_or(f64::INFINITY)
}

fn table(series: &Series, cases: &[CaseRanks]) -> Table {
    let columns = vec![
        Column::text("case"),
        Column::numbers("rank", ""),
        Column::text("host"),
        Column::text("device").minor(),
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
            rows.push(Row {
                cells,
                bar: Some(middle),
                style: Some(series.style),
                is_marked: rank.is_slow,
                ..Row::default()
            });
        }
    }
    Table { columns, rows, bars: Some("own p50") }
}
