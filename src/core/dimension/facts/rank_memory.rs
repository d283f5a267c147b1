//! Memory of a rank on the CPU, by network and batch.

use crate::dimension::{Bytes, Dtype, Layout};

/// Peak memory of a rank on the CPU, for images or sequences of the network's default size in nhwc: an upper bound,
/// linear in the batch, that exceeds the measured value by at most 50 % for batch sizes 8, 16 and 32. The measured value
/// is `peak_memory` in the record of `ringmark-worker train --device cpu --threads 1 --iters 3 --warmup 1 --model M
/// --dtype T --batch-size N`, and likewise of `score`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankMemory {
    /// Program, libraries and weights; for training also gradients, momentum and buckets.
    pub fixed: Bytes,
    /// Memory per image of the batch with 32-bit activations.
    pub of_sample: Bytes,
    /// Memory per image of the batch under autocast to 16 bits.
    pub of_half_sample: Bytes,
}

impl RankMemory {
    /// Memory of the program and its libraries.
    pub const PROGRAM: Bytes = Bytes(700_000_000);

    /// Creates a value from MB (1e6 bytes).
    pub const fn megabytes(fixed: u64, of_sample: u64, of_half_sample: u64) -> RankMemory {
        RankMemory::for_small_images(fixed, 1000 * of_sample, 1000 * of_half_sample)
    }

    /// Creates a value from `fixed` in MB and the memory per image in kB (1e3 bytes).
    pub const fn for_small_images(fixed: u64, of_sample: u64, of_half_sample: u64) -> RankMemory {
        RankMemory {
            fixed: Bytes(fixed * 1_000_000),
            of_sample: Bytes(of_sample * 1000),
            of_half_sample: Bytes(of_half_sample * 1000),
        }
    }
}

/// Memory of a rank with known precision, layout and image size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchMemory {
    /// Memory without images.
    pub fixed: Bytes,
    /// Memory per image of the batch.
    pub of_sample: Bytes,
}

impl RankMemory {
    /// Returns the memory for images with `pixels_ratio` times the default number of pixels, to which activations are
    /// proportional.
    pub fn at(&self, dtype: Dtype, layout: Layout, pixels_ratio: f64) -> BatchMemory {
        let of_sample = match dtype {
            Dtype::Fp32 | Dtype::Tf32 => self.of_sample,
            Dtype::Fp16 | Dtype::Bf16 => self.of_half_sample,
        };
        // Convolutions copy contiguous (nchw) images to the other layout and back.
        let of_layout = match layout {
            Layout::Nhwc => 1.0,
            Layout::Nchw => 1.3,
        };
        let of_sample = of_sample.0 as f64 * of_layout * pixels_ratio;
        BatchMemory { fixed: self.fixed, of_sample: Bytes(of_sample as u64) }
    }
}

impl BatchMemory {
    /// Returns the memory for a batch of `samples`.
    pub fn for_batch(&self, samples: u32) -> Bytes {
        Bytes(self.fixed.0 + self.of_sample.0 * u64::from(samples))
    }

    /// Returns the largest batch that fits into `available`; 0 if not even one image does.
    pub fn largest_batch(&self, available: Bytes) -> u32 {
        let images = available.0.saturating_sub(self.fixed.0) / self.of_sample.0.max(1);
        u32::try_from(images).unwrap_or(u32::MAX)
    }
}
