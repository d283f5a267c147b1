//! Applies a plan to the pixels of an image.

use anyhow::{Result, ensure};

use super::plan::{Geometry, Plan};
use super::warp;
use crate::decode::{ImageViewMut, Pixels, Size};
use crate::resize::{Region, Resizer};

/// Applies plans, reusing its buffers for the next image. Each thread has its own.
#[derive(Debug, Default)]
pub struct Augmenter {
    resizer: Resizer,
    resized: Pixels,
    columns: Vec<[i32; 2]>,
}

impl Augmenter {
    /// Fills `slot`, the image's place in the batch (height, width, RGB; one byte per channel), from `pixels`, the
    /// stored image or a smaller version of it.
    ///
    /// # Errors
    ///
    /// Fails if `slot` does not have the plan's size.
    pub fn apply(&mut self, plan: &Plan, pixels: &Pixels, slot: &mut [u8]) -> Result<()> {
        let edge = plan.size;
        ensure!(slot.len() == 3 * edge * edge, "an image of {edge} x {edge} pixels does not fill {} bytes", slot.len());
        let source = pixels.view();
        match &plan.geometry {
            Geometry::Region(part) => {
                let part = part.scaled(plan.image, pixels.size());
                let size = Size { width: edge, height: edge };
                let output = ImageViewMut { rgb: &mut *slot, size };
                self.resizer.resize(source, part, plan.interpolation, output)?;
            }
            Geometry::Warp { resized, distortion, left, top } => {
                let source = if pixels.size() == *resized {
                    source
                } else {
                    let output = ImageViewMut { rgb: self.resized.reset(*resized), size: *resized };
                    self.resizer.resize(source, Region::whole(source.size), plan.interpolation, output)?;
                    self.resized.view()
                };
                warp::warp(source, distortion, [*left, *top], &mut *slot, edge, &mut self.columns);
            }
        }
        if let Some(shift) = &plan.colors {
            shift.apply(slot);
        }
        if plan.is_mirrored {
            for row in slot.chunks_exact_mut(3 * edge) {
                row.as_chunks_mut::<3>().0.reverse();
            }
        }
        Ok(())
    }
}
