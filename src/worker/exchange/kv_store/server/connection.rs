//! Server side of a worker's connection: one thread reads pushes, another sends answers.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use anyhow::{Context, Error, Result, bail, ensure};

use crate::exchange::kv_store::protocol::{self, FrameKind, FrameReader, Header, LostWorker, Problem, ServerReport};
use crate::exchange::kv_store::server::parameter_shard::ParameterShard;
use crate::ffi::torch::host_array::HostArray;

pub struct Parts(pub BTreeMap<u32, ParameterShard>);

impl Parts {
    /// Returns the shard of part `number`, or an error if another server holds it.
    pub fn get(&self, number: u32) -> Result<&ParameterShard> {
        self.0.get(&number).with_context(|| format!("part {number} lies on another server"))
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
        event.unwrap_or_else(|error| match frame.problem(&error) {
            Problem::Closed(how) => WorkerEvent::Lost(how),
            Problem::Faulty(what) => WorkerEvent::Faulty(what),
        })
    }

    /// Returns an error for an unexpected frame, before its payload is read.
    fn check_expected(&mut self, Header { kind, part, .. }: &Header) -> Result<()> {
        match kind {
            FrameKind::Initial => ensure!(
                self.sends_initial && self.pushes == 0 && !self.has_ended && self.initial.insert(*part),
                "it sent first weights of part {part} that are not due"
            ),
            FrameKind::Push => {
                ensure!(!self.has_ended, "it pushed part {part} after its end");
                let is_there = self.parts.get(*part)?.is_there(self.pusher);
                ensure!(!is_there, "it pushed part {part} again before it was answered");
                self.pushes += 1;
            }
            FrameKind::End => {
                let rest = self.pushes % (self.parts.0.len() as u64).max(1);
                ensure!(!self.has_ended, "it ended a second time");
                ensure!(rest == 0, "it ended after {rest} of {} parts of an iteration", self.parts.0.len());
                self.has_ended = true;
            }
            FrameKind::Farewell => {}
            other => bail!("it sent {other:?}, which no worker sends to a server that it has greeted"),
        }
        Ok(())
    }

    fn read_payload(&self, header: &Header, frame: &mut impl Read) -> Result<WorkerEvent> {
        let &Header { kind, part, iteration, bytes } = header;
        let expected = |expected: usize| -> Result<()> {
            ensure!(bytes == expected as u64, "it sent part {part} in {bytes} bytes, not {expected}");
            Ok(())
        };
        match kind {
            FrameKind::Initial => {
                let held = self.parts.get(part)?;
                expected(held.answer_bytes())?;
                held.receive_weights(frame)?;
                Ok(WorkerEvent::Initial)
            }
            FrameKind::Push => {
                let held = self.parts.get(part)?;
                expected(held.pushed_bytes())?;
                held.receive_push(self.pusher, frame)?;
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
        let formats =
            Formats { push: PushFormat::Values(Kind::Float), answer: AnswerFormat::Weights, has_momenta: false };
        let held = |part| (part, ParameterShard::new(2, formats, 1).expect("memory"));
        let parts = Parts([held(0), held(1)].into());
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
                WorkerEvent::Lost(how) | WorkerEvent::Faulty(how) => how,
                WorkerEvent::Failed => "failed".to_owned(),
            })
            .collect()
    }

    fn frame(kind: FrameKind, part: u32, values: usize) -> Vec<u8> {
        let header = Header { kind, part, iteration: 1, bytes: 4 * values as u64 };
        [&header.encode()[..], &vec![0; 4 * values]].concat()
    }

    #[test]
    fn a_frame_that_stops_or_is_out_of_turn_is_told() {
        use FrameKind::{End, Farewell, Hello, Initial, Push};
        let initial = [frame(Initial, 0, 2), frame(Initial, 1, 2)].concat();
        let push = [frame(Push, 0, 2), frame(Push, 1, 2)].concat();
        let bare = |kind| Header::bare(kind).encode().to_vec();
        let whole = [initial.clone(), push.clone(), bare(End), bare(Farewell)].concat();
        let pushed = "push of part 0 in iteration 1";
        let all = ["initial", "initial", pushed, "push of part 1 in iteration 1", "end", "farewell"];
        assert_eq!(events(true, &whole), all);
        for (sends_initial, sent, last) in [
            (
                true,
                frame(Push, 1, 2)[..HEADER_BYTES + 3].to_vec(),
                "it stopped after 3 of 8 bytes of the frame Push of part 1",
            ),
            (true, frame(Push, 1, 2)[..7].to_vec(), "it stopped after 7 of the 24 bytes of a header"),
            (false, initial.clone(), "it sent first weights of part 0 that are not due"),
            (
                true,
                [frame(Initial, 1, 2), frame(Initial, 1, 2)].concat(),
                "it sent first weights of part 1 that are not due",
            ),
            (true, [push.clone(), initial].concat(), "it sent first weights of part 0 that are not due"),
            (true, [frame(Push, 0, 2), bare(End)].concat(), "it ended after 1 of 2 parts of an iteration"),
            (true, [bare(End), push].concat(), "it pushed part 0 after its end"),
            (true, frame(Push, 0, 3), "it sent part 0 in 12 bytes, not 8"),
            (true, frame(Push, 7, 2), "part 7 lies on another server"),
            (true, bare(Hello), "it sent Hello, which no worker sends to a server that it has greeted"),
            (true, vec![9; HEADER_BYTES], "151587081 is no kind of frame"),
        ] {
            assert_eq!(events(sends_initial, &sent).last().map(String::as_str), Some(last));
        }
    }
}
