//! A listening socket and the thread that waits for all of its connections at once: strangers who find the port cost
//! neither threads nor memory, and only a few descriptors. Not for what is said on a connection.

use std::io::{self, ErrorKind, PipeReader, PipeWriter};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// How long nobody is accepted where there was no descriptor left for it.
const PAUSE: Duration = Duration::from_millis(100);

/// Whoever holds this keeps the thread; dropping it ends the thread and waits for that.
#[derive(Debug)]
pub struct AcceptorThread {
    /// Its end wakes the thread.
    closing: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl AcceptorThread {
    /// Runs `serve` on a thread of its own, which ends when its acceptor is [`Closed`].
    pub fn start(socket: TcpListener, serve: impl FnOnce(Acceptor) + Send + 'static) -> io::Result<AcceptorThread> {
        socket.set_nonblocking(true)?;
        let (closed, closing) = io::pipe()?;
        let acceptor = Acceptor { socket, closed, resume: None };
        let thread = thread::Builder::new().spawn(|| serve(acceptor))?;
        Ok(AcceptorThread { closing: Some(closing), thread: Some(thread) })
    }
}

impl Drop for AcceptorThread {
    fn drop(&mut self) {
        self.closing = None;
        if let Some(thread) = self.thread.take() {
            // The result, even a panic, no longer matters.
            let _ = thread.join();
        }
    }
}

/// The listening socket, on its thread.
pub struct Acceptor {
    socket: TcpListener,
    /// Readable when nobody keeps the thread any more.
    closed: PipeReader,
    /// When accepting goes on, where it pauses.
    resume: Option<Instant>,
}

/// Nobody keeps the thread any more.
pub struct Closed;

/// What a wait has come to.
pub struct Ready {
    /// Whether somebody may be accepted.
    pub may_accept: bool,
    /// Whether each connection is ready for what it waits for, or at its end.
    pub connections: Vec<bool>,
}

/// Who comes next.
pub enum Accepted {
    /// A connection that does not block.
    Stream(TcpStream),
    /// There is nobody.
    Nobody,
    /// There is no descriptor for whoever it is; nobody is accepted for a moment, in which others may close theirs.
    NoDescriptor,
}

impl Acceptor {
    /// Waits until there is something to do, or the time `wake` has come.
    pub fn wait<'a>(
        &mut self,
        connections: impl Iterator<Item = (BorrowedFd<'a>, PollFlags)>,
        wake: Option<Instant>,
    ) -> Result<Ready, Closed> {
        let now = Instant::now();
        self.resume.take_if(|time| *time <= now);
        // Rounded up: at the end of the time-out the time has come.
        let timeout = wake.into_iter().chain(self.resume).min().map_or(PollTimeout::NONE, |wake| {
            let milliseconds = wake.saturating_duration_since(now).as_millis() + 1;
            PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX)
        });
        let is_paused = self.resume.is_some();
        let mut waiting = vec![
            PollFd::new(self.closed.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.socket.as_fd(), if is_paused { PollFlags::empty() } else { PollFlags::POLLIN }),
        ];
        waiting.extend(connections.map(|(connection, wanted)| PollFd::new(connection, wanted)));
        if poll(&mut waiting, timeout).is_err() {
            // Interrupted, or the kernel is out of memory: again, and not at once.
            thread::sleep(Duration::from_millis(1));
            return Ok(Ready { may_accept: false, connections: vec![false; waiting.len() - 2] });
        }
        // POLLERR and POLLHUP as well: reading tells what it is.
        let is_ready = |fd: &PollFd| fd.revents().is_some_and(|events| !events.is_empty());
        match is_ready(&waiting[0]) {
            true => Err(Closed),
            false => Ok(Ready {
                may_accept: !is_paused && is_ready(&waiting[1]),
                connections: waiting[2..].iter().map(is_ready).collect(),
            }),
        }
    }

    /// The next who connects.
    pub fn accept(&mut self) -> Accepted {
        loop {
            match self.socket.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => return Accepted::Stream(stream),
                // It has gone again.
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Accepted::Nobody,
                // Out of descriptors, say.
                Err(_) => {
                    self.pause(PAUSE);
                    return Accepted::NoDescriptor;
                }
            }
        }
    }

    /// Accepts nobody for a while: who connects waits in the kernel.
    pub fn pause(&mut self, duration: Duration) {
        self.resume = Some(Instant::now() + duration);
    }
}
