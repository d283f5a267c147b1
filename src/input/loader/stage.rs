//! When a thread did what, for whoever watches.

use std::time::Instant;

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
