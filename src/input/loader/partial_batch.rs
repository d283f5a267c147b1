//! A batch whose images are being decoded.

use anyhow::{Context, Error, Result};
use bytes::BytesMut;
use ringmark_core::dimension::BadImage;

use crate::loader::image_fault::ImageFault;

/// Pixels and labels of one step.
#[derive(Debug)]
pub struct ImageBatch {
    /// Step, counted over all epochs.
    pub step: u64,
    /// Pixels as u8, `[images, height, width, channels]`.
    pub pixels: BytesMut,
    /// Class of each image.
    pub labels: Vec<i64>,
    /// Number of images that count; the rest fill up the last batch of an epoch.
    pub counted: u64,
    /// Errors of damaged images, each replaced by another image of the batch.
    pub skipped: Vec<Error>,
}

/// A batch in progress.
pub(super) struct PartialBatch {
    pub(super) step: u64,
    counted: u64,
    /// Memory of the images that no thread has taken yet.
    rest: BytesMut,
    taken: u64,
    made: Vec<Option<(BytesMut, Result<i64, ImageFault>)>>,
    missing: u64,
}

impl PartialBatch {
    pub(super) fn new(step: u64, counted: u64, samples: u64, memory: BytesMut) -> PartialBatch {
        let made = (0..samples).map(|_| None).collect();
        PartialBatch { step, counted, rest: memory, taken: 0, made, missing: samples }
    }

    /// Returns the number and the memory (`bytes` long) of the next image; `None` if all are taken.
    pub(super) fn take(&mut self, bytes: usize) -> Option<(u64, BytesMut)> {
        (self.taken < self.made.len() as u64).then(|| {
            self.taken += 1;
            (self.taken - 1, self.rest.split_to(bytes))
        })
    }

    /// Stores an image with its class or its error. Returns true if the batch is complete.
    pub(super) fn put(&mut self, slot: u64, place: BytesMut, label: Result<i64, ImageFault>) -> bool {
        self.made[slot as usize] = Some((place, label));
        self.missing -= 1;
        self.is_whole()
    }

    pub(super) fn is_whole(&self) -> bool {
        self.missing == 0
    }

    /// Joins the images, which are contiguous in memory: nothing is copied except the next good image in place of a
    /// damaged one.
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
        let samples = labels.len();
        for bad in 0..samples {
            if labels[bad].is_none() {
                let good = (1..samples).map(|next| (bad + next) % samples).find(|other| labels[*other].is_some());
                let good = good.with_context(|| {
                    let first = skipped.first().map(|error| format!("{error:#}")).unwrap_or_default();
                    format!("none of the {samples} images of step {step} can be decoded; the first: {first}")
                })?;
                pixels.copy_within(good * bytes..(good + 1) * bytes, bad * bytes);
                labels[bad] = labels[good];
            }
        }
        Ok(ImageBatch { step, pixels, labels: labels.into_iter().flatten().collect(), counted, skipped })
    }
}
