//! What one host did with one number of threads, and the rates that follow. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::input::config::PageCache;
use crate::dimension::{Bytes, ImagesPerSecond, Seconds};

/// Share of the stored bytes that came from the disk, from which a pass was cold. Not all of it: pages that the pass before
/// it was still reading stay, and the last batch of an epoch is filled up with images that were read.
pub const COLD_SHARE: f64 = 0.9;

/// The same up to which a pass was warm: a folder's own pages, and what others drove out of memory.
pub const WARM_SHARE: f64 = 0.1;

/// All hosts at once with one number of threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InputPass {
    /// What it was to be; [`HostPass::cache`] says what it was.
    pub cache: PageCache,
    /// Threads of each host.
    pub threads: u32,
    /// By rank, one a host.
    pub hosts: Vec<HostPass>,
}

/// One host, over the measured batches alone.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct HostPass {
    /// From the batch before it to each batch.
    pub batches: Vec<Seconds>,
    /// Images that were read and decoded meanwhile, those ahead included.
    pub images: u64,
    /// Of them, those that were none and skipped, in the batches that were taken.
    pub skipped: u64,
    /// Bytes of these images as they are stored.
    pub bytes: Bytes,
    /// Of these bytes, those that this process had the kernel fetch from a disk or a file server: by the share of all that the
    /// pass read, warm-up included, because the kernel reads ahead. `None` where the kernel does not say.
    pub from_disk: Option<Bytes>,
    /// Reading, over all threads.
    pub read: Seconds,
    /// Pixels from bytes, over all threads.
    pub decode: Seconds,
    /// Crop, size and colours into the batch, over all threads.
    pub augment: Seconds,
    /// Images put together as a batch.
    pub collate: Seconds,
}

impl HostPass {
    /// Of all batches.
    pub fn elapsed(&self) -> f64 {
        self.batches.iter().map(|batch| batch.0).sum()
    }

    /// `batches x batch size / their time`; `None` without a batch.
    pub fn speed(&self, batch_size: u32) -> Option<ImagesPerSecond> {
        let elapsed = self.elapsed();
        (elapsed > 0.0).then(|| ImagesPerSecond(self.batches.len() as f64 * f64::from(batch_size) / elapsed))
    }

    /// Stored bytes a second, in MB/s.
    pub fn megabytes_per_second(&self) -> Option<f64> {
        let elapsed = self.elapsed();
        (elapsed > 0.0).then(|| self.bytes.0 as f64 / 1e6 / elapsed)
    }

    /// Bytes from the disk over stored bytes, at most 1.
    pub fn disk_share(&self) -> Option<f64> {
        let from_disk = self.from_disk?.0 as f64;
        (self.bytes.0 > 0).then(|| (from_disk / self.bytes.0 as f64).min(1.0))
    }

    /// Where the bytes came from, by [`disk_share`](Self::disk_share): `None` where it was both, or nobody knows.
    pub fn cache(&self) -> Option<PageCache> {
        match self.disk_share()? {
            share if share >= COLD_SHARE => Some(PageCache::Cold),
            share if share <= WARM_SHARE => Some(PageCache::Warm),
            _ => None,
        }
    }

    /// Time of one thread for an image: read, decode, augment, collate, in seconds.
    pub fn stages(&self) -> [f64; 4] {
        let images = self.images.max(1) as f64;
        [self.read, self.decode, self.augment, self.collate].map(|stage| stage.0 / images)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_batches_and_stages_of_images() {
        let pass = HostPass {
            batches: vec![Seconds(0.5), Seconds(1.5)],
            images: 100,
            bytes: Bytes(10_000_000),
            from_disk: Some(Bytes(2_000_000)),
            decode: Seconds(0.4),
            ..HostPass::default()
        };
        assert_eq!(pass.speed(32), Some(ImagesPerSecond(32.0)));
        assert_eq!(pass.megabytes_per_second(), Some(5.0));
        assert_eq!(pass.stages(), [0.0, 0.004, 0.0, 0.0]);
        assert_eq!(HostPass::default().speed(32), None);
    }

    #[test]
    fn cold_is_what_came_from_the_disk_and_nothing_else() {
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
