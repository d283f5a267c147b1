//! Pooling, and what is normalized over neighbouring channels.

use anyhow::Result;
use ringmark_core::trace::LayerKind;
use tch::Tensor;

use crate::ffi::torch::shim::{self, PoolWindow};
use crate::measure::trace::layers;

const MAX_POOL: &str = "max-pool";
const ADAPTIVE_MEAN: &str = "adaptive-average-pool";

/// A square window that moves over the pixels; sizes are rounded down.
#[derive(Debug, Clone, Copy)]
pub struct Pool {
    pub kernel: i64,
    pub stride: i64,
    pub padding: i64,
}

impl Pool {
    /// Unpadded.
    pub const fn new(kernel: i64, stride: i64) -> Pool {
        Pool { kernel, stride, padding: 0 }
    }

    /// Sets the padding in pixels.
    pub const fn padding(self, padding: i64) -> Pool {
        Pool { padding, ..self }
    }

    /// The window of fused kernels.
    pub fn window(self) -> PoolWindow {
        PoolWindow { kernel: self.kernel, stride: self.stride, padding: self.padding }
    }

    /// The largest value of each window.
    pub fn largest(self, images: &Tensor) -> Result<Tensor> {
        let Pool { kernel, stride, padding } = self;
        layers::pass_plain(LayerKind::Pool, MAX_POOL, images, || {
            if images.requires_grad() && shim::has_kernels(images) {
                return shim::max_pool(images, self.window());
            }
            Ok(images.f_max_pool2d([kernel; 2], [stride; 2], [padding; 2], [1, 1], false)?)
        })
    }

    /// Returns true for the window that kernels compute together with the normalization before it.
    pub fn is_of_stem(self) -> bool {
        (self.kernel, self.stride, self.padding) == (3, 2, 1)
    }

    /// The row in a layer profile of pooling that the layer before did in its own pass.
    pub fn done(self, pooled: &Tensor) -> Result<Tensor> {
        layers::pass_plain(LayerKind::Pool, MAX_POOL, pooled, || Ok(pooled.shallow_clone()))
    }

    /// The mean of each window, padding counted as zeros.
    pub fn mean(self, images: &Tensor) -> Result<Tensor> {
        let Pool { kernel, stride, padding } = self;
        layers::pass_plain(LayerKind::Pool, "average-pool", images, || {
            Ok(images.f_avg_pool2d([kernel; 2], [stride; 2], [padding; 2], false, true, None)?)
        })
    }
}

/// To `size` pixels a side, each the mean of its part of the image.
pub fn adaptive_mean(images: &Tensor, size: i64) -> Result<Tensor> {
    layers::pass_plain(LayerKind::Pool, ADAPTIVE_MEAN, images, || Ok(images.f_adaptive_avg_pool2d([size; 2])?))
}

/// The mean of every channel, `[batch, channels]`.
pub fn channel_means(images: &Tensor) -> Result<Tensor> {
    if shim::has_kernels(images) {
        // The gradient of this mean has its channels last, as fused kernels take it.
        return layers::pass_plain(LayerKind::Pool, ADAPTIVE_MEAN, images, || {
            Ok(images.f_permute([0, 2, 3, 1])?.f_flatten(1, 2)?.f_mean_dim([1_i64].as_slice(), false, None)?)
        });
    }
    Ok(adaptive_mean(images, 1)?.f_flatten(1, -1)?)
}

/// Local response normalization: each value over `(1 + 1e-4 m)^0.75`, where m is the mean of the squares of the five
/// channels around it (ImageNet Classification with Deep Convolutional Neural Networks, Krizhevsky et al., 2012; k is 1 as
/// in MXNet's network of 2016).
pub fn local_response_norm(images: &Tensor) -> Result<Tensor> {
    const CHANNELS: i64 = 5;
    const ALPHA: f64 = 1e-4;
    const BETA: f64 = 0.75;
    layers::pass_plain(LayerKind::Norm, "local-response-norm", images, || {
        // Channels last, where the neighbours of a channel are its neighbours in memory.
        let squares = images.f_permute([0, 2, 3, 1])?.f_square()?;
        let means = squares.f_flatten(0, 2)?.f_avg_pool1d([CHANNELS], [1], [CHANNELS / 2], false, true)?;
        let means = means.f_view_as(&squares)?.f_permute([0, 3, 1, 2])?;
        Ok(images.f_div(&(means * ALPHA + 1.0).f_pow_tensor_scalar(BETA)?)?)
    })
}
