//! Processes one image from the bytes of its file to its place in the batch, in two stages that are timed separately.

use anyhow::Result;
use ringmark_core::dimension::{DecoderChoice, ImageLimits, Scaling};

use crate::augment::{Augmenter, Generator, Plan, Recipe};
use crate::decode::{self, Decoder, Pixels};

/// Decodes and augments images one after the other, reusing its buffers. Each thread has its own.
pub struct ImagePipeline {
    decoder: Decoder,
    pixels: Pixels,
    augmenter: Augmenter,
    limits: ImageLimits,
}

impl ImagePipeline {
    /// Creates a pipeline.
    ///
    /// # Errors
    ///
    /// As for [`Decoder::new`].
    pub fn new(decoder: DecoderChoice, scaling: Scaling, limits: ImageLimits) -> Result<ImagePipeline> {
        let decoder = Decoder::new(decoder, scaling)?;
        Ok(ImagePipeline { decoder, pixels: Pixels::default(), augmenter: Augmenter::default(), limits })
    }

    /// Returns the decoder.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// First stage: draws the plan for the image in `file`, and decodes it at the resolution that the plan needs.
    ///
    /// # Errors
    ///
    /// Fails if the file is not a complete image of a supported kind, or a step of the plan exceeds the limits.
    pub fn decode(&mut self, file: &[u8], recipe: &Recipe, generator: &mut Generator) -> Result<Plan> {
        let header = decode::header(file, &self.limits)?;
        let plan = recipe.plan(header.size(), generator);
        plan.check(&self.limits)?;
        self.decoder.decode(file, &header, plan.wanted(), &mut self.pixels)?;
        Ok(plan)
    }

    /// Second stage: fills `slot` by applying the plan to the image that was decoded last.
    ///
    /// # Errors
    ///
    /// Fails if `slot` does not have the plan's size.
    pub fn augment(&mut self, plan: &Plan, slot: &mut [u8]) -> Result<()> {
        self.augmenter.apply(plan, &self.pixels, slot)
    }
}
