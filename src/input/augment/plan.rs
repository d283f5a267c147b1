//! Operations on one image, determined by its size and its random numbers alone.

use anyhow::Result;
use ringmark_core::dimension::{Augmentation, ImageLimits, Interpolation};

use super::generator::Generator;
use super::hls::HlsShift;
use super::recipe::{Recipe, Resize};
use super::warp::Distortion;
use crate::decode::{RequiredSize, Size};
use crate::resize::{self, Region};

/// torchvision's RandomResizedCrop: share of the image's area, ratio of width to height, number of tries.
const AREA: [f64; 2] = [0.08, 1.0];
const RATIO: [f64; 2] = [3.0 / 4.0, 4.0 / 3.0];
const TRIES: usize = 10;

/// Operations on one image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Size of the stored image.
    pub image: Size,
    /// Edge length of the output.
    pub size: usize,
    /// Mapping of the output's pixels to the image.
    pub geometry: Geometry,
    /// Interpolation of every resize.
    pub interpolation: Interpolation,
    /// Color shift.
    pub colors: Option<HlsShift>,
    /// True if left and right are swapped.
    pub is_mirrored: bool,
}

/// Mapping of the output's pixels to the image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Geometry {
    /// Resizes this region of the stored image to the output.
    Region(Region),
    /// Resizes the image, distorts it, and crops the square at `left` and `top`.
    Warp {
        /// Size of the image before and after the distortion.
        resized: Size,
        /// Distortion of the resized image.
        distortion: Distortion,
        /// Columns to the left of the output.
        left: usize,
        /// Rows above the output.
        top: usize,
    },
}

impl Recipe {
    /// Draws the operations on an image of this size.
    pub fn plan(&self, image: Size, generator: &mut Generator) -> Plan {
        let resized = self.resized(image);
        let crop = |corner| Geometry::Region(part(image, resized, corner, self.size));
        let geometry = match self.augmentation {
            Augmentation::None | Augmentation::Mirror => crop(self.corner(resized, None)),
            Augmentation::Crop | Augmentation::Mxnet1 | Augmentation::Mxnet2 => {
                crop(self.corner(resized, Some(generator)))
            }
            Augmentation::Imagenet => Geometry::Region(random_resized_crop(image, generator)),
            Augmentation::Mxnet3 => {
                let distortion = Distortion::draw(generator);
                let [left, top] = self.corner(resized, Some(generator));
                Geometry::Warp { resized, distortion, left, top }
            }
        };
        let colors = match self.augmentation {
            Augmentation::Mxnet2 | Augmentation::Mxnet3 => Some(HlsShift::draw(generator)),
            _ => None,
        };
        let is_mirrored = match self.augmentation {
            Augmentation::None | Augmentation::Crop => false,
            _ => generator.coin(),
        };
        Plan { image, size: self.size, geometry, interpolation: self.interpolation, colors, is_mirrored }
    }

    fn resized(&self, image: Size) -> Size {
        let shorter = match self.resize {
            Resize::ShorterEdge(shorter) => shorter.max(self.size),
            Resize::OnlyIfSmaller => image.shorter().max(self.size),
        };
        let edge = |edge: usize| shorter * edge / image.shorter();
        Size { width: edge(image.width), height: edge(image.height) }
    }

    /// Returns the left and top of the crop in the resized image; the center crop without a `generator`.
    fn corner(&self, resized: Size, generator: Option<&mut Generator>) -> [usize; 2] {
        let slack = [resized.width - self.size, resized.height - self.size];
        match (generator, self.resize) {
            (Some(generator), _) => {
                let top = generator.up_to(slack[1]);
                [generator.up_to(slack[0]), top]
            }
            (None, Resize::OnlyIfSmaller) => slack.map(|slack| slack / 2),
            // torchvision's CenterCrop, which follows its Resize, rounds half to even as Python does.
            (None, Resize::ShorterEdge(_)) => slack.map(|slack| (slack as f64 / 2.0).round_ties_even() as usize),
        }
    }
}

/// Returns the square of `size` pixels at the corner of the resized image, in pixels of the stored image.
fn part(image: Size, resized: Size, [left, top]: [usize; 2], size: usize) -> Region {
    let [left, top, size] = [left, top, size].map(|edge| edge as f64);
    Region { left, top, width: size, height: size, is_cut_out: false }.scaled(resized, image)
}

/// torchvision's RandomResizedCrop.get_params, with its order of random draws.
fn random_resized_crop(image: Size, generator: &mut Generator) -> Region {
    let cut_out = |width: usize, height: usize, left: usize, top: usize| {
        let [left, top, width, height] = [left, top, width, height].map(|edge| edge as f64);
        Region { left, top, width, height, is_cut_out: true }
    };
    let round = |edge: f64| edge.round_ties_even() as usize;
    for _ in 0..TRIES {
        let area = image.pixels() as f64 * generator.between(AREA[0], AREA[1]);
        let ratio = generator.between(RATIO[0].ln(), RATIO[1].ln()).exp();
        let (width, height) = (round((area * ratio).sqrt()), round((area / ratio).sqrt()));
        if (1..=image.width).contains(&width) && (1..=image.height).contains(&height) {
            let top = generator.up_to(image.height - height);
            let left = generator.up_to(image.width - width);
            return cut_out(width, height, left, top);
        }
    }
    let ratio = (image.width as f64 / image.height as f64).clamp(RATIO[0], RATIO[1]);
    let width = image.width.min(round(image.height as f64 * ratio)).max(1);
    let height = image.height.min(round(image.width as f64 / ratio)).max(1);
    cut_out(width, height, (image.width - width) / 2, (image.height - height) / 2)
}

impl Plan {
    /// Checks that no intermediate image exceeds the limits.
    ///
    /// # Errors
    ///
    /// Reports both sizes and the limit.
    pub fn check(&self, limits: &ImageLimits) -> Result<()> {
        let (part, output) = match &self.geometry {
            Geometry::Region(part) => (*part, Size { width: self.size, height: self.size }),
            Geometry::Warp { resized, .. } => (Region::whole(self.image), *resized),
        };
        resize::check(part, output, limits)
    }

    /// Returns the resolution that the plan needs, so that the decoder may scale the image down.
    pub fn wanted(&self) -> Option<RequiredSize> {
        match self.geometry {
            Geometry::Region(part) => Some(RequiredSize { part: [part.width, part.height], output: [self.size; 2] }),
            Geometry::Warp { resized, .. } => Some(RequiredSize {
                part: [self.image.width as f64, self.image.height as f64],
                output: [resized.width, resized.height],
            }),
        }
    }
}
