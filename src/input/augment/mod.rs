//! Augmentation of decoded images. A [`Recipe`] draws a [`Plan`] for each image, which an [`Augmenter`] applies to
//! its pixels. Normalization happens on the device.
//!
//! | `--augmentation` | geometry | then | interpolation | mean / standard deviation |
//! |---|---|---|---|---|
//! | `none` | shorter edge to the size, center crop | | antialias | 0 / 255 |
//! | `crop` | random crop | | bilinear | 0 / 255 |
//! | `mirror` | center crop | mirrored, 1 in 2 | bilinear | 0 / 255 |
//! | `imagenet` | torchvision's RandomResizedCrop: area 0.08 to 1 of the image, log-uniform ratio 3/4 to 4/3, 10 tries, then the center crop of the nearest ratio | mirrored, 1 in 2 | antialias | 123.675, 116.28, 103.53 / 58.395, 57.12, 57.375 |
//! | `mxnet-1` | random crop | mirrored, 1 in 2 | bilinear | 123.68, 116.779, 103.939 / 1 |
//! | `mxnet-2` | random crop | hue +-36, saturation +-50, lightness +-50 (8-bit HLS: 180, 255, 255), mirrored, 1 in 2 | bilinear | as mxnet-1 |
//! | `mxnet-3` | rotation by whole degrees up to +-10, shear up to +-0.1, width to height x 0.75 to 1.25, outside filled with 127; then a random crop | as mxnet-2 | bilinear | as mxnet-1 |
//!
//! `mxnet-3` is level 3 of `set_data_aug_level` in MXNet's `train_imagenet.py` up to version 1.2, which was used for
//! its performance page: each level adds to the one below. In versions 1.3 to 1.6 level 3 means a RandomResizedCrop,
//! which none of their options enables: 1.6 sets it after the arguments are parsed. Use `imagenet` for that crop.
//!
//! The order is that of ImageRecordIter: resize, affine, crop, color, mirror; then, on the device, (pixel - mean) /
//! deviation. A crop is taken from the stored image, or after resizing its shorter edge ([`Resize`]). An image
//! smaller than the crop is enlarged until its shorter edge fits, as in MXNet since 1.0.
//!
//! Validation ([`Recipe::validation`]) is deterministic: for `imagenet`, the shorter edge is resized to 256/224 of
//! the size and the center is cropped, as in torchvision; MXNet's recipes, `crop` and `mirror` crop the center of the
//! stored image; `none` is the same as for training.

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
