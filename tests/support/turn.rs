//! Who runs the real worker: runs that share cores are slow, and spin while they wait, so tests take turns. Not for what a
//! test waits for without a core: a time-out runs beside the other tests.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Cores that a test's runs use until this is dropped.
pub struct Turn {
    cores: usize,
}

/// Tests that run at once may use twice the cores that there are: whoever starts programs or waits for a host leaves some of
/// its cores idle. No test may need a machine of its own, so none does.
const TESTS_OF_A_CORE: usize = 2;

/// As many cores as there are, for a run of several ranks or one that measures.
pub fn turn() -> Turn {
    Turn::of(usize::MAX)
}

/// A core each for so many ranks of one thread.
pub fn turn_of(ranks: u32) -> Turn {
    Turn::of(ranks as usize)
}

/// Who waits for cores, in the order in which they asked.
struct Waiting {
    ticket: u64,
    cores: usize,
    /// How many that asked later went before it.
    overtaken: u32,
}

struct Queue {
    cores_taken: usize,
    /// The next to ask gets this number.
    tickets: u64,
    waiting: VecDeque<Waiting>,
}

/// Who needs few cores may take those that are too few for whoever is before it, but nobody waits for more than these:
/// who wants all cores would else wait for ever.
const MOST_OVERTAKEN: u32 = 6;

static QUEUE: Mutex<Queue> = Mutex::new(Queue { cores_taken: 0, tickets: 0, waiting: VecDeque::new() });
static MOVED: Condvar = Condvar::new();

/// A test that fails while it holds this leaves it as it should be.
fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    /// Takes the cores of `ticket` if its turn has come.
    fn take(&mut self, ticket: u64, all: usize) -> bool {
        let index = self.waiting.iter().position(|waiting| waiting.ticket == ticket).expect("it waits");
        let free = all - self.cores_taken;
        let may_be_overtaken = |before: &Waiting| before.cores > free && before.overtaken < MOST_OVERTAKEN;
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

impl Turn {
    fn of(cores: usize) -> Turn {
        let all = thread::available_parallelism().expect("Linux").get();
        let (cores, all) = (cores.min(all), TESTS_OF_A_CORE * all);
        let mut queue = queue();
        let ticket = queue.tickets;
        queue.tickets += 1;
        queue.waiting.push_back(Waiting { ticket, cores, overtaken: 0 });
        let _queue = MOVED.wait_while(queue, |queue| !queue.take(ticket, all)).unwrap_or_else(PoisonError::into_inner);
        // Whoever comes next may have waited for this one alone.
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
