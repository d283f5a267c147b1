//! Stages of image processing: when a thread ran each, and the total time by stage.

use std::ops::AddAssign;
use std::time::{Duration, Instant};

/// Stages of an image, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageStage {
    /// Reading of files.
    Read,
    /// Decoding.
    Decode,
    /// Cropping, resizing and color shifts, into the batch.
    Augment,
}

/// An execution of a stage for one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageSpan {
    /// Stage that was run.
    pub stage: ImageStage,
    /// Time at which the stage started.
    pub begin: Instant,
    /// Time at which the stage ended.
    pub end: Instant,
}

/// Observer of the stages, called by the thread with this number.
pub type Observer = fn(u32, &[StageSpan]);

/// Time spent in each stage, summed over all threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StageTimes {
    /// Reading of files.
    pub read: Duration,
    /// Decoding.
    pub decode: Duration,
    /// Cropping, resizing and color shifts, into the batch.
    pub augment: Duration,
    /// Assembly of batches, by their consumer.
    pub collate: Duration,
    /// Number of images read.
    pub samples: u64,
    /// Number of bytes read.
    pub bytes: u64,
}

impl AddAssign for StageTimes {
    fn add_assign(&mut self, other: StageTimes) {
        self.read += other.read;
        self.decode += other.decode;
        self.augment += other.augment;
        self.collate += other.collate;
        self.samples += other.samples;
        self.bytes += other.bytes;
    }
}
