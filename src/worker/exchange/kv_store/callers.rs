//! Who calls at a server's port, until all workers are there: one thread hears all callers, so that strangers who find the
//! port keep no worker out and cost neither threads nor memory.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::exchange::kv_store::protocol::{self, FrameKind, HEADER_BYTES, Header, Hello, LONGEST_GREETING};

/// Callers that may be there besides one for each worker before they have said anything; of more, the oldest is closed. A
/// worker speaks at once.
const STRANGERS: usize = 64;

/// Between two looks at the clock, in milliseconds.
const LOOK_MILLISECONDS: u16 = 200;

/// How long nobody is accepted where there was no descriptor left for it.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection that has not said yet whose it is.
struct Caller {
    stream: TcpStream,
    since: Instant,
    /// Header and hello, as far as they have come.
    said: Vec<u8>,
}

/// The connections of as many workers as push, in their order, of all that come to `listener`; a caller has `patience` to
/// say who it is, however slowly its bytes come. Strangers, and workers that gave this address up, are left alone.
pub fn accept(listener: &TcpListener, token: u64, pushers: usize, patience: Duration) -> Result<Vec<TcpStream>> {
    listener.set_nonblocking(true).context("the port for workers blocks")?;
    let mut workers: Vec<Option<TcpStream>> = (0..pushers).map(|_| None).collect();
    let mut callers: VecDeque<Caller> = VecDeque::new();
    while workers.iter().any(Option::is_none) {
        wait_for_any(listener, &callers).context("workers cannot connect")?;
        take_new(listener, &mut callers, STRANGERS + pushers).context("workers cannot connect")?;
        for mut caller in std::mem::take(&mut callers) {
            match caller.hear(token, pushers) {
                Ok(Some(pusher)) => {
                    // One that has gone again is no worker.
                    if welcome(&caller.stream).is_ok() {
                        workers[pusher] = Some(caller.stream);
                    }
                }
                Ok(None) if caller.since.elapsed() < patience => callers.push_back(caller),
                Ok(None) | Err(_) => {}
            }
        }
    }
    Ok(workers.into_iter().flatten().collect())
}

/// Returns when somebody calls or speaks, and now and then.
fn wait_for_any(listener: &TcpListener, callers: &VecDeque<Caller>) -> Result<()> {
    let sockets = callers.iter().map(|caller| caller.stream.as_fd());
    let mut waiting: Vec<PollFd> =
        [listener.as_fd()].into_iter().chain(sockets).map(|socket| PollFd::new(socket, PollFlags::POLLIN)).collect();
    match poll(&mut waiting, PollTimeout::from(LOOK_MILLISECONDS)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Accepts all that call now; of more than `most` callers the oldest are closed.
fn take_new(listener: &TcpListener, callers: &mut VecDeque<Caller>, most: usize) -> io::Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                callers.push_back(Caller { stream, since: Instant::now(), said: Vec::new() });
                if callers.len() > most {
                    callers.pop_front();
                }
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => return Ok(()),
                // It has gone again.
                ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                // Out of descriptors, say: a stranger's may serve. Where nobody has one to give, that is the end.
                _ => {
                    callers.pop_front().ok_or(error)?;
                    std::thread::sleep(PAUSE);
                    return Ok(());
                }
            },
        }
    }
}

impl Caller {
    /// Takes what has come: whose connection it is; `None` where there is more to come. Fails where it is a stranger's.
    fn hear(&mut self, token: u64, pushers: usize) -> Result<Option<usize>> {
        let mut bytes = [0; HEADER_BYTES + LONGEST_GREETING as usize];
        match self.stream.read(&mut bytes) {
            Ok(0) => anyhow::bail!("it has gone"),
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
        // A worker waits for its welcome before it says more.
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
        (address, thread::spawn(move || accept(&listener, 5, pushers, patience)))
    }

    fn caller(address: SocketAddr) -> TcpStream {
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
        let mut strangers: Vec<TcpStream> = (0..200).map(|_| caller(address)).collect();
        let mut workers = [1, 0].map(|pusher| {
            let mut stream = caller(address);
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
            let mut stranger = caller(address);
            // It may be closed before all is sent.
            let _ = stranger.write_all(&said);
            assert!(!is_welcome(&mut stranger));
        }
        let mut slow = caller(address);
        let since = Instant::now();
        while slow.write_all(&hello(0)[..1]).is_ok() {
            assert!(since.elapsed() < PATIENCE, "it is still there");
            thread::sleep(Duration::from_millis(50));
        }
        // Where this machine is too busy to read it in time, it comes again.
        loop {
            let mut worker = caller(address);
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
        let mut worker = caller(address);
        for piece in hello(0).chunks(40) {
            worker.write_all(piece).expect("sent");
            thread::sleep(Duration::from_millis(20));
        }
        assert!(is_welcome(&mut worker));
        assert_eq!(server.join().expect("no panic").expect("one").len(), 1);
    }
}
