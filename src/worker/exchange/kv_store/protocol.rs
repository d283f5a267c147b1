//! What workers and servers say to each other: frames of a header of fixed length and a payload, little-endian. Not for
//! when who says what.

use std::io::{self, Read, Write};

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 24;

/// What follows a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum FrameKind {
    /// Worker: who it is ([`Hello`], JSON).
    Hello = 1,
    /// Server: it was expected.
    Welcome,
    /// Worker 0: first values of a part, fp32.
    Initial,
    /// Server: it has the first values of all its parts.
    Started,
    /// Worker: gradients of a part, in the wire's type or as a code.
    Push,
    /// Server: a part after an update, fp32, or where workers do the update what the codes of all of them say of it, packed.
    Answer,
    /// Worker: it pushes no more, and wants every part as it is when nobody does, where the server holds weights.
    End,
    /// Server: what it did ([`ServerReport`], JSON), after the last part.
    Report,
    /// Worker: it has brought its results together with the others', and goes.
    Farewell,
    /// Server: another worker has ended after the report and without a farewell ([`LostWorker`], JSON).
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

/// What precedes a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: FrameKind,
    /// Number of the part; 0 where there is none.
    pub part: u32,
    /// The worker's iteration, from 1; 0 outside of any.
    pub iteration: u32,
    /// Length of the payload in bytes.
    pub bytes: u64,
}

impl Header {
    /// Of a frame without a payload.
    pub fn bare(kind: FrameKind) -> Header {
        Header { kind, part: 0, iteration: 0, bytes: 0 }
    }

    /// As it is sent.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut encoded = [0; HEADER_BYTES];
        encoded[0..4].copy_from_slice(&(self.kind as u32).to_le_bytes());
        encoded[4..8].copy_from_slice(&self.part.to_le_bytes());
        encoded[8..12].copy_from_slice(&self.iteration.to_le_bytes());
        encoded[16..24].copy_from_slice(&self.bytes.to_le_bytes());
        encoded
    }

    /// Reads the next one. Fails where it is none of ours.
    pub fn read(input: &mut impl Read) -> io::Result<Header> {
        let mut encoded = [0; HEADER_BYTES];
        input.read_exact(&mut encoded).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "it was closed"),
            _ => error,
        })?;
        let number =
            |from: usize| u32::from_le_bytes([encoded[from], encoded[from + 1], encoded[from + 2], encoded[from + 3]]);
        let Some(kind) = KINDS.into_iter().find(|kind| *kind as u32 == number(0)) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} is no kind of frame", number(0))));
        };
        let bytes = u64::from(number(16)) | u64::from(number(20)) << 32;
        Ok(Header { kind, part: number(4), iteration: number(8), bytes })
    }
}

/// Who a worker is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Known to this job alone.
    pub token: u64,
    /// Which of those that push, from 0.
    pub pusher: usize,
}

/// What a server did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerReport {
    /// Bytes that came in pushes, headers included.
    pub received: u64,
    /// Bytes of the answers to them.
    pub sent: u64,
    /// Pushes by their staleness.
    pub staleness: Vec<u64>,
    /// Those that ended before they had said so, and the last iteration of which they pushed.
    pub lost: Vec<(usize, u32)>,
}

/// A worker that has ended while results were gathered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostWorker {
    /// Which of those that push, from 0.
    pub pusher: usize,
    /// Its rank.
    pub rank: u32,
    /// Name of its host.
    pub host: String,
}

/// Longest hello or welcome in bytes: what somebody says who may be a stranger.
pub const LONGEST_GREETING: u64 = 1 << 10;

/// Longest report or loss: a report's list of lost workers is what may be long.
pub const LONGEST_REPORT: u64 = 1 << 24;

/// Sends a message in JSON.
pub fn send_message(output: &mut impl Write, kind: FrameKind, message: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec(message)?;
    let header = Header { bytes: text.len() as u64, ..Header::bare(kind) };
    output.write_all(&[&header.encode(), &text[..]].concat())?;
    Ok(())
}

/// The payload of `header` as a message in JSON of at most `longest` bytes.
pub fn read_message<T: DeserializeOwned>(header: &Header, input: &mut impl Read, longest: u64) -> Result<T> {
    ensure!(header.bytes <= longest, "a message of {} bytes, at most {longest} are one of ours", header.bytes);
    let mut text = vec![0; header.bytes as usize];
    input.read_exact(&mut text)?;
    serde_json::from_slice(&text).context("a message that is none of ours")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written() {
        for kind in KINDS {
            let header = Header { kind, part: 7, iteration: u32::MAX, bytes: (1 << 40) + 5 };
            assert_eq!(Header::read(&mut &header.encode()[..]).expect("ours"), header);
        }
        let error = Header::read(&mut &[9; HEADER_BYTES][..]).expect_err("none of ours");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(Header::read(&mut &[0; 3][..]).is_err());
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let hello = Hello { token: u64::MAX, pusher: 3 };
        let mut sent = Vec::new();
        send_message(&mut sent, FrameKind::Hello, &hello).expect("memory takes it");
        let input = &mut &sent[..];
        let header = Header::read(input).expect("ours");
        let read: Hello = read_message(&header, input, LONGEST_GREETING).expect("ours");
        assert_eq!((header.kind, read), (FrameKind::Hello, hello));
        // Refused by its header alone, before there is memory for it.
        let long = Header { bytes: LONGEST_GREETING + 1, ..Header::bare(FrameKind::Hello) };
        let error = read_message::<Hello>(&long, &mut &[b' '; 2048][..], LONGEST_GREETING).expect_err("too long");
        assert_eq!(error.to_string(), "a message of 1025 bytes, at most 1024 are one of ours");
    }
}
