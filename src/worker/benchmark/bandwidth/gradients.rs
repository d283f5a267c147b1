//! The measured loop over a network's gradients, as in MXNet's measure.py: gradients are handed to the training
//! strategy in the order of backward, without a model, and the result is compared with the expected one.

use anyhow::{Context, Result};
use ringmark_core::benchmark::bandwidth::{Arrays, BandwidthConfig, GradientsUse, MessageResult, Timing};
use ringmark_core::benchmark::exchange::Switch;
use ringmark_core::benchmark::optimizer::{AdamConfig, Optimizer};
use ringmark_core::dimension::{Bytes, Model, Phase};
use ringmark_core::host::Stage;
use ringmark_core::trace::Lane;
use tch::{Kind, Tensor};

use crate::benchmark::bandwidth::copied_weights::CopiedWeights;
use crate::benchmark::bandwidth::timing::{self, element, max_or_nan, rank_among};
use crate::benchmark::bandwidth::values::{self, Deviation, Values};
use crate::exchange::reducer::{BackwardPass, ReadyFrom};
use crate::exchange::request::{Constants, ExchangeRequest, RankCounts, UpdateRule, UpdateStep};
use crate::exchange::{ExchangeArrays, GradientExchange, Parameters, memory, strategy};
use crate::ffi::memory::element::Element;
use crate::ffi::torch::shim::GradientObserver;
use crate::job::heartbeat;
use crate::job::session::Session;
use crate::measure::timed::Timed;
use crate::measure::trace::recorder::{self, OpenSpan};
use crate::model::network::{NamedTensor, Role};
use crate::model::networks;

/// measure.py's learning rate: the default of MXNet's `sgd`.
const LEARNING_RATE: f64 = 0.01;

/// Learning rate of Adam in MXNet and PyTorch.
const ADAM_RATE: f64 = 0.001;

/// PyTorch's weight decay of AdamW.
const ADAMW_DECAY: f64 = 0.01;

/// Returns the update with the sums; `None` leaves the sums.
fn update_step(config: &BandwidthConfig) -> Option<UpdateStep> {
    let optimizer = config.optimizer.chosen()?;
    let constants = Constants {
        learning_rate: if optimizer.is_adam() { ADAM_RATE } else { LEARNING_RATE },
        momentum: config.momentum(),
        adam: AdamConfig::default(),
        weight_decay: if optimizer == Optimizer::AdamW { ADAMW_DECAY } else { 0.0 },
    };
    Some(UpdateStep::new(optimizer, constants, RankCounts::UNDIVIDED))
}

pub fn request(config: &BandwidthConfig) -> ExchangeRequest {
    ExchangeRequest {
        exchange: config.exchange,
        strategy: config.strategy,
        overlap: Switch::On,
        compression: config.gradient_compression,
        warmup: config.warmup,
        rule: update_step(config).map_or(UpdateRule::Assign, |step| UpdateRule::Fixed(step, config.state_names())),
        // `Timed` begins with a barrier.
        ranks_meet: true,
    }
}

pub struct GradientBench<'a> {
    config: &'a BandwidthConfig,
    session: &'a Session<'a>,
    exchange: Box<dyn GradientExchange>,
    arrays: usize,
    elements: usize,
    values: Values,
    /// Expected weights; `None` without an optimizer.
    copy: Option<CopiedWeights>,
}

impl<'a> GradientBench<'a> {
    /// All ranks call this together.
    pub fn new(config: &'a BandwidthConfig, model: Model, session: &'a Session<'a>) -> Result<GradientBench<'a>> {
        let (world, device) = (session.world, session.device());
        let lengths = gradients(model, config.arrays);
        let elements = lengths.iter().sum();
        let weights = Tensor::f_zeros([elements as i64], (Kind::Float, device))?;
        let mut first = 0;
        let tensor = |length: &usize| {
            let range = first..first + length;
            first = range.end;
            memory::narrow(&weights, &range)
        };
        let tensors = lengths.iter().map(tensor).collect::<Result<_>>()?;
        let rank = rank_among(config, world);
        let values = Values::random(elements, rank, Element::from(config.exchange.wire).kind(), device)?;
        let copy = update_step(config).map(|step| CopiedWeights::new(&values, step, rank.ranks)).transpose()?;
        heartbeat::enter(Stage::Connecting);
        let units = (0..lengths.len()).rev().collect();
        let parameters = Parameters {
            weights,
            initial: None,
            rounded: None,
            tensors,
            ready_from: ReadyFrom::Caller,
            units,
            kept_unit: None,
        };
        let exchange = strategy::new(&request(config), parameters, session)?;
        Ok(GradientBench { config, session, exchange, arrays: lengths.len(), elements, values, copy })
    }

    pub fn exchange(&self) -> &dyn GradientExchange {
        &*self.exchange
    }

    pub fn arrays(&self) -> usize {
        self.arrays
    }

    /// Ends the exchange after the gathered results are complete.
    pub fn leave(mut self) -> Result<()> {
        self.exchange.leave()
    }

    /// Runs and times the requested iterations.
    pub fn measure(&mut self) -> Result<(MessageResult, GradientsUse)> {
        let (world, config) = (self.session.world, self.config);
        let arrays = self.exchange.arrays();
        let ExchangeArrays { wire, result, in_place } =
            arrays.context("this exchange has no array of all gradients")?;
        let (mut seconds, mut deviations) = (Vec::new(), Vec::new());
        let is_checked_each = config.check && self.exchange.facts().is_synchronous;
        let mut tracer = timing::tracer(config, self.session)?;
        for iteration in 0..config.warmup + config.iterations {
            heartbeat::enter_in(iteration + 1, Stage::Data);
            if self.copy.is_none() {
                // A result that is never written must not look like the previous one.
                values::poison(&result, self.elements)?;
            }
            self.values.fill(&wire, self.elements, iteration as usize)?;
            timing::begin_iteration(tracer.as_mut(), (iteration + 1).saturating_sub(config.warmup))?;
            let timed = Timed::begin(self.session.device(), world)?;
            let span = recorder::begin(Lane::Step, "exchange", None);
            self.exchange.reducer().begin(BackwardPass::ONLY)?;
            (0..self.arrays).for_each(|array| self.exchange.reducer().gradient_ready(array));
            self.exchange.finish(Some(iteration + 1))?;
            span.into_iter().for_each(OpenSpan::end);
            let span = recorder::begin(Lane::Step, Phase::Optimizer.description(), None);
            self.exchange.update(iteration + 1)?;
            span.into_iter().for_each(OpenSpan::end);
            let time = timed.end(|| self.exchange.reducer().check().map(drop))?;
            heartbeat::time_iteration(time, None);
            recorder::end_iteration();
            if config.check
                && let Some(copy) = &mut self.copy
            {
                copy.step(&self.values, iteration as usize)?;
            }
            if iteration >= config.warmup {
                seconds.push(time);
                if is_checked_each {
                    deviations.push(self.deviation(&result, iteration as usize)?);
                }
            }
        }
        timing::end(tracer, config, self.exchange.facts().backend)?;
        let compression = self.exchange.reducer().compression().map(|compression| compression.used(world));
        let has_code = compression.is_some();
        let strategy = self.exchange.end(self.session)?;
        let mut used = GradientsUse { compression, strategy, ..GradientsUse::default() };
        if config.check && !is_checked_each {
            let last = config.warmup + config.iterations - 1;
            deviations.push(self.deviation(&result, last as usize)?);
        }
        if config.check {
            let worst = deviations.iter().map(|deviation| deviation.error).fold(0.0, max_or_nan);
            used.error_by_rank = world.gather(&[worst]).concat();
        }
        if let Some(requested) = self.exchange.requested_bytes() {
            let requested = world.gather(&requested.map(|bytes| bytes as f64));
            let by_rank = |index: usize| requested.iter().map(|rank| Bytes(rank[index] as u64)).collect();
            (used.expected_sent_by_rank, used.expected_received_by_rank) = (by_rank(0), by_rank(1));
        }
        let mut timing = timing::timing(&seconds, &deviations, config.check, world);
        if !is_checked_each {
            // The error at the end does not belong to an iteration.
            timing.error.clear();
        }
        if has_code {
            // What a compression code drops is not a mistake; measure.py's error shows how much it is.
            timing.wrong = None;
        }
        Ok((self.result(wire.kind(), timing, in_place), used))
    }

    fn deviation(&self, result: &Tensor, iteration: usize) -> Result<Deviation> {
        let compared = match &self.copy {
            Some(copy) => copy.check(result)?,
            None => self.values.check(result, 0..self.elements, iteration)?,
        };
        Ok(compared.deviation())
    }

    fn result(&self, wire: Kind, timing: Timing, in_place: bool) -> MessageResult {
        let sides = if in_place { (None, Some(timing)) } else { (Some(timing), None) };
        MessageResult {
            // Bandwidth counts gradients as fp32 whatever the wire type is: that is the amount training waits for.
            bytes: Bytes((self.elements * Kind::Float.elt_size_in_bytes()) as u64),
            count: self.elements as u64,
            element: element(wire).to_owned(),
            buckets: self.exchange.reducer().bucket_sizes(),
            out_of_place: sides.0,
            in_place: sides.1,
        }
    }
}

/// Returns the lengths of the selected arrays of the model, in the order in which backward finishes them.
fn gradients(model: Model, arrays: Arrays) -> Vec<usize> {
    let tensors = networks::tensors(model);
    let is_exchanged = |named: &&NamedTensor| match arrays {
        Arrays::Weights => matches!(named.role, Role::Weight | Role::Bias),
        Arrays::All => true,
    };
    tensors.parameters.iter().rev().filter(is_exchanged).map(|named| named.tensor.numel()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Totals of measure.py's samples in MXNet's documentation, and of other networks by the same rule.
    #[test]
    fn arrays_match_measure_py() {
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
}
