//! Python's `random.seed(number)` and `random.shuffle`, to shuffle a list as MXNet's im2rec.py does: the Mersenne
//! Twister MT19937 of Matsumoto and Nishimura (1998), seeded by its `init_by_array`. Training does not use it.

const WORDS: usize = 624;

/// One step of `init_by_array`.
fn mix(state: &mut [u32; WORDS], at: &mut usize, multiplier: u32, added: u32) {
    let before = state[*at - 1];
    state[*at] = (state[*at] ^ (before ^ (before >> 30)).wrapping_mul(multiplier)).wrapping_add(added);
    *at += 1;
    if *at == WORDS {
        state[0] = state[WORDS - 1];
        *at = 1;
    }
}

/// State of Python's generator.
pub struct PythonRandom {
    state: [u32; WORDS],
    next: usize,
}

impl PythonRandom {
    /// Equivalent of `random.seed(seed)`.
    pub fn new(seed: u64) -> PythonRandom {
        let key = match [seed as u32, (seed >> 32) as u32] {
            [low, 0] => vec![low],
            both => both.to_vec(),
        };
        let mut state = [0_u32; WORDS];
        state[0] = 19_650_218;
        for at in 1..WORDS {
            let before = state[at - 1];
            state[at] = 1_812_433_253_u32.wrapping_mul(before ^ (before >> 30)).wrapping_add(at as u32);
        }
        let mut at = 1;
        for time in 0..WORDS.max(key.len()) {
            let word = time % key.len();
            mix(&mut state, &mut at, 1_664_525, key[word].wrapping_add(word as u32));
        }
        for _ in 1..WORDS {
            let subtracted = at as u32;
            mix(&mut state, &mut at, 1_566_083_941, subtracted.wrapping_neg());
        }
        state[0] = 1 << 31;
        PythonRandom { state, next: WORDS }
    }

    fn word(&mut self) -> u32 {
        if self.next == WORDS {
            for at in 0..WORDS {
                let joined = (self.state[at] & (1 << 31)) | (self.state[(at + 1) % WORDS] & !(1 << 31));
                let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[at] = self.state[(at + 397) % WORDS] ^ (joined >> 1) ^ odd;
            }
            self.next = 0;
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// Equivalent of `_randbelow`: draws as many bits as the bound has, until the result is below it.
    fn below(&mut self, bound: u32) -> u32 {
        loop {
            let drawn = self.word() >> bound.leading_zeros();
            if drawn < bound {
                return drawn;
            }
        }
    }

    /// Equivalent of `random.shuffle`, for at most 2^32 - 1 items.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u32 + 1) as usize;
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shuffled(seed: u64, count: u32) -> Vec<u32> {
        let mut items: Vec<u32> = (0..count).collect();
        PythonRandom::new(seed).shuffle(&mut items);
        items
    }

    #[test]
    fn shuffle_matches_python() {
        // python3 -c 'import random; a = list(range(10)); random.seed(S); random.shuffle(a); print(a)'
        assert_eq!(shuffled(100, 10), [4, 0, 5, 9, 3, 1, 6, 8, 7, 2]);
        assert_eq!(shuffled(0, 10), [7, 8, 1, 5, 3, 4, 2, 0, 9, 6]);
        assert_eq!(shuffled(7, 10), [8, 3, 1, 4, 7, 0, 9, 6, 2, 5]);
        assert_eq!(shuffled(1099511627779, 10), [8, 5, 6, 7, 9, 2, 4, 1, 0, 3]);
        let many = shuffled(100, 2000);
        assert_eq!(many[..4], [1055, 30, 1188, 926]);
        assert_eq!(many[1996..], [1949, 931, 941, 298]);
    }
}
