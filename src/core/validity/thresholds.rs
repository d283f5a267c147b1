//! Every threshold of a warning, and of figures that are unreliable, with its reason; those for stragglers are in
//! [`crate::stats::straggler`]. They are meant to be silent on a machine that is left alone: a warning that comes in every
//! run is read by nobody.

use crate::dimension::Seconds;

/// Summed step times and wall clock are of one run: what lies between them is the loop itself, below 0.1 %.
pub(super) const WALL_CLOCK: f64 = 0.02;

/// Change from the first to the last quarter that is worth a warning: beyond the difference between two runs on a quiet machine.
pub(super) const DRIFT: f64 = 0.03;

/// Standard errors that a change must have: at four, noise makes one in ten thousand.
pub(super) const DRIFT_ERRORS: f64 = 4.0;

/// Fewest iterations of a quarter: in a shorter run every burst of other work looks like a trend.
pub(super) const QUARTER: usize = 10;

/// Share of the step for which ranks may wait for images: a pipeline that keeps up makes them wait for the copy alone.
pub(super) const INPUT: f64 = 0.05;

/// A rank is late for its images where they are this share of what it took longer than the others.
pub(super) const LATE_FOR_INPUT: f64 = 0.5;

/// Reading or decoding an image is named as what makes it late from this much longer on than elsewhere.
pub(super) const LONGER_STAGE: f64 = 0.1;

/// An iteration is an outlier beyond both: so far above the median, and so many robust standard deviations.
pub(super) const OUTLIER: f64 = 0.1;
pub(super) const OUTLIER_DEVIATIONS: f64 = 5.0;

/// Outliers matter where they took this share of the run beyond their due: the mean speed is then wrong by as much.
pub(super) const OUTLIER_LOSS: f64 = 0.02;

/// fp16 skips a few updates while it looks for its scale, in warm-up; later one in 2000 is its rule.
pub(super) const SKIPPED: f64 = 0.05;

/// Share of the machine's core time that others may take: what an idle desktop does is 1 to 3 %.
pub(super) const OTHER_LOAD: f64 = 0.05;

/// Share of the machine's core time that other virtual machines may take; where cores are not shared it is 0.
pub(super) const STEAL: f64 = 0.02;

/// Share of a rank's core time for which a quota may hold it back: a benchmark should have none.
pub(super) const QUOTA: f64 = 0.01;

/// Share of the run for which a GPU may be slowed for heat.
pub(super) const HEAT: f64 = 0.01;

/// Times that cores may be slowed for heat; a short peak makes one or two.
pub(super) const HEAT_EVENTS: u64 = 10;

/// NVML's reasons that are trouble: hardware slowdown, software and hardware thermal slowdown, power brake. Not the power
/// cap, which every large GPU reaches in training.
pub(super) const GPU_TROUBLE: u64 = 0x8 | 0x20 | 0x40 | 0x80;

/// A clock that fell by more is named beside a drift.
pub(super) const CLOCK: f64 = 0.05;

/// A host's rate of images below the hosts' median, from which it is named: equal hosts differ by a few percent, a disk or a link
/// that fails by half.
pub(super) const SLOW_INPUT: f64 = 0.2;

/// Efficiency that no cluster has: caches and clocks give small cases a few percent at most, the rest is a base that was
/// disturbed.
pub const IMPOSSIBLE_EFFICIENCY: f64 = 1.05;

/// Spread of a case's runs (CV) beyond which its median is luck: undisturbed machines stay below 3 %.
pub const WILD_SPREAD: f64 = 0.10;

/// A spread of the runs from which the last digits say nothing.
pub const WIDE_SPREAD: f64 = 0.03;

/// Share of a machine's core time that others took, beyond which nobody knows what the run alone would have done.
pub const HEAVY_FOREIGN_LOAD: f64 = 0.25;

/// Counters of the kernel go by hundredths of a second: shorter runs are not judged by them.
pub(super) const SHORTEST: Seconds = Seconds(1.0);

/// A clock has fallen where it is below what it is in most other readings by more: steps of a governor are smaller.
pub(super) const FALLEN: f64 = 0.1;

/// Readings in a row, seconds at least, in which it has: a shorter fall is gone before it matters.
pub(super) const FEWEST_READINGS: usize = 3;

/// What it must have cost the iterations meanwhile.
pub(super) const SLOWED: f64 = 0.03;

/// Share of TCP segments that are sent again: a sound network of one rack has none, and from here on a sender slows down.
pub(super) const RESENT: f64 = 0.01;

/// Segments a second below which their loss says nothing.
pub(super) const FEWEST_SEGMENTS: f64 = 100.0;
