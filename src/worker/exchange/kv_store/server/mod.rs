//! Server of a kv-store: holds shards of the weights, sums pushes, updates, and sends weights back. If the sums are
//! shorter, it sends them back instead and every worker updates.
//!
//! ```text
//! reader of each worker --\                            /--> one update thread     --> writer of each worker
//!                          >--> the scheduling thread        per core
//! reader of each worker --/                            \--> another               --> writer of each worker
//! ```
//!
//! A shard is locked during its update, so an update is atomic. Each reader writes to its own array, and writers send a
//! copy of the weights of one update: no worker waits for another's connection, and no shard for another.
//!
//! Synchronous: a shard is updated when all workers have pushed it, by the sum in worker order, which is the same in
//! every run. Asynchronous: it is updated at every push, and the others continue when a worker ends.

mod connection;
mod memory;
mod parameter_shard;
mod update_threads;

use std::collections::VecDeque;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use ringmark_core::host::Stage;

use crate::exchange::kv_store::formats::Formats;
use crate::exchange::kv_store::plan::{self, PlannedPart};
use crate::exchange::kv_store::protocol::{FrameKind, HEADER_BYTES, Header, LostWorker, ServerReport};
use crate::exchange::kv_store::rendezvous::{self, Announcement, Membership, ServerFacts};
use crate::exchange::kv_store::server::connection::{Outgoing, Parts, Payload, WorkerEvent, read, write};
use crate::exchange::kv_store::server::memory::{FreeMemory, ServerMemory};
use crate::exchange::kv_store::server::parameter_shard::ParameterShard;
use crate::exchange::kv_store::server::update_threads::{Answers, PendingUpdate, UpdateStatistics, UpdateThreads};
use crate::exchange::request::{ExchangeRequest, RankCounts};
use crate::host::facts;
use crate::job::heartbeat;
use crate::job::world::{self, World};

struct Pusher {
    rank: u32,
    host: String,
    /// Ranks whose gradients are summed in its pushes.
    summed: u32,
    /// Channel to its writer.
    outgoing: Sender<Outgoing>,
    iteration: u32,
    state: PusherState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PusherState {
    Pushing,
    /// All its iterations are pushed; it gathers results with the others.
    Ended,
    /// The worker has disconnected.
    Gone,
    Lost,
}

/// Serves until all workers have pushed everything, then reports lost workers to the others until all have
/// disconnected.
pub fn run(request: &ExchangeRequest, world: &World) -> Result<()> {
    heartbeat::enter(Stage::Connecting);
    let (listener, addresses) = rendezvous::listen()?;
    let token = facts::random_id();
    let own = ServerFacts { host: world.host().to_owned(), token, addresses };
    let membership = Membership::exchange(&Announcement::Server(own), world)?;
    // Each update thread works on its own shard.
    tch::set_num_threads(1);
    let pushers = membership.pushers();
    // Workers have allocated their memory by now, some of it on this host. No server allocates before all have read the
    // remaining memory.
    let Prepared { plan, formats, memory } =
        rendezvous::ready(Prepared::new(request, &membership, world.rank() as usize, FreeMemory::read()), world)?;
    let number = world.rank() as usize;
    let holds_weights = formats.answer.holds_weights();
    let held = |(part, planned): (usize, &PlannedPart)| {
        let is_held = planned.server == number;
        is_held.then(|| Ok((part as u32, ParameterShard::new(planned.elements.len(), formats, pushers.len())?)))
    };
    let parts: Result<_> = plan.iter().enumerate().filter_map(held).collect();
    let parts = Arc::new(Parts(rendezvous::ready(parts.map_err(|error| memory.explain(error)), world)?));

    let connections = rendezvous::accept(listener, token, pushers.len())?;
    let timeout = rendezvous::read_timeout()?;
    connections.iter().try_for_each(|connection| connection.set_read_timeout(Some(timeout)))?;
    let (sender, events) = mpsc::channel();
    thread::scope(|scope| {
        let workers = connections.iter().enumerate().map(|(index, connection)| {
            let worker = &membership.workers[pushers[index] as usize];
            let (outgoing, incoming) = mpsc::channel();
            let (parts, sender) = (parts.clone(), sender.clone());
            scope.spawn(move || read(connection, index, index == 0 && holds_weights, &parts, &sender));
            scope.spawn(move || write(connection, incoming));
            Pusher {
                rank: pushers[index],
                host: worker.host.clone(),
                summed: worker.summed,
                outgoing,
                iteration: 0,
                state: PusherState::Pushing,
            }
        });
        let pushers: Vec<Pusher> = workers.collect();
        let outgoing = pushers.iter().map(|pusher| pusher.outgoing.clone()).collect();
        let answers = Answers { outgoing, failures: sender };
        let update_threads = UpdateThreads::start(scope, facts::cores(), &parts, request.warmup, answers);
        let mut server = Server {
            request,
            ranks: membership.workers.len() as u32,
            parts: parts.clone(),
            pushers,
            update_threads,
            holds_weights,
            missing_initial: if holds_weights { parts.0.len() } else { 0 },
            received: 0,
            early_pushes: VecDeque::new(),
        };
        let served = server.serve(&events).map_err(|error| memory.explain(error));
        if let Err(error) = &served {
            // Before workers report that they lost this server.
            world::report_failure(error);
        }
        if server.pushers.iter().any(|pusher| pusher.state == PusherState::Lost) {
            world.record_lost_rank();
        }
        // Writers end after the last frame, readers by this shutdown; after a failure both end at once.
        drop(server);
        let what = if served.is_err() { Shutdown::Both } else { Shutdown::Read };
        connections.iter().for_each(|connection| drop(connection.shutdown(what)));
        served
    })
}

/// State of a server before it allocates.
struct Prepared {
    plan: Vec<PlannedPart>,
    formats: Formats,
    memory: ServerMemory,
}

impl Prepared {
    /// Plans server `number`.
    ///
    /// # Errors
    ///
    /// Fails if the plan is impossible or does not fit the memory `left`.
    fn new(request: &ExchangeRequest, membership: &Membership, number: usize, left: FreeMemory) -> Result<Prepared> {
        let lengths = membership.workers.first().map(|worker| worker.lengths.clone()).unwrap_or_default();
        let plan = plan::for_request(request, &lengths, membership.servers.len())?;
        let formats = Formats::new(request, membership.pushers().len());
        let memory = ServerMemory::new(left, membership, &plan, formats, number);
        memory.check()?;
        Ok(Prepared { plan, formats, memory })
    }
}

/// State of the scheduling thread.
struct Server<'a> {
    request: &'a ExchangeRequest,
    /// Number of workers.
    ranks: u32,
    parts: Arc<Parts>,
    pushers: Vec<Pusher>,
    update_threads: UpdateThreads<'a>,
    /// False if workers update.
    holds_weights: bool,
    /// Parts whose initial values are missing.
    missing_initial: usize,
    received: u64,
    /// Pushes that arrived before the last initial value.
    early_pushes: VecDeque<(usize, u32, u32)>,
}

impl Server<'_> {
    fn serve(&mut self, events: &Receiver<(usize, WorkerEvent)>) -> Result<()> {
        heartbeat::enter(Stage::Serving);
        while self.pushers.iter().any(|pusher| pusher.state == PusherState::Pushing) {
            let (pusher, event) = events.recv().context("all workers have disconnected")?;
            match event {
                WorkerEvent::Initial => self.handle_initial()?,
                WorkerEvent::Push { part, iteration } if self.missing_initial > 0 => {
                    self.early_pushes.push_back((pusher, part, iteration));
                }
                WorkerEvent::Push { part, iteration } => self.handle_push(pusher, part, iteration)?,
                WorkerEvent::End => {
                    self.pushers[pusher].state = PusherState::Ended;
                    self.check_ends()?;
                }
                WorkerEvent::Farewell => {
                    bail!("rank {} disconnected before every rank had pushed", self.pushers[pusher].rank)
                }
                WorkerEvent::Lost(problem) => self.handle_lost_worker(pusher, &problem)?,
                WorkerEvent::Faulty(what) => return Err(self.protocol_error(pusher, &what)),
                WorkerEvent::Failed => return self.update_threads.finish().map(drop),
            }
        }
        self.send_all()?;
        self.wait_for_farewells(events)
    }

    fn handle_initial(&mut self) -> Result<()> {
        self.missing_initial -= 1;
        heartbeat::count_progress();
        if self.missing_initial == 0 {
            // Worker 0 sent them and releases the others.
            self.send(0, Header::without_payload(FrameKind::Started), Payload::None);
            while let Some((pusher, part, iteration)) = self.early_pushes.pop_front() {
                self.handle_push(pusher, part, iteration)?;
            }
        }
        Ok(())
    }

    fn handle_push(&mut self, pusher: usize, number: u32, iteration: u32) -> Result<()> {
        let parts = self.parts.clone();
        let part = parts.get(number)?;
        let pushed = &mut self.pushers[pusher];
        if iteration > pushed.iteration {
            pushed.iteration = iteration;
            heartbeat::enter_in(iteration, Stage::Serving);
        }
        self.received += (HEADER_BYTES + part.pushed_bytes()) as u64;
        let (summed, pushers) = if self.request.strategy.strategy.is_asynchronous() {
            (pushed.summed, pusher..pusher + 1)
        } else if part.count(pusher) == self.pushers.len() {
            (self.ranks, 0..self.pushers.len())
        } else {
            return self.check_ends();
        };
        let counts = RankCounts { all: self.ranks, summed, averaged: self.ranks };
        let step = self.request.rule.step(iteration, counts);
        self.update_threads.update(PendingUpdate { part: number, iteration, pushers, step });
        Ok(())
    }

    /// Returns the error for a worker whose frame is unexpected or incomplete.
    fn protocol_error(&self, pusher: usize, what: &str) -> Error {
        let Pusher { rank, host, iteration, .. } = &self.pushers[pusher];
        anyhow!(
            "rank {rank} on host {host} is out of sync after its pushes of iteration {iteration} ({what}): the process \
             is stopped or faulty, or its host or link is down"
        )
    }

    /// Fails if a worker ended whose pushes others still need.
    fn check_ends(&self) -> Result<()> {
        if self.request.strategy.strategy.is_asynchronous() {
            return Ok(());
        }
        let last = self.pushers.iter().map(|pusher| pusher.iteration).max().unwrap_or_default();
        let is_early = |pusher: &Pusher| pusher.state == PusherState::Ended && pusher.iteration < last;
        match self.pushers.iter().position(is_early) {
            Some(early) => {
                Err(self.protocol_error(early, &format!("it ended while other workers push iteration {last}")))
            }
            None => Ok(()),
        }
    }

    /// Drops a worker whose connection broke.
    ///
    /// # Errors
    ///
    /// Fails if a pending or later update needs it.
    fn handle_lost_worker(&mut self, pusher: usize, problem: &str) -> Result<()> {
        let lost = &mut self.pushers[pusher];
        lost.state = PusherState::Lost;
        let &mut Pusher { rank, ref host, summed, iteration, .. } = lost;
        let name =
            format!("lost the connection to rank {rank} on host {host} after its pushes of iteration {iteration}");
        let consequence = if !self.request.strategy.strategy.is_asynchronous() {
            "; the other workers wait for it"
        } else if summed > 1 {
            "; the ranks on that host sum their gradients first and wait for each other"
        } else if iteration == 0 {
            "; the other workers wait until every worker has pushed once"
        } else if self.request.ranks_meet {
            "; the other workers synchronize with it in every iteration"
        } else {
            ""
        };
        let all_are_lost = self.pushers.iter().all(|pusher| pusher.state == PusherState::Lost);
        ensure!(
            consequence.is_empty() && !all_are_lost,
            "{name} ({problem}): the process exited, or its host or link is down{consequence}"
        );
        Ok(())
    }

    /// Sends the final weights and the report to all workers.
    fn send_all(&mut self) -> Result<()> {
        let UpdateStatistics { sent, staleness } = self.update_threads.finish()?;
        let is_asynchronous = self.request.strategy.strategy.is_asynchronous();
        let lost = (0..).zip(&self.pushers).filter(|(_, pusher)| pusher.state == PusherState::Lost);
        let report = ServerReport {
            received: self.received,
            sent,
            staleness: if is_asynchronous { staleness } else { Vec::new() },
            lost: lost.map(|(index, pusher)| (index, pusher.iteration)).collect(),
        };
        for (number, part) in self.parts.0.iter().filter(|_| self.holds_weights) {
            let weights = Arc::new(part.snapshot()?);
            for receiver in 0..self.pushers.len() {
                let bytes = part.answer_bytes() as u64;
                let header = Header { kind: FrameKind::Answer, part: *number, iteration: 0, bytes };
                self.send(receiver, header, Payload::Array(weights.clone()));
            }
        }
        for receiver in 0..self.pushers.len() {
            self.send(receiver, Header::without_payload(FrameKind::Report), Payload::Report(report.clone()));
        }
        Ok(())
    }

    /// Waits until all workers have gathered their results, and reports those that end before: MPI's collectives would
    /// wait for them forever, and with `--continuous` mpirun does not end the job.
    fn wait_for_farewells(&mut self, events: &Receiver<(usize, WorkerEvent)>) -> Result<()> {
        heartbeat::enter(Stage::Finishing);
        let _waiting = heartbeat::wait();
        let mut last = String::new();
        while self.pushers.iter().any(|pusher| pusher.state == PusherState::Ended) {
            let (number, event) = events.recv().context("all workers have disconnected")?;
            let Pusher { rank, host, state, .. } = &mut self.pushers[number];
            match (event, *state) {
                (WorkerEvent::Farewell, _) => *state = PusherState::Gone,
                (WorkerEvent::Lost(problem) | WorkerEvent::Faulty(problem), PusherState::Ended) => {
                    *state = PusherState::Lost;
                    last = format!("rank {rank} on host {host} ({problem})");
                    let loss = LostWorker { pusher: number, rank: *rank, host: host.clone() };
                    for receiver in 0..self.pushers.len() {
                        self.send(
                            receiver,
                            Header::without_payload(FrameKind::WorkerLost),
                            Payload::LostWorker(loss.clone()),
                        );
                    }
                }
                _ => {}
            }
        }
        let has_gone = self.pushers.iter().any(|pusher| pusher.state == PusherState::Gone);
        ensure!(has_gone, "all workers exited while results were gathered; the last was {last}");
        Ok(())
    }

    fn send(&self, pusher: usize, header: Header, payload: Payload) {
        // If a writer has ended, its worker is lost, which the reader reports.
        let _ = self.pushers[pusher].outgoing.send(Outgoing { header, payload });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use expect_test::expect;
    use ringmark_core::benchmark::train::config::TrainConfig;
    use ringmark_core::dimension::Strategy;

    use super::*;

    /// Returns the result of a server without parts after these events of two workers, of ranks 0 and 2, each of which
    /// pushes for `summed` ranks.
    fn served(strategy: Strategy, summed: u32, events: Vec<(usize, WorkerEvent)>) -> Result<()> {
        let mut request = ExchangeRequest::from(&TrainConfig::default());
        request.strategy.strategy = strategy;
        let writers = [0, 1].map(|_| mpsc::channel());
        let pusher = |(index, (outgoing, _)): (u32, &(Sender<Outgoing>, Receiver<Outgoing>))| Pusher {
            rank: 2 * index,
            host: "b".to_owned(),
            summed,
            outgoing: outgoing.clone(),
            iteration: 0,
            state: PusherState::Pushing,
        };
        let parts = Arc::new(Parts(BTreeMap::new()));
        let (sender, receiver) = mpsc::channel();
        events.into_iter().for_each(|event| sender.send(event).expect("the receiver is open"));
        thread::scope(|scope| {
            let answers = Answers { outgoing: Vec::new(), failures: sender };
            let update_threads = UpdateThreads::start(scope, 1, &parts, 0, answers);
            let mut server = Server {
                request: &request,
                ranks: 2 * summed,
                parts: parts.clone(),
                pushers: (0..).zip(&writers).map(pusher).collect(),
                update_threads,
                holds_weights: true,
                missing_initial: 0,
                received: 0,
                early_pushes: VecDeque::new(),
            };
            server.pushers[1].iteration = 7;
            server.serve(&receiver)
        })
    }

    fn lost() -> WorkerEvent {
        WorkerEvent::Lost("connection closed".to_owned())
    }

    #[test]
    fn synchronous_server_fails_if_a_worker_is_lost_after_end() {
        let events = vec![(1, WorkerEvent::End), (1, lost()), (0, WorkerEvent::End), (0, WorkerEvent::Farewell)];
        let error =
            served(Strategy::DistSync, 1, events).expect_err("rank 0 would wait for rank 2's results").to_string();
        expect!["lost the connection to rank 2 on host b after its pushes of iteration 7 (connection closed): the process exited, or its host or link is down; the other workers wait for it"].assert_eq(&error);
    }

    #[test]
    fn out_of_sync_worker_is_named() {
        let errors = [Strategy::DistSync, Strategy::DistAsync].map(|strategy| {
            let stopped = vec![(1, WorkerEvent::Faulty("read timed out after 3 of 8 bytes".to_owned()))];
            served(strategy, 1, stopped).expect_err("nothing more comes").to_string()
        });
        expect![[r#"
            rank 2 on host b is out of sync after its pushes of iteration 7 (read timed out after 3 of 8 bytes): the process is stopped or faulty, or its host or link is down
            rank 2 on host b is out of sync after its pushes of iteration 7 (read timed out after 3 of 8 bytes): the process is stopped or faulty, or its host or link is down"#]].assert_eq(&errors.join("\n"));
        // Rank 2 has pushed iteration 7, and rank 0 none.
        let error =
            served(Strategy::DistSync, 1, vec![(0, WorkerEvent::End)]).expect_err("rank 2 would wait").to_string();
        expect!["rank 0 on host b is out of sync after its pushes of iteration 0 (it ended while other workers push iteration 7): the process is stopped or faulty, or its host or link is down"].assert_eq(&error);
    }

    #[test]
    fn asynchronous_server_continues_if_no_rank_waits() {
        let without = |lost_worker: usize| {
            let other = 1 - lost_worker;
            vec![(lost_worker, lost()), (other, WorkerEvent::End), (other, WorkerEvent::Farewell)]
        };
        served(Strategy::DistAsync, 1, without(1)).expect("it has pushed, for itself alone");
        let error = |summed, lost_worker| {
            served(Strategy::DistDeviceAsync, summed, without(lost_worker)).expect_err("somebody waits").to_string()
        };
        expect!["lost the connection to rank 2 on host b after its pushes of iteration 7 (connection closed): the process exited, or its host or link is down; the ranks on that host sum their gradients first and wait for each other"].assert_eq(&error(2, 1));
        expect!["lost the connection to rank 0 on host b after its pushes of iteration 0 (connection closed): the process exited, or its host or link is down; the other workers wait until every worker has pushed once"].assert_eq(&error(1, 0));
        let both = vec![(1, lost()), (0, lost())];
        served(Strategy::DistAsync, 1, both).expect_err("nobody is left");
    }
}
