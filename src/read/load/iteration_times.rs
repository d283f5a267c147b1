//! Mean times of an iteration and of its phases, by rank, from a record's iterations.

use ringmark_core::benchmark::train::Iteration;
use ringmark_core::dimension::{Phase, Phases, Seconds};
use ringmark_core::host::RankPlace;
use ringmark_core::stats::summary::{Spread, mean, median_weights};

/// Times of one iteration: means over ranks and iterations, of the median run where there are several runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IterationTimes {
    /// Start of an iteration to the start of the next.
    pub step: Seconds,
    /// What each phase took.
    pub phases: Phases<Seconds>,
    /// Part of the exposed all-reduce that went by until the slowest rank was there: in every iteration the rank's time less
    /// the shortest of all ranks, since who comes last waits for nobody.
    pub waiting: Seconds,
}

/// One rank of a run, over the iterations after warm-up.
#[derive(Debug, Clone, PartialEq)]
pub struct RankTimes {
    /// Where it ran.
    pub place: RankPlace,
    /// Its images in an iteration.
    pub images: u32,
    /// Means over its iterations.
    pub times: IterationTimes,
    /// Own compute time over its iterations, in seconds: until it joins its first all-reduce. `None` in records that were
    /// written before it was measured.
    pub own_compute: Option<Spread>,
}

impl IterationTimes {
    /// Mean of each time over the ranks of a run; `None` for none.
    pub fn of_ranks(ranks: &[RankTimes]) -> Option<IterationTimes> {
        let weight = 1.0 / ranks.len() as f64;
        IterationTimes::sum(ranks.iter().map(|rank| (rank.times, weight)))
    }

    /// Those of the median run, of an even number of runs those of the two weighted by their speeds, so that the step is that
    /// of the median speed and its parts add up to it; `None` for none.
    pub fn of_runs(runs: &[IterationTimes]) -> Option<IterationTimes> {
        let steps: Vec<f64> = runs.iter().map(|run| run.step.0).collect();
        IterationTimes::sum(median_weights(&steps).into_iter().map(|(place, weight)| (runs[place], weight)))
    }

    /// Of times with their weights; `None` for none.
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

    /// Forward and backward.
    pub fn compute(&self) -> Seconds {
        Seconds(self.phases[Phase::Forward].0 + self.phases[Phase::Backward].0)
    }

    /// What lies in the step and in none of its phases: what the loop, timing and recording cost. Below zero where the
    /// phases are longer than the step.
    pub fn other(&self) -> Seconds {
        Seconds(self.step.0 - self.phases.iter().map(|(_, time)| time.0).sum::<f64>())
    }

    /// Exposed all-reduce after the slowest rank was there.
    pub fn transfer(&self) -> Seconds {
        Seconds(self.phases[Phase::ExposedAllreduce].0 - self.waiting.0)
    }

    /// Share of the step that is exposed all-reduce, 0 to 1.
    pub fn exposed_share(&self) -> f64 {
        self.phases[Phase::ExposedAllreduce].0 / self.step.0
    }
}

/// Phases that any of these has, and those that every iteration has.
pub fn phases_to_show<'a>(all: impl IntoIterator<Item = &'a IterationTimes>) -> Vec<Phase> {
    let mut took = Phases::<bool>::default();
    all.into_iter().flat_map(|times| times.phases.iter()).for_each(|(phase, time)| took[phase] |= time.0 != 0.0);
    took.iter().filter(|(phase, took)| phase.is_always() || **took).map(|(phase, _)| phase).collect()
}

/// Every rank's times over these iterations, of which each has the same ranks; `images` are each rank's.
pub fn rank_times(places: &[RankPlace], images: &[u32], iterations: &[Iteration]) -> Vec<RankTimes> {
    const EXPOSED: Phase = Phase::ExposedAllreduce;
    let shortest = |list: &[Seconds]| list.iter().map(|time| time.0).fold(f64::INFINITY, f64::min);
    let shortest: Vec<f64> = iterations.iter().map(|iteration| shortest(&iteration.phases[EXPOSED])).collect();
    let shortest = mean(&shortest);
    let of_rank = |(rank, (place, images)): (usize, (&RankPlace, &u32))| {
        let average = |list: &dyn Fn(&Iteration) -> &[Seconds]| {
            let values: Vec<f64> = iterations.iter().map(|iteration| list(iteration)[rank].0).collect();
            mean(&values).map(Seconds)
        };
        let phases = Phases::from_fn(|phase| average(&|iteration| &iteration.phases[phase])).all()?;
        let times = IterationTimes {
            step: average(&|iteration| &iteration.step)?,
            phases,
            // Rounding must not make it less than nothing.
            waiting: Seconds((phases[EXPOSED].0 - shortest?).max(0.0)),
        };
        let own = iterations.iter().filter_map(|iteration| Some(iteration.before_allreduce.get(rank)?.0));
        let own_compute = Spread::of(&own.collect::<Vec<f64>>());
        Some(RankTimes { place: place.clone(), images: *images, times, own_compute })
    };
    places.iter().zip(images).enumerate().filter_map(of_rank).collect()
}

/// By rank, then by iteration.
pub fn steps(ranks: usize, iterations: &[Iteration]) -> Vec<Vec<Seconds>> {
    (0..ranks).map(|rank| iterations.iter().map(|iteration| iteration.step[rank]).collect()).collect()
}
