//! Non-temporal stores, for arrays that would only evict more useful data from the caches.

/// Writes values with non-temporal stores if the processor has them.
///
/// # Safety
/// `receiver` must be valid for `values.len()` elements.
pub unsafe fn stream(values: &[f32], receiver: *mut f32) {
    // SAFETY: guaranteed by the caller.
    unsafe { stream_by(values.len(), [receiver], |index| values[index], |index| vector(values.as_ptr().add(index))) }
}

/// Writes `first + second` to both receivers with non-temporal stores. Receivers and sources are disjoint.
///
/// # Safety
/// Every pointer must be valid for `count` elements.
pub unsafe fn stream_two(first: *const f32, second: *const f32, to_first: *mut f32, to_second: *mut f32, count: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        stream_by(
            count,
            [to_first, to_second],
            |index| *first.add(index) + *second.add(index),
            |index| add_vectors(vector(first.add(index)), vector(second.add(index))),
        );
    }
    fence();
}

/// Size in bytes from which a copy bypasses the caches: it exceeds one core's share of them.
const STREAMED_COPY: usize = 1 << 20;

/// Copies `bytes` bytes; a large copy bypasses the caches. Source and target may be identical.
///
/// # Safety
/// Both must be valid for `bytes` bytes, and disjoint unless they are identical.
pub unsafe fn copy(source: *const u8, target: *mut u8, bytes: usize) {
    let floats = bytes / size_of::<f32>();
    let is_aligned = [source.align_offset(size_of::<f32>()), target.align_offset(size_of::<f32>())] == [0, 0];
    if source == target.cast_const() {
        return;
    }
    // SAFETY: guaranteed by the caller; any four bytes are a valid f32.
    unsafe {
        if bytes < STREAMED_COPY || !is_aligned {
            return std::ptr::copy_nonoverlapping(source, target, bytes);
        }
        stream(std::slice::from_raw_parts(source.cast(), floats), target.cast());
        fence();
        let done = floats * size_of::<f32>();
        std::ptr::copy_nonoverlapping(source.add(done), target.add(done), bytes - done);
    }
}

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m128 as Vector;
#[cfg(not(target_arch = "x86_64"))]
type Vector = [f32; 4];

/// # Safety
/// `position` must be valid for reads of four elements.
#[inline(always)]
unsafe fn vector(position: *const f32) -> Vector {
    // SAFETY: guaranteed by the caller; every x86-64 has SSE.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        return std::arch::x86_64::_mm_loadu_ps(position);
        #[cfg(not(target_arch = "x86_64"))]
        return position.cast::<Vector>().read_unaligned();
    }
}

#[inline(always)]
fn add_vectors(first: Vector, second: Vector) -> Vector {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has SSE.
    return unsafe { std::arch::x86_64::_mm_add_ps(first, second) };
    #[cfg(not(target_arch = "x86_64"))]
    return std::array::from_fn(|index| first[index] + second[index]);
}

/// # Safety
/// `position` must be valid for writes of four elements and aligned to 16 bytes.
#[inline(always)]
unsafe fn stream_vector(position: *mut f32, value: Vector) {
    // SAFETY: guaranteed by the caller; every x86-64 has SSE.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::x86_64::_mm_stream_ps(position, value);
        #[cfg(not(target_arch = "x86_64"))]
        position.cast::<Vector>().write(value);
    }
}

/// Writes elements `0..count` to each receiver, four at a time if their alignment permits.
///
/// # Safety
/// Every receiver must be valid for `count` elements, and `four` must be callable for any four of them.
#[inline(always)]
unsafe fn stream_by<const RECEIVERS: usize>(
    count: usize,
    receivers: [*mut f32; RECEIVERS],
    one: impl Fn(usize) -> f32,
    four: impl Fn(usize) -> Vector,
) {
    let plain = |range: std::ops::Range<usize>| {
        for index in range {
            let value = one(index);
            // SAFETY: guaranteed by the caller.
            receivers.iter().for_each(|receiver| unsafe { *receiver.add(index) = value });
        }
    };
    // The instruction requires 16-byte alignment of all receivers at once.
    let head = receivers[0].align_offset(16).min(count);
    // SAFETY: inside, or one past the end.
    let aligned = |receiver: &*mut f32| unsafe { receiver.add(head) }.align_offset(16) == 0;
    if !receivers.iter().all(aligned) {
        return plain(0..count);
    }
    let whole = head + (count - head) / 4 * 4;
    plain(0..head);
    for index in (head..whole).step_by(4) {
        let value = four(index);
        // SAFETY: guaranteed by the caller; the alignment was checked.
        receivers.iter().for_each(|receiver| unsafe { stream_vector(receiver.add(index), value) });
    }
    plain(whole..count);
}

/// Orders non-temporal stores before later ones.
pub fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence()
    };
}
