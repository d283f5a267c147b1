//! Accepts and reads the ranks' connections on one thread.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::Duration;

use anyhow::Context;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{Backlog, listen};
use ringmark_core::dimension::Seconds;
use ringmark_core::host::heartbeat::{self, WELCOME};
use ringmark_core::host::{Heartbeat, LauncherAddress, MemoryShortage, Message, OutOfMemory};
use ringmark_core::listener::{self, Closed, Limits, ListenerThread};

/// Maximum length of a rank's line, in bytes. The reason for a failure is the longest.
const MAX_LINE: usize = 1 << 16;

/// Maximum length of the first line, in bytes: token, rank, host name and process.
const MAX_HELLO: usize = 1 << 12;

/// Timeout for the hello message of a new connection.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of connections without a report, in addition to one for each rank; beyond it, the oldest is closed. A
/// rank reports immediately.
const MAX_PENDING: usize = 64;

/// Descriptors that this program needs in addition to one for each rank.
const OTHER_DESCRIPTORS: u64 = 256;

/// Capacity of the event queue; when it is full, the ranks' socket buffers hold the rest.
pub const EVENT_CAPACITY: usize = 4096;

/// An event on a rank's connection.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The rank connected.
    Joined(Joined),
    /// Position and load of the rank.
    Heartbeat(Heartbeat),
    /// The rank failed, which ends the job.
    Failed(RankFailure),
    /// The rank has finished its work.
    Done,
    /// The rank's connection with this number ended.
    Disconnected(u64),
}

/// A failure that a rank reported.
#[derive(Debug, Clone, PartialEq)]
pub struct RankFailure {
    /// Reason, one line.
    pub reason: String,
    /// Memory figures, if the device ran out of memory.
    pub shortage: Option<MemoryShortage>,
}

/// A rank that has connected.
#[derive(Debug, Clone, PartialEq)]
pub struct Joined {
    /// Number of the rank's connection.
    pub connection: u64,
    /// Host name.
    pub host: String,
    /// Process ID on that host.
    pub process: u32,
    /// Out-of-memory kills before the rank started.
    pub out_of_memory: OutOfMemory,
}

/// A listener for the ranks' reports. Dropping it closes every connection, which ends the ranks that are still running.
pub struct HeartbeatListener {
    address: LauncherAddress,
    /// `None` while the listener closes.
    events: Option<Receiver<(u32, Event)>>,
    _thread: ListenerThread,
}

impl HeartbeatListener {
    /// Listens on a port that the kernel chooses, for `ranks` ranks that reach this machine at `addresses`. If
    /// `addresses` is empty, only ranks on this machine can connect.
    pub fn open(ranks: u32, addresses: &[IpAddr], patience: Seconds) -> anyhow::Result<HeartbeatListener> {
        let bound = match addresses {
            [] => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)),
            // Accepts IPv4 as well if the machine has both.
            _ => {
                TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))
            }
        };
        let socket = bound.context("cannot bind a port for rank reports")?;
        // Thousands of ranks connect at once; a connection beyond the backlog is retried only after seconds.
        listen(&socket, Backlog::MAXCONN).context("cannot listen on the port for rank reports")?;
        let port = socket.local_addr()?.port();
        let local = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let addresses = if addresses.is_empty() { &local } else { addresses };
        let addresses = addresses.iter().map(|address| SocketAddr::new(*address, port)).collect();
        let interval = heartbeat::interval(ranks, patience);
        let address = LauncherAddress { token: token()?, patience, interval, addresses };
        let (sender, events) = mpsc::sync_channel(EVENT_CAPACITY);
        let mut ranks = Ranks { count: ranks, token: address.token.clone(), events: sender, peers: BTreeMap::new() };
        let limits = Limits { pending: MAX_PENDING + ranks.count as usize, patience: HELLO_TIMEOUT, burst: usize::MAX };
        let serve = move |listener: &mut _, connection| ranks.read(listener, connection);
        let thread = ListenerThread::start(socket, limits, serve).context("cannot start a thread for rank reports")?;
        Ok(HeartbeatListener { address, events: Some(events), _thread: thread })
    }

    /// Returns the address and token that a rank needs to connect.
    pub fn address(&self) -> &LauncherAddress {
        &self.address
    }

    /// Returns the next event, if there is one.
    pub fn next_event(&self) -> Option<(u32, Event)> {
        self.events.as_ref()?.try_recv().ok()
    }
}

impl Drop for HeartbeatListener {
    fn drop(&mut self) {
        // The thread may be blocked on a full queue.
        self.events = None;
    }
}

/// Raises the soft descriptor limit, often 1024, as far as the hard limit allows, for a connection to each of `ranks`
/// ranks. Returns the limit if it is too low for them.
pub fn raise_descriptor_limit(ranks: u32) -> Option<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let wanted = u64::from(ranks) + OTHER_DESCRIPTORS;
    let limit = wanted.min(hard);
    if soft < limit && setrlimit(Resource::RLIMIT_NOFILE, limit, hard).is_err() {
        return Some(soft);
    }
    (hard < wanted).then_some(hard)
}

/// Returns a token that cannot be guessed: 128 random bits from the kernel.
fn token() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes));
    read.context("cannot read random numbers from /dev/urandom")?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// The process behind a connection.
#[derive(Debug, Clone, PartialEq)]
struct Peer {
    rank: u32,
    host: String,
    process: u32,
    out_of_memory: OutOfMemory,
}

/// A connection, with its process once it has sent a hello with the token. A rank that received the welcome too late
/// uses another connection, and never this one: it is pending.
type Connection = listener::Connection<Option<Arc<Peer>>>;
type RankListener = listener::Listener<Option<Arc<Peer>>>;

/// State shared by all connections of the ranks.
struct Ranks {
    count: u32,
    token: String,
    events: SyncSender<(u32, Event)>,
    /// First process that connected for each rank, which keeps that rank to the end, and its current connection.
    peers: BTreeMap<u32, (Arc<Peer>, u64)>,
}

impl Ranks {
    /// Forwards the messages of a connection; returns the connection if it stays open.
    fn read(&mut self, listener: &mut RankListener, mut connection: Connection) -> Result<Option<Connection>, Closed> {
        if self.read_messages(listener, &mut connection)? {
            return Ok(Some(connection));
        }
        if let (Some(peer), false) = (&connection.state, connection.is_pending) {
            self.send(peer.rank, Event::Disconnected(connection.number))?;
        }
        Ok(None)
    }

    /// Returns true if the connection stays open.
    fn read_messages(&mut self, listener: &mut RankListener, connection: &mut Connection) -> Result<bool, Closed> {
        if !connection.receive() {
            return Ok(false);
        }
        while let Some(end) = connection.received.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = connection.received.drain(..=end).collect();
            let message = std::str::from_utf8(&line).ok().and_then(|line| Message::parse(line).ok());
            let stays_open = match message {
                Some(message) => self.handle(listener, connection, message)?,
                None => false,
            };
            if !stays_open {
                return Ok(false);
            }
        }
        if connection.received.is_empty() {
            // Frees the buffer of a long line, which many connections would otherwise hold indefinitely.
            connection.received = Vec::new();
        }
        let longest = if connection.state.is_some() { MAX_LINE } else { MAX_HELLO };
        Ok(connection.received.len() < longest)
    }

    /// Returns true if the connection stays open after this message.
    fn handle(
        &mut self,
        listener: &mut RankListener,
        connection: &mut Connection,
        message: Message,
    ) -> Result<bool, Closed> {
        let Some(peer) = connection.state.clone() else {
            let Message::Hello { token, rank, host, process, out_of_memory } = message else { return Ok(false) };
            let peer = Peer { rank, host, process, out_of_memory };
            // Close connections that do not belong to a rank of this job.
            if token != self.token || !self.is_admitted(&peer) {
                return Ok(false);
            }
            connection.state = Some(Arc::new(peer));
            connection.deadline = None;
            return Ok(connection.stream.write_all(format!("{WELCOME}\n").as_bytes()).is_ok());
        };
        let event = match message {
            Message::At(heartbeat) => Event::Heartbeat(heartbeat),
            Message::Failed { reason, shortage } => Event::Failed(RankFailure { reason, shortage }),
            Message::Done => Event::Done,
            Message::Hello { .. } => return Ok(false),
        };
        let rank = peer.rank;
        if connection.is_pending {
            if !self.is_admitted(&peer) {
                return Ok(false);
            }
            connection.is_pending = false;
            let Peer { host, process, out_of_memory, .. } = Peer::clone(&peer);
            self.send(rank, Event::Joined(Joined { connection: connection.number, host, process, out_of_memory }))?;
            if let Some((_, lost)) = self.peers.insert(rank, (peer, connection.number)) {
                // The network dropped the earlier connection.
                listener.close(lost);
            }
        }
        self.send(rank, event)?;
        Ok(true)
    }

    /// Returns true for a rank of this job that no other process has claimed.
    fn is_admitted(&self, peer: &Peer) -> bool {
        peer.rank < self.count && self.peers.get(&peer.rank).is_none_or(|(known, _)| **known == *peer)
    }

    fn send(&self, rank: u32, event: Event) -> Result<(), Closed> {
        self.events.send((rank, event)).map_err(|_| Closed)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, ErrorKind};
    use std::net::TcpStream;
    use std::thread;
    use std::time::Instant;

    use ringmark_core::dimension::Bytes;
    use ringmark_core::host::heartbeat::Stage;

    use super::*;

    fn wait(listener: &HeartbeatListener) -> (u32, Event) {
        let end = Instant::now() + Duration::from_secs(300);
        loop {
            if let Some(event) = listener.next_event() {
                return event;
            }
            assert!(Instant::now() < end, "nothing comes");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Connects to the listener as `rank`, process `process` on host `b`.
    fn hello(listener: &HeartbeatListener, token: &str, rank: u32, process: u32) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(listener.address().addresses[0]).expect("listener accepts");
        let hello =
            Message::Hello { token: token.to_owned(), rank, host: "b".to_owned(), process, out_of_memory: NEVER };
        stream.write_all(hello.line().as_bytes()).expect("sent");
        BufReader::new(stream)
    }

    /// Returns the listener's reply; empty if it closes the connection.
    fn answer(stream: &mut BufReader<TcpStream>) -> String {
        let mut answer = String::new();
        // A connection may also close with unread bytes.
        let _ = stream.read_line(&mut answer);
        answer
    }

    fn send(rank: &mut BufReader<TcpStream>, message: &Message) {
        rank.get_mut().write_all(message.line().as_bytes()).expect("sent");
    }

    /// Connects as a rank that has been accepted and has reported.
    fn joined(listener: &HeartbeatListener, rank: u32, process: u32) -> BufReader<TcpStream> {
        let mut stream = hello(listener, &listener.address().token, rank, process);
        assert_eq!(answer(&mut stream), "welcome\n");
        send(&mut stream, &Message::At(HEARTBEAT));
        let (number, event) = wait(listener);
        assert!(number == rank && matches!(&event, Event::Joined(joined) if joined.process == process), "{event:?}");
        assert_eq!(wait(listener), (rank, Event::Heartbeat(HEARTBEAT)));
        stream
    }

    const NEVER: OutOfMemory = OutOfMemory { host: None, group: None, limit: None };

    const HEARTBEAT: Heartbeat = Heartbeat {
        iteration: 1,
        stage: Stage::Forward,
        is_waiting: false,
        chunks: 0,
        processor_time: Seconds(0.5),
        available_memory: Bytes(1),
        step: None,
        before_allreduce: None,
    };

    #[test]
    fn rank_events_are_received_until_disconnect() {
        let listener = HeartbeatListener::open(4, &[], Seconds(60.0)).expect("a port");
        let mut rank = hello(&listener, &listener.address().token, 3, 7);
        assert_eq!(answer(&mut rank), "welcome\n");
        assert_eq!(listener.next_event(), None);
        send(&mut rank, &Message::At(HEARTBEAT));
        send(&mut rank, &Message::Failed { reason: "no memory".to_owned(), shortage: None });
        let joined = Joined { connection: 0, host: "b".to_owned(), process: 7, out_of_memory: NEVER };
        assert_eq!(wait(&listener), (3, Event::Joined(joined)));
        assert_eq!(wait(&listener), (3, Event::Heartbeat(HEARTBEAT)));
        assert_eq!(wait(&listener), (3, Event::Failed(RankFailure { reason: "no memory".to_owned(), shortage: None })));
        drop(rank);
        assert_eq!(wait(&listener), (3, Event::Disconnected(0)));
    }

    #[test]
    fn connection_without_token_is_ignored() {
        let listener = HeartbeatListener::open(4, &[], Seconds(60.0)).expect("a port");
        let mut rank = joined(&listener, 3, 7);
        let token = listener.address().token.clone();
        // A guessed token; a valid token with a rank outside the job, or with another process's rank.
        for (token, rank, process) in [("guessed", 2, 8), (&token, 4, 8), (&token, 3, 8)] {
            assert_eq!(answer(&mut hello(&listener, token, rank, process)), "", "{rank} {process}");
        }
        let mut stranger = TcpStream::connect(listener.address().addresses[0]).expect("listener accepts");
        // An endless line without a newline; the write fails once it is no longer read.
        let sent = (0..10_000).take_while(|_| stranger.write_all(&[b'x'; 1 << 12]).is_ok()).count();
        assert!(sent < 10_000);
        assert_eq!(listener.next_event(), None);
        // The rank itself may reconnect, and then its first connection closes.
        let mut again = joined(&listener, 3, 7);
        assert_eq!(answer(&mut rank), "");
        send(&mut again, &Message::Done);
        assert_eq!(wait(&listener), (3, Event::Done));
    }

    #[test]
    fn idle_connections_do_not_block_ranks() {
        let listener = HeartbeatListener::open(4, &[], Seconds(60.0)).expect("a port");
        let first = joined(&listener, 0, 7);
        let address = listener.address().addresses[0];
        let connect = |_| TcpStream::connect(address).expect("listener accepts");
        let mut strangers: Vec<TcpStream> = (0..300).map(connect).collect();
        let _second = joined(&listener, 1, 8);
        // The oldest of them are closed, and the rank's older connection stays.
        assert_eq!(strangers[0].read(&mut [0]).expect("closed"), 0);
        strangers[299].set_nonblocking(true).expect("a socket");
        assert_eq!(strangers[299].read(&mut [0]).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
        // A byte now and then does not extend the timeout of a connection without a hello.
        strangers[299].set_nonblocking(false).expect("a socket");
        let since = Instant::now();
        while strangers[299].write_all(b"{").is_ok() {
            assert!(since.elapsed() < 6 * HELLO_TIMEOUT, "connection is still open");
            thread::sleep(HELLO_TIMEOUT / 20);
        }
        let mut first = first;
        send(&mut first, &Message::Done);
        assert_eq!(wait(&listener), (0, Event::Done));
    }

    #[test]
    fn dropped_listener_closes_all_connections() {
        let listener = HeartbeatListener::open(4, &[IpAddr::V4(Ipv4Addr::LOCALHOST)], Seconds(60.0)).expect("a port");
        let local = LauncherAddress {
            addresses: vec![*listener.address().addresses.last().expect("loopback")],
            ..listener.address().clone()
        };
        let mut stream = TcpStream::connect(local.addresses[0]).expect("listener accepts");
        let hello = Message::Hello {
            token: local.token.clone(),
            rank: 0,
            host: "a".to_owned(),
            process: 1,
            out_of_memory: NEVER,
        };
        stream.write_all(hello.line().as_bytes()).expect("sent");
        stream.write_all(Message::Done.line().as_bytes()).expect("sent");
        wait(&listener);
        drop(listener);
        let mut rest = String::new();
        stream.read_to_string(&mut rest).expect("closed");
        assert_eq!(rest, "welcome\n");
    }
}
