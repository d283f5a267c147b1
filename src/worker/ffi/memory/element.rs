//! Type of an array's elements, in sums and in kernels.

use ringmark_core::dimension::{Dtype, Wire};
use tch::Kind;

/// Floating-point type of array elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// IEEE single precision.
    Float,
    /// IEEE half precision.
    Half,
    /// bfloat16.
    BFloat16,
}

impl Element {
    /// Returns the size of an element in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Element::Float => 4,
            Element::Half | Element::BFloat16 => 2,
        }
    }

    /// Returns libtorch's type.
    pub fn kind(self) -> Kind {
        match self {
            Element::Float => Kind::Float,
            Element::Half => Kind::Half,
            Element::BFloat16 => Kind::BFloat16,
        }
    }
}

impl From<Wire> for Element {
    fn from(wire: Wire) -> Element {
        match wire {
            Wire::Fp32 => Element::Float,
            Wire::Fp16 => Element::Half,
            Wire::Bf16 => Element::BFloat16,
        }
    }
}

/// Type in which convolutions and matrix products compute.
impl From<Dtype> for Element {
    fn from(dtype: Dtype) -> Element {
        match dtype {
            Dtype::Fp32 | Dtype::Tf32 => Element::Float,
            Dtype::Fp16 => Element::Half,
            Dtype::Bf16 => Element::BFloat16,
        }
    }
}
