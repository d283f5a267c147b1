//! Breakdown of the time that a step of N ranks takes beyond the base's, into parts that add up to the whole.
//!
//! Let t(N) be the step time of the median run, a mean over its ranks and iterations, and t(0) that of the base (one
//! rank, if measured). Then
//!
//! ```text
//! t(N) - t(0) = compute    forward and backward, N's minus the base's
//!             + transfer   exposed all-reduce minus the wait in it
//!             + waiting    exposed all-reduce until the arrival of the slowest rank
//!             + optimizer  and any other phase
//!             + other      remainder: in the step but in none of its measured phases
//! ```
//!
//! If the same N ranks also ran without any exchange, compute is split further: **sharing** is their forward and
//! backward minus the base's (the cost of sharing cores, memory and power with other ranks), and **overlapped** is the
//! rest (the cost of computing while gradients move). A negative part is a gain. All parts of a case come from one run,
//! its median run (for an even number of runs, the mean of the two in the middle), so that they add up. `other` is
//! never distributed over the rest.
//!
//! A rank has the same batch in every case (with uneven work, on average), so that efficiency (by images over time)
//! `= t(0) / t(N)` and `1 - efficiency = (t(N) - t(0)) / t(N)`: a part p costs `p / t(N)` of the efficiency, and the
//! same share of the images/s of N ideal ranks. Both add up as the parts do.
//!
//! Example: the base takes 100 ms (90 compute, 8 optimizer, 2 other); four ranks take 125 ms: 99 compute, 12 exposed
//! all-reduce of which 5 are waiting, 9 optimizer, 5 other. 25 = 9 compute + 7 transfer + 5 waiting + 1 optimizer + 3
//! other; efficiency = 0.8; the 7 ms of transfer are 28 % of the loss and 5.6 of the 20 percentage points of lost
//! efficiency.

use crate::dimension::{Phase, Phases};
use crate::options::keyword_enum::KeywordEnum;
use crate::stats::summary::{median_by_rate, median_weights};
use crate::stats::welch;

/// Part of the loss, in display order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LossPart {
    /// Forward and backward.
    Compute,
    /// Part of compute: forward and backward of the same ranks without any exchange.
    ComputeSharing,
    /// Part of compute: time added by an exchange at the same time.
    ComputeOverlapped,
    /// Exposed all-reduce after the arrival of the slowest rank.
    Transfer,
    /// Exposed all-reduce until the arrival of the slowest rank.
    Waiting,
    /// Any other phase.
    Phase(Phase),
    /// Time measured in the step but in none of its phases.
    Other,
}

impl LossPart {
    /// Returns the name in tables and charts.
    pub fn name(self) -> &'static str {
        match self {
            LossPart::Compute => "compute",
            LossPart::ComputeSharing => "compute, sharing",
            LossPart::ComputeOverlapped => "compute, overlap",
            LossPart::Transfer => "transfer",
            LossPart::Waiting => "waiting",
            LossPart::Phase(phase) => phase.description(),
            LossPart::Other => "other",
        }
    }

    /// Returns the key in JSON.
    pub fn key(self) -> &'static str {
        match self {
            LossPart::Compute => "compute",
            LossPart::ComputeSharing => "compute_crowded",
            LossPart::ComputeOverlapped => "compute_overlapped",
            LossPart::Transfer => "transfer",
            LossPart::Waiting => "waiting",
            LossPart::Phase(phase) => phase.keyword(),
            LossPart::Other => "other",
        }
    }

    /// Returns an explanation for users.
    pub fn meaning(self) -> &'static str {
        match self {
            LossPart::Compute => "forward and backward slower than the base's",
            LossPart::ComputeSharing => "loss of the same ranks without any exchange, because they share the host",
            LossPart::ComputeOverlapped => "compute time lost to the concurrent exchange",
            LossPart::Transfer => "all-reduce not hidden by backward, with all ranks ready",
            LossPart::Waiting => "all-reduce spent waiting for the slowest rank",
            LossPart::Phase(phase) => phase.meaning(),
            LossPart::Other => "part of the step outside its phases, unexplained",
        }
    }
}

/// Step of one run: means over ranks and iterations, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunStep {
    /// Time from the start of an iteration to the start of the next.
    pub step: f64,
    /// Breakdown of the step; `None` if only the whole was measured.
    pub times: Option<StepTimes>,
}

impl RunStep {
    /// Returns the step with `part` of the work.
    pub fn scaled(self, part: f64) -> RunStep {
        let times = |times: StepTimes| StepTimes {
            phases: times.phases.map(|_, time| time * part),
            waiting: times.waiting * part,
        };
        RunStep { step: self.step * part, times: self.times.map(times) }
    }
}

/// Breakdown of a step, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTimes {
    /// Time of each phase.
    pub phases: Phases<f64>,
    /// Part of the exposed all-reduce until the arrival of the slowest rank.
    pub waiting: f64,
}

impl StepTimes {
    /// Returns the time of forward and backward.
    pub fn compute(&self) -> f64 {
        self.phases[Phase::Forward] + self.phases[Phase::Backward]
    }
}

/// Difference between the runs of a case and those of its base, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// Value of the case's median run minus that of the base's.
    pub seconds: f64,
    /// Half-width of the 95 % confidence interval of the difference of the means, by [`crate::stats::welch`]; `None`
    /// with one run on a side.
    pub margin: Option<f64>,
}

/// Loss of a case against its base.
#[derive(Debug, Clone, PartialEq)]
pub struct ScalingLoss {
    /// Step of the base, in seconds: [`median_by_rate`] over its runs.
    pub base_step: f64,
    /// Step of the case, in seconds.
    pub step: f64,
    /// `step - base_step`.
    pub total: Difference,
    /// Compute, transfer, waiting, every other phase, and other, which add up to `total`; empty if only the whole was
    /// measured.
    pub parts: Vec<(LossPart, Difference)>,
    /// Sharing and overlap, which add up to compute; empty without runs of the same ranks without any exchange.
    pub compute: Vec<(LossPart, Difference)>,
}

impl ScalingLoss {
    /// Returns the parts, with compute replaced by its two parts if available: they add up to the total, too.
    pub fn finest(&self) -> Vec<(LossPart, Difference)> {
        match self.compute.is_empty() {
            true => self.parts.clone(),
            false => self.compute.iter().chain(&self.parts[1..]).copied().collect(),
        }
    }

    /// Returns the efficiency by images over time, `t(0) / t(N)`.
    pub fn efficiency(&self) -> f64 {
        self.base_step / self.step
    }

    /// Returns the efficiency that this part of the step costs, `part / t(N)`. Multiplied by the images/s of as many
    /// ideal ranks it is the cost in images/s.
    pub fn efficiency_lost(&self, part: f64) -> f64 {
        part / self.step
    }

    /// Returns the share of the whole loss; `None` if nothing was lost.
    pub fn share(&self, part: f64) -> Option<f64> {
        (self.total.seconds > 0.0).then(|| part / self.total.seconds)
    }
}

/// Splits the difference between the runs of a case and those of the base; `alone` are the runs of the same ranks
/// without any exchange. `None` if either side has no run.
pub fn scaling_loss(base: &[RunStep], case: &[RunStep], alone: &[RunStep]) -> Option<ScalingLoss> {
    let steps = |runs: &[RunStep]| -> Vec<f64> { runs.iter().map(|run| run.step).collect() };
    let (base_steps, case_steps) = (steps(base), steps(case));
    let (base_step, step) = (median_by_rate(&base_steps)?, median_by_rate(&case_steps)?);
    let total = Difference { seconds: step - base_step, margin: margin(&case_steps, &base_steps)? };
    let parts = parts(base, case, total).unwrap_or_default();
    let compute = parts.first().and_then(|(_, compute)| split_compute(base, case, alone, *compute)).unwrap_or_default();
    Some(ScalingLoss { base_step, step, total, parts, compute })
}

/// Returns the difference of one part; `None` unless every run has a breakdown.
fn part_difference(case: &[RunStep], base: &[RunStep], part: impl Fn(f64, &StepTimes) -> f64) -> Option<Difference> {
    let of = |runs: &[RunStep]| -> Option<Vec<f64>> {
        runs.iter().map(|run| Some(part(run.step, run.times.as_ref()?))).collect()
    };
    let of_middle = |runs: &[RunStep], values: &[f64]| {
        let weights = median_weights(&runs.iter().map(|run| run.step).collect::<Vec<f64>>());
        weights.iter().map(|(place, weight)| weight * values[*place]).sum::<f64>()
    };
    let (of_case, of_base) = (of(case)?, of(base)?);
    let seconds = of_middle(case, &of_case) - of_middle(base, &of_base);
    Some(Difference { seconds, margin: margin(&of_case, &of_base)? })
}

fn compute(_: f64, times: &StepTimes) -> f64 {
    times.compute()
}

fn parts(base: &[RunStep], case: &[RunStep], total: Difference) -> Option<Vec<(LossPart, Difference)>> {
    let exposed = Phase::ExposedAllreduce;
    let mut parts = vec![
        (LossPart::Compute, part_difference(case, base, compute)?),
        (LossPart::Transfer, part_difference(case, base, |_, times| times.phases[exposed] - times.waiting)?),
        (LossPart::Waiting, part_difference(case, base, |_, times| times.waiting)?),
    ];
    for phase in Phase::ALL {
        let is_there = |run: &RunStep| run.times.is_some_and(|times| times.phases[*phase] != 0.0);
        let is_there = phase.is_always() || case.iter().chain(base).any(is_there);
        if is_there && !matches!(phase, Phase::Forward | Phase::Backward | Phase::ExposedAllreduce) {
            parts.push((LossPart::Phase(*phase), part_difference(case, base, |_, times| times.phases[*phase])?));
        }
    }
    let explained: f64 = parts.iter().map(|(_, part)| part.seconds).sum();
    let other =
        part_difference(case, base, |step, times| step - times.phases.iter().map(|(_, time)| time).sum::<f64>())?;
    parts.push((LossPart::Other, Difference { seconds: total.seconds - explained, ..other }));
    Some(parts)
}

fn split_compute(
    base: &[RunStep],
    case: &[RunStep],
    alone: &[RunStep],
    whole: Difference,
) -> Option<Vec<(LossPart, Difference)>> {
    let crowded = part_difference(alone, base, compute)?;
    let overlapped = Difference { seconds: whole.seconds - crowded.seconds, ..part_difference(case, alone, compute)? };
    Some(vec![(LossPart::ComputeSharing, crowded), (LossPart::ComputeOverlapped, overlapped)])
}

/// Returns the margin of the difference of the means of a figure of each run. `None` if a side is empty.
///
/// `margin([3, 4, 5], [1, 2, 3]) = 2.267`.
fn margin(case: &[f64], base: &[f64]) -> Option<Option<f64>> {
    Some(welch::difference(case, base)?.error.map(|error| error.margin(0.95)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::random::Random;

    fn times(compute: f64, exposed: f64, waiting: f64, optimizer: f64) -> StepTimes {
        let phases = Phases::from_fn(|phase| match phase {
            Phase::Input => 0.0,
            Phase::Forward => compute / 4.0,
            Phase::Backward => compute * 0.75,
            Phase::ExposedAllreduce => exposed,
            Phase::Optimizer => optimizer,
        });
        StepTimes { phases, waiting }
    }

    fn run(compute: f64, exposed: f64, waiting: f64, optimizer: f64, other: f64) -> RunStep {
        let step = compute + exposed + optimizer + other;
        RunStep { step, times: Some(times(compute, exposed, waiting, optimizer)) }
    }

    fn close(actual: f64, expected: f64) {
        assert!((actual - expected).abs() < 1e-9 * expected.abs().max(1.0), "{actual}, expected {expected}");
    }

    fn part(loss: &ScalingLoss, wanted: LossPart) -> f64 {
        loss.parts.iter().chain(&loss.compute).find(|(part, _)| *part == wanted).expect("the part is there").1.seconds
    }

    #[test]
    fn worked_number_is_reproduced() {
        let (base, case) = (run(90.0, 0.0, 0.0, 8.0, 2.0), run(99.0, 12.0, 5.0, 9.0, 5.0));
        let loss = scaling_loss(&[base], &[case], &[]).expect("a run on both sides");
        close(loss.total.seconds, 25.0);
        close(loss.efficiency(), 0.8);
        let parts: Vec<(LossPart, f64)> =
            loss.parts.iter().map(|(part, difference)| (*part, difference.seconds)).collect();
        let expected = [9.0, 7.0, 5.0, 1.0, 3.0];
        let order = [
            LossPart::Compute,
            LossPart::Transfer,
            LossPart::Waiting,
            LossPart::Phase(Phase::Optimizer),
            LossPart::Other,
        ];
        assert_eq!(parts.iter().map(|(part, _)| *part).collect::<Vec<_>>(), order);
        parts.iter().zip(expected).for_each(|((_, actual), expected)| close(*actual, expected));
        close(loss.share(7.0).expect("something was lost"), 0.28);
        close(loss.efficiency_lost(7.0), 0.056);
        assert_eq!(loss.total.margin, None, "one run has no spread");
    }

    #[test]
    fn waiting_for_images_is_a_separate_part() {
        let with_input = |mut run: RunStep, input: f64| {
            run.step += input;
            run.times.as_mut().expect("its times").phases[Phase::Input] = input;
            run
        };
        let base = with_input(run(90.0, 0.0, 0.0, 8.0, 2.0), 0.5);
        let case = with_input(run(99.0, 12.0, 5.0, 9.0, 5.0), 20.5);
        let loss = scaling_loss(&[base], &[case], &[]).expect("a run on both sides");
        close(part(&loss, LossPart::Phase(Phase::Input)), 20.0);
        close(part(&loss, LossPart::Compute), 9.0);
        close(part(&loss, LossPart::Other), 3.0);
        close(loss.total.seconds, 45.0);
        close(loss.parts.iter().map(|(_, part)| part.seconds).sum(), 45.0);
    }

    #[test]
    fn baseline_runs_split_compute() {
        let (base, case) = (run(90.0, 0.0, 0.0, 8.0, 2.0), run(99.0, 12.0, 5.0, 9.0, 5.0));
        let loss = scaling_loss(&[base], &[case], &[run(96.5, 0.0, 0.0, 8.5, 2.0)]).expect("a run on both sides");
        close(part(&loss, LossPart::ComputeSharing), 6.5);
        close(part(&loss, LossPart::ComputeOverlapped), 2.5);
        close(part(&loss, LossPart::Compute), 9.0);
        let finest = loss.finest();
        close(finest.iter().map(|(_, part)| part.seconds).sum(), 25.0);
        assert_eq!((finest.len(), finest[0].0, finest[2].0), (6, LossPart::ComputeSharing, LossPart::Transfer));
    }

    #[test]
    fn faster_optimizer_is_a_gain_without_shares() {
        let loss = scaling_loss(&[run(90.0, 0.0, 0.0, 8.0, 0.0)], &[run(90.0, 1.0, 0.0, 5.0, 0.0)], &[]);
        let loss = loss.expect("a run on both sides");
        close(part(&loss, LossPart::Phase(Phase::Optimizer)), -3.0);
        close(loss.total.seconds, -2.0);
        assert_eq!(loss.share(-3.0), None);
    }

    #[test]
    fn missing_phases_give_only_the_total() {
        let whole = |step| RunStep { step, times: None };
        let loss = scaling_loss(&[whole(0.5), whole(0.5)], &[run(0.5, 0.25, 0.0, 0.0, 0.0)], &[]).expect("runs");
        assert_eq!((loss.total.seconds, loss.parts.len()), (0.25, 0));
        assert_eq!(scaling_loss(&[], &[whole(0.5)], &[]), None);
    }

    #[test]
    fn margin_matches_welch() {
        let welch = margin(&[3.0, 4.0, 5.0], &[1.0, 2.0, 3.0]).expect("two sides");
        assert!((welch.expect("three runs") - 2.266_957).abs() < 1e-5, "{welch:?}");
        assert_eq!(margin(&[1.0; 3], &[2.0; 3]), Some(Some(0.0)));
        assert_eq!(margin(&[1.0, 1.1], &[2.0, 2.1, 2.2]), Some(None), "two runs are too few");
    }

    #[test]
    fn parts_come_from_the_median_run() {
        let base = [run(90.0, 0.0, 0.0, 8.0, 2.0)];
        let runs = [run(99.0, 12.0, 5.0, 9.0, 5.0), run(95.0, 2.0, 1.0, 9.0, 1.0), run(300.0, 200.0, 150.0, 9.0, 5.0)];
        let loss = scaling_loss(&base, &runs, &[]).expect("runs on both sides");
        close(loss.efficiency(), 0.8);
        let parts: Vec<f64> = loss.parts.iter().map(|(_, part)| part.seconds).collect();
        parts.iter().zip([9.0, 7.0, 5.0, 1.0, 3.0]).for_each(|(actual, expected)| close(*actual, expected));
    }

    #[test]
    fn parts_add_up_for_random_runs() {
        let mut random = Random(1);
        for round in 0..2000 {
            let mut runs = |count: usize| -> Vec<RunStep> {
                let one = |_| {
                    let [compute, exposed, waiting, optimizer, step] =
                        std::array::from_fn(|_| random.uniform() * 10f64.powf(6.0 * random.uniform() - 4.0));
                    // The step is any number, even one below the sum of its phases.
                    RunStep { step, times: Some(times(compute, exposed, waiting.min(exposed), optimizer)) }
                };
                (0..count).map(one).collect()
            };
            let (base, case, alone) = (runs(1 + round % 5), runs(1 + round % 3), runs(round % 4));
            let loss = scaling_loss(&base, &case, &alone).expect("runs on both sides");
            let finest = loss.finest();
            let scale = finest.iter().map(|(_, part)| part.seconds.abs()).fold(loss.step + loss.base_step, f64::max);
            for parts in [&loss.parts, &finest] {
                let sum: f64 = parts.iter().map(|(_, part)| part.seconds).sum();
                assert!((sum - loss.total.seconds).abs() <= 1e-14 * scale, "round {round}: {sum}, {:?}", loss.total);
            }
            assert!((loss.total.seconds - (loss.step - loss.base_step)).abs() <= 1e-14 * scale);
            let points: f64 = loss.parts.iter().map(|(_, part)| loss.efficiency_lost(part.seconds)).sum();
            assert!((1.0 - points - loss.efficiency()).abs() <= 1e-9 * (scale / loss.step), "round {round}");
            assert_eq!((loss.parts.len(), finest.len()), (5, if alone.is_empty() { 5 } else { 6 }));
            // `other` matches its own definition for the median run, and does not only make the sum right.
            let other = |runs: &[RunStep], step: f64| {
                let weights = median_weights(&runs.iter().map(|run| run.step).collect::<Vec<f64>>());
                let of_run = |(place, weight): &(usize, f64)| {
                    let times = runs[*place].times.expect("made with them");
                    weight * times.phases.iter().map(|(_, time)| time).sum::<f64>()
                };
                step - weights.iter().map(of_run).sum::<f64>()
            };
            let by_definition = other(&case, loss.step) - other(&base, loss.base_step);
            assert!((part(&loss, LossPart::Other) - by_definition).abs() <= 1e-12 * scale, "round {round}");
        }
    }
}
