//! A server's side of a worker's connection: a thread that reads what the worker pushes, and one that sends what is meant for it.

use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use anyhow::{Context, Error, Result, bail, ensure};

use crate::exchange::kv_store::held_part::HeldPart;
use crate::exchange::kv_store::protocol::{self, FrameKind, Header, LostWorker, ServerReport};
use crate::ffi::host_array::HostArray;

/// The parts of this server by their numbers.
pub struct Parts(pub BTreeMap<u32, HeldPart>);

impl Parts {
    /// Fails where another server has it.
    pub fn get(&self, number: u32) -> Result<&HeldPart> {
        self.0.get(&number).with_context(|| format!("part {number} lies on another server"))
    }
}

/// What a writer sends.
pub struct Outgoing {
    pub header: Header,
    pub payload: Payload,
}

/// What follows the header.
pub enum Payload {
    None,
    Array(Arc<HostArray>),
    Report(ServerReport),
    LostWorker(LostWorker),
}

/// What the thread that decides hears, of which worker.
pub enum Heard {
    /// First values of a part.
    Initial,
    /// It lies in the part's place for this worker.
    Push { part: u32, iteration: u32 },
    /// It pushes no more.
    End,
    /// It goes.
    Farewell,
    /// The connection broke, and how.
    Lost(String),
    /// Of this server itself: an update failed.
    Failed,
}

/// Reads all that a worker sends, until its connection ends.
pub fn read(connection: &TcpStream, pusher: usize, parts: &Parts, heard: &Sender<(usize, Heard)>) {
    let mut input = BufReader::with_capacity(1 << 16, connection);
    loop {
        let event = read_frame(&mut input, pusher, parts).unwrap_or_else(|error| Heard::Lost(format!("{error:#}")));
        let is_last = matches!(event, Heard::Lost(_) | Heard::Farewell);
        if heard.send((pusher, event)).is_err() || is_last {
            return;
        }
    }
}

fn read_frame(input: &mut BufReader<&TcpStream>, pusher: usize, parts: &Parts) -> Result<Heard> {
    let header = Header::read(input)?;
    let Header { kind, part, iteration, bytes } = header;
    let expected = |expected: usize| -> Result<()> {
        ensure!(bytes == expected as u64, "part {part} comes in {bytes} bytes, not {expected}");
        Ok(())
    };
    match kind {
        FrameKind::Initial => {
            let held = parts.get(part)?;
            expected(held.answer_bytes())?;
            held.receive_weights(input)?;
            Ok(Heard::Initial)
        }
        FrameKind::Push => {
            let held = parts.get(part)?;
            expected(held.pushed_bytes())?;
            held.receive_push(pusher, input)?;
            Ok(Heard::Push { part, iteration })
        }
        FrameKind::End => Ok(Heard::End),
        FrameKind::Farewell => Ok(Heard::Farewell),
        other => bail!("a worker sent {other:?}"),
    }
}

/// Sends all that is meant for a worker, until nothing more will be.
pub fn write(mut connection: &TcpStream, incoming: Receiver<Outgoing>) {
    for Outgoing { header, payload } in incoming {
        let sent = match payload {
            Payload::Report(report) => protocol::send_message(&mut connection, header.kind, &report),
            Payload::LostWorker(loss) => protocol::send_message(&mut connection, header.kind, &loss),
            Payload::None => connection.write_all(&header.encode()).map_err(Into::into),
            Payload::Array(array) => connection
                .write_all(&header.encode())
                .and_then(|()| array.send(0..array.tensor().numel(), &mut connection))
                .map_err(Error::from),
        };
        if sent.is_err() {
            // The reader learns of it too, and says so.
            return;
        }
    }
}
