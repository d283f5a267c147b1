//! Seeded random numbers, the same on every platform, for simulations and for orders that
//! can be repeated.

/// SplitMix64 generator.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// Returns a number between 0 and 1, both excluded.
    pub fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((mixed ^ (mixed >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Returns a normally distributed number with mean 0 and standard deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Returns an integer from 0 to `limit` - 1, each with the same probability.
    pub fn below(&mut self, limit: usize) -> usize {
        // Rounding may give `limit` itself.
        ((self.uniform() * limit as f64) as usize).min(limit.saturating_sub(1))
    }

    /// Puts the items into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(self.below(end + 1), end);
        }
    }
}
