//! What the tests of this package share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Seeds libtorch's generator, which all tests of the process share, and keeps the others from drawing until the guard is
/// dropped. One thread computes: tests run side by side, and threads that share cores spin while they wait.
pub fn seeded(seed: i64) -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    let guard = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    tch::manual_seed(seed);
    tch::set_num_threads(1);
    guard
}
