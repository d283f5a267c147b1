//! Fingerprints: 64-bit numbers that change with every bit of a tensor.
//!
//! The memory of a tensor is read as 32-bit integers `w(0) .. w(n - 1)`. The fingerprint is the sum of `w(i) x BASE^i`
//! modulo 2^64. A flipped bit `k < 32` of word `i` changes it by `2^k x BASE^i`, which is not 0 because `BASE` is odd.
//! Integers wrap exactly, so that neither the order of additions nor the number of threads matters.

use anyhow::Result;
use ringmark_core::benchmark::train::RankFingerprints;
use tch::{Device, Kind, Tensor};

use crate::ffi::torch::shim;

/// Knuth's multiplier of MMIX, which is 5 modulo 8: its powers repeat after 2^62.
const BASE: i64 = 6_364_136_223_846_793_005;

/// Words that a GPU multiplies at once: enough for few launches, in 64 MB.
const CHUNK: i64 = 1 << 22;

/// Fingerprints of a rank's iterations, which stay on the device until the end.
pub struct FingerprintLog {
    /// `None` on the CPU.
    chunks: Option<ChunkSums>,
    gradients: Tensor,
    weights: Tensor,
}

/// Sums on a GPU, chunk by chunk.
struct ChunkSums {
    /// `BASE^i` for each word of a chunk.
    powers: Tensor,
    products: Tensor,
}

impl FingerprintLog {
    pub fn new(iterations: u32, device: Device) -> Result<FingerprintLog> {
        let zeros = || Tensor::f_zeros([i64::from(iterations)], (Kind::Int64, device));
        let chunks = device.is_cuda().then(|| ChunkSums::new(CHUNK, device)).transpose()?;
        Ok(FingerprintLog { chunks, gradients: zeros()?, weights: zeros()? })
    }

    /// Adds the fingerprint of the gradients of `iteration`, from 1. On CUDA this does not wait for the device.
    pub fn add_gradients(&self, iteration: u32, gradients: &Tensor) -> Result<()> {
        self.add(&self.gradients, iteration, gradients)
    }

    /// Adds the fingerprint of the weights after `iteration`, from 1. On CUDA this does not wait for the device.
    pub fn add_weights(&self, iteration: u32, weights: &Tensor) -> Result<()> {
        self.add(&self.weights, iteration, weights)
    }

    fn add(&self, log: &Tensor, iteration: u32, values: &Tensor) -> Result<()> {
        let _no_gradient = tch::no_grad_guard();
        let words = words(&values.detach())?;
        let sum = match &self.chunks {
            None => Tensor::from(shim::power_sum(&words, BASE)?),
            Some(chunks) => chunks.power_sum(&words)?,
        };
        log.f_select(0, i64::from(iteration) - 1)?.f_copy_(&sum)?;
        Ok(())
    }

    pub fn end(&self) -> Result<RankFingerprints> {
        let numbers = |log: &Tensor| -> Result<Vec<u64>> {
            let numbers = Vec::<i64>::try_from(&log.f_to_device(Device::Cpu)?)?;
            Ok(numbers.into_iter().map(i64::cast_unsigned).collect())
        };
        Ok(RankFingerprints { gradients: numbers(&self.gradients)?, weights: numbers(&self.weights)? })
    }
}

impl ChunkSums {
    fn new(chunk: i64, device: Device) -> Result<ChunkSums> {
        let powers: Vec<i64> =
            std::iter::successors(Some(1), |power: &i64| Some(power.wrapping_mul(BASE))).take(chunk as usize).collect();
        let powers = Tensor::f_from_slice(&powers)?.f_to_device(device)?;
        Ok(ChunkSums { products: powers.f_empty_like()?, powers })
    }

    /// Returns the same as [`shim::power_sum`] as an integer on the device of the words, without waiting for it.
    fn power_sum(&self, words: &Tensor) -> Result<Tensor> {
        let chunk = self.powers.size1()?;
        let of_chunk = BASE.wrapping_pow(chunk as u32);
        let mut sum = Tensor::f_zeros([] as [i64; 0], (Kind::Int64, words.device()))?;
        // Horner's rule, from the last chunk to the first.
        for part in words.f_split(chunk, 0)?.iter().rev() {
            let length = part.size1()?;
            let mut products = self.products.f_narrow(0, 0, length)?;
            products.f_copy_(part)?;
            let own = products.f_mul_(&self.powers.f_narrow(0, 0, length)?)?.f_sum(Kind::Int64)?;
            sum = sum.f_mul_scalar(of_chunk)?.f_add(&own)?;
        }
        Ok(sum)
    }
}

/// Returns the memory of a flat tensor as 32-bit integers; zeros fill the last one.
fn words(values: &Tensor) -> Result<Tensor> {
    let per_word = (size_of::<i32>() / values.kind().elt_size_in_bytes()) as i64;
    let missing = (-values.size1()?).rem_euclid(per_word);
    let whole = if missing == 0 { values.shallow_clone() } else { values.f_constant_pad_nd([0, missing])? };
    Ok(whole.f_view_dtype(Kind::Int)?)
}

/// Flips a bit of an element of a flat tensor, counted from the lowest bit of the element; bits beyond the element are
/// counted from 0 again.
pub fn flip_bit(values: &Tensor, element: usize, bit: u32) -> Result<()> {
    let bits = 8 * values.kind().elt_size_in_bytes() as u32;
    let (kind, mask) = match bits {
        16 => (Kind::Int16, i64::from(1i16.wrapping_shl(bit % bits))),
        _ => (Kind::Int, i64::from(1i32.wrapping_shl(bit % bits))),
    };
    let _no_gradient = tch::no_grad_guard();
    let _ = values.f_narrow(0, element as i64, 1)?.f_view_dtype(kind)?.f_bitwise_xor_(mask)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::seeded;

    fn fingerprint(values: &Tensor) -> u64 {
        let log = FingerprintLog::new(1, Device::Cpu).expect("memory");
        log.add_gradients(1, values).expect("a fingerprint");
        log.add_weights(1, values).expect("a fingerprint");
        let RankFingerprints { gradients, weights } = log.end().expect("numbers");
        assert_eq!(gradients, weights);
        gradients[0]
    }

    #[test]
    fn sums_of_cpu_and_gpu_are_those_of_the_definition() {
        let _generator = seeded(1);
        let chunks = ChunkSums::new(8, Device::Cpu).expect("memory");
        for elements in [1, 7, 8, 9, 40, 41] {
            let values = Tensor::randn([elements], (Kind::Float, Device::Cpu));
            let words = values.view_dtype(Kind::Int);
            let (mut sum, mut power) = (0i64, 1i64);
            for word in Vec::<i32>::try_from(&words).expect("words") {
                sum = sum.wrapping_add(i64::from(word).wrapping_mul(power));
                power = power.wrapping_mul(BASE);
            }
            assert_eq!(fingerprint(&values), sum.cast_unsigned(), "{elements}");
            assert_eq!(chunks.power_sum(&words).expect("a sum").int64_value(&[]), sum, "{elements}");
        }
    }

    #[test]
    fn every_flipped_bit_changes_the_fingerprint() {
        let _generator = seeded(2);
        for (kind, bits) in [(Kind::Float, 32), (Kind::Half, 16), (Kind::BFloat16, 16)] {
            let values = Tensor::randn([19], (Kind::Float, Device::Cpu)).to_kind(kind);
            let before = fingerprint(&values);
            let mut seen = vec![before];
            for element in [0, 1, 7, 8, 18] {
                for bit in 0..bits {
                    flip_bit(&values, element, bit).expect("flipped");
                    seen.push(fingerprint(&values));
                    flip_bit(&values, element, bit).expect("flipped back");
                }
            }
            assert_eq!(fingerprint(&values), before);
            let count = seen.len();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), count, "{kind:?}: two flips have the same fingerprint");
        }
    }

    #[test]
    fn exchanged_values_and_two_sign_bits_are_found() {
        let values = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0]);
        let before = fingerprint(&values);
        assert_ne!(fingerprint(&Tensor::from_slice(&[2.0f32, 1.0, 3.0, 4.0])), before);
        assert_ne!(fingerprint(&Tensor::from_slice(&[-1.0f32, -2.0, 3.0, 4.0])), before);
    }
}
