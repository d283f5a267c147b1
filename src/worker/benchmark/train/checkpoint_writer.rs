//! Writes the checkpoints of a run during the pause between two steps, or on a thread beside the steps, and measures
//! them.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use ringmark_core::benchmark::train::{CheckpointMode, CheckpointWrite, LearningConfig, TrainConfig};
use ringmark_core::dimension::Seconds;
use ringmark_core::file::atomic_file::{self, WrittenFile};
use tch::{Kind, Tensor};

use crate::benchmark::train::agreement;
use crate::benchmark::train::checkpoint::{self, PROGRESS_TENSOR, SavedProgress};
use crate::benchmark::train::progress::Progress;
use crate::benchmark::train::step::Step;
use crate::job::session::Session;
use crate::job::world::World;
use crate::model::weights_file::{self, HostCopies, HostTensors, TrainingState};

/// State of the checkpoints on one rank.
pub struct CheckpointWriter {
    /// Complete checkpoints, with times and sizes on rank 0.
    written: Vec<CheckpointWrite>,
    pending: Option<PendingWrite>,
    copies: HostCopies,
}

/// A checkpoint whose file is being written.
struct PendingWrite {
    /// Times until training continued.
    started: CheckpointWrite,
    /// Writer; `None` on other ranks than 0, and once it has ended.
    thread: Option<JoinHandle<Result<WrittenFile>>>,
    file: WrittenFile,
}

impl CheckpointWriter {
    /// Continues after the checkpoints `written`. Rank 0 removes the partial files of a killed writer.
    pub fn new(learning: &LearningConfig, world: &World, written: Vec<CheckpointWrite>) -> CheckpointWriter {
        learning.checkpoint.iter().filter(|_| world.rank() == 0).for_each(|path| atomic_file::remove_parts(path));
        CheckpointWriter { written, pending: None, copies: HostCopies::default() }
    }

    /// Returns the complete checkpoints.
    pub fn written(&self) -> &[CheckpointWrite] {
        &self.written
    }

    /// Fails if the write beside the steps has failed.
    pub fn check(&mut self) -> Result<()> {
        match &mut self.pending {
            Some(pending) if pending.thread.as_ref().is_some_and(JoinHandle::is_finished) => pending.join(),
            _ => Ok(()),
        }
    }

    /// Waits for the pending write, if any; the wait is part of its stall. All ranks call this together.
    pub fn finish(&mut self, world: &World, progress: &Progress) -> Result<()> {
        let Some(mut pending) = self.pending.take() else { return Ok(()) };
        let started = Instant::now();
        pending.join()?;
        world.barrier();
        let [waited] = slowest(world, [started.elapsed()]);
        let stall = Seconds(pending.started.stall.0 + waited.0);
        self.add(CheckpointWrite { stall, ..pending.started }, pending.file, progress);
        Ok(())
    }

    /// Saves a checkpoint, including the batch count of running statistics, in a pause that began at `started`. The
    /// previous one must be finished. All ranks call this together, between two steps.
    pub fn save(
        &mut self,
        (step, session): (&mut Step, &Session),
        config: &TrainConfig,
        saved: &SavedProgress,
        batches: i64,
        started: Instant,
        progress: &Progress,
    ) -> Result<()> {
        let (LearningConfig { checkpoint, checkpoint_mode, .. }, world) = (&config.learning, session.world);
        let Some(path) = checkpoint else { return Ok(()) };
        let content = self.content(step, session, *checkpoint_mode, saved, batches)?;
        let collect = started.elapsed();
        let (mut thread, mut file) = (None, WrittenFile::default());
        match (content, checkpoint_mode) {
            (None, _) => {}
            (Some(content), CheckpointMode::Sync) => file = weights_file::write_checkpoint(path, content)?,
            (Some(content), CheckpointMode::Async) => {
                let path = path.clone();
                thread = Some(thread::spawn(move || weights_file::write_checkpoint(&path, content)));
            }
        }
        world.barrier();
        checkpoint::reseed(session, config, saved.iteration());
        let [stall, collect] = slowest(world, [started.elapsed(), collect]);
        let started = CheckpointWrite { iteration: saved.iteration(), stall, collect, ..CheckpointWrite::default() };
        match checkpoint_mode {
            CheckpointMode::Sync => self.add(started, file, progress),
            CheckpointMode::Async => self.pending = Some(PendingWrite { started, thread, file }),
        }
        Ok(())
    }

    /// Returns the tensors of the file on rank 0; with [`CheckpointMode::Async`] as copies, because the steps change
    /// the weights while they are written.
    fn content(
        &mut self,
        step: &mut Step,
        session: &Session,
        mode: CheckpointMode,
        saved: &SavedProgress,
        batches: i64,
    ) -> Result<Option<HostTensors>> {
        // Each rank has running statistics of different images; a resumed run starts with rank 0's.
        agreement::copy_from_rank_0(step.model.statistics(), session.world)?;
        let state = checkpoint::state(step)?;
        let is_sharded = step.use_whole_weights(session.world)?;
        let content = (session.world.rank() == 0).then(|| {
            let json = Tensor::from_slice(&serde_json::to_vec(saved)?).f_to_kind(Kind::Uint8)?;
            let state = state.into_iter().map(|(name, tensor)| (name.to_owned(), tensor));
            let entries = state.chain([(PROGRESS_TENSOR.to_owned(), json)]).collect();
            let (tensors, training_state) = (&step.model.tensors, TrainingState { batches, entries });
            match mode {
                CheckpointMode::Sync => weights_file::content(tensors, &training_state, weights_file::in_host_memory),
                CheckpointMode::Async => {
                    weights_file::content(tensors, &training_state, |name, tensor| self.copies.copy(name, tensor))
                }
            }
        });
        let content = content.transpose()?;
        if is_sharded {
            step.model.free_weights()?;
        }
        Ok(content)
    }

    fn add(&mut self, started: CheckpointWrite, file: WrittenFile, progress: &Progress) {
        let WrittenFile { bytes, write, sync } = file;
        let written = CheckpointWrite { bytes, write, sync, ..started };
        progress.print(&written.text());
        self.written.push(written);
    }
}

impl Drop for CheckpointWriter {
    /// Completes the file of a run that failed in a later step.
    fn drop(&mut self) {
        if let Some(pending) = &mut self.pending {
            // The run has failed for another reason, which is reported.
            let _ = pending.join();
        }
    }
}

impl PendingWrite {
    fn join(&mut self) -> Result<()> {
        if let Some(thread) = self.thread.take() {
            self.file = thread.join().map_err(|_| anyhow!("the thread that writes the checkpoint panicked"))??;
        }
        Ok(())
    }
}

/// Returns the longest of each time over the ranks on rank 0, and 0 on others. All ranks call this together.
fn slowest<const N: usize>(world: &World, times: [Duration; N]) -> [Seconds; N] {
    let all = world.gather_on_rank_0(&times.map(|time| time.as_secs_f64()));
    let longest = |index| all.chunks_exact(N).map(|rank| rank[index]).fold(0.0, f64::max);
    std::array::from_fn(|index| Seconds(longest(index)))
}
