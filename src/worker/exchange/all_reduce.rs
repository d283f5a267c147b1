//! All-reduce and local update: every rank gets the sum of all gradients, bucket by bucket during backward, and
//! applies the same update to its own weights, as Horovod and PyTorch's DDP do.

use std::ops::Range;

use anyhow::Result;
use ringmark_core::benchmark::exchange::ExchangeConfig;
use ringmark_core::dimension::{BackendName, Operation, Wire};
use tch::Tensor;

use crate::exchange::backend::{Backend, select};
use crate::exchange::collective::Collective;
use crate::exchange::compressed_all_reduce::CompressedAllReduce;
use crate::exchange::compression::Codec;
use crate::exchange::loss_scaler::LossScaler;
use crate::exchange::memory::MemoryShape;
use crate::exchange::optimizer::{self, FusedOptimizer};
use crate::exchange::reducer::{self, GradientReducer, GradientSink, GradientSource, SinkFacts};
use crate::exchange::request::{ExchangeRequest, RankCounts};
use crate::exchange::{ExchangeArrays, ExchangeFacts, GradientExchange, Parameters, UpdateState};
use crate::ffi::group::GroupRank;
use crate::job::session::Session;

/// The strategy.
pub struct AllReduce {
    reducer: &'static GradientReducer,
    /// `None` leaves the sums in place.
    optimizer: Option<FusedOptimizer>,
    /// Result of the update.
    result: Tensor,
    in_place: bool,
    wire: Wire,
    facts: ExchangeFacts,
    rank: u32,
}

impl AllReduce {
    /// Connects the ranks and hooks into backward of `parameters`. All ranks call this together. The backend allocates
    /// the gradients, because their location determines its speed.
    pub fn new(request: &ExchangeRequest, parameters: Parameters, session: &Session) -> Result<AllReduce> {
        let Parameters { weights, rounded, tensors, ready_from, .. } = parameters;
        let Path { backend, sum_dtype, sums, in_place, sink } = path(request, &weights, &tensors, session)?;
        let ranks = session.world.ranks();
        let summed = if sum_dtype.is_some() { ranks } else { 1 };
        let counts = RankCounts { all: ranks, summed, averaged: summed };
        let (result, optimizer) = match request.rule.assigns() {
            true => (sums, None),
            false => {
                let decay = optimizer::decay_ranges(&request.rule, &tensors);
                let optimizer = FusedOptimizer::new(&request.rule, counts, weights.shallow_clone(), sums)?;
                let optimizer = optimizer.with_decay(&decay, 0)?.with_rounded(rounded);
                (weights, Some(optimizer))
            }
        };
        let plan = reducer::plan(&tensors, &request.exchange);
        let source = GradientSource { parameters: tensors, ready_from };
        let reducer = GradientReducer::new(request.overlap, plan, source, sink)?;
        let (wire, rank) = (request.exchange.wire, session.world.rank());
        let facts = ExchangeFacts { backend, sum_dtype, summed_ranks: summed, is_synchronous: true };
        Ok(AllReduce { reducer, optimizer, result, in_place, wire, facts, rank })
    }
}

/// All-reduce of values or of codes.
struct Path {
    backend: BackendName,
    sum_dtype: Option<Wire>,
    /// Result of the sums.
    sums: Tensor,
    /// True if the sums overwrite the gradients.
    in_place: bool,
    sink: Box<dyn GradientSink>,
}

/// Creates the all-reduce of values, or of codes if these were requested and there are several ranks.
fn path(request: &ExchangeRequest, weights: &Tensor, tensors: &[Tensor], session: &Session) -> Result<Path> {
    let (exchange, elements) = (&request.exchange, weights.numel());
    if session.world.ranks() > 1
        && let Some(codec) = Codec::new(request.compression)
    {
        // Checked again, because `--device auto` may have selected a GPU.
        request.compression.check(exchange, request.strategy.strategy, session.own.kind.into())?;
        let buckets = reducer::plan(tensors, exchange).buckets;
        let buckets: Vec<Range<usize>> = buckets.into_iter().map(|bucket| bucket.elements).collect();
        let sink = CompressedAllReduce::new(codec, exchange, &buckets, elements, session)?;
        let (backend, sums) = (sink.name(), sink.sums());
        return Ok(Path { backend, sum_dtype: Some(Wire::Fp32), sums, in_place: false, sink: Box::new(sink) });
    }
    let mut backend = select::new(exchange, MemoryShape::gradients(elements, exchange.wire), session)?;
    Ok(Path {
        backend: backend.name(),
        sum_dtype: backend.sum_dtype(exchange.wire),
        sums: backend.memory().sums.shallow_clone(),
        in_place: backend.memory().in_place,
        sink: Box::new(Sums(backend)),
    })
}

impl GradientExchange for AllReduce {
    fn reducer(&self) -> &'static GradientReducer {
        self.reducer
    }

    fn facts(&self) -> ExchangeFacts {
        self.facts
    }

    fn arrays(&self) -> Option<ExchangeArrays> {
        let result = self.result.shallow_clone();
        Some(ExchangeArrays { wire: self.reducer.wire(), result, in_place: self.in_place })
    }

    /// Counts values, or codes, which each rank sends to all others.
    fn requested_bytes(&self) -> Option<[u64; 2]> {
        if let Some(compression) = self.reducer.compression() {
            return Some([u64::from(self.facts.summed_ranks - 1) * compression.code.0; 2]);
        }
        let own = GroupRank { rank: self.rank, ranks: self.facts.summed_ranks };
        let bytes = |elements| Collective::AllReduce { elements }.bytes(own, self.wire.bytes());
        let buckets = self.reducer.buckets().into_iter();
        Some(buckets.map(bytes).fold([0; 2], |[out, into], bucket| [out + bucket[0], into + bucket[1]]))
    }

    fn update(&mut self, update: u32) -> Result<()> {
        self.optimizer.as_mut().map_or(Ok(()), |optimizer| optimizer.step(update))
    }

    fn rounds_weights(&self) -> bool {
        self.optimizer.as_ref().is_some_and(FusedOptimizer::has_rounded)
    }

    fn loss_scaler(&self) -> Option<&LossScaler> {
        self.optimizer.as_ref()?.loss_scaler()
    }

    /// The tensors of the optimizer itself, which a caller may change. Codes leave values on every rank for the next
    /// step.
    fn state(&mut self) -> Result<Option<UpdateState>> {
        let has_codes = self.reducer.compression().is_some();
        Ok(self.optimizer.as_ref().filter(|_| !has_codes).map(FusedOptimizer::state))
    }

    fn set_sizes(&mut self, sizes: &ExchangeConfig) -> Result<()> {
        self.reducer.set_sizes(sizes)
    }
}

/// Sums every bucket over all ranks into the optimizer's input.
struct Sums(Box<dyn Backend>);

impl GradientSink for Sums {
    fn facts(&self) -> SinkFacts {
        SinkFacts::for_backend(&*self.0, Operation::AllReduce)
    }

    fn wire(&mut self) -> Tensor {
        self.0.memory().wire.shallow_clone()
    }

    fn start(&mut self, elements: Range<usize>) -> Result<()> {
        self.0.start(elements)
    }

    fn finish(&mut self) -> Result<()> {
        self.0.finish()
    }

    fn with_backend(&mut self, action: &mut dyn FnMut(&mut dyn Backend)) {
        action(&mut *self.0);
    }
}
