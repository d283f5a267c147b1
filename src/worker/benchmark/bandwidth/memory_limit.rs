//! How fast the memory under the all-reduce is: plain loops over memory that nobody shares, on all ranks of a host at
//! once. Not the backends' sums, or a slow backend would look good.

use std::time::Instant;

use ringmark_core::benchmark::bandwidth::{MemoryLimit, MessageResult};
use ringmark_core::dimension::GigabytesPerSecond;
use ringmark_core::stats::busbw::memory_bound;

use crate::ffi::memory::sums::{self, MemoryLoop};
use crate::job::world::World;

/// Attempts of each loop; the best counts, for this is a limit.
const ATTEMPTS: usize = 7;

/// Elements of an array: as large as the largest message, but beyond the caches of small machines and within memory.
const ELEMENTS: std::ops::RangeInclusive<u64> = 4 << 20..=32 << 20;

/// Measures on all hosts, each for itself; rank 0's is returned on every rank of its host.
pub fn measure(results: &[MessageResult], world: &World) -> MemoryLimit {
    let largest = results.iter().map(|result| result.bytes.0 / 4).max().unwrap_or(0);
    let elements = largest.clamp(*ELEMENTS.start(), *ELEMENTS.end()) as usize;
    let (mut first, mut second) = (vec![1f32; elements], vec![2f32; elements]);
    let mut best = (0.0, MemoryLoop::ALL[0]);
    for attempt in 0..ATTEMPTS * MemoryLoop::ALL.len() {
        let kind = MemoryLoop::ALL[attempt % MemoryLoop::ALL.len()];
        world.barrier();
        let start = Instant::now();
        let moved = sums::run(kind, &mut first, &mut second);
        world.barrier();
        let rate = moved as f64 * f64::from(world.local_ranks()) / start.elapsed().as_secs_f64();
        if rate > best.0 {
            best = (rate, kind);
        }
    }
    let rate = GigabytesPerSecond(best.0 / 1e9);
    MemoryLimit { rate, by: best.1.name().to_owned(), busbw: memory_bound(rate, world.local_ranks(), world.ranks()) }
}
