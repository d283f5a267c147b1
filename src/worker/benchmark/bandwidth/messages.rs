//! The measured loop: fill, poison, meet, exchange, check; for a size or for a model's gradients.

use anyhow::{Result, bail};
use ringmark_record::benchmark::bandwidth::config::{ArraySize, Arrays, BandwidthConfig, Messages, OptimizerChoice};
use ringmark_record::benchmark::bandwidth::record::{MessageResult, Timing};
use ringmark_record::benchmark::exchange::BackendChoice;
use ringmark_record::benchmark::train::config::TrainConfig;
use ringmark_record::dimension::model::Model;
use ringmark_record::dimension::units::{Bytes, Seconds};
use ringmark_record::host::heartbeat::Stage;
use tch::{Device, Kind, Tensor};

use crate::benchmark::bandwidth::moved::Moved;
use crate::benchmark::bandwidth::task::{Comes, Task};
use crate::benchmark::bandwidth::values::{self, Compared, Deviation, Values};
use crate::exchange::backend::{Backend, select};
use crate::exchange::bucket::BucketPlan;
use crate::exchange::memory::{Memory, Shape};
use crate::ffi::shim::{self, SgdStep};
use crate::job::heartbeat;
use crate::job::session::Session;
use crate::job::world::World;
use crate::measure::timed::Timed;
use crate::model::named_tensors::{Named, Role};
use crate::model::networks;

/// A backend with memory for the largest message, and what is needed around it.
pub struct Bench<'a> {
    config: &'a BandwidthConfig,
    device: Device,
    backend: Box<dyn Backend>,
    content: Content,
    /// This rank among those that exchange: ranks that exchange nothing are each alone.
    place: (u32, u32),
    /// Ranges of the gradients; empty for sizes.
    plan: BucketPlan,
    arrays: usize,
    update: Option<WeightUpdate>,
}

/// What is exchanged, and what must come of it.
enum Content {
    /// Values that are summed, or brought together in another way.
    Reduced(Values),
    /// Values that only change places.
    Moved(Moved),
}

/// The update of training, with training's constants.
struct WeightUpdate {
    weights: Tensor,
    momenta: Tensor,
    step: SgdStep,
}

impl<'a> Bench<'a> {
    /// Called by all ranks together.
    pub fn new(config: &'a BandwidthConfig, session: &Session) -> Result<Bench<'a>> {
        let (world, device) = (session.world, session.device());
        let wire = config.exchange.wire;
        let place = match config.exchange.backend {
            BackendChoice::None => (0, 1),
            _ => (world.rank(), world.ranks()),
        };
        let (lengths, shape) = match config.messages {
            Messages::Sizes { .. } => {
                let largest = config.arrays_among(place.1).iter().map(|size| size.elements).max().unwrap_or(0);
                (Vec::new(), Shape::array(largest as usize, wire))
            }
            Messages::Gradients(model) => {
                let lengths = gradients(model, config.arrays);
                let elements = lengths.iter().sum();
                (lengths, Shape::gradients(elements, wire))
            }
        };
        let mut backend = select::new(&config.exchange, shape, session)?;
        backend.set_reduction(config.reduction);
        let content = match config.messages {
            Messages::Gradients(_) => Content::Reduced(Values::random(shape.elements, place, shape.wire, device)?),
            Messages::Sizes { .. } if config.operation.reduces() => {
                let types = (shape.wire, config.reduction);
                Content::Reduced(Values::whole(shape.elements, place, types, device, config.check)?)
            }
            Messages::Sizes { .. } => Content::Moved(Moved::new(shape.wire, device)?),
        };
        let update = match config.optimizer {
            OptimizerChoice::None => None,
            OptimizerChoice::Sgd => Some(WeightUpdate::new(shape.elements, device)?),
        };
        let plan = BucketPlan::new(&lengths, config.exchange.bucket(), config.exchange.tail());
        Ok(Bench { config, device, backend, content, place, plan, arrays: lengths.len(), update })
    }

    /// What exchanges.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Number of the model's arrays.
    pub fn arrays(&self) -> usize {
        self.arrays
    }

    /// One size, out of place and in place.
    pub fn size(&mut self, size: ArraySize, world: &World) -> Result<MessageResult> {
        let task = Task::new(self.config.operands(), size, self.place);
        let out_of_place = self.measure_size(&task, false, world)?;
        let in_place = self.measure_size(&task, true, world)?;
        Ok(self.result(size, vec![size.bytes], Some(out_of_place), Some(in_place)))
    }

    /// Every size in turn.
    pub fn sizes(&self) -> Vec<ArraySize> {
        self.config.arrays_among(self.place.1)
    }

    /// The gradients, in their buckets.
    pub fn gradients(&mut self, world: &World) -> Result<MessageResult> {
        let task = Task::all_reduces(self.plan.buckets.iter().map(|bucket| bucket.elements.clone()));
        let timing = self.measure(&task, false, world)?;
        let sides = if self.backend.memory().in_place { (None, Some(timing)) } else { (Some(timing), None) };
        // A bandwidth of gradients counts them as fp32, whatever the wire carries: that is what training waits for.
        let elements = task.elements as u64;
        let bytes = Bytes(elements * Kind::Float.elt_size_in_bytes() as u64);
        Ok(self.result(ArraySize { bytes, count: elements, elements }, self.plan.sizes(), sides.0, sides.1))
    }

    fn result(
        &mut self,
        size: ArraySize,
        buckets: Vec<Bytes>,
        out_of_place: Option<Timing>,
        in_place: Option<Timing>,
    ) -> MessageResult {
        let element = match self.backend.memory().wire.kind() {
            Kind::Half => "half",
            Kind::BFloat16 => "bfloat16",
            _ => "float",
        };
        MessageResult {
            bytes: size.bytes,
            count: size.count,
            element: element.to_owned(),
            buckets,
            out_of_place,
            in_place,
        }
    }

    /// Does it as often as was asked, call by call, and in a row where calls can be enqueued.
    fn measure_size(&mut self, task: &Task, in_place: bool, world: &World) -> Result<Timing> {
        let copies = in_place && !self.config.operation.goes_in_place();
        self.backend.memory().in_place = in_place && !copies;
        let mut timing = self.measure(task, copies, world)?;
        if self.backend.is_asynchronous() {
            let calls = self.config.iterations;
            let timed = Timed::begin(self.device, world)?;
            if copies {
                for _ in 0..calls {
                    self.start(task, copies)?;
                    // The next copy goes where this one is sent from.
                    self.backend.finish()?;
                }
            } else {
                task.collectives.iter().try_for_each(|collective| self.backend.start_in_a_row(collective, calls))?;
                self.backend.finish()?;
            }
            let own = timed.end(|| self.backend.check().map(drop))? / f64::from(calls);
            timing.in_a_row = world.gather(&[own]).concat().into_iter().map(Seconds).collect();
        }
        self.backend.memory().in_place = false;
        Ok(timing)
    }

    /// Starts it; with `copies`, from a copy of what lies where the output goes, made first.
    fn start(&mut self, task: &Task, copies: bool) -> Result<()> {
        if copies {
            let Memory { wire, sums, .. } = self.backend.memory();
            let all = 0..task.elements;
            values::narrow(wire, &all)?.f_copy_(&values::narrow(sums, &all)?)?;
        }
        task.collectives.iter().try_for_each(|collective| self.backend.start_collective(collective))
    }

    /// Does it as often as was asked.
    fn measure(&mut self, task: &Task, copies: bool, world: &World) -> Result<Timing> {
        let (mut seconds, mut deviations) = (Vec::new(), Vec::new());
        for iteration in 0..self.config.warmup + self.config.iterations {
            heartbeat::enter_in(iteration + 1, Stage::Data);
            self.fill(task, copies, iteration as usize)?;
            heartbeat::enter(Stage::AllReduce { bucket: 0 });
            let timed = Timed::begin(self.device, world)?;
            self.start(task, copies)?;
            self.backend.finish()?;
            if let Some(update) = &self.update {
                update.run(&self.backend.memory().sums)?;
            }
            let time = timed.end(|| self.backend.check().map(drop))?;
            if iteration >= self.config.warmup {
                seconds.push(time);
                if self.config.check {
                    deviations.push(self.check(task, iteration as usize)?.deviation());
                }
            }
        }
        Ok(self.timing(&seconds, &deviations, world))
    }

    /// Puts this rank's values where they are exchanged from, and destroys what was there and where the results go: what
    /// never came must not look like what came the last time.
    fn fill(&mut self, task: &Task, copies: bool, iteration: usize) -> Result<()> {
        let memory = self.backend.memory();
        let input = if copies { &memory.sums } else { memory.input() };
        values::poison(&memory.sums, task.elements)?;
        match &self.content {
            Content::Reduced(values) => values.fill(input, task.elements, iteration),
            Content::Moved(moved) => moved.fill(input, task.own.clone(), self.place.0, iteration),
        }
    }

    fn check(&mut self, task: &Task, iteration: usize) -> Result<Compared> {
        let sums = &self.backend.memory().sums;
        match (&self.content, &task.comes) {
            (Content::Reduced(values), Comes::Reduced(elements)) => values.check(sums, elements.clone(), iteration),
            (Content::Moved(moved), Comes::Moved(origins)) => moved.check(sums, origins, iteration),
            _ => bail!("values that are summed and values that are moved are not checked alike"),
        }
    }

    /// Brings all ranks' samples together.
    fn timing(&self, seconds: &[f64], deviations: &[Deviation], world: &World) -> Timing {
        let seconds = world.gather(seconds).into_iter().map(|rank| rank.into_iter().map(Seconds).collect()).collect();
        let wrong: u64 = deviations.iter().map(|deviation| deviation.wrong).sum();
        let all_wrong: f64 = world.gather(&[wrong as f64]).concat().iter().sum();
        let errors: Vec<f64> = deviations.iter().map(|deviation| deviation.error).collect();
        let of_ranks = world.gather(&errors);
        let worst = |iteration: usize| of_ranks.iter().map(|rank| rank[iteration]).fold(0.0, worse);
        Timing {
            seconds,
            in_a_row: Vec::new(),
            wrong: self.config.check.then_some(all_wrong as u64),
            error: (0..errors.len()).map(worst).collect(),
        }
    }
}

/// The larger of two errors; NaN is the largest.
fn worse(one: f64, other: f64) -> f64 {
    if one.is_nan() || other <= one { one } else { other }
}

impl WeightUpdate {
    fn new(elements: usize, device: Device) -> Result<WeightUpdate> {
        let training = TrainConfig::default();
        let zeros = || Tensor::f_zeros([elements as i64], (Kind::Float, device));
        Ok(WeightUpdate {
            weights: zeros()?,
            momenta: zeros()?,
            step: SgdStep {
                learning_rate: training.learning_rate,
                momentum: training.momentum,
                weight_decay: training.weight_decay,
            },
        })
    }

    fn run(&self, sums: &Tensor) -> Result<()> {
        shim::sgd(&self.weights, sums, &self.momenta, self.step, None)
    }
}

/// Lengths of these arrays of the model, in the order in which backward finishes them.
fn gradients(model: Model, arrays: Arrays) -> Vec<usize> {
    let tensors = networks::tensors(model);
    let is_exchanged = |named: &&Named| match arrays {
        Arrays::Weights => matches!(named.role, Role::Weight | Role::Bias),
        Arrays::All => true,
    };
    tensors.parameters.iter().rev().filter(is_exchanged).map(|named| named.tensor.numel()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// measure.py's samples in MXNet's document, and what its rule counts of other networks.
    #[test]
    fn arrays_are_those_that_measure_py_counts() {
        for (model, arrays, bytes) in [
            (Model::MxnetResnet200, 205, 257_991_328),
            (Model::MxnetInceptionV3, 96, 95_200_544),
            (Model::MxnetResnet152, 157, 240_165_536),
            (Model::MxnetResnet101, 106, 177_775_264),
            (Model::MxnetResnet50, 55, 102_015_648),
            (Model::MxnetInceptionBn, 140, 45_100_832),
            (Model::MxnetAlexnet, 16, 203_376_032),
            (Model::Vgg11, 22, 531_453_344),
            (Model::Vgg16Bn, 32, 553_430_176),
            (Model::MxnetLenet, 8, 1_724_320),
            (Model::MxnetMlp, 6, 437_544),
            (Model::Resnet50V1b, 55, 102_015_648),
        ] {
            let lengths = gradients(model, Arrays::Weights);
            assert_eq!((lengths.len(), 4 * lengths.iter().sum::<usize>()), (arrays, bytes), "{model}");
        }
        assert_eq!(gradients(Model::MxnetResnet200, Arrays::All).len(), 607);
    }

    #[test]
    fn one_destroyed_sum_is_not_outweighed() {
        for errors in [[f64::NAN, 1e-8, 0.0], [1e-8, f64::NAN, 0.0], [0.0, 1e-8, f64::NAN]] {
            assert!(errors.into_iter().fold(0.0, worse).is_nan());
        }
        assert_eq!([1e-8, 1e-3, 0.0].into_iter().fold(0.0, worse), 1e-3);
    }
}
