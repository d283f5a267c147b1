//! Collectives of a backend, and the division of an array into parts.

use crate::ffi::group::{GroupRank, Neighbors};
use std::ops::Range;

use ringmark_core::dimension::Operation;
use tch::Tensor;

/// A collective. Every rank starts the same one over the same elements; an element is in at most one pending
/// collective.
///
/// Input and output are in the backend's memory: [`Memory::input`] and its sums. If they are one array, or the
/// [`Target`] is a tensor, the collective is in place.
///
/// [`Memory::input`]: crate::exchange::memory::Memory::input
#[derive(Debug)]
pub enum Collective<'a> {
    /// Every rank gets the sums.
    AllReduce { elements: Range<usize> },
    /// The root gets the sums; the sums of the other ranks are undefined afterwards.
    Reduce {
        elements: Range<usize>,
        root: u32,
        /// Route to the root, if the backend has a choice.
        route: Route,
    },
    /// Every rank gets the sums of its part; its other sums are undefined afterwards.
    ReduceScatter {
        /// One part for each rank, in rank order; may be empty.
        parts: Vec<Range<usize>>,
    },
    /// Every rank gets the root's elements.
    Broadcast { elements: Range<usize>, root: u32, target: Target<'a> },
    /// Every rank gets every rank's part.
    AllGather {
        /// One part for each rank, as in a reduce-scatter.
        parts: Vec<Range<usize>>,
        target: Target<'a>,
    },
    /// Every rank gets, in each rank's part, that rank's elements of the receiver's part. Never in place.
    AllToAll {
        /// One part for each rank, all of the same length.
        parts: Vec<Range<usize>>,
    },
    /// Every rank sends its elements to one rank and receives those of another, or only one of them, or none. Never in
    /// place.
    SendReceive { elements: Range<usize>, neighbors: Neighbors },
}

/// Route of other hosts' values to a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The library's chain, host by host: each host adds its values, and every link carries the elements once.
    Chain,
    /// Every host sends directly to the root's host. Suits several concurrent reductions with roots on different hosts:
    /// in a chain one would queue behind another on the same link.
    Direct,
}

/// Source and destination of elements that are moved, not summed.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// The memory's input is the source and its sums are the destination; both have the same type.
    Memory,
    /// This tensor is source and destination. It has the length and the type of the sums, like a model's flat weights.
    /// The sums of the same elements are undefined afterwards, because a backend may use them as a send buffer.
    Tensor(&'a Tensor),
}

impl Collective<'_> {
    pub fn operation(&self) -> Operation {
        match self {
            Collective::AllReduce { .. } => Operation::AllReduce,
            Collective::Reduce { .. } => Operation::Reduce,
            Collective::ReduceScatter { .. } => Operation::ReduceScatter,
            Collective::Broadcast { .. } => Operation::Broadcast,
            Collective::AllGather { .. } => Operation::AllGather,
            Collective::AllToAll { .. } => Operation::AllToAll,
            Collective::SendReceive { .. } => Operation::SendReceive,
        }
    }

    /// Returns the bytes that a rank sends and receives if an element has `element_bytes` bytes: an all-reduce in a
    /// ring, any other collective directly from source to destination. This is a formula, not a measurement: within a
    /// host ranks read each other's memory, and in a library's chain a root moves every element once.
    pub fn bytes(&self, GroupRank { rank, ranks }: GroupRank, element_bytes: u64) -> [u64; 2] {
        let others = u64::from(ranks) - 1;
        let length = |elements: &Range<usize>| elements.len() as u64;
        let all = |parts: &[Range<usize>]| parts.iter().map(length).sum::<u64>();
        let (out, into) = match self {
            Collective::AllReduce { elements } => {
                let each = 2 * others * length(elements) / u64::from(ranks);
                (each, each)
            }
            _ if others == 0 => (0, 0),
            Collective::Reduce { elements, root, .. } if *root == rank => (0, others * length(elements)),
            Collective::Reduce { elements, .. } => (length(elements), 0),
            Collective::Broadcast { elements, root, .. } if *root == rank => (others * length(elements), 0),
            Collective::Broadcast { elements, .. } => (0, length(elements)),
            Collective::ReduceScatter { parts } => {
                let own = length(&parts[rank as usize]);
                (all(parts) - own, others * own)
            }
            Collective::AllGather { parts, .. } => {
                let own = length(&parts[rank as usize]);
                (others * own, all(parts) - own)
            }
            Collective::AllToAll { parts } => {
                let others_parts = all(parts) - length(&parts[rank as usize]);
                (others_parts, others_parts)
            }
            Collective::SendReceive { elements, neighbors: Neighbors { next, previous } } => {
                (next.map_or(0, |_| length(elements)), previous.map_or(0, |_| length(elements)))
            }
        };
        [out * element_bytes, into * element_bytes]
    }

    pub fn span(&self) -> Range<usize> {
        match self {
            Collective::AllReduce { elements }
            | Collective::Reduce { elements, .. }
            | Collective::Broadcast { elements, .. }
            | Collective::SendReceive { elements, .. } => elements.clone(),
            Collective::ReduceScatter { parts }
            | Collective::AllGather { parts, .. }
            | Collective::AllToAll { parts } => {
                let start = parts.iter().map(|part| part.start).min().unwrap_or(0);
                start..parts.iter().map(|part| part.end).max().unwrap_or(start).max(start)
            }
        }
    }
}

/// Alignment of the parts of weights that ranks own, in elements: at least a cache line of fp32.
pub const PART_ALIGNMENT: usize = 64;

/// Divides `elements` among the ranks as evenly as multiples of `alignment` elements allow; the last parts may be
/// shorter or empty.
///
/// `split_evenly(10..30, 3, 4)` is 10..18, 18..26 and 26..30.
pub fn split_evenly(elements: Range<usize>, ranks: u32, alignment: usize) -> Vec<Range<usize>> {
    let length = elements.len().div_ceil(ranks as usize).next_multiple_of(alignment);
    let border = |rank: usize| (elements.start + rank * length).min(elements.end);
    (0..ranks as usize).map(|rank| border(rank)..border(rank + 1)).collect()
}

/// Returns true if the parts are contiguous and of equal length, as libraries require.
pub fn are_even(parts: &[Range<usize>]) -> bool {
    parts.windows(2).all(|pair| pair[0].end == pair[1].start && pair[0].len() == pair[1].len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_parts_are_aligned_and_cover_the_range() {
        assert_eq!(split_evenly(10..30, 3, 4), [10..18, 18..26, 26..30]);
        assert_eq!(split_evenly(0..4, 3, 4), [0..4, 4..4, 4..4]);
        assert_eq!(split_evenly(0..12, 3, 1), [0..4, 4..8, 8..12]);
        assert!(are_even(&split_evenly(0..12, 3, 1)) && !are_even(&split_evenly(0..13, 3, 1)));
        assert!(are_even(&[5..9; 1]) && !are_even(&[0..2, 3..5]));
    }

    /// The ranks send as many bytes as they receive, and each operation moves the expected number.
    #[test]
    fn sent_and_received_bytes_are_balanced() {
        let parts = || vec![0..5, 5..10, 10..12];
        let (all, target) = (0..12, Target::Memory);
        for (collective, expected) in [
            (Collective::AllReduce { elements: all.clone() }, [[64, 64]; 3]),
            (Collective::Reduce { elements: all.clone(), root: 1, route: Route::Chain }, [[48, 0], [0, 96], [48, 0]]),
            (Collective::Broadcast { elements: all.clone(), root: 1, target }, [[0, 48], [96, 0], [0, 48]]),
            (Collective::ReduceScatter { parts: parts() }, [[28, 40], [28, 40], [40, 16]]),
            (Collective::AllGather { parts: parts(), target }, [[40, 28], [40, 28], [16, 40]]),
        ] {
            let bytes = [0, 1, 2].map(|rank| collective.bytes(GroupRank { rank, ranks: 3 }, 4));
            assert_eq!(bytes, expected, "{collective:?}");
            let sum = |index: usize| bytes.iter().map(|rank| rank[index]).sum::<u64>();
            assert_eq!(sum(0), sum(1), "{collective:?}");
        }
        let bytes = |rank: u32, neighbors: fn(GroupRank) -> Neighbors| {
            let rank = GroupRank { rank, ranks: 3 };
            Collective::SendReceive { elements: 0..12, neighbors: neighbors(rank) }.bytes(rank, 4)
        };
        assert_eq!([0, 1, 2].map(|rank| bytes(rank, GroupRank::in_ring)), [[48, 48]; 3]);
        assert_eq!([0, 1, 2].map(|rank| bytes(rank, |rank| rank.in_pair(2, 1))), [[0, 0], [0, 48], [48, 0]]);
        assert_eq!(
            Collective::Reduce { elements: 0..12, root: 0, route: Route::Chain }
                .bytes(GroupRank { rank: 0, ranks: 1 }, 4),
            [0, 0]
        );
    }

    #[test]
    fn span_contains_every_part() {
        assert_eq!(Collective::AllToAll { parts: vec![4..6, 2..4, 9..9] }.span(), 2..9);
        assert_eq!(Collective::Reduce { elements: 3..5, root: 1, route: Route::Direct }.span(), 3..5);
    }
}
