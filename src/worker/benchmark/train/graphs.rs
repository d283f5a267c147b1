//! CUDA graphs of a training step: one of forward, one of backward including the exchange. The update takes only a few
//! launches and its learning rate comes from the host, so it is not captured.

use anyhow::{Result, bail};
use ringmark_core::benchmark::train::TrainConfig;
use ringmark_core::benchmark::train::config::GRAPH_WARMUP;
use ringmark_core::dimension::{DeviceKind, GraphChoice};
use tch::Tensor;

use crate::data::batch::Batch;
use crate::ffi::torch::graph::Graph;
use crate::job::session::Session;
use crate::job::world::World;

/// Steps before a capture: cuDNN's search, libraries' workspaces and NCCL's connections cannot be captured.
const EAGER_STEPS: u32 = GRAPH_WARMUP - 1;

/// The outcome of `--graphs`.
#[derive(Debug, Clone)]
pub struct GraphUse {
    /// `auto` until the capture.
    pub choice: GraphChoice,
    /// The reason why `auto` uses no graph on a GPU.
    pub no_graph: Option<String>,
}

impl GraphUse {
    /// Returns the choice for this run before its first step. All ranks make the same decision.
    ///
    /// # Errors
    ///
    /// Fails if graphs are required and the run excludes them.
    pub fn new(config: &TrainConfig, session: &Session) -> Result<GraphUse> {
        let device = session.own.kind;
        let choice = config.graphs.on(device);
        if choice.is_off() {
            return Ok(GraphUse { choice, no_graph: None });
        }
        match config.graph_exclusion(device == DeviceKind::Cpu) {
            Some(reason) => GraphUse { choice, no_graph: None }.without(reason),
            None => Ok(GraphUse { choice, no_graph: None }),
        }
    }

    /// Returns the choice of a run that cannot use graphs.
    ///
    /// # Errors
    ///
    /// Fails if graphs are required.
    pub fn without(self, reason: String) -> Result<GraphUse> {
        if self.choice == GraphChoice::On {
            bail!("--graphs on: {reason}");
        }
        Ok(GraphUse { choice: GraphChoice::Off, no_graph: Some(reason) })
    }

    /// Returns the iteration before which the step is captured, in a run that continues after `before` iterations and
    /// has rehearsed its warm-up again; `None` if it is not captured.
    pub fn capture_before(&self, config: &TrainConfig, before: u32) -> Option<u32> {
        let rehearsed = config.warmup.min(before);
        (!self.choice.is_off()).then(|| before + EAGER_STEPS.saturating_sub(rehearsed) + 1)
    }
}

/// Returns the error of the first rank whose capture failed, the same on all ranks. All ranks call this together.
pub fn first_failure<R>(own: &Result<R>, world: &World) -> Option<String> {
    let own = own.as_ref().err().map_or_else(String::new, |error| format!("{error:#}"));
    let reasons = world.gather_text(&own);
    let (rank, reason) = reasons.iter().enumerate().find(|(_, reason)| !reason.is_empty())?;
    Some(format!("rank {rank} cannot capture a CUDA graph: {}", reason.lines().next().unwrap_or_default()))
}

pub struct CapturedStep {
    batch: Batch,
    loss: Tensor,
    forward: Graph,
    backward: Graph,
}

impl CapturedStep {
    pub fn new(batch: Batch, loss: &Tensor, forward: Graph, backward: Graph) -> CapturedStep {
        // Detached, because the autograd nodes of backward are no longer needed.
        CapturedStep { batch, loss: loss.detach(), forward, backward }
    }

    /// Copies `batch` to the memory that forward reads, unless it is already there.
    pub fn load(&self, batch: &Batch) -> Result<()> {
        for (to, from) in [(&self.batch.inputs, &batch.inputs), (&self.batch.targets, &batch.targets)] {
            if to.data_ptr() != from.data_ptr() {
                to.shallow_clone().f_copy_(from)?;
            }
        }
        Ok(())
    }

    /// Replays forward; returns the loss, which the next replay overwrites.
    pub fn forward(&self) -> Result<Tensor> {
        self.forward.replay()?;
        Ok(self.loss.shallow_clone())
    }

    pub fn backward(&self) -> Result<()> {
        self.backward.replay()
    }
}

/// Returns a batch in memory that no other step uses: `batch` itself if every step uses the same one.
pub fn static_batch(batch: &Batch, is_fixed: bool) -> Result<Batch> {
    let own = |tensor: &Tensor| -> Result<Tensor> {
        if is_fixed {
            return Ok(tensor.shallow_clone());
        }
        let mut own = tensor.f_empty_like()?;
        own.f_copy_(tensor)?;
        Ok(own)
    };
    Ok(Batch { inputs: own(&batch.inputs)?, targets: own(&batch.targets)? })
}
