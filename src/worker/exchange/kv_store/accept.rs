//! Accepts the connections of all workers at a server's port.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ringmark_core::listener::{Connection, Limits, Listener};

use crate::exchange::kv_store::protocol::{self, FrameKind, HEADER_BYTES, Header, Hello, MAX_HELLO_BYTES};

/// Maximum number of connections without a hello, in addition to one per worker; beyond it the oldest is closed. A
/// worker sends its hello at once.
const MAX_PENDING: usize = 64;

/// Accepts one connection of each of `pushers` workers and returns them in worker order. A connection must send its
/// hello within `timeout`. Other connections, and those of workers that have given up this address, are closed.
pub fn accept_workers(listener: TcpListener, token: u64, pushers: usize, timeout: Duration) -> Result<Vec<TcpStream>> {
    let limits = Limits { pending: MAX_PENDING + pushers, patience: timeout, burst: usize::MAX };
    let mut listener: Listener<()> =
        Listener::new(listener, limits).context("cannot accept the workers' connections")?;
    let mut workers: Vec<Option<TcpStream>> = (0..pushers).map(|_| None).collect();
    while workers.iter().any(Option::is_none) {
        let failure = listener.serve_pending(|listener, mut connection| {
            Ok(match read_hello(&mut connection, token, pushers) {
                Ok(Some(pusher)) => {
                    // It may have disconnected.
                    if let Ok(stream) = listener.release(connection).map_err(anyhow::Error::from).and_then(welcome) {
                        workers[pusher] = Some(stream);
                    }
                    None
                }
                Ok(None) => Some(connection),
                Err(_) => None,
            })
        });
        // No thread is there to be ended.
        failure.ok().flatten().map_or(Ok(()), Err).context("cannot accept the workers' connections")?;
    }
    Ok(workers.into_iter().flatten().collect())
}

/// Reads pending bytes. Returns the worker's number after its hello, `None` before.
///
/// # Errors
///
/// Fails if the peer is not a worker of this job.
fn read_hello(connection: &mut Connection<()>, token: u64, pushers: usize) -> Result<Option<usize>> {
    ensure!(connection.receive(), "the peer disconnected");
    ensure!(connection.received.len() <= HEADER_BYTES + MAX_HELLO_BYTES as usize, "hello too long");
    if connection.received.len() < HEADER_BYTES {
        return Ok(None);
    }
    let (mut header, mut text) = connection.received.split_at(HEADER_BYTES);
    let header = Header::read(&mut header)?;
    ensure!(header.kind == FrameKind::Hello && header.bytes <= MAX_HELLO_BYTES, "no hello");
    if (text.len() as u64) < header.bytes {
        return Ok(None);
    }
    let hello: Hello = protocol::read_message(&header, &mut text, MAX_HELLO_BYTES)?;
    // A worker sends nothing more before the welcome.
    ensure!(text.is_empty() && hello.token == token && hello.pusher < pushers, "not a worker of this job");
    Ok(Some(hello.pusher))
}

fn welcome(mut stream: TcpStream) -> Result<TcpStream> {
    stream.set_nodelay(true)?;
    protocol::send_message(&mut stream, FrameKind::Welcome, &())?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr};
    use std::thread::{self, JoinHandle};
    use std::time::Instant;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(300);

    fn server(pushers: usize, timeout: Duration) -> (SocketAddr, JoinHandle<Result<Vec<TcpStream>>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        (address, thread::spawn(move || accept_workers(listener, 5, pushers, timeout)))
    }

    fn connection(address: SocketAddr) -> TcpStream {
        TcpStream::connect(address).expect("it listens")
    }

    fn is_welcome(stream: &mut TcpStream) -> bool {
        Header::read(stream).is_ok_and(|header| {
            protocol::read_message::<()>(&header, stream, MAX_HELLO_BYTES).is_ok() && header.kind == FrameKind::Welcome
        })
    }

    fn hello(pusher: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        protocol::send_message(&mut bytes, FrameKind::Hello, &Hello { token: 5, pusher })
            .expect("an in-memory write succeeds");
        bytes
    }

    #[test]
    fn idle_connections_do_not_block_workers() {
        let (address, server) = server(2, TIMEOUT);
        let mut others: Vec<TcpStream> = (0..200).map(|_| connection(address)).collect();
        let mut workers = [1, 0].map(|pusher| {
            let mut stream = connection(address);
            stream.write_all(&hello(pusher)).expect("sent");
            assert!(is_welcome(&mut stream), "while {} others are silent", others.len());
            stream
        });
        let accepted = server.join().expect("no panic").expect("both");
        for (accepted, worker) in accepted.iter().zip(workers.iter().rev()) {
            assert_eq!(accepted.peer_addr().expect("connected"), worker.local_addr().expect("connected"));
        }
        // Accepted sockets block without a timeout.
        workers[0].write_all(b"push").expect("sent");
        let mut bytes = [0; 4];
        (&accepted[1]).read_exact(&mut bytes).expect("it comes");
        assert_eq!(&bytes, b"push");
        // The oldest were closed to limit their number, the others once the last worker had connected.
        assert!(others.iter_mut().all(|other| matches!(other.read(&mut [0]), Ok(0) | Err(_))));
    }

    #[test]
    fn invalid_or_slow_hellos_are_closed() {
        let (address, server) = server(1, Duration::from_secs(1));
        let long = Header { bytes: MAX_HELLO_BYTES + 1, ..Header::without_payload(FrameKind::Hello) }.encode().to_vec();
        let pushes = Header { bytes: 4, ..Header::without_payload(FrameKind::Push) }.encode().to_vec();
        let endless = [&hello(0)[..], &[b' '; 1 << 12]].concat();
        for bytes in [vec![b'x'; 1 << 12], long, pushes, hello(1), endless] {
            let mut other = connection(address);
            // The connection may be closed before everything is sent.
            let _ = other.write_all(&bytes);
            assert!(!is_welcome(&mut other));
        }
        let mut slow = connection(address);
        let since = Instant::now();
        while slow.write_all(&hello(0)[..1]).is_ok() {
            assert!(since.elapsed() < TIMEOUT, "it is still there");
            thread::sleep(Duration::from_millis(50));
        }
        // Sent again if a busy machine did not read it in time.
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
    fn hello_is_accepted_in_pieces() {
        let (address, server) = server(1, TIMEOUT);
        let mut worker = connection(address);
        for piece in hello(0).chunks(40) {
            worker.write_all(piece).expect("sent");
            thread::sleep(Duration::from_millis(20));
        }
        assert!(is_welcome(&mut worker));
        assert_eq!(server.join().expect("no panic").expect("one").len(), 1);
    }
}
