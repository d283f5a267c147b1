//! Placement of array parts on servers or ranks: pure arithmetic with the same result in every process.
//!
//! MXNet's rule (`EncodeDefaultKey` in `src/kvstore/kvstore_dist.h`, v0.12): an array of [`BIG_ARRAY`] or more values
//! is cut into as many slices as there are servers, and slice `i` starts at `round(n / N * i)`; a smaller one is placed
//! whole on server `key * 9973 mod N`. If weights have even keys and biases odd ones, nearly everything ends up on one
//! of two servers. The default therefore places the smaller arrays largest first, each on the server that holds least.

use std::ops::Range;

use anyhow::ensure;

use crate::dimension::{Bytes, KeyPlacement};

/// Minimum length of an array that is sliced: MXNet's `MXNET_KVSTORE_BIGARRAY_BOUND`.
pub const BIG_ARRAY: usize = 1_000_000;

const HASH_MULTIPLIER: usize = 9973;

/// Part of an array that is stored on one server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "field names are self-explanatory")]
pub struct ArrayPart {
    pub key: usize,
    pub server: usize,
    pub values: Range<usize>,
}

/// Refuses more servers than arrays, or none; the message is for the user.
pub fn check_servers(servers: usize, arrays: usize) -> anyhow::Result<()> {
    ensure!(
        (1..=arrays).contains(&servers),
        "--servers {servers}: the network has only {arrays} arrays: use at most one server per array"
    );
    Ok(())
}

/// Returns the parts of arrays of the given lengths, in the order of the arrays and of their values.
pub fn place(lengths: &[usize], servers: usize, placement: KeyPlacement) -> Vec<ArrayPart> {
    let small = match placement {
        KeyPlacement::Hash => (0..lengths.len()).map(|key| key * HASH_MULTIPLIER % servers).collect(),
        KeyPlacement::Balanced => {
            let sliced = |length: &usize| if *length < BIG_ARRAY { 0 } else { *length };
            let mut held = vec![0; servers];
            for length in lengths.iter().map(sliced) {
                (0..servers).for_each(|server| held[server] += slice(length, servers, server).len());
            }
            balanced(lengths, |length| length < BIG_ARRAY, held)
        }
    };
    let parts_of = |(key, length): (usize, &usize)| -> Vec<ArrayPart> {
        if *length < BIG_ARRAY {
            return vec![ArrayPart { key, server: small[key], values: 0..*length }];
        }
        (0..servers).map(|server| ArrayPart { key, server, values: slice(*length, servers, server) }).collect()
    };
    lengths.iter().enumerate().flat_map(parts_of).collect()
}

/// Assigns each whole array to one of `count` owners: the largest first, each to the owner that holds least, ties to
/// the first.
pub fn owners(lengths: &[usize], count: usize) -> Vec<usize> {
    balanced(lengths, |_| true, vec![0; count])
}

/// Returns the fp32 bytes on each server.
pub fn bytes_by_server(parts: &[ArrayPart], servers: usize) -> Vec<Bytes> {
    let mut bytes = vec![Bytes(0); servers];
    for part in parts {
        bytes[part.server].0 += (part.values.len() * size_of::<f32>()) as u64;
    }
    bytes
}

fn balanced(lengths: &[usize], is_placed: impl Fn(usize) -> bool, mut held: Vec<usize>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..lengths.len()).filter(|key| is_placed(lengths[*key])).collect();
    order.sort_by_key(|key| std::cmp::Reverse(lengths[*key]));
    let mut holders = vec![0; lengths.len()];
    for key in order {
        let least = (0..held.len()).min_by_key(|holder| held[*holder]).unwrap_or_default();
        held[least] += lengths[key];
        holders[key] = least;
    }
    holders
}

/// Returns slice `index` of `length` values; borders are rounded half away from zero.
fn slice(length: usize, servers: usize, index: usize) -> Range<usize> {
    let border = |index: usize| (length as f64 / servers as f64 * index as f64).round() as usize;
    border(index)..border(index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lengths of weights and biases of layers, given as (outputs, inputs per output).
    fn layers(layers: &[(usize, usize)]) -> Vec<usize> {
        layers.iter().flat_map(|(outputs, inputs)| [outputs * inputs, *outputs]).collect()
    }

    fn bytes(lengths: &[usize], servers: usize, placement: KeyPlacement) -> Vec<u64> {
        let parts = place(lengths, servers, placement);
        bytes_by_server(&parts, servers).into_iter().map(|bytes| bytes.0).collect()
    }

    fn alexnet() -> Vec<usize> {
        let convolutions = [(96, 3 * 121), (256, 96 * 25), (384, 256 * 9), (384, 384 * 9), (256, 384 * 9)];
        layers(&[&convolutions[..], &[(4096, 256 * 25), (4096, 4096), (1000, 4096)]].concat())
    }

    fn vgg16() -> Vec<usize> {
        let widths = [3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512];
        let convolutions: Vec<(usize, usize)> = widths.windows(2).map(|pair| (pair[1], pair[0] * 9)).collect();
        layers(&[&convolutions[..], &[(4096, 512 * 49), (4096, 4096), (1000, 4096)]].concat())
    }

    /// Array lengths of MXNet's Inception-BN: convolutions with biases, without batch normalization, as in measure.py.
    fn inception_bn() -> Vec<usize> {
        let mut all = vec![(64, 3 * 49), (64, 64), (192, 64 * 9)];
        let same = |input: usize, [single, reduced, square, twice_reduced, twice, pooled]: [usize; 6]| {
            [
                (single, input),
                (reduced, input),
                (square, reduced * 9),
                (twice_reduced, input),
                (twice, twice_reduced * 9),
                (twice, twice * 9),
                (pooled, input),
            ]
        };
        let halving = |input: usize, [reduced, square, twice_reduced, twice]: [usize; 4]| {
            [
                (reduced, input),
                (square, reduced * 9),
                (twice_reduced, input),
                (twice, twice_reduced * 9),
                (twice, twice * 9),
            ]
        };
        all.extend(same(192, [64, 64, 64, 64, 96, 32]));
        all.extend(same(256, [64, 64, 96, 64, 96, 64]));
        all.extend(halving(320, [128, 160, 64, 96]));
        all.extend(same(576, [224, 64, 96, 96, 128, 128]));
        all.extend(same(576, [192, 96, 128, 96, 128, 128]));
        all.extend(same(576, [160, 128, 160, 128, 160, 128]));
        all.extend(same(608, [96, 128, 192, 160, 192, 128]));
        all.extend(halving(608, [128, 192, 192, 256]));
        all.extend(same(1056, [352, 192, 320, 160, 224, 128]));
        all.extend(same(1024, [352, 192, 320, 192, 224, 128]));
        all.push((1000, 1024));
        layers(&all)
    }

    #[test]
    fn hash_placement_gives_mxnet_loads() {
        assert_eq!(bytes(&inception_bn(), 2, KeyPlacement::Hash), [43_008_768, 2_092_064]);
        assert_eq!(bytes(&alexnet(), 2, KeyPlacement::Hash), [106_504_320, 96_871_712]);
        assert_eq!(bytes(&vgg16(), 2, KeyPlacement::Hash), [280_156_928, 273_273_248]);
    }

    #[test]
    fn balanced_loads_differ_by_at_most_one_array() {
        for lengths in [inception_bn(), alexnet(), vgg16()] {
            let largest = lengths.iter().filter(|length| **length < BIG_ARRAY).max().expect("small ones");
            for servers in 1..=5 {
                let bytes = bytes(&lengths, servers, KeyPlacement::Balanced);
                let (least, most) = (bytes.iter().min().expect("servers"), bytes.iter().max().expect("servers"));
                assert_eq!(bytes.iter().sum::<u64>(), 4 * lengths.iter().sum::<usize>() as u64);
                assert!(most - least <= 4 * *largest as u64, "{servers} servers: {bytes:?}");
            }
        }
        let [first, second] = bytes(&inception_bn(), 2, KeyPlacement::Balanced)[..] else { panic!("two servers") };
        assert!(first.abs_diff(second) < 10_000, "{first} {second}");
    }

    #[test]
    fn every_value_is_placed_once() {
        let lengths = [3, BIG_ARRAY + 1, BIG_ARRAY - 1, 1];
        for placement in [KeyPlacement::Balanced, KeyPlacement::Hash] {
            let parts = place(&lengths, 3, placement);
            let mut next = [0; 4];
            for ArrayPart { key, server, values } in &parts {
                assert_eq!((values.start, *server < 3), (next[*key], true), "{parts:?}");
                next[*key] = values.end;
            }
            assert_eq!(next, lengths);
            assert_eq!(parts.len(), 6);
        }
        // round(1000001 / 3) = 333334, round(2000002 / 3) = 666667.
        let big = place(&lengths, 3, KeyPlacement::Balanced);
        assert_eq!(big[1].values.end, 333_334);
        assert_eq!(big[2].values.end, 666_667);
    }

    #[test]
    fn owners_are_balanced_by_size() {
        assert_eq!(owners(&[5, 9, 4, 1], 2), [1, 0, 1, 0]);
        assert_eq!(owners(&[], 3), [0; 0]);
        assert_eq!(owners(&[7, 7], 1), [0, 0]);
    }
}
