//! The memory that a rank takes on the CPU, by network and batch.

use crate::dimension::{Bytes, Dtype, Layout};

/// Memory of a rank on the CPU at its peak, for images of the network's own size in nhwc: a line above what was measured,
/// and within half of it, for batch sizes 8, 16 and 32. Measured is `peak_memory` in the record of `ringmark-worker train
/// --device cpu --threads 1 --iters 3 --warmup 1 --model M --dtype T --batch-size N`; `score` likewise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankMemory {
    /// Program, libraries, weights; of training also gradients, momentum and buckets.
    pub fixed: Bytes,
    /// What an image of the batch adds where activations have 32 bits.
    pub of_image: Bytes,
    /// The same under autocast to 16 bits.
    pub of_half_image: Bytes,
}

impl RankMemory {
    /// In MB (1e6 bytes).
    pub const fn megabytes(fixed: u64, of_image: u64, of_half_image: u64) -> RankMemory {
        RankMemory::of_small_images(fixed, 1000 * of_image, 1000 * of_half_image)
    }

    /// What is fixed in MB, of an image in kB (1e3 bytes).
    pub const fn of_small_images(fixed: u64, of_image: u64, of_half_image: u64) -> RankMemory {
        RankMemory {
            fixed: Bytes(fixed * 1_000_000),
            of_image: Bytes(of_image * 1000),
            of_half_image: Bytes(of_half_image * 1000),
        }
    }
}

/// Memory of a rank whose precision, layout and image size are known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchMemory {
    /// Without an image.
    pub fixed: Bytes,
    /// Of each image of its batch.
    pub of_image: Bytes,
}

impl RankMemory {
    /// With images of so many times the pixels of the network's own, with which activations grow.
    pub fn at(&self, dtype: Dtype, layout: Layout, pixels_ratio: f64) -> BatchMemory {
        let of_image = match dtype {
            Dtype::Fp32 | Dtype::Tf32 => self.of_image,
            Dtype::Fp16 | Dtype::Bf16 => self.of_half_image,
        };
        // Convolutions of contiguous images copy them to the other layout and back.
        let of_layout = match layout {
            Layout::Nhwc => 1.0,
            Layout::Nchw => 1.3,
        };
        let of_image = of_image.0 as f64 * of_layout * pixels_ratio;
        BatchMemory { fixed: self.fixed, of_image: Bytes(of_image as u64) }
    }
}

impl BatchMemory {
    /// With so many images.
    pub fn of_batch(&self, images: u32) -> Bytes {
        Bytes(self.fixed.0 + self.of_image.0 * u64::from(images))
    }

    /// Most images that it is enough for; 0 where it is not enough for one.
    pub fn largest_batch(&self, available: Bytes) -> u32 {
        let images = available.0.saturating_sub(self.fixed.0) / self.of_image.0.max(1);
        u32::try_from(images).unwrap_or(u32::MAX)
    }
}
