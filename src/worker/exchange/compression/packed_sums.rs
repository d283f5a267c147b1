//! Lossless packing of the sums of several workers' 2-bit codes. A sum is one of 2 n + 1 multiples of the threshold,
//! from -n to n for n workers; a 4-byte word holds as many digits of that base as fit in 32 bits: 13 for two workers,
//! 10 for four, 7 for eight. With four workers a server's answer is 1/10 of fp32, which MXNet's server sends.
//!
//! A word is the fraction `x / base^digits` of the number x that the digits form, rounded up to 32 bits. The integer
//! part of its product with the base is the next digit: no division, and no error, because the fraction is less than
//! one step too large. Digit i of word w is value `i x words + w`, so that adjacent values in memory are adjacent in a
//! vector register.

use ringmark_core::benchmark::compression::sums_a_word;

/// Words processed at once; they fit in registers and the L1 cache.
const BLOCK: usize = 128;

/// Format of packed sums for a threshold and a number of workers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PackedSums {
    /// Number of workers: sums range from `-workers` to `workers` thresholds.
    workers: u32,
    base: u32,
    digits: usize,
    threshold: f32,
}

impl PackedSums {
    /// Creates the format for codes with `threshold`.
    pub fn new(threshold: f32, workers: u32) -> PackedSums {
        PackedSums { workers, base: 2 * workers + 1, digits: sums_a_word(workers) as usize, threshold }
    }

    /// Returns the size of the packed sums of `values` values, a multiple of 4 bytes.
    pub fn bytes(&self, values: usize) -> usize {
        4 * self.words(values)
    }

    fn words(&self, values: usize) -> usize {
        values.div_ceil(self.digits)
    }

    /// Packs sums, given as `counts` of thresholds.
    pub fn pack(&self, counts: &[f32], packed: &mut [u8]) {
        assert_eq!(packed.len(), self.bytes(counts.len()), "unexpected length of packed sums");
        let (words, zero) = (self.words(counts.len()), self.workers as f32);
        let values = u64::from(self.base).pow(self.digits as u32);
        for (block, packed) in packed.chunks_mut(4 * BLOCK).enumerate() {
            let mut numbers = [0u32; BLOCK];
            let length = packed.len() / 4;
            for digit in 0..self.digits {
                numbers.iter_mut().for_each(|number| *number = number.wrapping_mul(self.base));
                let digit_range = digit_range(digit * words + block * BLOCK, length, counts.len());
                for (number, count) in numbers.iter_mut().zip(&counts[digit_range]) {
                    *number = number.wrapping_add((count + zero) as u32);
                }
            }
            for (word, number) in packed.as_chunks_mut::<4>().0.iter_mut().zip(numbers) {
                *word = ((u64::from(number) << 32).div_ceil(values) as u32).to_le_bytes();
            }
        }
    }

    /// Unpacks to multiples of the threshold.
    pub fn unpack(&self, packed: &[u8], sums: &mut [f32]) {
        assert_eq!(packed.len(), self.bytes(sums.len()), "unexpected length of packed sums");
        let (words, zero) = (self.words(sums.len()), self.workers as i32);
        for (block, packed) in packed.chunks(4 * BLOCK).enumerate() {
            let mut fractions = [0u32; BLOCK];
            let length = packed.len() / 4;
            for (fraction, word) in fractions.iter_mut().zip(packed.as_chunks::<4>().0) {
                *fraction = u32::from_le_bytes(*word);
            }
            for digit in 0..self.digits {
                let digit_range = digit_range(digit * words + block * BLOCK, length, sums.len());
                for (fraction, sum) in fractions.iter_mut().zip(&mut sums[digit_range]) {
                    let product = u64::from(*fraction) * u64::from(self.base);
                    *sum = ((product >> 32) as i32 - zero) as f32 * self.threshold;
                    *fraction = product as u32;
                }
            }
        }
    }
}

/// Returns the range of values in one digit of `length` words, starting at `start`; shorter at the end.
fn digit_range(start: usize, length: usize, values: usize) -> std::ops::Range<usize> {
    start.min(values)..(start + length).min(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringmark_core::stats::random::Random;

    #[test]
    fn one_word_holds_ten_sums_of_four_workers() {
        assert_eq!([9, 10, 11, 25].map(|values| PackedSums::new(0.5, 4).bytes(values)), [4, 4, 8, 12]);
        assert_eq!(PackedSums::new(0.5, 4).bytes(0), 0);
    }

    #[test]
    fn packed_sums_round_trip() {
        let mut random = Random(3);
        for workers in [1, 2, 3, 4, 7, 8, 31, 1000, 32_767, 40_000] {
            let sums = PackedSums::new(0.375, workers);
            for values in [0, 1, 2, 9, 10, 11, 100, 1279, 1280, 1281, 9999] {
                let mut count = |index: usize| match index % 5 {
                    0 => -(workers as f32),
                    1 => workers as f32,
                    _ => ((random.uniform() * f64::from(2 * workers + 1)).floor() - f64::from(workers)) as f32,
                };
                let counts: Vec<f32> = (0..values).map(&mut count).collect();
                let mut packed = vec![0xab; sums.bytes(values)];
                sums.pack(&counts, &mut packed);
                let mut unpacked = vec![f32::NAN; values];
                sums.unpack(&packed, &mut unpacked);
                let expected: Vec<f32> = counts.iter().map(|count| count * 0.375).collect();
                assert_eq!(unpacked, expected, "{workers} workers, {values} values");
            }
        }
    }
}
