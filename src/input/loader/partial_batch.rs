//! A batch while its images are made, and when it is whole.

use anyhow::{Context, Error, Result};
use bytes::BytesMut;
use ringmark_core::dimension::BadImage;

use crate::loader::image_fault::ImageFault;

/// Pixels and labels of one step.
#[derive(Debug)]
pub struct ImageBatch {
    /// Counted over all epochs.
    pub step: u64,
    /// u8, `[images, height, width, channels]`.
    pub pixels: BytesMut,
    /// The class of every image.
    pub labels: Vec<i64>,
    /// The first images that are none of those an epoch's last batch is filled up with.
    pub counted: u64,
    /// Images that were none, each in whose place another of the batch stands.
    pub skipped: Vec<Error>,
}

/// A batch whose images are made, or are still to be.
pub(super) struct PartialBatch {
    pub(super) step: u64,
    counted: u64,
    /// What nobody took yet, from the first such image on.
    rest: BytesMut,
    taken: u64,
    made: Vec<Option<(BytesMut, Result<i64, ImageFault>)>>,
    missing: u64,
}

impl PartialBatch {
    pub(super) fn new(step: u64, counted: u64, images: u64, memory: BytesMut) -> PartialBatch {
        let made = (0..images).map(|_| None).collect();
        PartialBatch { step, counted, rest: memory, taken: 0, made, missing: images }
    }

    /// The number and the place of the next image, of so many bytes; `None` where all are taken.
    pub(super) fn take(&mut self, bytes: usize) -> Option<(u64, BytesMut)> {
        (self.taken < self.made.len() as u64).then(|| {
            self.taken += 1;
            (self.taken - 1, self.rest.split_to(bytes))
        })
    }

    /// Keeps an image, with its class or what is wrong with it; whether it was the last one.
    pub(super) fn put(&mut self, slot: u64, place: BytesMut, label: Result<i64, ImageFault>) -> bool {
        self.made[slot as usize] = Some((place, label));
        self.missing -= 1;
        self.is_whole()
    }

    pub(super) fn is_whole(&self) -> bool {
        self.missing == 0
    }

    /// Puts the images together, which lie side by side: nothing is copied but what stands in for a bad one, the next good
    /// image of the batch.
    pub(super) fn finish(self, bytes: usize, on_bad_image: BadImage) -> Result<ImageBatch> {
        let PartialBatch { step, counted, made, .. } = self;
        let (mut pixels, mut labels, mut skipped) = (BytesMut::new(), Vec::with_capacity(made.len()), Vec::new());
        for (place, label) in made.into_iter().flatten() {
            pixels.unsplit(place);
            labels.push(match label {
                Ok(label) => Some(label),
                Err(ImageFault::Image(error)) if on_bad_image == BadImage::Skip => {
                    skipped.push(error);
                    None
                }
                Err(ImageFault::Image(error) | ImageFault::Data(error)) => return Err(error),
            });
        }
        let images = labels.len();
        for bad in 0..images {
            if labels[bad].is_none() {
                let good = (1..images).map(|next| (bad + next) % images).find(|other| labels[*other].is_some());
                let good = good.with_context(|| {
                    let first = skipped.first().map(|error| format!("{error:#}")).unwrap_or_default();
                    format!("none of the {images} images of step {step} is one; the first: {first}")
                })?;
                pixels.copy_within(good * bytes..(good + 1) * bytes, bad * bytes);
                labels[bad] = labels[good];
            }
        }
        Ok(ImageBatch { step, pixels, labels: labels.into_iter().flatten().collect(), counted, skipped })
    }
}
