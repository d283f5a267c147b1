//! Warnings from the iteration times: drift, outliers, skipped updates, an inconsistent clock.

use crate::benchmark::train::{Iteration, ProgramUse, Resumption, RunEnd};
use crate::benchmark::warning::{Warning, WarningKind};
use crate::dimension::{Phase, Seconds, WorkUnit};
use crate::host::HostUse;
use crate::number_text::{milliseconds, percent};
use crate::stats::straggler::deviation;
use crate::stats::summary::{mean, median};
use crate::validity::subject::{RUN, warning};
use crate::validity::thresholds::{
    CLOCK, DRIFT, DRIFT_ERRORS, INPUT, OUTLIER, OUTLIER_DEVIATIONS, OUTLIER_LOSS, QUARTER, SKIPPED, WALL_CLOCK,
    WALL_CLOCK_PAUSE,
};

/// Returns the step time of each iteration, as the mean over ranks.
pub(super) fn steps(counted: &[Iteration]) -> Vec<f64> {
    means_over_ranks(counted, |iteration| &iteration.step)
}

fn means_over_ranks(counted: &[Iteration], times: fn(&Iteration) -> &Vec<Seconds>) -> Vec<f64> {
    let of_one = |iteration: &Iteration| mean(&times(iteration).iter().map(|time| time.0).collect::<Vec<f64>>());
    counted.iter().filter_map(of_one).collect()
}

/// Returns the change of the step time from the first to the last quarter, relative to the first, if it is a trend:
/// larger than [`DRIFT`], larger than noise, and never reversed by more than noise between successive quarters.
///
/// The median of a quarter of m iterations with robust standard deviation s has the standard error `1.2533 s /
/// sqrt(m)`. For steps of 100, 102, 104 and 106 ms in the four quarters of 100 iterations and s = 1 ms, the error is
/// 0.25 ms, and 0.35 ms for a difference; 6 ms are 6 % and 17 errors: a drift of 0.06.
pub(super) fn trend(steps: &[f64]) -> Option<f64> {
    let length = steps.len() / 4;
    if length < QUARTER {
        return None;
    }
    let quarters =
        [0, steps.len() / 4, steps.len() / 2, steps.len() - length].map(|start| &steps[start..start + length]);
    let medians = quarters.map(|quarter| median(quarter).unwrap_or_default());
    let spread = median(&quarters.map(|quarter| deviation(quarter).unwrap_or_default()))?;
    let error = 1.2533 * spread / (length as f64).sqrt() * 2f64.sqrt();
    let total = medians[3] - medians[0];
    let is_trend = medians.windows(2).all(|pair| (pair[1] - pair[0]) * total.signum() >= -error);
    let change = total / medians[0];
    (change.abs() > DRIFT && total.abs() > DRIFT_ERRORS * error && is_trend).then_some(change)
}

/// Warns if the ranks waited for data, in the mean over ranks and iterations.
pub(super) fn input(unit: WorkUnit, counted: &[Iteration], steps: &[f64], end: &RunEnd) -> Option<Warning> {
    let input = means_over_ranks(counted, |iteration| &iteration.phases[Phase::Input]);
    let (input, step) = (mean(&input)?, mean(steps)?);
    let threads = end.input.as_ref().and_then(|input| input.ranks.first()).map(|rank| format!(" ({})", rank.threads));
    let smaller = match unit {
        WorkUnit::Image => ", or store smaller images (ringmark pack --resize)",
        WorkUnit::Token => "",
    };
    let text = format!(
        "the ranks waited for {unit} in {} of the step ({} of {}): raise --decode-threads{}{smaller}; --data synthetic \
         measures the step without input",
        percent(input / step),
        milliseconds(Seconds(input)),
        milliseconds(Seconds(step)),
        threads.unwrap_or_default()
    );
    (input > INPUT * step).then(|| warning(WarningKind::Input, RUN, text))
}

pub(super) fn drift(steps: &[f64], end: &RunEnd) -> Option<Warning> {
    let change = trend(steps)?;
    let text = if change < 0.0 {
        format!(
            "the step became {} shorter from the first to the last quarter of the run: warm-up was too short, or \
             another process ran at first: raise --warmup, or repeat the run",
            percent(-change)
        )
    } else {
        format!(
            "the step became {} longer from the first to the last quarter of the run{}: check for heat and other \
             load, and run longer to see if it settles",
            percent(change),
            clock_drops(end)
        )
    };
    Some(warning(WarningKind::Drift, RUN, text))
}

fn clock_drops(end: &RunEnd) -> String {
    let fallen = |host: &HostUse| {
        let [before, after] = host.clock_mhz?;
        let text = format!(" (the clock of host {} fell from {before:.0} to {after:.0} MHz)", host.host);
        (after < before * (1.0 - CLOCK)).then_some(text)
    };
    end.host_use.iter().filter_map(fallen).collect()
}

/// Returns the time above which one of these iterations is an outlier: it exceeds their median by 10 % and by five robust
/// standard deviations. `None` without iterations.
pub fn outlier_limit(steps: &[f64]) -> Option<f64> {
    let usual = median(steps)?;
    Some(usual + (OUTLIER * usual).max(OUTLIER_DEVIATIONS * deviation(steps)?))
}

pub(super) fn outliers(steps: &[f64]) -> Option<Warning> {
    let (usual, limit) = (median(steps)?, outlier_limit(steps)?);
    let far: Vec<f64> = steps.iter().copied().filter(|step| *step > limit).collect();
    let lost = far.iter().map(|step| step - usual).sum::<f64>() / steps.iter().sum::<f64>();
    let text = format!(
        "{} of {} iterations took up to {:.1} times the median step, which lowers the mean speed by {}: repeat the run on an idle \
         machine",
        far.len(),
        steps.len(),
        far.iter().copied().fold(0.0, f64::max) / usual,
        percent(lost)
    );
    (lost >= OUTLIER_LOSS).then(|| warning(WarningKind::Outliers, RUN, text))
}

pub(super) fn skipped(counted: &[Iteration]) -> Option<Warning> {
    let skipped = counted.iter().filter(|iteration| iteration.skipped).count();
    let text = format!(
        "{skipped} of {} updates after warm-up were skipped because a gradient was not finite: lower --loss-scale or \
         --lr",
        counted.len()
    );
    (skipped as f64 >= SKIPPED * counted.len() as f64 && skipped > 0).then(|| warning(WarningKind::Skipped, RUN, text))
}

/// Warns about a program whose lines arrive later than its own times explain.
pub(super) fn program_clock(ProgramUse { arrival, claimed, .. }: &ProgramUse) -> Option<Warning> {
    let text = format!(
        "the program's times add up to {claimed:.3}, but its lines arrived over {arrival:.3}: its times may not \
         contain evaluation, checkpoints or waiting between iterations, and training may be slower than the figures"
    );
    let apart = arrival.0 - claimed.0;
    let is_far = apart > WALL_CLOCK * arrival.0 && apart > WALL_CLOCK_PAUSE.0;
    is_far.then(|| warning(WarningKind::WallClock, RUN, text))
}

/// Warns about a run that was resumed on different hosts, devices or software.
pub(super) fn changed_environment(Resumption { behind, changes, .. }: &Resumption) -> Option<Warning> {
    let text = format!(
        "the run was resumed after iteration {behind} in a different environment ({}), so its figures mix both: \
         repeat the run",
        changes.join("; ")
    );
    (!changes.is_empty()).then(|| warning(WarningKind::Resumed, RUN, text))
}

pub(super) fn wall_clock(iterations: &[Iteration], end: &RunEnd) -> Option<Warning> {
    let summed: f64 = iterations.iter().filter_map(|iteration| Some(iteration.step.first()?.0)).sum();
    let apart = (summed - end.wall.0).abs();
    let text = format!(
        "rank 0's step times add up to {:.3}, but the wall clock shows {:.3}: one of the two clocks is wrong: do not \
         use this result run",
        Seconds(summed),
        end.wall
    );
    let is_far = apart > WALL_CLOCK * end.wall.0 && apart > WALL_CLOCK_PAUSE.0;
    (is_far || apart.is_nan()).then(|| warning(WarningKind::WallClock, RUN, text))
}
