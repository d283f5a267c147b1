//! Waiting without occupying a core that a rank shares with others.
//!
//! Open MPI's waiting ranks poll the network. With `mpi_yield_when_idle` they call `sched_yield` between two polls; the
//! symbol resolves to the definition in this program instead of the C library's.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Sleep between two polls.
pub const POLL_INTERVAL: Duration = Duration::from_micros(50);

static SLEEPS: AtomicBool = AtomicBool::new(false);

/// Sets whether `sched_yield` sleeps instead of yielding.
pub fn sleep_instead_of_yielding(sleeps: bool) {
    SLEEPS.store(sleeps, Ordering::Relaxed);
}

/// Replaces the C library's function. On Linux 6.18, ranks with work get no core for minutes while other ranks of the
/// host call the real one in a loop.
#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> c_int {
    if SLEEPS.load(Ordering::Relaxed) {
        thread::sleep(POLL_INTERVAL);
        return 0;
    }
    // SAFETY: takes nothing and cannot fail on Linux.
    unsafe { libc::syscall(libc::SYS_sched_yield) as c_int }
}
