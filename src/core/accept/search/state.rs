//! State of an evaluation: what is known so far, for the stages and the verdict.

use std::collections::{BTreeMap, BTreeSet};

use crate::accept::comparison::{Comparison, Deviation};
use crate::accept::corruption::corrupt_hosts;
use crate::accept::criteria::Criteria;
use crate::accept::fleet::{
    Finding, FleetHost, Job, Measurement, Metric, Outcome, Reading, Round, Severity, Stage, ranks_per_host,
};
use crate::accept::search::log::{FAILURES, Log};
use crate::accept::verdict::{Cause, Evidence, Fitness, Subject};

/// Stages that share the rate of false alarms evenly.
const STAGES: f64 = 4.0;

/// Set of kinds of hardware.
pub type Hardware = u64;

/// A host, GPU, link or fleet that is not fit.
#[derive(Debug, Clone)]
pub struct Problem {
    pub subject: Subject,
    pub cause: Cause,
    pub fitness: Fitness,
    pub evidence: Vec<Evidence>,
}

/// Two hosts that are slow together in a group.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub hosts: [usize; 2],
    pub evidence: Vec<Evidence>,
}

/// Kind of a pair: hardware of both hosts, and whether they share a switch, if that is known.
pub type PairKind = (Hardware, Option<bool>);

/// Comparisons of all stages so far.
#[derive(Debug, Clone, Default)]
pub struct Comparisons {
    /// Comparisons by hardware, metric, and true for values of a rank.
    pub alone: BTreeMap<(Hardware, Metric, bool), Comparison>,
    pub pairs: BTreeMap<(PairKind, Metric), Comparison>,
    /// Group sizes, ascending.
    pub levels: Vec<Level>,
}

/// Results of the stages so far.
#[derive(Debug, Clone)]
pub struct Results {
    problems: Vec<Problem>,
    excluded: BTreeSet<usize>,
    comparisons: Comparisons,
    slow_jobs: Vec<bool>,
}

/// State of an evaluation.
pub struct State<'a> {
    pub fleet: &'a [FleetHost],
    pub criteria: &'a Criteria,
    /// Seed of the order in which hosts are paired and grouped.
    pub seed: u64,
    /// Kind of hardware of each host: a bit, so that the kinds of a group are a set. The 64th kind and all others share
    /// the last bit.
    pub hardware: Vec<Hardware>,
    /// Number of each host's switch, if known.
    switches: Vec<Option<usize>>,
    pub log: Log<'a>,
    /// Everything that is not fit so far.
    pub problems: Vec<Problem>,
    /// Hosts that later stages do not use, because they are not fit.
    pub excluded: BTreeSet<usize>,
    /// Hosts that groups do not use: one of two that are slow together is bad, but it is not known which.
    pub left_out: BTreeSet<usize>,
    pub candidates: Vec<Candidate>,
    pub comparisons: Comparisons,
    /// Result of [`State::slow_jobs`] for the first measurements, while the comparisons do not change.
    pub known_slow_jobs: Vec<bool>,
    /// True once the first repeats of the soak, and its pairs, are complete.
    pub has_soaked: bool,
    /// Current stage.
    pub stage: Stage,
    /// Stages that are not complete.
    pub unfinished: Vec<Stage>,
    /// Jobs to run next.
    pub next: Option<Round>,
}

/// Comparisons of groups of one size.
#[derive(Debug, Clone)]
pub struct Level {
    pub hosts: usize,
    pub comparisons: BTreeMap<(Hardware, Metric), Comparison>,
    pub noise: BTreeMap<Metric, Deviation>,
}

impl<'a> State<'a> {
    /// Creates the state before the first stage. `done` may leave out the measurements of stages that do not run.
    pub fn new(
        fleet: &'a [FleetHost],
        criteria: &'a Criteria,
        seed: u64,
        done: impl Iterator<Item = &'a Measurement>,
    ) -> State<'a> {
        let names: BTreeSet<&str> = fleet.iter().filter_map(|host| host.switch.as_deref()).collect();
        let numbers: BTreeMap<&str, usize> = names.into_iter().zip(0..).collect();
        let kinds: BTreeSet<&str> = fleet.iter().map(|host| &host.hardware[..]).collect();
        let bit = |host: &FleetHost| 1 << kinds.iter().take(63).take_while(|kind| **kind != host.hardware).count();
        State {
            fleet,
            criteria,
            seed,
            hardware: fleet.iter().map(bit).collect(),
            switches: fleet.iter().map(|host| numbers.get(host.switch.as_deref()?).copied()).collect(),
            log: Log::new(done),
            problems: Vec::new(),
            excluded: BTreeSet::new(),
            left_out: BTreeSet::new(),
            candidates: Vec::new(),
            comparisons: Comparisons::default(),
            known_slow_jobs: Vec::new(),
            has_soaked: false,
            stage: Stage::Facts,
            unfinished: Vec::new(),
            next: None,
        }
    }

    /// Returns the results so far.
    pub fn results(&self) -> Results {
        Results {
            problems: self.problems.clone(),
            excluded: self.excluded.clone(),
            comparisons: self.comparisons.clone(),
            slow_jobs: self.known_slow_jobs.clone(),
        }
    }

    /// Continues with the results of earlier stages.
    pub fn restore(&mut self, results: Results) {
        Results {
            problems: self.problems,
            excluded: self.excluded,
            comparisons: self.comparisons,
            slow_jobs: self.known_slow_jobs,
        } = results;
    }

    /// Adds a problem, or its evidence to that of the same subject. A host that is not fit is not used by later stages.
    pub fn report(&mut self, subject: Subject, cause: Cause, fitness: Fitness, evidence: Vec<Evidence>) {
        if let Subject::Host(host) = subject {
            self.excluded.insert(host);
        }
        match self.problems.iter_mut().find(|problem| problem.subject == subject) {
            // The worse problem decides: a wrong value is worse than doubts about the speed.
            Some(known) if known.fitness < fitness => {
                (known.fitness, known.cause) = (fitness, cause);
                known.evidence.splice(0..0, evidence);
            }
            Some(known) => known.evidence.extend(evidence),
            None => self.problems.push(Problem { subject, cause, fitness, evidence }),
        }
    }

    /// Reports the findings of this severity.
    pub fn report_findings(&mut self, findings: &[Finding], severity: Severity, fitness: Fitness) {
        for found in findings.iter().filter(|found| found.severity == severity) {
            let evidence = vec![Evidence::of_text(Stage::Facts, found.what.clone())];
            self.report(Subject::Host(found.host), Cause::Facts, fitness, evidence);
        }
    }

    /// Excludes the unfit hosts that compute other values in these measurements; returns true if there are new ones. They
    /// are reported in the verdict, with the evidence of all measurements.
    pub fn exclude_corrupt<'d>(&mut self, done: impl IntoIterator<Item = &'d Measurement>) -> bool {
        let before = self.excluded.len();
        let found = corrupt_hosts(self.fleet, done).into_iter();
        self.excluded.extend(found.filter(|(_, fitness, _)| *fitness == Fitness::Unfit).map(|(host, ..)| host));
        self.excluded.len() > before
    }

    /// Reports the hosts that several failures in a stage name.
    pub fn report_failures(&mut self, stage: Stage) {
        for host in 0..self.fleet.len() {
            let reasons = self.log.failures_of(stage, host);
            if reasons.len() >= FAILURES && !self.excluded.contains(&host) {
                let evidence = vec![Evidence::of_failure(stage, reasons[0], reasons.len())];
                self.report(Subject::Host(host), Cause::Failure, Fitness::Unfit, evidence);
            }
        }
    }

    /// Makes an unfit host a suspect, because it was good afterwards.
    pub fn weaken(&mut self, host: usize, reason: &str) {
        let of_host = |problem: &&mut Problem| problem.subject == Subject::Host(host);
        if let Some(problem) = self.problems.iter_mut().find(of_host) {
            problem.fitness = Fitness::Suspect;
            problem.evidence.push(Evidence::of_text(Stage::Confirmation, reason.to_owned()));
        }
    }

    /// Returns the hosts that are fit so far, by hardware.
    pub fn classes(&self) -> BTreeMap<Hardware, Vec<usize>> {
        self.classes_of(|host| !self.excluded.contains(&host))
    }

    pub fn classes_of(&self, is_member: impl Fn(usize) -> bool) -> BTreeMap<Hardware, Vec<usize>> {
        let mut classes: BTreeMap<Hardware, Vec<usize>> = BTreeMap::new();
        for host in (0..self.fleet.len()).filter(|host| is_member(*host)) {
            classes.entry(self.hardware[host]).or_default().push(host);
        }
        classes
    }

    /// Returns the hosts of a part that groups may use, in ascending order.
    pub fn sorted_fit(&self, part: &[usize]) -> Vec<usize> {
        let is_fit = |host: &usize| !self.excluded.contains(host) && !self.left_out.contains(host);
        let mut hosts: Vec<usize> = part.iter().copied().filter(is_fit).collect();
        hosts.sort_unstable();
        hosts
    }

    pub fn excludes(&self, job: &Job) -> bool {
        job.hosts.iter().any(|host| self.excluded.contains(host))
    }

    /// Returns the links that are not fit.
    pub fn bad_links(&self) -> Vec<[usize; 2]> {
        let link = |problem: &Problem| match problem.subject {
            Subject::Link(one, other) => Some([one, other]),
            _ => None,
        };
        self.problems.iter().filter_map(link).collect()
    }

    pub fn has_bad_link(&self, hosts: &[usize]) -> bool {
        matches!(hosts, [one, other] if self.problems.iter().any(|problem| problem.subject == Subject::Link(*one, *other)))
    }

    /// Returns true for each measurement of one or two hosts that is slow beyond doubt, or failed.
    pub fn slow_jobs(&self, done: &[Measurement]) -> Vec<bool> {
        let of_pair =
            |hosts: &[usize], reading: &Reading| self.comparisons.pairs.get(&(self.pair_kind(hosts), reading.metric));
        let of_host = |host: usize, reading: &Reading| {
            self.comparisons.alone.get(&(self.hardware[host], reading.metric, reading.rank.is_some()))
        };
        let is_slow = |done: &Measurement| match (&done.outcome, &done.job.hosts[..]) {
            (_, [] | [_, _, _, ..]) => false,
            (Outcome::Failed { .. }, _) => true,
            (Outcome::Measured(readings), hosts) => readings.iter().any(|reading| {
                let comparison = if hosts.len() == 2 { of_pair(hosts, reading) } else { of_host(hosts[0], reading) };
                comparison.is_some_and(|comparison| comparison.is_slow(reading.value))
            }),
        };
        let known = self.known_slow_jobs.iter().copied();
        known.chain(done.iter().skip(self.known_slow_jobs.len()).map(is_slow)).collect()
    }

    /// Returns the number of ranks of a job on these hosts.
    pub fn ranks(&self, hosts: &[usize]) -> u32 {
        ranks_per_host(self.fleet, hosts) * hosts.len() as u32
    }

    /// Returns the hardware of a group: all kinds that it contains.
    pub fn hardware(&self, hosts: &[usize]) -> Hardware {
        hosts.iter().fold(0, |kinds, host| kinds | self.hardware[*host])
    }

    pub fn pair_kind(&self, hosts: &[usize]) -> PairKind {
        let mut switches = hosts.iter().map(|host| self.switches[*host]);
        let first = switches.next().flatten();
        let is_shared = switches.try_fold(true, |is_shared, switch| Some(is_shared && switch? == first?));
        (self.hardware(hosts), is_shared)
    }

    /// Returns the rate of false alarms of one stage.
    pub fn false_alarms(&self) -> f64 {
        self.criteria.false_alarms / STAGES
    }

    pub fn max_repeats(&self) -> usize {
        self.criteria.max_repeats as usize
    }

    /// Returns true if the criteria contain the stage.
    pub fn runs(&self, stage: Stage) -> bool {
        match stage {
            Stage::Soak => self.criteria.soak_rounds > 0,
            stage => self.criteria.stages.contains(&stage),
        }
    }

    /// Returns true if hosts with the same hardware were compared with each other.
    pub fn is_compared(&self, host: usize) -> bool {
        let pairs = self.comparisons.pairs.keys().map(|((of, _), _)| of);
        let alone = self.comparisons.alone.keys().map(|(of, ..)| of);
        let alike = self.hardware.iter().filter(|of| **of == self.hardware[host]).count();
        let has_values = !self.criteria.minimum.is_empty() || !self.criteria.reference.is_empty();
        // Of two hosts that differ, either could be the slow one.
        has_values || (alike > 2 && alone.chain(pairs).any(|of| *of == self.hardware[host]))
    }

    /// Returns the largest of the smallest losses that the comparisons of single hosts find, as a share.
    pub fn smallest_defect(&self) -> Option<f64> {
        let losses = self.comparisons.alone.values().map(|comparison| 1.0 - (-comparison.test.defect).exp());
        losses.reduce(f64::max)
    }
}
