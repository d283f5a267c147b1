//! All-reduce and local update: every rank gets the sum of all gradients, bucket by bucket while backward goes on, and
//! does the same update of its own weights. As Horovod and PyTorch's DDP do.

use std::ops::Range;

use anyhow::Result;
use ringmark_record::benchmark::exchange::{ExchangeConfig, Wire};
use ringmark_record::benchmark::train::config::TrainConfig;
use ringmark_record::dimension::units::Bytes;
use tch::{Device, Tensor};

use crate::exchange::backend::{Backend, select};
use crate::exchange::codec::Codec;
use crate::exchange::coded_sums::CodedSums;
use crate::exchange::loss_scaler::LossScaler;
use crate::exchange::memory::Shape;
use crate::exchange::optimizer::{Optimizer, RankCounts};
use crate::exchange::reducer::{self, Coded, GradientReducer, GradientSink};
use crate::exchange::{GradientExchange, Parameters};
use crate::job::session::Session;
use crate::measure::step_timer::InBackward;

/// The strategy.
pub struct AllReduce {
    reducer: &'static GradientReducer,
    optimizer: Optimizer,
    backend: &'static str,
    sum_dtype: Option<Wire>,
    summed_ranks: u32,
}

impl AllReduce {
    /// Connects the ranks and hooks into backward of `parameters`; called by all ranks together. The backend makes the
    /// memory of the gradients, because where it lies decides how fast it is.
    pub fn new(config: &TrainConfig, parameters: Parameters, session: &Session) -> Result<AllReduce> {
        let Parameters { weights, tensors } = parameters;
        let Path { name, sum_dtype, sums, sink } = path(config, &weights, &tensors, session)?;
        let ranks = session.world.ranks();
        let counts = RankCounts { all: ranks, summed: if name == "none" { 1 } else { ranks } };
        let optimizer = Optimizer::new(config, counts, weights, sums)?;
        let reducer = GradientReducer::new(config.overlap, &config.exchange, tensors, sink)?;
        Ok(AllReduce { reducer, optimizer, backend: name, sum_dtype, summed_ranks: counts.summed })
    }
}

/// How gradients become sums.
struct Path {
    name: &'static str,
    sum_dtype: Option<Wire>,
    /// Where they come to lie.
    sums: Tensor,
    sink: Box<dyn GradientSink>,
}

/// By values, or by codes where these were asked for; one rank alone sends neither.
fn path(config: &TrainConfig, weights: &Tensor, tensors: &[Tensor], session: &Session) -> Result<Path> {
    let (exchange, elements) = (&config.exchange, weights.numel());
    let is_on_host = session.device() == Device::Cpu;
    if session.world.ranks() > 1
        && let Some(codec) = Codec::new(config.gradient_compression, is_on_host)?
    {
        let buckets = reducer::plan(tensors, exchange).buckets;
        let buckets: Vec<Range<usize>> = buckets.into_iter().map(|bucket| bucket.elements).collect();
        let sink = CodedSums::new(codec, exchange, &buckets, elements, session)?;
        let (name, sums) = (sink.name(), sink.sums());
        return Ok(Path { name, sum_dtype: Some(Wire::Fp32), sums, sink: Box::new(sink) });
    }
    let mut backend = select::new(exchange, Shape::gradients(elements, exchange.wire), session)?;
    Ok(Path {
        name: backend.name(),
        sum_dtype: backend.sum_dtype(exchange.wire),
        sums: backend.memory().sums.shallow_clone(),
        sink: Box::new(Sums(backend)),
    })
}

impl GradientExchange for AllReduce {
    fn begin(&mut self) {
        self.reducer.begin();
    }

    fn in_backward(&mut self) -> InBackward {
        self.reducer.in_backward()
    }

    fn finish(&mut self) -> Result<()> {
        self.reducer.finish()
    }

    fn update(&mut self, update: u32) -> Result<()> {
        self.optimizer.step(update)
    }

    fn loss_scaler(&self) -> Option<&LossScaler> {
        self.optimizer.loss_scaler()
    }

    fn check(&self) -> Result<u32> {
        self.reducer.check()
    }

    fn name(&self) -> &'static str {
        self.backend
    }

    fn sum_dtype(&self) -> Option<Wire> {
        self.sum_dtype
    }

    fn summed_ranks(&self) -> u32 {
        self.summed_ranks
    }

    fn bucket_sizes(&self) -> Vec<Bytes> {
        self.reducer.bucket_sizes()
    }

    fn has_chunks(&self) -> bool {
        self.reducer.has_chunks()
    }

    fn is_asynchronous(&self) -> bool {
        self.reducer.is_asynchronous()
    }

    fn coded(&self) -> Option<Coded> {
        self.reducer.coded()
    }

    fn set_sizes(&mut self, sizes: &ExchangeConfig) -> Result<()> {
        self.reducer.set_sizes(sizes)
    }
}

/// Every bucket is summed over all ranks, and the sums lie where the optimizer reads.
struct Sums(Box<dyn Backend>);

impl GradientSink for Sums {
    fn wire(&mut self) -> Tensor {
        self.0.memory().wire.shallow_clone()
    }

    fn start(&mut self, elements: Range<usize>) -> Result<()> {
        self.0.start(elements)
    }

    fn finish(&mut self) -> Result<()> {
        self.0.finish()
    }

    fn is_asynchronous(&self) -> bool {
        self.0.is_asynchronous()
    }

    fn check(&mut self) -> Result<usize> {
        self.0.check()
    }

    fn has_chunks(&self) -> bool {
        self.0.has_chunks()
    }

    fn set_chunk(&mut self, kilobytes: u32) {
        self.0.set_chunk(kilobytes);
    }
}
