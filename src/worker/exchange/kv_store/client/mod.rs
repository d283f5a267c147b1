//! A rank that trains with servers: pushes the gradient of each parameter as soon as backward has computed it, and
//! continues with the weights in the answers, or updates its own weights by the sums in them.
//!
//! Synchronous ranks of a host first add up their gradients on the CPU, and one of them pushes the sum. With
//! `dist_async`, and on GPUs, each rank pushes its own.

mod links;
mod local_aggregation;
mod local_update;
mod push_compression;
mod send_queue;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use ringmark_core::benchmark::exchange::ExchangeConfig;
use ringmark_core::benchmark::strategy::{LostRank, ServerUse, Staleness, StrategyUse};
use ringmark_core::dimension::{BackendName, Bytes, Strategy, Wire};
use ringmark_core::host::Stage;
use tch::{Device, Kind, Tensor};

use crate::exchange::compression::Codec;
use crate::exchange::compression::facts::CompressionFacts;
use crate::exchange::kv_store::client::links::{Links, Payload, ReadyCheck};
use crate::exchange::kv_store::client::local_aggregation::LocalAggregation;
use crate::exchange::kv_store::client::local_update::LocalUpdate;
use crate::exchange::kv_store::client::push_compression::PushCompression;
use crate::exchange::kv_store::formats::AnswerFormat;
use crate::exchange::kv_store::plan::{self, PlannedPart};
use crate::exchange::kv_store::protocol::ServerReport;
use crate::exchange::kv_store::rendezvous::{self, Announcement, Membership, WorkerFacts};
use crate::exchange::memory;
use crate::exchange::optimizer::FusedOptimizer;
use crate::exchange::reducer::{self, GradientReducer, GradientSink, GradientSource, SinkFacts};
use crate::exchange::request::{ExchangeRequest, RankCounts};
use crate::exchange::{ExchangeArrays, ExchangeFacts, GradientExchange, Parameters};
use crate::ffi::memory::element::Element;
use crate::ffi::torch::host_array::HostArray;
use crate::ffi::torch::shim;
use crate::ffi::torch::stream::{Event, Stream};
use crate::job::heartbeat;
use crate::job::session::Session;
use crate::job::world::World;

pub struct ServerClient {
    reducer: &'static GradientReducer,
    pushes: Arc<Mutex<PushState>>,
    weights: Tensor,
    /// Destination of the answers: the weights, or the optimizer's sums.
    answers: Tensor,
    membership: Membership,
    parts: Vec<PlannedPart>,
    is_asynchronous: bool,
}

impl ServerClient {
    /// Connects to the servers and hooks into backward. All workers and servers of the job call this together.
    pub fn new(request: &ExchangeRequest, parameters: Parameters, session: &Session) -> Result<ServerClient> {
        let Parameters { weights, tensors, ready_from, .. } = parameters;
        let (world, device) = (session.world, session.device());
        let lengths: Vec<usize> = tensors.iter().map(Tensor::numel).collect();
        let codec = Codec::new(request.compression);
        let aggregation = match aggregates_locally(request.strategy.strategy, world, device) {
            true => Some(LocalAggregation::join(weights.numel(), request.exchange.wire, world)?),
            false => None,
        };
        let is_pusher = aggregation.as_ref().is_none_or(LocalAggregation::is_leader);
        let own = WorkerFacts {
            host: world.host().to_owned(),
            summed: if is_pusher { aggregation.as_ref().map_or(1, LocalAggregation::ranks) } else { 0 },
            lengths: if world.rank() == 0 { lengths.clone() } else { Vec::new() },
        };
        // Allocated before the rendezvous, after which servers on this host read the remaining memory.
        let [wire, pulled] = match &aggregation {
            Some(aggregation) => aggregation.arrays()?,
            None => arrays(weights.numel(), Element::from(request.exchange.wire).kind(), device)?,
        }
        .map(Arc::new);
        let membership = Membership::exchange(&Announcement::Worker(own), world)?;
        let parts = plan::for_request(request, &lengths, membership.servers.len());
        let parts = rendezvous::ready(parts, world)?;
        // Servers have allocated their memory.
        rendezvous::ready(Ok(()), world)?;
        let answer = AnswerFormat::new(request, membership.pushers().len());
        let links = match membership.pushers().iter().position(|rank| *rank == world.rank()) {
            Some(pusher) => {
                let initial = HostArray::new(weights.f_to_device(Device::Cpu)?)?;
                let codes = codec.map(|codec| PushCompression::new(codec, answer, world.rank(), &parts));
                let (wire, pulled) = (wire.clone(), pulled.clone());
                let payload = Payload { parts: parts.clone(), wire, pulled, codes, answer };
                Some(Links::open(&membership.servers, pusher, world.name(), payload, &initial)?)
            }
            None => None,
        };
        let answers = match (answer, device) {
            (AnswerFormat::Weights, _) => weights.shallow_clone(),
            (AnswerFormat::Sums(_), Device::Cuda(_)) => weights.f_zeros_like()?,
            (AnswerFormat::Sums(_), _) => pulled.tensor().shallow_clone(),
        };
        // No rank pushes before every server has the initial weights.
        world.barrier();
        let device_wire = match device {
            Device::Cuda(index) => {
                let values = Tensor::f_zeros([weights.numel() as i64], (wire.tensor().kind(), device))?;
                Some(DeviceWire { values, device: index, copy_stream: Stream::new(index)?.0 })
            }
            _ => None,
        };
        let has_codes = codec.is_some();
        let ranks = membership.workers.len() as u32;
        let counts = RankCounts { all: ranks, summed: ranks, averaged: ranks };
        let local_update = match answer {
            AnswerFormat::Weights => None,
            AnswerFormat::Sums(_) => {
                let optimizer =
                    FusedOptimizer::new(&request.rule, counts, weights.shallow_clone(), answers.shallow_clone())?;
                Some(LocalUpdate::new(optimizer, &parts))
            }
        };
        let pushes = PushState {
            links,
            aggregation,
            wire,
            pulled,
            device_wire,
            local_update,
            next: None,
            has_codes,
            iteration: 1,
            pushed_ranges: 0,
        };
        let pushes = Arc::new(Mutex::new(pushes));
        // One bucket per parameter: each is a key and is pushed when backward has computed it.
        let keys = ExchangeConfig { bucket_mb: 0.0, tail_mb: 0.0, ..request.exchange };
        let sink = Box::new(Sink(pushes.clone()));
        let plan = reducer::plan(&tensors, &keys);
        let source = GradientSource { parameters: tensors, ready_from };
        let reducer = GradientReducer::new(request.overlap, plan, source, sink)?;
        let is_asynchronous = request.strategy.strategy.is_asynchronous();
        Ok(ServerClient { reducer, pushes, weights, answers, membership, parts, is_asynchronous })
    }

    fn pushes(&self) -> MutexGuard<'_, PushState> {
        self.pushes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if the ranks of this host add up their gradients before one pushes.
fn aggregates_locally(strategy: Strategy, world: &World, device: Device) -> bool {
    world.local_ranks() > 1 && strategy != Strategy::DistAsync && device == Device::Cpu
}

/// Allocates the gradients on the wire and the weights of the answers.
fn arrays(elements: usize, wire: Kind, device: Device) -> Result<[HostArray; 2]> {
    let new = if device == Device::Cpu { HostArray::zeros } else { HostArray::pinned };
    Ok([new(elements, wire)?, new(elements, Kind::Float)?])
}

impl GradientExchange for ServerClient {
    fn reducer(&self) -> &'static GradientReducer {
        self.reducer
    }

    fn facts(&self) -> ExchangeFacts {
        ExchangeFacts {
            backend: BackendName::Tcp,
            sum_dtype: Some(Wire::Fp32),
            summed_ranks: self.membership.workers.len() as u32,
            // If several ranks push without waiting, each receives only the pushes before its own.
            is_synchronous: !self.is_asynchronous || self.membership.pushers().len() == 1,
        }
    }

    fn arrays(&self) -> Option<ExchangeArrays> {
        Some(ExchangeArrays { wire: self.reducer.wire(), result: self.weights.shallow_clone(), in_place: false })
    }

    fn requested_bytes(&self) -> Option<[u64; 2]> {
        None
    }

    fn finish(&mut self, next: Option<u32>) -> Result<()> {
        self.pushes().next = next;
        self.reducer.finish()
    }

    /// Copies the servers' weights, or updates the weights with the servers' sums.
    fn update(&mut self, update: u32) -> Result<()> {
        let mut pushes = self.pushes();
        pushes.copy_answers(&self.answers)?;
        pushes.local_update.as_mut().map_or(Ok(()), |own| own.complete(update))
    }

    fn end(&mut self, session: &Session) -> Result<Option<StrategyUse>> {
        let (reports, iterations, bytes) = {
            let mut pushes = self.pushes();
            let reports = pushes.end()?;
            if pushes.local_update.is_none() {
                pushes.copy_answers(&self.answers)?;
            }
            let bytes = pushes.links.as_ref().map_or([0; 2], Links::bytes_of_steps);
            (reports, f64::from(pushes.iteration - 1), bytes)
        };
        // From here on each rank waits for the results of all remaining ranks.
        heartbeat::enter_and_notify(Stage::Finishing);
        let lost = self.lost(&reports);
        let ranks: Vec<u32> = lost.iter().map(|lost| lost.rank).collect();
        session.world.continue_without(&ranks)?;
        let per_step = |bytes: f64| Bytes((bytes / iterations).round() as u64);
        let all = session.world.gather(&bytes.map(|bytes| bytes as f64));
        let by_rank = |index: usize| all.iter().map(|rank| per_step(rank[index])).collect();
        let counts = |mut sum: Vec<u64>, report: &ServerReport| {
            sum.resize(sum.len().max(report.staleness.len()), 0);
            sum.iter_mut().zip(&report.staleness).for_each(|(sum, count)| *sum += count);
            sum
        };
        Ok(Some(StrategyUse {
            servers: self.servers(&reports, per_step),
            sent_by_rank: by_rank(0),
            received_by_rank: by_rank(1),
            staleness: Staleness::from_counts(&reports.iter().fold(Vec::new(), counts)),
            lost,
            ..StrategyUse::default()
        }))
    }

    fn leave(&mut self) -> Result<()> {
        let mut pushes = self.pushes();
        if let Some(aggregation) = &pushes.aggregation {
            aggregation.leave();
        }
        pushes.links.as_mut().map_or(Ok(()), Links::leave)
    }
}

impl ServerClient {
    /// Returns the use of the servers by their reports; empty on a rank that does not push.
    fn servers(&self, reports: &[ServerReport], per_step: impl Fn(f64) -> Bytes) -> Vec<ServerUse> {
        let server = |(number, report): (usize, &ServerReport)| {
            let held: Vec<usize> =
                self.parts.iter().filter(|part| part.server == number).map(|part| part.elements.len()).collect();
            ServerUse {
                host: self.membership.servers[number].host.clone(),
                parts: held.len() as u32,
                weights: Bytes((held.iter().sum::<usize>() * size_of::<f32>()) as u64),
                received: per_step(report.received as f64),
                sent: per_step(report.sent as f64),
            }
        };
        reports.iter().enumerate().map(server).collect()
    }

    /// Returns the ranks that ended before the others according to any server. Every rank has the same reports.
    fn lost(&self, reports: &[ServerReport]) -> Vec<LostRank> {
        let mut last: BTreeMap<usize, u32> = BTreeMap::new();
        for (pusher, iteration) in reports.iter().flat_map(|report| &report.lost) {
            let last = last.entry(*pusher).or_default();
            *last = (*last).max(*iteration);
        }
        let pushers = self.membership.pushers();
        let lost = |(pusher, iteration): (usize, u32)| {
            let rank = pushers[pusher];
            LostRank { rank, host: self.membership.workers[rank as usize].host.clone(), iteration }
        };
        last.into_iter().map(lost).collect()
    }
}

/// Pushes and answers of this rank.
struct PushState {
    /// `None` on a rank that does not push.
    links: Option<Links>,
    aggregation: Option<LocalAggregation>,
    wire: Arc<HostArray>,
    pulled: Arc<HostArray>,
    /// Wire on a GPU.
    device_wire: Option<DeviceWire>,
    /// Present if servers send sums.
    local_update: Option<LocalUpdate>,
    /// Number of the update that follows, if known.
    next: Option<u32>,
    /// True if this rank or the leader of its host pushes codes.
    has_codes: bool,
    /// Current iteration, from 1.
    iteration: u32,
    /// Ranges handed over since the start.
    pushed_ranges: usize,
}

/// The wire on a GPU, and the stream in which it is copied to the host.
struct DeviceWire {
    values: Tensor,
    device: usize,
    copy_stream: Stream,
}

impl PushState {
    fn start(&mut self, elements: Range<usize>) -> Result<()> {
        let copy_event = match &self.device_wire {
            Some(device_wire) => Some(self.copy_to_host(device_wire, &elements)?),
            None => None,
        };
        let shared_range = self.aggregation.as_mut().map(LocalAggregation::arrive).transpose()?;
        let is_ready = || -> ReadyCheck {
            match (&copy_event, &shared_range) {
                (Some(event), _) => {
                    let event = event.clone();
                    Box::new(move |_| event.lock().unwrap_or_else(PoisonError::into_inner).is_done())
                }
                (None, Some(range)) => {
                    let range = range.clone();
                    Box::new(move |elements| Ok(range.sum(elements)))
                }
                (None, None) => Box::new(|_| Ok(true)),
            }
        };
        self.pushed_ranges += 1;
        match &mut self.links {
            Some(links) => links.push(&elements, self.iteration, is_ready),
            None => Ok(()),
        }
    }

    /// Copies gradients to the host; neither the host nor backward waits for it.
    fn copy_to_host(&self, device_wire: &DeviceWire, elements: &Range<usize>) -> Result<Arc<Mutex<Event>>> {
        let DeviceWire { values, device, copy_stream } = device_wire;
        copy_stream.wait_for(&Stream::current(*device)?.record_event()?)?;
        copy_stream.run(|| {
            let [to, from] = [self.wire.tensor(), values].map(|tensor| memory::narrow(tensor, elements));
            shim::copy_without_waiting(&to?, &from?)
        })?;
        Ok(Arc::new(Mutex::new(copy_stream.record_event()?)))
    }

    fn finish(&mut self) -> Result<()> {
        heartbeat::enter(Stage::Pulling);
        let next = self.next.take();
        if let Some(links) = &self.links {
            if let (Some(own), Some(update)) = (&mut self.local_update, next) {
                own.begin(update, std::iter::from_fn(|| links.next_arrival()))?;
            }
            links.wait();
        }
        if let Some(aggregation) = &mut self.aggregation {
            aggregation.finish_round();
        }
        if let Some(DeviceWire { device, copy_stream, .. }) = &self.device_wire {
            // The next gradients overwrite what the copies read.
            Stream::current(*device)?.wait_for(&copy_stream.record_event()?)?;
        }
        self.iteration += 1;
        Ok(())
    }

    /// Copies the answers to `answers`; libtorch copies nothing if that is the same memory.
    fn copy_answers(&self, answers: &Tensor) -> Result<()> {
        match answers.device() {
            Device::Cpu => answers.shallow_clone().f_copy_(self.pulled.tensor())?,
            _ => return shim::copy_without_waiting(answers, self.pulled.tensor()),
        };
        Ok(())
    }

    fn end(&mut self) -> Result<Vec<ServerReport>> {
        heartbeat::enter(Stage::Pulling);
        if let Some(aggregation) = &mut self.aggregation {
            // The other ranks may still read what this one overwrites.
            aggregation.barrier();
        }
        let reports = self.links.as_mut().map_or(Ok(Vec::new()), Links::end)?;
        if let Some(aggregation) = &mut self.aggregation {
            aggregation.finish_round();
        }
        Ok(reports)
    }
}

struct Sink(Arc<Mutex<PushState>>);

impl Sink {
    fn pushes(&self) -> MutexGuard<'_, PushState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GradientSink for Sink {
    fn facts(&self) -> SinkFacts {
        SinkFacts { operation: None, is_asynchronous: true, has_chunks: false, exchanges_passes: false }
    }

    fn wire(&mut self) -> Tensor {
        let pushes = self.pushes();
        pushes.device_wire.as_ref().map_or(pushes.wire.tensor(), |on_device| &on_device.values).shallow_clone()
    }

    fn start(&mut self, elements: Range<usize>) -> Result<()> {
        self.pushes().start(elements)
    }

    fn finish(&mut self) -> Result<()> {
        self.pushes().finish()
    }

    fn check(&mut self) -> Result<usize> {
        Ok(self.pushes().pushed_ranges)
    }

    fn compression(&self) -> Option<CompressionFacts> {
        let pushes = self.pushes();
        // A rank without links relies on another rank of its host to push.
        let none = CompressionFacts { received: Some(Bytes(0)), ..CompressionFacts::default() };
        pushes.has_codes.then(|| pushes.links.as_ref().and_then(Links::compression).unwrap_or(none))
    }
}
