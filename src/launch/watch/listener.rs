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
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use ringmark_record::heartbeat::{Driver, Heartbeat, Message, WELCOME};

/// Longest line that a rank sends, in bytes: a reason for its failure is the longest.
const LONGEST_LINE: u64 = 1 << 16;

/// For a new connection to say who it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is heard of a rank.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// It is there: host and process number.
    Joined(String, u32),
    /// Where it is.
    At(Heartbeat),
    /// It ends the job, and why.
    Failed(String),
    /// It has done its work.
    Done,
    /// Its connection ended.
    Left,
}

/// Open until it is dropped; then every connection closes, which ends the ranks that are still there.
pub struct Listener {
    driver: Driver,
    events: Receiver<(u32, Event)>,
    connections: Arc<Mutex<Connections>>,
}

#[derive(Default)]
struct Connections {
    streams: Vec<Weak<TcpStream>>,
    is_closed: bool,
}

impl Listener {
    /// Listens on a port that the kernel chooses: on this machine's addresses, or for itself alone.
    pub fn open(is_local: bool) -> anyhow::Result<Listener> {
        let loopback = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let bound = match is_local {
            true => loopback(),
            // Takes IPv4 as well where the machine has both.
            false => {
                TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))
            }
        };
        let listener = bound.context("no port to listen on for the ranks' reports")?;
        let port = listener.local_addr()?.port();
        let addresses = if is_local { vec![IpAddr::V4(Ipv4Addr::LOCALHOST)] } else { own_addresses() };
        let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect();
        let driver = Driver { token: token(), addresses };
        let (sender, events) = mpsc::channel();
        let connections = Arc::new(Mutex::new(Connections::default()));
        let (token, of_thread) = (driver.token.clone(), Arc::clone(&connections));
        thread::spawn(move || accept(&listener, &token, &sender, &of_thread));
        Ok(Listener { driver, events, connections })
    }

    /// What a rank needs to reach this.
    pub fn driver(&self) -> &Driver {
        &self.driver
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
        let port = self.driver.addresses.first().map_or(0, SocketAddr::port);
        let _ = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), Duration::from_secs(1));
    }
}

/// Hardly to be guessed: the standard library's own random keys.
fn token() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

/// This machine's addresses by which others may reach it, those of containers' bridges last.
fn own_addresses() -> Vec<IpAddr> {
    let mut addresses: Vec<(bool, IpAddr)> = Vec::new();
    for interface in getifaddrs().into_iter().flatten() {
        let flags = interface.flags;
        if !flags.contains(InterfaceFlags::IFF_UP) || flags.contains(InterfaceFlags::IFF_LOOPBACK) {
            continue;
        }
        let address = interface.address.and_then(|address| {
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            // A link-local address means nothing on another host.
            let v6 = address.as_sockaddr_in6().map(|v6| v6.ip()).filter(|ip| !ip.is_unicast_link_local());
            v4.or(v6.map(IpAddr::V6))
        });
        let is_bridge =
            ["docker", "br-", "virbr", "veth", "cni"].iter().any(|name| interface.interface_name.starts_with(name));
        addresses.extend(address.map(|address| (is_bridge, address)));
    }
    // A machine without a network still has itself.
    addresses.push((true, IpAddr::V4(Ipv4Addr::LOCALHOST)));
    addresses.sort_by_key(|(is_bridge, address)| (*is_bridge, address.is_ipv6()));
    addresses.into_iter().map(|(_, address)| address).collect()
}

fn accept(listener: &TcpListener, token: &str, events: &Sender<(u32, Event)>, connections: &Arc<Mutex<Connections>>) {
    for stream in listener.incoming() {
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
            let _ = serve(&stream, &token, &events);
        });
    }
}

/// Hands out what one rank says; `None` when it is no rank of this job, or gone.
fn serve(mut stream: &TcpStream, token: &str, events: &Sender<(u32, Event)>) -> Option<()> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut input = BufReader::new(stream);
    let Message::Hello { token: theirs, rank, host, process } = next(&mut input)? else { return None };
    if theirs != token {
        return None;
    }
    stream.write_all(format!("{WELCOME}\n").as_bytes()).ok()?;
    stream.set_read_timeout(None).ok()?;
    events.send((rank, Event::Joined(host, process))).ok()?;
    while let Some(message) = next(&mut input) {
        let event = match message {
            Message::At(heartbeat) => Event::At(heartbeat),
            Message::Failed { reason } => Event::Failed(reason),
            Message::Done => Event::Done,
            Message::Hello { .. } => break,
        };
        events.send((rank, event)).ok()?;
    }
    events.send((rank, Event::Left)).ok()
}

fn next(input: &mut BufReader<&TcpStream>) -> Option<Message> {
    let mut line = String::new();
    input.take(LONGEST_LINE).read_line(&mut line).ok()?;
    Message::parse(&line).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ringmark_record::heartbeat::Phase;
    use ringmark_record::units::{Bytes, Seconds};

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
        let mut stream = TcpStream::connect(listener.driver().addresses[0]).expect("it listens");
        let hello = Message::Hello { token: token.to_owned(), rank: 3, host: "b".to_owned(), process: 7 };
        stream.write_all(hello.line().as_bytes()).expect("sent");
        BufReader::new(stream)
    }

    #[test]
    fn a_rank_is_heard_until_it_is_gone() {
        let listener = Listener::open(true).expect("a port");
        let mut rank = hello(&listener, &listener.driver().token);
        let mut answer = String::new();
        rank.read_line(&mut answer).expect("an answer");
        assert_eq!(answer, "welcome\n");
        assert_eq!(wait(&listener), (3, Event::Joined("b".to_owned(), 7)));
        let heartbeat = Heartbeat {
            iteration: 1,
            phase: Phase::Forward,
            pieces: 0,
            processor_time: Seconds(0.5),
            available_memory: Bytes(1),
        };
        for message in [Message::At(heartbeat), Message::Failed { reason: "no memory".to_owned() }] {
            rank.get_mut().write_all(message.line().as_bytes()).expect("sent");
        }
        assert_eq!(wait(&listener), (3, Event::At(heartbeat)));
        assert_eq!(wait(&listener), (3, Event::Failed("no memory".to_owned())));
        drop(rank);
        assert_eq!(wait(&listener), (3, Event::Left));
    }

    #[test]
    fn a_stranger_is_not_heard() {
        let listener = Listener::open(true).expect("a port");
        let mut stranger = hello(&listener, "guessed");
        assert_eq!(stranger.read_line(&mut String::new()).expect("closed"), 0);
        assert_eq!(listener.heard(), None);
    }

    #[test]
    fn the_ranks_see_the_end_of_the_listener() {
        let listener = Listener::open(false).expect("a port");
        let local = Driver {
            addresses: vec![*listener.driver().addresses.last().expect("loopback")],
            ..listener.driver().clone()
        };
        let mut stream = TcpStream::connect(local.addresses[0]).expect("it listens");
        let hello = Message::Hello { token: local.token.clone(), rank: 0, host: "a".to_owned(), process: 1 };
        stream.write_all(hello.line().as_bytes()).expect("sent");
        wait(&listener);
        drop(listener);
        let mut rest = String::new();
        stream.read_to_string(&mut rest).expect("closed");
        assert_eq!(rest, "welcome\n");
    }
}
