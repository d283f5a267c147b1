//! One pass over a loader: batches are taken as fast as they arrive and returned at once.

use std::time::{Duration, Instant};

use anyhow::Result;
use ringmark_core::benchmark::input::{HostPass, InputConfig, PageCache};
use ringmark_core::dimension::{Bytes, Seconds};
use ringmark_core::host::Stage;
use ringmark_core::trace::Lane;
use ringmark_input::loader::Loader;

use crate::benchmark::input::source::Source;
use crate::job::heartbeat;
use crate::measure::page_cache;
use crate::measure::trace::Tracer;
use crate::measure::trace::recorder::{self, OpenSpan};

/// Start and end conditions of the measured part of a pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Number of warm-up batches, not measured.
    warmup: u64,
    /// Measured batches after which the pass ends.
    batches: u64,
    /// Measured time after which the pass ends.
    time: Duration,
}

impl Limits {
    /// Returns the limits of a pass over `source`. A cold pass reads every image at most once, because the second read
    /// would come from memory.
    pub fn new(cache: PageCache, config: &InputConfig, source: &Source) -> Limits {
        let once = match cache {
            PageCache::Cold => source.whole_batches(),
            PageCache::Warm => u64::MAX,
        };
        let requested = config.batches.map_or(u64::MAX, u64::from);
        let warmup = u64::from(config.warmup).min(once - 1);
        let time = config.batches.map_or(Duration::from_secs(config.seconds.into()), |_| Duration::MAX);
        Limits { warmup, batches: requested.min(once - warmup), time }
    }

    /// Returns true if another batch is to be measured; at least one is.
    fn is_unfinished(&self, batches: usize, elapsed: Duration) -> bool {
        batches == 0 || ((batches as u64) < self.batches && elapsed < self.time)
    }
}

/// Measures the batches of the loader that `start` creates.
///
/// # Errors
///
/// Fails if an undecodable image ends the run.
pub fn measure(
    start: impl FnOnce() -> Result<Loader>,
    limits: Limits,
    mut tracer: Option<&mut Tracer>,
) -> Result<HostPass> {
    let fetched = page_cache::fetched();
    let mut loader = start()?;
    let mut number = 0;
    let mut next = |loader: &mut Loader| -> Result<u64> {
        number += 1;
        heartbeat::enter_in(number, Stage::Data);
        let batch = loader.next_batch()?;
        let skipped = batch.skipped.len() as u64;
        loader.recycle(batch);
        heartbeat::count_progress();
        Ok(skipped)
    };
    for _ in 0..limits.warmup {
        next(&mut loader)?;
    }
    let before = loader.times();
    let start = Instant::now();
    let (mut last, mut batches, mut skipped) = (start, Vec::new(), 0);
    while limits.is_unfinished(batches.len(), last - start) {
        if let Some(tracer) = &mut tracer {
            tracer.begin_iteration(batches.len() as u32 + 1)?;
        }
        let span = recorder::begin(Lane::Step, "wait for a batch", None);
        skipped += next(&mut loader)?;
        span.into_iter().for_each(OpenSpan::end);
        recorder::end_iteration();
        let now = Instant::now();
        let time = Seconds((now - last).as_secs_f64());
        heartbeat::time_iteration(time, Some(time));
        batches.push(time);
        last = now;
    }
    let (after, fetched_after) = (loader.times(), page_cache::fetched());
    let bytes = after.bytes - before.bytes;
    let share = fetched.zip(fetched_after).map(|(before, now)| (now.0 - before.0) as f64 / after.bytes.max(1) as f64);
    let elapsed = |before: Duration, after: Duration| Seconds((after - before).as_secs_f64());
    Ok(HostPass {
        batches,
        images: after.samples - before.samples,
        skipped,
        bytes: Bytes(bytes),
        from_disk: share.map(|share| Bytes((bytes as f64 * share.min(1.0)) as u64)),
        read: elapsed(before.read, after.read),
        decode: elapsed(before.decode, after.decode),
        augment: elapsed(before.augment, after.augment),
        collate: elapsed(before.collate, after.collate),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pass_ends_by_batches_or_time_after_at_least_one() {
        let limits = Limits { warmup: 0, batches: 3, time: Duration::from_secs(10) };
        assert!(limits.is_unfinished(0, Duration::from_secs(99)));
        assert!(limits.is_unfinished(2, Duration::from_secs(9)));
        assert!(!limits.is_unfinished(3, Duration::ZERO));
        assert!(!limits.is_unfinished(1, Duration::from_secs(10)));
    }
}
