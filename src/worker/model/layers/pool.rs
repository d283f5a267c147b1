//! Pooling layers and local response normalization.

use anyhow::Result;
use ringmark_core::trace::LayerKind;
use tch::Tensor;

use crate::ffi::torch::norm::{self, PoolWindow};
use crate::measure::trace::layers;

const MAX_POOL: &str = "max-pool";
const ADAPTIVE_MEAN: &str = "adaptive-average-pool";

/// Square pooling window; output sizes are rounded down.
#[derive(Debug, Clone, Copy)]
pub struct Pool {
    pub kernel: i64,
    pub stride: i64,
    pub padding: i64,
}

impl Pool {
    pub const fn new(kernel: i64, stride: i64) -> Pool {
        Pool { kernel, stride, padding: 0 }
    }

    /// Sets the padding in pixels.
    pub const fn padding(self, padding: i64) -> Pool {
        Pool { padding, ..self }
    }

    pub fn window(self) -> PoolWindow {
        PoolWindow { kernel: self.kernel, stride: self.stride, padding: self.padding }
    }

    /// Returns the maximum of each window.
    pub fn max_pool(self, images: &Tensor) -> Result<Tensor> {
        let Pool { kernel, stride, padding } = self;
        layers::pass_plain(LayerKind::Pool, MAX_POOL, images, || {
            if images.requires_grad() && norm::has_kernels(images) {
                return norm::max_pool(images, self.window());
            }
            Ok(images.f_max_pool2d([kernel; 2], [stride; 2], [padding; 2], [1, 1], false)?)
        })
    }

    /// Returns true for the window that kernels fuse with the preceding normalization.
    pub fn is_stem_window(self) -> bool {
        (self.kernel, self.stride, self.padding) == (3, 2, 1)
    }

    /// Records pooling that the kernel of the preceding layer has computed, for its row in a layer profile.
    pub fn done(self, pooled: &Tensor) -> Result<Tensor> {
        layers::pass_plain(LayerKind::Pool, MAX_POOL, pooled, || Ok(pooled.shallow_clone()))
    }

    /// Returns the mean of each window, counting padding as zeros.
    pub fn mean(self, images: &Tensor) -> Result<Tensor> {
        let Pool { kernel, stride, padding } = self;
        layers::pass_plain(LayerKind::Pool, "average-pool", images, || {
            Ok(images.f_avg_pool2d([kernel; 2], [stride; 2], [padding; 2], false, true, None)?)
        })
    }
}

/// Reduces images to `size` x `size` pixels, each the mean of a part of the image.
pub fn adaptive_mean(images: &Tensor, size: i64) -> Result<Tensor> {
    layers::pass_plain(LayerKind::Pool, ADAPTIVE_MEAN, images, || Ok(images.f_adaptive_avg_pool2d([size; 2])?))
}

/// Returns the mean of every channel, `[batch, channels]`.
pub fn channel_means(images: &Tensor) -> Result<Tensor> {
    if norm::has_kernels(images) {
        // The gradient of this mean is channels_last, which fused kernels require.
        return layers::pass_plain(LayerKind::Pool, ADAPTIVE_MEAN, images, || {
            Ok(images.f_permute([0, 2, 3, 1])?.f_flatten(1, 2)?.f_mean_dim([1_i64].as_slice(), false, None)?)
        });
    }
    Ok(adaptive_mean(images, 1)?.f_flatten(1, -1)?)
}

/// Computes local response normalization: each value is divided by `(1 + 1e-4 m)^0.75`, with the mean m of the squares
/// of the five channels around it (ImageNet Classification with Deep Convolutional Neural Networks, Krizhevsky et al.,
/// 2012; k is 1 as in MXNet's network of 2016).
pub fn local_response_norm(images: &Tensor) -> Result<Tensor> {
    const CHANNELS: i64 = 5;
    const ALPHA: f64 = 1e-4;
    const BETA: f64 = 0.75;
    layers::pass_plain(LayerKind::Norm, "local-response-norm", images, || {
        // Channels last, so that neighboring channels are adjacent in memory.
        let squares = images.f_permute([0, 2, 3, 1])?.f_square()?;
        let means = squares.f_flatten(0, 2)?.f_avg_pool1d([CHANNELS], [1], [CHANNELS / 2], false, true)?;
        let means = means.f_view_as(&squares)?.f_permute([0, 3, 1, 2])?;
        Ok(images.f_div(&(means * ALPHA + 1.0).f_pow_tensor_scalar(BETA)?)?)
    })
}
