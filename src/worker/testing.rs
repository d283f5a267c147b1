//! Helpers for the tests of this package.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Seeds libtorch's generator, which all tests of the process share, and blocks other tests from drawing until the
/// guard is dropped. Computation uses one thread: tests run concurrently, and threads that share cores spin while they
/// wait.
pub fn seeded(seed: i64) -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    let guard = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    tch::manual_seed(seed);
    tch::set_num_threads(1);
    guard
}
