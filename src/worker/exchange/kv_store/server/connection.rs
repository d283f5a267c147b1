//! Server side of a worker's connection: one thread reads pushes, another sends answers.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use anyhow::{Context, Error, Result, bail, ensure};

use crate::exchange::kv_store::protocol::{self, FrameError, FrameKind, FrameReader, Header, LostWorker, ServerReport};
use crate::exchange::kv_store::server::parameter_shard::ParameterShard;
use crate::ffi::torch::host_array::HostArray;

pub struct Parts(pub BTreeMap<u32, ParameterShard>);

impl Parts {
    /// Returns the shard of part `number`, or an error if another server holds it.
    pub fn get(&self, number: u32) -> Result<&ParameterShard> {
        self.0.get(&number).with_context(|| format!("part {number} is on another server"))
    }
}

pub struct Outgoing {
    pub header: Header,
    pub payload: Payload,
}

pub enum Payload {
    None,
    Array(Arc<HostArray>),
    Report(ServerReport),
    LostWorker(LostWorker),
}

pub enum WorkerEvent {
    Initial,
    /// A push arrived in the shard's array for this worker.
    Push {
        part: u32,
        iteration: u32,
    },
    /// The worker has pushed everything.
    End,
    Farewell,
    Lost(String),
    /// The worker sent an incomplete or unexpected frame.
    Faulty(String),
    Failed,
}

/// Frames of one worker so far, which determine the permitted next ones.
struct FrameOrder<'a> {
    pusher: usize,
    parts: &'a Parts,
    initial: BTreeSet<u32>,
    sends_initial: bool,
    pushes: u64,
    has_ended: bool,
}

/// Reads frames of a worker until its connection ends. `sends_initial` is true for the worker that sends the initial
/// weights. Read timeouts of the connection end a frame that has started.
pub fn read(
    connection: &TcpStream,
    pusher: usize,
    sends_initial: bool,
    parts: &Parts,
    events: &Sender<(usize, WorkerEvent)>,
) {
    let mut input = BufReader::with_capacity(1 << 16, connection);
    let mut order = FrameOrder { pusher, parts, initial: BTreeSet::new(), sends_initial, pushes: 0, has_ended: false };
    loop {
        let event = order.read_frame(&mut input);
        let is_last = matches!(event, WorkerEvent::Lost(_) | WorkerEvent::Faulty(_) | WorkerEvent::Farewell);
        if events.send((pusher, event)).is_err() || is_last {
            return;
        }
    }
}

impl FrameOrder<'_> {
    fn read_frame(&mut self, input: &mut BufReader<&TcpStream>) -> WorkerEvent {
        if let Err(error) = protocol::wait_for_frame(input) {
            return WorkerEvent::Lost(error.to_string());
        }
        let mut frame = FrameReader::new(input);
        let event = Header::read(&mut frame).map_err(Error::from).and_then(|header| {
            frame.begin(&header);
            self.check_expected(&header)?;
            self.read_payload(&header, &mut frame)
        });
        event.unwrap_or_else(|error| match frame.frame_error(&error) {
            FrameError::Closed(reason) => WorkerEvent::Lost(reason),
            FrameError::Faulty(reason) => WorkerEvent::Faulty(reason),
        })
    }

    /// Returns an error for an unexpected frame, before its payload is read.
    fn check_expected(&mut self, Header { kind, part, .. }: &Header) -> Result<()> {
        match kind {
            FrameKind::Initial => ensure!(
                self.sends_initial && self.pushes == 0 && !self.has_ended && self.initial.insert(*part),
                "unexpected initial weights of part {part}"
            ),
            FrameKind::Push => {
                ensure!(!self.has_ended, "push of part {part} after the End frame");
                let has_pushed = self.parts.get(*part)?.has_pushed(self.pusher);
                ensure!(!has_pushed, "second push of part {part} before the answer to the first");
                self.pushes += 1;
            }
            FrameKind::End => {
                let rest = self.pushes % (self.parts.0.len() as u64).max(1);
                ensure!(!self.has_ended, "second End frame");
                ensure!(rest == 0, "End frame after {rest} of {} parts of an iteration", self.parts.0.len());
                self.has_ended = true;
            }
            FrameKind::Farewell => {}
            other => bail!("unexpected {other:?} frame"),
        }
        Ok(())
    }

    fn read_payload(&self, header: &Header, frame: &mut impl Read) -> Result<WorkerEvent> {
        let &Header { kind, part, iteration, bytes } = header;
        let check_length = |expected: usize| -> Result<()> {
            ensure!(bytes == expected as u64, "part {part} has {bytes} bytes, expected {expected}");
            Ok(())
        };
        match kind {
            FrameKind::Initial => {
                let shard = self.parts.get(part)?;
                check_length(shard.answer_bytes())?;
                shard.receive_weights(frame)?;
                Ok(WorkerEvent::Initial)
            }
            FrameKind::Push => {
                let shard = self.parts.get(part)?;
                check_length(shard.pushed_bytes())?;
                shard.receive_push(self.pusher, frame)?;
                Ok(WorkerEvent::Push { part, iteration })
            }
            FrameKind::End => Ok(WorkerEvent::End),
            _ => Ok(WorkerEvent::Farewell),
        }
    }
}

/// Sends the outgoing frames of a worker until the channel is closed.
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
            // The reader detects the broken connection too, and reports it.
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::mpsc;
    use std::time::Duration;

    use tch::Kind;

    use super::*;
    use crate::exchange::kv_store::formats::{AnswerFormat, Formats, PushFormat};
    use crate::exchange::kv_store::protocol::HEADER_BYTES;

    /// Returns the events of a server with two parts of two weights after a worker has sent `sent` and stays silent.
    fn events(sends_initial: bool, sent: &[u8]) -> Vec<String> {
        let formats = Formats { push: PushFormat::Values(Kind::Float), answer: AnswerFormat::Weights, states: &[] };
        let shard = |part| (part, ParameterShard::new(2, formats, 1).expect("memory"));
        let parts = Parts([shard(0), shard(1)].into());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut worker = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        worker.write_all(sent).expect("the kernel takes it");
        let (connection, _) = listener.accept().expect("a connection");
        // All bytes have been sent by now: a longer timeout would change nothing.
        connection.set_read_timeout(Some(Duration::from_millis(10))).expect("a time-out");
        let (sender, events) = mpsc::channel();
        read(&connection, 0, sends_initial, &parts, &sender);
        events
            .try_iter()
            .map(|(_, event)| match event {
                WorkerEvent::Initial => "initial".to_owned(),
                WorkerEvent::Push { part, iteration } => format!("push of part {part} in iteration {iteration}"),
                WorkerEvent::End => "end".to_owned(),
                WorkerEvent::Farewell => "farewell".to_owned(),
                WorkerEvent::Lost(reason) | WorkerEvent::Faulty(reason) => reason,
                WorkerEvent::Failed => "failed".to_owned(),
            })
            .collect()
    }

    fn frame(kind: FrameKind, part: u32, values: usize) -> Vec<u8> {
        let header = Header { kind, part, iteration: 1, bytes: 4 * values as u64 };
        [&header.encode()[..], &vec![0; 4 * values]].concat()
    }

    #[test]
    fn incomplete_and_unexpected_frames_are_reported() {
        use FrameKind::{End, Farewell, Hello, Initial, Push};
        let initial = [frame(Initial, 0, 2), frame(Initial, 1, 2)].concat();
        let push = [frame(Push, 0, 2), frame(Push, 1, 2)].concat();
        let bare = |kind| Header::without_payload(kind).encode().to_vec();
        let whole = [initial.clone(), push.clone(), bare(End), bare(Farewell)].concat();
        let pushed = "push of part 0 in iteration 1";
        let all = ["initial", "initial", pushed, "push of part 1 in iteration 1", "end", "farewell"];
        assert_eq!(events(true, &whole), all);
        for (sends_initial, sent, last) in [
            (
                true,
                frame(Push, 1, 2)[..HEADER_BYTES + 3].to_vec(),
                "read timed out after 3 of 8 bytes of the Push frame of part 1",
            ),
            (true, frame(Push, 1, 2)[..7].to_vec(), "read timed out after 7 of 24 header bytes"),
            (false, initial.clone(), "unexpected initial weights of part 0"),
            (true, [frame(Initial, 1, 2), frame(Initial, 1, 2)].concat(), "unexpected initial weights of part 1"),
            (true, [push.clone(), initial].concat(), "unexpected initial weights of part 0"),
            (true, [frame(Push, 0, 2), bare(End)].concat(), "End frame after 1 of 2 parts of an iteration"),
            (true, [bare(End), push].concat(), "push of part 0 after the End frame"),
            (true, frame(Push, 0, 3), "part 0 has 12 bytes, expected 8"),
            (true, frame(Push, 7, 2), "part 7 is on another server"),
            (true, bare(Hello), "unexpected Hello frame"),
            (true, vec![9; HEADER_BYTES], "unknown frame kind 151587081"),
        ] {
            assert_eq!(events(sends_initial, &sent).last().map(String::as_str), Some(last));
        }
    }
}
