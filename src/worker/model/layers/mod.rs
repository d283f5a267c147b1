//! Layers of networks. On the CPU each uses the fastest path that libtorch and the shim have; the results match the
//! source's layer.

mod attention;
mod convolution;
mod linear;
mod norm;
mod packed;
mod pool;
mod sequence;
mod transformer_block;

pub use attention::{Attention, Projections, RotaryPositions, Rotation, attention_kernel};
pub use convolution::{Convolution, ConvolutionNorm, ConvolutionShape};
pub use linear::Linear;
pub use norm::{BatchNorm, BatchNormKind, Epilogue, LayerNorm};
pub use packed::rectified_convolutions;
pub use pool::{Pool, channel_means};
pub use sequence::{Layer, Sequence};
pub use transformer_block::{Perceptron, TransformerBlock};

pub use crate::ffi::torch::norm::Fork;
