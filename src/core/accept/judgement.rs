//! The verdict from the result of the search, the minimum values and the reference.

use std::collections::BTreeMap;

use crate::accept::criteria::{Criteria, Minimum};
use crate::accept::fleet::{Finding, FleetHost, Measurement, Metric, Outcome, Stage};
use crate::accept::journal::Journal;
use crate::accept::search::{Problem, Search, State};
use crate::accept::verdict::{self, Cause, Evidence, Fitness, Judged, Subject, Verdict};
use crate::number_text::{four_digits, percent};
use crate::stats::counts::hypergeometric_tail;
use crate::stats::summary::median;

/// Chance, over all switches, from which unfit hosts share a switch by accident.
const SWITCH_CHANCE: f64 = 0.05;

/// Values of one metric in one stage on one kind of hardware.
type Kind = (Stage, Metric, String);

impl Criteria {
    /// Adds the typical values of an earlier acceptance as the reference.
    pub fn with_reference(mut self, journal: &Journal) -> Criteria {
        self.reference.extend(typical_values(&journal.header.fleet, &journal.measurements));
        self
    }
}

impl Search {
    /// Returns the verdict that the findings and measurements support.
    pub fn verdict(&self, findings: &[Finding], done: &[Measurement]) -> Verdict {
        verdict(&self.evaluate(findings, done), findings, done)
    }
}

/// Builds the verdict.
fn verdict(state: &State, findings: &[Finding], done: &[Measurement]) -> Verdict {
    let (fleet, criteria) = (&state.search.fleet, &state.search.criteria);
    let mut problems = state.problems.clone();
    problems.extend(below_limits(fleet, criteria, &problems, done));
    let switches = shared_switches(fleet, &problems);
    let judged = |problem: &Problem| Judged {
        name: name(fleet, &problem.subject),
        subject: problem.subject.clone(),
        fitness: problem.fitness,
        cause: Some(problem.cause),
        evidence: problem.evidence.clone(),
        cure: Some(cure(problem, findings)),
    };
    let of = |is_kind: &dyn Fn(&Subject) -> bool| -> Vec<Judged> {
        problems.iter().filter(|problem| is_kind(&problem.subject)).map(judged).collect()
    };
    let mut measured = vec![0; fleet.len()];
    for done in done.iter().filter(|done| matches!(done.outcome, Outcome::Measured(_))) {
        done.job.hosts.iter().for_each(|host| measured[*host] += 1);
    }
    let host = |host: usize| {
        let problem = problems.iter().find(|problem| problem.subject == Subject::Host(host));
        problem.map_or_else(
            || {
                let is_tested = measured[host] > 0 && state.is_compared(host);
                let reason = (measured[host] > 0 && !is_tested)
                    .then(|| "fewer than three hosts with this hardware: nothing to compare with".to_owned());
                Judged {
                    subject: Subject::Host(host),
                    name: fleet[host].name.clone(),
                    fitness: if is_tested { Fitness::Fit } else { Fitness::NotTested },
                    cause: None,
                    evidence: reason.map(|text| Evidence::of_text(Stage::Alone, text)).into_iter().collect(),
                    cure: None,
                }
            },
            judged,
        )
    };
    let hosts: Vec<Judged> = (0..fleet.len()).map(host).collect();
    let gpus = of(&|subject| matches!(subject, Subject::Gpu(..)));
    let links = of(&|subject| matches!(subject, Subject::Link(..)));
    let whole = of(&|subject| matches!(subject, Subject::Fleet));
    let switches: Vec<Judged> = switches.iter().map(judged).collect();
    let all = [&hosts, &gpus, &links, &whole, &switches];
    let worst = all.iter().flat_map(|judged| judged.iter()).map(|judged| judged.fitness).max();
    Verdict {
        kind: verdict::KIND.to_owned(),
        schema: verdict::SCHEMA,
        fitness: worst.unwrap_or(Fitness::NotTested),
        rounds: done.iter().map(|done| done.round).max().unwrap_or(0),
        unfinished: state.unfinished.clone(),
        smallest_defect: state.smallest_defect(),
        hosts,
        gpus,
        links,
        switches,
        fleet: whole,
    }
}

fn name(fleet: &[FleetHost], subject: &Subject) -> String {
    match subject {
        Subject::Host(host) => fleet[*host].name.clone(),
        Subject::Gpu(host, rank) => format!("GPU {rank} of {}", fleet[*host].name),
        Subject::Link(one, other) => format!("link {} - {}", fleet[*one].name, fleet[*other].name),
        Subject::Switch(switch) => format!("switch {switch}"),
        Subject::Fleet => "fleet".to_owned(),
    }
}

fn cure(problem: &Problem, findings: &[Finding]) -> String {
    let text = match problem.cause {
        Cause::Facts => {
            let host = problem.subject.host();
            let fix = |found: &Finding| {
                Some(found.host) == host && problem.evidence.iter().any(|evidence| evidence.text == found.what)
            };
            let fixes: Vec<&str> = findings.iter().filter(|found| fix(found)).map(|found| &found.fix[..]).collect();
            return fixes.join("; ");
        }
        Cause::Failure => "read the log of the failed job; take the host out of service",
        Cause::Gpu => "take the host out of service; check the GPU's clocks, heat, power limit and PCIe link",
        Cause::Host => "take the host out of service; check clocks, heat, power limits, other processes and NVLink",
        Cause::Network => "check the cables, rate and error counters of the host's network interfaces",
        Cause::Link => "check cables and ports on the route between the two hosts; do not use both in one job",
        Cause::Intermittent => "check heat, other processes and error counters of the host; repeat with a soak",
        Cause::Switch => "check the switch: its uplinks, error counters and configuration",
        Cause::Minimum => "compare hardware, drivers and settings with those of a host that reaches the minimum",
        Cause::Reference => "compare drivers, settings and cables of all hosts with those at the time of the reference",
    };
    text.to_owned()
}

/// Returns the value of a measurement: that of the job, or the median of its ranks. A training speed is per rank.
fn values(fleet: &[FleetHost], done: &Measurement) -> BTreeMap<Metric, f64> {
    let Outcome::Measured(readings) = &done.outcome else { return BTreeMap::new() };
    let hosts = &done.job.hosts;
    let ranks = hosts.iter().map(|host| fleet[*host].ranks).min().unwrap_or(0) * hosts.len() as u32;
    let mut of_ranks: BTreeMap<Metric, Vec<f64>> = BTreeMap::new();
    let mut values = BTreeMap::new();
    for reading in readings {
        match reading.rank {
            Some(_) => of_ranks.entry(reading.metric).or_default().push(reading.value),
            None if reading.metric == Metric::TrainingSpeed => {
                values.insert(reading.metric, reading.value / f64::from(ranks.max(1)));
            }
            None => drop(values.insert(reading.metric, reading.value)),
        }
    }
    for (metric, of_ranks) in of_ranks {
        values.entry(metric).or_insert(median(&of_ranks).unwrap_or(0.0));
    }
    values
}

/// Returns the median of each subject's values, by kind. Jobs of different hardware together have no kind.
fn by_subject<'a>(fleet: &[FleetHost], done: &'a [Measurement]) -> BTreeMap<Kind, BTreeMap<&'a [usize], f64>> {
    let mut all: BTreeMap<Kind, BTreeMap<&[usize], Vec<f64>>> = BTreeMap::new();
    for done in done {
        let Some((first, others)) = done.job.hosts.split_first() else { continue };
        let hardware = &fleet[*first].hardware;
        if others.iter().any(|host| fleet[*host].hardware != *hardware) {
            continue;
        }
        for (metric, value) in values(fleet, done) {
            let kind = all.entry((done.stage, metric, hardware.clone())).or_default();
            kind.entry(&done.job.hosts).or_default().push(value);
        }
    }
    let medians = |subjects: BTreeMap<&'a [usize], Vec<f64>>| {
        subjects.into_iter().filter_map(|(hosts, values)| Some((hosts, median(&values)?))).collect()
    };
    all.into_iter().map(|(kind, subjects)| (kind, medians(subjects))).collect()
}

/// Returns the typical values of a fleet, by stage, metric and hardware: a reference for later acceptances.
pub fn typical_values(fleet: &[FleetHost], done: &[Measurement]) -> Vec<Minimum> {
    let typical = |((stage, metric, hardware), subjects): (Kind, BTreeMap<&[usize], f64>)| {
        let value = median(&subjects.into_values().collect::<Vec<f64>>())?;
        Some(Minimum { metric, value, stage, hardware: Some(hardware) })
    };
    by_subject(fleet, done).into_iter().filter_map(typical).collect()
}

/// Compares with the minimum values and the reference. If most subjects of a kind are below, it is said of the fleet.
fn below_limits(fleet: &[FleetHost], criteria: &Criteria, known: &[Problem], done: &[Measurement]) -> Vec<Problem> {
    let mut problems = Vec::new();
    if criteria.minimum.is_empty() && criteria.reference.is_empty() {
        return problems;
    }
    let is_known = |host: &usize| known.iter().any(|problem| problem.subject == Subject::Host(*host));
    for ((stage, metric, hardware), subjects) in by_subject(fleet, done) {
        let applies = |limit: &&Minimum| {
            limit.stage == stage && limit.metric == metric && limit.hardware.as_ref().is_none_or(|of| *of == hardware)
        };
        let Some(typical) = median(&subjects.values().copied().collect::<Vec<f64>>()) else { continue };
        let evidence = |value: f64, limit: f64, name: &str| Evidence {
            metric: Some(metric),
            values: vec![value],
            typical: Some(limit),
            ..Evidence::of_text(
                stage,
                format!(
                    "{metric} {} {}, {} below the {name} {}",
                    four_digits(value),
                    metric.unit(),
                    percent(1.0 - value / limit),
                    four_digits(limit)
                ),
            )
        };
        let problem = |subject: Subject, cause: Cause, evidence: Evidence| Problem {
            subject,
            cause,
            fitness: Fitness::Unfit,
            evidence: vec![evidence],
        };
        for Minimum { value: limit, .. } in criteria.minimum.iter().filter(applies) {
            if typical < *limit {
                problems.push(problem(Subject::Fleet, Cause::Minimum, evidence(typical, *limit, "minimum")));
                continue;
            }
            for (hosts, value) in
                subjects.iter().filter(|(hosts, value)| **value < *limit && !hosts.iter().any(is_known))
            {
                let subject = match hosts {
                    [host] => Subject::Host(*host),
                    [one, other] => Subject::Link(*one, *other),
                    _ => Subject::Fleet,
                };
                problems.push(problem(subject, Cause::Minimum, evidence(*value, *limit, "minimum")));
            }
        }
        for Minimum { value: reference, .. } in criteria.reference.iter().filter(applies) {
            if typical < reference * (1.0 - criteria.smallest_defect) {
                problems.push(problem(Subject::Fleet, Cause::Reference, evidence(typical, *reference, "reference")));
            }
        }
    }
    problems
}

/// Finds switches that several unfit hosts share: at least half of its hosts, and more than chance gives (the tail of
/// the hypergeometric distribution). Four of eight hosts are unfit, and all are on one switch of two with four hosts
/// each: chance 1 / 70 for each switch.
fn shared_switches(fleet: &[FleetHost], problems: &[Problem]) -> Vec<Problem> {
    let is_unfit = |host: usize| {
        problems.iter().any(|problem| problem.subject == Subject::Host(host) && problem.cause != Cause::Facts)
    };
    let unfit: Vec<bool> = (0..fleet.len()).map(is_unfit).collect();
    let mut switches: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (host, of) in fleet.iter().enumerate() {
        if let Some(switch) = &of.switch {
            switches.entry(switch).or_default().push(host);
        }
    }
    let all: Vec<usize> = switches.values().flatten().copied().collect();
    let count = |hosts: &[usize]| hosts.iter().filter(|host| unfit[**host]).count();
    let count_all = count(&all);
    let limit = SWITCH_CHANCE / switches.len().max(1) as f64;
    let shared = |(switch, hosts): (&&str, &Vec<usize>)| {
        let bad = count(hosts);
        let chance = hypergeometric_tail(all.len(), count_all, hosts.len(), bad);
        (bad > 1 && 2 * bad >= hosts.len() && chance < limit).then(|| Problem {
            subject: Subject::Switch((*switch).to_owned()),
            cause: Cause::Switch,
            fitness: Fitness::Suspect,
            evidence: vec![Evidence {
                chance: Some(chance),
                ..Evidence::of_text(
                    Stage::Confirmation,
                    format!("{bad} of its {} hosts are not fit, {} of the others", hosts.len(), count_all - bad),
                )
            }],
        })
    };
    switches.iter().filter_map(shared).collect()
}
