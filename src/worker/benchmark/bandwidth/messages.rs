//! The measured loop: fill, poison, meet, sum, check; for a size or for a model's gradients.

use std::ops::Range;

use anyhow::Result;
use ringmark_record::benchmark::bandwidth::config::{Arrays, BandwidthConfig, Messages, OptimizerChoice};
use ringmark_record::benchmark::bandwidth::record::{MessageResult, Timing};
use ringmark_record::benchmark::exchange::BackendChoice;
use ringmark_record::benchmark::train::config::TrainConfig;
use ringmark_record::dimension::model::Model;
use ringmark_record::dimension::units::{Bytes, Seconds};
use ringmark_record::host::heartbeat::Stage;
use tch::{Device, Kind, Tensor};

use crate::benchmark::bandwidth::values::{self, Deviation, Values};
use crate::exchange::backend::{Backend, select};
use crate::exchange::bucket::BucketPlan;
use crate::exchange::collective::Collective;
use crate::exchange::memory::Shape;
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
    values: Values,
    /// Ranges of the gradients; empty for sizes.
    plan: BucketPlan,
    arrays: usize,
    update: Option<WeightUpdate>,
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
        let (lengths, shape) = match config.messages {
            Messages::Sizes { .. } => {
                let bytes = Shape::array(1, wire).wire.elt_size_in_bytes() as u64;
                let largest = config.sizes().iter().map(|size| size.0 / bytes).max().unwrap_or(0);
                (Vec::new(), Shape::array(largest as usize, wire))
            }
            Messages::Gradients(model) => {
                let lengths = gradients(model, config.arrays);
                let elements = lengths.iter().sum();
                (lengths, Shape::gradients(elements, wire))
            }
        };
        let backend = select::new(&config.exchange, shape, session)?;
        // Ranks that exchange nothing have sums over themselves alone.
        let summed = match config.exchange.backend {
            BackendChoice::None => (0, 1),
            _ => (world.rank(), world.ranks()),
        };
        let values = match config.messages {
            Messages::Sizes { .. } => Values::whole(shape.elements, summed, shape.wire, device, config.check)?,
            Messages::Gradients(_) => Values::random(shape.elements, summed, shape.wire, device)?,
        };
        let update = match config.optimizer {
            OptimizerChoice::None => None,
            OptimizerChoice::Sgd => Some(WeightUpdate::new(shape.elements, device)?),
        };
        let plan = BucketPlan::new(&lengths, config.exchange.bucket(), config.exchange.tail());
        Ok(Bench { config, device, backend, values, plan, arrays: lengths.len(), update })
    }

    /// What sums.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Number of the model's arrays.
    pub fn arrays(&self) -> usize {
        self.arrays
    }

    /// One size, out of place and in place.
    pub fn size(&mut self, size: Bytes, world: &World) -> Result<MessageResult> {
        let bytes = self.backend.memory().wire.kind().elt_size_in_bytes();
        let elements = size.0 as usize / bytes;
        let whole = 0..elements;
        let out_of_place = self.measure_size(&whole, world)?;
        self.backend.memory().in_place = true;
        let in_place = self.measure_size(&whole, world)?;
        self.backend.memory().in_place = false;
        let size = Bytes((elements * bytes) as u64);
        Ok(self.result(elements, vec![size], Some(out_of_place), Some(in_place)))
    }

    /// The gradients, in their buckets.
    pub fn gradients(&mut self, world: &World) -> Result<MessageResult> {
        let ranges: Vec<Range<usize>> = self.plan.buckets.iter().map(|bucket| bucket.elements.clone()).collect();
        let elements = ranges.last().map_or(0, |range| range.end);
        let timing = self.measure(&ranges, world)?;
        let sides = if self.backend.memory().in_place { (None, Some(timing)) } else { (Some(timing), None) };
        Ok(self.result(elements, self.plan.sizes(), sides.0, sides.1))
    }

    fn result(
        &mut self,
        elements: usize,
        buckets: Vec<Bytes>,
        out_of_place: Option<Timing>,
        in_place: Option<Timing>,
    ) -> MessageResult {
        let kind = self.backend.memory().wire.kind();
        // A bandwidth of gradients counts them as fp32, whatever the wire carries: that is what training waits for.
        let bytes = if self.arrays > 0 { Kind::Float } else { kind }.elt_size_in_bytes();
        let element = match kind {
            Kind::Half => "half",
            Kind::BFloat16 => "bfloat16",
            _ => "float",
        };
        MessageResult {
            bytes: Bytes((elements * bytes) as u64),
            count: elements as u64,
            element: element.to_owned(),
            buckets,
            out_of_place,
            in_place,
        }
    }

    /// Sums `elements` as often as was asked, call by call, and in a row where calls can be enqueued.
    fn measure_size(&mut self, elements: &Range<usize>, world: &World) -> Result<Timing> {
        let timing = self.measure(std::slice::from_ref(elements), world)?;
        if !self.backend.is_asynchronous() {
            return Ok(timing);
        }
        let calls = self.config.iterations;
        let timed = Timed::begin(self.device, world)?;
        self.backend.start_in_a_row(&Collective::AllReduce { elements: elements.clone() }, calls)?;
        self.backend.finish()?;
        let own = timed.end(|| self.backend.check().map(drop))? / f64::from(calls);
        let in_a_row = world.gather(&[own]).concat().into_iter().map(Seconds).collect();
        Ok(Timing { in_a_row, ..timing })
    }

    /// Sums `ranges`, which lie one after the other from 0 on, as often as was asked.
    fn measure(&mut self, ranges: &[Range<usize>], world: &World) -> Result<Timing> {
        let elements = ranges.last().map_or(0, |range| range.end);
        let (mut seconds, mut deviations) = (Vec::new(), Vec::new());
        for iteration in 0..self.config.warmup + self.config.iterations {
            heartbeat::enter_in(iteration + 1, Stage::Data);
            let memory = self.backend.memory();
            let (is_apart, sums) = (!memory.in_place, memory.sums.shallow_clone());
            self.values.fill(memory.input(), elements, iteration as usize)?;
            if is_apart {
                values::poison(&sums, elements)?;
            }
            heartbeat::enter(Stage::AllReduce { bucket: 0 });
            let timed = Timed::begin(self.device, world)?;
            ranges.iter().try_for_each(|range| self.backend.start(range.clone()))?;
            self.backend.finish()?;
            if let Some(update) = &self.update {
                update.run(&sums)?;
            }
            let time = timed.end(|| self.backend.check().map(drop))?;
            if iteration >= self.config.warmup {
                seconds.push(time);
                if self.config.check {
                    deviations.push(self.values.check(&sums, elements, iteration as usize)?);
                }
            }
        }
        Ok(self.timing(&seconds, &deviations, world))
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
