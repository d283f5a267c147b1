//! How batches are made: what a rank is asked.

use ringmark_core::dimension::{BadImage, DecoderChoice, ImageLimits, Scaling};

use crate::augment::Recipe;

/// How batches are made.
#[derive(Debug, Clone, Copy)]
pub struct LoaderConfig {
    /// What is done to each image.
    pub recipe: Recipe,
    /// Of what is drawn for an image.
    pub seed: u64,
    /// 3 for RGB, 1 for gray.
    pub channels: u32,
    /// Labels are below it.
    pub classes: u32,
    /// Images of a batch.
    pub images: u64,
    /// Of JPEG files.
    pub decoder: DecoderChoice,
    /// Of JPEG files.
    pub scaling: Scaling,
    /// Threads that decode.
    pub threads: usize,
    /// Batches that may be ready before they are asked for.
    pub ahead: usize,
    /// What is done where an image is none.
    pub on_bad_image: BadImage,
    /// Limits of an image.
    pub limits: ImageLimits,
}

impl LoaderConfig {
    /// Bytes of an image in a batch.
    pub fn image_bytes(&self) -> usize {
        self.channels as usize * self.recipe.size * self.recipe.size
    }
}
