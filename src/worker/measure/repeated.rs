//! Times of the computations of forward that backward repeats (`--recompute`). The network computes them on the thread of
//! libtorch's autograd, and the step collects their times.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use tch::Device;

use crate::measure::mark::Mark;

/// Marks around a repeated computation.
pub struct Repeated {
    begin: Mark,
    end: Mark,
}

impl Repeated {
    /// Returns the time between the marks, which are complete.
    pub fn seconds(&self) -> Result<f64> {
        self.end.seconds_since(&self.begin)
    }
}

/// Computations since [`collect`]; `None` if no step collects them. Marks in a captured graph have no time.
static COLLECTED: Mutex<Option<Vec<Repeated>>> = Mutex::new(None);

fn collected() -> MutexGuard<'static, Option<Vec<Repeated>>> {
    COLLECTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to collect the times of the computations that this process repeats.
pub fn collect() {
    *collected() = Some(Vec::new());
}

/// Returns what was collected, and ends the collection.
pub fn take() -> Vec<Repeated> {
    collected().take().unwrap_or_default()
}

/// Runs `compute` on `device`, and adds its time if a step collects it.
pub fn timed<T>(device: Device, compute: impl FnOnce() -> Result<T>) -> Result<T> {
    if collected().is_none() {
        return compute();
    }
    let begin = Mark::set(device)?;
    let result = compute()?;
    let repeated = Repeated { begin, end: Mark::set(device)? };
    collected().get_or_insert_default().push(repeated);
    Ok(result)
}
