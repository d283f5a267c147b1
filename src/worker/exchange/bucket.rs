//! Division of gradients into buckets that are reduced together; pure arithmetic, computed once.

use std::ops::Range;

use ringmark_core::dimension::Bytes;

/// Consecutive parameters, in backward order, whose gradients are reduced together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    pub parameters: Range<usize>,
    /// Range in the flat gradients, in elements.
    pub elements: Range<usize>,
}

/// Buckets of a model; every parameter is in exactly one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketPlan {
    pub buckets: Vec<Bucket>,
}

impl BucketPlan {
    /// Closes a bucket as soon as it has `target` bytes of fp32 or more; 0 makes every parameter a bucket. The last
    /// parameters, up to `tail` bytes, are a separate bucket, because no backward work is left to hide its exchange. A
    /// tail of 0 disables it.
    ///
    /// `lengths` are the numbers of elements of the parameters: `new(&[4, 1, 3, 1], Bytes(18), Bytes(4))` makes buckets
    /// of 5, 3 and 1 elements.
    pub fn new(lengths: &[usize], target: Bytes, tail: Bytes) -> BucketPlan {
        let mut buckets = Vec::new();
        let mut open = Bucket { parameters: 0..0, elements: 0..0 };
        let tail_start = tail_start(lengths, tail);
        for length in lengths {
            open.parameters.end += 1;
            open.elements.end += length;
            let is_full = bytes(open.elements.len()) >= target;
            if is_full || open.parameters.end == tail_start {
                let next = Bucket {
                    parameters: open.parameters.end..open.parameters.end,
                    elements: open.elements.end..open.elements.end,
                };
                buckets.push(std::mem::replace(&mut open, next));
            }
        }
        if !open.parameters.is_empty() {
            buckets.push(open);
        }
        BucketPlan { buckets }
    }

    /// Does the same with whole units, each of which consists of the consecutive parameters that have the same number
    /// in `units`.
    pub fn of_units(lengths: &[usize], units: &[usize], target: Bytes, tail: Bytes) -> BucketPlan {
        let mut starts: Vec<usize> = (0..units.len()).filter(|at| *at == 0 || units[at - 1] != units[*at]).collect();
        starts.push(units.len());
        let of_unit = |bounds: &[usize]| lengths[bounds[0]..bounds[1]].iter().sum();
        let mut plan = BucketPlan::new(&starts.windows(2).map(of_unit).collect::<Vec<_>>(), target, tail);
        for Bucket { parameters, .. } in &mut plan.buckets {
            *parameters = starts[parameters.start]..starts[parameters.end];
        }
        plan
    }

    /// Returns the sizes of the buckets as fp32.
    pub fn sizes(&self) -> Vec<Bytes> {
        self.buckets.iter().map(|bucket| bytes(bucket.elements.len())).collect()
    }
}

/// Returns the index of the first of the last parameters that together have at most `tail` bytes of fp32.
fn tail_start(lengths: &[usize], tail: Bytes) -> usize {
    let mut elements = 0;
    let is_within = |length: &&usize| {
        elements += **length;
        bytes(elements) <= tail
    };
    lengths.len() - lengths.iter().rev().take_while(is_within).count()
}

/// Returns the size of `elements` as fp32.
fn bytes(elements: usize) -> Bytes {
    Bytes((elements * size_of::<f32>()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(lengths: &[usize], target: u64) -> Vec<Range<usize>> {
        BucketPlan::new(lengths, Bytes(target), Bytes(0)).buckets.into_iter().map(|bucket| bucket.parameters).collect()
    }

    #[test]
    fn bucket_closes_when_full() {
        let plan = BucketPlan::new(&[4, 1, 3], Bytes(18), Bytes(0));
        assert_eq!(plan.sizes(), [Bytes(20), Bytes(12)]);
        assert_eq!(plan.buckets[1], Bucket { parameters: 2..3, elements: 5..8 });
    }

    #[test]
    fn tail_is_a_separate_bucket() {
        let sizes = |target, tail| BucketPlan::new(&[4, 1, 3, 1, 1], Bytes(target), Bytes(tail)).sizes();
        assert_eq!(sizes(1000, 8), [Bytes(32), Bytes(8)]);
        assert_eq!(sizes(1000, 19), [Bytes(32), Bytes(8)], "a parameter is not cut");
        assert_eq!(sizes(20, 4), [Bytes(20), Bytes(16), Bytes(4)]);
        assert_eq!(sizes(1000, 0), [Bytes(40)]);
        assert_eq!(sizes(1000, 40), [Bytes(40)], "one bucket is its own tail");
        assert_eq!(sizes(4, 8), [16, 4, 12, 4, 4].map(Bytes), "a tail of two full buckets");
    }

    #[test]
    fn units_are_not_divided() {
        let plan = |target, tail| BucketPlan::of_units(&[4, 1, 3, 2, 5], &[7, 7, 6, 6, 2], Bytes(target), Bytes(tail));
        let ranges = |plan: BucketPlan| -> Vec<_> {
            plan.buckets.into_iter().map(|bucket| (bucket.parameters, bucket.elements)).collect()
        };
        assert_eq!(ranges(plan(0, 0)), [(0..2, 0..5), (2..4, 5..10), (4..5, 10..15)]);
        assert_eq!(ranges(plan(21, 0)), [(0..4, 0..10), (4..5, 10..15)]);
        assert_eq!(ranges(plan(1000, 20)), [(0..4, 0..10), (4..5, 10..15)]);
        assert_eq!(ranges(plan(1000, 0)), [(0..5, 0..15)]);
    }

    #[test]
    fn all_bucket_sizes_are_supported() {
        assert_eq!(parameters(&[4, 1, 3], 0), [0..1, 1..2, 2..3]);
        assert_eq!(parameters(&[4, 1, 3], 1 << 40), [0..3; 1]);
        assert_eq!(parameters(&[4, 1, 3], 32), [0..3; 1]);
        assert_eq!(parameters(&[9, 1, 3], 20), [0..1, 1..3]);
        assert_eq!(parameters(&[], 20), [0..0; 0]);
    }
}
