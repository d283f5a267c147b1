//! Augmentation settings of a data set.

use ringmark_core::dimension::{Augmentation, Interpolation};

/// `(pixel - mean) / standard_deviation` for red, green and blue; pixels range from 0 to 255.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalization {
    /// Subtrahend of each channel.
    pub mean: [f32; 3],
    /// Divisor of each channel.
    pub standard_deviation: [f32; 3],
}

impl Normalization {
    /// Scales to [0, 1]: torchvision's ToTensor, and MXNet's train_mnist.py.
    pub const UNIT: Normalization = Normalization { mean: [0.0; 3], standard_deviation: [255.0; 3] };
    /// torchvision's values for ImageNet: 0.485, 0.456, 0.406 / 0.229, 0.224, 0.225, times 255.
    pub const TORCHVISION: Normalization =
        Normalization { mean: [123.675, 116.28, 103.53], standard_deviation: [58.395, 57.12, 57.375] };
    /// `--rgb-mean` of MXNet's train_imagenet.py.
    pub const MXNET: Normalization = Normalization { mean: [123.68, 116.779, 103.939], standard_deviation: [1.0; 3] };
}

/// Resize before the crop. RandomResizedCrop does not use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resize {
    /// No resize unless the image is smaller than the crop.
    OnlyIfSmaller,
    /// Resizes the shorter edge to this number of pixels and the longer edge in proportion, rounded down.
    ShorterEdge(usize),
}

/// Augmentation settings of a data set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recipe {
    /// Random operations.
    pub augmentation: Augmentation,
    /// Edge length of the square output, in pixels.
    pub size: usize,
    /// Resize before the crop.
    pub resize: Resize,
    /// Interpolation of every resize.
    pub interpolation: Interpolation,
    /// Normalization applied on the device.
    pub normalization: Normalization,
}

impl Recipe {
    /// Returns the recipe for training; `resize` and `interpolation` may be changed.
    pub fn training(augmentation: Augmentation, size: usize) -> Recipe {
        let (interpolation, normalization) = match augmentation {
            Augmentation::None => (Interpolation::Antialias, Normalization::UNIT),
            Augmentation::Crop | Augmentation::Mirror => (Interpolation::Bilinear, Normalization::UNIT),
            Augmentation::Imagenet => (Interpolation::Antialias, Normalization::TORCHVISION),
            Augmentation::Mxnet1 | Augmentation::Mxnet2 | Augmentation::Mxnet3 => {
                (Interpolation::Bilinear, Normalization::MXNET)
            }
        };
        let resize = match augmentation {
            Augmentation::None => Resize::ShorterEdge(size),
            _ => Resize::OnlyIfSmaller,
        };
        Recipe { augmentation, size, resize, interpolation, normalization }
    }

    /// Returns the recipe for validating a network trained with `augmentation`.
    pub fn validation(augmentation: Augmentation, size: usize) -> Recipe {
        let training = Recipe::training(augmentation, size);
        let resize = match augmentation {
            Augmentation::Imagenet => Resize::ShorterEdge((size * 256).div_ceil(224)),
            _ => training.resize,
        };
        Recipe { augmentation: Augmentation::None, resize, ..training }
    }

    /// Returns the size of an output in bytes: height, width, RGB.
    pub fn bytes(&self) -> usize {
        3 * self.size * self.size
    }
}
