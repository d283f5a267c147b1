//! Strategies that divide gradients, and weights, among the ranks: stages 2 and 3 of ZeRO (Rajbhandari et al., 2020).
//! The latter is also PyTorch's FSDP.
//!
//! | strategy | whole on every rank | divided among the ranks |
//! |---|---|---|
//! | `zero2` | weights | gradients, optimizer states |
//! | `fsdp` | | weights, gradients, optimizer states |
//! | `hsdp` | | the same, among the ranks of each host |
//!
//! Every rank owns a part of each bucket. With `hsdp`, weights are gathered and gradients scattered within a host, and
//! the owners of the same part add its sums over the hosts (PyTorch's `HYBRID_SHARD`): two buckets later, so that those of
//! the last two buckets are not hidden. A step of `fsdp`, whose buckets consist of whole units of the network:
//!
//! ```text
//! forward    gather 0 | compute 0, gather 1 | compute 1, gather 2 | compute 2
//! backward              compute 2           | sum 2, compute 1, gather 0 | sum 1, compute 0 | sum 0
//! update     every rank, its parts
//! ```
//!
//! The memory of the backend has space for the gradients of two consecutive buckets, one that backward fills and one that
//! is summed, and for the weights of two consecutive buckets, one at work and the next one. The place of a bucket does
//! not change, so that autograd's references to weights stay valid.

mod collectives;
mod gradients;
mod parts;
mod weights;

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, ensure};
use ringmark_core::benchmark::strategy::StrategyUse;
use ringmark_core::dimension::{Bytes, Operation, Phase, Strategy, Wire};
use ringmark_core::host::Stage;
use tch::{Device, Kind, Tensor};

use crate::exchange::backend::{Backend, select};
use crate::exchange::bucket::BucketPlan;
use crate::exchange::collective::{Collective, Target};
use crate::exchange::loss_scaler::LossScaler;
use crate::exchange::memory::{Memory, MemoryShape, narrow};
use crate::exchange::optimizer::OwnedParts;
use crate::exchange::reducer::{
    self, BackwardPass, GradientReducer, GradientSink, GradientSource, ReadyFrom, SinkFacts,
};
use crate::exchange::request::ExchangeRequest;
use crate::exchange::shards::collectives::Collectives;
use crate::exchange::shards::gradients::ShardedGradients;
use crate::exchange::shards::parts::{ShardedBucket, alternating};
use crate::exchange::shards::weights::{GatheredWeights, Places};
use crate::exchange::{ExchangeFacts, GradientExchange, Parameters, UpdateState, WeightTaker};
use crate::ffi::group::GroupRank;
use crate::ffi::torch::shim::WeightProvider;
use crate::job::heartbeat;
use crate::job::session::Session;
use crate::measure::step_timer::WeightWait;

/// The strategy.
pub struct Shards {
    reducer: &'static GradientReducer,
    exchange: &'static Shared,
    parts: OwnedParts,
    facts: ExchangeFacts,
    /// This rank among those that divide the weights.
    own: GroupRank,
    /// This rank among those with the same parts, with `hsdp`.
    between_hosts: Option<GroupRank>,
    wire: Wire,
}

/// The exchange, which backward's hooks also use. It is never freed.
struct Shared(Mutex<Exchange>);

struct Exchange {
    collectives: Collectives,
    buckets: Vec<ShardedBucket>,
    gradients: ShardedGradients,
    weights: Weights,
    /// Error inside backward, which cannot return it.
    failure: Option<anyhow::Error>,
}

enum Weights {
    /// Every rank has all of them: a flat tensor.
    Whole(Tensor),
    Sharded(Box<GatheredWeights>),
}

impl Shards {
    /// Connects the ranks and hooks into backward. All ranks call this together.
    pub fn new(request: &ExchangeRequest, parameters: Parameters, session: &Session) -> Result<Shards> {
        let Parameters { weights, initial, rounded, tensors, ready_from, units, kept_unit } = parameters;
        ensure!(ready_from == ReadyFrom::Backward, "sharded gradients come from backward");
        let _no_gradient = tch::no_grad_guard();
        let strategy = request.strategy.strategy;
        let hosts = (strategy == Strategy::Hsdp).then(|| session.world.parts()).transpose()?;
        let owners = hosts.as_ref().map_or(session.world, |[of_host, _]| of_host);
        let own = GroupRank::from(owners);
        let shards_weights = strategy.shards_weights();
        let plan = match shards_weights {
            true => unit_plan(request, &tensors, &units, kept_unit),
            false => reducer::plan(&tensors, &request.exchange),
        };
        let buckets = ShardedBucket::list(&plan, own);
        let lengths: Vec<usize> = buckets.iter().map(ShardedBucket::length).collect();
        // The places of weights precede those of gradients.
        let (weight_starts, weight_size) = match shards_weights {
            true => weights::places(&lengths, kept_unit.is_some()),
            false => (Vec::new(), 0),
        };
        let (starts, gradient_size) = alternating(&lengths);
        let starts: Vec<usize> = starts.into_iter().map(|start| weight_size + start).collect();
        let shape = MemoryShape::gradients(weight_size + gradient_size, request.exchange.wire);
        let backend = select::for_ranks(owners, &request.exchange, shape, session)?;
        let collectives = Collectives::new(backend);
        let shape = MemoryShape::gradients(buckets.last().map_or(0, |last| last.place.end), Wire::Fp32);
        let between_hosts = hosts.as_ref().map(|[_, same]| select::for_ranks(same, &request.exchange, shape, session));
        let mut between_hosts = between_hosts.transpose()?;
        let own_sums = match &mut between_hosts {
            Some(backend) => backend.memory().sums.shallow_clone(),
            None => Memory::private(shape, session.device())?.sums,
        };
        // The only rank of a host exchanges nothing within it.
        let named = between_hosts.as_deref().filter(|_| own.ranks == 1).unwrap_or(&*collectives.backend);
        let facts = ExchangeFacts {
            backend: named.name(),
            sum_dtype: named.sum_dtype(request.exchange.wire),
            summed_ranks: session.world.ranks(),
            is_synchronous: true,
        };
        let gradients = ShardedGradients::new(starts, own_sums, between_hosts);
        let weights = match shards_weights {
            true => {
                let bucket_of = buckets_of_units(&plan, &units);
                let kind = rounded.map(|rounded| rounded.kind());
                let places = Places { starts: weight_starts, bucket_of };
                let mut gathered = GatheredWeights::new(&buckets, places, own, kind, session.device())?;
                match initial {
                    Some(visit) => visit(&mut |range, values| gathered.take(&buckets, range, values))?,
                    None => gathered.take(&buckets, &(0..weights.numel()), &weights)?,
                }
                gathered.place(&plan, &tensors, &collectives.sums)?;
                Weights::Sharded(Box::new(gathered))
            }
            false => Weights::Whole(weights),
        };
        let part = |bucket: &ShardedBucket| {
            let first = bucket.own_at(bucket.elements.start).start;
            Ok((weights.part(bucket)?, narrow(&gradients.own, &bucket.place)?, first))
        };
        let owned = buckets.iter().filter(|bucket| !bucket.own.is_empty());
        let parts = OwnedParts::new(&request.rule, &tensors, owned.map(part), owners, session)?;
        let exchange = Exchange { collectives, buckets, gradients, weights, failure: None };
        let exchange: &'static Shared = Box::leak(Box::new(Shared(Mutex::new(exchange))));
        let source = GradientSource { parameters: tensors, ready_from };
        Ok(Shards {
            reducer: GradientReducer::new(request.overlap, plan, source, Box::new(Sink(exchange)))?,
            exchange,
            parts,
            facts,
            own,
            between_hosts: hosts.as_ref().map(|[_, same]| GroupRank::from(same)),
            wire: request.exchange.wire,
        })
    }
}

/// Plans buckets of whole units; a kept unit, the first of the network, is a bucket of its own.
fn unit_plan(request: &ExchangeRequest, tensors: &[Tensor], units: &[usize], kept_unit: Option<usize>) -> BucketPlan {
    let lengths: Vec<usize> = tensors.iter().map(Tensor::numel).collect();
    let is_kept = |unit: &usize| Some(*unit) == kept_unit;
    let kept: usize = units.iter().zip(&lengths).filter(|(unit, _)| is_kept(unit)).map(|(_, length)| length).sum();
    let kept = Bytes((kept * Kind::Float.elt_size_in_bytes()) as u64);
    let tail = if kept_unit.is_some() { kept } else { request.exchange.tail() };
    BucketPlan::of_units(&lengths, units, request.exchange.bucket(), tail)
}

/// Returns the bucket of each unit, in the order of forward.
fn buckets_of_units(plan: &BucketPlan, units: &[usize]) -> Vec<usize> {
    let mut buckets = vec![0; units.iter().max().map_or(0, |last| last + 1)];
    for (number, bucket) in plan.buckets.iter().enumerate() {
        units[bucket.parameters.clone()].iter().for_each(|unit| buckets[*unit] = number);
    }
    buckets
}

impl Weights {
    /// Returns this rank's part of a bucket.
    fn part(&self, bucket: &ShardedBucket) -> Result<Tensor> {
        match self {
            Weights::Whole(weights) => narrow(weights, &bucket.own_at(bucket.elements.start)),
            Weights::Sharded(gathered) => gathered.part(bucket),
        }
    }
}

impl Exchange {
    /// Provides the updated weights to those that need them.
    fn renew_weights(&mut self) -> Result<()> {
        match &mut self.weights {
            Weights::Whole(weights) => {
                let weights = weights.shallow_clone();
                self.share(&weights)
            }
            Weights::Sharded(gathered) => gathered.renew(&mut self.collectives, &self.buckets),
        }
    }

    /// Sends each rank's parts of `array`, which is as long as the weights, to all.
    fn share(&mut self, array: &Tensor) -> Result<()> {
        let own = |bucket: &ShardedBucket, _: &Weights| narrow(array, &bucket.own_at(bucket.elements.start));
        self.gather(own, |bucket, whole| Ok(narrow(array, &bucket.elements)?.f_copy_(whole)?))
    }

    /// Gathers what each rank `own`s of every bucket, and calls `take` with the whole of it, in the order of the flat
    /// weights. Uses the places of the gradients, of which none is in flight.
    fn gather(
        &mut self,
        own: impl Fn(&ShardedBucket, &Weights) -> Result<Tensor>,
        mut take: impl FnMut(&ShardedBucket, &Tensor) -> Result<()>,
    ) -> Result<()> {
        let Exchange { collectives, buckets, gradients, weights, .. } = self;
        let sums = collectives.sums.shallow_clone();
        let mut finish = |collectives: &mut Collectives, (bucket, start, gather): (&ShardedBucket, usize, usize)| {
            collectives.finish_first(gather)?;
            take(bucket, &narrow(&sums, &(start..start + bucket.elements.len()))?)
        };
        // Consecutive buckets have places of their own.
        let mut before = None;
        for (number, bucket) in buckets.iter().enumerate() {
            let start = gradients.start_of(number);
            narrow(&sums, &bucket.own_at(start))?.f_copy_(&own(bucket, weights)?)?;
            let gather = Collective::AllGather { parts: bucket.parts_at(start), target: Target::Tensor(&sums) };
            let started = (bucket, start, collectives.start(&gather)?);
            if let Some(before) = before.replace(started) {
                finish(collectives, before)?;
            }
        }
        before.map_or(Ok(()), |last| finish(collectives, last))
    }

    fn bucket(&self, elements: &Range<usize>) -> Result<usize> {
        let found = self.buckets.binary_search_by_key(&elements.start, |bucket| bucket.elements.start);
        found.map_err(|_| anyhow::anyhow!("no bucket has the elements {elements:?}"))
    }

    fn need(&mut self, unit: usize, phase: Phase) -> Result<()> {
        match &mut self.weights {
            Weights::Whole(_) => Ok(()),
            Weights::Sharded(gathered) => gathered.need(unit, phase, &mut self.collectives, &self.buckets),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Exchange> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WeightProvider for Shared {
    fn before_forward(&self, unit: usize) -> Result<()> {
        self.lock().need(unit, Phase::Forward)
    }

    fn after_forward(&self, unit: usize) {
        if let Weights::Sharded(gathered) = &mut self.lock().weights {
            gathered.leave(unit);
        }
    }

    fn before_backward(&self, unit: usize) {
        let mut exchange = self.lock();
        if exchange.failure.is_none() {
            exchange.failure = exchange.need(unit, Phase::Backward).err();
        }
    }
}

impl GradientExchange for Shards {
    fn reducer(&self) -> &'static GradientReducer {
        self.reducer
    }

    fn facts(&self) -> ExchangeFacts {
        self.facts
    }

    fn requested_bytes(&self) -> Option<[u64; 2]> {
        let exchange = self.exchange.lock();
        let (mut bytes, passes) = ([0; 2], exchange.gradients.passes());
        for (number, bucket) in exchange.buckets.iter().enumerate() {
            let sum = Collective::ReduceScatter { parts: bucket.parts_at(0) }.bytes(self.own, self.wire.bytes());
            let gathers = match &exchange.weights {
                Weights::Whole(_) => 1,
                Weights::Sharded(gathered) => gathered.gathers_of(number),
            };
            let mut add = |times: u64, of: [u64; 2]| bytes.iter_mut().zip(of).for_each(|(all, of)| *all += times * of);
            add(passes, sum);
            add(gathers, bucket.bytes_of_gather(self.own));
            if let Some(rank) = self.between_hosts {
                let sum = Collective::AllReduce { elements: bucket.place.clone() };
                add(1, sum.bytes(rank, Wire::Fp32.bytes()));
            }
        }
        Some(bytes)
    }

    fn update(&mut self, update: u32) -> Result<()> {
        self.parts.step(update)?;
        heartbeat::enter(Stage::Sharing);
        self.exchange.lock().renew_weights()
    }

    fn loss_scaler(&self) -> Option<&LossScaler> {
        self.parts.loss_scaler()
    }

    fn weight_provider(&self) -> Option<&'static dyn WeightProvider> {
        let is_sharded = matches!(self.exchange.lock().weights, Weights::Sharded(_));
        is_sharded.then_some(self.exchange as &dyn WeightProvider)
    }

    fn take_weight_waits(&mut self) -> Vec<WeightWait> {
        match &mut self.exchange.lock().weights {
            Weights::Whole(_) => Vec::new(),
            Weights::Sharded(gathered) => gathered.take_waits(),
        }
    }

    fn visit_weights(&mut self, visit: &mut WeightTaker) -> Result<bool> {
        let mut exchange = self.exchange.lock();
        let is_sharded = matches!(exchange.weights, Weights::Sharded(_));
        if is_sharded {
            exchange.gather(|bucket, weights| weights.part(bucket), |bucket, whole| visit(&bucket.elements, whole))?;
        }
        Ok(is_sharded)
    }

    fn state(&mut self) -> Result<Option<UpdateState>> {
        let mut exchange = self.exchange.lock();
        // In host memory, because a device may have too little memory for all.
        let elements = exchange.buckets.last().map_or(0, |last| last.elements.end);
        let weights = Tensor::f_zeros([elements as i64], (Kind::Float, Device::Cpu))?;
        self.parts.state(&weights, |whole| exchange.share(whole)).map(Some)
    }

    fn set_state(&mut self, state: &UpdateState) -> Result<()> {
        self.parts.set_state(state)
    }

    fn end(&mut self, session: &Session) -> Result<Option<StrategyUse>> {
        let owned = self.exchange.lock().gradients.own.numel() * Kind::Float.elt_size_in_bytes();
        Ok(Some(self.use_of_owners(Bytes(owned as u64), session.world)))
    }
}

struct Sink(&'static Shared);

impl GradientSink for Sink {
    fn facts(&self) -> SinkFacts {
        let facts = SinkFacts::for_backend(&*self.0.lock().collectives.backend, Operation::ReduceScatter);
        SinkFacts { exchanges_passes: true, ..facts }
    }

    fn wire(&mut self) -> Tensor {
        self.0.lock().collectives.backend.memory().wire.shallow_clone()
    }

    fn place(&self, elements: &Range<usize>) -> usize {
        let exchange = self.0.lock();
        exchange.bucket(elements).map_or(0, |bucket| exchange.gradients.start_of(bucket))
    }

    fn begin(&mut self, pass: BackwardPass) {
        self.0.lock().gradients.begin(pass);
    }

    fn prepare(&mut self) -> Result<bool> {
        let Exchange { collectives, buckets, gradients, .. } = &mut *self.0.lock();
        gradients.prepare(collectives, buckets)
    }

    fn start(&mut self, elements: Range<usize>) -> Result<()> {
        let mut exchange = self.0.lock();
        let bucket = exchange.bucket(&elements)?;
        let Exchange { collectives, buckets, gradients, weights, failure } = &mut *exchange;
        if let Some(failure) = failure.take() {
            return Err(failure);
        }
        if let Weights::Sharded(gathered) = weights {
            gathered.leave_bucket(bucket)?;
        }
        gradients.start(bucket, collectives, buckets)
    }

    fn finish(&mut self) -> Result<()> {
        let Exchange { collectives, buckets, gradients, failure, .. } = &mut *self.0.lock();
        match failure.take() {
            Some(failure) => Err(failure),
            None => gradients.finish(collectives, buckets),
        }
    }

    fn check(&mut self) -> Result<usize> {
        let Exchange { collectives, gradients, .. } = &mut *self.0.lock();
        gradients.check()?;
        Ok(gradients.completed(collectives.backend.check()?))
    }

    fn with_backend(&mut self, action: &mut dyn FnMut(&mut dyn Backend)) {
        action(&mut *self.0.lock().collectives.backend);
    }
}
