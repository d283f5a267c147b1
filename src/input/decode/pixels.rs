//! Sizes of images, and where their pixels go.

use anyhow::{Result, bail};

/// More pixels than this are refused before memory is taken: 256 MiB of RGB, where Pillow begins to warn of a
/// "decompression bomb". The largest image of ImageNet has 12 million.
pub const MAX_PIXELS: usize = 89_478_485;

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

    /// Whether it is decoded at all.
    pub(super) fn check(self) -> Result<()> {
        let Size { width, height } = self;
        match width.checked_mul(height) {
            Some(0) => bail!("its header names {width} x {height} pixels"),
            Some(pixels) if pixels <= MAX_PIXELS => Ok(()),
            _ => bail!("its header names {width} x {height} pixels, and more than {MAX_PIXELS} are not decoded"),
        }
    }
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
