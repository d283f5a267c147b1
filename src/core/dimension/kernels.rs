//! Kernels of the layers on a GPU.

use crate::keyword_enum;

keyword_enum!(
    /// Kernels that a GPU trains with; in a record the ones that ran.
    #[derive(Default)]
    KernelsChoice {
        /// ringmark's own if they can be compiled, otherwise libtorch's.
        #[default]
        Auto = "auto",
        /// ringmark's own: a normalization with what follows it in one pass, and behind some 1x1 convolutions in the same pass
        /// as the convolution.
        Fused = "fused",
        /// The same with libtorch's for every convolution.
        Norm = "norm",
        /// libtorch's.
        Libtorch = "libtorch",
    }
);

impl KernelsChoice {
    /// Returns true for the default, which records without a GPU keep.
    pub fn is_auto(&self) -> bool {
        *self == KernelsChoice::Auto
    }
}
