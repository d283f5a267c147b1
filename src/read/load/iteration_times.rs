//! Mean times of an iteration and of its phases, by rank, from a record's iterations.

use ringmark_core::benchmark::train::Iteration;
use ringmark_core::dimension::{Phase, Phases, Seconds};
use ringmark_core::host::RankPlace;
use ringmark_core::stats::summary::{Spread, mean, median_weights};

/// Times of one iteration: means over ranks and iterations, for the median run if there are several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IterationTimes {
    /// Time between the starts of consecutive iterations.
    pub step: Seconds,
    /// Time of each phase.
    pub phases: Phases<Seconds>,
    /// Part of the exposed all-reduce before the slowest rank joins: in each iteration the rank's time minus the
    /// minimum over all ranks, because the last rank does not wait.
    pub waiting: Seconds,
}

/// Times of one rank, over the iterations after warm-up.
#[derive(Debug, Clone, PartialEq)]
pub struct RankTimes {
    /// Host and device of the rank.
    pub place: RankPlace,
    /// Images per iteration.
    pub samples: u32,
    /// Means over iterations.
    pub times: IterationTimes,
    /// Compute time before the rank's first all-reduce, over its iterations, in seconds. `None` in records of versions
    /// that did not measure it.
    pub own_compute: Option<Spread>,
}

impl IterationTimes {
    /// Averages the times over the ranks of a run; returns `None` without ranks.
    pub fn from_ranks(ranks: &[RankTimes]) -> Option<IterationTimes> {
        let weight = 1.0 / ranks.len() as f64;
        IterationTimes::sum(ranks.iter().map(|rank| (rank.times, weight)))
    }

    /// Returns the times of the median run; of an even number of runs, the middle two weighted such that the step is
    /// that of the median speed and the parts add up to it. Returns `None` without runs.
    pub fn from_runs(runs: &[IterationTimes]) -> Option<IterationTimes> {
        let steps: Vec<f64> = runs.iter().map(|run| run.step.0).collect();
        IterationTimes::sum(median_weights(&steps).into_iter().map(|(place, weight)| (runs[place], weight)))
    }

    /// Returns the weighted sum of times, or `None` if there are none.
    fn sum(weighted: impl Iterator<Item = (IterationTimes, f64)>) -> Option<IterationTimes> {
        let scaled = |times: IterationTimes, weight: f64| IterationTimes {
            step: Seconds(weight * times.step.0),
            phases: Phases::from_fn(|phase| Seconds(weight * times.phases[phase].0)),
            waiting: Seconds(weight * times.waiting.0),
        };
        weighted.map(|(times, weight)| scaled(times, weight)).reduce(|one, other| IterationTimes {
            step: Seconds(one.step.0 + other.step.0),
            phases: Phases::from_fn(|phase| Seconds(one.phases[phase].0 + other.phases[phase].0)),
            waiting: Seconds(one.waiting.0 + other.waiting.0),
        })
    }

    /// Returns forward plus backward time.
    pub fn compute(&self) -> Seconds {
        Seconds(self.phases[Phase::Forward].0 + self.phases[Phase::Backward].0)
    }

    /// Returns the time of the step outside its phases: overhead of the loop, timing and recording. Negative if the
    /// phases are longer than the step.
    pub fn other(&self) -> Seconds {
        Seconds(self.step.0 - self.phases.iter().map(|(_, time)| time.0).sum::<f64>())
    }

    /// Returns the exposed all-reduce after the slowest rank joins.
    pub fn transfer(&self) -> Seconds {
        Seconds(self.phases[Phase::ExposedAllreduce].0 - self.waiting.0)
    }

    /// Returns the share of the step that is exposed all-reduce, 0 to 1.
    pub fn exposed_share(&self) -> f64 {
        self.phases[Phase::ExposedAllreduce].0 / self.step.0
    }
}

/// Returns the phases that every iteration has, and those that took time in any of these.
pub fn phases_to_show<'a>(all: impl IntoIterator<Item = &'a IterationTimes>) -> Vec<Phase> {
    let mut took = Phases::<bool>::default();
    all.into_iter().flat_map(|times| times.phases.iter()).for_each(|(phase, time)| took[phase] |= time.0 != 0.0);
    took.iter().filter(|(phase, took)| phase.is_always() || **took).map(|(phase, _)| phase).collect()
}

/// Returns the times of every rank; each iteration has the same ranks, and `samples` has the batch size of each.
pub fn rank_times(places: &[RankPlace], samples: &[u32], iterations: &[Iteration]) -> Vec<RankTimes> {
    const EXPOSED: Phase = Phase::ExposedAllreduce;
    let shortest = |list: &[Seconds]| list.iter().map(|time| time.0).fold(f64::INFINITY, f64::min);
    let shortest: Vec<f64> = iterations.iter().map(|iteration| shortest(&iteration.phases[EXPOSED])).collect();
    let shortest = mean(&shortest);
    let of_rank = |(rank, (place, samples)): (usize, (&RankPlace, &u32))| {
        let average = |list: &dyn Fn(&Iteration) -> &[Seconds]| {
            let values: Vec<f64> = iterations.iter().map(|iteration| list(iteration)[rank].0).collect();
            mean(&values).map(Seconds)
        };
        let phases = Phases::from_fn(|phase| average(&|iteration| &iteration.phases[phase])).all()?;
        let times = IterationTimes {
            step: average(&|iteration| &iteration.step)?,
            phases,
            // Rounding must not make it negative.
            waiting: Seconds((phases[EXPOSED].0 - shortest?).max(0.0)),
        };
        let own = iterations.iter().filter_map(|iteration| Some(iteration.before_allreduce.get(rank)?.0));
        let own_compute = Spread::from_values(&own.collect::<Vec<f64>>());
        Some(RankTimes { place: place.clone(), samples: *samples, times, own_compute })
    };
    places.iter().zip(samples).enumerate().filter_map(of_rank).collect()
}

/// Returns step times by rank, then by iteration.
pub fn steps(ranks: usize, iterations: &[Iteration]) -> Vec<Vec<Seconds>> {
    (0..ranks).map(|rank| iterations.iter().map(|iteration| iteration.step[rank]).collect()).collect()
}
