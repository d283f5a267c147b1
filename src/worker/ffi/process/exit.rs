//! How this process ends: from any thread, or by a crash.

use std::ffi::{c_int, c_void};
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction, signal};
use nix::unistd::{gettid, pause};

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

/// What explains a crash, and the handlers that print its stack.
struct CrashHandlers {
    explain: Box<dyn Fn() + Send + Sync>,
    before: Vec<(Signal, SigAction)>,
}

static CRASH_HANDLERS: OnceLock<CrashHandlers> = OnceLock::new();

/// How long `explain` may take: the thread that crashed may hold a lock that it needs. SIGALRM ends the process then.
const SECONDS_TO_EXPLAIN: u32 = 10;

/// Lets `explain` say more of a crash than its stack, or end the process, before the handlers that are set by now print the
/// stack. A second call changes nothing.
pub fn before_a_crash(explain: impl Fn() + Send + Sync + 'static) {
    // A crash inside the handler comes to it as well, and from it to the handlers before.
    let action = SigAction::new(SigHandler::SigAction(crashed), SaFlags::SA_NODEFER, SigSet::empty());
    CRASH_HANDLERS.get_or_init(|| {
        // SAFETY: the handler is one for a process that does not go on, see there.
        let taken = |signal| Some((signal, unsafe { sigaction(signal, &action) }.ok()?));
        let before = [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGABRT].into_iter().filter_map(taken).collect();
        CrashHandlers { explain: Box::new(explain), before }
    });
}

/// Runs on the thread that crashed, wherever it was: what this allocates or locks that thread may hold, and so it has little
/// time. Nothing else of the process is used after it.
extern "C" fn crashed(signal: c_int, information: *mut libc::siginfo_t, _: *mut c_void) {
    static EXPLAINING: AtomicI32 = AtomicI32::new(0);
    // Signals come before the handlers are known only in the moment in which they are set.
    let Some(handlers) = CRASH_HANDLERS.get() else { return };
    let thread = gettid().as_raw();
    match EXPLAINING.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {
            // SAFETY: takes a number; its signal ends the process.
            unsafe { libc::alarm(SECONDS_TO_EXPLAIN) };
            (handlers.explain)();
            // SAFETY: as above; there is no signal any more.
            unsafe { libc::alarm(0) };
        }
        // It crashed once more, while it explained.
        Err(explaining) if explaining == thread => {}
        // The threads of a kernel crash together, and one explains.
        Err(_) => loop {
            pause();
        },
    }
    for (signal, action) in &handlers.before {
        // SAFETY: what was there before.
        let _ = unsafe { sigaction(*signal, action) };
    }
    // SAFETY: the kernel hands it over.
    let was_sent = unsafe { (*information).si_code } <= 0;
    // What failed is tried again, and fails again; what was sent is not.
    if was_sent && let Ok(signal) = Signal::try_from(signal) {
        let _ = raise(signal);
    }
}
