//! Interrupt flag set by signals. Waiting loops poll it and clean up themselves.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

/// Polling interval of waiting loops.
pub const TICK: Duration = Duration::from_millis(20);

/// The last signal that set an [`Interrupt`]; 0 before any.
static SIGNAL: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// Returns the exit status of a command that a signal ended, as a shell reports it: 130 after Ctrl-C.
pub fn exit_status() -> Option<u8> {
    let signal = SIGNAL.load(Ordering::Relaxed);
    u8::try_from(128 + signal).ok().filter(|_| signal > 0)
}

/// Flag set when the user asks to stop: by Ctrl-C, SIGTERM, closing the terminal, or the signals that Grid Engine
/// sends some time before it suspends (SIGUSR1) or kills (SIGUSR2) a job.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs the signal handlers.
    pub fn install() -> anyhow::Result<Interrupt> {
        let requested = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2] {
            signal_hook::flag::register_usize(signal, Arc::clone(&SIGNAL), signal as usize)
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&requested)))
                .context("cannot install signal handlers")?;
        }
        Ok(Interrupt(requested))
    }

    /// Returns a flag that no signal sets: signals keep their default action.
    pub fn never() -> Interrupt {
        Interrupt(Arc::default())
    }

    /// Returns true after a signal.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps for `duration`, or until a signal arrives.
    pub fn sleep(&self, duration: Duration) {
        let end = Instant::now() + duration;
        while !self.is_set() && Instant::now() < end {
            thread::sleep(TICK.min(end.saturating_duration_since(Instant::now())));
        }
    }
}
