//! Random numbers of one image, independent of the thread and of the order in which images are processed.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// xoshiro256++ (Blackman, Vigna 2019), seeded for one image of one epoch.
#[derive(Debug, Clone)]
pub struct Generator(Xoshiro256PlusPlus);

impl Generator {
    /// Creates the generator of image `index` of the data set in `epoch`.
    pub fn for_image(seed: u64, epoch: u64, index: u64) -> Generator {
        // Mixed one after the other by a bijection, so that no two images of an epoch share a state.
        let state = mix(mix(mix(seed).wrapping_add(epoch)).wrapping_add(index));
        Generator(Xoshiro256PlusPlus::seed_from_u64(state))
    }

    /// Returns a number in [0, 1) with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (-53f64).exp2()
    }

    /// Returns a number between `low` and `high`, uniformly distributed.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Returns an integer from 0 to `last`, inclusive, uniformly distributed.
    pub fn up_to(&mut self, last: usize) -> usize {
        // The bias of taking the upper half of the product is below 2^-40 for the edges of an image.
        ((u128::from(self.0.next_u64()) * (last as u128 + 1)) >> 64) as usize
    }

    /// Returns true with probability 1/2.
    pub fn coin(&mut self) -> bool {
        self.0.next_u64() >> 63 == 1
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): each input bit changes half of the output bits.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn image_numbers_are_reproducible_and_distinct() {
        let draw = |seed, epoch, index| Generator::for_image(seed, epoch, index).0.next_u64();
        // Literal value: a later release must draw the same numbers.
        assert_eq!(draw(0, 0, 0), 13_455_478_169_099_370_058);
        let mut drawn = BTreeSet::new();
        for seed in 0..20 {
            for epoch in 0..20 {
                drawn.extend((0..50).map(|index| draw(seed, epoch, index)));
            }
        }
        assert_eq!(drawn.len(), 20 * 20 * 50);
    }

    #[test]
    fn numbers_are_uniform() {
        let mut buckets = [0; 10];
        let mut integers = [0; 3];
        let mut heads = 0;
        for index in 0..30_000 {
            let mut generator = Generator::for_image(7, 1, index);
            buckets[(10.0 * generator.unit()) as usize] += 1;
            integers[generator.up_to(2)] += 1;
            heads += i32::from(generator.coin());
            assert!((-2.0..3.0).contains(&generator.between(-2.0, 3.0)));
        }
        // Tolerance of five standard deviations: sqrt(n p (1 - p)) is 52, 82 and 87.
        assert!(buckets.iter().all(|count: &i32| (count - 3_000).abs() < 260), "{buckets:?}");
        assert!(integers.iter().all(|count: &i32| (count - 10_000).abs() < 410), "{integers:?}");
        assert!((heads - 15_000).abs() < 435, "{heads}");
    }
}
