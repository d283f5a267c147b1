//! Memory bandwidth as a limit of the all-reduce: plain loops over private memory, on all ranks of a host at once. The
//! backends' own sums are not used here, because a slow backend would then look good.

use std::time::Instant;

use ringmark_core::benchmark::bandwidth::{MemoryLimit, MessageResult};
use ringmark_core::dimension::{Bytes, GigabytesPerSecond};
use ringmark_core::host::memory;
use ringmark_core::stats::busbw::memory_bound;

use crate::ffi::memory::sums::{self, MemoryLoop};
use crate::job::world::World;

/// Attempts of each loop; the best counts because this is an upper limit.
const ATTEMPTS: usize = 7;

/// Number of elements of an array: as many as the largest message, but more than the caches of small machines hold, and
/// no more than fits in memory.
const ELEMENTS: std::ops::RangeInclusive<u64> = 4 << 20..=32 << 20;

/// Measures on every host separately; returns rank 0's result on the ranks of its host.
pub fn measure(results: &[MessageResult], world: &World) -> MemoryLimit {
    let largest = results.iter().map(|result| result.bytes.0 / 4).max().unwrap_or(0);
    let elements = largest.clamp(*ELEMENTS.start(), *ELEMENTS.end()) as usize;
    let array = Bytes(elements as u64 * size_of::<f32>() as u64);
    let of_host = 2 * array.0 * u64::from(world.local_ranks());
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
    MemoryLimit {
        rate,
        by: best.1.name().to_owned(),
        busbw: memory_bound(rate, world.local_ranks(), world.ranks()),
        array,
        is_in_cache: memory::last_level_cache().is_some_and(|cache| of_host <= cache.0),
    }
}
