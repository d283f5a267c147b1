//! Wire format between workers and servers: frames of a fixed header and a payload, little-endian.

use std::io::{self, BufRead, ErrorKind, Read, Write};

use anyhow::{Context, Error, Result, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 24;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum FrameKind {
    /// Worker: its identity ([`Hello`], JSON).
    Hello = 1,
    /// Server: the worker is expected.
    Welcome,
    /// Worker 0: initial values of a part, fp32.
    Initial,
    /// Server: all initial values have arrived.
    Started,
    /// Worker: gradients of a part, in the wire's type or as a code.
    Push,
    /// Server: the weights of a part after an update, fp32, or the packed sum of the codes if workers update.
    Answer,
    /// Worker: it has pushed everything, and requests the final weights if the server holds weights.
    End,
    /// Server: its report ([`ServerReport`], JSON), after the last part.
    Report,
    /// Worker: results are gathered and it disconnects.
    Farewell,
    /// Server: another worker ended after the report without a farewell ([`LostWorker`], JSON).
    WorkerLost,
}

const KINDS: [FrameKind; 10] = [
    FrameKind::Hello,
    FrameKind::Welcome,
    FrameKind::Initial,
    FrameKind::Started,
    FrameKind::Push,
    FrameKind::Answer,
    FrameKind::End,
    FrameKind::Report,
    FrameKind::Farewell,
    FrameKind::WorkerLost,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub kind: FrameKind,
    /// Part number; 0 without a part.
    pub part: u32,
    /// The worker's iteration, from 1; 0 outside of any.
    pub iteration: u32,
    /// Length of the payload in bytes.
    pub bytes: u64,
}

impl Header {
    /// Creates the header of a frame without a payload.
    pub fn without_payload(kind: FrameKind) -> Header {
        Header { kind, part: 0, iteration: 0, bytes: 0 }
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut encoded = [0; HEADER_BYTES];
        encoded[0..4].copy_from_slice(&(self.kind as u32).to_le_bytes());
        encoded[4..8].copy_from_slice(&self.part.to_le_bytes());
        encoded[8..12].copy_from_slice(&self.iteration.to_le_bytes());
        encoded[16..24].copy_from_slice(&self.bytes.to_le_bytes());
        encoded
    }

    /// Reads a header.
    ///
    /// # Errors
    ///
    /// Fails if the kind is unknown.
    pub fn read(input: &mut impl Read) -> io::Result<Header> {
        let mut encoded = [0; HEADER_BYTES];
        input.read_exact(&mut encoded).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "connection closed"),
            _ => error,
        })?;
        let number =
            |from: usize| u32::from_le_bytes([encoded[from], encoded[from + 1], encoded[from + 2], encoded[from + 3]]);
        let Some(kind) = KINDS.into_iter().find(|kind| *kind as u32 == number(0)) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("unknown frame kind {}", number(0))));
        };
        let bytes = u64::from(number(16)) | u64::from(number(20)) << 32;
        Ok(Header { kind, part: number(4), iteration: number(8), bytes })
    }
}

/// Waits for the start of the next frame or the end of the connection. Read timeouts between frames are ignored.
pub fn wait_for_frame(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        match input.fill_buf() {
            Err(error) if is_timeout(&error) => {}
            outcome => return outcome.map(drop),
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Consecutive read timeouts that end a frame. Several, because one of them has expired when a suspended job resumes.
pub const MAX_TIMEOUTS: u32 = 8;

/// Reads one frame and counts its bytes.
pub struct FrameReader<Input> {
    input: Input,
    /// `None` before the header is read.
    header: Option<Header>,
    bytes: u64,
}

/// The reason why a frame was not read.
#[derive(Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The connection ended.
    Closed(String),
    /// The peer sent an invalid frame or stopped in the middle of one.
    Faulty(String),
}

impl<Input: Read> FrameReader<Input> {
    pub fn new(input: Input) -> FrameReader<Input> {
        FrameReader { input, header: None, bytes: 0 }
    }

    /// Records the header of the frame, whose payload follows.
    pub fn begin(&mut self, header: &Header) {
        (self.header, self.bytes) = (Some(*header), 0);
    }

    /// Returns the problem that `error` means at this point of the frame.
    pub fn frame_error(&self, error: &Error) -> FrameError {
        let bytes = self.bytes;
        let position = match &self.header {
            None => format!("after {bytes} of {HEADER_BYTES} header bytes"),
            Some(Header { kind, part, bytes: all, .. }) => {
                format!("after {bytes} of {all} bytes of the {kind:?} frame of part {part}")
            }
        };
        match error.downcast_ref::<io::Error>() {
            Some(error) if is_timeout(error) => FrameError::Faulty(format!("read timed out {position}")),
            Some(error) if error.kind() == ErrorKind::InvalidData => FrameError::Faulty(error.to_string()),
            Some(_) if self.header.is_none() && bytes == 0 => FrameError::Closed(error.to_string()),
            Some(error) => FrameError::Closed(format!("{error} {position}")),
            None => FrameError::Faulty(format!("{error:#}")),
        }
    }
}

impl<Input: Read> Read for FrameReader<Input> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut timeouts = 0;
        loop {
            match self.input.read(buffer) {
                Err(error) if is_timeout(&error) && timeouts + 1 < MAX_TIMEOUTS => timeouts += 1,
                outcome => {
                    self.bytes += *outcome.as_ref().unwrap_or(&0) as u64;
                    return outcome;
                }
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Secret of this job.
    pub token: u64,
    /// Index among the workers that push, from 0.
    pub pusher: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerReport {
    /// Bytes received in pushes, headers included.
    pub received: u64,
    /// Bytes sent in answers.
    pub sent: u64,
    /// Number of pushes by staleness.
    pub staleness: Vec<u64>,
    /// Workers that ended early, each with the last iteration that it pushed.
    pub lost: Vec<(usize, u32)>,
}

/// A worker that ended while results were gathered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostWorker {
    /// Index among the workers that push, from 0.
    pub pusher: usize,
    pub rank: u32,
    pub host: String,
}

/// Longest hello or welcome in bytes; limits the memory that an unknown peer can make this process allocate.
pub const MAX_HELLO_BYTES: u64 = 1 << 10;

/// Longest report or lost-worker message in bytes; a report lists all lost workers.
pub const MAX_REPORT_BYTES: u64 = 1 << 24;

/// Sends `message` as JSON.
pub fn send_message(output: &mut impl Write, kind: FrameKind, message: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec(message)?;
    let header = Header { bytes: text.len() as u64, ..Header::without_payload(kind) };
    output.write_all(&[&header.encode(), &text[..]].concat())?;
    Ok(())
}

/// Reads the payload of `header` as a JSON message of at most `max_bytes` bytes.
pub fn read_message<T: DeserializeOwned>(header: &Header, input: &mut impl Read, max_bytes: u64) -> Result<T> {
    ensure!(header.bytes <= max_bytes, "message of {} bytes exceeds the limit of {max_bytes} bytes", header.bytes);
    let mut text = vec![0; header.bytes as usize];
    input.read_exact(&mut text)?;
    serde_json::from_slice(&text).context("cannot parse the message")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn frames_round_trip() {
        for kind in KINDS {
            let header = Header { kind, part: 7, iteration: u32::MAX, bytes: (1 << 40) + 5 };
            assert_eq!(Header::read(&mut &header.encode()[..]).expect("ours"), header);
        }
        let error = Header::read(&mut &[9; HEADER_BYTES][..]).expect_err("none of ours");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(Header::read(&mut &[0; 3][..]).is_err());
    }

    /// Input that returns these bytes, then an error of this kind.
    struct Broken<'a>(&'a [u8], ErrorKind);

    impl Read for Broken<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() { Err(self.1.into()) } else { self.0.read(buffer) }
        }
    }

    #[test]
    fn incomplete_frame_is_reported_with_its_position() {
        let header = Header { kind: FrameKind::Push, part: 3, iteration: 7, bytes: 100 };
        let sent = [&header.encode()[..], &[0; 12]].concat();
        let frame_error = |length: usize, kind| {
            let mut frame = FrameReader::new(Broken(&sent[..length], kind));
            let mut read = || {
                let header = Header::read(&mut frame)?;
                frame.begin(&header);
                frame.read_exact(&mut [0; 100])
            };
            let error = read().expect_err("it is incomplete");
            frame.frame_error(&error.into())
        };
        let faulty = |text: &str| FrameError::Faulty(text.to_owned());
        assert_eq!(
            frame_error(36, ErrorKind::WouldBlock),
            faulty("read timed out after 12 of 100 bytes of the Push frame of part 3")
        );
        assert_eq!(frame_error(5, ErrorKind::TimedOut), faulty("read timed out after 5 of 24 header bytes"));
        let FrameError::Closed(how) = frame_error(36, ErrorKind::ConnectionReset) else { panic!("connection closed") };
        expect!["connection reset after 12 of 100 bytes of the Push frame of part 3"].assert_eq(&how);
        let unknown = Header::read(&mut &[9; HEADER_BYTES][..]).expect_err("none of ours");
        assert_eq!(FrameReader::new(&[][..]).frame_error(&unknown.into()), faulty("unknown frame kind 151587081"));
    }

    #[test]
    fn messages_round_trip() {
        let hello = Hello { token: u64::MAX, pusher: 3 };
        let mut sent = Vec::new();
        send_message(&mut sent, FrameKind::Hello, &hello).expect("an in-memory write succeeds");
        let input = &mut &sent[..];
        let header = Header::read(input).expect("ours");
        let read: Hello = read_message(&header, input, MAX_HELLO_BYTES).expect("ours");
        assert_eq!((header.kind, read), (FrameKind::Hello, hello));
        // Rejected by the header alone, before memory is allocated.
        let long = Header { bytes: MAX_HELLO_BYTES + 1, ..Header::without_payload(FrameKind::Hello) };
        let error = read_message::<Hello>(&long, &mut &[b' '; 2048][..], MAX_HELLO_BYTES).expect_err("too long");
        expect!["message of 1025 bytes exceeds the limit of 1024 bytes"].assert_eq(&error.to_string());
    }
}
