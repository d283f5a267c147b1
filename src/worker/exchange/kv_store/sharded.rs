//! Sharded updates: each part of the weights has an owner among the ranks, which receives the sum of the gradients,
//! updates, and sends the weights to all. The optimizer's state is sharded among the owners.
//!
//! | kv-store | parts and owners |
//! |---|---|
//! | `zero1` | every rank owns its shard of each bucket: reduce-scatter, update, all-gather |
//! | `local` | the same in host memory of one host |
//! | `device` | every bucket has one owner, balanced by size: reduce, update, broadcast |
//! | `nccl` | rank 0 owns all: reduce, update, broadcast |

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Result, ensure};
use ringmark_core::benchmark::exchange::ExchangeConfig;
use ringmark_core::benchmark::strategy::StrategyUse;
use ringmark_core::benchmark::strategy::placement;
use ringmark_core::dimension::{Bytes, Operation, Strategy, Wire};
use ringmark_core::host::Stage;
use tch::{Device, Kind, Tensor};

use crate::exchange::backend::shared_memory::SharedMemory;
use crate::exchange::backend::{Backend, select};
use crate::exchange::bucket::Bucket;
use crate::exchange::collective::{Collective, PART_ALIGNMENT, Route, Target, split_evenly};
use crate::exchange::loss_scaler::LossScaler;
use crate::exchange::memory::{MemoryShape, narrow};
use crate::exchange::optimizer::OwnedParts;
use crate::exchange::reducer::{self, GradientReducer, GradientSink, GradientSource, SinkFacts};
use crate::exchange::request::ExchangeRequest;
use crate::exchange::{ExchangeArrays, ExchangeFacts, GradientExchange, Parameters, UpdateState};
use crate::ffi::group::GroupRank;
use crate::ffi::memory::element::Element;
use crate::job::heartbeat;
use crate::job::session::Session;
use crate::job::world::World;

pub struct Sharded {
    reducer: &'static GradientReducer,
    exchange: Arc<Mutex<Exchange>>,
    parts: OwnedParts,
    /// Size of the parts of this rank in fp32.
    owned: Bytes,
    weights: Tensor,
    facts: ExchangeFacts,
    rank: u32,
    wire: Wire,
}

/// Owners of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ownership {
    /// One rank owns all of it.
    Whole(u32),
    /// Each rank owns its part, in rank order.
    Shards(Vec<Range<usize>>),
}

impl Ownership {
    /// Returns the collective that sums a bucket on its owners.
    fn sum(&self, elements: &Range<usize>, route: Route) -> Collective<'static> {
        match self {
            Ownership::Whole(root) => Collective::Reduce { elements: elements.clone(), root: *root, route },
            Ownership::Shards(parts) => Collective::ReduceScatter { parts: parts.clone() },
        }
    }

    /// Returns the collective that sends a bucket's weights to all.
    fn share<'a>(&self, elements: &Range<usize>, target: Target<'a>) -> Collective<'a> {
        match self {
            Ownership::Whole(root) => Collective::Broadcast { elements: elements.clone(), root: *root, target },
            Ownership::Shards(parts) => Collective::AllGather { parts: parts.clone(), target },
        }
    }
}

struct Exchange {
    buckets: Vec<(Range<usize>, Ownership)>,
    /// Route of sums to the owners.
    route: Route,
    backend: Box<dyn Backend>,
    /// The wire on a GPU, if gradients are summed in host memory.
    device_wire: Option<Tensor>,
    /// The weights that the owners update.
    weights: Tensor,
}

impl Sharded {
    /// Connects the ranks and hooks into backward. All ranks call this together.
    pub fn new(request: &ExchangeRequest, parameters: Parameters, session: &Session) -> Result<Sharded> {
        let Parameters { weights, tensors, ready_from, .. } = parameters;
        let (world, strategy) = (session.world, request.strategy.strategy);
        let shape = MemoryShape::gradients(weights.numel(), request.exchange.wire);
        let is_on_host = strategy == Strategy::Local && session.device() != Device::Cpu;
        let mut backend = match (strategy, is_on_host) {
            (Strategy::Local, true) => host_memory_backend(&request.exchange, shape, world)?,
            _ => select::new(&request.exchange, shape, session)?,
        };
        ensure!(
            strategy != Strategy::Local || world.local_ranks() == world.ranks(),
            "--strategy local needs all ranks on one host, but the {} ranks are on several: use --strategy \
             zero1 or dist_sync",
            world.ranks()
        );
        let (name, sum_dtype) = (backend.name(), backend.sum_dtype(request.exchange.wire));
        let ranks = world.ranks();
        let plan = reducer::plan(&tensors, &request.exchange);
        let buckets = owned_buckets(&plan.buckets, strategy, ranks);

        let sums = backend.memory().sums.shallow_clone();
        let updated = if is_on_host { weights.f_to_device(Device::Cpu)? } else { weights.shallow_clone() };
        let route = if strategy == Strategy::Nccl { Route::Chain } else { Route::Direct };
        let own: Vec<Range<usize>> = buckets.iter().filter_map(|bucket| part_of(bucket, world.rank())).collect();
        let part = |part: &Range<usize>| Ok((narrow(&updated, part)?, narrow(&sums, part)?, part.start));
        let parts = OwnedParts::new(&request.rule, &tensors, own.iter().map(part), world, session)?;
        let owned: usize = own.iter().map(ExactSizeIterator::len).sum();

        let wire = (Element::from(request.exchange.wire).kind(), session.device());
        let device_wire = is_on_host.then(|| Tensor::f_zeros([weights.numel() as i64], wire)).transpose()?;
        let exchange = Arc::new(Mutex::new(Exchange { buckets, route, backend, device_wire, weights: updated }));
        let sink = Box::new(Sink(exchange.clone()));
        let source = GradientSource { parameters: tensors, ready_from };
        Ok(Sharded {
            reducer: GradientReducer::new(request.overlap, plan, source, sink)?,
            exchange,
            parts,
            owned: Bytes((owned * Kind::Float.elt_size_in_bytes()) as u64),
            weights,
            facts: ExchangeFacts { backend: name, sum_dtype, summed_ranks: ranks, is_synchronous: true },
            rank: world.rank(),
            wire: request.exchange.wire,
        })
    }
}

/// Creates the backend that sums gradients of GPUs in host memory.
fn host_memory_backend(config: &ExchangeConfig, shape: MemoryShape, world: &World) -> Result<Box<dyn Backend>> {
    shape.check_fits(world)?;
    world.barrier();
    Ok(Box::new(SharedMemory::new(config, shape, world)?))
}

/// Assigns owners among `ranks` ranks to every bucket.
fn owned_buckets(buckets: &[Bucket], strategy: Strategy, ranks: u32) -> Vec<(Range<usize>, Ownership)> {
    let lengths: Vec<usize> = buckets.iter().map(|bucket| bucket.elements.len()).collect();
    let balanced = placement::owners(&lengths, ranks as usize);
    let ownership = |(bucket, owner): (&Bucket, &usize)| {
        let elements = bucket.elements.clone();
        let ownership = match strategy {
            Strategy::Local | Strategy::Zero1 => {
                Ownership::Shards(split_evenly(elements.clone(), ranks, PART_ALIGNMENT))
            }
            Strategy::Nccl => Ownership::Whole(0),
            _ => Ownership::Whole(*owner as u32),
        };
        (elements, ownership)
    };
    buckets.iter().zip(&balanced).map(ownership).collect()
}

/// Returns the elements of a bucket that `rank` owns.
fn part_of((elements, ownership): &(Range<usize>, Ownership), rank: u32) -> Option<Range<usize>> {
    let part = match ownership {
        Ownership::Whole(owner) => (*owner == rank).then(|| elements.clone()),
        Ownership::Shards(parts) => parts.get(rank as usize).cloned(),
    };
    part.filter(|part| !part.is_empty())
}

impl Exchange {
    /// Starts the sum of a bucket on its owners.
    fn start(&mut self, elements: &Range<usize>) -> Result<()> {
        if let Some(device_wire) = &self.device_wire {
            narrow(&self.backend.memory().wire, elements)?.f_copy_(&narrow(device_wire, elements)?)?;
        }
        let Some((_, ownership)) = self.buckets.iter().find(|(bucket, _)| bucket == elements) else {
            anyhow::bail!("no bucket has the elements {elements:?}");
        };
        self.backend.start_collective(&ownership.sum(elements, self.route))
    }

    /// Sends the owners' elements of `array`, which is as long as the weights, to all.
    fn share(&mut self, array: &Tensor) -> Result<()> {
        let target = Target::Tensor(array);
        for (elements, ownership) in &self.buckets {
            self.backend.start_collective(&ownership.share(elements, target))?;
        }
        self.backend.finish()
    }
}

impl GradientExchange for Sharded {
    fn reducer(&self) -> &'static GradientReducer {
        self.reducer
    }

    fn facts(&self) -> ExchangeFacts {
        self.facts
    }

    fn arrays(&self) -> Option<ExchangeArrays> {
        let in_place = lock(&self.exchange).backend.memory().in_place;
        Some(ExchangeArrays { wire: self.reducer.wire(), result: self.weights.shallow_clone(), in_place })
    }

    fn requested_bytes(&self) -> Option<[u64; 2]> {
        let own = GroupRank { rank: self.rank, ranks: self.facts.summed_ranks };
        let mut bytes = [0; 2];
        let exchange = lock(&self.exchange);
        for (elements, ownership) in &exchange.buckets {
            let sum = ownership.sum(elements, exchange.route).bytes(own, self.wire.bytes());
            let share = ownership.share(elements, Target::Memory).bytes(own, Wire::Fp32.bytes());
            bytes.iter_mut().zip(sum).zip(share).for_each(|((all, sum), share)| *all += sum + share);
        }
        Some(bytes)
    }

    fn update(&mut self, update: u32) -> Result<()> {
        self.parts.step(update)?;
        let mut exchange = lock(&self.exchange);
        heartbeat::enter(Stage::Sharing);
        let weights = exchange.weights.shallow_clone();
        exchange.share(&weights)?;
        if exchange.device_wire.is_some() {
            self.weights.f_copy_(&exchange.weights)?;
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Option<UpdateState>> {
        let mut exchange = lock(&self.exchange);
        let weights = exchange.weights.shallow_clone();
        self.parts.state(&weights, |whole| exchange.share(whole)).map(Some)
    }

    fn set_state(&mut self, state: &UpdateState) -> Result<()> {
        self.parts.set_state(state)
    }

    fn loss_scaler(&self) -> Option<&LossScaler> {
        self.parts.loss_scaler()
    }

    fn end(&mut self, session: &Session) -> Result<Option<StrategyUse>> {
        Ok(Some(self.use_of_owners(self.owned, session.world)))
    }
}

fn lock(exchange: &Mutex<Exchange>) -> MutexGuard<'_, Exchange> {
    exchange.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Sink(Arc<Mutex<Exchange>>);

impl GradientSink for Sink {
    fn facts(&self) -> SinkFacts {
        let exchange = lock(&self.0);
        let is_whole = exchange.buckets.iter().any(|(_, ownership)| matches!(ownership, Ownership::Whole(_)));
        let operation = if is_whole { Operation::Reduce } else { Operation::ReduceScatter };
        SinkFacts::for_backend(&*exchange.backend, operation)
    }

    fn wire(&mut self) -> Tensor {
        let mut exchange = lock(&self.0);
        match &exchange.device_wire {
            Some(wire) => wire.shallow_clone(),
            None => exchange.backend.memory().wire.shallow_clone(),
        }
    }

    fn start(&mut self, elements: Range<usize>) -> Result<()> {
        lock(&self.0).start(&elements)
    }

    fn finish(&mut self) -> Result<()> {
        lock(&self.0).backend.finish()
    }

    fn with_backend(&mut self, action: &mut dyn FnMut(&mut dyn Backend)) {
        action(&mut *lock(&self.0).backend);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_one_owner() {
        let bucket = |elements: Range<usize>| Bucket { parameters: 0..1, elements };
        let buckets = [bucket(0..300), bucket(300..1000), bucket(1000..1010)];
        for strategy in [Strategy::Zero1, Strategy::Local, Strategy::Device, Strategy::Nccl] {
            let owned = owned_buckets(&buckets, strategy, 3);
            let parts_of = |rank| owned.iter().filter_map(move |bucket| part_of(bucket, rank));
            let mut parts: Vec<Range<usize>> = (0..3).flat_map(parts_of).collect();
            parts.sort_by_key(|part| part.start);
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start), "{strategy}: {parts:?}");
            assert_eq!((parts[0].start, parts[parts.len() - 1].end), (0, 1010), "{strategy}");
            let elements = |rank| parts_of(rank).map(|part| part.len()).sum::<usize>();
            let elements_by_rank = [0, 1, 2].map(elements);
            match strategy {
                Strategy::Nccl => assert_eq!(elements_by_rank, [1010, 0, 0]),
                Strategy::Device => assert_eq!(elements_by_rank, [700, 300, 10]),
                _ => assert!(elements_by_rank.iter().all(|elements| *elements >= 100), "{elements_by_rank:?}"),
            }
        }
    }
}
