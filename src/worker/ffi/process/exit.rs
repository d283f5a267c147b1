//! Exit of this process, from any thread or after a crash.

use std::ffi::{c_int, c_void};
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction, signal};
use nix::unistd::{gettid, pause};

/// Exits without running the exit handlers of libraries, which may wait for another thread.
pub fn immediately(status: i32) -> ! {
    // SAFETY: may be called at any time from any thread; nothing runs after it.
    unsafe { libc::_exit(status) }
}

/// Exits successfully without libtorch's destructors, which take a third of the time of its start. Output is flushed
/// first.
pub fn exit_cleanly() -> ! {
    // An error cannot be reported any more.
    let _ = std::io::stdout().flush();
    // SAFETY: null means all streams of the C library; it may be called at any time.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    immediately(0)
}

/// Restores the default action of crash signals so that MPI prints the stack of a crash. MPI takes over only signals
/// without a handler, and Rust handles these two for its message about stack overflows. Call this before MPI is
/// initialized.
pub fn restore_crash_signals() {
    for crash in [Signal::SIGSEGV, Signal::SIGBUS] {
        // SAFETY: the default action runs no code of this program.
        let taken = unsafe { signal(crash, SigHandler::SigDfl) };
        // Cannot fail for these signals; even without its stack, a crash ends the process.
        debug_assert!(taken.is_ok());
    }
}

/// Explanation of a crash, and the previous handlers, which print its stack.
struct CrashHandlers {
    explain: Box<dyn Fn() + Send + Sync>,
    before: Vec<(Signal, SigAction)>,
}

static CRASH_HANDLERS: OnceLock<CrashHandlers> = OnceLock::new();

/// Time limit of `explain`, after which SIGALRM ends the process: the crashed thread may hold a lock that it needs.
const SECONDS_TO_EXPLAIN: u32 = 10;

/// Sets `explain` to run after a crash, before the current handlers print its stack. It may print more about the crash
/// or end the process. Only the first call has an effect.
pub fn set_crash_handler(explain: impl Fn() + Send + Sync + 'static) {
    // SA_NODEFER: a crash inside the handler reaches it again, and it passes that on to the previous handlers.
    let action = SigAction::new(SigHandler::SigAction(crashed), SaFlags::SA_NODEFER, SigSet::empty());
    CRASH_HANDLERS.get_or_init(|| {
        // SAFETY: the handler ends in a process that does not continue, see there.
        let taken = |signal| Some((signal, unsafe { sigaction(signal, &action) }.ok()?));
        let before = [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGABRT].into_iter().filter_map(taken).collect();
        CrashHandlers { explain: Box::new(explain), before }
    });
}

/// Handles a crash on the crashed thread, wherever it was: that thread may hold anything that this allocates or locks.
/// Therefore it has a time limit. Nothing else of the process runs afterwards.
extern "C" fn crashed(signal: c_int, information: *mut libc::siginfo_t, _: *mut c_void) {
    static EXPLAINING: AtomicI32 = AtomicI32::new(0);
    // Empty only while the handlers are being set.
    let Some(handlers) = CRASH_HANDLERS.get() else { return };
    let thread = gettid().as_raw();
    match EXPLAINING.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {
            // SAFETY: takes a number; the signal ends the process.
            unsafe { libc::alarm(SECONDS_TO_EXPLAIN) };
            (handlers.explain)();
            // SAFETY: as above; cancels the signal.
            unsafe { libc::alarm(0) };
        }
        // Crashed again while explaining.
        Err(explaining) if explaining == thread => {}
        // Threads of a parallel kernel crash together; one of them explains.
        Err(_) => loop {
            pause();
        },
    }
    for (signal, action) in &handlers.before {
        // SAFETY: the previous handlers.
        let _ = unsafe { sigaction(*signal, action) };
    }
    // SAFETY: the kernel passes a valid pointer.
    let was_sent = unsafe { (*information).si_code } <= 0;
    // A faulting instruction runs again and faults again; a signal that was sent must be sent again.
    if was_sent && let Ok(signal) = Signal::try_from(signal) {
        let _ = raise(signal);
    }
}
