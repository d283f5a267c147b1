//! A worker's connections to the servers. Each has a sending and a receiving thread, so that no part waits for another
//! server or for the step.

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
use ringmark_core::trace::Lane;

use crate::exchange::compression::facts::CompressionFacts;
use crate::exchange::kv_store::client::push_compression::PushCompression;
use crate::exchange::kv_store::client::send_queue::{MAX_UNSENT_BYTES, SendQueue};
use crate::exchange::kv_store::formats::AnswerFormat;
use crate::exchange::kv_store::plan::PlannedPart;
use crate::exchange::kv_store::protocol::{
    self, FrameError, FrameKind, FrameReader, HEADER_BYTES, Header, LostWorker, MAX_REPORT_BYTES, ServerReport,
};
use crate::exchange::kv_store::rendezvous::{self, ServerFacts};
use crate::ffi::process::socket;
use crate::ffi::torch::host_array::{HostArray, floats, floats_mut};
use crate::job::{heartbeat, world};
use crate::measure::trace::recorder::{self, OpenSpan};

/// Interval between polls of a part's gradients.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// Span names of MXNet's profiler.
const PUSH: &str = "KVStoreDistDefaultPush";
const PULL: &str = "KVStoreDistDefaultStoragePull";

enum Command {
    /// Push a part once its gradients are ready.
    Push {
        part: u32,
        iteration: u32,
        is_ready: ReadyCheck,
    },
    End,
    Farewell,
}

/// Returns true if the gradients of these elements are on the wire; sums them to the wire first if the sender is
/// responsible for that.
pub type ReadyCheck = Box<dyn FnMut(Range<usize>) -> Result<bool> + Send>;

/// State shared by the threads of all connections.
struct Shared {
    parts: Vec<PlannedPart>,
    /// Gradients in the wire's type, and the servers' answers (weights or sums) in fp32; both have the length of all
    /// weights.
    wire: Arc<HostArray>,
    pulled: Arc<HostArray>,
    codes: Option<PushCompression>,
    answer: AnswerFormat,
    /// Name of this rank in messages.
    name: String,
    queue: SendQueue,
    state: Mutex<State>,
    /// Notified when the state changes.
    changed: Condvar,
    sent: AtomicU64,
    received: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Number of answers since the start.
    arrived: usize,
    /// Parts whose answers [`Links::next_arrival`] has not returned yet.
    new_answers: VecDeque<u32>,
    /// Reports in the order of the servers.
    reports: Vec<Option<ServerReport>>,
    /// Workers that failed after a report.
    lost_workers: Vec<LostWorker>,
    link: LinkState,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum LinkState {
    #[default]
    Pushing,
    /// The worker is in MPI collectives, which wait forever for a failed process.
    Gathering,
    /// The results are gathered, and servers may close. MPI_Finalize still waits for every other worker.
    Leaving,
}

/// Arrays that a worker exchanges with the servers, and their formats.
pub struct Payload {
    pub parts: Vec<PlannedPart>,
    pub wire: Arc<HostArray>,
    pub pulled: Arc<HostArray>,
    /// Set if codes are pushed.
    pub codes: Option<PushCompression>,
    pub answer: AnswerFormat,
}

pub struct Links {
    shared: Arc<Shared>,
    commands: Vec<Sender<Command>>,
    senders: Vec<JoinHandle<()>>,
    /// Number of pushes since the start.
    pushed: usize,
    /// Bytes sent and received by the steps.
    bytes_of_steps: [u64; 2],
}

impl Links {
    /// Connects worker `pusher`, named `name` in messages, to all `servers`. The first worker sends the weights
    /// `initial` if servers hold weights.
    pub fn open(
        servers: &[ServerFacts],
        pusher: usize,
        name: String,
        payload: Payload,
        initial: &HostArray,
    ) -> Result<Links> {
        let Payload { parts, wire, pulled, codes, answer } = payload;
        let reports = servers.iter().map(|_| None).collect();
        let shared = Arc::new(Shared {
            parts,
            wire,
            pulled,
            codes,
            answer,
            name,
            queue: SendQueue::new(servers.len()),
            state: Mutex::new(State { reports, ..State::default() }),
            changed: Condvar::new(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
        });
        let connect = |(number, server): (usize, &ServerFacts)| rendezvous::connect(server, number, pusher);
        let connections: Vec<TcpStream> = servers.iter().enumerate().map(connect).collect::<Result<_>>()?;
        if pusher == 0 && answer.holds_weights() {
            for (number, connection) in connections.iter().enumerate() {
                send_initial(connection, number, &shared.parts, initial)
                    .with_context(|| format!("cannot send the initial weights to server {number}"))?;
            }
        }
        let (mut commands, mut senders) = (Vec::new(), Vec::new());
        let timeout = rendezvous::read_timeout()?;
        for (number, (connection, server)) in connections.into_iter().zip(servers).enumerate() {
            let name = format!("server {number} of {} on host {}", servers.len(), server.host);
            let (sender, incoming) = mpsc::channel();
            commands.push(sender);
            let (sending, receiving) = (shared.clone(), shared.clone());
            socket::limit_unsent(&connection, MAX_UNSENT_BYTES)?;
            connection.set_read_timeout(Some(timeout))?;
            let (output, sender_name) = (connection.try_clone()?, name.clone());
            let send = move || sending.report(&sender_name, sending.send(number, &output, &incoming));
            senders.push(thread::Builder::new().spawn(send)?);
            thread::Builder::new().spawn(move || receiving.report(&name, receiving.receive(&connection, number)))?;
        }
        Ok(Links { shared, commands, senders, pushed: 0, bytes_of_steps: [0; 2] })
    }

    /// Queues pushes of the parts of `elements`; each is sent when `is_ready` returns true for it.
    pub fn push(&mut self, elements: &Range<usize>, iteration: u32, is_ready: impl Fn() -> ReadyCheck) -> Result<()> {
        let first = self.shared.parts.partition_point(|part| part.elements.start < elements.start);
        let parts = self.shared.parts[first..].iter().take_while(|part| part.elements.end <= elements.end);
        for (number, part) in (first as u32..).zip(parts) {
            let command = Command::Push { part: number, iteration, is_ready: is_ready() };
            self.send_command(part.server, command)?;
            self.pushed += 1;
        }
        Ok(())
    }

    fn send_command(&self, server: usize, command: Command) -> Result<()> {
        ensure!(self.commands[server].send(command).is_ok(), "the sender thread of server {server} has exited");
        Ok(())
    }

    pub fn wait(&self) {
        self.shared.wait_until(|state| state.arrived >= self.pushed).new_answers.clear();
    }

    /// Waits for the next answer since [`wait`](Links::wait) and returns its elements; `None` after the last one.
    pub fn next_arrival(&self) -> Option<Range<usize>> {
        let mut state = self.shared.wait_until(|state| !state.new_answers.is_empty() || state.arrived >= self.pushed);
        let part = state.new_answers.pop_front()?;
        Some(self.shared.parts[part as usize].elements.clone())
    }

    /// Announces that this worker has pushed everything; waits for the final weights and the reports of the servers.
    pub fn end(&mut self) -> Result<Vec<ServerReport>> {
        self.wait();
        self.bytes_of_steps = self.bytes();
        (0..self.commands.len()).try_for_each(|server| self.send_command(server, Command::End))?;
        let mut state = self.shared.wait_until(|state| state.reports.iter().all(Option::is_some));
        state.link = LinkState::Gathering;
        if let Some(loss) = state.unreported_lost_worker() {
            bail!("{loss}");
        }
        Ok(state.reports.iter().flatten().cloned().collect())
    }

    /// Announces that the results are gathered; returns once the announcements are sent.
    pub fn leave(&mut self) -> Result<()> {
        self.shared.state().link = LinkState::Leaving;
        (0..self.commands.len()).try_for_each(|server| self.send_command(server, Command::Farewell))?;
        // A sender that panicked has ended the job.
        self.senders.drain(..).for_each(|sender| drop(sender.join()));
        Ok(())
    }

    /// Returns code sizes and residual norm if codes are pushed.
    pub fn compression(&self) -> Option<CompressionFacts> {
        self.shared.codes.as_ref().map(PushCompression::compression)
    }

    /// Returns the bytes sent and received by steps, headers included, after [`Links::end`].
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
        connection.write_all(&Header { part, bytes, ..Header::without_payload(FrameKind::Initial) }.encode())?;
        weights.send(elements.clone(), &mut connection)?;
        heartbeat::count_progress();
    }
    let answer = Header::read(&mut connection)?;
    ensure!(answer.kind == FrameKind::Started, "unexpected reply {:?}", answer.kind);
    Ok(())
}

impl State {
    /// Returns the error message for a worker that failed after the reports: they do not list it, so other ranks still
    /// wait for it.
    fn unreported_lost_worker(&self) -> Option<String> {
        let is_known = |loss: &&LostWorker| {
            self.reports.iter().flatten().flat_map(|report| &report.lost).any(|(pusher, _)| *pusher == loss.pusher)
        };
        let LostWorker { rank, host, .. } = self.lost_workers.iter().find(|loss| !is_known(loss))?;
        Some(format!(
            "lost rank {rank} on host {host} while results were gathered: the process exited, or its host or link is \
             down"
        ))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until(&self, is: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let state = self.state();
        self.changed.wait_while(state, |state| !is(state)).unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, server: &str, ended: Result<()>) {
        // Servers close after the farewells of all workers.
        if let Err(error) = ended
            && self.state().link != LinkState::Leaving
        {
            self.fail(&format!(
                "lost the connection to {server} ({error:#}): the process exited, or its host or link is down"
            ));
        }
    }

    /// Exits at once: the main thread may be blocked in an MPI collective forever.
    fn fail(&self, failure: &str) -> ! {
        // Never released, so that only one thread reports.
        let _state = self.state();
        world::exit_immediately(&self.name, failure, None)
    }

    /// Begins a span if the iteration is traced. A bucket is one parameter; backward starts with the last key.
    fn span(&self, lane: Lane, name: &'static str, part: &PlannedPart) -> Option<OpenSpan> {
        let last = self.parts.first().map_or(0, |first| first.key);
        recorder::begin_on_host(lane, name, Some((last - part.key) as u32))
    }

    fn send(&self, number: usize, mut output: &TcpStream, commands: &Receiver<Command>) -> Result<()> {
        let mut code = Vec::new();
        for command in commands {
            match command {
                Command::Push { part, iteration, mut is_ready } => {
                    let planned = &self.parts[part as usize];
                    let elements = planned.elements.clone();
                    while !is_ready(elements.clone())? {
                        thread::sleep(POLL_INTERVAL);
                    }
                    if let Some(codes) = &self.codes {
                        let gradient = floats(self.wire.tensor(), &elements)?;
                        if let Err(error) = codes.encode(part, planned, iteration, gradient, &mut code) {
                            self.fail(&error.to_string());
                        }
                    }
                    let bytes = if self.codes.is_some() { code.len() } else { self.wire.bytes_of(elements.len()) };
                    let header = Header { kind: FrameKind::Push, part, iteration, bytes: bytes as u64 };
                    // Counted first: the answer may arrive before this thread runs again.
                    self.sent.fetch_add((HEADER_BYTES + bytes) as u64, Ordering::Relaxed);
                    let span = self.span(Lane::Push(number as u32), PUSH, planned);
                    let mut writer = self.queue.begin(number, output);
                    writer.write_all(&header.encode())?;
                    match self.codes {
                        Some(_) => writer.write_all(&code)?,
                        None => self.wire.send(elements, &mut writer)?,
                    }
                    span.into_iter().for_each(OpenSpan::end);
                    heartbeat::count_progress();
                }
                Command::End => output.write_all(&Header::without_payload(FrameKind::End).encode())?,
                Command::Farewell => {
                    output.write_all(&Header::without_payload(FrameKind::Farewell).encode())?;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Receives until the server closes, which it does after the farewells of all workers.
    fn receive(&self, connection: &TcpStream, number: usize) -> Result<()> {
        let mut input = BufReader::with_capacity(1 << 16, connection);
        let mut packed = Vec::new();
        loop {
            protocol::wait_for_frame(&mut input)?;
            let mut frame = FrameReader::new(&mut input);
            let handled = Header::read(&mut frame).map_err(Error::from).and_then(|header| {
                frame.begin(&header);
                self.handle_frame(&header, number, &mut frame, &mut packed)
            });
            handled.map_err(|error| match frame.frame_error(&error) {
                FrameError::Closed(how) | FrameError::Faulty(how) => anyhow!(how),
            })?;
            self.changed.notify_all();
        }
    }

    fn handle_frame(&self, header: &Header, number: usize, frame: &mut impl Read, packed: &mut Vec<u8>) -> Result<()> {
        match header.kind {
            FrameKind::Answer => {
                let part = self.parts.get(header.part as usize).filter(|part| part.server == number);
                let part = part.with_context(|| format!("unexpected answer of part {}", header.part))?;
                let span = self.span(Lane::Pull(number as u32), PULL, part);
                let elements = part.elements.clone();
                let bytes = self.answer.bytes(elements.len());
                ensure!(
                    header.bytes == bytes as u64,
                    "part {} has {} bytes, expected {bytes}",
                    header.part,
                    header.bytes
                );
                match self.answer {
                    AnswerFormat::Weights => self.pulled.receive(elements, frame)?,
                    AnswerFormat::Sums(sums) => {
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
                state.new_answers.push_back(header.part);
            }
            FrameKind::Report => {
                let report = protocol::read_message(header, frame, MAX_REPORT_BYTES)?;
                self.state().reports[number] = Some(report);
            }
            FrameKind::WorkerLost => {
                let loss = protocol::read_message(header, frame, MAX_REPORT_BYTES)?;
                let mut state = self.state();
                state.lost_workers.push(loss);
                let is_gathering = state.link != LinkState::Pushing;
                if let Some(loss) = state.unreported_lost_worker().filter(|_| is_gathering) {
                    drop(state);
                    self.fail(&loss);
                }
            }
            other => bail!("unexpected {other:?} frame"),
        }
        Ok(())
    }
}
