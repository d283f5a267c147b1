//! Resizes a region of an image with one of two interpolations.
//!
//! | name | output pixel | equivalent |
//! |---|---|---|
//! | `bilinear` | interpolated between the 2 x 2 pixels around its position, even if the output is smaller | OpenCV's INTER_LINEAR |
//! | `antialias` | mean of all pixels that it covers, weighted by a triangle | Pillow's BILINEAR, torchvision's with antialias |
//!
//! If the output is larger, both are the same. Both differ from these libraries only by rounding, 1 in 255
//! (tests/golden/pixels.py).

use anyhow::{Context, Result};
use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions};
use ringmark_core::dimension::{ImageLimit, ImageLimits, Interpolation};

use crate::decode::{ImageView, ImageViewMut, Size};

/// A region of an image, in pixels from the upper left corner; fractions are allowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Region {
    /// Columns to its left.
    pub left: f64,
    /// Rows above it.
    pub top: f64,
    /// Width in pixels.
    pub width: f64,
    /// Height in pixels.
    pub height: f64,
    /// True if the region is cut out before resizing, so that pixels around it have no influence.
    pub is_cut_out: bool,
}

impl Region {
    /// Returns the region of a whole image.
    pub fn whole(size: Size) -> Region {
        Region { left: 0.0, top: 0.0, width: size.width as f64, height: size.height as f64, is_cut_out: false }
    }

    /// Returns the same region of the image at another size.
    pub fn scaled(self, from: Size, to: Size) -> Region {
        if from == to {
            return self;
        }
        let [x, y] = [to.width as f64 / from.width as f64, to.height as f64 / from.height as f64];
        Region { left: self.left * x, top: self.top * y, width: self.width * x, height: self.height * y, ..self }
    }

    /// Returns the smallest rectangle of whole pixels that contains the region: left, top, width, height.
    fn pixels(&self, size: Size) -> [u32; 4] {
        let edges = |start: f64, length: f64, limit: usize| {
            let first = (start.floor().max(0.0) as usize).min(limit - 1);
            // Rounding errors of a scaled region must not add a pixel.
            let end = ((start + length - 1e-6).ceil() as usize).clamp(first + 1, limit);
            [first as u32, (end - first) as u32]
        };
        let [left, width] = edges(self.left, self.width, size.width);
        let [top, height] = edges(self.top, self.height, size.height);
        [left, top, width, height]
    }
}

/// Checks that neither the result of resizing `part` to `output` nor the intermediate image between the vertical and
/// the horizontal pass exceeds the limit of pixels.
///
/// # Errors
///
/// Reports both sizes and the limit.
pub fn check(part: Region, output: Size, limits: &ImageLimits) -> Result<()> {
    let Region { width, height, .. } = part;
    let rows = (width.ceil() as usize).saturating_mul(output.height);
    let pixels = rows.max(output.width.saturating_mul(output.height));
    limits.check(ImageLimit::Pixels, pixels as u64, || {
        let Size { width: wide, height: high } = output;
        format!("resizing {width:.0} x {height:.0} pixels to {wide} x {high} makes {pixels} pixels")
    })
}

/// Resizes images, reusing its buffers.
#[derive(Debug, Default)]
pub struct Resizer {
    inner: fast_image_resize::Resizer,
}

impl Resizer {
    /// Resizes a region of an image to the size of the output.
    ///
    /// # Errors
    ///
    /// Fails if a buffer is too small for its size, or the region is not inside the image.
    pub fn resize(
        &mut self,
        ImageView { rgb, size }: ImageView,
        part: Region,
        interpolation: Interpolation,
        ImageViewMut { rgb: output, size: output_size }: ImageViewMut,
    ) -> Result<()> {
        let context = || format!("{part:?} of {size:?} cannot be resized to {output_size:?}");
        let algorithm = match interpolation {
            Interpolation::Bilinear => ResizeAlg::Interpolation(FilterType::Bilinear),
            Interpolation::Antialias => ResizeAlg::Convolution(FilterType::Bilinear),
        };
        // A typed image: with a dynamic type, code for all other pixel types would be compiled as well.
        let image =
            TypedImageRef::<U8x3>::from_buffer(size.width as u32, size.height as u32, rgb).with_context(context)?;
        let [width, height] = [output_size.width, output_size.height].map(|edge| edge as u32);
        let mut output = TypedImage::<U8x3>::from_buffer(width, height, output).with_context(context)?;
        let [left, top, width, height] =
            if part.is_cut_out { part.pixels(size) } else { Region::whole(size).pixels(size) };
        let image = TypedCroppedImage::from_ref(&image, left, top, width, height).with_context(context)?;
        // Rounding must not lead outside the image.
        let start = |start: f64, first: u32| (start - f64::from(first)).max(0.0);
        let (left, top) = (start(part.left, left), start(part.top, top));
        let options = ResizeOptions::new().resize_alg(algorithm).crop(
            left,
            top,
            part.width.min(f64::from(width) - left),
            part.height.min(f64::from(height) - top),
        );
        self.inner.resize_typed(&image, &mut output, &options).with_context(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cases, difference, numbers, png};

    fn resized(part: Region, interpolation: Interpolation, output_size: Size) -> Vec<u8> {
        let (source, size) = png("source.png");
        let mut output = vec![0; 3 * output_size.pixels()];
        Resizer::default()
            .resize(
                ImageView { rgb: &source, size },
                part,
                interpolation,
                ImageViewMut { rgb: &mut output, size: output_size },
            )
            .expect("inside");
        output
    }

    fn part([left, top, width, height]: [f64; 4], is_cut_out: bool) -> Region {
        Region { left, top, width, height, is_cut_out }
    }

    fn size([width, height]: [f64; 2]) -> Size {
        Size { width: width as usize, height: height as usize }
    }

    #[test]
    fn antialias_matches_pillow_bilinear() {
        for (name, is_cut_out, cases) in [("antialias", false, cases("boxes")), ("cut", true, cases("cuts"))] {
            for (number, case) in cases.iter().enumerate() {
                let part = part(numbers(&case[0]), is_cut_out);
                let output = resized(part, Interpolation::Antialias, size(numbers(&case[1])));
                let difference = difference(&output, &png(&format!("{name}_{number}.png")).0);
                assert!(difference <= 1, "{name}_{number} differs by {difference}");
            }
        }
    }

    #[test]
    fn bilinear_matches_opencv() {
        for (number, case) in cases("resizes").iter().enumerate() {
            let whole = png("source.png").1;
            let [left, top, width, height] = numbers(&case[1]);
            let part = part([left, top, width, height], false).scaled(size(numbers(&case[0])), whole);
            let output = resized(part, Interpolation::Bilinear, size([width, height]));
            let difference = difference(&output, &png(&format!("bilinear_{number}.png")).0);
            assert!(difference <= 1, "bilinear_{number} differs by {difference}");
        }
    }

    #[test]
    fn region_of_the_same_size_is_copied() {
        let (source, whole) = png("source.png");
        for interpolation in [Interpolation::Bilinear, Interpolation::Antialias] {
            let output = resized(part([3.0, 2.0, 5.0, 4.0], false), interpolation, Size { width: 5, height: 4 });
            for (row, pixels) in output.chunks(15).enumerate() {
                let start = 3 * ((2 + row) * whole.width + 3);
                assert_eq!(pixels, &source[start..start + 15]);
            }
        }
    }

    #[test]
    fn fractional_regions_at_edges_stay_inside() {
        let (_, whole) = png("source.png");
        for edge in [1usize, 2, 7, 35, 36] {
            let scaled = Size { width: 36 * 3 / 8, height: 27 * 3 / 8 };
            let part = Region::whole(whole).scaled(whole, Size { width: edge, height: edge });
            let back = part.scaled(Size { width: edge, height: edge }, whole);
            for is_cut_out in [false, true] {
                resized(Region { is_cut_out, ..back }, Interpolation::Antialias, scaled);
            }
        }
    }
}
