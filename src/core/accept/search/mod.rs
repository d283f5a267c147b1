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
//! | [`state`] | what is known so far |
//!
//! A stage uses only its own measurements and the results of earlier stages. Therefore measurements of later stages
//! cannot change the groups or partners of an earlier one.

mod alone;
mod confirmation;
mod groups;
mod log;
mod pairs;
pub(in crate::accept) mod state;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::accept::criteria::Criteria;
use crate::accept::fleet::{Finding, FleetHost, Job, Measurement, Round, Severity, Stage};
use crate::accept::search::log::disjoint;
use crate::accept::search::state::{Results, State};
use crate::accept::verdict::Fitness;

/// A search in one fleet.
#[derive(Debug, Clone)]
pub struct Search {
    fleet: Vec<FleetHost>,
    criteria: Criteria,
    seed: u64,
    /// Saves time only: a result never depends on it.
    checkpoint: Arc<Mutex<Option<Checkpoint>>>,
}

/// Results of the first stages, once they need no more measurements, and what the results are based on.
#[derive(Debug)]
struct Checkpoint {
    findings: Vec<Finding>,
    done: Vec<Measurement>,
    /// Number of complete stages of [`CHECKPOINTS`].
    stages: usize,
    results: Results,
}

/// Stages with most of the measurements. Later stages do not measure for them.
const CHECKPOINTS: [Stage; 2] = [Stage::Alone, Stage::Pairs];

impl Checkpoint {
    /// Returns true if the stages of the checkpoint give the same results with these findings and measurements.
    fn applies(&self, findings: &[Finding], done: &[Measurement]) -> bool {
        let is_later = |done: &Measurement| !CHECKPOINTS[..self.stages].contains(&done.stage);
        self.findings == findings && done.starts_with(&self.done) && done[self.done.len()..].iter().all(is_later)
    }
}

impl Search {
    /// Creates a search; `seed` determines the order in which hosts are paired and grouped.
    pub fn new(fleet: Vec<FleetHost>, criteria: Criteria, seed: u64) -> Search {
        Search { fleet, criteria, seed, checkpoint: Arc::default() }
    }

    /// Returns the jobs to run next; `None` once the search is complete. Jobs of a round that are already in `done` are
    /// not repeated.
    pub fn next(&self, findings: &[Finding], done: &[Measurement]) -> Option<Round> {
        self.evaluate(findings, done).next
    }

    /// Evaluates everything that is known so far.
    pub(in crate::accept) fn evaluate<'a>(&'a self, findings: &[Finding], done: &'a [Measurement]) -> State<'a> {
        let mut checkpoint = self.checkpoint.lock().unwrap_or_else(PoisonError::into_inner);
        let known = checkpoint.as_ref().filter(|checkpoint| checkpoint.applies(findings, done));
        let complete = known.map_or(0, |checkpoint| checkpoint.stages);
        let open = done.iter().filter(|done| !CHECKPOINTS[..complete].contains(&done.stage));
        let mut state = State::new(&self.fleet, &self.criteria, self.seed, open);
        if let Some(known) = known {
            state.restore(known.results.clone());
        } else {
            state.report_findings(findings, Severity::Error, Fitness::Unfit);
        }
        let is_later = |done: &&Measurement| matches!(done.stage, Stage::Groups | Stage::Whole | Stage::Soak);
        let first_later = done.iter().filter(is_later).map(|done| done.round).min().unwrap_or(u32::MAX);
        type Step<'s> = (Stage, &'s dyn Fn(&mut State) -> Vec<Job>);
        let soak = |state: &mut State| soak(state, done);
        let steps: [Step; 6] = [
            (Stage::Alone, &|state| alone::alone(state, done, Stage::Alone, alone::REPEATS)),
            (Stage::Pairs, &|state| pairs::pairs(state, Stage::Pairs)),
            (Stage::Confirmation, &|state| confirmation::confirm_hosts(state, done, first_later)),
            (Stage::Groups, &groups::groups),
            (Stage::Confirmation, &|state| confirmation::confirm_candidates(state, done)),
            (Stage::Soak, &soak),
        ];
        let mut reached = None;
        for (index, (stage, step)) in steps.iter().enumerate().skip(complete) {
            let is_requested = state.runs(*stage) || (*stage == Stage::Groups && state.runs(Stage::Whole));
            let jobs = if is_requested {
                state.stage = *stage;
                disjoint(step(&mut state), self.fleet.len())
            } else {
                Vec::new()
            };
            if !jobs.is_empty() {
                let later = steps[index..].iter().flat_map(|(stage, _)| match stage {
                    Stage::Groups => vec![Stage::Groups, Stage::Whole],
                    stage => vec![*stage],
                });
                let is_open = |later: &Stage| match later {
                    Stage::Groups if state.stage == Stage::Whole => false,
                    Stage::Soak if self.criteria.soak_is_endless() => !state.has_soaked,
                    later => state.runs(*later),
                };
                state.unfinished = later.filter(is_open).collect::<BTreeSet<Stage>>().into_iter().collect();
                state.next = Some(Round { stage: state.stage, jobs });
                break;
            }
            if index < CHECKPOINTS.len() {
                if index + 1 == CHECKPOINTS.len() {
                    state.known_slow_jobs = state.slow_jobs(done);
                }
                reached = Some((index + 1, state.results()));
            }
        }
        if let Some((stages, results)) = reached {
            *checkpoint = Some(Checkpoint { findings: findings.to_vec(), done: done.to_vec(), stages, results });
        }
        state
    }
}

/// Repeats jobs of all fit hosts: alone twice, in pairs, then alone to the end. Compares them before each repeat, because a
/// time limit can end the stage at any time.
fn soak(state: &mut State, done: &[Measurement]) -> Vec<Job> {
    let rounds = state.criteria.soak_rounds as usize;
    let complete = alone::complete_repeats(state, Stage::Soak).max(alone::REPEATS).min(rounds);
    state.has_soaked = complete > alone::REPEATS;
    let needed = alone::alone(state, done, Stage::Soak, complete);
    if !needed.is_empty() {
        return needed;
    }
    let needed = pairs::pairs(state, Stage::Soak);
    if !needed.is_empty() {
        return needed;
    }
    // The comparisons of this stage replace those of the earlier ones.
    state.known_slow_jobs.clear();
    let slow = state.slow_jobs(done);
    let partners = confirmation::GoodPartners::new(state, done, &slow);
    state.stage = Stage::Confirmation;
    let needed = confirmation::slow_at_times(state, done, &slow, u32::MAX, &partners);
    // Without the hosts that were found just now.
    let complete = alone::complete_repeats(state, Stage::Soak);
    if !needed.is_empty() || complete >= rounds {
        return needed;
    }
    (state.stage, state.has_soaked) = (Stage::Soak, true);
    alone::alone(state, done, Stage::Soak, complete + 1)
}

#[cfg(test)]
mod tests;
