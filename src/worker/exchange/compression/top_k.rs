//! Top-k code: the values of largest magnitude with their indices, `ceil(ratio x values)` pairs of an index (u32) and a
//! value (fp32), little-endian, in index order. Of equal magnitudes the lowest indices are sent. The residual keeps the
//! rest.

use crate::exchange::compression::finite::{INFINITE, NotFinite, first_not_finite, magnitude};

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TopK {
    /// Fraction of the values that is sent, greater than 0 and at most 1.
    pub ratio: f64,
}

const PAIR: usize = 8;

/// Shift to the 16 highest of the 31 magnitude bits, by which values are counted.
const SHIFT: u32 = 15;

impl TopK {
    /// Returns the size of the code; at least one value is sent.
    pub fn code_bytes(&self, values: usize) -> usize {
        PAIR * ((self.ratio * values as f64).ceil() as usize).min(values)
    }

    /// Implements [`Codec::encode`](super::Codec::encode); the length of `code` determines how many values are sent.
    pub fn encode(residual: &mut [f32], gradient: &[f32], code: &mut [u8]) -> Result<(), NotFinite> {
        let mut largest = 0;
        for (residual, gradient) in residual.iter_mut().zip(gradient) {
            *residual += gradient;
            largest = largest.max(magnitude(*residual));
        }
        if largest >= INFINITE {
            return Err(first_not_finite(residual));
        }
        let count = code.len() / PAIR;
        let (limit, mut at_limit) = limit(residual, count);
        let mut pairs = code.as_chunks_mut::<PAIR>().0.iter_mut();
        for (index, value) in residual.iter_mut().enumerate() {
            let magnitude = magnitude(*value);
            if magnitude < limit {
                continue;
            }
            if magnitude == limit {
                if at_limit == 0 {
                    continue;
                }
                at_limit -= 1;
            }
            let Some(pair) = pairs.next() else { break };
            pair[..4].copy_from_slice(&(index as u32).to_le_bytes());
            pair[4..].copy_from_slice(&value.to_le_bytes());
            *value = 0.0;
        }
        Ok(())
    }

    pub fn decode_and_add(code: &[u8], sum: &mut [f32]) {
        for [a, b, c, d, value @ ..] in code.as_chunks::<PAIR>().0 {
            let index = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
            sum[index] += f32::from_le_bytes(*value);
        }
    }
}

/// Returns the `count`-th largest magnitude, and how many values of exactly this magnitude are among the `count`
/// largest. Counts values by their highest bits, then selects among those that share them.
fn limit(values: &[f32], count: usize) -> (u32, usize) {
    if count == 0 {
        return (INFINITE, 0);
    }
    let mut counts = vec![0u32; 1 << (31 - SHIFT)];
    values.iter().for_each(|value| counts[(magnitude(*value) >> SHIFT) as usize] += 1);
    let (mut larger, mut class) = (0, counts.len() - 1);
    while larger + (counts[class] as usize) < count {
        larger += counts[class] as usize;
        class -= 1;
    }
    let in_class = values.iter().map(|value| magnitude(*value)).filter(|value| (value >> SHIFT) as usize == class);
    let mut in_class: Vec<u32> = in_class.collect();
    let (before, limit, _) = in_class.select_nth_unstable_by(count - larger - 1, |one, other| other.cmp(one));
    let limit = *limit;
    let at_limit = 1 + before.iter().filter(|value| **value == limit).count();
    (limit, at_limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringmark_core::stats::random::Random;

    fn coded(ratio: f64, residual: &mut [f32], gradient: &[f32]) -> Vec<(u32, f32)> {
        let mut code = vec![0; TopK { ratio }.code_bytes(gradient.len())];
        TopK::encode(residual, gradient, &mut code).expect("finite");
        let number = |bytes: &[u8]| <[u8; 4]>::try_from(bytes).expect("four");
        let pair = |pair: &[u8]| (u32::from_le_bytes(number(&pair[..4])), f32::from_le_bytes(number(&pair[4..])));
        code.chunks(PAIR).map(pair).collect()
    }

    #[test]
    fn largest_values_are_sent_and_the_rest_is_kept() {
        let mut residual = [0.0, 1.0, 0.0, 0.0, -1.0];
        let sent = coded(0.4, &mut residual, &[0.5, 1.0, -3.0, 0.25, 0.5]);
        assert_eq!(sent, [(1, 2.0), (2, -3.0)]);
        assert_eq!(residual, [0.5, 0.0, 0.0, 0.25, -0.5]);
        // If magnitudes are equal, the first are sent; the rest follows in the next step.
        let mut residual = [0.0; 4];
        assert_eq!(coded(0.5, &mut residual, &[1.0, -1.0, 1.0, -1.0]), [(0, 1.0), (1, -1.0)]);
        assert_eq!(coded(0.5, &mut residual, &[0.0; 4]), [(2, 1.0), (3, -1.0)]);
        assert_eq!(residual, [0.0; 4]);
        assert_eq!(coded(0.01, &mut [0.0; 3], &[0.0; 3]), [(0, 0.0)], "at least one");
        assert_eq!(coded(1.0, &mut [0.0; 2], &[3.0, -4.0]), [(0, 3.0), (1, -4.0)]);
        assert_eq!(TopK { ratio: 0.5 }.code_bytes(0), 0);
        assert_eq!([99, 100, 101].map(|values| TopK { ratio: 0.01 }.code_bytes(values)), [8, 8, 16]);
    }

    #[test]
    fn selection_matches_sorting() {
        let mut random = Random(4);
        for count in [1usize, 2, 7, 100, 1000, 20_000] {
            for ratio in [0.001, 0.1, 0.5, 0.999, 1.0] {
                // Rounded, so that some values are equal.
                let gradient: Vec<f32> =
                    (0..count).map(|_| ((1000.0 * random.normal()).round() / 1000.0) as f32).collect();
                let mut order: Vec<usize> = (0..count).collect();
                order.sort_by_key(|index| (std::cmp::Reverse(magnitude(gradient[*index])), *index));
                let mut residual = vec![0.0; count];
                let sent = coded(ratio, &mut residual, &gradient);
                let mut expected: Vec<usize> = order[..sent.len()].to_vec();
                expected.sort_unstable();
                let places: Vec<usize> = sent.iter().map(|(index, _)| *index as usize).collect();
                assert_eq!(places, expected, "{count}, {ratio}");
            }
        }
    }
}
