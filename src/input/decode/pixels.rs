//! Image sizes and pixel buffers.

use anyhow::{Result, ensure};
use ringmark_core::dimension::{ImageLimit, ImageLimits};

/// Width and height in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Pixels per row.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
}

impl Size {
    /// Returns the number of pixels.
    pub fn pixels(self) -> usize {
        self.width * self.height
    }

    /// Returns the length of the shorter edge.
    pub fn shorter(self) -> usize {
        self.width.min(self.height)
    }

    /// Fails for an image without pixels or beyond the limits; the message starts with `what` and the size.
    pub fn check(self, limits: &ImageLimits, what: &str) -> Result<()> {
        let Size { width, height } = self;
        let named = || format!("{what} {width} x {height} pixels");
        ensure!(width > 0 && height > 0, "{}", named());
        limits.check(ImageLimit::Pixels, width.saturating_mul(height) as u64, named)?;
        let aspect = width.max(height).div_ceil(width.min(height));
        limits.check(ImageLimit::Aspect, aspect as u64, || format!("{}, an aspect ratio of {aspect}", named()))
    }
}

/// An RGB image.
#[derive(Debug, Clone, Copy)]
pub struct ImageView<'a> {
    /// Three bytes per pixel, row by row.
    pub rgb: &'a [u8],
    /// Size in pixels.
    pub size: Size,
}

/// A mutable RGB image.
#[derive(Debug)]
pub struct ImageViewMut<'a> {
    /// Three bytes per pixel, row by row.
    pub rgb: &'a mut [u8],
    /// Size in pixels.
    pub size: Size,
}

/// Growable buffer of an RGB image, rows without gaps. It keeps the memory of the largest image so far.
#[derive(Debug)]
pub struct Pixels {
    bytes: Vec<u8>,
    size: Size,
}

impl Default for Pixels {
    fn default() -> Pixels {
        Pixels { bytes: Vec::new(), size: Size { width: 0, height: 0 } }
    }
}

impl Pixels {
    /// Returns the size of the current image.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Returns the pixels, three bytes each.
    pub fn rgb(&self) -> &[u8] {
        &self.bytes[..3 * self.size.pixels()]
    }

    /// Returns the image.
    pub fn view(&self) -> ImageView<'_> {
        ImageView { rgb: self.rgb(), size: self.size }
    }

    /// Resizes the buffer for an image; the contents are unspecified.
    pub fn reset(&mut self, size: Size) -> &mut [u8] {
        self.reserve(size, 3)
    }

    /// Resizes the buffer for `channels` bytes per pixel (at least three). The first three per pixel will hold the
    /// image.
    pub(super) fn reserve(&mut self, size: Size, channels: usize) -> &mut [u8] {
        self.size = size;
        let bytes = channels * size.pixels();
        if self.bytes.len() < bytes {
            self.bytes.resize(bytes, 0);
        }
        &mut self.bytes[..bytes]
    }
}
