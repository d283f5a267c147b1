//! Ctrl-C flag. Waiting loops poll it and clean up themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

/// How often a waiting loop looks at the clock, the child and the interrupt.
pub const TICK: Duration = Duration::from_millis(20);

/// Whether the user asked to stop: Ctrl-C, SIGTERM, a closed terminal, or what Grid Engine sends a job a while before it is
/// suspended (SIGUSR1) or killed (SIGUSR2).
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes over the signals; once a process.
    pub fn install() -> anyhow::Result<Interrupt> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2] {
            signal_hook::flag::register(signal, Arc::clone(&asked)).context("signals cannot be caught")?;
        }
        Ok(Interrupt(asked))
    }

    /// One that no signal sets: a signal ends this process as it ends any.
    pub fn never() -> Interrupt {
        Interrupt(Arc::default())
    }

    /// Whether a signal came.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps; ends early when a signal comes.
    pub fn sleep(&self, duration: Duration) {
        let end = Instant::now() + duration;
        while !self.asked() && Instant::now() < end {
            thread::sleep(TICK.min(end.saturating_duration_since(Instant::now())));
        }
    }
}
