//! Pool of core tokens for tests that run the real worker: ranks that share cores are slow and spin while they wait,
//! so the number of concurrent runs is limited. A test that waits without computing, such as for a timeout, should
//! first return its tokens.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Core tokens held by a test until dropped.
pub struct CoreTokens {
    cores: usize,
}

/// Core tokens per core. Twice the number of cores, because tests leave some of their cores idle while they start
/// programs or wait for a host. No test may depend on an idle machine.
const TOKENS_PER_CORE: usize = 2;

/// Takes one token per core, for a run of several ranks or one that measures.
pub fn take_all_cores() -> CoreTokens {
    CoreTokens::take(usize::MAX)
}

/// Takes one token for each of `ranks` single-threaded ranks.
pub fn take_cores(ranks: u32) -> CoreTokens {
    CoreTokens::take(ranks as usize)
}

/// A waiting request.
struct Request {
    ticket: u64,
    cores: usize,
    /// Number of later requests that were served before this one.
    overtaken: u32,
}

struct Queue {
    cores_taken: usize,
    /// Ticket number of the next request.
    tickets: u64,
    waiting: VecDeque<Request>,
}

/// Limit for serving small requests before a larger one that does not fit yet: without it, requests for all cores
/// would starve.
const MAX_OVERTAKEN: u32 = 6;

static QUEUE: Mutex<Queue> = Mutex::new(Queue { cores_taken: 0, tickets: 0, waiting: VecDeque::new() });
static CHANGED: Condvar = Condvar::new();

/// The lock may be poisoned by a failing test, but the queue is always consistent.
fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    /// Takes the tokens of `ticket` if they are available and no earlier request has precedence.
    fn grant(&mut self, ticket: u64, all: usize) -> bool {
        let index = self.waiting.iter().position(|waiting| waiting.ticket == ticket).expect("it waits");
        let free = all - self.cores_taken;
        let may_be_overtaken = |before: &Request| before.cores > free && before.overtaken < MAX_OVERTAKEN;
        let cores = self.waiting[index].cores;
        if cores > free || !self.waiting.range(..index).all(may_be_overtaken) {
            return false;
        }
        self.waiting.range_mut(..index).for_each(|before| before.overtaken += 1);
        self.waiting.remove(index);
        self.cores_taken += cores;
        true
    }
}

impl CoreTokens {
    fn take(cores: usize) -> CoreTokens {
        let all = thread::available_parallelism().expect("Linux").get();
        let (cores, all) = (cores.min(all), TOKENS_PER_CORE * all);
        let mut queue = queue();
        let ticket = queue.tickets;
        queue.tickets += 1;
        queue.waiting.push_back(Request { ticket, cores, overtaken: 0 });
        let _queue =
            CHANGED.wait_while(queue, |queue| !queue.grant(ticket, all)).unwrap_or_else(PoisonError::into_inner);
        // The next request may fit as well.
        CHANGED.notify_all();
        CoreTokens { cores }
    }
}

impl Drop for CoreTokens {
    fn drop(&mut self) {
        queue().cores_taken -= self.cores;
        CHANGED.notify_all();
    }
}
