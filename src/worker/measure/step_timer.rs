//! Timing of the phases of an iteration: wall clock on the CPU; on CUDA events, which are read once the device has
//! passed them.
//!
//! Setting a mark does not wait; [`StepTimer::finished`] returns the completed iterations.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use anyhow::Result;
use ringmark_core::dimension::{Phase, Phases, Seconds};
use ringmark_core::host::Stage;
use ringmark_core::options::keyword_enum::KeywordEnum;
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

use crate::ffi::torch::shim;
use crate::job::heartbeat;
use crate::measure::mark::Mark;
use crate::measure::repeated::Repeated;
use crate::measure::trace::recorder;

/// Interval between polls of the device; long enough that a waiting host does not look busy.
const POLL_INTERVAL: Duration = Duration::from_micros(500);

/// Number of [`DeviceValues`].
const VALUES: usize = 3;

/// Time inside forward or backward that belongs to the exchange.
pub struct Blocked {
    pub phase: Phase,
    pub begin: Mark,
    pub end: Mark,
}

/// A wait for the weights of a bucket, which other ranks have parts of.
pub struct WeightWait {
    pub bucket: usize,
    pub blocked: Blocked,
    /// Request of the gather that ended in this wait; `None` if the weights were present.
    pub requested: Option<Mark>,
    /// Bytes that this rank received, if it gathered.
    pub received: u64,
    /// Time of the host's work in the wait, without waiting for other ranks.
    pub host: Duration,
}

/// Parts of forward and backward that belong to the exchange, and computations that backward repeats.
#[derive(Default)]
pub struct InBackward {
    /// Computations of forward that backward repeated.
    pub repeated: Vec<Repeated>,
    /// Sums that blocked backward.
    pub blocking_sums: Vec<Blocked>,
    /// Waits for the weights of other ranks.
    pub weight_waits: Vec<WeightWait>,
    /// Mark before the first sum that ran concurrently with backward.
    pub first_sum: Option<Mark>,
    /// True if backward was replayed together with the sums, so that no marks separate them.
    pub has_replayed_sums: bool,
}

impl InBackward {
    /// Returns the mark before the first sum; no wait for another rank precedes it.
    fn first_sum(&self) -> Option<&Mark> {
        self.first_sum.as_ref().or(self.blocking_sums.first().map(|sum| &sum.begin))
    }

    /// Returns the time inside each phase that belongs to the exchange.
    fn blocked_times(&self) -> Result<Phases<f64>> {
        let mut times = Phases::<f64>::default();
        let waits = self.weight_waits.iter().map(|wait| &wait.blocked);
        for Blocked { phase, begin, end } in self.blocking_sums.iter().chain(waits) {
            times[*phase] += end.seconds_since(begin)?;
        }
        Ok(times)
    }
}

/// Results of an iteration on the device, each a tensor of one element.
pub struct DeviceValues<'a> {
    /// Mean loss over the rank's batch.
    pub loss: &'a Tensor,
    /// Loss scale of the next iteration.
    pub loss_scale: &'a Tensor,
    /// Overflow flag: not 0 if the update was skipped.
    pub found_inf: &'a Tensor,
}

/// Marks of an iteration that is pending on the device.
struct StepMarks {
    start: Mark,
    /// End of each phase in the order of time, which is the start of the next one. A phase that repeats is there more
    /// than once.
    ends: Vec<(Phase, Mark)>,
    in_backward: InBackward,
    /// [`DeviceValues`] on the host, complete when the next iteration's first mark is.
    values: Tensor,
}

impl StepMarks {
    /// Returns the device's stage in this iteration. `exchange` is the stage of a wait for the exchange.
    fn stage(&self, exchange: Stage) -> Result<Stage> {
        for (phase, end) in &self.ends {
            if !end.is_done()? {
                return Ok(match *phase {
                    Phase::Input => Stage::Data,
                    Phase::Forward => Stage::Forward,
                    // Backward or exchange; report the exchange, because a rank that may be waiting for others must not
                    // be blamed.
                    Phase::Backward if self.in_backward.has_replayed_sums => exchange,
                    Phase::Backward => Stage::Backward,
                    Phase::ExposedAllreduce => exchange,
                    Phase::Optimizer => Stage::Optimizer,
                });
            }
        }
        Ok(Stage::Optimizer)
    }

    /// Returns the time from the start to the first sum, or to the end of backward if no sum ran concurrently. It must
    /// not include a wait for another rank: if sums were replayed in backward, it ends with forward; if weights are
    /// gathered, it is the time of the phases until the end of backward without the exchange.
    fn before_allreduce(&self) -> Result<f64> {
        if !self.in_backward.weight_waits.is_empty() {
            let times = self.times()?;
            return Ok(times[Phase::Input] + times[Phase::Forward] + times[Phase::Backward]);
        }
        let last = if self.in_backward.has_replayed_sums { Phase::Forward } else { Phase::Backward };
        let last_end = || Some(&self.ends.iter().rfind(|(phase, _)| *phase == last)?.1);
        match self.in_backward.first_sum().or_else(last_end) {
            Some(mark) => mark.seconds_since(&self.start),
            None => unreachable!("forward and backward have ended"),
        }
    }

    /// Returns the duration of each phase: the times from the previous end to its own.
    fn times(&self) -> Result<Phases<f64>> {
        let mut times = Phases::<f64>::default();
        let mut begin = &self.start;
        for (phase, end) in &self.ends {
            times[*phase] += end.seconds_since(begin)?;
            begin = end;
        }
        for (phase, blocked) in self.in_backward.blocked_times()?.iter() {
            times[phase] = (times[phase] - blocked).max(0.0);
            times[Phase::ExposedAllreduce] += blocked;
        }
        Ok(times)
    }
}

pub struct MarkSetter {
    device: Device,
    start: Mark,
    ends: Vec<(Phase, Mark)>,
}

impl MarkSetter {
    /// Sets the mark at the end of `phase`, which is the start of the next phase.
    pub fn end_of(&mut self, phase: Phase) -> Result<()> {
        self.ends.push((phase, Mark::set(self.device)?));
        Ok(())
    }

    /// Keeps this rank busy for `fraction` of the time since the last mark; on CUDA this waits for the device. For fault
    /// injection.
    pub fn spin(&self, fraction: f64) -> Result<()> {
        let now = Mark::set(self.device)?;
        now.wait(|| Ok(()))?;
        let last = self.ends.last().map_or(&self.start, |(_, end)| end);
        let (start, time) = (Instant::now(), now.seconds_since(last)? * fraction);
        while start.elapsed().as_secs_f64() < time {
            std::hint::spin_loop();
        }
        Ok(())
    }
}

/// Sums over iterations of one rank's waits for the weights of a bucket in a phase, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct WeightWaits {
    pub gathers: u32,
    /// Bytes received by the last gather.
    pub received: u64,
    /// Time from the requests to the arrivals.
    pub gather: f64,
    pub wait: f64,
    pub host: f64,
}

impl WeightWaits {
    fn add(&mut self, WeightWait { blocked, requested, received, host, .. }: &WeightWait) -> Result<()> {
        let Blocked { begin, end, .. } = blocked;
        if let Some(requested) = requested {
            self.gathers += 1;
            self.received = *received;
            self.gather += end.seconds_since(requested)?;
        }
        self.wait += end.seconds_since(begin)?;
        self.host += host.as_secs_f64();
        Ok(())
    }
}

/// Measurements of one iteration on one rank, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Time from the start to the next start.
    pub step: f64,
    pub phases: Phases<f64>,
    pub before_allreduce: f64,
    pub loss: f64,
    pub loss_scale: f64,
    /// True if the update was skipped.
    pub skipped: bool,
}

/// Timer of iterations that are pending on the device.
pub struct StepTimer {
    device: Device,
    pending: VecDeque<StepMarks>,
    /// Pinned host memory, reused for the values of later iterations.
    pinned: Vec<Tensor>,
    /// Number of completed iterations.
    over: u32,
    loss_scale: f64,
    warmup: u32,
    /// Number of completed iterations after the warm-up, and the waits for weights in them, by phase and bucket.
    measured: u32,
    weight_waits: BTreeMap<(Phase, usize), WeightWaits>,
    /// Time of repeated computations in the measured iterations.
    repeated: Option<f64>,
}

impl StepTimer {
    /// Creates a timer after `over` iterations, of a run with `warmup` iterations that are not measured. `loss_scale` is
    /// the next iteration's, 1 without loss scaling.
    pub fn new(device: Device, over: u32, warmup: u32, loss_scale: f64) -> StepTimer {
        StepTimer {
            device,
            pending: VecDeque::new(),
            pinned: Vec::new(),
            over,
            loss_scale,
            warmup,
            measured: 0,
            weight_waits: BTreeMap::new(),
            repeated: None,
        }
    }

    /// Returns the time of the computations that backward repeated, in seconds: the mean over the measured iterations.
    /// `None` if there were none.
    pub fn repeated(&self) -> Option<f64> {
        Some(self.repeated? / f64::from(self.measured))
    }

    /// Returns the number of measured iterations so far.
    pub fn measured(&self) -> u32 {
        self.measured
    }

    /// Returns the waits for weights by phase and bucket, summed over the measured iterations.
    pub fn weight_waits(&self) -> &BTreeMap<(Phase, usize), WeightWaits> {
        &self.weight_waits
    }

    /// Marks the start of an iteration, which is the end of the previous one.
    pub fn begin(&self) -> Result<MarkSetter> {
        Ok(MarkSetter { device: self.device, start: Mark::set(self.device)?, ends: Vec::new() })
    }

    /// Adds an iteration's marks and enqueues the copy of its values to the host.
    pub fn end(&mut self, setter: MarkSetter, in_backward: InBackward, values: DeviceValues) -> Result<()> {
        let MarkSetter { start, ends, .. } = setter;
        let has_ended = |phase: &Phase| ends.iter().any(|(ended, _)| ended == phase);
        debug_assert!(Phase::ALL.iter().filter(|phase| phase.is_always()).all(has_ended), "all phases have ended");
        let DeviceValues { loss, loss_scale, found_inf } = values;
        let values = Tensor::f_stack(&[loss, loss_scale, found_inf].map(Tensor::detach), 0)?.f_to_kind(Kind::Float)?;
        let values = if self.device.is_cuda() {
            let host = self.pinned.pop().map_or_else(|| shim::pinned_floats(VALUES), Ok)?;
            shim::copy_without_waiting(&host, &values)?;
            host
        } else {
            values
        };
        self.pending.push_back(StepMarks { start, ends, in_backward, values });
        Ok(())
    }

    /// Returns the completed iterations, oldest first. With `last`, the end of the last iteration, this waits for all.
    ///
    /// Without `last` this waits until the device has started the newest iteration: a host that runs further ahead is
    /// eventually blocked inside a launch, where it can neither detect errors nor report the device's stage. While
    /// waiting, `check` checks pending work for errors and returns the stage of the wait.
    pub fn finished(&mut self, last: Option<&MarkSetter>, check: impl Fn() -> Result<Stage>) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        while let Some(iteration) = self.pending.front() {
            let Some(next) = self.pending.get(1).map(|next| &next.start).or(last.map(|setter| &setter.start)) else {
                break;
            };
            if !next.is_done()? {
                heartbeat::enter_in(self.over + 1, iteration.stage(check()?)?);
                std::thread::sleep(POLL_INTERVAL);
                continue;
            }
            let value = |index: i64| iteration.values.double_value(&[index]);
            let found_inf = value(2) != 0.0;
            let (step, before_allreduce) = (next.seconds_since(&iteration.start)?, iteration.before_allreduce()?);
            heartbeat::time_iteration(Seconds(step), Some(Seconds(before_allreduce)));
            samples.push(Sample {
                step,
                phases: iteration.times()?,
                before_allreduce,
                loss: value(0),
                loss_scale: std::mem::replace(&mut self.loss_scale, value(1)),
                skipped: found_inf,
            });
            self.over += 1;
            if self.over > self.warmup {
                self.measured += 1;
                for repeated in &iteration.in_backward.repeated {
                    *self.repeated.get_or_insert(0.0) += repeated.seconds()?;
                }
                for wait in &iteration.in_backward.weight_waits {
                    self.weight_waits.entry((wait.blocked.phase, wait.bucket)).or_default().add(wait)?;
                }
            }
            if let Some(StepMarks { start, ends, values, .. }) = self.pending.pop_front() {
                recorder::record_phases(self.over, start, ends);
                self.pinned.extend(Some(values).filter(|_| self.device.is_cuda()));
            }
        }
        Ok(samples)
    }
}
