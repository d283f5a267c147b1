//! Sizes of images, and where their pixels go.

use anyhow::{Result, ensure};
use ringmark_core::dimension::{ImageLimit, ImageLimits};

/// Width and height in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Pixels of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Size {
    /// Pixels in all.
    pub fn pixels(self) -> usize {
        self.width * self.height
    }

    /// The shorter of both edges.
    pub fn shorter(self) -> usize {
        self.width.min(self.height)
    }

    /// Refuses an image without pixels, and one beyond the limits; `what` names it before its size.
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
    /// Three bytes a pixel, row by row.
    pub rgb: &'a [u8],
    /// Size in pixels.
    pub size: Size,
}

/// Memory of an RGB image that is written.
#[derive(Debug)]
pub struct ImageViewMut<'a> {
    /// Three bytes a pixel, row by row.
    pub rgb: &'a mut [u8],
    /// Size in pixels.
    pub size: Size,
}

/// Pixels of an image, RGB, rows without gaps. Memory for the largest so far is kept.
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
    /// Of the image that was decoded last.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Three bytes a pixel.
    pub fn rgb(&self) -> &[u8] {
        &self.bytes[..3 * self.size.pixels()]
    }

    /// Returns the image.
    pub fn view(&self) -> ImageView<'_> {
        ImageView { rgb: self.rgb(), size: self.size }
    }

    /// Room for an image; what it holds is of no account.
    pub fn reset(&mut self, size: Size) -> &mut [u8] {
        self.room(size, 3)
    }

    /// Room for an image of at least three bytes a pixel, whose first three per pixel will be the image.
    pub(super) fn room(&mut self, size: Size, channels: usize) -> &mut [u8] {
        self.size = size;
        let bytes = channels * size.pixels();
        if self.bytes.len() < bytes {
            self.bytes.resize(bytes, 0);
        }
        &mut self.bytes[..bytes]
    }
}
