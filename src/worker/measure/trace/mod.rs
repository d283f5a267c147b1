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
use ringmark_record::trace::clock::{ClockMethod, ClockReading, RankClock};
use ringmark_record::trace::config::{TraceConfig, TraceFormat};
use ringmark_record::trace::layer_profile::LayerProfile;
use ringmark_record::trace::span::RankTrace;
use ringmark_record::trace::timeline::{GradientArray, Timeline};
use ringmark_record::trace::{chrome, horovod};

use crate::ffi::nodes::Observation;
use crate::host::facts;
use crate::job::session::Session;
use crate::measure::trace::clock::SpanClock;
use crate::measure::trace::recorder::Nodes;

/// Traces some iterations of a run on one rank.
pub struct Tracer<'a> {
    session: &'a Session<'a>,
    config: &'a TraceConfig,
    clock: SpanClock,
    first: (ClockMethod, ClockReading),
    observation: Option<Observation>,
}

/// What a timeline says of its run.
pub struct TracedRun {
    /// Of the run.
    pub title: String,
    /// What sums gradients.
    pub exchange: String,
    /// In the order of backward.
    pub arrays: Vec<GradientArray>,
}

impl<'a> Tracer<'a> {
    /// Before the first iteration; all ranks call it together. `None` where nothing is `traced`.
    pub fn start(
        config: &'a TraceConfig,
        traced: Option<RangeInclusive<u32>>,
        session: &'a Session<'a>,
    ) -> Result<Option<Tracer<'a>>> {
        let Some(traced) = traced else { return Ok(None) };
        let first = clock::read(session.world)?;
        recorder::start(session.device(), traced);
        Ok(Some(Tracer { session, config, clock: SpanClock::new(session.device())?, first, observation: None }))
    }

    /// Iteration `iteration` begins.
    pub fn begin_iteration(&mut self, iteration: u32) -> Result<()> {
        let is_traced = recorder::begin_iteration(iteration);
        if is_traced != self.observation.is_some() {
            self.observation = if is_traced { Some(Observation::begin::<Nodes>()?) } else { None };
        }
        Ok(())
    }

    /// After the last iteration, when the device is past it: rank 0 writes the file. All ranks call it together. The time by
    /// layer, where that was asked for.
    pub fn end(self, run: TracedRun) -> Result<Option<LayerProfile>> {
        let Tracer { session, config, clock, first: (method, first), observation } = self;
        drop(observation);
        let (_, last) = clock::read(session.world)?;
        let (spans, gradients) = spans::of(recorder::stop()?, &clock)?;
        let world = session.world;
        let own = RankTrace {
            rank: world.rank(),
            host: world.host().to_owned(),
            clock: RankClock { method, first, last },
            spans,
            gradients,
        };
        let ranks = world.gather_values(&own)?;
        let profile = config.profile_layers.then(|| LayerProfile::of(&ranks));
        let TracedRun { title, exchange, arrays } = run;
        let mut timeline = Timeline { title, began_unix_seconds: 0.0, exchange, arrays, ranks };
        // By rank 0's clock, which is the host's that writes.
        let since = clock::now_ns()? - timeline.align();
        timeline.began_unix_seconds = facts::now().0 - since as f64 / 1e9;
        write(&timeline, config.file.as_deref(), config.format, session)?;
        Ok(profile)
    }
}

fn write(timeline: &Timeline, path: Option<&Path>, format: TraceFormat, session: &Session) -> Result<()> {
    session.write(path, |output| match format {
        TraceFormat::Chrome => chrome::write(timeline, output),
        TraceFormat::Horovod => horovod::write(timeline, output),
    })
}
