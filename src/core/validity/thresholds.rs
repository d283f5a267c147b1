//! Thresholds of warnings and of unreliable figures, with their reasons; those for stragglers are in
//! [`crate::stats::straggler`], that of slow disks in [`crate::benchmark::warning`]. They are chosen so that an undisturbed machine gives no warning: one that appears in
//! every run is ignored.

use crate::dimension::Seconds;

/// Relative difference between summed step times and wall clock. The loop itself takes less than 0.1 %.
pub(super) const WALL_CLOCK: f64 = 0.02;

/// Absolute difference below which there is no warning: a busy machine may pause a short run between two steps.
pub(super) const WALL_CLOCK_PAUSE: Seconds = Seconds(0.02);

/// Change from the first to the last quarter that is worth a warning: more than the difference between two runs on a
/// quiet machine.
pub(super) const DRIFT: f64 = 0.03;

/// Minimum number of standard errors of a change: noise exceeds four once in ten thousand.
pub(super) const DRIFT_ERRORS: f64 = 4.0;

/// Minimum number of iterations in a quarter: in a shorter run every burst of other work looks like a trend.
pub(super) const QUARTER: usize = 10;

/// Share of the step that ranks may wait for images: if the pipeline keeps up, they wait for the copy alone.
pub(super) const INPUT: f64 = 0.05;

/// Share of a late rank's additional time from which its images are named as the cause.
pub(super) const LATE_FOR_INPUT: f64 = 0.5;

/// Excess over other ranks from which reading or decoding an image is named as the reason that it is late.
pub(super) const LONGER_STAGE: f64 = 0.1;

/// Excess over the median, and number of robust standard deviations, both of which an outlier exceeds.
pub(super) const OUTLIER: f64 = 0.1;
pub(super) const OUTLIER_DEVIATIONS: f64 = 5.0;

/// Share of the run that outliers must cost beyond their normal time: the mean speed is then wrong by as much.
pub(super) const OUTLIER_LOSS: f64 = 0.02;

/// Share of skipped updates. fp16 skips a few while it searches for its scale, in warm-up; later about one in 2000.
pub(super) const SKIPPED: f64 = 0.05;

/// Share of the machine's core time that other processes may take; an idle desktop takes 1 to 3 %.
pub(super) const OTHER_LOAD: f64 = 0.05;

/// Share of the machine's core time that other virtual machines may take; 0 if cores are not shared.
pub(super) const STEAL: f64 = 0.02;

/// Share of a rank's core time for which a quota may throttle it; a benchmark should have no quota.
pub(super) const QUOTA: f64 = 0.01;

/// Share of the run for which a GPU may be slowed by heat.
pub(super) const HEAT: f64 = 0.01;

/// Number of times that cores may be slowed by heat; a short peak causes one or two.
pub(super) const HEAT_EVENTS: u64 = 10;

/// NVML's reasons that are a problem: hardware slowdown, software and hardware thermal slowdown, power brake. The power
/// cap is excluded, because every large GPU reaches it in training.
pub(super) const GPU_TROUBLE: u64 = 0x8 | 0x20 | 0x40 | 0x80;

/// Relative fall of a clock from which it is named along with a drift.
pub(super) const CLOCK: f64 = 0.05;

/// Efficiency above which the base must have been disturbed: caches and clocks improve small cases by a few percent at
/// most.
pub const IMPOSSIBLE_EFFICIENCY: f64 = 1.05;

/// Spread of a case's runs (CV) above which noise dominates its median: undisturbed machines stay below 3 %.
pub const EXTREME_SPREAD: f64 = 0.10;

/// Spread of a case's runs (CV) from which the last digits are meaningless.
pub const WIDE_SPREAD: f64 = 0.03;

/// Share of a machine's core time that other processes took, beyond which the speed of the run alone is unknown.
pub const HEAVY_FOREIGN_LOAD: f64 = 0.25;

/// Minimum length of a run that is judged by the kernel's counters, which have a resolution of 10 ms.
pub(super) const MIN_ELAPSED: Seconds = Seconds(1.0);

/// Minimum time of all runs of a case of training: in less, one interruption by the operating system, of about 10 ms,
/// changes the speed by more than 1 %. Inference is exempt: MXNet's 10 passes, its default, take less on a GPU.
pub const MIN_CASE_TIME: Seconds = Seconds(1.0);

/// Relative distance below most other readings from which a clock has fallen; steps of a governor are smaller.
pub(super) const CLOCK_DROP: f64 = 0.1;

/// Minimum number of consecutive readings, at least a second apart, with a fallen clock: a shorter fall does not
/// matter.
pub(super) const MIN_READINGS: usize = 3;

/// Relative slowdown of the iterations that a fallen clock must have caused.
pub(super) const CLOCK_DROP_SLOWDOWN: f64 = 0.03;

/// Share of TCP segments that are sent again: a healthy network of one rack has none, and beyond it a sender slows
/// down.
pub(super) const RETRANSMITTED: f64 = 0.01;

/// Minimum segments per second for a meaningful loss rate.
pub(super) const MIN_SEGMENTS: f64 = 100.0;
