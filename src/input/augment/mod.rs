//! What becomes of a decoded image before the network sees it: a recipe, of which each image gets a plan of its own, which
//! is carried out on its pixels. Not for decoding, nor for normalization, which the device does.
//!
//! | `--augmentation` | geometry | then | interpolation | mean / standard deviation |
//! |---|---|---|---|---|
//! | `none` | shorter edge to the size, the centre | | antialias | 0 / 255 |
//! | `crop` | a crop anywhere | | bilinear | 0 / 255 |
//! | `mirror` | a crop of the centre | mirrored, 1 in 2 | bilinear | 0 / 255 |
//! | `imagenet` | torchvision's RandomResizedCrop: area 0.08 to 1 of the image, ratio 3/4 to 4/3 in its logarithm, 10 tries, else the centre of the nearest ratio | mirrored, 1 in 2 | antialias | 123.675, 116.28, 103.53 / 58.395, 57.12, 57.375 |
//! | `mxnet-1` | a crop anywhere | mirrored, 1 in 2 | bilinear | 123.68, 116.779, 103.939 / 1 |
//! | `mxnet-2` | a crop anywhere | hue +-36, saturation +-50, lightness +-50 (HLS in 8 bits: 180, 255, 255), mirrored, 1 in 2 | bilinear | as mxnet-1 |
//! | `mxnet-3` | rotated by whole degrees up to +-10, shear up to +-0.1, width to height x 0.75 to 1.25, outside 127; then a crop anywhere | as mxnet-2 | bilinear | as mxnet-1 |
//!
//! `mxnet-3` is level 3 of `set_data_aug_level` in MXNet's `train_imagenet.py` up to 1.2, with which its performance page was
//! made: each level adds to the one below. Versions 1.3 to 1.6 mean a RandomResizedCrop by level 3, which no option of
//! theirs switches on: 1.6 sets it after the arguments were read. Who wants that crop takes `imagenet`.
//!
//! The order is ImageRecordIter's: resize, affine, crop, colour, mirror; then, on the device, (pixel - mean) / deviation.
//! A crop is taken of the image as it is stored, or with its shorter edge resized ([`Resize`]); an image that is smaller than
//! the crop is enlarged until its shorter edge fits, as MXNet does from 1.0 on.
//!
//! Validation ([`Recipe::validation`]) draws nothing: the shorter edge to 256/224 of the size and the centre for
//! `imagenet`, as torchvision; the centre of the image as it is stored for MXNet's, `crop` and `mirror`; `none` is itself.

mod apply;
mod generator;
mod hls;
mod plan;
mod recipe;
mod warp;

#[cfg(test)]
mod tests;

pub use self::apply::Augmenter;
pub use self::generator::Generator;
pub use self::hls::HlsShift;
pub use self::plan::{Geometry, Plan};
pub use self::recipe::{Normalization, Recipe, Resize};
pub use self::warp::Distortion;
