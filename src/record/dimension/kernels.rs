//! Kernels of the layers on a GPU.

use crate::keyword_enum;

keyword_enum!(
    /// Kernels that compute batch normalization and pooling on a GPU; in a record the ones that ran.
    #[derive(Default)]
    KernelsChoice {
        /// ringmark's own if they can be compiled, otherwise libtorch's.
        #[default]
        Auto = "auto",
        /// ringmark's own, which compute a normalization with what follows it in one pass.
        Fused = "fused",
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
