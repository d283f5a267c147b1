//! What goes on inside an iteration, span by span: kept by hooks while it goes on, read off the device and brought to one
//! clock when the iterations are over. Where nothing is traced, nothing is observed.
//!
//! | module | what it is for |
//! |---|---|
//! | [`recorder`] | keeps marks while an iteration goes on |
//! | [`layers`] | how a layer tells of its passes |
//! | [`clock`] | the host's clock, and rank 0's |
//! | [`spans`] | what the marks say |

pub mod clock;
pub mod layers;
pub mod recorder;
mod spans;

use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::Result;
use ringmark_core::dimension::{BackendName, KvStore};
use ringmark_core::file::whole_file;
use ringmark_core::trace::{
    ClockMethod, ClockReading, GradientArray, LayerProfile, RankClock, RankTrace, Timeline, TraceConfig, TraceFormat,
    chrome, horovod,
};

use crate::ffi::torch::nodes::Observation;
use crate::host::facts;
use crate::job::session::Session;
use crate::measure::trace::clock::SpanClock;
use crate::measure::trace::recorder::Nodes;

/// Traces some iterations of a run on one rank.
pub struct Tracer<'a> {
    session: &'a Session<'a>,
    config: &'a TraceConfig,
    traced: RangeInclusive<u32>,
    clock: SpanClock,
    method: ClockMethod,
    first: ClockReading,
    /// Where it was read while the iterations went on.
    last: Option<ClockReading>,
    observation: Option<Observation>,
}

/// What a timeline says of its run.
pub struct TracedRun {
    /// Of the run.
    pub title: String,
    /// Where gradients are summed; `None` where none are.
    pub kv_store: Option<KvStore>,
    /// What sums them.
    pub backend: BackendName,
    /// In the order of backward.
    pub arrays: Vec<GradientArray>,
}

impl<'a> Tracer<'a> {
    /// Before the first iteration; all ranks call it together. `None` where nothing is `traced`.
    ///
    /// # Errors
    ///
    /// Where rank 0 could not write the file either: better now than after hours.
    pub fn start(
        config: &'a TraceConfig,
        traced: Option<RangeInclusive<u32>>,
        session: &'a Session<'a>,
    ) -> Result<Option<Tracer<'a>>> {
        let Some(traced) = traced else { return Ok(None) };
        if let (Some(path), 0) = (&config.file, session.world.rank()) {
            whole_file::check(path)?;
        }
        let (method, first) = clock::read(session.world)?;
        recorder::start(session.device(), traced.clone());
        let clock = SpanClock::new(session.device())?;
        Ok(Some(Tracer { session, config, traced, clock, method, first, last: None, observation: None }))
    }

    /// Whether iteration `iteration` is the first one that is traced, or the first one behind them: between it and the one
    /// before, clocks are best compared.
    pub fn turns_at(&self, iteration: u32) -> bool {
        iteration == *self.traced.start() || Some(iteration) == self.traced.end().checked_add(1)
    }

    /// There, while no time is counted; all ranks call it together.
    pub fn read_clocks(&mut self, iteration: u32) -> Result<()> {
        let (_, reading) = clock::read(self.session.world)?;
        if iteration == *self.traced.start() {
            self.first = reading;
        } else {
            self.last = Some(reading);
        }
        Ok(())
    }

    /// Iteration `iteration` begins. Where it [turns](Tracer::turns_at) this waits for the device.
    pub fn begin_iteration(&mut self, iteration: u32) -> Result<()> {
        let is_traced = recorder::begin_iteration(iteration);
        if is_traced != self.observation.is_some() {
            self.clock.anchor()?;
            self.observation = if is_traced { Some(Observation::begin::<Nodes>()?) } else { None };
        }
        Ok(())
    }

    /// After the last iteration, when the device is past it: rank 0 writes the file, or says why there is none. All ranks that
    /// are left call it together. The time by layer on rank 0, where that was asked for.
    pub fn end(mut self, run: TracedRun) -> Result<Option<LayerProfile>> {
        if self.observation.take().is_some() {
            self.clock.anchor()?;
        }
        let Tracer { session, config, clock, method, first, last, .. } = self;
        let world = session.world;
        let last = match last {
            Some(last) => last,
            // Those that have died do not answer.
            None if world.has_lost_some() => first,
            None => clock::read(world)?.1,
        };
        let [first, last] = [first, last].map(|reading| reading.and_residual(clock.residual_ns()));
        let (spans, gradients) = spans::of(recorder::stop()?, &clock)?;
        let own = RankTrace {
            rank: world.rank(),
            host: world.host().to_owned(),
            clock: RankClock { method, first, last },
            spans,
            gradients,
        };
        let ranks = world.gather_values_on_rank_0(&own)?;
        if ranks.is_empty() {
            return Ok(None);
        }
        if ranks.iter().all(|rank| rank.spans.is_empty()) {
            session.print(&[format!("# warning: no trace: {}", config.never_came())]);
            return Ok(None);
        }
        let profile = config.profile_layers.then(|| LayerProfile::of(&ranks));
        let TracedRun { title, kv_store, backend, arrays } = run;
        let exchange = backend.to_string();
        let mut timeline = Timeline { title, began_unix_seconds: 0.0, kv_store, exchange, arrays, ranks };
        // By rank 0's clock, which is the host's that writes.
        let since = clock::now_ns()? - timeline.align();
        timeline.began_unix_seconds = facts::now().0 - since as f64 / 1e9;
        // What was measured is worth more than its trace.
        if let Err(error) = write(&timeline, config.file.as_deref(), config.format, session) {
            session.print(&[format!("# warning: no trace: {error:#}")]);
        }
        Ok(profile)
    }
}

fn write(timeline: &Timeline, path: Option<&Path>, format: TraceFormat, session: &Session) -> Result<()> {
    session.write(path, |output| match format {
        TraceFormat::Chrome => chrome::write(timeline, output),
        TraceFormat::Horovod => horovod::write(timeline, output),
    })
}
