//! Training: a rank's path on one screen: model, exchange, batch, timed loop, record.

mod agreement;
mod autotune;
mod checkpoint;
mod epochs;
mod graphs;
mod header;
mod progress;
mod record;
mod step;
mod work_load;

use std::iter::once;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ringmark_record::benchmark::image_input::DataSource;
use ringmark_record::benchmark::train::autotune_log::AutotuneLog;
use ringmark_record::benchmark::train::config::{Fault, TrainConfig};
use ringmark_record::benchmark::train::record::{RunHeader, Tuning};
use ringmark_record::benchmark::train::work_load::WorkDivision;
use ringmark_record::dimension::graphs::GraphChoice;
use ringmark_record::dimension::units::{Bytes, Seconds};
use ringmark_record::host::heartbeat::{LauncherAddress, Stage};
use ringmark_record::trace::timeline::GradientArray;
use tch::{Device, Tensor};

use crate::benchmark::train::checkpoint::Place;
use crate::benchmark::train::epochs::Epochs;
use crate::benchmark::train::graphs::GraphUse;
use crate::benchmark::train::header::Prepared;
use crate::benchmark::train::progress::Progress;
use crate::benchmark::train::record::{Measured, Recorded};
use crate::benchmark::train::step::Step;
use crate::data::Batches;
use crate::data::batch::ImageRequest;
use crate::data::deal::Deal;
use crate::exchange::kv_store::server;
use crate::exchange::reducer::ReadyFrom;
use crate::exchange::request::ExchangeRequest;
use crate::exchange::{Parameters, strategy};
use crate::ffi::libraries;
use crate::ffi::shim::Stream;
use crate::job::cores::AskedThreads;
use crate::job::heartbeat;
use crate::job::kernels::{self, ChosenKernels};
use crate::job::session::{AskedLabel, Request, ServerBody, Servers, Session};
use crate::job::world::World;
use crate::measure::step_timer::{Sample, StepTimer};
use crate::measure::trace::{TracedRun, Tracer, recorder};
use crate::model;
use crate::model::named_tensors::Named;
use crate::model::prepared::{PreparedModel, Recipe};
use crate::model::weights_file::Beside;

/// In longer runs NCCL's log, a line a bucket and iteration, would fill the disk.
const MOST_LOGGED_ITERATIONS: u32 = 10_000;

/// Runs one rank from start to end.
pub fn run(config: &TrainConfig, label: AskedLabel, launcher: Option<LauncherAddress>) -> Result<()> {
    let threads = AskedThreads { number: config.threads, cores_divided_by: config.cores_divided_by };
    let nccl = Some(config.exchange.nccl_algo);
    let with_nccl_log = config.iterations <= MOST_LOGGED_ITERATIONS && config.learning.epochs.is_none();
    if !config.graphs.is_off() {
        libraries::capture_without_others(config.device);
    }
    let of_servers = ExchangeRequest::from(config);
    let body: ServerBody = Box::new(move |world| server::run(&of_servers, world));
    let servers = Some(Servers { number: config.kv_store.server_ranks(), body });
    let request = Request { device: config.device, threads, nccl, with_nccl_log, launcher, servers };
    Session::run(request, |session| train(config, label, session))
}

/// Trains, prints and writes; why the run does not count, if it does not.
fn train(config: &TrainConfig, label: AskedLabel, session: &Session) -> Result<Option<String>> {
    session.own.check_dtype(config.dtype)?;
    let graphs = GraphUse::new(config, session)?;
    let config = &TrainConfig { graphs: graphs.choice, ..config.clone() };
    match session.device() {
        // CUDA cannot capture the default stream. What autograd orders by stream is made on this one from the start.
        Device::Cuda(index) if !graphs.choice.is_off() => {
            Stream::run_beside(index, || train_in_stream(config, graphs, label, session))
        }
        _ => train_in_stream(config, graphs, label, session),
    }
}

/// The same on the current stream of the device.
fn train_in_stream(
    config: &TrainConfig,
    graphs: GraphUse,
    label: AskedLabel,
    session: &Session,
) -> Result<Option<String>> {
    let deal = match config.data.source() {
        DataSource::Images(files) => Some(epochs::deal(files, config, session).context("--data")?),
        DataSource::Synthetic | DataSource::Batch(_) => None,
    };
    if let (Some(deal), Some(_)) = (&deal, &config.work_load) {
        deal.check_joined("--work-load")?;
    }
    let config = config.on(session.own.kind);
    let config = &deal.as_ref().map(|deal| config.with_epochs(deal.steps())).unwrap_or(config);
    config.check_warmup()?;
    config.trace.check(config.iterations)?;
    let layout = config.layout.of(config.dtype, session.own.kind);
    let pending = kernels::start(config.kernels, config.dtype, layout, session)?;
    let use_kernels = || kernels::finish(pending, config.kernels, session);
    let (mut step, division, place, kernels) = prepare(config, deal, session, use_kernels)?;
    let config = &TrainConfig { kernels: kernels.choice, ..config.clone() };
    let tuning = tune(config, session, &mut step)?;
    let header = header::header(
        config,
        label,
        session,
        &*step.exchange,
        Prepared { division, tuning, kernels, graphs },
        place.as_ref(),
    )?;
    let measured = measure(session, &header, &mut step, place)?;
    if let (Some(path), 0) = (&config.save, session.world.rank()) {
        let beside = Beside { batches: batches_seen(&step, &header, config.iterations), ..Beside::default() };
        model::weights_file::save(path, &step.model.tensors, &beside)?;
    }
    let failure = record::gather(session, header, &step.model.flat.weights, measured)?;
    step.exchange.leave()?;
    Ok(failure)
}

/// Batches that running statistics have seen after `iteration`.
fn batches_seen(step: &Step, header: &RunHeader, iteration: u32) -> i64 {
    let own = if header.config.freeze_batch_norm { 0 } else { iteration - header.iterations_before() };
    step.model.beside.batches + i64::from(own)
}

/// Model, exchange and batches of this rank, how the images are divided where that is not evenly, and where training is taken
/// up, where it is.
fn prepare(
    config: &TrainConfig,
    deal: Option<Deal>,
    session: &Session,
    use_kernels: impl FnOnce() -> Result<ChosenKernels>,
) -> Result<(Step, Option<WorkDivision>, Option<Place>, ChosenKernels)> {
    let (world, device) = (session.world, session.device());
    // Rank 0 alone needs to have the file: as the record, it lies where that rank runs.
    let from_checkpoint = config.learning.from_checkpoint.as_deref();
    let init = match from_checkpoint {
        Some(path) => (world.rank() == 0).then_some(path),
        None => config.init.as_deref(),
    };
    let layout = config.layout.of(config.dtype, session.own.kind);
    let recipe =
        Recipe { model: config.model, dropout: config.dropout, seed: config.seed, init, dtype: config.dtype, layout };
    let mut model = PreparedModel::new(&recipe, device)?;
    let items = deal.as_ref().and_then(|deal| deal.dataset.length());
    let read = |path: &Path| Place::of_rank_0(path, &model.beside.of_training, config, items, world);
    let place = from_checkpoint.map(read).transpose()?;

    heartbeat::enter(Stage::Connecting);
    // Every rank starts from rank 0's weights and running statistics.
    agreement::take_those_of_rank_0(once(&model.flat.weights).chain(model.statistics()), world)?;
    // Before the first step, which `--work-load auto` times.
    let kernels = use_kernels()?;
    let division = work_load::divide(config, session, &model)?;
    let parameters = Parameters {
        weights: model.flat.weights.shallow_clone(),
        rounded: model.flat.rounded.as_ref().map(Tensor::shallow_clone),
        tensors: model.flat.parameters.iter().map(Tensor::shallow_clone).collect(),
        ready_from: ReadyFrom::Backward,
    };
    let exchange = strategy::new(&ExchangeRequest::from(config), parameters, session)?;

    heartbeat::enter(Stage::Data);
    let part = work_load::part(config, division.as_ref(), world.rank());
    let request = work_load::request(config, config.data.source(), layout, part);
    let images = deal.map(|deal| ImageRequest {
        steps_before: place.as_ref().map_or(0, Place::iteration).into(),
        ..epochs::images(deal, config, session)
    });
    let batches = Batches::new(&request, images.as_ref(), world.rank(), device)?;
    let saved = std::mem::take(&mut model.beside.of_training);
    let step = Step::new(config, world.rank(), model, (batches, part.0), exchange)?;
    if place.is_some() {
        checkpoint::restore(&step, &saved, world)?;
    }
    Ok((step, division, place, kernels))
}

/// The search of `--autotune` and its log, which is without rows where nothing is exchanged: there is nothing to choose.
fn tune(config: &TrainConfig, session: &Session, step: &mut Step) -> Result<Option<Tuning>> {
    if !config.autotune || step.exchange.summed_ranks() == 1 {
        session.write(config.autotune_log.as_deref(), |output| AutotuneLog::default().write(output))?;
        return Ok(None);
    }
    let tuning = autotune::search(config.exchange, session.world, step)?;
    let gradients = Bytes(step.exchange.bucket_sizes().iter().map(|bytes| bytes.0).sum());
    let log = AutotuneLog::of_sizes(config, gradients, &tuning);
    session.write(config.autotune_log.as_deref(), |output| log.write(output))?;
    Ok(Some(tuning))
}

/// The timed loop, with what is printed while it goes on.
fn measure(session: &Session, header: &RunHeader, step: &mut Step, place: Option<Place>) -> Result<Measured> {
    let (config, before) = (&header.config, header.iterations_before());
    let is_taken_up = place.is_some();
    let Place { iterations, epochs, input: input_before, wall: wall_before, .. } = place.unwrap_or_default();
    let mut progress = Progress::new(session.world, header, &iterations);
    let mut epochs = Epochs::new(config, session, epochs)?;
    let mut recorded = Recorded::new(iterations);
    let mut paused = Duration::ZERO;
    let first_scale = match step.exchange.loss_scaler() {
        Some(scaler) if is_taken_up => scaler.scale.f_double_value(&[])?,
        Some(_) => config.loss_scale,
        None => 1.0,
    };
    let mut graphs = GraphUse { choice: config.graphs, no_graph: header.no_graph.clone() };
    let capture_before = graphs.capture_before(config, before);
    if is_taken_up {
        warm_up_again(config.warmup.min(before), session.world, step)?;
        checkpoint::reseed(session, config, before);
    }
    let mut timer = StepTimer::new(session.device(), before, first_scale);
    let mut samples = Vec::with_capacity((config.iterations - before) as usize);

    heartbeat::enter(Stage::Ready);
    let mut tracer = Tracer::start(&config.trace, traced_iterations(config, before, session), session)?;
    let are_in_step = !config.kv_store.kv_store.is_asynchronous();
    let watch = session.start_counters()?;
    session.world.barrier();
    let started = Instant::now();
    for iteration in before + 1..=config.iterations {
        fail_if_asked(config, session.world, iteration)?;
        if Some(iteration) == capture_before {
            finish_all(&mut timer, step, &mut progress, &mut samples)?;
            let pause = Instant::now();
            graphs = capture(graphs, step, session, &progress)?;
            paused += pause.elapsed();
        }
        // Replays allocate nothing: what they use was allocated by the capture.
        if iteration == before.max(config.warmup) + 1 && !step.is_captured() {
            session.reset_peak_memory()?;
        }
        if let Some(tracer) = &mut tracer {
            let is_turn = tracer.turns_at(iteration);
            if is_turn {
                finish_all(&mut timer, step, &mut progress, &mut samples)?;
            }
            let pause = Instant::now();
            if is_turn && are_in_step {
                tracer.read_clocks(iteration)?;
            }
            tracer.begin_iteration(iteration)?;
            paused += pause.elapsed();
        }
        step.run(iteration, &mut timer)?;
        progress.show(timer.finished(None, || step.exchange.check())?, &mut samples);
        // Behind the wait, in which images of this iteration are decoded.
        recorder::end_iteration();
        let is_saved = config.learning.checkpoint_every.is_some_and(|every| iteration.is_multiple_of(every));
        if epochs.end_at(iteration) || is_saved {
            finish_all(&mut timer, step, &mut progress, &mut samples)?;
            let pause = Instant::now();
            recorded.take(session.world, &samples);
            if epochs.end_at(iteration) {
                progress.print(&epochs.end(session, header, &step.model, &recorded.iterations)?.text());
            }
            if is_saved {
                let wall = Seconds(wall_before.0 + (pause - started - paused).as_secs_f64());
                let input = record::input(session.world, &step.batches, input_before.as_ref())?;
                let place = Place::of(header, &recorded.iterations, &epochs.ends, input, wall);
                checkpoint::save(step, session, config, &place, batches_seen(step, header, iteration))?;
            }
            paused += pause.elapsed();
        }
    }
    finish_all(&mut timer, step, &mut progress, &mut samples)?;
    let wall = Seconds(wall_before.0 + (started.elapsed() - paused).as_secs_f64());
    // Ranks that died among those that do not wait for each other are known from here on.
    let kv_store = step.exchange.end(session)?;
    heartbeat::enter(Stage::Finishing);
    let counters = session.end_counters(watch)?;
    let layers = match tracer {
        Some(tracer) => tracer.end(traced_run(header, step))?,
        None => None,
    };
    progress.end();
    let input = record::input(session.world, &step.batches, input_before.as_ref())?;
    let (coded, epochs) = (step.exchange.coded(), epochs.ends);
    Ok(Measured { samples, recorded, counters, wall, kv_store, coded, input, epochs, layers, graphs })
}

/// Captures the step on all ranks or on none; no iteration is under way.
fn capture(graphs: GraphUse, step: &mut Step, session: &Session, progress: &Progress) -> Result<GraphUse> {
    session.reset_peak_memory()?;
    if let Some(reason) = step.capture(session.world)? {
        let graphs = graphs.without(reason)?;
        graphs.no_graph.iter().for_each(|reason| progress.print(&format!("warning: graphs off: {reason}")));
        return Ok(graphs);
    }
    let of_sums = match step.exchange.is_asynchronous() {
        true => ": backward's time includes the exchange, and exposed_allreduce is 0",
        false => "",
    };
    progress.print(&format!("graphs: forward and backward are replayed from the next iteration on{of_sums}"));
    Ok(GraphUse { choice: GraphChoice::On, no_graph: None })
}

/// Ends the last iteration that was begun and waits for all: what follows until the next one begins is no iteration's time.
fn finish_all(timer: &mut StepTimer, step: &Step, progress: &mut Progress, samples: &mut Vec<Sample>) -> Result<()> {
    let last = timer.begin()?;
    progress.show(timer.finished(Some(&last), || step.exchange.check())?, samples);
    Ok(())
}

/// What is traced behind a checkpoint's iterations, `before`; says so where none of it is left.
fn traced_iterations(config: &TrainConfig, before: u32, session: &Session) -> Option<RangeInclusive<u32>> {
    let asked = config.trace.traced(config.warmup.max(before), config.iterations)?;
    let left = *asked.start().max(&(before + 1))..=*asked.end();
    if left.is_empty() {
        let (first, last) = (asked.start(), asked.end());
        let why =
            format!("iterations {first} to {last} were done before the checkpoint, which is of iteration {before}");
        session.print(&[format!("# warning: no trace: {why}")]);
        return None;
    }
    Some(left)
}

/// What a timeline says of the run.
fn traced_run(header: &RunHeader, step: &Step) -> TracedRun {
    let TrainConfig { model, batch_size, dtype, .. } = &header.config;
    let (mut elements, mut bucket) = (0, 0);
    let buckets = step.exchange.buckets();
    // Backward comes to the last one first.
    let array = |named: &Named| {
        while buckets.get(bucket).is_some_and(|range| range.end <= elements) {
            bucket += 1;
        }
        elements += named.tensor.numel();
        let wire = header.config.exchange.wire;
        GradientArray { name: named.name.clone(), shape: named.tensor.size(), wire, bucket: bucket as u32 }
    };
    TracedRun {
        title: format!("{} training, batch size {batch_size} a rank, {dtype}", model.facts().title),
        kv_store: Some(header.config.kv_store.kv_store),
        exchange: header.backend.clone(),
        arrays: step.model.tensors.parameters.iter().rev().map(array).collect(),
    }
}

/// Steps without their update, so that the first iteration of a run that is taken up is as warm as it was behind those of the
/// warm-up; nothing of them is left.
fn warm_up_again(steps: u32, world: &World, step: &mut Step) -> Result<()> {
    let statistics = step.model.copy_of_statistics();
    (0..steps).try_for_each(|_| step.timed_rehearsal(world).map(drop))?;
    step.model.restore(&statistics)
}

fn fail_if_asked(config: &TrainConfig, world: &World, iteration: u32) -> Result<()> {
    match config.inject {
        Some(Fault::Fail { rank, iteration: wanted }) if rank == world.rank() && wanted == iteration => {
            bail!("--inject asked this rank to fail in iteration {iteration}")
        }
        _ => Ok(()),
    }
}
