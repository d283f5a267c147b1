//! One image from its file's bytes to its place in the batch, in the two stages that are timed. A thread has its own.

use anyhow::Result;
use ringmark_core::dimension::{DecoderChoice, ImageLimits, Scaling};

use crate::augment::{Augmenter, Generator, Plan, Recipe};
use crate::decode::{self, Decoder, Pixels};

/// Decodes and augments images, one after the other, in memory that it keeps.
pub struct ImagePipeline {
    decoder: Decoder,
    pixels: Pixels,
    augmenter: Augmenter,
    limits: ImageLimits,
}

impl ImagePipeline {
    /// # Errors
    ///
    /// As [`Decoder::new`].
    pub fn new(decoder: DecoderChoice, scaling: Scaling, limits: ImageLimits) -> Result<ImagePipeline> {
        let decoder = Decoder::new(decoder, scaling)?;
        Ok(ImagePipeline { decoder, pixels: Pixels::default(), augmenter: Augmenter::default(), limits })
    }

    /// The decoder that it has, for its name.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// The first stage: draws what is done to the image of `file`, and decodes what that needs.
    ///
    /// # Errors
    ///
    /// Where the file is no image that can be decoded whole, or a step of the plan is beyond the limits.
    pub fn decode(&mut self, file: &[u8], recipe: &Recipe, generator: &mut Generator) -> Result<Plan> {
        let header = decode::header(file, &self.limits)?;
        let plan = recipe.plan(header.size(), generator);
        plan.check(&self.limits)?;
        self.decoder.decode(file, &header, plan.wanted(), &mut self.pixels)?;
        Ok(plan)
    }

    /// The second: fills `slot` with what the plan makes of the image that was decoded last.
    ///
    /// # Errors
    ///
    /// Where `slot` has not the plan's size.
    pub fn augment(&mut self, plan: &Plan, slot: &mut [u8]) -> Result<()> {
        self.augmenter.apply(plan, &self.pixels, slot)
    }
}
