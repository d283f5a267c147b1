//! Gradient compression: codes that are exchanged instead of gradients. The quantization error stays in a residual,
//! which is added to the next step's gradient. Pure functions over slices, independent of the transport. The length of
//! a code depends only on the number of values, so ranks need not agree on it.
//!
//! | module | contents |
//! |---|---|
//! | [`facts`] | sizes and residual, for records |
//! | [`finite`] | detection of values that no code can represent |
//! | [`packed_sums`] | sums of 2-bit codes, as servers return them |
//! | [`two_bit`] | MXNet's code: +threshold, -threshold or 0 |
//! | [`top_k`] | the largest values with their indices |

pub mod facts;
pub mod finite;
pub mod packed_sums;
pub mod top_k;
pub mod two_bit;

use ringmark_core::benchmark::compression::GradientCompression;

use crate::exchange::compression::finite::NotFinite;
use crate::exchange::compression::top_k::TopK;
use crate::exchange::compression::two_bit::TwoBit;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Codec {
    TwoBit(TwoBit),
    TopK(TopK),
}

impl Codec {
    /// Returns the codec of `compression`; `None` without compression.
    pub fn new(compression: GradientCompression) -> Option<Codec> {
        match compression {
            GradientCompression::None => None,
            GradientCompression::TwoBit { threshold } => Some(Codec::TwoBit(TwoBit { threshold })),
            GradientCompression::TopK { ratio } => Some(Codec::TopK(TopK { ratio })),
        }
    }

    /// Returns the size of the code of `values` values, a multiple of 4 bytes.
    pub fn code_bytes(&self, values: usize) -> usize {
        match self {
            Codec::TwoBit(_) => TwoBit::code_bytes(values),
            Codec::TopK(code) => code.code_bytes(values),
        }
    }

    /// Adds `gradient` to `residual`, writes the code of the sum to `code` and leaves the quantization error in
    /// `residual`. The residual is unusable after an error.
    pub fn encode(&self, residual: &mut [f32], gradient: &[f32], code: &mut [u8]) -> Result<(), NotFinite> {
        assert_eq!(residual.len(), gradient.len(), "residual and gradient lengths differ");
        assert_eq!(code.len(), self.code_bytes(gradient.len()), "unexpected code length");
        match self {
            Codec::TwoBit(two_bit) => two_bit.encode(residual, gradient, code),
            Codec::TopK(_) => TopK::encode(residual, gradient, code),
        }
    }

    /// Returns the code with threshold 1 if it has a threshold: it then decodes to counts of thresholds.
    pub fn counting(self) -> Codec {
        match self {
            Codec::TwoBit(_) => Codec::TwoBit(TwoBit { threshold: 1.0 }),
            Codec::TopK(_) => self,
        }
    }

    /// Sets `sum` to the sum of the decoded `codes`, added in fp32 in their order.
    pub fn sum(&self, codes: &[&[u8]], sum: &mut [f32]) {
        sum.fill(0.0);
        codes.iter().for_each(|code| self.decode_and_add(code, sum));
    }

    /// Decodes `code` and adds its values to `sum`, in fp32.
    pub fn decode_and_add(&self, code: &[u8], sum: &mut [f32]) {
        assert_eq!(code.len(), self.code_bytes(sum.len()), "unexpected code length");
        match self {
            Codec::TwoBit(two_bit) => two_bit.decode_and_add(code, sum),
            Codec::TopK(_) => TopK::decode_and_add(code, sum),
        }
    }
}

/// Returns the Euclidean norm of a residual.
pub fn norm(residual: &[f32]) -> f64 {
    residual.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringmark_core::stats::random::Random;

    const CODECS: [Codec; 5] = [
        Codec::TwoBit(TwoBit { threshold: 0.5 }),
        Codec::TwoBit(TwoBit { threshold: 0.01 }),
        Codec::TopK(TopK { ratio: 0.01 }),
        Codec::TopK(TopK { ratio: 0.3 }),
        Codec::TopK(TopK { ratio: 1.0 }),
    ];

    fn normal(random: &mut Random, count: usize, scale: f64) -> Vec<f32> {
        (0..count).map(|_| (scale * random.normal()) as f32).collect()
    }

    #[test]
    fn code_plus_residual_equals_gradient() {
        let mut random = Random(11);
        for codec in CODECS {
            for count in [1, 2, 15, 16, 17, 63, 64, 65, 1000, 4097] {
                let mut residual = vec![0.0; count];
                for _ in 0..5 {
                    let (before, gradient) = (residual.clone(), normal(&mut random, count, 0.4));
                    let mut code = vec![0; codec.code_bytes(count)];
                    codec.encode(&mut residual, &gradient, &mut code).expect("finite");
                    let mut decoded = vec![0.0; count];
                    codec.decode_and_add(&code, &mut decoded);
                    for index in 0..count {
                        let (whole, parts) = (gradient[index] + before[index], decoded[index] + residual[index]);
                        assert!(
                            (whole - parts).abs() <= 1e-6 * whole.abs().max(1.0),
                            "{codec:?}, {count}: {whole}, {parts}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn decoding_adds_to_existing_values() {
        let mut random = Random(5);
        for codec in CODECS {
            let count = 333;
            let (mut residual, gradient) = (vec![0.0; count], normal(&mut random, count, 1.0));
            let mut code = vec![0; codec.code_bytes(count)];
            codec.encode(&mut residual, &gradient, &mut code).expect("finite");
            let (mut once, mut thrice) = (vec![0.0; count], vec![2.0; count]);
            codec.decode_and_add(&code, &mut once);
            (0..3).for_each(|_| codec.decode_and_add(&code, &mut thrice));
            for (once, thrice) in once.iter().zip(&thrice) {
                assert!((2.0 + 3.0 * once - thrice).abs() < 1e-5, "{codec:?}: {once} {thrice}");
            }
        }
    }

    #[test]
    fn non_finite_value_is_rejected_with_its_index() {
        for codec in CODECS {
            for (value, place) in [(f32::NAN, 70), (f32::INFINITY, 0), (f32::NEG_INFINITY, 99)] {
                let (mut residual, mut gradient) = (vec![0.25; 100], vec![0.125; 100]);
                gradient[place] = value;
                let mut code = vec![0; codec.code_bytes(100)];
                let refused = codec.encode(&mut residual, &gradient, &mut code);
                assert_eq!(refused, Err(NotFinite { index: place }), "{codec:?}, {value}");
            }
            // The sum of two finite numbers may be infinite.
            let mut code = vec![0; codec.code_bytes(1)];
            assert!(codec.encode(&mut [f32::MAX], &[f32::MAX], &mut code).is_err(), "{codec:?}");
        }
    }
}
