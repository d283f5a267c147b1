//! Readings of this host and its GPUs while the iterations run, about one a second by a thread of its own, beside the ranks
//! and not in their way: nobody waits for it but the end of the run, and that not for long. Not for judging them.
//!
//! | module | what it reads |
//! |---|---|
//! | [`kernel`] | cores, memory, pressure, network cards |
//! | [`sensors`] | temperature and power of processors |
//! | [`gpus`] | GPUs, by NVML |
//! | [`reading`] | (what a reading is) |
//! | [`recording`] | (keeps what was read) |

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

/// Between two readings; of a long run it grows.
const INTERVAL: Duration = Duration::from_secs(1);

/// A driver that does not answer holds the start, and the end, of a run no longer than this.
const PATIENCE: Duration = Duration::from_secs(10);

/// The thread and what it has read.
pub struct Readings {
    /// Dropped when it is to end.
    stop: Sender<()>,
    /// Says that the first reading was taken, then that the last was.
    taken: mpsc::Receiver<()>,
    recording: Arc<Mutex<Recording>>,
}

impl Readings {
    /// Takes the first reading and goes on by itself. `gpus` are the bus numbers of those that ranks of this host use,
    /// `iteration` says in which one its first rank is.
    pub fn start(gpus: Vec<String>, iteration: fn() -> u32) -> Result<Readings> {
        let (stop, stopped) = mpsc::channel::<()>();
        let (says, taken) = mpsc::channel();
        let recording = Arc::new(Mutex::new(Recording::default()));
        let kept = Arc::clone(&recording);
        let read = move || {
            let (mut kernel, (mut sensors, without_sensors)) = (Kernel::new(), Sensors::find(Path::new("/sys/class")));
            // A library that is loaded once: the devices borrow from it.
            let nvml = (!gpus.is_empty()).then(gpus::load);
            let (mut gpus, without_gpus) = Gpus::find(nvml.as_ref(), &gpus);
            locked(&kept).missing = without_sensors.into_iter().chain(without_gpus).collect();
            let mut sources: [&mut dyn Source; 3] = [&mut kernel, &mut sensors, &mut gpus];
            let started = Instant::now();
            let mut is_last = false;
            loop {
                let mut readings = Vec::new();
                sources.iter_mut().for_each(|source| source.read(&mut readings));
                let interval = locked(&kept).add(Seconds(started.elapsed().as_secs_f64()), iteration(), readings);
                locked(&kept).processor_time = processor_time();
                let _ = says.send(());
                if is_last {
                    break;
                }
                // Once more at the end, so that the last iterations have their reading.
                is_last = stopped.recv_timeout(INTERVAL * interval) != Err(RecvTimeoutError::Timeout);
            }
        };
        thread::Builder::new().spawn(read).context("the thread that reads this host's sensors cannot start")?;
        let _ = taken.recv_timeout(PATIENCE);
        Ok(Readings { stop, taken, recording })
    }

    /// Takes the last reading and gives all of them.
    pub fn end(self) -> Telemetry {
        let Readings { stop, taken, recording } = self;
        drop(stop);
        let until = Instant::now() + PATIENCE;
        // The thread says nothing more when it has ended.
        while taken.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {}
        locked(&recording).telemetry()
    }
}

/// Nobody panics between its lines.
fn locked(recording: &Mutex<Recording>) -> MutexGuard<'_, Recording> {
    recording.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Of this thread.
fn processor_time() -> Seconds {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    Seconds(time.map_or(0.0, |time| Duration::from(time).as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use ringmark_core::host::telemetry::Quantity;

    use super::*;

    /// This host, for real.
    #[test]
    fn this_host_is_read_until_the_end() {
        let started = Instant::now();
        let readings = Readings::start(Vec::new(), || 7).expect("a thread");
        while locked(&readings.recording).telemetry().at.len() < 2 {
            thread::sleep(Duration::from_millis(20));
        }
        let read = readings.end();
        let elapsed = started.elapsed().as_secs_f64();
        assert!(read.at.len() >= 3 && read.at.is_sorted(), "{:?}", read.at);
        assert!(read.iteration.iter().all(|iteration| *iteration == 7));
        assert!(read.series.iter().all(|series| series.values.len() == read.at.len()), "{read:?}");
        let utilization = read.mean_sum(Quantity::Utilization, 0, |_| true).expect("the kernel counts time");
        // No longer busy than the test took, as exact as the kernel counts: in hundredths of a second.
        let busy = utilization * (read.at[read.at.len() - 1].0 - read.at[0].0);
        assert!(busy >= 0.0 && busy <= elapsed + 0.02, "{busy} s of {elapsed} s");
        assert!(read.of(Quantity::Memory).all(|series| series.values.iter().flatten().all(|bytes| *bytes > 1e6)));
        assert!(read.processor_time.0 > 0.0 && read.processor_time.0 < 1.0, "{read:?}");
    }
}
