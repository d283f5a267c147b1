//! The threads of a server that sum what workers pushed, update, and answer: one a core, each of which takes the next part that is
//! due. Parts are many and small: libtorch would wake its threads for every one, and those turn while they wait for the next, on
//! cores that ranks of the same host need.

use std::ops::Range;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};

use anyhow::Result;

use crate::exchange::kv_store::connection::{Heard, Outgoing, Parts, Payload};
use crate::exchange::kv_store::protocol::{FrameKind, HEADER_BYTES, Header};
use crate::ffi::shim::SgdStep;
use crate::job::heartbeat;

/// A part whose pushes are there.
pub struct Due {
    pub part: u32,
    pub iteration: u32,
    /// Who pushed, and gets the answer.
    pub pushers: Range<usize>,
    /// `None`: the weights become the sum.
    pub step: Option<SgdStep>,
}

/// What was done.
#[derive(Default)]
pub struct Done {
    /// Bytes of the answers.
    pub sent: u64,
    /// Pushes after the warm-up by their staleness.
    pub staleness: Vec<u64>,
}

/// Where they answer.
pub struct Answers {
    /// To the writer of each worker.
    pub outgoing: Vec<Sender<Outgoing>>,
    /// To the thread that decides, where an update fails: it asks how when they [finish](Updaters::finish).
    pub failures: Sender<(usize, Heard)>,
}

/// The threads.
pub struct Updaters<'scope> {
    due: Option<Sender<Due>>,
    threads: Vec<ScopedJoinHandle<'scope, Result<Done>>>,
}

impl<'scope> Updaters<'scope> {
    /// So many of them. The staleness of the first `warmup` iterations does not count.
    pub fn start(
        scope: &'scope Scope<'scope, '_>,
        threads: u32,
        parts: &Arc<Parts>,
        warmup: u32,
        answers: Answers,
    ) -> Updaters<'scope> {
        let (due, taken) = mpsc::channel();
        let (taken, answers) = (Arc::new(Mutex::new(taken)), Arc::new(answers));
        let start = |_| {
            let (taken, parts, answers) = (taken.clone(), parts.clone(), answers.clone());
            scope.spawn(move || serve(&taken, &parts, warmup, &answers))
        };
        Updaters { due: Some(due), threads: (0..threads).map(start).collect() }
    }

    /// Leaves it to who is free first. Until it is answered nobody pushes any more of what it sums.
    pub fn update(&self, due: Due) {
        // They end before this only where one panics, which ends the server.
        let _ = self.due.as_ref().map(|sender| sender.send(due));
    }

    /// When all is answered that was due; from here on they are gone. Fails where an update did.
    pub fn finish(&mut self) -> Result<Done> {
        self.due = None;
        let mut all = Done::default();
        for thread in self.threads.drain(..) {
            let done = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            all.sent += done.sent;
            (0..).zip(done.staleness).for_each(|(staleness, pushes)| all.count(staleness, pushes));
        }
        Ok(all)
    }
}

impl Done {
    fn count(&mut self, staleness: u64, pushes: u64) {
        let index = staleness as usize;
        self.staleness.resize(self.staleness.len().max(index + 1), 0);
        self.staleness[index] += pushes;
    }
}

fn serve(due: &Mutex<Receiver<Due>>, parts: &Parts, warmup: u32, answers: &Answers) -> Result<Done> {
    let mut done = Done::default();
    let next = || due.lock().unwrap_or_else(PoisonError::into_inner).recv();
    while let Ok(due) = next() {
        update(due, parts, warmup, answers, &mut done).inspect_err(|_| {
            // Nobody hears it who finishes already.
            let _ = answers.failures.send((0, Heard::Failed));
        })?;
    }
    Ok(done)
}

fn update(due: Due, parts: &Parts, warmup: u32, answers: &Answers, done: &mut Done) -> Result<()> {
    let Due { part: number, iteration, pushers, step } = due;
    let part = parts.get(number)?;
    let (answer, staleness) = part.update(pushers.clone(), step)?;
    heartbeat::count_progress();
    if iteration > warmup {
        done.count(staleness, 1);
    }
    let (answer, bytes) = (Arc::new(answer), part.answer_bytes() as u64);
    let header = Header { kind: FrameKind::Answer, part: number, iteration, bytes };
    for outgoing in &answers.outgoing[pushers] {
        done.sent += HEADER_BYTES as u64 + bytes;
        // A writer that has ended has lost its worker, of which its reader tells.
        let _ = outgoing.send(Outgoing { header, payload: Payload::Array(answer.clone()) });
    }
    Ok(())
}
