//! Charts of the compute time of every rank, up to the first all-reduce, over the iterations of all runs. Slow ranks
//! are those named in the runs' warnings; there is no second evaluation.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use ringmark_core::benchmark::warning::{Warning, WarningKind};
use ringmark_core::dimension::{Case, Phase};
use ringmark_core::host::RankPlace;
use ringmark_core::stats::summary::{Spread, median};

use crate::output::table::{Column, Row, Table};
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::figures::TrainingCase;
use crate::read::load::iteration_times::RankTimes;
use crate::read::show::numbers::{count, list, percent_number};
use crate::read::show::page::charts::Chart;
use crate::read::show::page::charts::ranks::{HostOfRanks, RankChart, RankSpread};
use crate::read::show::page::content::series::{PageSeries, Setting};
use crate::read::show::page::document::Block;

/// One rank on one host over the runs of a case, in milliseconds.
struct Rank<'a> {
    place: &'a RankPlace,
    /// Own compute time, as medians over runs.
    own: Spread,
    step: f64,
    waiting: f64,
    exposed: f64,
    is_slow: bool,
}

/// The ranks of one case.
struct CaseRanks<'a> {
    case: Case,
    /// Shown ranks: all of them, or those of the hosts with the slowest ranks, slowest first.
    ranks: Vec<Rank<'a>>,
    /// Total numbers of ranks and hosts, if some are not shown.
    all: Option<[usize; 2]>,
    /// Median of the medians of all ranks, milliseconds.
    usual: f64,
    /// Slow ranks and hosts named in the warnings of the runs, most severe first.
    slow: BTreeSet<(WarningKind, &'a str)>,
}

const NOTE: &str = "Own compute time of every rank: from the start of an iteration until it joins the first all-reduce, \
                    without waiting for others. Percentiles (p5 to p95) and means (step, waiting, exposed) are taken over \
                    the iterations of a run; the median over runs is shown. Waiting is the exposed all-reduce before \
                    the slowest rank joins. Slow ranks are those in the warnings. Ranks are compared in each \
                    iteration, so a rank near the threshold may be reported in one case only.";

/// Largest number of ranks that are all shown. Larger cases show only their slowest hosts to keep charts readable and
/// pages small.
const MOST_RANKS: usize = 512;

/// Number of ranks shown for a larger case.
const RANKS_SHOWN: usize = 256;

/// Largest number of slow ranks and hosts named in a sentence.
const NAMES_SHOWN: usize = 16;

const READING: &str = "Axes start near the fastest rank, not at 0.";

/// Returns one block per series. The first one explains own compute time and lists the slow ranks.
pub fn blocks(setting: &Setting) -> Vec<Block> {
    let mut blocks: Vec<Block> = setting.series.iter().filter_map(|series| block(setting, series)).collect();
    if let Some(first) = blocks.first_mut() {
        first.note = format!("{NOTE} {}", first.note);
        first.reading = READING.to_owned();
    }
    blocks
}

/// Returns a block with a chart for each case of several ranks with recorded compute times; `None` if there are none.
fn block(setting: &Setting, series: &PageSeries) -> Option<Block> {
    let cases: Vec<CaseRanks> = series.group.cases.iter().map(case_ranks).filter(|case| case.ranks.len() > 1).collect();
    if cases.is_empty() {
        return None;
    }
    Some(Block {
        charts: vec![cases.iter().map(|case| chart(series, case)).collect()],
        table: Some(table(series, &cases)),
        ..Block::new(setting.titled("Every rank", series), verdict(&cases) + &left_out(&cases))
    })
}

fn case_ranks(case: &TrainingCase) -> CaseRanks<'_> {
    let warnings = case.counted().flat_map(|run| &run.warnings);
    let slow =
        warnings.filter(|warning| how(warning.kind).is_some()).map(|Warning { kind, about, .. }| (*kind, &**about));
    let slow: BTreeSet<(WarningKind, &str)> = slow.collect();
    let ranks = ranks(case, &slow);
    let usual = median(&ranks.iter().map(|rank| rank.own.middle).collect::<Vec<f64>>()).unwrap_or(f64::INFINITY);
    let (ranks, all) = slowest_hosts(ranks);
    CaseRanks { case: case.case, ranks, all, usual, slow }
}

/// Returns the ranks of the slowest hosts, slowest first, and the total numbers of ranks and hosts; for a small case,
/// all ranks.
fn slowest_hosts(ranks: Vec<Rank>) -> (Vec<Rank>, Option<[usize; 2]>) {
    if ranks.len() <= MOST_RANKS {
        return (ranks, None);
    }
    let number = ranks.len();
    let mut hosts: BTreeMap<&str, Vec<Rank>> = BTreeMap::new();
    ranks.into_iter().for_each(|rank| hosts.entry(&rank.place.host).or_default().push(rank));
    let mut hosts: Vec<Vec<Rank>> = hosts.into_values().collect();
    let of_all = [number, hosts.len()];
    let slowness = |host: &Vec<Rank>| {
        (host.iter().any(|rank| rank.is_slow), host.iter().map(|rank| rank.own.middle).fold(0.0, f64::max))
    };
    hosts.sort_by(|one, other| {
        let (one, other) = (slowness(one), slowness(other));
        other.0.cmp(&one.0).then(other.1.total_cmp(&one.1))
    });
    (hosts.into_iter().flatten().take(RANKS_SHOWN).collect(), Some(of_all))
}

/// Returns a text with the number of ranks that are not shown.
fn left_out(cases: &[CaseRanks]) -> String {
    let sentence = |case: &CaseRanks| {
        let [ranks, hosts] = case.all?;
        Some(format!(
            " {}: {} of {ranks} ranks on {} are shown, slowest hosts first; the records contain all.",
            case.case,
            case.ranks.len(),
            count(hosts, "host")
        ))
    };
    cases.iter().filter_map(sentence).collect()
}

/// Returns the text for a kind of warning about a slow rank or host.
fn how(kind: WarningKind) -> Option<&'static str> {
    match kind {
        WarningKind::Straggler => Some("is a straggler"),
        WarningKind::SlowAtTimes => Some("has slow iterations"),
        WarningKind::SlowOnce => Some("was slow once"),
        _ => None,
    }
}

/// Returns a text with the slow ranks and hosts and their cases.
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
    let mut slow: Vec<String> = slow.collect();
    if slow.len() > NAMES_SHOWN {
        let more = slow.len() - NAMES_SHOWN;
        slow.truncate(NAMES_SHOWN);
        slow.push(format!("{more} more"));
    }
    if slow.is_empty() { "No warning names a rank as slow.".to_owned() } else { format!("Slow: {}.", list(&slow)) }
}

fn chart(series: &PageSeries, case: &CaseRanks) -> Chart {
    let mut hosts: Vec<HostOfRanks> = Vec::new();
    for rank in &case.ranks {
        let Spread { low, middle, high } = rank.own;
        let place = rank.place;
        let tip = format!(
            "rank {} on {} ({}): median {middle:.2} ms, 5th percentile {low:.2}, 95th {high:.2}; waits {:.2} ms/step",
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

/// Returns the ranks in order. A rank that ran on several hosts has an entry for each.
fn ranks<'a>(case: &'a TrainingCase, slow: &BTreeSet<(WarningKind, &str)>) -> Vec<Rank<'a>> {
    let named: HashSet<&str> = slow.iter().map(|(_, about)| *about).collect();
    let mut runs: BTreeMap<(u32, &str), Vec<&RankTimes>> = BTreeMap::new();
    for rank in case.counted().flat_map(|run| &run.figures.ranks) {
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
                is_slow: names.iter().any(|name| named.contains(name.as_str())),
            })
        })
        .collect()
}

fn table(series: &PageSeries, cases: &[CaseRanks]) -> Table {
    let columns = vec![
        Column::text("case"),
        Column::numbers("rank", ""),
        Column::text("host"),
        Column::text("device").minor(),
        Column::numbers("own p5", "ms").minor(),
        Column::numbers("own p50", "ms"),
        Column::numbers("own p95", "ms"),
        Column::numbers("of median", "%"),
        Column::numbers("step", "ms").minor(),
        Column::numbers("waiting", "ms"),
        Column::numbers("exposed", "ms"),
    ];
    let mut rows = Vec::new();
    for case in cases {
        let runs = series.group.case(case.case);
        let is_doubtful = runs.is_some_and(|runs| !series.group.is_speed_reliable(runs));
        for rank in &case.ranks {
            let Spread { low, middle, high } = rank.own;
            let place = rank.place;
            let mut cells = vec![case.case.to_string(), place.rank.to_string()];
            cells.extend([place.host.clone(), place.device_name.clone()]);
            cells.extend([low, middle, high].map(|time| format!("{time:.2}")));
            cells.push(percent_number(middle / case.usual));
            cells.extend([rank.step, rank.waiting, rank.exposed].map(|time| format!("{time:.2}")));
            rows.push(Row {
                cells,
                bar: Some(middle),
                style: Some(series.style),
                is_marked: rank.is_slow,
                is_doubtful,
            });
        }
    }
    Table { columns, rows, bars: Some("own p50") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_case_shows_the_slowest_hosts_first() {
        let place = |rank: u32| RankPlace::on_cpu(rank, rank % 8, &format!("n{}", rank / 8));
        let places: Vec<RankPlace> = (0..4096).map(place).collect();
        let rank = |place: &'static RankPlace| {
            let middle = match place.rank {
                1000 => 9.0,
                2000 => 8.0,
                _ => 1.0 + f64::from(place.rank) * 1e-6,
            };
            let own = Spread { low: middle, middle, high: middle };
            Rank { place, own, step: 1.0, waiting: 0.0, exposed: 0.0, is_slow: place.rank == 2000 }
        };
        let places: &'static [RankPlace] = places.leak();
        let (shown, all) = slowest_hosts(places.iter().map(rank).collect());
        assert_eq!((shown.len(), all), (RANKS_SHOWN, Some([4096, 512])));
        // Hosts named in a warning come first, then those with the longest times.
        let hosts: Vec<&str> = shown.iter().step_by(8).map(|rank| rank.place.host.as_str()).collect();
        assert_eq!(hosts[..4], ["n250", "n125", "n511", "n510"]);
        let small = slowest_hosts(places[..512].iter().map(rank).collect());
        assert_eq!((small.0.len(), small.1), (512, None));
    }
}
