//! Which gradients are reduced together: pure arithmetic, made once.

use std::ops::Range;

use ringmark_record::dimension::units::Bytes;

/// Consecutive parameters, in backward order, whose gradients are reduced at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Indices of the parameters.
    pub parameters: Range<usize>,
    /// Their place in the flat gradients, in elements.
    pub elements: Range<usize>,
}

/// Every parameter in exactly one bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketPlan {
    /// In the order they are reduced.
    pub buckets: Vec<Bucket>,
}

impl BucketPlan {
    /// Closes a bucket as soon as it holds `target` bytes of fp32 or more; 0 makes every parameter a bucket.
    ///
    /// `lengths` are the parameters' numbers of elements: `new(&[4, 1, 3], Bytes(18))` makes buckets of 5 and 3.
    pub fn new(lengths: &[usize], target: Bytes) -> BucketPlan {
        let mut buckets = Vec::new();
        let mut open = Bucket { parameters: 0..0, elements: 0..0 };
        for length in lengths {
            open.parameters.end += 1;
            open.elements.end += length;
            if (open.elements.len() * size_of::<f32>()) as u64 >= target.0 {
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

    /// Sizes as fp32.
    pub fn sizes(&self) -> Vec<Bytes> {
        self.buckets.iter().map(|bucket| Bytes((bucket.elements.len() * size_of::<f32>()) as u64)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(lengths: &[usize], target: u64) -> Vec<Range<usize>> {
        BucketPlan::new(lengths, Bytes(target)).buckets.into_iter().map(|bucket| bucket.parameters).collect()
    }

    #[test]
    fn a_bucket_closes_when_it_is_full() {
        let plan = BucketPlan::new(&[4, 1, 3], Bytes(18));
        assert_eq!(plan.sizes(), [Bytes(20), Bytes(12)]);
        assert_eq!(plan.buckets[1], Bucket { parameters: 2..3, elements: 5..8 });
    }

    #[test]
    fn every_size_is_served() {
        assert_eq!(parameters(&[4, 1, 3], 0), [0..1, 1..2, 2..3]);
        assert_eq!(parameters(&[4, 1, 3], 1 << 40), [0..3; 1]);
        assert_eq!(parameters(&[4, 1, 3], 32), [0..3; 1]);
        assert_eq!(parameters(&[9, 1, 3], 20), [0..1, 1..3]);
        assert_eq!(parameters(&[], 20), [0..0; 0]);
    }
}
