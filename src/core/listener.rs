//! A listening socket with limits. A single thread polls all of its connections, so that unknown clients that find the
//! port cost neither threads nor memory, and only a few descriptors.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// Pause in accepting after a burst, or after a failed accept, for example for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of connections served per call.
const READY_CONNECTIONS: usize = 1024;

const READ_BYTES: usize = 1 << 12;

/// Number of connections above which the thread sleeps before each call: many small messages at once cost less than one
/// wake-up for each.
const MANY_CONNECTIONS: usize = 1024;

/// Length of this sleep.
const BATCHING_DELAY: Duration = Duration::from_millis(10);

/// Epoll keys other than connection numbers.
const SOCKET: u64 = u64::MAX;
const CLOSING: u64 = u64::MAX - 1;

/// Limits on connections.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum number of pending connections; beyond it the oldest is closed.
    pub pending: usize,
    /// Time until a connection is closed unless [`Connection::deadline`] was lifted, even if its bytes are still being
    /// transferred.
    pub patience: Duration,
    /// Number of connections accepted at once before a pause.
    pub burst: usize,
}

/// A listening socket and its connections, each with a state of type `T`.
#[derive(Debug)]
pub struct Listener<T> {
    socket: TcpListener,
    limits: Limits,
    /// Set of all descriptors to wait for: the cost of a wait depends only on the ready ones.
    epoll: Epoll,
    /// Pipe that becomes readable when the thread must end.
    closing: Option<PipeReader>,
    /// Connections by number, oldest first.
    connections: BTreeMap<u64, Connection<T>>,
    /// Numbers of the pending connections.
    pending: BTreeSet<u64>,
    accepted: u64,
    has_arrivals: bool,
    /// End of the pause in accepting.
    resume: Option<Instant>,
}

/// An accepted connection with a non-blocking socket.
#[derive(Debug)]
pub struct Connection<T> {
    /// Number of the connection, from 0 in the order of arrival.
    pub number: u64,
    /// Socket of the connection.
    pub stream: TcpStream,
    /// Bytes that [`receive`](Connection::receive) has added.
    pub received: Vec<u8>,
    /// The server's own data.
    pub state: T,
    /// Time at which the connection is closed if it is still pending; `None` lifts the limit.
    pub deadline: Option<Instant>,
    /// True while the connection counts toward [`Limits::pending`].
    pub is_pending: bool,
    /// True if the connection waits to send, false if it waits to receive.
    pub is_sending: bool,
}

/// Request to end the thread.
#[derive(Debug)]
pub struct Closed;

impl<T: Default> Listener<T> {
    /// Creates a listener that accepts connections at `socket` in [`serve_pending`](Listener::serve_pending).
    pub fn new(socket: TcpListener, limits: Limits) -> io::Result<Listener<T>> {
        socket.set_nonblocking(true)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT, SOCKET))?;
        Ok(Listener {
            socket,
            limits,
            epoll,
            closing: None,
            connections: BTreeMap::new(),
            pending: BTreeSet::new(),
            accepted: 0,
            has_arrivals: false,
            resume: None,
        })
    }

    /// Accepts new connections, closes overdue ones, waits until others are ready and serves each of them once. `serve` returns
    /// a connection to keep it open.
    ///
    /// Returns the error of a failed accept if no pending connection could be closed to free a descriptor.
    pub fn serve_pending(
        &mut self,
        mut serve: impl FnMut(&mut Listener<T>, Connection<T>) -> Result<Option<Connection<T>>, Closed>,
    ) -> Result<Option<io::Error>, Closed> {
        let now = Instant::now();
        while self.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.close_oldest_with(|connection| connection.deadline.is_some());
        }
        let failure = self.accept(now);
        if self.connections.len() > MANY_CONNECTIONS {
            thread::sleep(BATCHING_DELAY);
        }
        for number in self.ready() {
            match number {
                SOCKET => self.has_arrivals = true,
                CLOSING => return Err(Closed),
                number => {
                    let Some(connection) = self.connections.remove(&number) else { continue };
                    self.pending.remove(&number);
                    let was_sending = connection.is_sending;
                    if let Some(connection) = serve(self, connection)? {
                        self.keep(connection, was_sending);
                    }
                }
            }
        }
        Ok(failure)
    }

    /// Waits for the next event or deadline. Returns keys of the epoll set.
    fn ready(&self) -> Vec<u64> {
        let wake = self.next_deadline().into_iter().chain(self.resume).min();
        // Rounded up, so that the deadline has passed when the timeout expires.
        let timeout = wake.map_or(EpollTimeout::NONE, |wake| {
            let milliseconds = wake.saturating_duration_since(Instant::now()).as_millis() + 1;
            EpollTimeout::try_from(milliseconds).unwrap_or(EpollTimeout::MAX)
        });
        let mut events = [EpollEvent::empty(); READY_CONNECTIONS];
        let count = self.epoll.wait(&mut events, timeout).unwrap_or_else(|_| {
            // Interrupted, or the kernel is out of memory: retry after a short sleep.
            thread::sleep(Duration::from_millis(1));
            0
        });
        events[..count].iter().map(EpollEvent::data).collect()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.pending.iter().find_map(|number| self.connections.get(number)?.deadline)
    }

    fn accept(&mut self, now: Instant) -> Option<io::Error> {
        self.resume.take_if(|resume| *resume <= now);
        if !self.has_arrivals || self.resume.is_some() {
            return None;
        }
        for _ in 0..self.limits.burst {
            match self.socket.accept() {
                Ok((stream, _)) => self.add(stream),
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.has_arrivals = false;
                    let mut event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT, SOCKET);
                    return self.epoll.modify(&self.socket, &mut event).err().map(io::Error::from);
                }
                Err(error) => {
                    self.resume = Some(now + ACCEPT_PAUSE);
                    return (!self.close_oldest_with(|_| true)).then_some(error);
                }
            }
        }
        self.resume = Some(now + ACCEPT_PAUSE);
        None
    }

    /// Adds a connection, unless it is closed already or the kernel has no memory for it.
    fn add(&mut self, stream: TcpStream) {
        let number = self.accepted;
        self.accepted += 1;
        let is_watched = stream.set_nonblocking(true).is_ok()
            && self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, number)).is_ok();
        if !is_watched {
            return;
        }
        let connection = Connection {
            number,
            stream,
            received: Vec::new(),
            state: T::default(),
            deadline: Some(Instant::now() + self.limits.patience),
            is_pending: true,
            is_sending: false,
        };
        self.keep(connection, false);
        if self.pending.len() > self.limits.pending {
            self.close_oldest_with(|_| true);
        }
    }

    fn keep(&mut self, connection: Connection<T>, was_sending: bool) {
        let number = connection.number;
        if connection.is_sending != was_sending {
            let flags = if connection.is_sending { EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
            if self.epoll.modify(&connection.stream, &mut EpollEvent::new(flags, number)).is_err() {
                return;
            }
        }
        if connection.is_pending {
            self.pending.insert(number);
        }
        self.connections.insert(number, connection);
    }

    /// Closes the oldest pending connection that matches; returns false if there is none.
    fn close_oldest_with(&mut self, is_selected: impl Fn(&Connection<T>) -> bool) -> bool {
        let mut pending = self.pending.iter().copied();
        let oldest = pending.find(|number| self.connections.get(number).is_some_and(&is_selected));
        oldest.inspect(|number| self.close(*number)).is_some()
    }

    /// Closes a connection.
    pub fn close(&mut self, number: u64) {
        self.connections.remove(&number);
        self.pending.remove(&number);
    }

    /// Returns the socket of a connection in blocking mode and stops polling it.
    pub fn release(&self, connection: Connection<T>) -> io::Result<TcpStream> {
        self.epoll.delete(&connection.stream)?;
        connection.stream.set_nonblocking(false)?;
        Ok(connection.stream)
    }
}

impl<T> Connection<T> {
    /// Reads once, so that no connection can starve the others. Returns false at the end of the connection.
    pub fn receive(&mut self) -> bool {
        let mut bytes = [0; READ_BYTES];
        match self.stream.read(&mut bytes) {
            Ok(count) => {
                self.received.extend_from_slice(&bytes[..count]);
                count > 0
            }
            Err(error) => is_passing(&error),
        }
    }
}

/// Returns true if the operation can be retried when the socket is ready.
pub fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Owner of a listener's thread; dropping it ends the thread and joins it.
#[derive(Debug)]
pub struct ListenerThread {
    /// Closing this pipe wakes the thread.
    closing: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl ListenerThread {
    /// Starts a thread that serves the connections at `socket` with [`Listener::serve_pending`] until `serve` returns
    /// [`Closed`].
    pub fn start<T: Default + Send + 'static>(
        socket: TcpListener,
        limits: Limits,
        mut serve: impl FnMut(&mut Listener<T>, Connection<T>) -> Result<Option<Connection<T>>, Closed> + Send + 'static,
    ) -> io::Result<ListenerThread> {
        let mut listener = Listener::new(socket, limits)?;
        let (closed, closing) = io::pipe()?;
        listener.epoll.add(&closed, EpollEvent::new(EpollFlags::EPOLLIN, CLOSING))?;
        listener.closing = Some(closed);
        let thread = thread::Builder::new().spawn(move || while listener.serve_pending(&mut serve).is_ok() {})?;
        Ok(ListenerThread { closing: Some(closing), thread: Some(thread) })
    }
}

impl Drop for ListenerThread {
    fn drop(&mut self) {
        self.closing = None;
        if let Some(thread) = self.thread.take() {
            // The result no longer matters, even if it is a panic.
            let _ = thread.join();
        }
    }
}
