//! Timeline of an iteration, span by span: hooks record marks during the iteration; afterwards they are read from the
//! device and converted to one clock. Without a trace there are no hooks.
//!
//! | module | contents |
//! |---|---|
//! | [`recorder`] | recording of marks during an iteration |
//! | [`layers`] | recording of layers |
//! | [`operators`] | spans of libtorch's operators |
//! | [`clock`] | the host's clock and its offset from rank 0's |
//! | [`spans`] | conversion of marks to spans |

pub mod clock;
pub mod layers;
mod operators;
pub mod recorder;
mod spans;

use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::Result;
use ringmark_core::dimension::{BackendName, Strategy};
use ringmark_core::file::atomic_file;
use ringmark_core::host::unix_time;
use ringmark_core::trace::{
    ClockMethod, ClockReading, GradientArray, LayerProfile, OperatorProfile, RankClock, RankTrace, Timeline,
    TraceConfig, TraceFormat, chrome, horovod,
};

use crate::ffi::torch::nodes::Observation;
use crate::ffi::torch::profiler::{ProfiledEvent, Profiler};
use crate::job::session::Session;
use crate::measure::trace::clock::SpanClock;
use crate::measure::trace::recorder::Nodes;

pub struct Tracer<'a> {
    session: &'a Session<'a>,
    config: &'a TraceConfig,
    traced: RangeInclusive<u32>,
    clock: SpanClock,
    method: ClockMethod,
    first: ClockReading,
    /// Clock reading at the end of the trace, if taken during the run.
    last: Option<ClockReading>,
    observation: Option<Observation>,
    profiler: Option<Profiler>,
    operators: Vec<ProfiledEvent>,
}

/// Requested profiles of the traced iterations.
#[derive(Default)]
pub struct Profiles {
    pub layers: Option<LayerProfile>,
    pub operators: Option<OperatorProfile>,
}

pub struct TracedRun {
    pub title: String,
    /// Strategy; `None` if there is none.
    pub strategy: Option<Strategy>,
    pub backend: BackendName,
    /// Gradient arrays in the order of backward.
    pub arrays: Vec<GradientArray>,
}

impl<'a> Tracer<'a> {
    /// Starts a tracer before the first iteration; `None` if nothing is `traced`. All ranks call this together.
    ///
    /// # Errors
    ///
    /// Fails if rank 0 cannot write the file: better now than after hours.
    pub fn start(
        config: &'a TraceConfig,
        traced: Option<RangeInclusive<u32>>,
        session: &'a Session<'a>,
    ) -> Result<Option<Tracer<'a>>> {
        let Some(traced) = traced else { return Ok(None) };
        if let (Some(path), 0) = (&config.file, session.world.rank()) {
            atomic_file::check(path)?;
        }
        let (method, first) = clock::read(session.world)?;
        recorder::start(session.device(), traced.clone());
        let clock = SpanClock::new(session.device())?;
        let (observation, profiler, operators) = (None, None, Vec::new());
        Ok(Some(Tracer { session, config, traced, clock, method, first, last: None, observation, profiler, operators }))
    }

    /// Returns true if iteration `iteration` is the first traced one or the first after them: the best time to compare
    /// clocks is right before it.
    pub fn is_boundary(&self, iteration: u32) -> bool {
        iteration == *self.traced.start() || Some(iteration) == self.traced.end().checked_add(1)
    }

    /// Reads the clocks, while no time is measured. All ranks call this together.
    pub fn read_clocks(&mut self, iteration: u32) -> Result<()> {
        let (_, reading) = clock::read(self.session.world)?;
        if iteration == *self.traced.start() {
            self.first = reading;
        } else {
            self.last = Some(reading);
        }
        Ok(())
    }

    /// Begins iteration `iteration`. Waits for the device if tracing [starts or ends](Tracer::is_boundary) with it.
    pub fn begin_iteration(&mut self, iteration: u32) -> Result<()> {
        let is_traced = recorder::begin_iteration(iteration);
        if is_traced != self.observation.is_some() {
            self.clock.anchor()?;
            self.observation = if is_traced { Some(Observation::begin::<Nodes>()?) } else { None };
            self.profile_operators(is_traced)?;
        }
        Ok(())
    }

    /// Starts or stops libtorch's profiler if it is requested. The device must be idle.
    fn profile_operators(&mut self, is_traced: bool) -> Result<()> {
        if let Some(profiler) = self.profiler.take() {
            self.operators.extend(profiler.stop()?);
        }
        if is_traced && self.config.profile_operators {
            self.profiler = Some(Profiler::start(self.session.device().is_cuda())?);
        }
        Ok(())
    }

    /// Ends the trace after the last iteration, when the device is idle. Rank 0 writes the file, or prints why there is
    /// none. All remaining ranks call this together. Returns the requested profiles on rank 0.
    pub fn end(mut self, run: TracedRun) -> Result<Profiles> {
        if self.observation.take().is_some() {
            self.clock.anchor()?;
            self.profile_operators(false)?;
        }
        let Tracer { session, config, clock, method, first, last, operators, .. } = self;
        let world = session.world;
        let last = match last {
            Some(last) => last,
            // Failed ranks do not answer.
            None if world.has_lost_ranks() => first,
            None => clock::read(world)?.1,
        };
        let [first, last] = [first, last].map(|reading| reading.and_residual(clock.residual_ns()));
        let (mut spans, gradients) = spans::convert(recorder::stop()?, &clock)?;
        spans.extend(operators::spans(operators, &spans)?);
        let own = RankTrace {
            rank: world.rank(),
            host: world.host().to_owned(),
            clock: RankClock { method, first, last },
            spans,
            gradients,
        };
        let ranks = world.gather_values_on_rank_0(&own)?;
        if ranks.is_empty() {
            return Ok(Profiles::default());
        }
        if ranks.iter().all(|rank| rank.spans.is_empty()) {
            session.print(&[format!("# warning: no trace: {}", config.missing_iterations())]);
            return Ok(Profiles::default());
        }
        let profiles = Profiles {
            layers: config.profile_layers.then(|| LayerProfile::from_traces(&ranks)),
            operators: config.profile_operators.then(|| OperatorProfile::new(&ranks)),
        };
        let TracedRun { title, strategy, backend, arrays } = run;
        let exchange = backend.to_string();
        let mut timeline = Timeline { title, began_unix_seconds: 0.0, strategy, exchange, arrays, ranks };
        // In rank 0's clock, which is that of the writing host.
        let since = clock::now_ns()? - timeline.align();
        timeline.began_unix_seconds = unix_time().0 - since as f64 / 1e9;
        // A failed trace must not lose the measurement.
        if let Err(error) = write(&timeline, config.file.as_deref(), config.format, session) {
            session.print(&[format!("# warning: no trace: {error:#}")]);
        }
        Ok(profiles)
    }
}

fn write(timeline: &Timeline, path: Option<&Path>, format: TraceFormat, session: &Session) -> Result<()> {
    session.write(path, |output| match format {
        TraceFormat::Chrome => chrome::write(timeline, output),
        TraceFormat::Horovod => horovod::write(timeline, output),
    })
}
