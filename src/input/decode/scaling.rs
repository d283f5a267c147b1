//! Scale at which a JPEG is decoded: at one half, the inverse DCT produces 4 x 4 pixels from each 8 x 8.

use super::pixels::Size;

/// Resolution that an output needs: a region of the image, and the size to which it is resized.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RequiredSize {
    /// Width and height of the region, in pixels of the stored image.
    pub part: [f64; 2],
    /// Width and height of the output in pixels.
    pub output: [usize; 2],
}

/// Scale of an image, at most 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fraction {
    numerator: usize,
    denominator: usize,
}

impl Fraction {
    /// Creates a fraction; `None` if it would enlarge the image.
    pub fn new(numerator: usize, denominator: usize) -> Option<Fraction> {
        (numerator > 0 && numerator <= denominator).then_some(Fraction { numerator, denominator })
    }

    /// TurboJPEG's TJSCALED: rounds up.
    fn scale(self, size: Size) -> Size {
        let edge = |edge: usize| (edge * self.numerator).div_ceil(self.denominator);
        Size { width: edge(size.width), height: edge(size.height) }
    }
}

/// Returns the smallest size at which the region still has at least one pixel for each pixel of the output, in both
/// dimensions; the original size if the output is larger than the region.
pub fn smallest(size: Size, wanted: RequiredSize, fractions: &[Fraction]) -> Size {
    let is_enough = |scaled: Size| {
        let [width, height] = wanted.part;
        let [wide, high] = wanted.output;
        width * scaled.width as f64 >= (wide * size.width) as f64
            && height * scaled.height as f64 >= (high * size.height) as f64
    };
    let sizes = fractions.iter().map(|fraction| fraction.scale(size)).filter(|scaled| is_enough(*scaled));
    sizes.min_by_key(|scaled| scaled.pixels()).unwrap_or(size)
}
