//! Parts of buckets and their places in memory; pure arithmetic, the same on every rank.

use std::ops::Range;

use ringmark_core::dimension::Wire;

use crate::exchange::bucket::BucketPlan;
use crate::exchange::collective::{Collective, PART_ALIGNMENT, Target, split_evenly};
use crate::ffi::group::GroupRank;

/// A bucket that is divided among the ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardedBucket {
    /// Elements of the flat gradients and weights.
    pub elements: Range<usize>,
    /// One part for each rank, counted from the start of the bucket. They have the same length, so that libraries have one
    /// call for all, and the last ones extend beyond the elements.
    parts: Vec<Range<usize>>,
    /// Elements in the part of this rank, counted from the start of the bucket; may be empty.
    pub own: Range<usize>,
    /// Place of this rank's part in an array of all its parts.
    pub place: Range<usize>,
}

impl ShardedBucket {
    /// Divides the buckets of `plan` for the rank `own`.
    pub fn list(plan: &BucketPlan, own: GroupRank) -> Vec<ShardedBucket> {
        let mut next = 0;
        let bucket = |elements: Range<usize>| {
            let length = elements.len().next_multiple_of(own.ranks as usize * PART_ALIGNMENT);
            let parts = split_evenly(0..length, own.ranks, PART_ALIGNMENT);
            let Range { start, end } = parts[own.rank as usize];
            let own = start.min(elements.len())..end.min(elements.len());
            let place = next..next + own.len();
            next = place.end;
            ShardedBucket { elements, parts, own, place }
        };
        plan.buckets.iter().map(|bucket| bucket.elements.clone()).map(bucket).collect()
    }

    /// Returns the length of the bucket in memory.
    pub fn length(&self) -> usize {
        self.parts.last().map_or(0, |last| last.end)
    }

    /// Returns the parts of a bucket that starts at element `start`.
    pub fn parts_at(&self, start: usize) -> Vec<Range<usize>> {
        self.parts.iter().map(|part| shifted(part, start)).collect()
    }

    /// Returns the bytes that `rank` sends and receives when the bucket's weights are gathered.
    pub fn bytes_of_gather(&self, rank: GroupRank) -> [u64; 2] {
        let gather = Collective::AllGather { parts: self.parts.clone(), target: Target::Memory };
        gather.bytes(rank, Wire::Fp32.bytes())
    }

    /// Returns the elements in this rank's part of a bucket that starts at element `start`.
    pub fn own_at(&self, start: usize) -> Range<usize> {
        shifted(&self.own, start)
    }
}

fn shifted(range: &Range<usize>, start: usize) -> Range<usize> {
    range.start + start..range.end + start
}

/// Places arrays of these lengths alternately at the start and at the end of a memory with space for any two consecutive
/// ones; returns their first elements and the size of the memory.
pub fn alternating(lengths: &[usize]) -> (Vec<usize>, usize) {
    let two = lengths.windows(2).map(|pair| pair[0] + pair[1]).max();
    let size = two.or(lengths.first().copied()).unwrap_or(0);
    let start = |(index, length): (usize, &usize)| if index % 2 == 0 { 0 } else { size - length };
    (lengths.iter().enumerate().map(start).collect(), size)
}

#[cfg(test)]
mod tests {
    use ringmark_core::dimension::Bytes;

    use super::*;
    use crate::exchange::collective::are_even;

    #[test]
    fn every_element_has_one_owner() {
        for ranks in 1..=4 {
            let plan = BucketPlan::new(&[300, 700, 10], Bytes(4), Bytes(0));
            let lists: Vec<_> = (0..ranks).map(|rank| ShardedBucket::list(&plan, GroupRank { rank, ranks })).collect();
            for bucket in 0..3 {
                let of_bucket: Vec<&ShardedBucket> = lists.iter().map(|list| &list[bucket]).collect();
                let start = of_bucket[0].elements.start;
                let owned: Vec<Range<usize>> = of_bucket.iter().map(|bucket| bucket.own_at(start)).collect();
                let parts = of_bucket[0].parts_at(start);
                let end = of_bucket[0].elements.end;
                assert!(
                    owned
                        .iter()
                        .zip(&parts)
                        .all(|(own, part)| (own.end, own.start) == (part.end.min(end), part.start.min(end)))
                );
                assert!(
                    are_even(&parts) && parts[0].start == start && end <= start + of_bucket[0].length(),
                    "{parts:?}"
                );
                assert_eq!((owned[0].start, owned[owned.len() - 1].end), (start, end));
                assert!(owned.windows(2).all(|pair| pair[0].end == pair[1].start), "{owned:?}");
            }
            for list in &lists {
                assert!(list.windows(2).all(|pair| pair[0].place.end == pair[1].place.start), "{list:?}");
                assert!(list.iter().all(|bucket| bucket.place.len() == bucket.own.len()), "{list:?}");
            }
        }
    }

    #[test]
    fn two_consecutive_arrays_fit() {
        assert_eq!(alternating(&[5, 3, 4, 9]), (vec![0, 10, 0, 4], 13));
        assert_eq!(alternating(&[7]), (vec![0], 7));
        assert_eq!(alternating(&[]), (vec![], 0));
        let lengths = [4, 100, 3, 7, 90, 1];
        let (starts, size) = alternating(&lengths);
        let places: Vec<Range<usize>> =
            starts.iter().zip(lengths).map(|(start, length)| *start..start + length).collect();
        assert!(places.iter().all(|place| place.end <= size));
        let are_apart = |one: &Range<usize>, other: &Range<usize>| one.end <= other.start || other.end <= one.start;
        assert!(places.windows(2).all(|pair| are_apart(&pair[0], &pair[1])), "{places:?}");
    }
}
