//! Socket options that the standard library lacks.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// Blocks writes while more than `bytes` earlier bytes are unsent: a write then returns when the data is really sent,
/// instead of leaving megabytes in the kernel.
pub fn limit_unsent(stream: &TcpStream, bytes: u32) -> io::Result<()> {
    // SAFETY: the descriptor is open, the option takes an int, and `bytes` lives until the call returns.
    let status = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn unsent_bytes_are_limited() {
        let pile = |limit: Option<u32>| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let mut stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
            let (_reader, _) = listener.accept().expect("connected");
            limit.into_iter().for_each(|bytes| limit_unsent(&stream, bytes).expect("an open socket"));
            stream.set_nonblocking(true).expect("an open socket");
            let piece = vec![0; 1 << 16];
            std::iter::from_fn(|| stream.write(&piece).ok()).sum::<usize>()
        };
        let (limited, free) = (pile(Some(1 << 14)), pile(None));
        assert!(limited < free, "{limited} of {free}");
    }
}
