//! How a rank waits that shares its core with others: asleep.
//!
//! Open MPI's waiting ranks ask the network again and again. Told to leave their core to others (`mpi_yield_when_idle`),
//! they call `sched_yield` between two questions; this program's own one is found before the C library's.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Between two questions.
pub const PATIENCE: Duration = Duration::from_micros(50);

static SLEEPS: AtomicBool = AtomicBool::new(false);

/// Whether whoever calls `sched_yield` sleeps.
pub fn sleep_instead_of_yielding(sleeps: bool) {
    SLEEPS.store(sleeps, Ordering::Relaxed);
}

/// In the place of the C library's. Linux 6.18 leaves ranks that have work without a core for minutes, while others of
/// their host call the real one without end.
#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> c_int {
    if SLEEPS.load(Ordering::Relaxed) {
        thread::sleep(PATIENCE);
        return 0;
    }
    // SAFETY: takes nothing and cannot fail on Linux.
    unsafe { libc::syscall(libc::SYS_sched_yield) as c_int }
}
