//! The verdict from the result of the search, the minimum values and the reference.

use std::collections::BTreeMap;

use crate::accept::corruption::corrupt_hosts;
use crate::accept::drift::drifts;
use crate::accept::fleet::{Finding, FleetHost, Measurement, Outcome, Severity, Stage};
use crate::accept::limits::{below_limits, below_peak, lowest_shares};
use crate::accept::search::Search;
use crate::accept::search::state::{Problem, State};
use crate::accept::verdict::{self, Cause, Drift, Evidence, Fitness, Judged, StageUse, Subject, Verdict, Warning};
use crate::host::host_list::compact;
use crate::stats::counts::hypergeometric_tail;

/// Chance, over all switches, from which unfit hosts share a switch by accident.
const SWITCH_CHANCE: f64 = 0.05;

impl Search {
    /// Returns the verdict that the findings and measurements support.
    pub fn verdict(&self, findings: &[Finding], done: &[Measurement]) -> Verdict {
        let mut state = self.evaluate(findings, done);
        let drift = report_later_problems(&mut state, findings, done);
        judge(&state, drift, findings, done)
    }
}

/// Reports what the search does not need: suspects among the findings, hosts with wrong values, with the evidence of all
/// measurements, and hosts that drift. Returns the drift of all hosts.
fn report_later_problems(state: &mut State, findings: &[Finding], done: &[Measurement]) -> Vec<Drift> {
    state.report_findings(findings, Severity::Suspect, Fitness::Suspect);
    for (host, fitness, evidence) in corrupt_hosts(state.fleet, done) {
        state.report(Subject::Host(host), Cause::Corruption, fitness, vec![evidence]);
    }
    let significance = state.false_alarms() / state.fleet.len().max(1) as f64;
    let drift = drifts(state.fleet, state.criteria.smallest_defect, significance, done);
    for drift in drift.iter().filter(|drift| drift.is_defect) {
        let evidence = vec![Evidence::of_text(Stage::Soak, drift.text())];
        state.report(Subject::Host(drift.host), Cause::Drift, Fitness::Suspect, evidence);
    }
    drift
}

/// Builds the verdict from the result of the search.
fn judge(state: &State, drift: Vec<Drift>, findings: &[Finding], done: &[Measurement]) -> Verdict {
    let (fleet, criteria) = (state.fleet, state.criteria);
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
    let is_undecided = |host: usize| {
        let alone = state.next.iter().filter(|round| round.stage == Stage::Alone).flat_map(|round| &round.jobs);
        alone.into_iter().any(|job| job.hosts.contains(&host))
    };
    let host = |host: usize| {
        let problem = problems.iter().find(|problem| problem.subject == Subject::Host(host));
        problem.map_or_else(
            || {
                let reason = if measured[host] > 0 && !state.is_compared(host) {
                    Some("fewer than three hosts with this hardware: nothing to compare with: add --reference or --criteria")
                } else {
                    is_undecided(host).then_some("the run ended before it was measured often enough")
                };
                let is_tested = measured[host] > 0 && reason.is_none();
                Judged {
                    subject: Subject::Host(host),
                    name: fleet[host].name.clone(),
                    fitness: if is_tested { Fitness::Fit } else { Fitness::NotTested },
                    cause: None,
                    evidence: reason.map(|text| Evidence::of_text(Stage::Alone, text.to_owned())).into_iter().collect(),
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
        stages: StageUse::from_measurements(done),
        warnings: warnings(fleet, findings).into_iter().chain(below_peak(fleet, done)).collect(),
        drift,
        unfinished: state.unfinished.clone(),
        smallest_defect: state.smallest_defect(),
        lowest_shares: lowest_shares(fleet, done),
        hosts,
        gpus,
        links,
        switches,
        fleet: whole,
    }
}

/// Returns the findings that are only warnings; hosts with the same one are together.
fn warnings(fleet: &[FleetHost], findings: &[Finding]) -> Vec<Warning> {
    let mut warnings: Vec<Warning> = Vec::new();
    for Finding { host, what, fix, .. } in findings.iter().filter(|found| found.severity == Severity::Warning) {
        let same = |known: &&mut Warning| (&known.what, &known.fix) == (what, fix);
        match warnings.iter_mut().find(same) {
            Some(known) => known.hosts.push(*host),
            None => warnings.push(Warning {
                hosts: vec![*host],
                names: String::new(),
                what: what.clone(),
                fix: fix.clone(),
            }),
        }
    }
    for Warning { hosts, names, .. } in &mut warnings {
        *names = compact(hosts.iter().map(|host| &fleet[*host].name[..]));
    }
    warnings
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
        Cause::Failure => {
            let own = findings.iter().filter(|found| Some(found.host) == problem.subject.host());
            let own: Vec<String> = own.map(|found| format!("{}: {}", found.what, found.fix)).collect();
            if !own.is_empty() {
                return format!("a warning may be the cause: {}; read the log of the failed job", own.join("; "));
            }
            "read the log of the failed job; take the host out of service"
        }
        Cause::Gpu => "take the host out of service; check the GPU's clocks, heat, power limit and PCIe link",
        Cause::Host => "take the host out of service; check clocks, heat, power limits, other processes and NVLink",
        Cause::Network => "check the cables, rate and error counters of the host's network interfaces",
        Cause::Link => "check cables and ports on the route between the two hosts; do not use both in one job",
        Cause::Intermittent => "check heat, other processes and error counters of the host; repeat with a soak",
        Cause::Drift => {
            "check cooling, power limits and other processes of the host; compare its first and last jobs of the soak"
        }
        Cause::Switch => "check the switch: its uplinks, error counters and configuration",
        Cause::Corruption => {
            "take the host out of service; run a memory test, read the ECC counters (nvidia-smi -q -d ECC, edac-util), and \
             replace the GPU or memory module"
        }
        Cause::Minimum => "compare hardware, drivers and settings with those of a host that reaches the minimum",
        Cause::Reference => "compare drivers, settings and cables of all hosts with those at the time of the reference",
    };
    text.to_owned()
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
