//! Training on one rank: model, exchange, batches, timed loop, record.

mod agreement;
mod autotune;
mod checkpoint;
mod checkpoint_writer;
mod epochs;
mod graphs;
mod header;
mod lose_rank;
mod program;
mod progress;
mod record;
mod step;
mod timed_loop;
mod work_load;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use ringmark_core::benchmark::data_input::DataSource;
use ringmark_core::benchmark::train::{AutotuneLog, Recompute, TrainConfig, Tuning, WorkDivision};
use ringmark_core::dimension::{Bytes, Seconds};
use ringmark_core::host::{LauncherAddress, Stage};
use tch::{Device, Tensor};

use crate::benchmark::train::checkpoint::SavedProgress;
use crate::benchmark::train::graphs::GraphUse;
use crate::benchmark::train::header::Prepared;
use crate::benchmark::train::step::Step;
use crate::benchmark::train::timed_loop::TimedLoop;
use crate::data::Batches;
use crate::data::assignment::Assignment;
use crate::data::batch::ReadRequest;
use crate::exchange::kv_store::server;
use crate::exchange::reducer::ReadyFrom;
use crate::exchange::request::ExchangeRequest;
use crate::exchange::{Parameters, WeightTaker, strategy};
use crate::ffi::process::allocator;
use crate::ffi::torch::shim;
use crate::ffi::torch::stream::Stream;
use crate::job::cores::CoreRequest;
use crate::job::heartbeat;
use crate::job::kernels::{self, ChosenKernels};
use crate::job::library_defaults;
use crate::job::session::{RequestedLabel, ServerBody, Servers, Session, SessionRequest};
use crate::model;
use crate::model::flat_parameters::WeightMemory;
use crate::model::networks::NetworkOptions;
use crate::model::prepared::{ModelRequest, PreparedModel};
use crate::model::weights_file::TrainingState;

/// Maximum length of a run with NCCL's log, which has one line per bucket and iteration and would fill the disk.
const MAX_LOGGED_ITERATIONS: u32 = 10_000;

/// Runs one rank from start to end.
pub fn run(config: &TrainConfig, label: RequestedLabel, launcher: Option<LauncherAddress>) -> Result<()> {
    if config.program.is_used() {
        return program::run(config, label, launcher);
    }
    let cores = CoreRequest { threads: config.threads, cores_divided_by: config.cores_divided_by, bind: config.bind };
    let nccl = Some(config.exchange.nccl_algo);
    let with_nccl_log = config.iterations <= MAX_LOGGED_ITERATIONS && config.learning.epochs.is_none();
    if !config.graphs.is_off() {
        library_defaults::capture_without_others(config.device);
    }
    let server_request = ExchangeRequest::from(config);
    let body: ServerBody = Box::new(move |world| server::run(&server_request, world));
    let servers = Some(Servers { number: config.strategy.server_ranks(), body });
    let request =
        SessionRequest { device: config.device, cores, nccl, with_nccl_log, computes: true, launcher, servers };
    Session::run(request, |session| train(config, label, session))
}

/// Trains, prints and writes; returns the reason why the run is invalid, if any.
fn train(config: &TrainConfig, label: RequestedLabel, session: &Session) -> Result<Option<String>> {
    session.own.check_dtype(config.dtype)?;
    let attempt = header::restart_history()?.interruptions.len();
    if attempt > 0 {
        lose_rank::start_clock(config.inject, attempt, session.world);
    }
    if config.fingerprint {
        shim::use_deterministic_convolutions();
    }
    let graphs = GraphUse::new(config, session)?;
    let config = &TrainConfig { graphs: graphs.choice, ..config.clone() };
    match session.device() {
        // CUDA cannot capture the default stream. Everything that autograd orders by stream is made on this one from
        // the start.
        Device::Cuda(index) if !graphs.choice.is_off() => {
            Stream::run_on_side_stream(index, || train_in_stream(config, graphs, label, session))
        }
        _ => train_in_stream(config, graphs, label, session),
    }
}

/// Trains on the current stream of the device.
fn train_in_stream(
    config: &TrainConfig,
    graphs: GraphUse,
    label: RequestedLabel,
    session: &Session,
) -> Result<Option<String>> {
    let assignment = match config.data.source() {
        DataSource::Read(files) => Some(epochs::assignment(files, config, session).context("--data")?),
        DataSource::Synthetic | DataSource::Batch(_) => None,
    };
    if let (Some(assignment), Some(_)) = (&assignment, &config.work_load) {
        assignment.check_joined("--work-load")?;
    }
    let config = config.on(session.own.kind).on_ranks(session.world.ranks())?;
    config.check_parts(config.batch_size)?;
    let config = &assignment.as_ref().map(|assignment| config.with_epochs(assignment.steps())).unwrap_or(config);
    config.check_warmup()?;
    config.trace.check(config.iterations)?;
    let layout = config.layout.resolve(config.dtype, session.own.kind);
    let pending = kernels::start(config.kernels, config.dtype, layout, session)?;
    let use_kernels = || kernels::finish(pending, config.kernels, session);
    let (mut step, division, progress, kernels) =
        allocator::returning_memory(|| prepare(config, assignment, session, use_kernels))?;
    let config = &TrainConfig { kernels: kernels.choice, ..config.clone() };
    let tuning = tune(config, session, &mut step)?;
    if let Some(progress) = &progress {
        timed_loop::rewarm(config, progress.iteration(), session, &mut step)?;
    }
    let header = header::header(
        config,
        label,
        session,
        &*step.exchange,
        Prepared { division, tuning, kernels, graphs },
        progress.as_ref(),
    )?;
    let mut timed = TimedLoop::start(session, &header, &mut step, progress)?;
    for iteration in timed.iterations() {
        timed.before(iteration)?;
        timed.run(iteration)?;
        timed.after(iteration)?;
    }
    let measured = timed.end()?;
    let checksum = step.checksum()?;
    if let Some(path) = &config.save {
        step.use_whole_weights(session.world)?;
        if session.world.rank() == 0 {
            let training_state =
                TrainingState { batches: step.batches_seen(&header, config.iterations), ..TrainingState::default() };
            model::weights_file::save(path, &step.model.tensors, &training_state)?;
        }
    }
    let failure = record::gather(session, header, &checksum, measured)?;
    step.exchange.leave()?;
    Ok(failure)
}

/// Creates the step of this rank; also returns the division of images if it is uneven, and the progress if training is
/// resumed.
fn prepare(
    config: &TrainConfig,
    assignment: Option<Assignment>,
    session: &Session,
    use_kernels: impl FnOnce() -> Result<ChosenKernels>,
) -> Result<(Step, Option<WorkDivision>, Option<SavedProgress>, ChosenKernels)> {
    let (world, device) = (session.world, session.device());
    // A rank that measures its speed alone for `--work-load auto` computes with all weights.
    let memory = match config.strategy.strategy.shards_weights() && config.work_load.is_none() {
        true => WeightMemory::Sharded,
        false => WeightMemory::Whole,
    };
    // Only rank 0 needs the file; like the record, it is on that rank's host.
    let from_checkpoint = config.learning.from_checkpoint.as_deref();
    let is_reader = world.rank() == 0 || (from_checkpoint.is_none() && memory == WeightMemory::Whole);
    let init = from_checkpoint.or(config.init.as_deref()).filter(|_| is_reader);
    let layout = config.layout.resolve(config.dtype, session.own.kind);
    let request = ModelRequest {
        model: config.model,
        options: NetworkOptions { dropout: config.dropout, recompute: config.recompute == Recompute::Block },
        seed: config.seed,
        init,
        dtype: config.dtype,
        layout,
        memory,
    };
    let load = Instant::now();
    if let Some(path) = from_checkpoint.filter(|_| world.rank() == 0) {
        checkpoint::verify(path)?;
    }
    let mut model = PreparedModel::new(&request, device)?;
    let items = assignment.as_ref().and_then(|assignment| assignment.dataset.length());
    let read = |path: &Path| SavedProgress::from_rank_0(path, &model.training_state.entries, config, items, world);
    let mut progress = from_checkpoint.map(read).transpose()?;
    let read = load.elapsed();

    heartbeat::enter(Stage::Connecting);
    // Every rank starts from rank 0's weights and running statistics.
    let whole = Some(&model.flat.weights).filter(|_| memory == WeightMemory::Whole);
    agreement::copy_from_rank_0(whole.into_iter().chain(model.statistics()), world)?;
    let initial = |take: &mut WeightTaker| {
        model.visit_initial_weights(|range, values| {
            agreement::copy_from_rank_0([values], world)?;
            take(range, values)
        })
    };
    // Before the first step, which `--work-load auto` times.
    let kernels = use_kernels()?;
    let division = work_load::divide(config, session, &model)?;
    let parameters = Parameters {
        weights: model.flat.weights.shallow_clone(),
        initial: (memory == WeightMemory::Sharded).then_some(&initial),
        rounded: model.flat.rounded.as_ref().map(Tensor::shallow_clone),
        tensors: model.flat.parameters.iter().map(Tensor::shallow_clone).collect(),
        ready_from: ReadyFrom::Backward,
        units: model.tensors.parameters.iter().rev().map(|named| named.unit).collect(),
        kept_unit: model.tensors.kept_unit,
    };
    let exchange = strategy::new(&ExchangeRequest::from(config), parameters, session)?;
    if let Some(provider) = exchange.weight_provider() {
        model.use_provider(provider)?;
    }

    heartbeat::enter(Stage::Data);
    // With fingerprints, every rank has the batch of rank 0.
    let data_rank = if config.fingerprint { 0 } else { world.rank() };
    let share = work_load::share(config, division.as_ref(), data_rank);
    let request = work_load::request(config, config.data.source(), layout, share);
    let samples = assignment.map(|assignment| ReadRequest {
        steps_before: progress.as_ref().map_or(0, SavedProgress::iteration).into(),
        ..epochs::read_request(assignment, config, session)
    });
    let batches = Batches::new(&request, samples.as_ref(), data_rank, device)?;
    let saved = std::mem::take(&mut model.training_state.entries);
    let mut step = Step::new(config, world.rank(), model, batches, share.samples, exchange)?;
    if let Some(progress) = &mut progress {
        let restore = Instant::now();
        checkpoint::restore(&mut step, &saved, world)?;
        progress.load = Seconds((read + restore.elapsed()).as_secs_f64());
    }
    Ok((step, division, progress, kernels))
}

/// Runs the search of `--autotune` and writes its log, which has no rows if nothing is exchanged, because there is
/// nothing to choose.
fn tune(config: &TrainConfig, session: &Session, step: &mut Step) -> Result<Option<Tuning>> {
    if !config.autotune || step.exchange.facts().summed_ranks == 1 {
        session.write(config.autotune_log.as_deref(), |output| AutotuneLog::default().write(output))?;
        return Ok(None);
    }
    let tuning = autotune::search(config.exchange, session.world, step)?;
    let gradients = Bytes(step.exchange.reducer().bucket_sizes().iter().map(|bytes| bytes.0).sum());
    let log = AutotuneLog::for_sizes(config, gradients, &tuning);
    session.write(config.autotune_log.as_deref(), |output| log.write(output))?;
    Ok(Some(tuning))
}
