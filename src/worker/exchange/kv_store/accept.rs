//! Accepts the connections of all workers at a server's port. One thread polls all connections, so that strangers at the port
//! exclude no worker and cost neither threads nor memory.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::exchange::kv_store::protocol::{self, FrameKind, HEADER_BYTES, Header, Hello, LONGEST_GREETING};

/// Connections without a hello, at most, besides one for each worker; of more, the oldest is closed. A worker sends its hello at
/// once.
const MOST_PENDING: usize = 64;

/// Between two checks of the clock, in milliseconds.
const POLL_MILLISECONDS: u16 = 200;

/// Pause after an accept that failed for lack of a descriptor.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection before its hello.
struct PendingConnection {
    stream: TcpStream,
    since: Instant,
    /// Bytes of header and hello so far.
    said: Vec<u8>,
}

/// Accepts one connection of each of `pushers` workers at `listener` and returns them in worker order. A connection must send
/// its hello within `patience`. Strangers, and workers that gave this address up, are closed.
pub fn accept_workers(
    listener: &TcpListener,
    token: u64,
    pushers: usize,
    patience: Duration,
) -> Result<Vec<TcpStream>> {
    listener.set_nonblocking(true).context("the port for workers blocks")?;
    let mut workers: Vec<Option<TcpStream>> = (0..pushers).map(|_| None).collect();
    let mut pending: VecDeque<PendingConnection> = VecDeque::new();
    while workers.iter().any(Option::is_none) {
        wait_for_any(listener, &pending).context("workers cannot connect")?;
        accept_pending(listener, &mut pending, MOST_PENDING + pushers).context("workers cannot connect")?;
        for mut connection in std::mem::take(&mut pending) {
            match connection.read_hello(token, pushers) {
                Ok(Some(pusher)) => {
                    // It may have disconnected.
                    if welcome(&connection.stream).is_ok() {
                        workers[pusher] = Some(connection.stream);
                    }
                }
                Ok(None) if connection.since.elapsed() < patience => pending.push_back(connection),
                Ok(None) | Err(_) => {}
            }
        }
    }
    Ok(workers.into_iter().flatten().collect())
}

/// Waits for a new connection or bytes, at most one interval.
fn wait_for_any(listener: &TcpListener, pending: &VecDeque<PendingConnection>) -> Result<()> {
    let sockets = pending.iter().map(|connection| connection.stream.as_fd());
    let mut waiting: Vec<PollFd> =
        [listener.as_fd()].into_iter().chain(sockets).map(|socket| PollFd::new(socket, PollFlags::POLLIN)).collect();
    match poll(&mut waiting, PollTimeout::from(POLL_MILLISECONDS)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Accepts pending connections; closes the oldest beyond `most`.
fn accept_pending(listener: &TcpListener, pending: &mut VecDeque<PendingConnection>, most: usize) -> io::Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                pending.push_back(PendingConnection { stream, since: Instant::now(), said: Vec::new() });
                if pending.len() > most {
                    pending.pop_front();
                }
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => return Ok(()),
                // The peer has disconnected.
                ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                // For example out of descriptors: close the oldest stranger; without one, fail.
                _ => {
                    pending.pop_front().ok_or(error)?;
                    std::thread::sleep(PAUSE);
                    return Ok(());
                }
            },
        }
    }
}

impl PendingConnection {
    /// Reads pending bytes. Returns the worker's number after its hello, `None` before.
    ///
    /// # Errors
    ///
    /// Fails if the connection is a stranger's.
    fn read_hello(&mut self, token: u64, pushers: usize) -> Result<Option<usize>> {
        let mut bytes = [0; HEADER_BYTES + LONGEST_GREETING as usize];
        match self.stream.read(&mut bytes) {
            Ok(0) => anyhow::bail!("it disconnected"),
            Ok(count) => self.said.extend_from_slice(&bytes[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        ensure!(self.said.len() <= bytes.len(), "a hello has an end");
        if self.said.len() < HEADER_BYTES {
            return Ok(None);
        }
        let (mut header, mut text) = self.said.split_at(HEADER_BYTES);
        let header = Header::read(&mut header)?;
        ensure!(header.kind == FrameKind::Hello && header.bytes <= LONGEST_GREETING, "no hello");
        if (text.len() as u64) < header.bytes {
            return Ok(None);
        }
        let hello: Hello = protocol::read_message(&header, &mut text, LONGEST_GREETING)?;
        // A worker sends nothing more before the welcome.
        ensure!(text.is_empty() && hello.token == token && hello.pusher < pushers, "a stranger");
        Ok(Some(hello.pusher))
    }
}

fn welcome(mut stream: &TcpStream) -> Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    protocol::send_message(&mut stream, FrameKind::Welcome, &())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::thread::{self, JoinHandle};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(300);

    fn server(pushers: usize, patience: Duration) -> (SocketAddr, JoinHandle<Result<Vec<TcpStream>>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        (address, thread::spawn(move || accept_workers(&listener, 5, pushers, patience)))
    }

    fn connection(address: SocketAddr) -> TcpStream {
        TcpStream::connect(address).expect("it listens")
    }

    fn is_welcome(stream: &mut TcpStream) -> bool {
        Header::read(stream).is_ok_and(|header| {
            protocol::read_message::<()>(&header, stream, LONGEST_GREETING).is_ok() && header.kind == FrameKind::Welcome
        })
    }

    fn hello(pusher: usize) -> Vec<u8> {
        let mut said = Vec::new();
        protocol::send_message(&mut said, FrameKind::Hello, &Hello { token: 5, pusher }).expect("memory takes it");
        said
    }

    #[test]
    fn silent_strangers_keep_no_worker_out() {
        let (address, server) = server(2, PATIENCE);
        let mut strangers: Vec<TcpStream> = (0..200).map(|_| connection(address)).collect();
        let mut workers = [1, 0].map(|pusher| {
            let mut stream = connection(address);
            stream.write_all(&hello(pusher)).expect("sent");
            assert!(is_welcome(&mut stream), "while {} strangers are silent", strangers.len());
            stream
        });
        let accepted = server.join().expect("no panic").expect("both");
        for (accepted, worker) in accepted.iter().zip(workers.iter().rev()) {
            assert_eq!(accepted.peer_addr().expect("connected"), worker.local_addr().expect("connected"));
        }
        // Its socket blocks as every other, and a worker may take its time from now on.
        workers[0].write_all(b"push").expect("sent");
        let mut bytes = [0; 4];
        (&accepted[1]).read_exact(&mut bytes).expect("it comes");
        assert_eq!(&bytes, b"push");
        // The oldest were closed on the way, the others with the last worker.
        assert!(strangers.iter_mut().all(|stranger| matches!(stranger.read(&mut [0]), Ok(0) | Err(_))));
    }

    #[test]
    fn who_says_something_else_or_too_slowly_is_closed() {
        let (address, server) = server(1, Duration::from_secs(1));
        let long = Header { bytes: LONGEST_GREETING + 1, ..Header::bare(FrameKind::Hello) }.encode().to_vec();
        let pushes = Header { bytes: 4, ..Header::bare(FrameKind::Push) }.encode().to_vec();
        let endless = [&hello(0)[..], &[b' '; 1 << 12]].concat();
        for said in [vec![b'x'; 1 << 12], long, pushes, hello(1), endless] {
            let mut stranger = connection(address);
            // It may be closed before all is sent.
            let _ = stranger.write_all(&said);
            assert!(!is_welcome(&mut stranger));
        }
        let mut slow = connection(address);
        let since = Instant::now();
        while slow.write_all(&hello(0)[..1]).is_ok() {
            assert!(since.elapsed() < PATIENCE, "it is still there");
            thread::sleep(Duration::from_millis(50));
        }
        // Where this machine is too busy to read it in time, it comes again.
        loop {
            let mut worker = connection(address);
            let _ = worker.write_all(&hello(0));
            if is_welcome(&mut worker) {
                break;
            }
        }
        assert_eq!(server.join().expect("no panic").expect("one").len(), 1);
    }

    #[test]
    fn a_worker_s_hello_may_come_in_pieces() {
        let (address, server) = server(1, PATIENCE);
        let mut worker = connection(address);
        for piece in hello(0).chunks(40) {
            worker.write_all(piece).expect("sent");
            thread::sleep(Duration::from_millis(20));
        }
        assert!(is_welcome(&mut worker));
        assert_eq!(server.join().expect("no panic").expect("one").len(), 1);
    }
}
