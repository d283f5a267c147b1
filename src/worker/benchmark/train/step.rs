//! The body of the hot loop: forward, backward with the exchange inside it, update.

use std::ops::Range;

use anyhow::{Context, Result};
use ringmark_core::benchmark::train::{Fault, RankFingerprints, RunHeader, TrainConfig};
use ringmark_core::dimension::{Phase, Seconds};
use ringmark_core::host::Stage;
use tch::{Device, Kind, Tensor};

use crate::benchmark::train::graphs::{self, CapturedStep};
use crate::data::Batches;
use crate::data::batch::Batch;
use crate::exchange::GradientExchange;
use crate::exchange::memory::narrow;
use crate::exchange::reducer::BackwardPass;
use crate::ffi::torch::graph::{Graph, GraphPool};
use crate::ffi::torch::shim;
use crate::job::heartbeat;
use crate::job::world::World;
use crate::measure::fingerprint::{FingerprintLog, flip_bit};
use crate::measure::mark::Mark;
use crate::measure::repeated;
use crate::measure::step_timer::{DeviceValues, InBackward, MarkSetter, StepTimer};
use crate::measure::timed::Timed;
use crate::model::network::Mode;
use crate::model::prepared::PreparedModel;
use crate::model::tensor_hash::TensorHash;

/// State of the training loop that one iteration uses.
pub struct Step {
    pub model: PreparedModel,
    pub exchange: Box<dyn GradientExchange>,
    pub batches: Batches,
    mode: Mode,
    label_smoothing: f64,
    /// Parts of the rank's batch, each computed in one pass.
    parts: Vec<BatchPart>,
    /// Recorded if there is no loss scaler.
    one: Tensor,
    zero: Tensor,
    faults: Faults,
    fingerprints: Option<FingerprintLog>,
    /// Replayed instead of running forward and backward.
    captured: Option<CapturedStep>,
}

/// Part of a rank's batch that one forward and backward pass computes.
struct BatchPart {
    samples: Range<i64>,
    /// Its images divided by those of the batch.
    share: f64,
    /// Weight of its gradient: its number of images divided by those that the exchange averages per rank. `None` if it
    /// is 1.
    weight: Option<Tensor>,
}

/// Faults of `--inject` that apply to this rank.
pub struct Faults {
    overflow: Option<u32>,
    /// Extra time of forward, as a fraction of its duration.
    slower: Option<f64>,
    flip: Option<Flip>,
}

/// Bit of the gradient that is flipped in an iteration.
struct Flip {
    iteration: u32,
    bit: u32,
}

impl Step {
    /// Creates the step of `rank`, whose batches have `samples` images.
    pub fn new(
        config: &TrainConfig,
        rank: u32,
        model: PreparedModel,
        batches: Batches,
        samples: u32,
        exchange: Box<dyn GradientExchange>,
    ) -> Result<Step> {
        // If nothing is summed, every rank trains alone on its own batch.
        let even = if exchange.facts().summed_ranks > 1 { config.batch_size } else { samples };
        let scalar = |value: f64| Tensor::f_full([] as [i64; 0], value, (Kind::Float, model.device()));
        let part = |of_part: Range<u32>| -> Result<BatchPart> {
            let count = of_part.len() as f64;
            let weight = (of_part.len() as u32 != even).then(|| count / f64::from(even));
            Ok(BatchPart {
                samples: of_part.start.into()..of_part.end.into(),
                share: count / f64::from(samples),
                weight: weight.map(scalar).transpose()?,
            })
        };
        let fingerprints =
            config.fingerprint.then(|| FingerprintLog::new(config.iterations, model.device())).transpose()?;
        let parts = parts_of(samples, config.accumulate).map(part).collect::<Result<_>>()?;
        Ok(Step {
            one: scalar(1.0)?,
            zero: scalar(0.0)?,
            parts,
            model,
            exchange,
            batches,
            mode: mode(config),
            label_smoothing: config.learning.label_smoothing,
            faults: Faults::for_rank(rank, config.inject),
            fingerprints,
            captured: None,
        })
    }

    pub fn device(&self) -> Device {
        self.model.device()
    }

    /// Returns true if the ranks have parts of the weights, of which the model of rank 0 then has a copy in host memory.
    /// All ranks call this together.
    pub fn use_whole_weights(&mut self, world: &World) -> Result<bool> {
        let parameters = &self.model.tensors.parameters;
        let elements: usize = parameters.iter().map(|named| named.tensor.numel()).sum();
        let mut whole: Option<Tensor> = None;
        let is_sharded = self.exchange.visit_weights(&mut |range, part| {
            if world.rank() > 0 {
                return Ok(());
            }
            let zeros = || Tensor::f_zeros([elements as i64], (Kind::Float, Device::Cpu));
            let whole = match &mut whole {
                Some(whole) => whole,
                none => none.insert(zeros()?),
            };
            Ok(narrow(whole, range)?.f_copy_(part)?)
        })?;
        whole.map_or(Ok(()), |weights| self.model.use_weights(weights))?;
        Ok(is_sharded)
    }

    /// Returns a hash of all weights. All ranks call this together.
    pub fn checksum(&mut self) -> Result<String> {
        let mut hash = TensorHash::default();
        if !self.exchange.visit_weights(&mut |_, part| hash.add(part))? {
            hash.add(&self.model.flat.weights)?;
        }
        Ok(hash.text())
    }

    /// Runs iteration `iteration`, counted from 1. On CUDA this returns once all work is enqueued.
    pub fn run(&mut self, iteration: u32, timer: &mut StepTimer) -> Result<()> {
        let mut marks = timer.begin()?;
        heartbeat::enter_in(iteration, Stage::Data);
        if self.batches.advance()? {
            if let Some(captured) = &self.captured {
                captured.load(self.batches.current()?)?;
            }
            marks.end_of(Phase::Input)?;
        }
        let (loss, in_backward) = match &self.captured {
            Some(captured) => {
                heartbeat::enter(Stage::Forward);
                let loss = captured.forward()?;
                marks.end_of(Phase::Forward)?;
                heartbeat::enter(Stage::Backward);
                captured.backward()?;
                marks.end_of(Phase::Backward)?;
                (loss, self.exchange.reducer().replayed())
            }
            None => {
                repeated::collect();
                let loss = self.passes(iteration, Some(&mut marks))?;
                let (repeated, weight_waits) = (repeated::take(), self.exchange.take_weight_waits());
                let in_backward = InBackward { repeated, weight_waits, ..self.exchange.reducer().in_backward() };
                self.inspect_gradients(iteration)?;
                self.exchange.finish(Some(iteration))?;
                (loss, in_backward)
            }
        };
        marks.end_of(Phase::ExposedAllreduce)?;

        heartbeat::enter(Stage::Optimizer);
        self.exchange.update(iteration)?;
        if self.exchange.rounds_weights() {
            self.model.flat.skip_next_rounding();
        }
        if let Some(log) = &self.fingerprints {
            log.add_weights(iteration, &self.model.flat.weights)?;
        }
        marks.end_of(Phase::Optimizer)?;

        let (loss_scale, found_inf) = match self.exchange.loss_scaler() {
            Some(scaler) => (&scaler.scale, &scaler.found_inf),
            None => (&self.one, &self.zero),
        };
        timer.end(marks, in_backward, DeviceValues { loss: &loss, loss_scale, found_inf })
    }

    /// Flips a bit of the gradients if requested, and adds their fingerprint. Nothing is exchanged yet.
    fn inspect_gradients(&self, iteration: u32) -> Result<()> {
        if let Some(Flip { bit, .. }) = self.faults.flip.as_ref().filter(|flip| flip.iteration == iteration) {
            let lengths = self.model.flat.parameters.iter().map(Tensor::numel);
            let places = lengths.scan(0, |end, length| {
                *end += length;
                Some((length, *end - length))
            });
            let (_, first) = places.max_by_key(|(length, _)| *length).unwrap_or_default();
            flip_bit(&self.exchange.reducer().wire(), first, *bit)?;
        }
        let wire = || self.exchange.reducer().wire();
        self.fingerprints.as_ref().map_or(Ok(()), |log| log.add_gradients(iteration, &wire()))
    }

    /// Returns the fingerprints of all iterations, if requested; waits for the device.
    pub fn fingerprints(&self) -> Result<Option<RankFingerprints>> {
        self.fingerprints.as_ref().map(FingerprintLog::end).transpose()
    }

    /// Runs forward, backward and exchange without the update: only running statistics change.
    fn warm_up(&mut self) -> Result<()> {
        self.passes(0, None).map(drop)?;
        // Belongs to no iteration.
        drop(self.exchange.take_weight_waits());
        self.exchange.finish(None)
    }

    /// Runs forward and backward of every part of the batch; the exchange starts in the last backward. Returns the mean
    /// loss over the batch.
    fn passes(&mut self, iteration: u32, mut marks: Option<&mut MarkSetter>) -> Result<Tensor> {
        let count = self.parts.len();
        let mut mean: Option<Tensor> = None;
        for index in 0..count {
            let pass = BackwardPass { is_first: index == 0, is_last: index + 1 == count };
            heartbeat::enter(Stage::Forward);
            let loss = self.forward(index)?;
            if let Some(marks) = &mut marks {
                self.faults.slow_down(marks)?;
                marks.end_of(Phase::Forward)?;
            }
            heartbeat::enter(Stage::Backward);
            self.exchange.reducer().begin(pass)?;
            self.backward(&loss, index, iteration)?;
            if let Some(marks) = &mut marks {
                marks.end_of(Phase::Backward)?;
            }
            if !pass.is_last {
                self.exchange.reducer().end_of_pass()?;
                if let Some(marks) = marks.as_mut().filter(|_| self.exchange.reducer().sink_facts().exchanges_passes) {
                    marks.end_of(Phase::ExposedAllreduce)?;
                }
            }
            let loss = if count == 1 { loss } else { loss.detach().f_mul_scalar(self.parts[index].share)? };
            mean = Some(match mean {
                None => loss,
                Some(sum) => sum.f_add(&loss)?,
            });
        }
        mean.context("the batch has no images")
    }

    /// Runs a rehearsal that all ranks start together; returns this rank's time. The device is idle afterwards.
    pub fn timed_rehearsal(&mut self, world: &World) -> Result<Seconds> {
        let timed = Timed::begin(self.device(), world)?;
        self.warm_up()?;
        timed.end(|| self.exchange.reducer().check().map(drop))
    }

    /// Returns the number of batches in the running statistics after `iteration`.
    pub fn batches_seen(&self, header: &RunHeader, iteration: u32) -> i64 {
        let own = if header.config.freeze_batch_norm { 0 } else { iteration - header.iterations_before() };
        self.model.training_state.batches + i64::from(own) * self.parts.len() as i64
    }

    pub fn is_captured(&self) -> bool {
        self.captured.is_some()
    }

    /// Captures forward and backward, which later steps replay, without computing a step. All ranks call this together,
    /// between two steps. Returns the reason if a rank failed: then no rank has graphs.
    pub fn capture(&mut self, world: &World) -> Result<Option<String>> {
        // The capturing thread must not query an event, so no sum may be pending.
        Mark::set(self.device())?.wait(|| Ok(()))?;
        self.exchange.reducer().check()?;
        let is_fixed = matches!(self.batches, Batches::Fixed(_));
        let batch = graphs::static_batch(self.batches.current()?, is_fixed)?;
        let (model, mode, label_smoothing) = (&self.model, self.mode, self.label_smoothing);
        let forward = GraphPool::new().and_then(|pool| {
            let (graph, loss) = Graph::capture(pool, || loss(model, &batch, mode, label_smoothing))?;
            Ok((pool, graph, loss))
        });
        // A rank must not capture sums that another will not replay.
        if let Some(reason) = graphs::first_failure(&forward, world) {
            return Ok(Some(reason));
        }
        let (pool, forward, loss) = forward?;
        self.exchange.reducer().set_capturing(true);
        let backward = Graph::capture(pool, || {
            self.exchange.reducer().begin(BackwardPass::ONLY)?;
            self.backward(&loss, 0, 0)?;
            self.exchange.finish(None)
        });
        self.exchange.reducer().set_capturing(false);
        if let Some(reason) = graphs::first_failure(&backward, world) {
            // The gradients that backward left would be added to those of the next step.
            shim::drop_gradients(&self.model.flat.parameters)?;
            return Ok(Some(reason));
        }
        self.captured = Some(CapturedStep::new(batch, &loss, forward, backward?.0));
        Ok(None)
    }

    fn forward(&mut self, part: usize) -> Result<Tensor> {
        if part > 0 {
            // Only an update changes the weights.
            self.model.flat.skip_next_rounding();
        }
        let whole = self.batches.current()?;
        let batch = match &self.parts[..] {
            [_] => whole,
            parts => &whole.part(&parts[part].samples)?,
        };
        loss(&self.model, batch, self.mode, self.label_smoothing)
    }

    fn backward(&self, loss: &Tensor, part: usize, iteration: u32) -> Result<()> {
        if self.faults.overflow == Some(iteration) {
            return shim::backward(loss, Some(&loss.f_full_like(f64::INFINITY)?));
        }
        backward(loss, self.exchange.loss_scaler().map(|scaler| &scaler.scale), self.parts[part].weight.as_ref())
    }
}

/// Divides a batch into `count` parts whose sizes differ by at most one image.
fn parts_of(samples: u32, count: u32) -> impl Iterator<Item = Range<u32>> {
    let bound = move |part: u32| (u64::from(samples) * u64::from(part) / u64::from(count)) as u32;
    (0..count).map(move |part| bound(part)..bound(part + 1))
}

pub fn mode(config: &TrainConfig) -> Mode {
    if config.freeze_batch_norm { Mode::FrozenStatistics } else { Mode::Training }
}

/// Returns the mean cross entropy over the batch. `label_smoothing` is the share of each label spread evenly over all
/// classes.
pub fn loss(model: &PreparedModel, batch: &Batch, mode: Mode, label_smoothing: f64) -> Result<Tensor> {
    model.round()?;
    model.loss(&batch.inputs, &batch.targets, label_smoothing, mode)
}

/// Runs backward of the loss times `scale` and `weight`, which default to 1. The exchange sums the ranks' gradients and
/// divides by the number of ranks; with weights of images over an even share, the result is the mean over the joined
/// batch.
pub fn backward(loss: &Tensor, scale: Option<&Tensor>, weight: Option<&Tensor>) -> Result<()> {
    match (scale, weight) {
        (Some(scale), Some(weight)) => shim::backward(loss, Some(&scale.f_mul(weight)?)),
        (one, other) => shim::backward(loss, one.or(other)),
    }
}

impl Faults {
    pub fn for_rank(rank: u32, inject: Option<Fault>) -> Faults {
        let (mut overflow, mut slower, mut flip) = (None, None, None);
        match inject {
            Some(Fault::Overflow { iteration }) if rank == 0 => overflow = Some(iteration),
            Some(Fault::Slow { rank: slow, percent }) if slow == rank => slower = Some(f64::from(percent) / 100.0),
            Some(Fault::Flip { rank: of, iteration, bit }) if of == rank => flip = Some(Flip { iteration, bit }),
            _ => {}
        }
        Faults { overflow, slower, flip }
    }

    /// Extends forward, which began with `marks`, by the injected delay.
    pub fn slow_down(&self, marks: &MarkSetter) -> Result<()> {
        self.slower.map_or(Ok(()), |fraction| marks.spin(fraction))
    }
}
