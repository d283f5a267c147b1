//! A rank's life on one screen: libraries, MPI, device, model, timed loop, record, end.

mod autotune;
mod header;
mod progress;
mod record;
mod step;

use std::time::Instant;

use anyhow::{Result, bail};
use ringmark_record::config::{Fault, TrainConfig};
use ringmark_record::heartbeat::{Driver, Phase};

use crate::benchmark::train::header::ExchangeFacts;
use crate::benchmark::train::progress::Progress;
use crate::benchmark::train::record::Measured;
use crate::benchmark::train::step::Step;
use crate::cli::RunLabel;
use crate::data;
use crate::exchange::backend::select;
use crate::exchange::bucket::BucketPlan;
use crate::exchange::memory::Shape;
use crate::exchange::optimizer::Optimizer;
use crate::exchange::reducer::GradientReducer;
use crate::job::heartbeat;
use crate::job::session::{Request, Session};
use crate::job::world::World;
use crate::measure::step_timer::StepTimer;
use crate::model::checkpoint;
use crate::model::flat_parameters::FlatParameters;
use crate::model::named_tensors::NamedTensors;
use crate::model::precision::Precision;
use crate::model::resnet::ResNet50;

/// Runs one rank from start to end.
pub fn run(config: &TrainConfig, label: RunLabel, launcher: Option<Driver>) -> Result<()> {
    let request = Request { device: config.device, threads: config.threads, with_nccl_log: false, launcher };
    Session::run(request, |session| train(config, label, session))
}

/// Trains, prints and writes; why the run does not count, if it does not.
fn train(config: &TrainConfig, label: RunLabel, session: &Session) -> Result<Option<String>> {
    let (world, device) = (session.world, session.device());
    session.own.check_dtype(config.dtype)?;

    tch::manual_seed(config.seed);
    let mut tensors = NamedTensors::new(device);
    let model = ResNet50::new(&mut tensors);
    if let Some(path) = &config.init {
        checkpoint::load(path, &tensors)?;
    }
    let precision = Precision::new(config, device)?;
    let shape = Shape::gradients(tensors.elements(), config.exchange.wire);
    heartbeat::enter(Phase::Connecting);
    let mut engine = select::new(&config.exchange, shape, world, device, session.nccl.as_ref())?;
    let engine_name = engine.name();
    let summed = if engine_name == "none" { 1 } else { world.ranks() };
    let gradients = engine.memory().sums.shallow_clone();
    let flat = FlatParameters::new(&mut tensors, config.layout, precision.compute(), gradients)?;
    same_weights_everywhere(&flat, &tensors, world)?;

    let plan = BucketPlan::new(&flat.lengths(), config.exchange.bucket());
    let destinations = flat.views(&engine.memory().wire)?;
    let parameters = flat.parameters.iter().map(tch::Tensor::shallow_clone).collect();
    let reducer = GradientReducer::new(config.overlap, plan, parameters, destinations, engine)?;

    let optimizer = Optimizer::new(config, world.ranks(), summed);
    heartbeat::enter(Phase::Data);
    let batch = data::batch(config, world.rank(), device)?;
    let mut step = Step::new(config, world.rank(), device, (model, flat, batch), precision, (reducer, optimizer))?;

    let tuning = match config.autotune {
        // Where nothing is exchanged there is nothing to choose.
        true if summed > 1 => Some(autotune::search(config, world, device, &mut step, &tensors)?),
        _ => None,
    };
    let exchange = ExchangeFacts { backend: engine_name, buckets: reducer.bucket_sizes(), tuning };
    let header = header::header(config, label, session, exchange)?;
    let mut progress = Progress::new(world, &header);
    let first_scale = if step.precision.loss_scaler.is_some() { config.loss_scale } else { 1.0 };
    let mut timer = StepTimer::new(device, first_scale);
    let mut samples = Vec::with_capacity(config.iterations as usize);

    heartbeat::enter(Phase::Ready);
    let watch = session.start_counters();
    world.barrier();
    let started = Instant::now();
    for iteration in 1..=config.iterations {
        fail_if_asked(config, world, iteration)?;
        step.run(iteration, &mut timer)?;
        progress.show(timer.finished(None, || reducer.check())?, &mut samples);
    }
    let last = timer.begin()?;
    progress.show(timer.finished(Some(&last), || reducer.check())?, &mut samples);
    let wall = started.elapsed();
    heartbeat::enter(Phase::Finishing);
    let counters = session.end_counters(watch)?;
    progress.end();

    if let (Some(path), 0) = (&config.save, world.rank()) {
        checkpoint::save(path, &tensors, config.iterations)?;
    }
    record::gather(session, header, &step.flat.weights, Measured { samples, counters, wall })
}

/// Every rank starts from rank 0's weights and running statistics.
fn same_weights_everywhere(flat: &FlatParameters, tensors: &NamedTensors, world: &World) -> Result<()> {
    if world.ranks() == 1 {
        return Ok(());
    }
    let buffers = tensors.buffers.iter().map(|named| &named.tensor);
    for tensor in std::iter::once(&flat.weights).chain(buffers) {
        let mut values = Vec::<f32>::try_from(tensor)?;
        world.broadcast(&mut values);
        tensor.shallow_clone().f_copy_(&tch::Tensor::from_slice(&values))?;
    }
    Ok(())
}

fn fail_if_asked(config: &TrainConfig, world: &World, iteration: u32) -> Result<()> {
    match config.inject {
        Some(Fault::Fail { rank, iteration: wanted }) if rank == world.rank() && wanted == iteration => {
            bail!("--inject asked this rank to fail in iteration {iteration}")
        }
        _ => Ok(()),
    }
}
