//! End of an epoch: mean loss and validation on other images or tokens.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use ringmark_core::benchmark::data_input::DataSource;
use ringmark_core::benchmark::train::{EpochEnd, Iteration, RunHeader, TrainConfig, Validation};
use ringmark_core::dimension::{DeviceKind, Seconds};
use ringmark_core::host::Stage;
use ringmark_core::stats::summary::mean;
use ringmark_input::dataset::Dataset;
use tch::{Kind, Tensor};

use crate::benchmark::train::{agreement, work_load};
use crate::data::assignment::{Assignment, Receiver};
use crate::data::batch::ReadRequest;
use crate::data::reader::DataReader;
use crate::job::heartbeat;
use crate::job::session::Session;
use crate::model::prepared::PreparedModel;

/// The epochs of a run.
pub struct Epochs {
    /// Iterations per epoch; `None` without data files.
    iterations: Option<u32>,
    validation: Option<Assignment>,
    /// Completed epochs.
    pub ends: Vec<EpochEnd>,
}

impl Epochs {
    /// Creates the epochs of a run that continues after `ends`.
    pub fn new(config: &TrainConfig, session: &Session, ends: Vec<EpochEnd>) -> Result<Epochs> {
        let validation = match config.learning.validate.source() {
            DataSource::Read(files) => Some(assignment(files, config, session).context("--validate")?),
            DataSource::Synthetic => None,
            DataSource::Batch(file) => bail!("--validate {}: use image files, not a single batch", file.display()),
        };
        // Reject unsuitable data now, not at the end of an epoch.
        let try_out = |assignment: &Assignment| start(assignment.clone(), config, session).map(drop);
        validation.as_ref().map(try_out).transpose().context("--validate")?;
        // Asynchronous ranks have no common end of an epoch.
        let is_synchronous = !config.strategy.strategy.is_asynchronous();
        Ok(Epochs { iterations: config.learning.epoch_iterations.filter(|_| is_synchronous), validation, ends })
    }

    /// Returns true if `iteration` is the last of an epoch.
    pub fn end_at(&self, iteration: u32) -> bool {
        self.iterations.is_some_and(|epoch| iteration.is_multiple_of(epoch))
    }

    /// Records the end of the epoch that `iterations`, all of the run so far, end with. All ranks call this together.
    pub fn end(
        &mut self,
        session: &Session,
        header: &RunHeader,
        model: &PreparedModel,
        iterations: &[Iteration],
    ) -> Result<&EpochEnd> {
        let epoch = self.iterations.context("epochs need image files")?;
        let own = &iterations[iterations.len() - epoch as usize..];
        let global_loss = |iteration: &Iteration| header.global_loss(&iteration.loss).unwrap_or(f64::NAN);
        let loss = mean(&own.iter().map(global_loss).collect::<Vec<f64>>()).filter(|loss| loss.is_finite());
        let validation = self.validation.clone();
        let validation =
            validation.map(|assignment| validate(session, &header.config, model, assignment)).transpose()?;
        let iteration = iterations.len() as u32;
        Ok(self.ends.push_mut(EpochEnd { epoch: iteration / epoch, iteration, loss, validation }))
    }
}

/// Distributes the images or sequences of `files` evenly over the ranks. All ranks call this together.
///
/// # Errors
///
/// Fails if files cannot be read or differ from those of rank 0.
pub fn assignment(files: &[PathBuf], config: &TrainConfig, session: &Session) -> Result<Assignment> {
    let world = session.world;
    let size = config.sample_size();
    let dataset = Dataset::open_samples(files, size, config.input.limits())?;
    let items =
        dataset.length().map_or_else(|| "sequential records".to_owned(), |items| format!("{items} {}", size.samples()));
    let all = world.gather_text(&format!("{}: {items}", dataset.description()));
    let own = &all[world.rank() as usize];
    ensure!(
        own == &all[0],
        "rank {} on host {} found {own}, but rank 0 found {}: use the same files on every host",
        world.rank(),
        world.host(),
        all[0]
    );
    let receiver = Receiver { rank: world.rank(), ranks: world.ranks(), samples: config.batch_size };
    let longest = |steps: u64| world.gather(&[steps as f64]).concat().into_iter().fold(0.0, f64::max) as u64;
    Assignment::new(dataset, receiver, longest)
}

/// Returns the request of this rank for the data of `assignment`, from the first one on.
pub fn read_request(assignment: Assignment, config: &TrainConfig, session: &Session) -> ReadRequest {
    let own_threads = match session.own.kind {
        DeviceKind::Cpu => session.own.cores.threads,
        // The compute threads are mostly idle with a GPU.
        DeviceKind::Cuda => session.own.cores.part,
    };
    ReadRequest {
        assignment,
        config: config.input,
        threads: config.input.decode_threads.unwrap_or(own_threads),
        global_batch: config.joined_batch(session.world.ranks()),
        steps_before: 0,
        is_validation: false,
    }
}

/// Starts reading the images or sequences that this rank predicts.
fn start(assignment: Assignment, config: &TrainConfig, session: &Session) -> Result<DataReader> {
    let world = session.world;
    let layout = config.layout.resolve(config.dtype, session.own.kind);
    let share = work_load::share(config, None, world.rank());
    let request = work_load::request(config, config.learning.validate.source(), layout, share);
    let read = ReadRequest { is_validation: true, ..read_request(assignment, config, session) };
    DataReader::start(&request, &read, session.device())
}

/// Predicts all images or sequences once, each rank its part; running statistics are rank 0's.
fn validate(
    session: &Session,
    config: &TrainConfig,
    model: &PreparedModel,
    assignment: Assignment,
) -> Result<Validation> {
    heartbeat::enter(Stage::Data);
    let started = Instant::now();
    let (world, device) = (session.world, session.device());
    agreement::copy_from_rank_0(model.statistics(), world)?;
    let steps = assignment.steps();
    let mut reader = start(assignment, config, session)?;
    let mut predicted = 0;
    let sums = Tensor::f_zeros([3], (Kind::Double, device))?;
    let _no_gradient = tch::no_grad_guard();
    model.round()?;
    for _ in 0..steps {
        reader.advance()?;
        // A rank may have no image of the last batch.
        let counted = reader.counted() as i64;
        predicted += counted;
        let batch = reader.current()?;
        let labels = batch.targets.f_narrow(0, 0, counted)?;
        let batch_sums = model.validation_sums(&batch.inputs, &labels)?;
        let _ = sums.shallow_clone().f_add_(&batch_sums)?;
    }
    let mut own = Vec::<f64>::try_from(&sums)?;
    own.extend([predicted as f64, reader.used().own.skipped as f64]);
    let all = world.gather(&own);
    let total = |number: usize| all.iter().map(|rank| rank[number]).sum::<f64>();
    let mean = |number: usize| total(number) / total(3);
    let has_classes = config.model.facts().images().is_some();
    Ok(Validation {
        samples: total(3) as u64,
        skipped: total(4) as u64,
        loss: Some(mean(0)).filter(|loss| loss.is_finite()),
        top_1: has_classes.then(|| mean(1)),
        top_5: has_classes.then(|| mean(2)),
        time: Seconds(started.elapsed().as_secs_f64()),
    })
}
