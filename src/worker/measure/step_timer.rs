//! How long each phase of an iteration took: wall clock on the CPU, events on CUDA, read when the device is past them.
//!
//! Marks are set in the loop and cost no wait; [`StepTimer::finished`] hands out the iterations that are over.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Result;
use ringmark_core::dimension::{Phase, Phases, Seconds};
use ringmark_core::host::Stage;
use tch::{Device, Kind, Tensor};

use crate::ffi::torch::shim;
use crate::job::heartbeat;
use crate::measure::mark::Mark;
use crate::measure::trace::recorder;

/// Between two questions to the device: little processor time, so that a host that waits is not taken for one at work.
const PAUSE: Duration = Duration::from_micros(500);

/// Number of [`DeviceValues`].
const VALUES: usize = 3;

/// What the exchange did inside backward.
#[derive(Default)]
pub struct InBackward {
    /// From when to when sums held backward up.
    pub held_up: Vec<(Mark, Mark)>,
    /// When the first sum beside backward was about to start, if one was.
    pub first_sum: Option<Mark>,
    /// True if backward was replayed with the sums in it: no mark is between them.
    pub has_replayed_sums: bool,
}

impl InBackward {
    /// When the first sum was about to start, if one was; nothing that waits for another rank comes before it.
    fn first_sum(&self) -> Option<&Mark> {
        self.first_sum.as_ref().or(self.held_up.first().map(|(before, _)| before))
    }

    /// Time inside backward that belongs to the all-reduce.
    fn held_up(&self) -> Result<f64> {
        self.held_up.iter().map(|(before, after)| after.seconds_since(before)).sum()
    }
}

/// What an iteration leaves on the device, each a tensor of one element.
pub struct DeviceValues<'a> {
    /// Mean over the rank's batch.
    pub loss: &'a Tensor,
    /// Of the next iteration.
    pub loss_scale: &'a Tensor,
    /// Not 0 where the update was skipped.
    pub found_inf: &'a Tensor,
}

/// An iteration on its way through the device.
struct StepMarks {
    start: Mark,
    /// Of each phase that it has; the one before ends where it begins.
    ends: Phases<Option<Mark>>,
    in_backward: InBackward,
    /// [`DeviceValues`] on the host, there when the next iteration's first mark is done.
    values: Tensor,
}

impl StepMarks {
    /// In order, each phase that it has.
    fn ends(&self) -> impl Iterator<Item = (Phase, &Mark)> {
        self.ends.iter().filter_map(|(phase, end)| Some((phase, end.as_ref()?)))
    }

    /// Where the device is in this iteration; `exchange` is what it waits for in the exchange.
    fn stage(&self, exchange: Stage) -> Result<Stage> {
        for (phase, end) in self.ends() {
            if !end.is_done()? {
                return Ok(match phase {
                    Phase::Input => Stage::Data,
                    Phase::Forward => Stage::Forward,
                    // Which of the two is not known, and a rank that may wait for others is not to be blamed.
                    Phase::Backward if self.in_backward.has_replayed_sums => exchange,
                    Phase::Backward => Stage::Backward,
                    Phase::ExposedAllreduce => exchange,
                    Phase::Optimizer => Stage::Optimizer,
                });
            }
        }
        Ok(Stage::Optimizer)
    }

    /// Time from the start to the first sum, or to the end of backward if there was none beside it. If sums were replayed in
    /// backward, the time ends with forward: it must not contain a wait for another rank.
    fn before_allreduce(&self) -> Result<f64> {
        let last = if self.in_backward.has_replayed_sums { Phase::Forward } else { Phase::Backward };
        match self.in_backward.first_sum().or(self.ends[last].as_ref()) {
            Some(mark) => mark.seconds_since(&self.start),
            None => unreachable!("an iteration ends forward and backward"),
        }
    }

    /// What each phase took: from the end of the one before to its own.
    fn times(&self) -> Result<Phases<f64>> {
        let mut times = Phases::default();
        let mut begin = &self.start;
        for (phase, end) in self.ends() {
            times[phase] = end.seconds_since(begin)?;
            begin = end;
        }
        let held_up = self.in_backward.held_up()?;
        times[Phase::Backward] = (times[Phase::Backward] - held_up).max(0.0);
        times[Phase::ExposedAllreduce] += held_up;
        Ok(times)
    }
}

/// Sets the marks of one iteration.
pub struct MarkSetter {
    device: Device,
    start: Mark,
    ends: Phases<Option<Mark>>,
}

impl MarkSetter {
    /// Sets the mark at the end of `phase`; the next one begins there.
    pub fn end_of(&mut self, phase: Phase) -> Result<()> {
        self.ends[phase] = Some(Mark::set(self.device)?);
        Ok(())
    }

    /// For tests: keeps this rank busy for `fraction` of the time since its images were there, which it waits for on CUDA.
    pub fn spin(&self, fraction: f64) -> Result<()> {
        let now = Mark::set(self.device)?;
        now.wait(|| Ok(()))?;
        let (start, time) =
            (Instant::now(), now.seconds_since(self.ends[Phase::Input].as_ref().unwrap_or(&self.start))? * fraction);
        while start.elapsed().as_secs_f64() < time {
            std::hint::spin_loop();
        }
        Ok(())
    }
}

/// One rank's iteration, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Start to the next start.
    pub step: f64,
    /// What each phase took.
    pub phases: Phases<f64>,
    /// Start to the first all-reduce.
    pub before_allreduce: f64,
    /// Mean over the rank's batch.
    pub loss: f64,
    /// Used in this iteration.
    pub loss_scale: f64,
    /// Whether the update was skipped.
    pub skipped: bool,
}

/// Iterations on their way through the device.
pub struct StepTimer {
    device: Device,
    pending: VecDeque<StepMarks>,
    /// Host memory for the values of later iterations.
    pinned: Vec<Tensor>,
    /// The last iteration that is over.
    over: u32,
    loss_scale: f64,
}

impl StepTimer {
    /// Behind so many iterations; `loss_scale` is the next one's, 1 without one.
    pub fn new(device: Device, over: u32, loss_scale: f64) -> StepTimer {
        StepTimer { device, pending: VecDeque::new(), pinned: Vec::new(), over, loss_scale }
    }

    /// Sets the start of an iteration, which is the end of the one before.
    pub fn begin(&self) -> Result<MarkSetter> {
        Ok(MarkSetter { device: self.device, start: Mark::set(self.device)?, ends: Phases::default() })
    }

    /// Takes an iteration's marks, and has its values copied to the host.
    pub fn end(&mut self, setter: MarkSetter, in_backward: InBackward, values: DeviceValues) -> Result<()> {
        let MarkSetter { start, ends, .. } = setter;
        debug_assert!(ends.iter().all(|(phase, end)| end.is_some() || !phase.is_always()), "it ends all its phases");
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

    /// The iterations that are over, oldest first. `last` is the end of the last one; with it this waits for all.
    ///
    /// Without it this waits until the device has begun the newest iteration: a host that runs further ahead is held up
    /// inside a launch at last, where it can neither see an error nor say where the device is. While it waits,
    /// `check` looks for errors of what is under way and returns what is waited for.
    pub fn finished(&mut self, last: Option<&MarkSetter>, check: impl Fn() -> Result<Stage>) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        while let Some(iteration) = self.pending.front() {
            let Some(next) = self.pending.get(1).map(|next| &next.start).or(last.map(|setter| &setter.start)) else {
                break;
            };
            if !next.is_done()? {
                heartbeat::enter_in(self.over + 1, iteration.stage(check()?)?);
                std::thread::sleep(PAUSE);
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
            if let Some(StepMarks { start, ends, values, .. }) = self.pending.pop_front() {
                recorder::take_phases(self.over, start, ends);
                self.pinned.extend(Some(values).filter(|_| self.device.is_cuda()));
            }
        }
        Ok(samples)
    }
}
