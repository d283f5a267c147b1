//! Who runs the real worker: runs that share cores are slow, and spin while they wait, so tests take turns. Not for what a
//! test waits for without a core: a time-out runs beside the other tests.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Cores that no other test's runs use until this is dropped.
pub struct Turn {
    cores: usize,
}

/// All cores, for a run of several ranks or one that measures.
pub fn turn() -> Turn {
    Turn::of(usize::MAX)
}

/// A core each for so many ranks of one thread.
pub fn turn_of(ranks: u32) -> Turn {
    Turn::of(ranks as usize)
}

struct Queue {
    cores_taken: usize,
    /// The next to come gets this number.
    tickets: u64,
    /// Who has this number is next.
    served: u64,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { cores_taken: 0, tickets: 0, served: 0 });
static MOVED: Condvar = Condvar::new();

/// A test that fails while it holds this leaves it as it should be.
fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Turn {
    /// In the order in which tests ask: who wants all cores would else wait for ever.
    fn of(cores: usize) -> Turn {
        let all = thread::available_parallelism().expect("Linux").get();
        let cores = cores.min(all);
        let mut queue = queue();
        let ticket = queue.tickets;
        queue.tickets += 1;
        let must_wait = |queue: &mut Queue| queue.served != ticket || queue.cores_taken + cores > all;
        let mut queue = MOVED.wait_while(queue, must_wait).unwrap_or_else(PoisonError::into_inner);
        queue.served += 1;
        queue.cores_taken += cores;
        MOVED.notify_all();
        Turn { cores }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        queue().cores_taken -= self.cores;
        MOVED.notify_all();
    }
}
