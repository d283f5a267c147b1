//! The timed loop: iterations, and between them graph capture, traces, epochs and checkpoints, whose time is excluded
//! from the iterations.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ringmark_core::benchmark::data_input::DataInputUse;
use ringmark_core::benchmark::train::{Fault, RunHeader, TrainConfig};
use ringmark_core::dimension::{GraphChoice, Seconds};
use ringmark_core::host::Stage;
use ringmark_core::trace::GradientArray;

use crate::benchmark::train::checkpoint::{self, SavedProgress};
use crate::benchmark::train::checkpoint_writer::CheckpointWriter;
use crate::benchmark::train::epochs::Epochs;
use crate::benchmark::train::graphs::GraphUse;
use crate::benchmark::train::lose_rank;
use crate::benchmark::train::progress::Progress;
use crate::benchmark::train::record::{self, GatheredIterations, RankMeasurements};
use crate::benchmark::train::step::Step;
use crate::job::heartbeat;
use crate::job::host_watch::HostWatch;
use crate::job::session::Session;
use crate::measure::step_timer::{Sample, StepTimer};
use crate::measure::trace::{Profiles, TracedRun, Tracer, recorder};
use crate::model::network::NamedTensor;

/// State of the loop on one rank. All ranks call each of its methods together.
pub struct TimedLoop<'a> {
    session: &'a Session<'a>,
    header: &'a RunHeader,
    step: &'a mut Step,
    timer: StepTimer,
    samples: Vec<Sample>,
    recorded: GatheredIterations,
    progress: Progress,
    epochs: Epochs,
    checkpoints: CheckpointWriter,
    graphs: GraphUse,
    tracer: Option<Tracer<'a>>,
    counters: HostWatch,
    /// Wall time and input before the checkpoint that this run continues.
    wall_before: Seconds,
    input_before: Option<DataInputUse>,
    started: Instant,
    paused: Duration,
}

impl<'a> TimedLoop<'a> {
    /// Prints the header and starts the clocks.
    pub fn start(
        session: &'a Session<'a>,
        header: &'a RunHeader,
        step: &'a mut Step,
        saved: Option<SavedProgress>,
    ) -> Result<TimedLoop<'a>> {
        let (config, before) = (&header.config, header.iterations_before());
        let is_continued = saved.is_some();
        let SavedProgress { iterations, epochs, checkpoints, input: input_before, wall: wall_before, .. } =
            saved.unwrap_or_default();
        let progress = Progress::new(session.world, header, &iterations);
        let epochs = Epochs::new(config, session, epochs)?;
        let checkpoints = CheckpointWriter::new(&config.learning, session.world, checkpoints);
        let first_scale = match step.exchange.loss_scaler() {
            Some(scaler) if is_continued => scaler.scale.f_double_value(&[])?,
            Some(_) => config.loss_scale,
            None => 1.0,
        };
        let timer = StepTimer::new(session.device(), before, config.warmup, first_scale);
        heartbeat::enter(Stage::Ready);
        let tracer = Tracer::start(&config.trace, traced_iterations(config, before, session), session)?;
        let counters = session.start_counters()?;
        session.world.barrier();
        if !is_restarted(header) {
            lose_rank::start_clock(config.inject, 0, session.world);
        }
        Ok(TimedLoop {
            session,
            header,
            step,
            timer,
            samples: Vec::with_capacity((config.iterations - before) as usize),
            recorded: GatheredIterations::new(iterations),
            progress,
            epochs,
            checkpoints,
            graphs: GraphUse { choice: config.graphs, no_graph: header.no_graph.clone() },
            tracer,
            counters,
            wall_before,
            input_before,
            started: Instant::now(),
            paused: Duration::ZERO,
        })
    }

    /// Returns the remaining iterations, counted from 1 over all parts of the run.
    pub fn iterations(&self) -> RangeInclusive<u32> {
        self.header.iterations_before() + 1..=self.header.config.iterations
    }

    pub fn before(&mut self, iteration: u32) -> Result<()> {
        let (config, before) = (&self.header.config, self.header.iterations_before());
        let here = (iteration, self.session.world.rank());
        match config.inject {
            Some(Fault::Fail { iteration, rank }) if (iteration, rank) == here => {
                bail!("failure injected in iteration {iteration} (--inject)")
            }
            Some(Fault::Lose { kind, iteration, rank }) if (iteration, rank) == here && !is_restarted(self.header) => {
                lose_rank::lose(kind)?;
            }
            _ => {}
        }
        if Some(iteration) == self.graphs.capture_before(config, before) {
            self.pause(Self::capture)?;
        }
        // Replays allocate nothing: the capture allocated their memory.
        if iteration == before.max(config.warmup) + 1 && !self.step.is_captured() {
            self.session.reset_peak_memory()?;
        }
        self.trace(iteration)
    }

    pub fn run(&mut self, iteration: u32) -> Result<()> {
        self.step.run(iteration, &mut self.timer)?;
        let finished = self.timer.finished(None, || self.step.exchange.reducer().check())?;
        self.progress.show(finished, &mut self.samples);
        // After the wait, during which images of this iteration are decoded.
        recorder::end_iteration();
        Ok(())
    }

    /// Ends an epoch and saves a checkpoint if they are due after `iteration`.
    pub fn after(&mut self, iteration: u32) -> Result<()> {
        self.checkpoints.check()?;
        let every = self.header.config.learning.checkpoint_every;
        let is_saved = every.is_some_and(|every| iteration.is_multiple_of(every));
        let ends_epoch = self.epochs.end_at(iteration);
        if !ends_epoch && !is_saved {
            return Ok(());
        }
        self.pause(|run| {
            let wall = run.wall();
            if is_saved {
                run.checkpoints.finish(run.session.world, &run.progress)?;
            }
            let mut started = Instant::now();
            run.recorded.take(run.session.world, &run.samples);
            if ends_epoch {
                let end = run.epochs.end(run.session, run.header, &run.step.model, &run.recorded.iterations)?;
                run.progress.print(&end.text());
                started = Instant::now();
            }
            if is_saved { run.save(iteration, wall, started) } else { Ok(()) }
        })
    }

    pub fn end(mut self) -> Result<RankMeasurements> {
        self.finish_iterations()?;
        let wall = self.wall();
        self.checkpoints.finish(self.session.world, &self.progress)?;
        // Asynchronous ranks detect failed peers here.
        let mut strategy = self.step.exchange.end(self.session)?;
        if let Some(used) = strategy.as_mut().filter(|_| !self.timer.weight_waits().is_empty()) {
            used.gathers = record::gathers(self.session.world, &self.timer, &gradient_arrays(self.header, self.step))?;
        }
        heartbeat::enter(Stage::Finishing);
        let counters = self.session.end_counters(self.counters)?;
        let profiles = match self.tracer {
            Some(tracer) => tracer.end(traced_run(self.header, self.step))?,
            None => Profiles::default(),
        };
        self.progress.end();
        // Before the weights of all ranks are gathered for the record.
        let peak_memory = self.session.peak_memory()?;
        let input = record::input(self.session.world, &self.step.batches, self.input_before.as_ref())?;
        let fingerprints = self.step.fingerprints()?;
        let (compression, epochs) = (self.step.exchange.reducer().compression(), self.epochs.ends);
        let checkpoints = self.checkpoints.written().to_vec();
        let recompute = self.timer.repeated();
        let TimedLoop { samples, recorded, graphs, .. } = self;
        Ok(RankMeasurements {
            samples,
            recorded,
            counters,
            wall,
            peak_memory,
            strategy,
            compression,
            input,
            epochs,
            checkpoints,
            recompute,
            profiles,
            fingerprints,
            graphs,
        })
    }

    /// Waits for pending iterations, then calls `work`, whose time is not counted.
    fn pause(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.finish_iterations()?;
        let pause = Instant::now();
        work(self)?;
        self.paused += pause.elapsed();
        Ok(())
    }

    fn finish_iterations(&mut self) -> Result<()> {
        let last = self.timer.begin()?;
        let finished = self.timer.finished(Some(&last), || self.step.exchange.reducer().check())?;
        self.progress.show(finished, &mut self.samples);
        Ok(())
    }

    /// Returns the wall time of all iterations so far, excluding pauses.
    fn wall(&self) -> Seconds {
        Seconds(self.wall_before.0 + (self.started.elapsed() - self.paused).as_secs_f64())
    }

    /// Captures the step on all ranks or on none.
    fn capture(&mut self) -> Result<()> {
        self.session.reset_peak_memory()?;
        if let Some(reason) = self.step.capture(self.session.world)? {
            self.graphs = self.graphs.clone().without(reason)?;
            let reason = self.graphs.no_graph.iter();
            reason.for_each(|reason| self.progress.print(&format!("warning: graphs off: {reason}")));
            return Ok(());
        }
        let suffix = match self.step.exchange.reducer().sink_facts().is_asynchronous {
            true => ": backward's time includes the exchange, and exposed_allreduce is 0",
            false => "",
        };
        self.progress.print(&format!("graphs: forward and backward are replayed from the next iteration on{suffix}"));
        self.graphs = GraphUse { choice: GraphChoice::On, no_graph: None };
        Ok(())
    }

    /// Starts or ends the trace if that is due before `iteration`.
    fn trace(&mut self, iteration: u32) -> Result<()> {
        let Some(tracer) = &mut self.tracer else { return Ok(()) };
        if !tracer.is_boundary(iteration) {
            return tracer.begin_iteration(iteration);
        }
        let are_in_step = !self.header.config.strategy.strategy.is_asynchronous();
        self.pause(|run| {
            let Some(tracer) = &mut run.tracer else { return Ok(()) };
            if are_in_step {
                tracer.read_clocks(iteration)?;
            }
            tracer.begin_iteration(iteration)
        })
    }

    /// Saves a checkpoint in a pause that began at `started`.
    fn save(&mut self, iteration: u32, wall: Seconds, started: Instant) -> Result<()> {
        let TimedLoop { session, header, step, recorded, epochs, checkpoints, progress, .. } = self;
        let input = record::input(session.world, &step.batches, self.input_before.as_ref())?;
        let saved = SavedProgress::new(header, &recorded.iterations, &epochs.ends, input, checkpoints.written(), wall);
        let batches = step.batches_seen(header, iteration);
        checkpoints.save((step, session), &header.config, &saved, batches, started, progress)
    }
}

/// Returns true if the launcher started the run again after an interruption.
fn is_restarted(header: &RunHeader) -> bool {
    header.resumptions.iter().any(|resumption| resumption.interruption.is_some())
}

/// Returns the iterations to trace after the `before` of a checkpoint; prints a warning if no requested iteration is
/// left.
fn traced_iterations(config: &TrainConfig, before: u32, session: &Session) -> Option<RangeInclusive<u32>> {
    let requested = config.trace.traced(config.warmup.max(before), config.iterations)?;
    let left = *requested.start().max(&(before + 1))..=*requested.end();
    if left.is_empty() {
        let (first, last) = (requested.start(), requested.end());
        let why = format!("iterations {first} to {last} were completed before the checkpoint (iteration {before})");
        session.print(&[format!("# warning: no trace: {why}")]);
        return None;
    }
    Some(left)
}

fn traced_run(header: &RunHeader, step: &Step) -> TracedRun {
    let TrainConfig { model, batch_size, dtype, .. } = &header.config;
    TracedRun {
        title: format!("{} training, batch size {batch_size} per rank, {dtype}", model.facts().title),
        strategy: Some(header.config.strategy.strategy),
        backend: header.backend,
        arrays: gradient_arrays(header, step),
    }
}

/// Returns the arrays of gradients in backward order.
fn gradient_arrays(header: &RunHeader, step: &Step) -> Vec<GradientArray> {
    let (mut elements, mut bucket) = (0, 0);
    let buckets = step.exchange.reducer().buckets();
    // Backward visits the arrays in reverse.
    let array = |named: &NamedTensor| {
        while buckets.get(bucket).is_some_and(|range| range.end <= elements) {
            bucket += 1;
        }
        elements += named.tensor.numel();
        let wire = header.config.exchange.wire;
        GradientArray { name: named.name.clone(), shape: named.tensor.size(), wire, bucket: bucket as u32 }
    };
    step.model.tensors.parameters.iter().rev().map(array).collect()
}

/// Runs steps without their update to warm up a run that continues after `before` iterations, then restores the running
/// statistics and the random numbers. All ranks call this together.
pub fn rewarm(config: &TrainConfig, before: u32, session: &Session, step: &mut Step) -> Result<()> {
    let statistics = step.model.copy_of_statistics();
    (0..config.warmup.min(before)).try_for_each(|_| step.timed_rehearsal(session.world).map(drop))?;
    step.model.restore(&statistics)?;
    checkpoint::reseed(session, config, before);
    Ok(())
}
