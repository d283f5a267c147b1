//! A worker's connections to the servers: a thread that sends and one that receives for each, so that no part waits for
//! another server's, and none for the step.

use std::collections::VecDeque;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use ringmark_record::trace::span::Lane;

use crate::exchange::coded::Coded;
use crate::exchange::kv_store::held_part::AnswerForm;
use crate::exchange::kv_store::meeting::{self, ServerFacts};
use crate::exchange::kv_store::plan::PlannedPart;
use crate::exchange::kv_store::protocol::{
    self, FrameKind, FrameReader, HEADER_BYTES, Header, LONGEST_REPORT, LostWorker, Problem, ServerReport,
};
use crate::exchange::kv_store::push_codes::PushCodes;
use crate::exchange::kv_store::turns::{Turns, UNSENT};
use crate::ffi::host_array::HostArray;
use crate::ffi::host_values::{floats, floats_mut};
use crate::ffi::socket;
use crate::job::{heartbeat, world};
use crate::measure::trace::recorder::{self, OpenSpan};

/// Between two questions whether a part's gradients are there to be sent.
const PAUSE: Duration = Duration::from_micros(50);

/// What MXNet's profiler calls both.
const PUSH: &str = "KVStoreDistDefaultPush";
const PULL: &str = "KVStoreDistDefaultStoragePull";

/// What a sender is asked to do.
enum Order {
    /// When its gradients are there.
    Push {
        part: u32,
        iteration: u32,
        is_there: IsThere,
    },
    End,
    Farewell,
}

/// Says whether the gradients of these elements are on the wire now, and puts them there where that is asked of the sender.
pub type IsThere = Box<dyn FnMut(Range<usize>) -> Result<bool> + Send>;

/// What threads of all connections share.
struct Shared {
    parts: Vec<PlannedPart>,
    /// Gradients, in the wire's type, and what comes back, weights or sums, fp32; each as long as all weights.
    wire: Arc<HostArray>,
    pulled: Arc<HostArray>,
    /// Where codes go instead of gradients.
    codes: Option<PushCodes>,
    answer: AnswerForm,
    /// This rank's, as messages call it.
    name: String,
    turns: Turns,
    state: Mutex<State>,
    /// Something in the state has changed.
    changed: Condvar,
    sent: AtomicU64,
    received: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Parts that have come back since the start.
    arrived: usize,
    /// Of them, those that nobody has asked for yet.
    fresh: VecDeque<u32>,
    /// Reports of servers, in their order.
    reports: Vec<Option<ServerReport>>,
    /// Workers that ended after a report.
    lost_workers: Vec<LostWorker>,
    link: LinkState,
}

/// How far a worker is with its servers.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum LinkState {
    #[default]
    Pushing,
    /// It is in MPI's collectives, and for one that has ended these wait for ever.
    Gathering,
    /// It has its results, and servers may close. MPI_Finalize still waits for every other worker.
    Leaving,
}

/// The connections.
pub struct Links {
    shared: Arc<Shared>,
    orders: Vec<Sender<Order>>,
    senders: Vec<JoinHandle<()>>,
    /// Parts that were pushed since the start.
    pushed: usize,
    /// Bytes of pushes and answers; what went before and after the loop does not count.
    bytes_of_steps: [u64; 2],
}

impl Links {
    /// Connects worker `pusher` of those that push, by this name, with all `servers`; the first one sends `initial`, the first
    /// weights, where servers hold them.
    pub fn open(
        servers: &[ServerFacts],
        (pusher, name): (usize, String),
        parts: Vec<PlannedPart>,
        [wire, pulled]: [Arc<HostArray>; 2],
        initial: &HostArray,
        (codes, answer): (Option<PushCodes>, AnswerForm),
    ) -> Result<Links> {
        let reports = servers.iter().map(|_| None).collect();
        let shared = Arc::new(Shared {
            parts,
            wire,
            pulled,
            codes,
            answer,
            name,
            turns: Turns::new(servers.len()),
            state: Mutex::new(State { reports, ..State::default() }),
            changed: Condvar::new(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        });
        let connect = |(number, server): (usize, &ServerFacts)| meeting::connect(server, number, pusher);
        let connections: Vec<TcpStream> = servers.iter().enumerate().map(connect).collect::<Result<_>>()?;
        if pusher == 0 && answer.holds_weights() {
            for (number, connection) in connections.iter().enumerate() {
                send_initial(connection, number, &shared.parts, initial)
                    .with_context(|| format!("the first weights did not reach server {number}"))?;
            }
        }
        let (mut orders, mut senders) = (Vec::new(), Vec::new());
        let timeout = meeting::read_timeout()?;
        for (number, (connection, server)) in connections.into_iter().zip(servers).enumerate() {
            let name = format!("server {number} of {} on host {}", servers.len(), server.host);
            let (sender, incoming) = mpsc::channel();
            orders.push(sender);
            let (sending, receiving) = (shared.clone(), shared.clone());
            socket::limit_unsent(&connection, UNSENT)?;
            connection.set_read_timeout(Some(timeout))?;
            let (output, name_of_output) = (connection.try_clone()?, name.clone());
            let send = move || sending.report(&name_of_output, sending.send(number, &output, &incoming));
            senders.push(thread::Builder::new().spawn(send)?);
            thread::Builder::new().spawn(move || receiving.report(&name, receiving.receive(&connection, number)))?;
        }
        Ok(Links { shared, orders, senders, pushed: 0, bytes_of_steps: [0; 2] })
    }

    /// Pushes the parts of these elements when `is_there` says so of them: one question for all of a server's parts, in order.
    pub fn push(&mut self, elements: &Range<usize>, iteration: u32, is_there: impl Fn() -> IsThere) -> Result<()> {
        let first = self.shared.parts.partition_point(|part| part.elements.start < elements.start);
        let of_elements = self.shared.parts[first..].iter().take_while(|part| part.elements.end <= elements.end);
        for (number, part) in (first as u32..).zip(of_elements) {
            let order = Order::Push { part: number, iteration, is_there: is_there() };
            self.order(part.server, order)?;
            self.pushed += 1;
        }
        Ok(())
    }

    fn order(&self, server: usize, order: Order) -> Result<()> {
        ensure!(self.orders[server].send(order).is_ok(), "the thread that sends to server {server} has ended");
        Ok(())
    }

    /// Returns when all that was pushed has come back.
    pub fn wait(&self) {
        self.shared.wait_until(|state| state.arrived >= self.pushed).fresh.clear();
    }

    /// Waits for a part that was pushed since [`wait`](Links::wait) to come back, each of them once: its elements. `None` when all
    /// have.
    pub fn next_arrival(&self) -> Option<Range<usize>> {
        let mut state = self.shared.wait_until(|state| !state.fresh.is_empty() || state.arrived >= self.pushed);
        let part = state.fresh.pop_front()?;
        Some(self.shared.parts[part as usize].elements.clone())
    }

    /// Says that this worker pushes no more and waits for the last weights, of one moment, and what each server did.
    pub fn end(&mut self) -> Result<Vec<ServerReport>> {
        self.wait();
        self.bytes_of_steps = self.bytes();
        (0..self.orders.len()).try_for_each(|server| self.order(server, Order::End))?;
        let mut state = self.shared.wait_until(|state| state.reports.iter().all(Option::is_some));
        state.link = LinkState::Gathering;
        if let Some(loss) = state.unforeseen_lost_worker() {
            bail!("{loss}");
        }
        Ok(state.reports.iter().flatten().cloned().collect())
    }

    /// Says that this worker has its results together with the others', and returns when that is on its way.
    pub fn leave(&mut self) -> Result<()> {
        self.shared.state().link = LinkState::Leaving;
        (0..self.orders.len()).try_for_each(|server| self.order(server, Order::Farewell))?;
        // A sender that panicked has ended the job.
        self.senders.drain(..).for_each(|sender| drop(sender.join()));
        Ok(())
    }

    /// What codes did, where they go.
    pub fn coded(&self) -> Option<Coded> {
        self.shared.codes.as_ref().map(PushCodes::coded)
    }

    /// Bytes sent and received by steps, headers included; once it has [ended](Links::end).
    pub fn bytes_of_steps(&self) -> [u64; 2] {
        self.bytes_of_steps
    }

    fn bytes(&self) -> [u64; 2] {
        [&self.shared.sent, &self.shared.received].map(|count| count.load(Ordering::Relaxed))
    }
}

fn send_initial(mut connection: &TcpStream, number: usize, parts: &[PlannedPart], weights: &HostArray) -> Result<()> {
    for (part, PlannedPart { elements, .. }) in (0..).zip(parts).filter(|(_, part)| part.server == number) {
        let bytes = weights.bytes_of(elements.len()) as u64;
        connection.write_all(&Header { part, bytes, ..Header::bare(FrameKind::Initial) }.encode())?;
        weights.send(elements.clone(), &mut connection)?;
        heartbeat::count_progress();
    }
    let answer = Header::read(&mut connection)?;
    ensure!(answer.kind == FrameKind::Started, "it answered {:?}", answer.kind);
    Ok(())
}

impl State {
    /// A worker that ended and that no report has among the lost: all that are left believe it to be there.
    fn unforeseen_lost_worker(&self) -> Option<String> {
        let is_known = |loss: &&LostWorker| {
            self.reports.iter().flatten().flat_map(|report| &report.lost).any(|(pusher, _)| *pusher == loss.pusher)
        };
        let LostWorker { rank, host, .. } = self.lost_workers.iter().find(|loss| !is_known(loss))?;
        Some(format!(
            "rank {rank} on host {host} ended while results were gathered, which all that are left do together: that process has \
             ended, or its host or link is down"
        ))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the state `is` so.
    fn wait_until(&self, is: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let state = self.state();
        self.changed.wait_while(state, |state| !is(state)).unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, server: &str, ended: Result<()>) {
        // Servers close when all workers have taken their leave.
        if let Err(error) = ended
            && self.state().link != LinkState::Leaving
        {
            self.fail(&format!(
                "the connection to {server} broke ({error:#}): that process has ended, or its host or link is down"
            ));
        }
    }

    /// Ends this rank at once: it may be in MPI's collectives, where it would ask nobody and wait for ever.
    fn fail(&self, failure: &str) -> ! {
        // Kept: one thread says why.
        let _state = self.state();
        world::end_at_once(&self.name, failure, None)
    }

    /// Where the iteration is traced. A bucket is a parameter, and the last key backward's first.
    fn span(&self, lane: Lane, name: &'static str, part: &PlannedPart) -> Option<OpenSpan> {
        let last = self.parts.first().map_or(0, |first| first.key);
        recorder::begin_on_host(lane, name, Some((last - part.key) as u32))
    }

    fn send(&self, number: usize, mut output: &TcpStream, orders: &Receiver<Order>) -> Result<()> {
        let mut code = Vec::new();
        for order in orders {
            match order {
                Order::Push { part, iteration, mut is_there } => {
                    let planned = &self.parts[part as usize];
                    let elements = planned.elements.clone();
                    while !is_there(elements.clone())? {
                        thread::sleep(PAUSE);
                    }
                    if let Some(codes) = &self.codes {
                        let gradient = floats(self.wire.tensor(), &elements)?;
                        if let Err(error) = codes.encode((part, planned), iteration, gradient, &mut code) {
                            self.fail(&error.to_string());
                        }
                    }
                    let bytes = if self.codes.is_some() { code.len() } else { self.wire.bytes_of(elements.len()) };
                    let header = Header { kind: FrameKind::Push, part, iteration, bytes: bytes as u64 };
                    // Counted first: the answer may come before this thread runs again.
                    self.sent.fetch_add((HEADER_BYTES + bytes) as u64, Ordering::Relaxed);
                    let span = self.span(Lane::Push(number as u32), PUSH, planned);
                    let mut in_turn = self.turns.begin(number, output);
                    in_turn.write_all(&header.encode())?;
                    match self.codes {
                        Some(_) => in_turn.write_all(&code)?,
                        None => self.wire.send(elements, &mut in_turn)?,
                    }
                    span.into_iter().for_each(OpenSpan::end);
                    heartbeat::count_progress();
                }
                Order::End => output.write_all(&Header::bare(FrameKind::End).encode())?,
                Order::Farewell => {
                    output.write_all(&Header::bare(FrameKind::Farewell).encode())?;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Until the server closes, which it does when all workers have taken their leave.
    fn receive(&self, connection: &TcpStream, number: usize) -> Result<()> {
        let mut input = BufReader::with_capacity(1 << 16, connection);
        let mut packed = Vec::new();
        loop {
            protocol::wait_for_frame(&mut input)?;
            let mut frame = FrameReader::new(&mut input);
            let taken = Header::read(&mut frame).map_err(Error::from).and_then(|header| {
                frame.begin(&header);
                self.take(&header, number, &mut frame, &mut packed)
            });
            taken.map_err(|error| match frame.problem(&error) {
                Problem::Closed(how) | Problem::Faulty(how) => anyhow!(how),
            })?;
            self.changed.notify_all();
        }
    }

    fn take(&self, header: &Header, number: usize, frame: &mut impl Read, packed: &mut Vec<u8>) -> Result<()> {
        match header.kind {
            FrameKind::Answer => {
                let part = self.parts.get(header.part as usize).filter(|part| part.server == number);
                let part = part.with_context(|| format!("it sent part {}", header.part))?;
                let span = self.span(Lane::Pull(number as u32), PULL, part);
                let elements = part.elements.clone();
                let bytes = self.answer.bytes(elements.len());
                ensure!(header.bytes == bytes as u64, "part {} came in {} bytes", header.part, header.bytes);
                match self.answer {
                    AnswerForm::Weights => self.pulled.receive(elements, frame)?,
                    AnswerForm::Sums(sums) => {
                        packed.resize(bytes, 0);
                        frame.read_exact(packed)?;
                        sums.unpack(packed, floats_mut(&mut self.pulled.tensor().shallow_clone(), &elements)?);
                    }
                }
                self.received.fetch_add((HEADER_BYTES + bytes) as u64, Ordering::Relaxed);
                heartbeat::count_progress();
                span.into_iter().for_each(OpenSpan::end);
                let mut state = self.state();
                state.arrived += 1;
                state.fresh.push_back(header.part);
            }
            FrameKind::Report => {
                let report = protocol::read_message(header, frame, LONGEST_REPORT)?;
                self.state().reports[number] = Some(report);
            }
            FrameKind::WorkerLost => {
                let loss = protocol::read_message(header, frame, LONGEST_REPORT)?;
                let mut state = self.state();
                state.lost_workers.push(loss);
                let is_gathering = state.link != LinkState::Pushing;
                if let Some(loss) = state.unforeseen_lost_worker().filter(|_| is_gathering) {
                    drop(state);
                    self.fail(&loss);
                }
            }
            other => bail!("it sent {other:?}"),
        }
        Ok(())
    }
}
