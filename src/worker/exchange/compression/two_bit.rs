//! MXNet's 2-bit code (gradient_compression-inl.h): `residual += gradient`; a residual of at least the threshold T
//! sends `11` and is reduced by T, one of at most -T sends `10` and is increased by T, any other sends `00`. A 4-byte
//! word has 16 values, the first in the highest bits of the first byte; unused bits of the last word are 0.
//!
//! A step sends at most T for each value: if `|gradient| <= T` and `|residual| < T`, the residual stays below T (up to
//! rounding); larger gradients accumulate. A value that is not finite is an error; MXNet keeps it in the residual
//! forever.

use crate::exchange::compression::finite::{INFINITE, NotFinite, first_not_finite, magnitude};

/// Parameters of the 2-bit code.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TwoBit {
    /// Greater than 0.
    pub threshold: f32,
}

/// Values of a word.
const VALUES: usize = 16;

/// Values that are encoded before they are packed: a multiple of a word's, in registers and the L1 cache.
const BLOCK: usize = 64;

const PLUS: u8 = 0b11;
const MINUS: u8 = 0b10;

impl TwoBit {
    /// Returns the size of the code: `ceil(values / 16)` words.
    pub fn code_bytes(values: usize) -> usize {
        4 * values.div_ceil(VALUES)
    }

    /// Implements [`Codec::encode`](super::Codec::encode).
    pub fn encode(&self, residual: &mut [f32], gradient: &[f32], code: &mut [u8]) -> Result<(), NotFinite> {
        let mut largest = 0;
        let blocks = residual.chunks_mut(BLOCK).zip(gradient.chunks(BLOCK));
        for ((residual, gradient), code) in blocks.zip(code.chunks_mut(BLOCK / 4)) {
            let mut symbols = [0u8; BLOCK];
            largest = largest.max(self.symbols(residual, gradient, &mut symbols));
            for (byte, symbols) in code.iter_mut().zip(symbols.as_chunks::<4>().0) {
                *byte = packed(*symbols);
            }
        }
        if largest < INFINITE { Ok(()) } else { Err(first_not_finite(residual)) }
    }

    /// Encodes a block to `symbols`; returns the largest magnitude of the sums of residual and gradient.
    #[inline]
    fn symbols(&self, residual: &mut [f32], gradient: &[f32], symbols: &mut [u8; BLOCK]) -> u32 {
        let threshold = self.threshold;
        let mut largest = 0;
        for ((residual, gradient), symbol) in residual.iter_mut().zip(gradient).zip(symbols) {
            let value = *residual + gradient;
            largest = largest.max(magnitude(value));
            let (is_plus, is_minus) = (value >= threshold, value <= -threshold);
            let sent = if is_plus { threshold } else { 0.0 } - if is_minus { threshold } else { 0.0 };
            *residual = value - sent;
            *symbol = u8::from(is_plus) * PLUS + u8::from(is_minus) * MINUS;
        }
        largest
    }

    /// Implements [`Codec::decode_and_add`](super::Codec::decode_and_add).
    pub fn decode_and_add(&self, code: &[u8], sum: &mut [f32]) {
        // Decoded values of every byte, 4 KB: fits in the L1 cache.
        let table: Vec<[f32; 4]> = (0..=u8::MAX).map(|byte| self.values(byte)).collect();
        let mut chunks = sum.chunks_exact_mut(4);
        let mut bytes = code.iter();
        for (sum, byte) in chunks.by_ref().zip(bytes.by_ref()) {
            let values = &table[usize::from(*byte)];
            sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        // `zip` advances the sums first, so that no byte is lost.
        if let Some(byte) = bytes.next() {
            chunks.into_remainder().iter_mut().zip(self.values(*byte)).for_each(|(sum, value)| *sum += value);
        }
    }

    /// Decodes the four values of a byte.
    fn values(&self, byte: u8) -> [f32; 4] {
        [6, 4, 2, 0].map(|shift| match byte >> shift & 0b11 {
            PLUS => self.threshold,
            MINUS => -self.threshold,
            _ => 0.0,
        })
    }
}

/// Packs four symbols into a byte, the first one highest: the multiplication moves each symbol's bits to their position
/// in the highest byte of the product, without overlap.
fn packed(symbols: [u8; 4]) -> u8 {
    const PLACES: u32 = 1 << 30 | 1 << 20 | 1 << 10 | 1;
    (u32::from_le_bytes(symbols).wrapping_mul(PLACES) >> 24) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringmark_core::stats::random::Random;

    #[test]
    fn two_bit_code_matches_mxnet_example() {
        let gradient = [-6.0, -2.0, 3.0, 1.0, 10.0, 5.0, -3.0, 2.0, -8.0, 0.0];
        let mut residual = [-3.0, 1.0, -1.0, 5.0, -2.0, 2.0, 3.0, -7.0, -2.0, -100.0];
        let code_of = TwoBit { threshold: 4.0 };
        let mut code = [0xff; 4];
        code_of.encode(&mut residual, &gradient, &mut code).expect("finite");
        assert_eq!(code, [0x83, 0xf2, 0xa0, 0x00]);
        assert_eq!(residual, [-5.0, -1.0, 2.0, 2.0, 4.0, 3.0, 0.0, -1.0, -6.0, -96.0]);
        let mut decoded = [0.0; 10];
        code_of.decode_and_add(&code, &mut decoded);
        assert_eq!(decoded, [-4.0, 0.0, 0.0, 4.0, 4.0, 4.0, 0.0, -4.0, -4.0, -4.0]);
    }

    #[test]
    fn code_has_one_word_per_16_values() {
        assert_eq!([0, 1, 16, 17, 1600].map(TwoBit::code_bytes), [0, 4, 4, 8, 400]);
        for symbols in 0..=u8::MAX {
            let four = [6, 4, 2, 0].map(|shift| symbols >> shift & 0b11);
            assert_eq!(packed(four), symbols);
        }
    }

    /// Compares with the rule applied value by value, at every length around a word and a block.
    #[test]
    fn block_encoding_matches_scalar_encoding() {
        let mut random = Random(2);
        let code_of = TwoBit { threshold: 0.5 };
        for count in (0..70).chain([127, 128, 129, 1000]) {
            let gradient: Vec<f32> = (0..count).map(|_| random.normal() as f32).collect();
            let mut residual: Vec<f32> = (0..count).map(|_| 0.3 * random.normal() as f32).collect();
            let (mut expected, mut bits) = (residual.clone(), vec![0u8; TwoBit::code_bytes(count)]);
            for (index, (value, gradient)) in expected.iter_mut().zip(&gradient).enumerate() {
                *value += gradient;
                let symbol = if *value >= 0.5 {
                    0b11
                } else if *value <= -0.5 {
                    0b10
                } else {
                    0
                };
                *value -= [0.0, 0.0, -0.5, 0.5][usize::from(symbol)];
                bits[index / 4] |= symbol << (6 - 2 * (index % 4));
            }
            let mut code = vec![0xff; TwoBit::code_bytes(count)];
            code_of.encode(&mut residual, &gradient, &mut code).expect("finite");
            assert_eq!((code, residual), (bits, expected), "{count}");
        }
    }

    /// Multiples of 2^-10, whose sums are exact.
    #[test]
    fn residual_is_bounded_by_the_threshold() {
        let mut random = Random(9);
        for threshold in [0.5f32, 1.0, 0.375] {
            let code_of = TwoBit { threshold };
            let mut residual = vec![0.0f32; 4096];
            for _ in 0..200 {
                let exact =
                    |uniform: f64| ((2.0 * uniform - 1.0) * 1024.0 * f64::from(threshold)).round() as f32 / 1024.0;
                let gradient: Vec<f32> = (0..4096).map(|_| exact(random.uniform())).collect();
                assert!(gradient.iter().all(|value| value.abs() <= threshold));
                code_of.encode(&mut residual, &gradient, &mut [0; 1024]).expect("finite");
                assert!(residual.iter().all(|value| value.abs() < threshold));
            }
        }
    }
}
