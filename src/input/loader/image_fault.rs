//! Reason why an image of a batch is missing.

use anyhow::Error;
use ringmark_core::dimension::OverLimit;

/// Reason why an image is missing.
pub(super) enum ImageFault {
    /// This image is damaged; the others are not affected.
    Image(Error),
    /// The data cannot be read or does not suit the network, which may affect every image.
    Data(Error),
}

impl ImageFault {
    /// Classifies a failed read: an item beyond the limits does not affect the others.
    pub(super) fn from_read(error: Error) -> ImageFault {
        if error.is::<OverLimit>() { ImageFault::Image(error) } else { ImageFault::Data(error) }
    }
}
