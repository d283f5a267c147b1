//! At what fraction of its size a JPEG is decoded: for half of it the inverse DCT makes 4 x 4 pixels of each 8 x 8.

use super::pixels::Size;

/// What an output needs of an image: a part of it, in its own pixels, and to how many pixels that part is resized.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wanted {
    /// Width and height of the part, in pixels of the whole image.
    pub part: [f64; 2],
    /// Width and height of the output in pixels.
    pub output: [usize; 2],
}

/// A fraction of an image's size, at most 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fraction {
    numerator: usize,
    denominator: usize,
}

impl Fraction {
    /// `None` where the image would grow.
    pub fn new(numerator: usize, denominator: usize) -> Option<Fraction> {
        (numerator > 0 && numerator <= denominator).then_some(Fraction { numerator, denominator })
    }

    /// TurboJPEG's TJSCALED: rounded up.
    fn of(self, size: Size) -> Size {
        let edge = |edge: usize| (edge * self.numerator).div_ceil(self.denominator);
        Size { width: edge(size.width), height: edge(size.height) }
    }
}

/// The smallest size at which the part still has a pixel for every one of the output, in both edges; the whole size where
/// the output is larger than the part.
pub fn smallest(size: Size, wanted: Wanted, fractions: &[Fraction]) -> Size {
    let is_enough = |scaled: Size| {
        let [width, height] = wanted.part;
        let [wide, high] = wanted.output;
        width * scaled.width as f64 >= (wide * size.width) as f64
            && height * scaled.height as f64 >= (high * size.height) as f64
    };
    let sizes = fractions.iter().map(|fraction| fraction.of(size)).filter(|scaled| is_enough(*scaled));
    sizes.min_by_key(|scaled| scaled.pixels()).unwrap_or(size)
}
