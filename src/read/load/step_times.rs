//! Mean times of an iteration and of its phases, by rank, from a record's iterations.

use ringmark_record::environment::RankPlace;
use ringmark_record::run::Iteration;
use ringmark_record::stats::summary::{Spread, mean};
use ringmark_record::units::Seconds;

/// Mean times of one iteration over ranks and iterations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTimes {
    /// Start of an iteration to the start of the next.
    pub step: Seconds,
    /// Forward and loss.
    pub forward: Seconds,
    /// Backward without the time it was blocked by communication.
    pub backward: Seconds,
    /// All-reduce that backward did not hide.
    pub exposed_allreduce: Seconds,
    /// Part of `exposed_allreduce` that went by until the slowest rank was there: in every iteration the rank's time less
    /// the shortest of all ranks, since who comes last waits for nobody.
    pub waiting: Seconds,
    /// Weight update.
    pub optimizer: Seconds,
}

/// One rank of a run, over the iterations after warm-up.
#[derive(Debug, Clone, PartialEq)]
pub struct RankTimes {
    /// Where it ran.
    pub place: RankPlace,
    /// Means over its iterations.
    pub times: StepTimes,
    /// Own compute time over its iterations, in seconds: until it joins its first all-reduce. `None` in records that were
    /// written before it was measured.
    pub own_compute: Option<Spread>,
}

impl StepTimes {
    /// Mean of each part over several; `None` for none.
    pub fn mean<'a>(all: impl IntoIterator<Item = &'a StepTimes> + Clone) -> Option<StepTimes> {
        let average = |part: fn(&StepTimes) -> Seconds| {
            mean(&all.clone().into_iter().map(|times| part(times).0).collect::<Vec<f64>>()).map(Seconds)
        };
        Some(StepTimes {
            step: average(|times| times.step)?,
            forward: average(|times| times.forward)?,
            backward: average(|times| times.backward)?,
            exposed_allreduce: average(|times| times.exposed_allreduce)?,
            waiting: average(|times| times.waiting)?,
            optimizer: average(|times| times.optimizer)?,
        })
    }

    /// What lies in the step and in none of its phases: what the loop, timing and recording cost. Below zero where the
    /// phases are longer than the step.
    pub fn other(&self) -> Seconds {
        let phases = [self.forward, self.backward, self.exposed_allreduce, self.optimizer];
        Seconds(self.step.0 - phases.iter().map(|phase| phase.0).sum::<f64>())
    }

    /// Share of the step that is exposed all-reduce, 0 to 1.
    pub fn exposed_share(&self) -> f64 {
        self.exposed_allreduce.0 / self.step.0
    }
}

/// Every rank's times over these iterations, of which each has the same ranks.
pub fn rank_times(places: &[RankPlace], iterations: &[Iteration]) -> Vec<RankTimes> {
    let shortest = |list: &[Seconds]| list.iter().map(|time| time.0).fold(f64::INFINITY, f64::min);
    let shortest: Vec<f64> = iterations.iter().map(|iteration| shortest(&iteration.exposed_allreduce)).collect();
    let shortest = mean(&shortest);
    let of_rank = |(rank, place): (usize, &RankPlace)| {
        let average = |list: fn(&Iteration) -> &[Seconds]| {
            let values: Vec<f64> = iterations.iter().map(|iteration| list(iteration)[rank].0).collect();
            mean(&values)
        };
        let exposed_allreduce = average(|iteration| &iteration.exposed_allreduce)?;
        let times = StepTimes {
            step: Seconds(average(|iteration| &iteration.step)?),
            forward: Seconds(average(|iteration| &iteration.forward)?),
            backward: Seconds(average(|iteration| &iteration.backward)?),
            exposed_allreduce: Seconds(exposed_allreduce),
            // Rounding must not make it less than nothing.
            waiting: Seconds((exposed_allreduce - shortest?).max(0.0)),
            optimizer: Seconds(average(|iteration| &iteration.optimizer)?),
        };
        let own = iterations.iter().filter_map(|iteration| Some(iteration.before_allreduce.get(rank)?.0));
        Some(RankTimes { place: place.clone(), times, own_compute: Spread::of(&own.collect::<Vec<f64>>()) })
    };
    places.iter().enumerate().filter_map(of_rank).collect()
}

/// By rank, then by iteration.
pub fn steps(ranks: usize, iterations: &[Iteration]) -> Vec<Vec<Seconds>> {
    (0..ranks).map(|rank| iterations.iter().map(|iteration| iteration.step[rank]).collect()).collect()
}
