//! Threads of a server, one per core, that sum pushes, update and answer. Each takes the next pending update.
//! libtorch's own threads would be woken for each of many small shards and spin in between, on cores that the host's
//! ranks need.

use std::ops::Range;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

use anyhow::Result;

use crate::exchange::kv_store::protocol::{FrameKind, HEADER_BYTES, Header};
use crate::exchange::kv_store::server::connection::{Outgoing, Parts, Payload, WorkerEvent};
use crate::exchange::request::UpdateStep;
use crate::job::heartbeat;

/// A shard whose pushes are complete.
pub struct PendingUpdate {
    pub part: u32,
    pub iteration: u32,
    /// Workers that pushed and receive the answer.
    pub pushers: Range<usize>,
    /// If `None`, the weights become the sum.
    pub step: Option<UpdateStep>,
}

#[derive(Default)]
pub struct UpdateStatistics {
    /// Bytes sent in answers.
    pub sent: u64,
    /// Number of pushes after the warm-up, by staleness.
    pub staleness: Vec<u64>,
}

pub struct Answers {
    /// To the writer thread of each worker.
    pub outgoing: Vec<Sender<Outgoing>>,
    /// To the scheduling thread if an update fails; [`UpdateThreads::finish`] returns the error.
    pub failures: Sender<(usize, WorkerEvent)>,
}

pub struct UpdateThreads<'scope> {
    queue: Option<Sender<PendingUpdate>>,
    threads: Vec<ScopedJoinHandle<'scope, Result<UpdateStatistics>>>,
}

impl<'scope> UpdateThreads<'scope> {
    /// Starts `threads` threads. Staleness is counted after `warmup` iterations.
    pub fn start(
        scope: &'scope Scope<'scope, '_>,
        threads: u32,
        parts: &Arc<Parts>,
        warmup: u32,
        answers: Answers,
    ) -> UpdateThreads<'scope> {
        let (queue, receiver) = mpsc::channel();
        let (receiver, answers) = (Arc::new(Mutex::new(receiver)), Arc::new(answers));
        let start = |_| {
            let (receiver, parts, answers) = (receiver.clone(), parts.clone(), answers.clone());
            scope.spawn(move || serve(&receiver, &parts, warmup, &answers))
        };
        UpdateThreads { queue: Some(queue), threads: (0..threads).map(start).collect() }
    }

    /// Queues an update. Its workers send no other push to that shard before the answer.
    pub fn update(&self, pending: PendingUpdate) {
        // The threads end earlier only by a panic, which ends the server.
        let _ = self.queue.as_ref().map(|sender| sender.send(pending));
    }

    /// Ends the threads after all pending updates.
    ///
    /// # Errors
    ///
    /// Fails if an update failed.
    pub fn finish(&mut self) -> Result<UpdateStatistics> {
        self.queue = None;
        let mut all = UpdateStatistics::default();
        for thread in self.threads.drain(..) {
            let statistics = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            all.sent += statistics.sent;
            (0..).zip(statistics.staleness).for_each(|(staleness, pushes)| all.count(staleness, pushes));
        }
        Ok(all)
    }
}

impl UpdateStatistics {
    fn count(&mut self, staleness: u64, pushes: u64) {
        let index = staleness as usize;
        self.staleness.resize(self.staleness.len().max(index + 1), 0);
        self.staleness[index] += pushes;
    }
}

fn serve(
    queue: &Mutex<Receiver<PendingUpdate>>,
    parts: &Parts,
    warmup: u32,
    answers: &Answers,
) -> Result<UpdateStatistics> {
    let mut statistics = UpdateStatistics::default();
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
    while let Ok(pending) = next() {
        update(pending, parts, warmup, answers, &mut statistics).inspect_err(|_| {
            // The receiver is already gone if the server is exiting.
            let _ = answers.failures.send((0, WorkerEvent::Failed));
        })?;
    }
    Ok(statistics)
}

fn update(
    pending: PendingUpdate,
    parts: &Parts,
    warmup: u32,
    answers: &Answers,
    statistics: &mut UpdateStatistics,
) -> Result<()> {
    let PendingUpdate { part: number, iteration, pushers, step } = pending;
    let part = parts.get(number)?;
    let (answer, staleness) = part.update(pushers.clone(), step)?;
    heartbeat::count_progress();
    if iteration > warmup {
        statistics.count(staleness, 1);
    }
    let (answer, bytes) = (Arc::new(answer), part.answer_bytes() as u64);
    let header = Header { kind: FrameKind::Answer, part: number, iteration, bytes };
    for outgoing in &answers.outgoing[pushers] {
        statistics.sent += HEADER_BYTES as u64 + bytes;
        // If the writer has ended, the reader of that worker reports it.
        let _ = outgoing.send(Outgoing { header, payload: Payload::Array(answer.clone()) });
    }
    Ok(())
}
