//! Cost of checkpoints and failures: the best interval between checkpoints, and the goodput of a run, its useful time
//! divided by its wall time.
//!
//! **Model.** All times are in seconds. A run has T of useful work. After every interval of t, a checkpoint stops the
//! work for C (the stall) and is safe W after it began: for an asynchronous one W > C, for a blocking one W = C. If
//! the previous one is not yet safe, the next one waits. The last part of the work may be shorter. The run ends when
//! its last checkpoint is safe. Failures occur at any time while processes run, independently, M seconds apart on
//! average (exponential distribution). A failure undoes the work since the last safe checkpoint. It costs D, to detect
//! it and to stop the job, and S, to start the job and to load the checkpoint. A failure during S costs D again and
//! repeats S. One during D costs nothing more: the job has failed already.
//!
//! **Expected wall time.** A span s without failure is reached after `(e^(s / M) - 1) (M + F)`, if every failure in it
//! costs F. Restarts alone take `F = D + (e^(S / M) - 1) (M + D)`, so `M + F = (M + D) e^(S / M)`. For a blocking
//! checkpoint:
//!
//! ```text
//! wall = (M + D) e^(S / M) (e^((t + C) / M) - 1) T / t
//! ```
//!
//! With D = 0, this is Daly's exact expression (A higher order estimate of the optimum checkpoint interval for restart
//! dumps, Future Generation Computer Systems 22, 2006).
//!
//! An asynchronous checkpoint becomes safe p = t + C after the previous one, but t + W after a restart, which has no
//! write in progress. Let A be the expected time from a restart to the next safe checkpoint, and B that from one safe
//! checkpoint to the next:
//!
//! ```text
//! A = (M + D) e^(S / M) (e^((t + W) / M) - 1)
//! B = (1 - e^(-p / M)) ((M + D) e^(S / M) + A) = (M + D) e^((S + W - C) / M) (e^((t + C) / M) - 1)
//! ```
//!
//! So it costs as much as a blocking one whose restarts take W - C longer, and the best interval is the same.
//! A run of n checkpoints takes A + (n - 1) B. If the next checkpoint has to wait, C is W - t, with the wait.
//!
//! Example: M = 7200, C = 10, W = 40, D = 35, S = 55, T = 3600 in intervals of 360, a goodput of 0.925:
//!
//! ```text
//! A    = 7235 e^(55 / 7200) (e^(400 / 7200) - 1) = 416.48
//! B    = 7235 e^(85 / 7200) (e^(370 / 7200) - 1) = 386.05
//! wall = A + 9 B                                 = 3890.92
//! ```

use std::ops::AddAssign;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::stats::allreduce_model::Band;
use crate::stats::random::Random;
use crate::stats::summary::{mean, percentiles, standard_deviation};

/// Simulated runs of a band.
const RUNS_OF_BAND: usize = 1000;

/// Maximum number of expected failures; a run with more would practically never finish.
const MOST_FAILURES: f64 = 1e4;

/// Quantile 0.975 of the normal distribution.
const NORMAL: f64 = 1.959_964;

/// Rounding of a number of intervals that is not counted as an interval.
const ROUNDING: f64 = 1e-9;

/// Returns the best time between checkpoints to first order, in seconds, `sqrt(2 C M)`, for a stall of C and an MTBF
/// of M seconds (Young, A first order approximation to the optimum checkpoint interval, Communications of the ACM 17,
/// 1974).
///
/// `young_interval(10, 7200) = sqrt(144000) = 379.5`.
pub fn young_interval(stall: f64, mtbf: f64) -> f64 {
    (2.0 * stall * mtbf).sqrt()
}

/// Returns the best time between checkpoints to a higher order, in seconds, for a stall of C and an MTBF of M seconds
/// (Daly 2006):
///
/// ```text
/// sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) - C    for C < 2M
/// M                                                        otherwise
/// ```
///
/// `daly_interval(10, 7200) = 379.47 x (1 + 0.026352 / 3 + 0.00069444 / 9) - 10 = 372.8`. Daly's example, a stall of
/// 5 minutes: 117 minutes for an MTBF of 24 hours, 57 for 6 hours, 9.1 for 15 minutes.
pub fn daly_interval(stall: f64, mtbf: f64) -> f64 {
    let ratio = stall / (2.0 * mtbf);
    if ratio >= 1.0 {
        return mtbf;
    }
    young_interval(stall, mtbf) * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - stall
}

/// Steps of a restart: the time of each in seconds, or another value of each.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Restart<T> {
    /// Time from the failure to its detection.
    pub detect: T,
    /// Time to stop the remaining processes.
    pub stop: T,
    /// Time to start the processes.
    pub start: T,
    /// Time to load the checkpoint, until the first step.
    pub load: T,
}

impl<T> Restart<T> {
    /// Applies a function to each step, in the order of time.
    pub fn map<U>(self, mut apply: impl FnMut(T) -> U) -> Restart<U> {
        Restart { detect: apply(self.detect), stop: apply(self.stop), start: apply(self.start), load: apply(self.load) }
    }
}

impl Restart<f64> {
    /// Returns the sum of the steps.
    pub fn total(&self) -> f64 {
        self.down() + self.again()
    }

    /// Returns D, the time in which no failure can cost more.
    fn down(&self) -> f64 {
        self.detect + self.stop
    }

    /// Returns S, the time that a failure repeats.
    fn again(&self) -> f64 {
        self.start + self.load
    }
}

impl AddAssign for Restart<f64> {
    fn add_assign(&mut self, other: Restart<f64>) {
        self.detect += other.detect;
        self.stop += other.stop;
        self.start += other.start;
        self.load += other.load;
    }
}

/// Costs of a checkpoint and of a failure, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Time for which a checkpoint stops the work, C.
    pub stall: f64,
    /// Time from the start of a checkpoint until it is safe, W. Values below the stall, as 0 for blocking checkpoints,
    /// count as the stall.
    pub write: f64,
    /// Time from a failure to the first step after it, D + S.
    pub restart: Restart<f64>,
}

impl Costs {
    /// Returns true if all costs are finite and not negative.
    fn are_valid(&self) -> bool {
        let Costs { stall, write, restart: Restart { detect, stop, start, load } } = *self;
        [stall, write, detect, stop, start, load].into_iter().all(is_time)
    }
}

/// Returns true for a finite time that is not negative.
fn is_time(seconds: f64) -> bool {
    seconds >= 0.0 && seconds.is_finite()
}

/// Mean of measured times, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredTime {
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard error of the mean, widened for small samples, so that 1.96 times this is half of the 95 % confidence interval.
    pub error: f64,
}

impl MeasuredTime {
    /// Returns the mean of `values`, 0 without any, and its standard error, 0 for one value:
    ///
    /// ```text
    /// error = standard deviation / sqrt(n) x t(0.975, n - 1) / 1.95996
    /// ```
    ///
    /// Values 2, 3 and 4: `1 / sqrt(3) x 4.3027 / 1.95996 = 1.2674`.
    pub fn of(values: &[f64]) -> MeasuredTime {
        let count = values.len() as f64;
        let quantile = StudentsT::new(0.0, 1.0, count - 1.0).map_or(NORMAL, |student| student.inverse_cdf(0.975));
        let error = standard_deviation(values).map(|deviation| deviation / count.sqrt() * quantile / NORMAL);
        MeasuredTime { mean: mean(values).unwrap_or(0.0), error: error.unwrap_or(0.0) }
    }
}

/// Time lost by cause, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct LostTime {
    /// Stalls, waits for the previous checkpoint, and the wait for the last one.
    pub checkpoint: f64,
    /// Restarts, with those that failed.
    pub restart: Restart<f64>,
    /// Work that was done again.
    pub redo: f64,
}

impl LostTime {
    /// Returns the sum over all causes.
    pub fn total(&self) -> f64 {
        self.checkpoint + self.restart.total() + self.redo
    }
}

/// Times of one complete run. Their sum is its wall time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Useful work, in seconds.
    pub work: f64,
    /// Lost time.
    pub lost: LostTime,
    /// Number of failures, with those of restarts.
    pub failures: u32,
}

impl Outcome {
    /// Returns the wall time in seconds.
    pub fn wall(&self) -> f64 {
        self.work + self.lost.total()
    }

    /// Returns the useful part of the wall time, between 0 and 1.
    pub fn goodput(&self) -> f64 {
        self.work / self.wall()
    }
}

/// A simulated failure.
struct Failure {
    /// Time for which processes ran before it, in seconds: since the start of the run or of its last restart.
    uptime: f64,
    /// Cost of the restart after it.
    restart: Restart<f64>,
}

/// Conditions of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conditions {
    /// Mean time between failures of all hosts together in seconds, M:
    /// [`cluster_mtbf`](crate::stats::mtbf::cluster_mtbf); infinite without failures.
    pub mtbf: f64,
    /// Work between two checkpoints in seconds, t.
    pub interval: f64,
    /// Costs of a checkpoint and of a failure.
    pub costs: Costs,
}

impl Conditions {
    /// Returns the conditions with the best interval: [`daly_interval`], but not so short that the next checkpoint has
    /// to wait: below M, a shorter interval with a wait costs more. The interval is 0, which is invalid, if
    /// checkpoints cost nothing, and infinite without failures, which is also invalid.
    pub fn with_best_interval(mtbf: f64, costs: Costs) -> Conditions {
        let shortest = (costs.write - costs.stall).min(mtbf);
        Conditions { mtbf, interval: daly_interval(costs.stall, mtbf).max(shortest), costs }
    }

    /// Returns the expected wall time of a run with `work` seconds of useful work, in seconds. `None` if the MTBF,
    /// interval or work is not positive, any but the MTBF is not finite, a cost is negative, or the run would hardly
    /// end.
    pub fn expected_wall(&self, work: f64) -> Option<f64> {
        let is_finite = work.is_finite() && self.interval.is_finite();
        let is_positive = self.mtbf > 0.0 && self.interval > 0.0 && work > 0.0;
        if !(is_finite && is_positive && self.costs.are_valid()) {
            return None;
        }
        let (count, last) = self.parts(work);
        let first = self.interval.min(work);
        let tail = self.after_failures(0.0) * self.growth(self.write() - self.stall(first));
        let wall = (count - 1.0) * self.expected_part(first) + self.expected_part(last) + tail;
        (wall / self.mtbf <= MOST_FAILURES).then_some(wall)
    }

    /// Returns the expected goodput of a long run, between 0 and 1. `None` as in [`Conditions::expected_wall`].
    pub fn expected_goodput(&self) -> Option<f64> {
        self.expected_wall(self.interval)?;
        Some(self.interval / self.expected_part(self.interval))
    }

    /// Simulates a run with `work` seconds of useful work, its duration without checkpoints and failures. Each failure is of
    /// one of several kinds, all with the same probability, whose restarts take different times. `None` as in
    /// [`Conditions::expected_wall`].
    fn simulate_kinds(&self, work: f64, restarts: &[Restart<f64>], random: &mut Random) -> Option<Outcome> {
        self.expected_wall(work)?;
        Some(self.simulate_failures(work, || Failure {
            uptime: -self.mtbf * random.uniform().ln(),
            restart: if restarts.len() == 1 { restarts[0] } else { restarts[random.below(restarts.len())] },
        }))
    }

    /// Simulates a run with given failures.
    fn simulate_failures(&self, work: f64, mut next: impl FnMut() -> Failure) -> Outcome {
        let (mut count, last) = self.parts(work);
        let mut outcome = Outcome { work, lost: LostTime::default(), failures: 0 };
        let lost = &mut outcome.lost;
        let mut failed: Option<Restart<f64>> = None;
        loop {
            let Failure { mut uptime, restart } = next();
            if let Some(last) = failed.replace(restart) {
                let mut spend = |step: f64| {
                    let spent = step.min(uptime);
                    uptime -= spent;
                    spent
                };
                lost.restart += Restart { start: spend(last.start), load: spend(last.load), ..last };
            }
            let left = (count - 1.0) * self.interval + last;
            let end = match count > 1.0 {
                true => self.interval + (count - 2.0) * self.period(self.interval) + self.period(last),
                false => last,
            } + self.write();
            if uptime >= end {
                lost.checkpoint += end - left;
                return outcome;
            }
            let done = self.work_done(uptime).min(left);
            let since_first = uptime - self.interval - self.write();
            let safe = (since_first / self.period(self.interval) + 1.0).floor().clamp(0.0, count - 1.0);
            lost.checkpoint += uptime - done;
            lost.redo += done - safe * self.interval;
            count -= safe;
            outcome.failures += 1;
        }
    }

    /// Returns the number of checkpoints and the work before the last one.
    fn parts(&self, work: f64) -> (f64, f64) {
        let count = (work / self.interval - ROUNDING).ceil().max(1.0);
        (count, work - (count - 1.0) * self.interval)
    }

    /// Returns W.
    fn write(&self) -> f64 {
        self.costs.write.max(self.costs.stall)
    }

    /// Returns the stall of a checkpoint after `work` seconds, with its wait for the previous one.
    fn stall(&self, work: f64) -> f64 {
        self.costs.stall.max(self.write() - work)
    }

    /// Returns the time between the starts of two checkpoints with `work` seconds between them.
    fn period(&self, work: f64) -> f64 {
        work + self.stall(work)
    }

    /// Returns the work done in the time after a restart, if there is enough.
    fn work_done(&self, time: f64) -> f64 {
        if time <= self.interval {
            return time;
        }
        let (after, period) = (time - self.interval, self.period(self.interval));
        let periods = (after / period).floor();
        self.interval * (1.0 + periods) + (after - periods * period - self.costs.stall).clamp(0.0, self.interval)
    }

    /// Returns `M (e^(time / M) - 1)`, the expected time until one without failure.
    fn growth(&self, time: f64) -> f64 {
        if self.mtbf.is_infinite() { time } else { self.mtbf * (time / self.mtbf).exp_m1() }
    }

    /// Returns `(M + D) e^((S + longer) / M) / M`, the factor by which failures multiply an expected time.
    fn after_failures(&self, longer: f64) -> f64 {
        let restart = &self.costs.restart;
        (1.0 + restart.down() / self.mtbf) * ((restart.again() + longer) / self.mtbf).exp()
    }

    /// Returns B for `work` seconds between two checkpoints.
    fn expected_part(&self, work: f64) -> f64 {
        self.after_failures(self.write() - self.stall(work)) * self.growth(self.period(work))
    }
}

/// Measured costs of checkpoints and failures.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredCosts {
    /// Stall of a checkpoint, C.
    pub stall: MeasuredTime,
    /// Time until a checkpoint is safe, W, as in [`Costs`].
    pub write: MeasuredTime,
    /// Restart after each kind of failure. All kinds have the same probability.
    pub restarts: Vec<Restart<MeasuredTime>>,
}

impl MeasuredCosts {
    /// Returns the means, that of the restarts over all kinds of failures; `None` without a kind of failure.
    pub fn means(&self) -> Option<Costs> {
        let restarts: Vec<Restart<f64>> = self.restarts.iter().map(|kind| kind.map(|time| time.mean)).collect();
        Some(Costs { stall: self.stall.mean, write: self.write.mean, restart: mean_restart(&restarts)? })
    }

    /// Returns true if all standard errors are finite and not negative.
    fn are_errors_valid(&self) -> bool {
        let mut errors = vec![self.stall.error, self.write.error];
        self.restarts.iter().for_each(|restart| {
            restart.map(|time| errors.push(time.error));
        });
        errors.into_iter().all(is_time)
    }
}

/// Returns the mean of each step.
fn mean_restart(restarts: &[Restart<f64>]) -> Option<Restart<f64>> {
    let mut sum = Restart::default();
    restarts.iter().for_each(|restart| sum += *restart);
    (!restarts.is_empty()).then(|| sum.map(|step| step / restarts.len() as f64))
}

/// Returns a band that contains the goodput of a run with `work` seconds of useful work with a probability of 95 %,
/// and the median of the goodput: percentiles of 1000 runs, simulated with the given seed. The costs of each are drawn
/// from normal distributions with the means and standard errors of the measured ones; negative ones count as 0. A
/// simulated run that would hardly end has a goodput of 0. `None` as in [`Conditions::expected_wall`], for the means,
/// for an error that is negative or not finite, and without a kind of failure.
///
/// `mtbf` and `interval` are those of [`Conditions`] and certain. For an MTBF that was estimated, compute the band at
/// both ends of its interval ([`ObservedFailures`](crate::stats::mtbf::ObservedFailures)).
pub fn goodput_band(mtbf: f64, interval: f64, measured: &MeasuredCosts, work: f64, seed: u64) -> Option<Band> {
    let with_costs = |costs| Conditions { mtbf, interval, costs };
    with_costs(measured.means()?).expected_wall(work)?;
    if !measured.are_errors_valid() {
        return None;
    }
    let mut random = Random(seed);
    let mut goodput = || {
        let mut draw = |time: MeasuredTime| (time.mean + time.error * random.normal()).max(0.0);
        let (stall, write) = (draw(measured.stall), draw(measured.write));
        let restarts: Vec<Restart<f64>> = measured.restarts.iter().map(|restart| restart.map(&mut draw)).collect();
        let restart = mean_restart(&restarts)?;
        let drawn = with_costs(Costs { stall, write, restart });
        Some(drawn.simulate_kinds(work, &restarts, &mut random).map_or(0.0, |outcome| outcome.goodput()))
    };
    let goodputs: Vec<f64> = (0..RUNS_OF_BAND).filter_map(|_| goodput()).collect();
    let [low, mid, high] = percentiles(goodputs, [2.5, 50.0, 97.5])?;
    Some(Band { low, mid, high })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::mtbf::cluster_mtbf;

    const RESTART: Restart<f64> = Restart { detect: 30.0, stop: 5.0, start: 40.0, load: 15.0 };
    const BLOCKING: Costs = Costs { stall: 10.0, write: 0.0, restart: RESTART };
    const WORKED: Conditions = Conditions { mtbf: 7200.0, interval: 360.0, costs: Costs { write: 40.0, ..BLOCKING } };

    fn assert_close(actual: f64, expected: f64, tolerance: f64) {
        assert!((actual - expected).abs() <= tolerance, "{actual}, expected {expected} +- {tolerance}");
    }

    impl Conditions {
        /// Simulates a run with failures of one kind.
        fn simulate(&self, work: f64, random: &mut Random) -> Option<Outcome> {
            self.simulate_kinds(work, &[self.costs.restart], random)
        }
    }

    /// Returns the means of the simulated runs: wall time with its standard error, and failures.
    fn simulated(conditions: Conditions, work: f64, runs: u64) -> (f64, f64, f64) {
        let outcomes: Vec<Outcome> =
            (0..runs).map(|seed| conditions.simulate(work, &mut Random(seed << 32)).expect("valid")).collect();
        let walls: Vec<f64> = outcomes.iter().map(Outcome::wall).collect();
        let error = standard_deviation(&walls).expect("several") / (runs as f64).sqrt();
        let failures = outcomes.iter().map(|outcome| f64::from(outcome.failures)).sum::<f64>() / runs as f64;
        (mean(&walls).expect("several"), error, failures)
    }

    #[test]
    fn worked_numbers_and_limits_are_reproduced() {
        assert_close(young_interval(10.0, 7200.0), 379.473, 1e-3);
        assert_close(daly_interval(10.0, 7200.0), 372.836, 1e-3);
        for (hours, minutes) in [(24.0, 117.0), (6.0, 57.0), (0.25, 9.1)] {
            let interval = daly_interval(300.0, hours * 3600.0) / 60.0;
            assert!((interval / minutes - 1.0).abs() < 0.006, "{interval} minutes");
        }
        assert_eq!([2.0, 3.0].map(|stall| daly_interval(stall, 1.0)), [1.0, 1.0]);
        assert_close(daly_interval(2.0 - 1e-9, 1.0), 2.0 * (1.0 + 1.0 / 3.0 + 1.0 / 9.0) - 2.0, 1e-6);
        assert_eq!((young_interval(0.0, 7200.0), daly_interval(0.0, 7200.0)), (0.0, 0.0));
        assert_close(WORKED.expected_wall(3600.0).expect("valid"), 3890.92, 0.005);
        assert_close(WORKED.expected_goodput().expect("valid"), 360.0 / 386.05, 1e-5);
        // Daly's expression for blocking checkpoints, and detection and stop without failures.
        let blocking = Conditions { costs: BLOCKING, ..WORKED };
        let restart = Restart { start: 90.0, ..Restart::default() };
        let of_daly = Conditions { costs: Costs { restart, ..BLOCKING }, ..WORKED };
        let expected = 7200.0 * (90.0f64 / 7200.0).exp() * ((370.0f64 / 7200.0).exp() - 1.0) * 10.0;
        assert_close(of_daly.expected_wall(3600.0).expect("valid"), expected, 1e-6);
        let expected = 7235.0 * (55.0f64 / 7200.0).exp() * ((370.0f64 / 7200.0).exp() - 1.0) * 10.0;
        assert_close(blocking.expected_wall(3600.0).expect("valid"), expected, 1e-6);
        // The interval is longer than the run.
        let long = Conditions { interval: 1e9, ..blocking }.expected_wall(360.0).expect("valid");
        assert_close(long, expected / 10.0, 1e-6);
        // Only the stalls remain without failures, and only the redone work without costs.
        let certain = Conditions { mtbf: f64::INFINITY, ..WORKED };
        assert_close(certain.expected_wall(3600.0).expect("valid"), 3600.0 + 10.0 * 10.0 + 30.0, 1e-9);
        let free = Costs { stall: 0.0, write: 0.0, restart: Restart::default() };
        let limit = |interval| Conditions { interval, costs: free, ..WORKED }.expected_goodput().expect("valid");
        assert_close(limit(1e-3), 1.0, 1e-6);
        assert_close(limit(720.0), 0.1 / (0.1f64.exp() - 1.0), 1e-9);
    }

    #[test]
    fn errors_of_few_values_are_larger() {
        let time = MeasuredTime::of(&[2.0, 3.0, 4.0]);
        assert_close(time.mean, 3.0, 1e-12);
        assert_close(time.error, 1.2674, 1e-4);
        assert_eq!(MeasuredTime::of(&[2.0]), MeasuredTime { mean: 2.0, error: 0.0 });
        assert_eq!(MeasuredTime::of(&[]), MeasuredTime::default());
    }

    #[test]
    fn invalid_conditions_are_refused() {
        let costs = |stall| Costs { stall, ..BLOCKING };
        for (conditions, work) in [
            (Conditions { mtbf: 0.0, ..WORKED }, 3600.0),
            (Conditions { mtbf: f64::NAN, ..WORKED }, 3600.0),
            (Conditions { interval: 0.0, ..WORKED }, 3600.0),
            (Conditions { costs: costs(-1.0), ..WORKED }, 3600.0),
            (Conditions { costs: costs(f64::INFINITY), ..WORKED }, 3600.0),
            (Conditions { interval: f64::INFINITY, ..WORKED }, 3600.0),
            (WORKED, 0.0),
            (WORKED, f64::NAN),
            (WORKED, f64::INFINITY),
            // e^(370 / 20) failures for each checkpoint.
            (Conditions { mtbf: 20.0, ..WORKED }, 3600.0),
        ] {
            assert_eq!(conditions.expected_wall(work), None, "{conditions:?}");
            assert_eq!(conditions.simulate(work, &mut Random(1)), None);
        }
        let measured = measured(&[RESTART], -1.0);
        assert_eq!(goodput_band(7200.0, 360.0, &measured, 3600.0, 1), None);
        assert_eq!(goodput_band(7200.0, 360.0, &MeasuredCosts { restarts: Vec::new(), ..measured }, 3600.0, 1), None);
    }

    #[test]
    fn time_of_a_run_without_failures_is_lost_by_checkpoints() {
        let certain = Conditions { mtbf: f64::INFINITY, ..WORKED };
        let outcome = certain.simulate(3600.0, &mut Random(1)).expect("valid");
        assert_eq!((outcome.wall(), outcome.failures), (3600.0 + 10.0 * 10.0 + 30.0, 0));
        assert_eq!(outcome.lost, LostTime { checkpoint: 130.0, ..LostTime::default() });
        assert_close(outcome.goodput(), 3600.0 / 3730.0, 1e-12);
        // The next checkpoint waits for 400 s of writing: starts at 360, 760 and, with 100 s of work left, 1160.
        let slow = Conditions { costs: Costs { write: 400.0, ..BLOCKING }, ..certain };
        assert_eq!(slow.simulate(820.0, &mut Random(1)).expect("valid").wall(), 1560.0);
    }

    #[test]
    fn failures_lose_time_by_cause() {
        // Failures before the first checkpoint is safe at 400 s, in the start after that failure, and 10 s after the
        // first checkpoint is safe.
        let mut uptimes = [395.0, 20.0, 55.0 + 410.0, f64::INFINITY].into_iter();
        let mut next = || Failure { uptime: uptimes.next().expect("four"), restart: RESTART };
        let outcome = WORKED.simulate_failures(1080.0, &mut next);
        let restart = Restart { detect: 3.0 * 30.0, stop: 15.0, start: 20.0 + 2.0 * 40.0, load: 30.0 };
        let lost = LostTime { checkpoint: 10.0 + 10.0 + 10.0 + 40.0, restart, redo: 385.0 + 40.0 };
        assert_eq!(outcome, Outcome { work: 1080.0, lost, failures: 3 });
        assert_eq!(outcome.wall(), 395.0 + 35.0 + 20.0 + 35.0 + 465.0 + 90.0 + 370.0 + 360.0 + 40.0);
    }

    /// Blocking and asynchronous checkpoints, with waits, a shorter last part, a single part, and restarts that fail.
    /// The tolerance of 3.9 standard errors is exceeded in one of 10 000 comparisons.
    #[test]
    fn simulated_mean_is_the_expected_wall_time() {
        let write = |write, mtbf| Conditions { mtbf, costs: Costs { write, ..BLOCKING }, ..WORKED };
        for (conditions, work) in [
            (write(0.0, 7200.0), 36000.0),
            (write(0.0, 400.0), 3600.0),
            (write(200.0, 900.0), 3600.0),
            (write(200.0, 900.0), 3700.0),
            (write(500.0, 900.0), 3600.0),
            (write(500.0, 900.0), 3700.0),
            (write(500.0, 900.0), 100.0),
            (write(0.0, 60.0), 20.0),
        ] {
            let (wall, error, failures) = simulated(conditions, work, 4000);
            let expected = conditions.expected_wall(work).expect("valid");
            assert_close(wall, expected, 3.9 * error);
            assert!(error < 0.03 * expected);
            // Failures are a Poisson process while processes run (Wald's equation).
            let rate = expected / (conditions.mtbf + conditions.costs.restart.down());
            assert_close(failures, rate, 0.1 * rate);
        }
    }

    /// Intervals in steps of a factor of 1.4. At 1.4 times the best one the loss is 6 % larger, and the standard error
    /// of the simulated loss, after 40 000 failures, is about 0.5 % of it.
    #[test]
    fn simulated_optimum_is_the_best_interval() {
        for write in [0.0, 100.0, 600.0] {
            let best = Conditions::with_best_interval(7200.0, Costs { write, ..BLOCKING });
            let wall = |step: &i32| {
                let interval = best.interval * 1.4f64.powi(*step);
                simulated(Conditions { interval, ..best }, 400.0 * 7200.0, 100).0
            };
            let least = (-3..=3).min_by(|one, other| wall(one).total_cmp(&wall(other)));
            assert_eq!(least, Some(0), "write {write}");
        }
        assert_eq!(Conditions::with_best_interval(7200.0, Costs { write: 600.0, ..BLOCKING }).interval, 590.0);
    }

    /// Returns costs with the same relative standard error.
    fn measured(restarts: &[Restart<f64>], error: f64) -> MeasuredCosts {
        let time = |mean: f64| MeasuredTime { mean, error: error * mean };
        let restarts = restarts.iter().map(|restart| restart.map(time)).collect();
        MeasuredCosts { stall: time(BLOCKING.stall), write: time(0.0), restarts }
    }

    /// Returns costs measured with the errors of the true ones, and the same without their errors.
    fn measure(truth: &MeasuredCosts, random: &mut Random) -> [MeasuredCosts; 2] {
        let mut measure = |time: MeasuredTime| MeasuredTime { mean: time.mean + time.error * random.normal(), ..time };
        let MeasuredCosts { stall, write, restarts } = truth;
        let restarts = restarts.iter().map(|restart| restart.map(&mut measure)).collect();
        let measured = MeasuredCosts { stall: measure(*stall), write: measure(*write), restarts };
        let certain = |time: MeasuredTime| MeasuredTime { error: 0.0, ..time };
        let MeasuredCosts { stall, write, restarts } = &measured;
        let restarts = restarts.iter().map(|restart| restart.map(certain)).collect();
        let without_errors = MeasuredCosts { stall: certain(*stall), write: certain(*write), restarts };
        [measured, without_errors]
    }

    /// Clusters of 1 to 32 hosts whose costs are measured with an error. Some failures are detected at once, others after
    /// three minutes. Of 400 bands of 95 %, 364 to 393 contain the goodput of a run with a probability of 99.9 %
    /// (binomial distribution). Without the errors of the measurement they are too narrow.
    #[test]
    fn band_contains_the_goodput_of_a_run() {
        let mut random = Random(54);
        let time = |mean, error| MeasuredTime { mean, error };
        let restarts = [0.5, 180.0].map(|detect| Restart { detect, ..RESTART });
        let costs = measured(&restarts, 0.2);
        let truth = MeasuredCosts { stall: time(40.0, 12.0), write: time(90.0, 10.0), ..costs };
        let mut inside = [0; 2];
        for seed in 0..400 {
            let mtbf = cluster_mtbf(86400.0, 1 + random.below(32) as u32);
            let interval = daly_interval(truth.stall.mean, mtbf);
            let conditions = Conditions { mtbf, interval, costs: truth.means().expect("two kinds") };
            let run = conditions.simulate_kinds(14400.0, &restarts, &mut random).expect("valid");
            let goodput = run.goodput();
            for (inside, costs) in inside.iter_mut().zip(measure(&truth, &mut random)) {
                let band = goodput_band(mtbf, interval, &costs, 14400.0, seed).expect("valid");
                *inside += u32::from(band.low <= goodput && goodput <= band.high);
            }
        }
        assert!((364..=393).contains(&inside[0]) && inside[1] < 364, "{inside:?} of 400");
    }

    #[test]
    fn band_depends_on_the_seed_alone() {
        let costs = measured(&[RESTART], 0.1);
        let band = |seed| goodput_band(7200.0, 360.0, &costs, 36000.0, seed).expect("valid");
        assert_eq!(band(1), band(1));
        assert_ne!(band(1), band(2));
        let expected = Conditions { costs: BLOCKING, ..WORKED }.expected_goodput().expect("valid");
        assert!(band(1).low < expected && expected < band(1).high);
        assert_close(band(1).mid, expected, 0.01);
    }
}
