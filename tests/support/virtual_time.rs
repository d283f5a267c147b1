//! Numbers of kernels and exchange times of a step on virtual GPUs, derived by hand.

use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::dimension::Bytes;

/// Kernels of ResNet-18's forward: 20 convolutions, 20 normalizations, 17 ReLUs, 8 additions of a shortcut, max
/// pooling and average pooling, the linear layer, log softmax, loss.
pub const FORWARD: u64 = 20 + 20 + 17 + 8 + 2 + 1 + 2;

/// Kernels after the all-reduces: the update, and two for values copied to the host.
pub const AFTER_SUMS: u64 = 3;

/// Returns the number of kernels of backward: one for each kernel of forward, except none for an addition; three
/// gradients for the linear layer; one that fills the loss's gradient with 1; one addition of two gradients at each
/// shortcut; and one that copies the gradients of each bucket.
pub fn backward(buckets: usize) -> u64 {
    20 + 20 + 17 + 2 + 3 + 2 + 1 + 8 + buckets as u64
}

/// Returns the number of kernels of forward and backward.
pub fn compute(record: &RunRecord) -> u64 {
    FORWARD + backward(record.header.buckets.len())
}

/// Returns the duration of an all-reduce of `bytes`, in seconds.
pub fn wire(bytes: Bytes, sum_ns: u64, ns_per_byte: f64) -> f64 {
    (sum_ns as f64 + (bytes.0 as f64 * ns_per_byte).round()) / 1e9
}
