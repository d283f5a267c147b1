//! Runs the same work for many hosts with bounded concurrency.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Maximum number of concurrent programs such as ssh: thousands would exhaust this machine's processes and memory.
pub const MAX_PROGRAMS: usize = 64;

/// Maximum number of agents awaited concurrently: a waiting thread costs little.
pub const MAX_AGENTS: usize = 1024;

/// Runs `work` for every item of `items`, at most `limit` at a time, each on its own thread. Returns the results in
/// order.
pub fn in_parallel<I: Sync, T: Send>(limit: usize, items: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T> {
    let (work, next) = (&work, &AtomicUsize::new(0));
    let run_items = move || -> Vec<(usize, T)> {
        let numbers =
            std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < items.len()));
        numbers.map(|number| (number, work(&items[number]))).collect()
    };
    let mut results: Vec<(usize, T)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..items.len().min(limit)).map(|_| scope.spawn(run_items)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallelism_is_limited_and_results_keep_order() {
        let (working, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let numbers: Vec<usize> = (0..8192).collect();
        let doubled = in_parallel(16, &numbers, |number| {
            most.fetch_max(working.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::yield_now();
            working.fetch_sub(1, Ordering::SeqCst);
            2 * number
        });
        assert!(doubled.iter().enumerate().all(|(number, double)| *double == 2 * number) && doubled.len() == 8192);
        assert!(most.into_inner() <= 16);
        assert_eq!(in_parallel(16, &[] as &[u32], |number| *number), [] as [u32; 0]);
    }
}
