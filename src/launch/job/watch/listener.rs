//! The ranks' connections: a thread that accepts them and one for each, all asleep while nothing comes.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use ringmark_record::dimension::units::Seconds;
use ringmark_record::host::heartbeat::{Heartbeat, LauncherAddress, Message, WELCOME};

/// Longest line that a rank sends, in bytes: a reason for its failure is the longest.
const LONGEST_LINE: u64 = 1 << 16;

/// For a new connection to say who it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is heard of a rank.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// It is there, on a connection of this number: host and process number.
    Joined(u64, String, u32),
    /// Where it is.
    At(Heartbeat),
    /// It ends the job, and why.
    Failed(String),
    /// It has done its work.
    Done,
    /// This connection of it ended.
    Left(u64),
}

/// Open until it is dropped; then every connection closes, which ends the ranks that are still there.
pub struct Listener {
    address: LauncherAddress,
    events: Receiver<(u32, Event)>,
    connections: Arc<Mutex<Connections>>,
}

#[derive(Default)]
struct Connections {
    streams: Vec<Weak<TcpStream>>,
    is_closed: bool,
}

impl Listener {
    /// Listens on a port that the kernel chooses, for ranks that reach this machine at `addresses`; for those of this
    /// machine alone where there are none.
    pub fn open(addresses: &[IpAddr], patience: Seconds) -> anyhow::Result<Listener> {
        let bound = match addresses {
            [] => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)),
            // Takes IPv4 as well where the machine has both.
            _ => {
                TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))
            }
        };
        let listener = bound.context("no port to listen on for the ranks' reports")?;
        let port = listener.local_addr()?.port();
        let local = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let addresses = if addresses.is_empty() { &local } else { addresses };
        let addresses = addresses.iter().map(|address| SocketAddr::new(*address, port)).collect();
        let address = LauncherAddress { token: token(), patience, addresses };
        let (sender, events) = mpsc::channel();
        let connections = Arc::new(Mutex::new(Connections::default()));
        let (token, of_thread) = (address.token.clone(), Arc::clone(&connections));
        thread::spawn(move || accept(&listener, &token, &sender, &of_thread));
        Ok(Listener { address, events, connections })
    }

    /// What a rank needs to reach this.
    pub fn address(&self) -> &LauncherAddress {
        &self.address
    }

    /// The next event, where one has come.
    pub fn heard(&self) -> Option<(u32, Event)> {
        self.events.try_recv().ok()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.is_closed = true;
        for stream in connections.streams.drain(..).filter_map(|stream| stream.upgrade()) {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(connections);
        // Wakes the thread that accepts; it finds that there is nothing to do any more.
        let port = self.address.addresses.first().map_or(0, SocketAddr::port);
        let _ = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), Duration::from_secs(1));
    }
}

/// Hardly to be guessed: the standard library's own random keys.
fn token() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

fn accept(listener: &TcpListener, token: &str, events: &Sender<(u32, Event)>, connections: &Arc<Mutex<Connections>>) {
    for (number, stream) in (0..).zip(listener.incoming()) {
        let Ok(stream) = stream else {
            // Out of descriptors, say: others may close theirs.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let stream = Arc::new(stream);
        {
            let mut connections = connections.lock().unwrap_or_else(PoisonError::into_inner);
            if connections.is_closed {
                return;
            }
            connections.streams.retain(|stream| stream.strong_count() > 0);
            connections.streams.push(Arc::downgrade(&stream));
        }
        let (token, events) = (token.to_owned(), events.clone());
        thread::spawn(move || {
            // Whoever is no rank of this job is left alone.
            let _ = serve(number, &stream, &token, &events);
        });
    }
}

/// Hands out what one rank says; `None` when it is no rank of this job, or gone.
fn serve(number: u64, mut stream: &TcpStream, token: &str, events: &Sender<(u32, Event)>) -> Option<()> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut input = BufReader::new(stream);
    let Message::Hello { token: theirs, rank, host, process } = next(&mut input)? else { return None };
    if theirs != token {
        return None;
    }
    stream.write_all(format!("{WELCOME}\n").as_bytes()).ok()?;
    stream.set_read_timeout(None).ok()?;
    // A rank that found the welcome too late speaks on another connection, and never on this one.
    let mut joining = Some(Event::Joined(number, host, process));
    while let Some(message) = next(&mut input) {
        if let Some(joined) = joining.take() {
            events.send((rank, joined)).ok()?;
        }
        let event = match message {
            Message::At(heartbeat) => Event::At(heartbeat),
            Message::Failed { reason } => Event::Failed(reason),
            Message::Done => Event::Done,
            Message::Hello { .. } => break,
        };
        events.send((rank, event)).ok()?;
    }
    if joining.is_none() {
        events.send((rank, Event::Left(number))).ok()?;
    }
    Some(())
}

fn next(input: &mut BufReader<&TcpStream>) -> Option<Message> {
    let mut line = String::new();
    input.take(LONGEST_LINE).read_line(&mut line).ok()?;
    Message::parse(&line).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ringmark_record::dimension::units::Bytes;
    use ringmark_record::host::heartbeat::Stage;

    use super::*;

    fn wait(listener: &Listener) -> (u32, Event) {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(event) = listener.heard() {
                return event;
            }
            assert!(Instant::now() < end, "nothing comes");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn hello(listener: &Listener, token: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(listener.address().addresses[0]).expect("it listens");
        let hello = Message::Hello { token: token.to_owned(), rank: 3, host: "b".to_owned(), process: 7 };
        stream.write_all(hello.line().as_bytes()).expect("sent");
        BufReader::new(stream)
    }

    #[test]
    fn a_rank_is_heard_until_it_is_gone() {
        let listener = Listener::open(&[], Seconds(60.0)).expect("a port");
        let mut rank = hello(&listener, &listener.address().token);
        let mut answer = String::new();
        rank.read_line(&mut answer).expect("an answer");
        assert_eq!(answer, "welcome\n");
        assert_eq!(listener.heard(), None);
        let heartbeat = Heartbeat {
            iteration: 1,
            phase: Stage::Forward,
            is_waiting: false,
            chunks: 0,
            processor_time: Seconds(0.5),
            available_memory: Bytes(1),
        };
        for message in [Message::At(heartbeat), Message::Failed { reason: "no memory".to_owned() }] {
            rank.get_mut().write_all(message.line().as_bytes()).expect("sent");
        }
        assert_eq!(wait(&listener), (3, Event::Joined(0, "b".to_owned(), 7)));
        assert_eq!(wait(&listener), (3, Event::At(heartbeat)));
        assert_eq!(wait(&listener), (3, Event::Failed("no memory".to_owned())));
        drop(rank);
        assert_eq!(wait(&listener), (3, Event::Left(0)));
    }

    #[test]
    fn a_stranger_is_not_heard() {
        let listener = Listener::open(&[], Seconds(60.0)).expect("a port");
        let mut stranger = hello(&listener, "guessed");
        assert_eq!(stranger.read_line(&mut String::new()).expect("closed"), 0);
        assert_eq!(listener.heard(), None);
    }

    #[test]
    fn the_ranks_see_the_end_of_the_listener() {
        let listener = Listener::open(&[IpAddr::V4(Ipv4Addr::LOCALHOST)], Seconds(60.0)).expect("a port");
        let local = LauncherAddress {
            addresses: vec![*listener.address().addresses.last().expect("loopback")],
            ..listener.address().clone()
        };
        let mut stream = TcpStream::connect(local.addresses[0]).expect("it listens");
        let hello = Message::Hello { token: local.token.clone(), rank: 0, host: "a".to_owned(), process: 1 };
        stream.write_all(hello.line().as_bytes()).expect("sent");
        stream.write_all(Message::Done.line().as_bytes()).expect("sent");
        wait(&listener);
        drop(listener);
        let mut rest = String::new();
        stream.read_to_string(&mut rest).expect("closed");
        assert_eq!(rest, "welcome\n");
    }
}
