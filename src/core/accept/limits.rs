//! Comparison with minimum values and with a reference.

use std::collections::BTreeMap;

use crate::accept::criteria::{Criteria, Minimum};
use crate::accept::fleet::{FleetHost, Measurement, Metric, Stage};
use crate::accept::journal::Journal;
use crate::accept::search::state::Problem;
use crate::accept::verdict::{Cause, Evidence, Fitness, Subject, Warning};
use crate::dimension::{Dtype, device_peak};
use crate::host::host_list::compact;
use crate::number_text::{four_digits, percent};
use crate::stats::summary::median;

/// Values of one metric in one stage on one kind of hardware.
pub type Kind = (Stage, Metric, String);

/// Medians by kind and hosts.
pub type Medians<'a> = BTreeMap<Kind, BTreeMap<&'a [usize], f64>>;

impl Criteria {
    /// Adds the typical values of an earlier acceptance as the reference.
    pub fn with_reference(mut self, journal: &Journal) -> Criteria {
        self.reference.extend(typical_values(&journal.header.fleet, &journal.measurements));
        self
    }
}

/// Metrics that describe a host, with the stage that measures them.
pub const OF_HOST: [(Stage, Metric); 6] = [
    (Stage::Alone, Metric::TrainingSpeed),
    (Stage::Alone, Metric::MatrixRate),
    (Stage::Alone, Metric::MemoryRate),
    (Stage::Alone, Metric::InputSpeed),
    (Stage::Alone, Metric::ColdInputSpeed),
    (Stage::Pairs, Metric::LargeBandwidth),
];

/// Returns for each host the medians of [`OF_HOST`], of its own values or over its pairs, and their shares of the median
/// of all hosts with the same hardware.
pub fn of_hosts(hosts: usize, medians: &Medians) -> Vec<[Option<(f64, f64)>; OF_HOST.len()]> {
    let mut all = vec![[None; OF_HOST.len()]; hosts];
    for ((stage, metric, _), subjects) in medians {
        let Some(index) = OF_HOST.iter().position(|of| *of == (*stage, *metric)) else { continue };
        let mut of_subjects: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for (hosts, value) in subjects {
            hosts.iter().for_each(|host| of_subjects.entry(*host).or_default().push(*value));
        }
        let own: BTreeMap<usize, f64> =
            of_subjects.into_iter().filter_map(|(host, values)| Some((host, median(&values)?))).collect();
        let Some(typical) = median(&own.values().copied().collect::<Vec<f64>>()) else { continue };
        for (host, own) in own {
            all[host][index] = Some((own, own / typical));
        }
    }
    all
}

/// Returns the lowest of these shares for each host.
pub fn lowest_shares(fleet: &[FleetHost], done: &[Measurement]) -> Vec<Option<f64>> {
    let lowest = |values: [Option<(f64, f64)>; OF_HOST.len()]| {
        values.into_iter().flatten().map(|(_, share)| share).reduce(f64::min)
    };
    of_hosts(fleet.len(), &by_subject(fleet, done)).into_iter().map(lowest).collect()
}

/// Returns the median of each subject's values, by kind. Jobs of different hardware together have no kind.
pub fn by_subject<'a>(fleet: &[FleetHost], done: &'a [Measurement]) -> Medians<'a> {
    let mut all: BTreeMap<Kind, BTreeMap<&[usize], Vec<f64>>> = BTreeMap::new();
    for done in done {
        let Some((first, others)) = done.job.hosts.split_first() else { continue };
        let hardware = &fleet[*first].hardware;
        if others.iter().any(|host| fleet[*host].hardware != *hardware) {
            continue;
        }
        for (metric, value) in done.values(fleet) {
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

/// Share of the published peak below which the matrix rate of a GPU is suspicious. An H200 reaches 80 % in fp16
/// (results/h200); GPUs without enough power for their clock, such as the L4, about half.
const PEAK_SHARE: f64 = 0.5;

/// Returns a warning for each kind of hardware whose typical matrix rate is far below the published peak in fp16, the precision
/// of acceptance on GPUs: all hosts may be slow, so that no comparison among them finds it.
pub fn below_peak(fleet: &[FleetHost], done: &[Measurement]) -> Vec<Warning> {
    let warning = |Minimum { metric, value, stage, hardware }: Minimum| {
        let is_single = |hardware: &String| !hardware.contains(" and ");
        let hardware = hardware.filter(is_single).filter(|_| (metric, stage) == (Metric::MatrixRate, Stage::Alone))?;
        let peak = device_peak::published(&hardware, Dtype::Fp16)?.0;
        let hosts: Vec<usize> = (0..fleet.len()).filter(|host| fleet[*host].hardware == hardware).collect();
        (value < PEAK_SHARE * peak).then(|| Warning {
            names: compact(hosts.iter().map(|host| &fleet[*host].name[..])),
            what: format!(
                "{metric} {} {}, {} of the published peak ({} {}): most GPUs reach 60 to 80 %",
                four_digits(value),
                metric.unit(),
                percent(value / peak),
                four_digits(peak),
                metric.unit()
            ),
            fix: "check clocks and power limits: nvidia-smi -q -d CLOCK,POWER,PERFORMANCE".to_owned(),
            hosts,
        })
    };
    typical_values(fleet, done).into_iter().filter_map(warning).collect()
}

/// Compares with the minimum values and the reference. If most subjects of a kind are below, the fleet is reported instead.
pub fn below_limits(fleet: &[FleetHost], criteria: &Criteria, known: &[Problem], done: &[Measurement]) -> Vec<Problem> {
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
