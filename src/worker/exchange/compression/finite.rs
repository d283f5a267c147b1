//! Finds values that no code can represent.

use std::fmt;

/// A value that no code can hold: the sum of gradient and residual is NaN or infinite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotFinite {
    /// The first of them, in the slice that was to be coded.
    pub index: usize,
}

impl fmt::Display for NotFinite {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "value {} is not finite", self.index)
    }
}

impl std::error::Error for NotFinite {}

/// Bits of an fp32 number without its sign: in the order of magnitudes, and from here on not finite.
pub const INFINITE: u32 = 0x7f80_0000;

/// Bits of the value.
pub fn magnitude(value: f32) -> u32 {
    value.to_bits() & 0x7fff_ffff
}

/// Returns the index of the first.
pub fn first_not_finite(residual: &[f32]) -> NotFinite {
    NotFinite { index: residual.iter().position(|value| !value.is_finite()).unwrap_or_default() }
}
