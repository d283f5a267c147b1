//! Search for unfit hosts, GPUs and links: which jobs to run next, a pure function of the measurements so far. The same
//! evaluation gives the next round and the verdict, so that an acceptance can stop at any time.
//!
//! | module | stage |
//! |---|---|
//! | [`alone`] | each host alone |
//! | [`pairs`] | pairs in rounds |
//! | [`groups`] | groups by halving, and the whole fleet |
//! | [`confirmation`] | suspects with good partners, and hosts that are slow at times |
//! | [`log`] | measurements by job |
//!
//! A stage uses only its own measurements and the results of earlier stages. Therefore measurements of later stages
//! cannot change the groups or partners of an earlier one.

mod alone;
mod confirmation;
mod groups;
mod log;
mod pairs;

use std::collections::{BTreeMap, BTreeSet};

use crate::accept::comparison::Comparison;
use crate::accept::criteria::Criteria;
use crate::accept::fleet::{Finding, FleetHost, Job, Measurement, Metric, Outcome, Round, Severity, Stage};
use crate::accept::search::log::{FAILURES, Log, disjoint};
use crate::accept::verdict::{Cause, Evidence, Fitness, Subject};

/// Stages that share the rate of false alarms evenly.
const STAGES: f64 = 4.0;

/// A search in one fleet.
#[derive(Debug, Clone)]
pub struct Search {
    pub(in crate::accept) fleet: Vec<FleetHost>,
    pub(in crate::accept) criteria: Criteria,
    seed: u64,
    /// Kind of hardware of each host: a bit, so that the kinds of a group are a set. The 64th kind and all others share
    /// the last bit.
    hardware: Vec<Hardware>,
}

/// Set of kinds of hardware.
pub(in crate::accept) type Hardware = u64;

/// A host, GPU, link or fleet that is not fit.
#[derive(Debug, Clone)]
pub(in crate::accept) struct Problem {
    pub subject: Subject,
    pub cause: Cause,
    pub fitness: Fitness,
    pub evidence: Vec<Evidence>,
}

/// Two hosts that are slow together in a group.
#[derive(Debug, Clone)]
pub(in crate::accept) struct Candidate {
    hosts: [usize; 2],
    evidence: Vec<Evidence>,
}

/// Kind of a pair: hardware of both hosts, and whether they share a switch, if that is known.
pub(in crate::accept) type PairKind = (Hardware, Option<bool>);

/// Comparisons of all stages so far.
#[derive(Default)]
pub(in crate::accept) struct Comparisons {
    /// Comparisons by hardware, metric, and true for values of a rank.
    alone: BTreeMap<(Hardware, Metric, bool), Comparison>,
    pairs: BTreeMap<(PairKind, Metric), Comparison>,
    /// Group sizes, ascending.
    levels: Vec<groups::Level>,
}

/// State of an evaluation.
pub(in crate::accept) struct State<'a> {
    pub search: &'a Search,
    pub log: Log<'a>,
    /// Everything that is not fit so far.
    pub problems: Vec<Problem>,
    /// Hosts that later stages do not use, because they are not fit.
    pub excluded: BTreeSet<usize>,
    /// Hosts that groups do not use: one of two that are slow together is bad, but it is not known which.
    pub left_out: BTreeSet<usize>,
    pub candidates: Vec<Candidate>,
    pub comparisons: Comparisons,
    /// Current stage.
    pub stage: Stage,
    /// Stages that are not complete.
    pub unfinished: Vec<Stage>,
    /// Jobs to run next.
    pub next: Option<Round>,
}

impl Search {
    /// Creates a search; `seed` determines the order in which hosts are paired and grouped.
    pub fn new(fleet: Vec<FleetHost>, criteria: Criteria, seed: u64) -> Search {
        let kinds: BTreeSet<&str> = fleet.iter().map(|host| &host.hardware[..]).collect();
        let bit = |host: &FleetHost| 1 << kinds.iter().take(63).take_while(|kind| **kind != host.hardware).count();
        let hardware = fleet.iter().map(bit).collect();
        Search { fleet, criteria, seed, hardware }
    }

    /// Returns the jobs to run next; `None` once the search is complete. Jobs of a round that are already in `done` are
    /// not repeated.
    pub fn next(&self, findings: &[Finding], done: &[Measurement]) -> Option<Round> {
        self.evaluate(findings, done).next
    }

    /// Evaluates the findings and measurements.
    pub(in crate::accept) fn evaluate<'a>(&'a self, findings: &[Finding], done: &'a [Measurement]) -> State<'a> {
        let mut state = State {
            search: self,
            log: Log::new(done),
            problems: Vec::new(),
            excluded: BTreeSet::new(),
            left_out: BTreeSet::new(),
            candidates: Vec::new(),
            comparisons: Comparisons::default(),
            stage: Stage::Facts,
            unfinished: Vec::new(),
            next: None,
        };
        for found in findings.iter().filter(|found| found.severity == Severity::Error) {
            let evidence = vec![Evidence::of_text(Stage::Facts, found.what.clone())];
            state.report(Subject::Host(found.host), Cause::Facts, Fitness::Unfit, evidence);
        }
        let is_group = |done: &&Measurement| matches!(done.stage, Stage::Groups | Stage::Whole);
        let first_group = done.iter().filter(is_group).map(|done| done.round).min().unwrap_or(u32::MAX);
        type Step<'s> = (Stage, &'s dyn Fn(&mut State) -> Vec<Job>);
        let soak = |state: &mut State| soak(state, done);
        let steps: [Step; 6] = [
            (Stage::Alone, &|state| alone::alone(state, Stage::Alone, alone::REPEATS)),
            (Stage::Pairs, &|state| pairs::pairs(state, Stage::Pairs)),
            (Stage::Confirmation, &|state| confirmation::confirm_hosts(state, done, first_group)),
            (Stage::Groups, &groups::groups),
            (Stage::Confirmation, &|state| confirmation::confirm_candidates(state, done)),
            (Stage::Soak, &soak),
        ];
        for (index, (stage, step)) in steps.iter().enumerate() {
            if !state.runs(*stage) && !(*stage == Stage::Groups && state.runs(Stage::Whole)) {
                continue;
            }
            state.stage = *stage;
            let jobs = disjoint(step(&mut state), self.fleet.len());
            if !jobs.is_empty() {
                let later = steps[index..].iter().flat_map(|(stage, _)| match stage {
                    Stage::Groups => vec![Stage::Groups, Stage::Whole],
                    stage => vec![*stage],
                });
                let is_open =
                    |later: &Stage| state.runs(*later) && !(*later == Stage::Groups && state.stage == Stage::Whole);
                state.unfinished = later.filter(is_open).collect::<BTreeSet<Stage>>().into_iter().collect();
                state.next = Some(Round { stage: state.stage, jobs });
                break;
            }
        }
        state
    }
}

/// Repeats jobs of all fit hosts, alone and in pairs.
fn soak(state: &mut State, done: &[Measurement]) -> Vec<Job> {
    let needed = alone::alone(state, Stage::Soak, state.search.criteria.soak_rounds as usize);
    if !needed.is_empty() {
        return needed;
    }
    let needed = pairs::pairs(state, Stage::Soak);
    if !needed.is_empty() {
        return needed;
    }
    let slow = state.slow_jobs(done);
    let partners = confirmation::GoodPartners::new(state, done, &slow);
    confirmation::slow_at_times(state, done, &slow, u32::MAX, &partners)
}

impl State<'_> {
    /// Adds a problem. A host that is not fit is not used by later stages.
    fn report(&mut self, subject: Subject, cause: Cause, fitness: Fitness, evidence: Vec<Evidence>) {
        if let Subject::Host(host) = subject {
            self.excluded.insert(host);
        }
        match self.problems.iter_mut().find(|problem| problem.subject == subject) {
            Some(known) => known.evidence.extend(evidence),
            None => self.problems.push(Problem { subject, cause, fitness, evidence }),
        }
    }

    /// Reports the hosts that several failures in a stage name.
    fn report_failures(&mut self, stage: Stage) {
        for host in 0..self.search.fleet.len() {
            let reasons = self.log.failures_of(stage, host);
            if reasons.len() >= FAILURES && !self.excluded.contains(&host) {
                let evidence = vec![Evidence::of_failure(stage, reasons[0], reasons.len())];
                self.report(Subject::Host(host), Cause::Failure, Fitness::Unfit, evidence);
            }
        }
    }

    /// Makes an unfit host a suspect, because it was good afterwards.
    fn weaken(&mut self, host: usize, reason: &str) {
        let of_host = |problem: &&mut Problem| problem.subject == Subject::Host(host);
        if let Some(problem) = self.problems.iter_mut().find(of_host) {
            problem.fitness = Fitness::Suspect;
            problem.evidence.push(Evidence::of_text(Stage::Confirmation, reason.to_owned()));
        }
    }

    /// Returns the hosts that are fit so far, by hardware.
    fn classes(&self) -> BTreeMap<Hardware, Vec<usize>> {
        self.classes_of(|host| !self.excluded.contains(&host))
    }

    fn classes_of(&self, is_member: impl Fn(usize) -> bool) -> BTreeMap<Hardware, Vec<usize>> {
        let mut classes: BTreeMap<Hardware, Vec<usize>> = BTreeMap::new();
        for host in (0..self.search.fleet.len()).filter(|host| is_member(*host)) {
            classes.entry(self.search.hardware[host]).or_default().push(host);
        }
        classes
    }

    /// Returns the hosts of a part that groups may use, in ascending order.
    fn sorted_fit(&self, part: &[usize]) -> Vec<usize> {
        let is_fit = |host: &usize| !self.excluded.contains(host) && !self.left_out.contains(host);
        let mut hosts: Vec<usize> = part.iter().copied().filter(is_fit).collect();
        hosts.sort_unstable();
        hosts
    }

    fn excludes(&self, job: &Job) -> bool {
        job.hosts.iter().any(|host| self.excluded.contains(host))
    }

    /// Returns the links that are not fit.
    fn bad_links(&self) -> Vec<[usize; 2]> {
        let link = |problem: &Problem| match problem.subject {
            Subject::Link(one, other) => Some([one, other]),
            _ => None,
        };
        self.problems.iter().filter_map(link).collect()
    }

    fn has_bad_link(&self, hosts: &[usize]) -> bool {
        matches!(hosts, [one, other] if self.problems.iter().any(|problem| problem.subject == Subject::Link(*one, *other)))
    }

    /// Returns true for each measurement of one or two hosts that is slow beyond doubt, or failed.
    fn slow_jobs(&self, done: &[Measurement]) -> Vec<bool> {
        done.iter().map(|done| done.job.hosts.len() <= 2 && self.is_slow(done)).collect()
    }

    fn is_slow(&self, done: &Measurement) -> bool {
        let Outcome::Measured(readings) = &done.outcome else { return true };
        let hosts = &done.job.hosts[..];
        let kind = (hosts.len() == 2).then(|| self.pair_kind(hosts));
        readings.iter().any(|reading| {
            let comparison = match &kind {
                Some(kind) => self.comparisons.pairs.get(&(*kind, reading.metric)),
                None => {
                    let kind = (self.search.hardware[hosts[0]], reading.metric, reading.rank.is_some());
                    self.comparisons.alone.get(&kind)
                }
            };
            comparison.is_some_and(|comparison| comparison.is_slow(reading.value.ln()))
        })
    }

    /// Returns the number of ranks of a job on these hosts: each gets as many as the host with the fewest.
    fn ranks(&self, hosts: &[usize]) -> u32 {
        hosts.iter().map(|host| self.search.fleet[*host].ranks).min().unwrap_or(0) * hosts.len() as u32
    }

    /// Returns the hardware of a group: all kinds that it contains.
    fn hardware(&self, hosts: &[usize]) -> Hardware {
        hosts.iter().fold(0, |kinds, host| kinds | self.search.hardware[*host])
    }

    fn pair_kind(&self, hosts: &[usize]) -> PairKind {
        let switches: Option<Vec<&String>> =
            hosts.iter().map(|host| self.search.fleet[*host].switch.as_ref()).collect();
        (self.hardware(hosts), switches.map(|switches| switches.windows(2).all(|pair| pair[0] == pair[1])))
    }

    /// Returns the rate of false alarms of one stage.
    fn false_alarms(&self) -> f64 {
        self.search.criteria.false_alarms / STAGES
    }

    fn max_repeats(&self) -> usize {
        self.search.criteria.max_repeats as usize
    }

    /// Returns true if the criteria contain the stage.
    pub fn runs(&self, stage: Stage) -> bool {
        match stage {
            Stage::Soak => self.search.criteria.soak_rounds > 0,
            stage => self.search.criteria.stages.contains(&stage),
        }
    }

    /// Returns true if hosts with the same hardware were compared with each other.
    pub fn is_compared(&self, host: usize) -> bool {
        let pairs = self.comparisons.pairs.keys().map(|((of, _), _)| of);
        let alone = self.comparisons.alone.keys().map(|(of, ..)| of);
        alone.chain(pairs).any(|of| *of == self.search.hardware[host])
    }

    /// Returns the largest of the smallest losses that the comparisons of single hosts find, as a share.
    pub fn smallest_defect(&self) -> Option<f64> {
        let losses = self.comparisons.alone.values().map(|comparison| 1.0 - (-comparison.test.defect).exp());
        losses.reduce(f64::max)
    }
}

#[cfg(test)]
mod tests;
