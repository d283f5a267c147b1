//! Reason why an image of a batch is missing.

use anyhow::Error;
use ringmark_core::dimension::OverLimit;

/// Why there is no image.
pub(super) enum ImageFault {
    /// Its bytes are none: the others are not concerned.
    Image(Error),
    /// It cannot be read, or does not suit the network: so it may be with any other.
    Data(Error),
}

impl ImageFault {
    /// Classifies a failed read: an item beyond the limits does not concern the others.
    pub(super) fn from_read(error: Error) -> ImageFault {
        if error.is::<OverLimit>() { ImageFault::Image(error) } else { ImageFault::Data(error) }
    }
}
