//! Stages of an image: when a thread did each, and time by stage.

use std::ops::AddAssign;
use std::time::{Duration, Instant};

/// What is done to an image, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageStage {
    /// Bytes from files.
    Read,
    /// Pixels from bytes.
    Decode,
    /// Crop, size and colours, into the batch.
    Augment,
}

/// A stage of one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageSpan {
    /// Which one.
    pub stage: ImageStage,
    /// From.
    pub begin: Instant,
    /// To.
    pub end: Instant,
}

/// Hears from thread number so much what it did to an image; called by that thread.
pub type Observer = fn(u32, &[StageSpan]);

/// Times of the stages, summed over all threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StageTimes {
    /// Bytes from files.
    pub read: Duration,
    /// Pixels from bytes.
    pub decode: Duration,
    /// Crop, size and colours, into the batch.
    pub augment: Duration,
    /// Images put together as a batch, by whoever takes it.
    pub collate: Duration,
    /// Images that were read.
    pub images: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl AddAssign for StageTimes {
    fn add_assign(&mut self, other: StageTimes) {
        self.read += other.read;
        self.decode += other.decode;
        self.augment += other.augment;
        self.collate += other.collate;
        self.images += other.images;
        self.bytes += other.bytes;
    }
}
