//! The ranks' connections, all of them on one thread.

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

/// Longest line that a rank sends, in bytes: a reason for its failure is the longest.
const LONGEST_LINE: usize = 1 << 16;

/// Longest first line: token, rank, the name of a host, and process.
const LONGEST_HELLO: usize = 1 << 12;

/// Time for the hello of a new connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections without a report that may be there besides one for each rank; of more, the oldest is closed. A rank reports
/// at once.
const STRANGERS: usize = 64;

/// Descriptors that this program needs besides one for each rank.
const OTHER_DESCRIPTORS: u64 = 256;

/// Events that wait to be heard; then the ranks' kernels hold the rest.
pub const WAITING_EVENTS: usize = 4096;

/// What is heard of a rank.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// It is there.
    Joined(Joined),
    /// Where it is.
    At(Heartbeat),
    /// It ends the job, and why.
    Failed(RankFailure),
    /// It has done its work.
    Done,
    /// This connection of it ended.
    Left(u64),
}

/// What a rank says of its own failure.
#[derive(Debug, Clone, PartialEq)]
pub struct RankFailure {
    /// In one line.
    pub reason: String,
    /// Where it asked for more memory than there is.
    pub shortage: Option<MemoryShortage>,
}

/// A rank that is there.
#[derive(Debug, Clone, PartialEq)]
pub struct Joined {
    /// Number of its connection.
    pub connection: u64,
    /// Name of its host.
    pub host: String,
    /// Process number there.
    pub process: u32,
    /// How often memory was short before it began.
    pub out_of_memory: OutOfMemory,
}

/// Open until it is dropped; then every connection closes, which ends the ranks that are still there.
pub struct Listener {
    address: LauncherAddress,
    /// `None` while it closes.
    events: Option<Receiver<(u32, Event)>>,
    _thread: ListenerThread,
}

impl Listener {
    /// Listens on a port that the kernel chooses, for `ranks` ranks that reach this machine at `addresses`; for those of
    /// this machine alone where there are none.
    pub fn open(ranks: u32, addresses: &[IpAddr], patience: Seconds) -> anyhow::Result<Listener> {
        let bound = match addresses {
            [] => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)),
            // Takes IPv4 as well where the machine has both.
            _ => {
                TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))
            }
        };
        let socket = bound.context("no port to listen on for the ranks' reports")?;
        // Thousands of ranks connect at once; a connection beyond the queue is retried only seconds later.
        listen(&socket, Backlog::MAXCONN).context("the port cannot be listened on")?;
        let port = socket.local_addr()?.port();
        let local = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let addresses = if addresses.is_empty() { &local } else { addresses };
        let addresses = addresses.iter().map(|address| SocketAddr::new(*address, port)).collect();
        let interval = heartbeat::interval(ranks, patience);
        let address = LauncherAddress { token: token()?, patience, interval, addresses };
        let (sender, events) = mpsc::sync_channel(WAITING_EVENTS);
        let mut ranks = Ranks { count: ranks, token: address.token.clone(), events: sender, speakers: BTreeMap::new() };
        let limits = Limits { pending: STRANGERS + ranks.count as usize, patience: PATIENCE, burst: usize::MAX };
        let serve = move |listener: &mut _, connection| ranks.read(listener, connection);
        let thread = ListenerThread::start(socket, limits, serve).context("no thread to hear the ranks' reports")?;
        Ok(Listener { address, events: Some(events), _thread: thread })
    }

    /// What a rank needs to reach this.
    pub fn address(&self) -> &LauncherAddress {
        &self.address
    }

    /// The next event, where one has come.
    pub fn heard(&self) -> Option<(u32, Event)> {
        self.events.as_ref()?.try_recv().ok()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The thread may wait for room there.
        self.events = None;
    }
}

/// Lets this program have a connection to each of `ranks` ranks, as far as the hard limit goes: soft limits are often 1024.
/// Returns the limit if it is too low for them.
pub fn raise_descriptor_limit(ranks: u32) -> Option<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    let wanted = u64::from(ranks) + OTHER_DESCRIPTORS;
    let limit = wanted.min(hard);
    if soft < limit && setrlimit(Resource::RLIMIT_NOFILE, limit, hard).is_err() {
        return Some(soft);
    }
    (hard < wanted).then_some(hard)
}

/// 128 bits of the kernel's random numbers: nobody guesses them.
fn token() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes));
    read.context("/dev/urandom gives no random numbers")?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// For whom a connection speaks.
#[derive(Debug, Clone, PartialEq)]
struct Speaker {
    rank: u32,
    host: String,
    process: u32,
    out_of_memory: OutOfMemory,
}

/// A connection, and for whom it speaks once it has sent a hello with the token. A rank that found the welcome too late
/// speaks on another connection, and never on this one: it is pending.
type Connection = listener::Connection<Option<Arc<Speaker>>>;
type Listening = listener::Listener<Option<Arc<Speaker>>>;

/// The ranks' side of all connections.
struct Ranks {
    count: u32,
    token: String,
    events: SyncSender<(u32, Event)>,
    /// Who spoke for a rank first speaks for it to the end; on which connection at the moment.
    speakers: BTreeMap<u32, (Arc<Speaker>, u64)>,
}

impl Ranks {
    /// Hands out what a connection says; gives it back where it goes on.
    fn read(&mut self, listener: &mut Listening, mut connection: Connection) -> Result<Option<Connection>, Closed> {
        if self.read_on(listener, &mut connection)? {
            return Ok(Some(connection));
        }
        if let (Some(speaker), false) = (&connection.state, connection.is_pending) {
            self.send(speaker.rank, Event::Left(connection.number))?;
        }
        Ok(None)
    }

    /// Whether the connection goes on.
    fn read_on(&mut self, listener: &mut Listening, connection: &mut Connection) -> Result<bool, Closed> {
        if !connection.receive() {
            return Ok(false);
        }
        while let Some(end) = connection.received.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = connection.received.drain(..=end).collect();
            let message = std::str::from_utf8(&line).ok().and_then(|line| Message::parse(line).ok());
            let goes_on = match message {
                Some(message) => self.take(listener, connection, message)?,
                None => false,
            };
            if !goes_on {
                return Ok(false);
            }
        }
        if connection.received.is_empty() {
            // Of many connections what a long line took would stay for ever.
            connection.received = Vec::new();
        }
        let longest = if connection.state.is_some() { LONGEST_LINE } else { LONGEST_HELLO };
        Ok(connection.received.len() < longest)
    }

    /// Whether the connection goes on after this message.
    fn take(
        &mut self,
        listener: &mut Listening,
        connection: &mut Connection,
        message: Message,
    ) -> Result<bool, Closed> {
        let Some(speaker) = connection.state.clone() else {
            let Message::Hello { token, rank, host, process, out_of_memory } = message else { return Ok(false) };
            let speaker = Speaker { rank, host, process, out_of_memory };
            // Whoever is no rank of this job is left alone.
            if token != self.token || !self.may_speak(&speaker) {
                return Ok(false);
            }
            connection.state = Some(Arc::new(speaker));
            connection.deadline = None;
            return Ok(connection.stream.write_all(format!("{WELCOME}\n").as_bytes()).is_ok());
        };
        let event = match message {
            Message::At(heartbeat) => Event::At(heartbeat),
            Message::Failed { reason, shortage } => Event::Failed(RankFailure { reason, shortage }),
            Message::Done => Event::Done,
            Message::Hello { .. } => return Ok(false),
        };
        let rank = speaker.rank;
        if connection.is_pending {
            if !self.may_speak(&speaker) {
                return Ok(false);
            }
            connection.is_pending = false;
            let Speaker { host, process, out_of_memory, .. } = Speaker::clone(&speaker);
            self.send(rank, Event::Joined(Joined { connection: connection.number, host, process, out_of_memory }))?;
            if let Some((_, lost)) = self.speakers.insert(rank, (speaker, connection.number)) {
                // The network has lost it.
                listener.close(lost);
            }
        }
        self.send(rank, event)?;
        Ok(true)
    }

    /// A rank of this job, and nobody else spoke for it before.
    fn may_speak(&self, speaker: &Speaker) -> bool {
        speaker.rank < self.count && self.speakers.get(&speaker.rank).is_none_or(|(known, _)| **known == *speaker)
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

    fn wait(listener: &Listener) -> (u32, Event) {
        let end = Instant::now() + Duration::from_secs(300);
        loop {
            if let Some(event) = listener.heard() {
                return event;
            }
            assert!(Instant::now() < end, "nothing comes");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// A connection to the listener that says to be `rank`, of this process on host `b`.
    fn hello(listener: &Listener, token: &str, rank: u32, process: u32) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(listener.address().addresses[0]).expect("it listens");
        let hello =
            Message::Hello { token: token.to_owned(), rank, host: "b".to_owned(), process, out_of_memory: NEVER };
        stream.write_all(hello.line().as_bytes()).expect("sent");
        BufReader::new(stream)
    }

    /// What the listener answers; nothing where it closes.
    fn answer(stream: &mut BufReader<TcpStream>) -> String {
        let mut answer = String::new();
        // A connection may also close with bytes that were never read.
        let _ = stream.read_line(&mut answer);
        answer
    }

    fn say(rank: &mut BufReader<TcpStream>, message: &Message) {
        rank.get_mut().write_all(message.line().as_bytes()).expect("sent");
    }

    /// A rank that is heard.
    fn joined(listener: &Listener, rank: u32, process: u32) -> BufReader<TcpStream> {
        let mut stream = hello(listener, &listener.address().token, rank, process);
        assert_eq!(answer(&mut stream), "welcome\n");
        say(&mut stream, &Message::At(HEARTBEAT));
        let (number, event) = wait(listener);
        assert!(number == rank && matches!(&event, Event::Joined(joined) if joined.process == process), "{event:?}");
        assert_eq!(wait(listener), (rank, Event::At(HEARTBEAT)));
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
    fn a_rank_is_heard_until_it_is_gone() {
        let listener = Listener::open(4, &[], Seconds(60.0)).expect("a port");
        let mut rank = hello(&listener, &listener.address().token, 3, 7);
        assert_eq!(answer(&mut rank), "welcome\n");
        assert_eq!(listener.heard(), None);
        say(&mut rank, &Message::At(HEARTBEAT));
        say(&mut rank, &Message::Failed { reason: "no memory".to_owned(), shortage: None });
        let joined = Joined { connection: 0, host: "b".to_owned(), process: 7, out_of_memory: NEVER };
        assert_eq!(wait(&listener), (3, Event::Joined(joined)));
        assert_eq!(wait(&listener), (3, Event::At(HEARTBEAT)));
        assert_eq!(wait(&listener), (3, Event::Failed(RankFailure { reason: "no memory".to_owned(), shortage: None })));
        drop(rank);
        assert_eq!(wait(&listener), (3, Event::Left(0)));
    }

    #[test]
    fn a_stranger_is_not_heard() {
        let listener = Listener::open(4, &[], Seconds(60.0)).expect("a port");
        let mut rank = joined(&listener, 3, 7);
        let token = listener.address().token.clone();
        // A guessed token; with the token no rank of this job, or one that is somebody else.
        for (token, rank, process) in [("guessed", 2, 8), (&token, 4, 8), (&token, 3, 8)] {
            assert_eq!(answer(&mut hello(&listener, token, rank, process)), "", "{rank} {process}");
        }
        let mut stranger = TcpStream::connect(listener.address().addresses[0]).expect("it listens");
        // Without end and without a newline; it cannot be sent where nobody reads it.
        let sent = (0..10_000).take_while(|_| stranger.write_all(&[b'x'; 1 << 12]).is_ok()).count();
        assert!(sent < 10_000);
        assert_eq!(listener.heard(), None);
        // The rank itself may come again, and then its first connection closes.
        let mut again = joined(&listener, 3, 7);
        assert_eq!(answer(&mut rank), "");
        say(&mut again, &Message::Done);
        assert_eq!(wait(&listener), (3, Event::Done));
    }

    #[test]
    fn strangers_keep_no_rank_out() {
        let listener = Listener::open(4, &[], Seconds(60.0)).expect("a port");
        let first = joined(&listener, 0, 7);
        let address = listener.address().addresses[0];
        let connect = |_| TcpStream::connect(address).expect("it listens");
        let mut strangers: Vec<TcpStream> = (0..300).map(connect).collect();
        let _second = joined(&listener, 1, 8);
        // The oldest of them are closed, and the rank that is older stays.
        assert_eq!(strangers[0].read(&mut [0]).expect("closed"), 0);
        strangers[299].set_nonblocking(true).expect("a socket");
        assert_eq!(strangers[299].read(&mut [0]).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
        // A byte now and then does not make a stranger welcome.
        strangers[299].set_nonblocking(false).expect("a socket");
        let since = Instant::now();
        while strangers[299].write_all(b"{").is_ok() {
            assert!(since.elapsed() < 6 * PATIENCE, "it is still there");
            thread::sleep(PATIENCE / 20);
        }
        let mut first = first;
        say(&mut first, &Message::Done);
        assert_eq!(wait(&listener), (0, Event::Done));
    }

    #[test]
    fn the_ranks_see_the_end_of_the_listener() {
        let listener = Listener::open(4, &[IpAddr::V4(Ipv4Addr::LOCALHOST)], Seconds(60.0)).expect("a port");
        let local = LauncherAddress {
            addresses: vec![*listener.address().addresses.last().expect("loopback")],
            ..listener.address().clone()
        };
        let mut stream = TcpStream::connect(local.addresses[0]).expect("it listens");
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
