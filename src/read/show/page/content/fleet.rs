//! Section about a fleet that `ringmark accept` tested: what is not fit, the hosts by speed, and a matrix of the pairs.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_core::accept::limits::{Medians, OF_HOST, by_subject, of_hosts};
use ringmark_core::accept::{
    Cause, Drift, Fitness, FleetHost, Journal, Judged, Metric, Outcome, Stage, StageUse, Subject as Judgment, Verdict,
    Warning,
};
use ringmark_core::number_text::{count, four_digits, percent, percent_number, three_digits};
use ringmark_core::stats::summary::median;

use crate::output::table::{Column, Row, Style, Table};
use crate::read::show::page::charts::Chart;
use crate::read::show::page::charts::matrix::{MatrixCell, MatrixChart};
use crate::read::show::page::document::{Block, Figure, Headline, Section, Subject};

const NOTE: &str = "Only hosts with the same hardware are compared. Fit means that no test found a defect of the \
                    stated size; docs/accept_method.md has the statistics.";

const NOT_FIT: &str = "The worst part first, with its most important evidence: the median, the number of measurements, and the typical value \
                       that the test compares it with. Chance: upper limit of the probability of such values without a defect. accept.json \
                       has all of it.";

const WARNINGS: &str = "Findings that do not make a host unfit, but may explain its measurements.";

const HOSTS: &str = "Medians over the measurements of a host alone (training-speed, matrix-rate and memory-rate per rank, input per host), and over \
                     its pairs (large-bandwidth). Typical: the median of the hosts. Lowest: the smallest of a host's shares of it, which the bars show.";

const PAIRS: &str = "A square for each pair of hosts that was measured. The color is the bus bandwidth of the large \
                     all-reduce, compared with the median of all pairs with the same hardware. Links that are not fit \
                     have an outline: the test allows for the noise of all pairs, so that a slow link without one may be chance. Not every \
                     pair is measured in a large fleet.";

const SOAK: &str = "Change from the first to the last third of a host's training jobs in the soak; from and to are the ends \
                    of the 95 % interval of the change of speed. Memory errors are those of all these jobs.";

const STAGES: &str = "The time is that of the jobs of each round, without the examination of the hosts.";

/// Color and name of a pair by its loss: upper limits, ascending.
const LOSSES: [(f64, &str, &str); 4] = [
    (0.05, "sound", "as the others"),
    (0.2, "overlapped", "5 to 20 % slower"),
    (0.5, "p5", "20 to 50 % slower"),
    (f64::INFINITY, "transfer", "more than half slower"),
];
const FAILED: (&str, &str) = ("failed", "failed");

/// Returns the headline: the verdict in one line, and its most important numbers.
pub fn headline(journal: &Journal, verdict: &Verdict) -> Headline {
    let hosts = verdict.hosts.len();
    let (usable, left_out) = verdict.usable_together();
    let fit = verdict.hosts.iter().filter(|host| host.fitness == Fitness::Fit).count();
    let incomplete = verdict.unfinished_stages().map(|stages| format!("not complete: {stages}"));
    let lines = [verdict.drain_line(), verdict.usable_line(), verdict.not_tested(), incomplete].into_iter().flatten();
    let time: Option<f64> = verdict.stages.iter().map(|stage| Some(stage.time?.0)).sum();
    let why = if left_out.is_empty() { "" } else { "no unfit link connects them" };
    let mut figures = vec![
        Figure::new("Fit hosts", fit.to_string(), format!("of {hosts}"), ""),
        Figure::new("Usable in one job", usable.len().to_string(), "hosts", why),
    ];
    figures.extend(verdict.smallest_defect.map(|defect| {
        let [limit, goal] = [defect, journal.header.criteria.smallest_defect].map(percent);
        let missed = format!("a host that is less than {limit} slower may pass (goal: {goal})");
        Figure::new("Detection limit", percent_number(defect), "%", missed)
    }));
    figures.extend(
        time.filter(|time| *time > 0.0).map(|time| {
            Figure::new("Time of the jobs", three_digits(time / 60.0), "min", count(verdict.rounds, "round"))
        }),
    );
    Headline {
        style: Style { color: 0, shape: 0 },
        name: match &verdict.not_fit()[..] {
            [] => format!("{}: {}", count(hosts, "host"), verdict.fitness_text()),
            not_fit => format!("{}: {}", count(hosts, "host"), not_fit.join(", ")),
        },
        what: lines.collect::<Vec<_>>().join("; "),
        trust: None,
        reasons: Vec::new(),
        conclusion: None,
        figures,
    }
}

/// Returns the section of a journal with its verdict.
pub fn section(journal: &Journal, verdict: &Verdict) -> Section {
    let fleet = &journal.header.fleet;
    let medians = by_subject(fleet, &journal.measurements);
    let hosts = Some(hosts(fleet, &medians, verdict));
    let blocks =
        [not_fit(verdict), warnings(verdict), hosts, pairs(journal, &medians, verdict), soak(verdict), stages(verdict)];
    Section {
        subject: Subject::Fleet,
        title: "Fleet".to_owned(),
        note: NOTE.to_owned(),
        blocks: blocks.into_iter().flatten().collect(),
    }
}

/// Returns the table of everything that is not fit, the worst first.
fn not_fit(verdict: &Verdict) -> Option<Block> {
    let cells = |part: &Judged| {
        let cause = part.cause.as_ref().map(Cause::to_string).unwrap_or_default();
        let fix = part.cure.clone().unwrap_or_default();
        Row::from(vec![part.name.clone(), part.fitness.to_string(), cause, part.table_evidence(), fix])
    };
    let rows: Vec<Row> = verdict.bad_parts().into_iter().map(cells).collect();
    let mut columns: Vec<Column> = ["part", "verdict", "cause", "evidence"].map(Column::text).into();
    columns.push(Column::text("fix"));
    (!rows.is_empty())
        .then(|| Block { table: Some(Table { columns, rows, bars: None }), ..Block::new("Not fit", NOT_FIT) })
}

/// Returns the table of the warnings.
fn warnings(verdict: &Verdict) -> Option<Block> {
    let row = |Warning { names, what, fix, .. }: &Warning| Row::from(vec![names.clone(), what.clone(), fix.clone()]);
    let rows: Vec<Row> = verdict.warnings.iter().map(row).collect();
    let columns = vec![Column::text("hosts"), Column::text("finding"), Column::text("fix")];
    (!rows.is_empty())
        .then(|| Block { table: Some(Table { columns, rows, bars: None }), ..Block::new("Warnings", WARNINGS) })
}

/// Columns that are left out without a value.
const OPTIONAL: [&str; 4] = ["switch", "memory-rate", "input-speed", "cold-input-speed"];

/// Returns the table of the hosts: the worst verdict first, then the slowest.
fn hosts(fleet: &[FleetHost], medians: &Medians, verdict: &Verdict) -> Block {
    let medians = of_hosts(fleet.len(), medians);
    let (_, left_out) = verdict.usable_together();
    let row = |(index, host): (usize, &FleetHost)| {
        let values = medians[index];
        let slowest = verdict.lowest_shares.get(index).copied().flatten();
        let judged = verdict.hosts.get(index);
        let fitness = judged.map(|judged| judged.fitness);
        let link = left_out.iter().find(|(host, _)| *host == index);
        let verdict = [fitness.map(|fitness| fitness.to_string()), link.map(|_| "unfit link".to_owned())];
        let verdict = verdict.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let cells = [host.name.clone(), verdict].into_iter();
        let cells = cells.chain(values.map(|value| value.map_or("-".to_owned(), |(value, _)| four_digits(value))));
        let share = slowest.map_or("-".to_owned(), percent);
        let cells =
            cells.chain([share, host.switch.clone().unwrap_or("-".to_owned()), host.hardware.clone()]).collect();
        let is_marked = link.is_some() || fitness.is_some_and(|fitness| fitness > Fitness::NotTested);
        let style = Some(Style { color: 0, shape: 0 });
        ((std::cmp::Reverse(fitness), slowest), Row { cells, bar: slowest, style, is_marked, is_doubtful: false })
    };
    let mut rows: Vec<_> = fleet.iter().enumerate().map(row).collect();
    rows.sort_by(|((one, slow), _), ((other, slower), _)| {
        one.cmp(other).then(slow.unwrap_or(f64::INFINITY).total_cmp(&slower.unwrap_or(f64::INFINITY)))
    });
    let rows = rows.into_iter().map(|(_, row)| row).chain(typical_rows(fleet, &medians)).collect();
    let columns = [Column::text("host"), Column::text("verdict")].into_iter();
    let columns = columns.chain(OF_HOST.map(|(_, metric)| {
        let is_minor = Metric::INPUTS.contains(&metric);
        Column { is_minor, ..Column::numbers(metric.to_string(), metric.unit()) }
    }));
    let columns =
        columns.chain([Column::numbers("lowest", ""), Column::text("switch"), Column::text("hardware").minor()]);
    let table = Table { columns: columns.collect(), rows, bars: Some("share of the typical host") };
    Block { table: Some(OPTIONAL.into_iter().fold(table, Table::without_empty)), ..Block::new("Hosts", HOSTS) }
}

/// Returns a row with the medians of all hosts for each kind of hardware that several hosts have.
fn typical_rows(fleet: &[FleetHost], medians: &[[Option<(f64, f64)>; OF_HOST.len()]]) -> Vec<Row> {
    let kinds: BTreeSet<&str> = fleet.iter().map(|host| host.hardware.as_str()).collect();
    let row = |hardware: &str| {
        let of_kind = || fleet.iter().zip(medians).filter(move |(host, _)| host.hardware == hardware);
        if of_kind().count() < 2 {
            return None;
        }
        // Every host has the same quotient of its value and its share.
        let quotient = |metric: usize| of_kind().find_map(|(_, values)| values[metric].map(|(own, share)| own / share));
        let typical = |metric: usize| quotient(metric).map_or("-".to_owned(), four_digits);
        let cells = ["typical".to_owned(), String::new()].into_iter().chain((0..OF_HOST.len()).map(typical));
        Some(Row::from(cells.chain(["-".to_owned(), "-".to_owned(), hardware.to_owned()]).collect::<Vec<_>>()))
    };
    kinds.into_iter().filter_map(row).collect()
}

/// Returns the matrix of the pairs; `None` without any.
fn pairs(journal: &Journal, medians: &Medians, verdict: &Verdict) -> Option<Block> {
    let fleet = &journal.header.fleet;
    let bad: BTreeSet<[usize; 2]> = verdict.links.iter().filter_map(link).collect();
    let name = |[one, other]: [usize; 2]| format!("{} \u{2013} {}", fleet[one].name, fleet[other].name);
    let cell = |hosts: [usize; 2], class: &'static str, tip: String| {
        let is_marked = bad.contains(&hosts);
        MatrixCell { row: hosts[0], column: hosts[1], class, tip, is_marked }
    };
    let mut cells: BTreeMap<[usize; 2], MatrixCell> = BTreeMap::new();
    for ((_, metric, _), values) in medians.iter().filter(|((stage, ..), _)| *stage == Stage::Pairs) {
        let typical = median(&values.values().copied().collect::<Vec<f64>>())?;
        for (hosts, value) in
            values.iter().filter_map(|(hosts, value)| Some((<[usize; 2]>::try_from(*hosts).ok()?, *value)))
        {
            let text = format!(
                "{metric} {} {} ({} of the median)",
                four_digits(value),
                metric.unit(),
                percent(value / typical)
            );
            let cell = cells.entry(hosts).or_insert_with(|| cell(hosts, LOSSES[0].1, name(hosts)));
            cell.tip += &format!("; {text}");
            if *metric == Metric::LargeBandwidth {
                let class = LOSSES.iter().find(|(limit, ..)| 1.0 - value / typical <= *limit);
                cell.class = class.map_or(cell.class, |(_, class, _)| class);
            }
        }
    }
    let failed = journal.measurements.iter().filter(|measurement| measurement.stage == Stage::Pairs);
    for measurement in failed {
        if let (Outcome::Failed { reason, .. }, [one, other]) = (&measurement.outcome, &measurement.job.hosts[..]) {
            let hosts = [*one, *other];
            cells.insert(hosts, cell(hosts, FAILED.0, format!("{}: {reason}", name(hosts))));
        }
    }
    let chart = MatrixChart {
        title: "Bus bandwidth of pairs".to_owned(),
        description: format!("{} pairs of {} hosts", cells.len(), fleet.len()),
        names: fleet.iter().map(|host| host.name.clone()).collect(),
        kinds: LOSSES.iter().map(|(_, class, name)| (*class, *name)).chain([FAILED]).collect(),
        cells: cells.into_values().collect(),
    };
    (!chart.cells.is_empty()).then(|| Block { charts: vec![vec![Chart::Matrix(chart)]], ..Block::new("Pairs", PAIRS) })
}

/// Returns the table of the changes in the soak; `None` without one.
fn soak(verdict: &Verdict) -> Option<Block> {
    let signed = |change: Option<f64>| change.map_or("-".to_owned(), |change| format!("{change:+.0}"));
    let cells = |drift: &Drift| {
        let share = [drift.speed, drift.low, drift.high].map(percent_number);
        let errors = drift.memory_errors.map_or("-".to_owned(), |errors| errors.to_string());
        let cells = [drift.name.clone(), drift.measurements.to_string()].into_iter().chain(share);
        let cells: Vec<String> = cells.chain([signed(drift.clock), signed(drift.temperature), errors]).collect();
        Row { is_marked: drift.is_defect, ..Row::from(cells) }
    };
    let mut drift: Vec<&Drift> = verdict.drift.iter().collect();
    drift.sort_by(|one, other| one.speed.total_cmp(&other.speed));
    let rows: Vec<Row> = drift.into_iter().map(cells).collect();
    let numbers = [
        ("measurements", ""),
        ("speed", "%"),
        ("from", "%"),
        ("to", "%"),
        ("clock", "MHz"),
        ("temperature", "\u{b0}C"),
        ("memory errors", ""),
    ];
    let columns = [Column::text("host")].into_iter().chain(numbers.map(|(name, unit)| Column::numbers(name, unit)));
    let table = Table { columns: columns.collect(), rows, bars: None };
    (!table.rows.is_empty()).then(|| Block { table: Some(table), ..Block::new("Soak", SOAK) })
}

/// Returns the table of the stages; `None` without a job.
fn stages(verdict: &Verdict) -> Option<Block> {
    let cells = |of: &StageUse| {
        let minutes = of.minutes().unwrap_or_else(|| "-".to_owned());
        Row::from(vec![of.stage.to_string(), of.rounds.to_string(), of.jobs.to_string(), minutes])
    };
    let rows: Vec<Row> = verdict.stages.iter().map(cells).collect();
    let numbers = [("rounds", ""), ("jobs", ""), ("time", "min")];
    let columns = [Column::text("stage")].into_iter().chain(numbers.map(|(name, unit)| Column::numbers(name, unit)));
    let table = Table { columns: columns.collect(), rows, bars: None };
    (!table.rows.is_empty()).then(|| Block { table: Some(table), ..Block::new("Stages", STAGES) })
}

fn link(judged: &Judged) -> Option<[usize; 2]> {
    match judged.subject {
        Judgment::Link(one, other) => Some([one.min(other), one.max(other)]),
        _ => None,
    }
}
