//! Checkpoints for bit-identical resumption: weights, state of the update, position in the data, and random numbers,
//! which follow from seed, rank and iteration.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use ringmark_core::benchmark::data_input::DataInputUse;
use ringmark_core::benchmark::train::{CheckpointWrite, EpochEnd, Iteration, Resumption, RunHeader, TrainConfig};
use ringmark_core::dimension::Seconds;
use ringmark_core::file::safetensors;
use ringmark_core::manifest::ObservedEnvironment;
use ringmark_core::options::option_table;
use serde::{Deserialize, Serialize};
use tch::Tensor;

use crate::benchmark::train::agreement;
use crate::benchmark::train::step::Step;
use crate::exchange::UpdateState;
use crate::job::session::Session;
use crate::job::world::World;

/// Progress of training in addition to its tensors, and its record so far.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SavedProgress {
    /// Ranks that trained.
    ranks: u32,
    /// Options that determine what a step computes.
    settings: BTreeMap<String, String>,
    /// Iterations of an epoch of the data.
    epoch_iterations: Option<u32>,
    /// Start of the run, seconds since 1970 UTC.
    pub started: Seconds,
    /// Resumptions so far.
    #[serde(alias = "taken_up")]
    pub resumptions: Vec<Resumption>,
    /// Hosts, devices and software of the ranks.
    pub ran_on: ObservedEnvironment,
    /// Wall clock of all iterations on rank 0.
    pub wall: Seconds,
    /// Completed epochs.
    pub epochs: Vec<EpochEnd>,
    /// Input of all ranks so far.
    #[serde(default)]
    pub input: Option<DataInputUse>,
    /// Checkpoints before this one.
    #[serde(default)]
    pub checkpoints: Vec<CheckpointWrite>,
    /// Completed iterations.
    pub iterations: Vec<Iteration>,
    /// Time to read this progress and to restore the state.
    #[serde(skip)]
    pub load: Seconds,
}

/// Name of the tensor with the progress, as JSON in bytes.
pub(super) const PROGRESS_TENSOR: &str = "place";

impl SavedProgress {
    /// Creates the progress after `iterations` of a run that took `wall`, read `input` and wrote `checkpoints`.
    pub fn new(
        header: &RunHeader,
        iterations: &[Iteration],
        epochs: &[EpochEnd],
        input: Option<DataInputUse>,
        checkpoints: &[CheckpointWrite],
        wall: Seconds,
    ) -> SavedProgress {
        SavedProgress {
            ranks: header.ranks.len() as u32,
            settings: settings(&header.config),
            epoch_iterations: header.config.learning.epoch_iterations,
            started: header.started,
            resumptions: header.resumptions.clone(),
            ran_on: ObservedEnvironment::from_record(&header.environment, &header.ranks),
            wall,
            epochs: epochs.to_vec(),
            input,
            checkpoints: checkpoints.to_vec(),
            iterations: iterations.to_vec(),
            load: Seconds::default(),
        }
    }

    /// Returns the number of completed iterations.
    pub fn iteration(&self) -> u32 {
        self.iterations.len() as u32
    }

    /// Returns the progress in the checkpoint that contains these tensors on rank 0, which alone reads it and keeps the
    /// numbers of every rank. All ranks call this together. `items` is the number of images or sequences of the
    /// data, if known.
    ///
    /// # Errors
    ///
    /// Fails if the file at `path` is not a checkpoint, or is one of training with other options or images.
    pub fn from_rank_0(
        path: &Path,
        tensors: &HashMap<String, Tensor>,
        config: &TrainConfig,
        items: Option<u64>,
        world: &World,
    ) -> Result<SavedProgress> {
        let read = || SavedProgress::read(path, tensors, config, items, world.ranks());
        let mut own = (world.rank() == 0).then(read).transpose()?;
        let sent = own.as_mut().map_or_else(|| Ok(String::new()), SavedProgress::encode_for_other_ranks)?;
        let received = world.broadcast_text(sent);
        own.map_or_else(|| Ok(serde_json::from_str(&received)?), Ok)
    }

    /// Returns this progress as JSON without the per-rank numbers of its iterations: only rank 0 writes them, and with
    /// 65,536 ranks they take 6 MB per iteration.
    fn encode_for_other_ranks(&mut self) -> Result<String> {
        let head = |iteration: &Iteration| {
            let Iteration { iteration, loss_scale, skipped, .. } = *iteration;
            Iteration { iteration, loss_scale, skipped, ..Iteration::default() }
        };
        let heads = self.iterations.iter().map(head).collect();
        let whole = mem::replace(&mut self.iterations, heads);
        let text = serde_json::to_string(self);
        self.iterations = whole;
        Ok(text?)
    }

    fn read(
        path: &Path,
        tensors: &HashMap<String, Tensor>,
        config: &TrainConfig,
        items: Option<u64>,
        ranks: u32,
    ) -> Result<SavedProgress> {
        let text = tensors
            .get(PROGRESS_TENSOR)
            .with_context(|| format!("{} contains only weights, no training state: use --init", path.display()))?;
        let progress: SavedProgress = serde_json::from_slice(&Vec::<u8>::try_from(text)?).with_context(|| {
            format!("{} is not a checkpoint of this version: start without --from-checkpoint", path.display())
        })?;
        ensure!(
            progress.ranks == ranks,
            "--from-checkpoint {}: saved by {} ranks, but this run has {ranks}: use the same number of ranks",
            path.display(),
            progress.ranks
        );
        ensure!(
            progress.iteration() <= config.iterations,
            "--from-checkpoint {}: saved after iteration {}, but this run has only {}: raise --iters or --epochs",
            path.display(),
            progress.iteration(),
            config.iterations
        );
        ensure!(
            progress.epoch_iterations == config.learning.epoch_iterations,
            "--from-checkpoint {}: saved with {} iterations per epoch, but this run has {}: use the same data",
            path.display(),
            progress.epoch_iterations.unwrap_or_default(),
            config.learning.epoch_iterations.unwrap_or_default()
        );
        if let Some(input) = &progress.input {
            let [before, now] = [input.items, items].map(|items| {
                let samples = config.sample_size().samples();
                items.map_or_else(|| "records without an index".to_owned(), |items| format!("{items} {samples}"))
            });
            ensure!(
                before == now,
                "--from-checkpoint {}: saved with {before}, but --data has {now}: use the same data",
                path.display()
            );
        }
        let (before, now) = (&progress.settings, settings(config));
        let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        // A checkpoint of an earlier version lacks options added since, which had the effect of their defaults.
        let defaults = settings(&TrainConfig::default());
        for name in names {
            let value = |settings: &BTreeMap<String, String>| {
                let text = settings.get(name).or_else(|| defaults.get(name)).filter(|text| !text.is_empty());
                text.cloned().unwrap_or_else(|| "none".to_owned())
            };
            let (before, now) = (value(before), value(&now));
            // The checkpoint contains the resolved choice, which is not known yet.
            let is_open = option_table::find::<TrainConfig>(name).is_some_and(|option| option.is_resolved(&now));
            ensure!(
                before == now || is_open,
                "--from-checkpoint {}: saved with --{name} {before}, but this run has {now}: use the options of the \
                 run that saved it",
                path.display()
            );
        }
        Ok(progress)
    }
}

/// Returns the options that determine what a step computes.
fn settings(config: &TrainConfig) -> BTreeMap<String, String> {
    option_table::fixed_settings(config).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Fails if the checkpoint at `path` is damaged. The loader of the weights reports a path that is not a file.
pub fn verify(path: &Path) -> Result<()> {
    let checked = if path.is_file() { safetensors::verify(path) } else { Ok(()) };
    checked.map_err(|error| {
        anyhow!("--from-checkpoint {}: {error:#}: copy the file again, or remove it to begin again", path.display())
    })
}

/// Restores the state of the update from the file that rank 0's model was loaded from. All ranks call this together.
pub fn restore(step: &mut Step, saved: &HashMap<String, Tensor>, world: &World) -> Result<()> {
    let state = state(step)?;
    for (name, tensor) in state.iter().filter(|_| world.rank() == 0) {
        let saved = saved.get(*name);
        let saved = saved.with_context(|| format!("--from-checkpoint: the file does not contain {name}"))?;
        ensure!(
            saved.size() == tensor.size(),
            "--from-checkpoint: {name} has shape {:?}, expected {:?}",
            saved.size(),
            tensor.size()
        );
        tensor.shallow_clone().f_copy_(saved)?;
    }
    agreement::copy_from_rank_0(state.iter().map(|(_, tensor)| tensor), world)?;
    step.exchange.set_state(&state)
}

/// Returns the state of the update. All ranks call this together.
pub(super) fn state(step: &mut Step) -> Result<UpdateState> {
    step.exchange.state()?.context("cannot save a checkpoint: this exchange has state outside the ranks' optimizers")
}

/// Seeds the random numbers of dropout for the steps after `iteration`: the same for a resumed and an uninterrupted
/// run.
pub fn reseed(session: &Session, config: &TrainConfig, iteration: u32) {
    // An odd constant (Knuth, volume 3, 6.4) separates neighboring ranks and iterations.
    let number =
        (i64::from(session.world.rank()) << 32 | i64::from(iteration)).wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64);
    tch::manual_seed(config.seed.wrapping_add(number));
}

#[cfg(test)]
mod tests {
    use ringmark_core::dimension::Phases;

    use super::*;

    /// Creates the progress after two iterations of this number of ranks.
    fn progress(ranks: usize) -> SavedProgress {
        let times = || vec![Seconds(0.25); ranks];
        let iteration = |iteration| Iteration {
            iteration,
            step: times(),
            phases: Phases::from_fn(|_| times()),
            before_allreduce: times(),
            loss: vec![2.5; ranks],
            loss_scale: 128.0,
            skipped: iteration == 2,
        };
        SavedProgress { iterations: vec![iteration(1), iteration(2)], ..SavedProgress::default() }
    }

    #[test]
    fn broadcast_progress_size_is_independent_of_rank_count() {
        let [mut few, mut many] = [progress(2), progress(4096)];
        let text = many.encode_for_other_ranks().expect("JSON");
        assert_eq!(text, few.encode_for_other_ranks().expect("JSON"));
        assert_eq!(many.iterations, progress(4096).iterations, "rank 0 keeps its own");
        let received: SavedProgress = serde_json::from_str(&text).expect("progress");
        assert_eq!(received.iteration(), 2);
        let heads: Vec<_> = received.iterations.iter().map(|at| (at.iteration, at.loss_scale, at.skipped)).collect();
        assert_eq!(heads, [(1, 128.0, false), (2, 128.0, true)]);
        assert!(received.iterations.iter().all(|at| at.step.is_empty() && at.loss.is_empty()));
    }
}
