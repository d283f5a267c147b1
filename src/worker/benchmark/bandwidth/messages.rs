//! Measured loop of one message size: fill, poison, barrier, exchange, check. [`gradients`] is the loop over a model's.
//!
//! [`gradients`]: crate::benchmark::bandwidth::gradients

use anyhow::{Result, bail};
use ringmark_core::benchmark::bandwidth::{ArraySize, BandwidthConfig, MessageResult, Timing};
use ringmark_core::dimension::Seconds;
use ringmark_core::host::Stage;
use ringmark_core::trace::Lane;
use tch::Device;

use crate::benchmark::bandwidth::source_values::SourceValues;
use crate::benchmark::bandwidth::task::{ExpectedResult, Task};
use crate::benchmark::bandwidth::timing::{self, element, rank_among};
use crate::benchmark::bandwidth::values::{self, Comparison, Deviation, Values};
use crate::exchange::backend::{Backend, select};
use crate::exchange::memory::{Memory, MemoryShape, narrow};
use crate::ffi::group::GroupRank;
use crate::job::heartbeat;
use crate::job::session::Session;
use crate::job::world::World;
use crate::measure::timed::Timed;
use crate::measure::trace::Tracer;
use crate::measure::trace::recorder::{self, OpenSpan};

/// A backend with memory for the largest message, and the values to exchange.
pub struct Bench<'a> {
    config: &'a BandwidthConfig,
    device: Device,
    backend: Box<dyn Backend>,
    expected: Expected,
    /// This rank in its group. If nothing is exchanged, each rank is a group of one.
    rank: GroupRank,
    tracer: Option<Tracer<'a>>,
}

enum Expected {
    Reduced(Values),
    Moved(SourceValues),
}

impl<'a> Bench<'a> {
    /// All ranks call this together.
    pub fn new(config: &'a BandwidthConfig, session: &'a Session<'a>) -> Result<Bench<'a>> {
        let (world, device) = (session.world, session.device());
        let rank = rank_among(config, world);
        let largest = config.arrays_among(rank.ranks).iter().map(|size| size.elements).max().unwrap_or(0);
        let shape = MemoryShape::array(largest as usize, config.exchange.wire);
        let mut backend = select::new(&config.exchange, shape, session)?;
        backend.set_reduction(config.reduction);
        let expected = match config.operation.reduces() {
            true => {
                let (elements, wire) = (shape.elements, shape.wire.kind());
                Expected::Reduced(Values::whole(elements, rank, wire, config.reduction, device, config.check)?)
            }
            false => Expected::Moved(SourceValues::new(shape.wire.kind(), device)?),
        };
        let tracer = timing::tracer(config, session)?;
        Ok(Bench { config, device, backend, expected, rank, tracer })
    }

    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Measures one size, out of place and in place; with `--pairs` out of place only.
    pub fn size(&mut self, size: ArraySize, world: &World) -> Result<MessageResult> {
        let (out_of_place, in_place) = if self.config.pairs {
            (self.measure_pairs(size, world)?, None)
        } else {
            let task = Task::new(self.config.operands(), size, self.rank);
            (self.measure_size(&task, false, world)?, Some(self.measure_size(&task, true, world)?))
        };
        Ok(MessageResult {
            bytes: size.bytes,
            count: size.count,
            element: element(self.backend.memory().wire.kind()).to_owned(),
            buckets: vec![size.bytes],
            out_of_place: Some(out_of_place),
            in_place,
        })
    }

    pub fn sizes(&self) -> Vec<ArraySize> {
        self.config.arrays_among(self.rank.ranks)
    }

    /// Measures each pair of ranks separately, in both directions. A rank's times are those of its receptions, sender by
    /// sender.
    fn measure_pairs(&mut self, size: ArraySize, world: &World) -> Result<Timing> {
        let (mut seconds, mut deviations) = (Vec::new(), Vec::new());
        for to in 0..self.rank.ranks {
            for from in (0..self.rank.ranks).filter(|from| *from != to) {
                let task = Task::for_pair(size, self.rank, from, to);
                let (times, differences) = self.iterate(&task, false, world)?;
                if self.rank.rank == to {
                    seconds.extend(times);
                    deviations.extend(differences);
                }
            }
        }
        Ok(timing::timing(&seconds, &deviations, self.config.check, world))
    }

    /// Measures the requested iterations one call at a time, then back to back if calls can be enqueued.
    fn measure_size(&mut self, task: &Task, in_place: bool, world: &World) -> Result<Timing> {
        let copies = in_place && !self.config.operation.goes_in_place();
        self.backend.memory().in_place = in_place && !copies;
        let mut timing = self.measure(task, copies, world)?;
        if self.backend.is_asynchronous() {
            let calls = self.config.iterations;
            let timed = Timed::begin(self.device, world)?;
            if copies {
                for _ in 0..calls {
                    self.start(task, copies)?;
                    // The next copy overwrites the memory that this exchange reads.
                    self.backend.finish()?;
                }
            } else {
                self.backend.start_repeated(&task.collective, calls)?;
                self.backend.finish()?;
            }
            let own = timed.end(|| self.backend.check().map(drop))?.0 / f64::from(calls);
            timing.back_to_back = world.gather(&[own]).concat().into_iter().map(Seconds).collect();
        }
        self.backend.memory().in_place = false;
        Ok(timing)
    }

    /// Returns a name such as `all-reduce of 1048576 bytes`.
    fn step_name(&mut self, task: &Task) -> String {
        let Memory { wire, in_place, .. } = self.backend.memory();
        let bytes = task.elements * wire.kind().elt_size_in_bytes();
        let place = if *in_place { ", in place" } else { "" };
        format!("{} of {bytes} bytes{place}", self.config.operation.text())
    }

    /// Writes the trace. All ranks call this together.
    pub fn end(self) -> Result<()> {
        timing::end(self.tracer, self.config, self.backend.name())
    }

    /// Starts the collective. `copies` first copies the values at the output to the input.
    fn start(&mut self, task: &Task, copies: bool) -> Result<()> {
        if copies {
            let Memory { wire, sums, .. } = self.backend.memory();
            let all = 0..task.elements;
            narrow(wire, &all)?.f_copy_(&narrow(sums, &all)?)?;
        }
        self.backend.start_collective(&task.collective)
    }

    /// Runs and times the requested iterations, one call at a time.
    fn measure(&mut self, task: &Task, copies: bool, world: &World) -> Result<Timing> {
        let (seconds, deviations) = self.iterate(task, copies, world)?;
        Ok(timing::timing(&seconds, &deviations, self.config.check, world))
    }

    /// Returns the times and deviations of this rank.
    fn iterate(&mut self, task: &Task, copies: bool, world: &World) -> Result<(Vec<Seconds>, Vec<Deviation>)> {
        let (mut seconds, mut deviations) = (Vec::new(), Vec::new());
        let name = self.step_name(task);
        for iteration in 0..self.config.warmup + self.config.iterations {
            heartbeat::enter_in(iteration + 1, Stage::Data);
            self.fill(task, copies, iteration as usize)?;
            heartbeat::enter(Stage::Exchange { operation: self.config.operation, bucket: None });
            timing::begin_iteration(self.tracer.as_mut(), (iteration + 1).saturating_sub(self.config.warmup))?;
            // Before the clock starts, so that a run without a trace does not pay for the name.
            let name = recorder::is_on().then(|| name.clone());
            let timed = Timed::begin(self.device, world)?;
            let span = name.and_then(|name| recorder::begin(Lane::Step, name, None));
            self.start(task, copies)?;
            self.backend.finish()?;
            span.into_iter().for_each(OpenSpan::end);
            let time = timed.end(|| self.backend.check().map(drop))?;
            heartbeat::time_iteration(time, None);
            recorder::end_iteration();
            if iteration >= self.config.warmup {
                seconds.push(time);
                if self.config.check {
                    deviations.push(self.check(task, iteration as usize)?.deviation());
                }
            }
        }
        Ok((seconds, deviations))
    }

    /// Writes this rank's values to the input and poisons the output: a result that is never written must not look like
    /// the previous one.
    fn fill(&mut self, task: &Task, copies: bool, iteration: usize) -> Result<()> {
        let memory = self.backend.memory();
        let input = if copies { &memory.sums } else { memory.input() };
        values::poison(&memory.sums, task.elements)?;
        match &self.expected {
            Expected::Reduced(values) => values.fill(input, task.elements, iteration),
            Expected::Moved(moved) => moved.fill(input, task.own.clone(), self.rank.rank, iteration),
        }
    }

    fn check(&mut self, task: &Task, iteration: usize) -> Result<Comparison> {
        let sums = &self.backend.memory().sums;
        match (&self.expected, &task.expected) {
            (Expected::Reduced(values), ExpectedResult::Reduced(elements)) => {
                values.check(sums, elements.clone(), iteration)
            }
            (Expected::Moved(moved), ExpectedResult::Moved(origins)) => moved.check(sums, origins, iteration),
            _ => bail!("expected values do not match the kind of operation"),
        }
    }
}
