//! Fair sharing of a worker's link among its connections. A part is answered only after the slowest worker's push, and
//! TCP shares a link unequally: without this queue each worker favors a different server, and every worker waits for
//! all others.
//!
//! Start-time fair queueing (Goyal, Vin, Cheng, 1996): the tag of a connection is the number of bytes it has sent; the
//! lowest tag sends first, and a connection that was idle starts at the lowest tag of the active ones.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Largest write in bytes.
const MAX_WRITE_BYTES: usize = 1 << 16;

/// Bytes that one connection may be ahead of another. A smaller value leaves the link idle while a connection waits for
/// acknowledgments.
const MAX_LEAD_BYTES: u64 = 1 << 20;

/// Limit for the unsent bytes of a connection in the kernel: tags must count what was really sent.
pub const MAX_UNSENT_BYTES: u32 = 1 << 17;

/// Time after which a connection that sends nothing no longer holds up the others: its server may be busy or down.
const WAIT_TIMEOUT: Duration = Duration::from_millis(50);

pub struct SendQueue {
    tags: Mutex<Vec<Tag>>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default)]
struct Tag {
    bytes: u64,
    is_sending: bool,
}

impl SendQueue {
    pub fn new(connections: usize) -> SendQueue {
        SendQueue { tags: Mutex::new(vec![Tag::default(); connections]), changed: Condvar::new() }
    }

    /// Returns the writer of connection `number`, which is active until the writer is dropped.
    pub fn begin<'a>(&'a self, number: usize, stream: &'a TcpStream) -> QueuedWriter<'a> {
        let mut tags = self.tags();
        let bytes = tags[number].bytes.max(lowest(&tags, number).unwrap_or_default());
        tags[number] = Tag { bytes, is_sending: true };
        QueuedWriter { queue: self, number, stream }
    }

    fn tags(&self) -> MutexGuard<'_, Vec<Tag>> {
        self.tags.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, number: usize) {
        let is_ahead = |tags: &mut Vec<Tag>| {
            lowest(tags, number).is_some_and(|lowest| tags[number].bytes > lowest + MAX_LEAD_BYTES)
        };
        let waited = self.changed.wait_timeout_while(self.tags(), WAIT_TIMEOUT, is_ahead);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn update_tag(&self, number: usize, change: impl FnOnce(&mut Tag)) {
        change(&mut self.tags()[number]);
        self.changed.notify_all();
    }
}

/// Returns the lowest tag of the other active connections.
fn lowest(tags: &[Tag], number: usize) -> Option<u64> {
    let others = tags.iter().enumerate().filter(|(other, tag)| *other != number && tag.is_sending);
    others.map(|(_, tag)| tag.bytes).min()
}

/// Writer that waits while its connection is ahead of another.
pub struct QueuedWriter<'a> {
    queue: &'a SendQueue,
    number: usize,
    stream: &'a TcpStream,
}

impl Write for QueuedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.queue.wait(self.number);
        let sent = self.stream.write(&bytes[..bytes.len().min(MAX_WRITE_BYTES)])?;
        self.queue.update_tag(self.number, |tag| tag.bytes += sent as u64);
        Ok(sent)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Drop for QueuedWriter<'_> {
    fn drop(&mut self) {
        self.queue.update_tag(self.number, |tag| tag.is_sending = false);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;
    use crate::ffi::process::socket;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        socket::limit_unsent(&stream, MAX_UNSENT_BYTES).expect("an open socket");
        (stream, listener.accept().expect("connected").0)
    }

    #[test]
    fn fast_connection_waits_for_slow_one() {
        const TOTAL_BYTES: usize = 24 << 20;
        let queue = SendQueue::new(2);
        let [slow, fast] = [pair(), pair()];
        let sent_by_fast = AtomicUsize::new(0);
        thread::scope(|scope| {
            for (number, (stream, _)) in [&slow, &fast].into_iter().enumerate() {
                let (queue, sent_by_fast) = (&queue, &sent_by_fast);
                scope.spawn(move || {
                    let mut writer = queue.begin(number, stream);
                    let piece = vec![0; 1 << 16];
                    for _ in 0..TOTAL_BYTES / piece.len() {
                        writer.write_all(&piece).expect("it is read");
                        sent_by_fast.fetch_add(number * piece.len(), Ordering::Relaxed);
                    }
                });
            }
            let fast = &fast.1;
            scope.spawn(move || {
                std::io::copy(&mut fast.take(TOTAL_BYTES as u64), &mut std::io::sink()).expect("it is sent")
            });
            // Reads in steps, each shorter than the timeout: the lead of the fast connection is bounded by the
            // kernel's buffers.
            let (mut slow, mut read, mut most_ahead) = (&slow.1, 0, 0);
            let mut piece = vec![0; 1 << 18];
            while read < TOTAL_BYTES {
                most_ahead = most_ahead.max(sent_by_fast.load(Ordering::Relaxed).saturating_sub(read));
                slow.read_exact(&mut piece).expect("it is sent");
                read += piece.len();
                thread::sleep(Duration::from_millis(1));
            }
            assert!(most_ahead < TOTAL_BYTES / 2, "{most_ahead} bytes ahead of the slow one's reader");
        });
    }

    #[test]
    fn idle_connection_blocks_briefly_and_gains_no_credit() {
        let queue = SendQueue::new(2);
        let [stuck, other] = [pair(), pair()];
        let _stuck = queue.begin(0, &stuck.0);
        let mut writer = queue.begin(1, &other.0);
        let reader = thread::spawn(move || {
            let mut other = other.1;
            std::io::copy(&mut (&mut other).take(2 << 20), &mut std::io::sink()).expect("it is sent")
        });
        writer.write_all(&vec![0; 2 << 20]).expect("sent after the timeout");
        assert_eq!(reader.join().expect("no panic"), 2 << 20);
        drop(queue.begin(0, &stuck.0));
        assert_eq!(queue.tags()[0].bytes, 2 << 20, "as far as the other");
    }
}
