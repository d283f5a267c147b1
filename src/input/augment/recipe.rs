//! What is done to every image of a data set.

use ringmark_core::dimension::{Augmentation, Interpolation};

/// `(pixel - mean) / standard_deviation`, of pixels from 0 to 255, for red, green and blue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalization {
    /// Subtracted.
    pub mean: [f32; 3],
    /// Divided by.
    pub standard_deviation: [f32; 3],
}

impl Normalization {
    /// From 0 to 1: torchvision's ToTensor, and MXNet's train_mnist.py.
    pub const UNIT: Normalization = Normalization { mean: [0.0; 3], standard_deviation: [255.0; 3] };
    /// torchvision's for ImageNet, 0.485, 0.456, 0.406 / 0.229, 0.224, 0.225 of 255.
    pub const TORCHVISION: Normalization =
        Normalization { mean: [123.675, 116.28, 103.53], standard_deviation: [58.395, 57.12, 57.375] };
    /// `--rgb-mean` of MXNet's train_imagenet.py.
    pub const MXNET: Normalization = Normalization { mean: [123.68, 116.779, 103.939], standard_deviation: [1.0; 3] };
}

/// To what size an image is brought before it is cropped. RandomResizedCrop needs none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resize {
    /// None, but where it is smaller than the crop.
    OnlyIfSmaller,
    /// The shorter edge to so many pixels, the longer one in proportion, rounded down.
    ShorterEdge(usize),
}

/// What is done to every image of a data set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recipe {
    /// What is drawn for each image.
    pub augmentation: Augmentation,
    /// Edge of the square output in pixels.
    pub size: usize,
    /// Before the crop.
    pub resize: Resize,
    /// Of every resizing.
    pub interpolation: Interpolation,
    /// What the device is to do to the output.
    pub normalization: Normalization,
}

impl Recipe {
    /// For training; `resize` and `interpolation` may be changed.
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

    /// What a network trained with `augmentation` is validated with.
    pub fn validation(augmentation: Augmentation, size: usize) -> Recipe {
        let training = Recipe::training(augmentation, size);
        let resize = match augmentation {
            Augmentation::Imagenet => Resize::ShorterEdge((size * 256).div_ceil(224)),
            _ => training.resize,
        };
        Recipe { augmentation: Augmentation::None, resize, ..training }
    }

    /// Bytes of an output: height, width, RGB.
    pub fn bytes(&self) -> usize {
        3 * self.size * self.size
    }
}
