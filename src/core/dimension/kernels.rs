//! GPU kernels of the layers.

use crate::keyword_enum;

keyword_enum!(
    /// Kernels for training on a GPU; a record contains the ones that ran.
    #[derive(Default)]
    KernelsChoice {
        /// ringmark's kernels if they can be compiled, otherwise libtorch's.
        #[default]
        Auto = "auto",
        /// ringmark's kernels: a normalization is fused with the operation after it and, after some 1x1 convolutions,
        /// with the convolution.
        Fused = "fused",
        /// Same as `Fused`, but with libtorch's kernels for every convolution.
        Norm = "norm",
        /// libtorch's kernels for every layer.
        Libtorch = "libtorch",
    }
);

impl KernelsChoice {
    /// Returns true for the default, which is also the value in records without a GPU.
    pub fn is_auto(&self) -> bool {
        *self == KernelsChoice::Auto
    }
}

keyword_enum!(
    /// Kernel that computed attention: one of libtorch's `scaled_dot_product_attention`, or our own operations.
    AttentionKernel {
        /// Flash attention, which stores no scores.
        Flash = "flash",
        /// Memory-efficient attention, which stores no scores.
        Efficient = "efficient",
        /// Attention of cuDNN.
        Cudnn = "cudnn",
        /// Separate products and softmax of libtorch, with all scores in memory.
        Math = "math",
        /// Separate products and softmax of ringmark, with all scores in memory: faster in bf16 on CPUs.
        Unfused = "unfused",
    }
);
