//! Measurements of one host with a given number of threads, and the rates derived from them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::input::config::PageCache;
use crate::dimension::{Bytes, Seconds, UnitsPerSecond};

/// Minimum share of stored bytes read from disk for a pass to count as cold. Less than 1 because pages that the
/// previous pass was still reading stay cached, and the last batch of an epoch is filled up with images that were
/// already read.
pub const COLD_SHARE: f64 = 0.9;

/// Maximum share of stored bytes read from disk for a pass to count as warm. Above 0 because of the folder's own pages
/// and of pages that other processes evicted.
pub const WARM_SHARE: f64 = 0.1;

/// One pass of all hosts with a given number of threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InputPass {
    /// Requested state of the cache; [`HostPass::cache`] returns the observed one.
    pub cache: PageCache,
    /// Threads per host.
    pub threads: u32,
    /// Measurements by rank, one rank per host.
    pub hosts: Vec<HostPass>,
}

impl InputPass {
    /// Returns true if every host read its images from where they were requested.
    pub fn is_as_requested(&self) -> bool {
        self.hosts.iter().all(|host| host.cache() == Some(self.cache))
    }
}

/// Measurements of one host, over the measured batches only.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct HostPass {
    /// Time from the previous batch to each batch.
    pub batches: Vec<Seconds>,
    /// Images read and decoded meanwhile, including prefetched ones.
    pub images: u64,
    /// Files in the consumed batches that are not images and were skipped; counted in `images`.
    pub skipped: u64,
    /// Stored size of these images.
    pub bytes: Bytes,
    /// Stored bytes that the kernel fetched for this process from a disk or file server. Estimated from the share over
    /// the whole pass, warm-up included, because the kernel reads ahead. `None` if the kernel does not report it.
    pub from_disk: Option<Bytes>,
    /// Time spent reading, summed over threads.
    pub read: Seconds,
    /// Time spent decoding bytes to pixels, summed over threads.
    pub decode: Seconds,
    /// Time spent on crop, resize and color changes, summed over threads.
    pub augment: Seconds,
    /// Time spent assembling batches.
    pub collate: Seconds,
}

impl HostPass {
    /// Returns the total time of all batches, in seconds.
    pub fn elapsed(&self) -> f64 {
        self.batches.iter().map(|batch| batch.0).sum()
    }

    /// Returns `batches x batch size / elapsed time`; `None` if there are no batches.
    pub fn speed(&self, batch_size: u32) -> Option<UnitsPerSecond> {
        let elapsed = self.elapsed();
        (elapsed > 0.0).then(|| UnitsPerSecond(self.batches.len() as f64 * f64::from(batch_size) / elapsed))
    }

    /// Returns stored bytes per second, in MB/s.
    pub fn megabytes_per_second(&self) -> Option<f64> {
        let elapsed = self.elapsed();
        (elapsed > 0.0).then(|| self.bytes.0 as f64 / 1e6 / elapsed)
    }

    /// Returns bytes from disk divided by stored bytes, at most 1.
    pub fn disk_share(&self) -> Option<f64> {
        let from_disk = self.from_disk?.0 as f64;
        (self.bytes.0 > 0).then(|| (from_disk / self.bytes.0 as f64).min(1.0))
    }

    /// Returns the observed state of the cache by [`disk_share`](Self::disk_share); `None` if mixed or unknown.
    pub fn cache(&self) -> Option<PageCache> {
        match self.disk_share()? {
            share if share >= COLD_SHARE => Some(PageCache::Cold),
            share if share <= WARM_SHARE => Some(PageCache::Warm),
            _ => None,
        }
    }

    /// Returns one thread's time per image for read, decode, augment and collate, in seconds.
    pub fn stages(&self) -> [f64; 4] {
        let images = self.images.max(1) as f64;
        [self.read, self.decode, self.augment, self.collate].map(|stage| stage.0 / images)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_count_batches_and_stages_count_images() {
        let pass = HostPass {
            batches: vec![Seconds(0.5), Seconds(1.5)],
            images: 100,
            bytes: Bytes(10_000_000),
            from_disk: Some(Bytes(2_000_000)),
            decode: Seconds(0.4),
            ..HostPass::default()
        };
        assert_eq!(pass.speed(32), Some(UnitsPerSecond(32.0)));
        assert_eq!(pass.megabytes_per_second(), Some(5.0));
        assert_eq!(pass.stages(), [0.0, 0.004, 0.0, 0.0]);
        assert_eq!(HostPass::default().speed(32), None);
    }

    #[test]
    fn cold_pass_needs_bytes_from_disk() {
        let cache = |from_disk: Option<u64>| {
            let from_disk = from_disk.map(Bytes);
            HostPass { bytes: Bytes(1000), from_disk, ..HostPass::default() }.cache()
        };
        assert_eq!(cache(Some(900)), Some(PageCache::Cold));
        assert_eq!(cache(Some(5000)), Some(PageCache::Cold), "read ahead");
        assert_eq!(cache(Some(0)), Some(PageCache::Warm));
        assert_eq!(cache(Some(100)), Some(PageCache::Warm));
        assert_eq!((cache(Some(500)), cache(None)), (None, None));
    }
}
