//! Kernels and sums of a step on virtual GPUs, counted by hand.

use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::dimension::Bytes;

/// Kernels of forward, of ResNet-18: 20 convolutions and normalizations, 17 ReLUs, 8 sums with a shortcut, maximum and mean
/// of pixels, the linear layer, logarithm of softmax, loss.
pub const FORWARD: u64 = 20 + 20 + 17 + 8 + 2 + 1 + 2;

/// Kernels behind the sums: the update, and two for what goes to the host.
pub const AFTER_SUMS: u64 = 3;

/// Kernels of backward: one each, but none for a sum; the linear layer has three gradients; the loss's own is filled with 1;
/// at every shortcut two gradients meet; every bucket's gradients are copied by one kernel.
pub fn backward(buckets: usize) -> u64 {
    20 + 20 + 17 + 2 + 3 + 2 + 1 + 8 + buckets as u64
}

/// Kernels of forward and backward.
pub fn compute(record: &RunRecord) -> u64 {
    FORWARD + backward(record.header.buckets.len())
}

/// What the wire takes for a sum of so many bytes.
pub fn wire(bytes: Bytes, sum_ns: u64, ns_per_byte: f64) -> f64 {
    (sum_ns as f64 + (bytes.0 as f64 * ns_per_byte).round()) / 1e9
}
