//! Detection of values that no code can represent.

use std::fmt;

/// A value that no code can represent: the sum of gradient and residual is NaN or infinite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotFinite {
    /// Index of the first such value in the slice to encode.
    pub index: usize,
}

impl fmt::Display for NotFinite {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "value {} is not finite", self.index)
    }
}

impl std::error::Error for NotFinite {}

/// Magnitude bits of infinity in fp32. Magnitude bits have the order of the magnitudes; from this value on they are
/// infinite or NaN.
pub const INFINITE: u32 = 0x7f80_0000;

/// Returns the bits of `value` without its sign.
pub fn magnitude(value: f32) -> u32 {
    value.to_bits() & 0x7fff_ffff
}

pub fn first_not_finite(residual: &[f32]) -> NotFinite {
    NotFinite { index: residual.iter().position(|value| !value.is_finite()).unwrap_or_default() }
}
