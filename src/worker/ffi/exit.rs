//! How this process ends: from any thread, or by a crash.

use std::io::Write;

use nix::sys::signal::{SigHandler, Signal, signal};

/// Ends this process, without what libraries have asked to be called at its end: that may wait for another thread of it.
pub fn at_once(status: i32) -> ! {
    // SAFETY: it may be called at any time from any thread, and nothing of this process is used after it.
    unsafe { libc::_exit(status) }
}

/// Ends this process, whose work is done, without libtorch's destructors: they take a third of the time of its start. What was
/// printed is written.
pub fn in_good_order() -> ! {
    // Nobody is left who could be told.
    let _ = std::io::stdout().flush();
    // SAFETY: null means every stream of the C library, and it may be called at any time.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    at_once(0)
}

/// Lets MPI print the stack of a crash. It takes only signals that nobody has, and Rust has these two, for the sake of a message
/// about stacks that overflow. To be called before MPI is initialized.
pub fn leave_crashes_to_mpi() {
    for crash in [Signal::SIGSEGV, Signal::SIGBUS] {
        // SAFETY: the default action runs no code of ours.
        let taken = unsafe { signal(crash, SigHandler::SigDfl) };
        // Cannot fail for these signals; a crash without its stack ends the process all the same.
        debug_assert!(taken.is_ok());
    }
}
