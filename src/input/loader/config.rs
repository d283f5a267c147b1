//! Settings of the loader.

use ringmark_core::dimension::{BadImage, DecoderChoice, ImageLimits, Scaling};

use crate::augment::Recipe;

/// Settings of the loader.
#[derive(Debug, Clone, Copy)]
pub struct LoaderConfig {
    /// Augmentation of each image.
    pub recipe: Recipe,
    /// Seed of the random augmentations.
    pub seed: u64,
    /// 3 for RGB, 1 for grayscale.
    pub channels: u32,
    /// Tokens of an item; `None` for images.
    pub tokens: Option<u32>,
    /// Number of classes, or of tokens of the vocabulary; labels and tokens must be less than it.
    pub classes: u32,
    /// Images or windows of tokens per batch.
    pub samples: u64,
    /// JPEG decoder.
    pub decoder: DecoderChoice,
    /// Scaling of JPEG files during decoding.
    pub scaling: Scaling,
    /// Number of decoder threads.
    pub threads: usize,
    /// Number of batches prepared in advance.
    pub ahead: usize,
    /// Treatment of a damaged image.
    pub on_bad_image: BadImage,
    /// Limits of an image.
    pub limits: ImageLimits,
}

impl LoaderConfig {
    /// Returns the size of an item in a batch, in bytes.
    pub fn item_bytes(&self) -> usize {
        match self.tokens {
            Some(tokens) => size_of::<i64>() * tokens as usize,
            None => self.channels as usize * self.recipe.size * self.recipe.size,
        }
    }
}
