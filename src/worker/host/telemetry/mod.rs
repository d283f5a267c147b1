//! Readings of this host and its GPUs during the iterations, about one per second, on a separate thread. Only the end
//! of the run waits for that thread, and only briefly.
//!
//! | module | contents |
//! |---|---|
//! | [`kernel`] | cores, memory, pressure, network cards |
//! | [`sensors`] | temperature and power of processors |
//! | [`gpus`] | GPUs, through NVML |
//! | [`reading`] | types of readings and sources |
//! | [`recording`] | storage of readings |

mod gpus;
mod kernel;
mod reading;
mod recording;
mod sensors;

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use ringmark_core::dimension::Seconds;
use ringmark_core::host::Telemetry;

use crate::host::telemetry::gpus::Gpus;
use crate::host::telemetry::kernel::Kernel;
use crate::host::telemetry::reading::Source;
use crate::host::telemetry::recording::Recording;
use crate::host::telemetry::sensors::Sensors;

/// Interval between readings; it grows during a long run.
const INTERVAL: Duration = Duration::from_secs(1);

/// Longest delay of the start and the end of a run by a driver that does not reply.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Readings {
    /// Dropped to stop the thread.
    stop: Sender<()>,
    /// Notified after the first and after the last reading.
    taken: mpsc::Receiver<()>,
    recording: Arc<Mutex<Recording>>,
}

impl Readings {
    /// Takes the first reading and continues on a separate thread. `gpus` are the PCI addresses of the GPUs that ranks
    /// of this host use, and `iteration` returns the current iteration of the host's first rank.
    pub fn start(gpus: Vec<String>, iteration: fn() -> u32) -> Result<Readings> {
        let (stop, stopped) = mpsc::channel::<()>();
        let (notify, taken) = mpsc::channel();
        let recording = Arc::new(Mutex::new(Recording::default()));
        let shared = Arc::clone(&recording);
        let read = move || {
            let (mut kernel, (mut sensors, without_sensors)) = (Kernel::new(), Sensors::find(Path::new("/sys/class")));
            // Loaded once, because the devices borrow from the library.
            let nvml = (!gpus.is_empty()).then(gpus::load);
            let (mut gpus, without_gpus) = Gpus::find(nvml.as_ref(), &gpus);
            lock(&shared).missing = without_sensors.into_iter().chain(without_gpus).collect();
            let mut sources: [&mut dyn Source; 3] = [&mut kernel, &mut sensors, &mut gpus];
            let started = Instant::now();
            let mut is_last = false;
            loop {
                let mut readings = Vec::new();
                sources.iter_mut().for_each(|source| source.read(&mut readings));
                let interval = lock(&shared).add(Seconds(started.elapsed().as_secs_f64()), iteration(), readings);
                lock(&shared).processor_time = processor_time();
                let _ = notify.send(());
                if is_last {
                    break;
                }
                // One more reading at the end covers the last iterations.
                is_last = stopped.recv_timeout(INTERVAL * interval) != Err(RecvTimeoutError::Timeout);
            }
        };
        thread::Builder::new().spawn(read).context("cannot start the sensor thread")?;
        let _ = taken.recv_timeout(STOP_TIMEOUT);
        Ok(Readings { stop, taken, recording })
    }

    pub fn end(self) -> Telemetry {
        let Readings { stop, taken, recording } = self;
        drop(stop);
        let until = Instant::now() + STOP_TIMEOUT;
        // The channel is closed when the thread has ended.
        while taken.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {}
        lock(&recording).telemetry()
    }
}

/// Ignores poisoning: no code panics while it holds the lock.
fn lock(recording: &Mutex<Recording>) -> MutexGuard<'_, Recording> {
    recording.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the CPU time of this thread.
fn processor_time() -> Seconds {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    Seconds(time.map_or(0.0, |time| Duration::from(time).as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use ringmark_core::host::telemetry::Quantity;

    use super::*;

    #[test]
    fn host_is_sampled_until_the_end() {
        let started = Instant::now();
        let readings = Readings::start(Vec::new(), || 7).expect("a thread");
        while lock(&readings.recording).telemetry().at.len() < 2 {
            thread::sleep(Duration::from_millis(20));
        }
        let read = readings.end();
        let elapsed = started.elapsed().as_secs_f64();
        assert!(read.at.len() >= 3 && read.at.is_sorted(), "{:?}", read.at);
        assert!(read.iteration.iter().all(|iteration| *iteration == 7));
        assert!(read.series.iter().all(|series| series.values.len() == read.at.len()), "{read:?}");
        let utilization = read.mean_sum(Quantity::Utilization, 0, |_| true).expect("the kernel counts time");
        // The utilization is at most the duration of the test, within the kernel's resolution of hundredths of a
        // second.
        let busy = utilization * (read.at[read.at.len() - 1].0 - read.at[0].0);
        assert!(busy >= 0.0 && busy <= elapsed + 0.02, "{busy} s of {elapsed} s");
        assert!(
            read.series_of(Quantity::Memory).all(|series| series.values.iter().flatten().all(|bytes| *bytes > 1e6))
        );
        assert!(read.processor_time.0 > 0.0 && read.processor_time.0 < 1.0, "{read:?}");
    }
}
