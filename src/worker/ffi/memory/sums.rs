//! Sums or maxima of arrays in memory, optionally rounded, in blocks that fit in the L1 cache.
//!
//! Additions are in fp32 and in the order of the sources, so every caller gets the same bits.

use half::{bf16, f16};

use crate::ffi::memory::element::Element;
use crate::ffi::memory::streaming::{fence, stream, stream_two};

/// Number of elements of a block: 8 kB of fp32.
const BLOCK: usize = 2048;

/// Reduction of several arrays to one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Combination {
    /// True for the maximum, false for the sum.
    pub is_largest: bool,
    /// Factor of the result.
    pub factor: f32,
}

impl Combination {
    /// Sum without a factor.
    pub const SUM: Combination = Combination { is_largest: false, factor: 1.0 };

    /// Returns the combination without its factor, for intermediate steps.
    pub fn unscaled(self) -> Combination {
        Combination { factor: 1.0, ..self }
    }
}

/// Writes the combination of the `sources` to each of the `receivers`, `count` elements each. `streaming` bypasses the
/// caches.
///
/// # Safety
/// Every pointer must be valid for `count` elements of its type, and aligned. A receiver is identical to a source or
/// disjoint from all.
pub unsafe fn combine(
    combination: Combination,
    sources: &[*mut u8],
    source: Element,
    receivers: &[*mut u8],
    receiver: Element,
    count: usize,
    streaming: bool,
) {
    // Fast path for the most common case, two ranks in single precision: no block is needed.
    if let (&[first, second], &[to_first, to_second]) = (sources, receivers)
        && (source, receiver) == (Element::Float, Element::Float)
        && combination == Combination::SUM
    {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (first, second) = (first.cast_const().cast(), second.cast_const().cast());
            match streaming {
                true => stream_two(first, second, to_first.cast(), to_second.cast(), count),
                false => sum_two(first, second, to_first.cast(), to_second.cast(), count),
            }
        }
        return;
    }
    let mut block = Block([0.0; BLOCK]);
    let mut start = 0;
    while start < count {
        let length = (count - start).min(BLOCK);
        let values = &mut block.0[..length];
        // SAFETY: guaranteed by the caller, for `length` elements from `start`.
        unsafe {
            let at = |pointer: &*mut u8| pointer.add(start * source.bytes()).cast_const();
            match sources {
                [first, rest @ ..] if combination.is_largest => {
                    widen(values, at(first), source);
                    for pointer in rest {
                        let mut other = Block([0.0; BLOCK]);
                        widen(&mut other.0[..length], at(pointer), source);
                        keep_larger(values, &other.0[..length]);
                    }
                }
                [first, second, rest @ ..] if source == Element::Float => {
                    add_two(values, at(first).cast(), at(second).cast());
                    rest.iter().for_each(|pointer| add(values, at(pointer), source));
                }
                [first, rest @ ..] => {
                    widen(values, at(first), source);
                    rest.iter().for_each(|pointer| add(values, at(pointer), source));
                }
                [] => values.fill(0.0),
            }
            if combination.factor != 1.0 {
                scale(values, combination.factor);
            }
            for pointer in receivers {
                store(values, pointer.add(start * receiver.bytes()), receiver, streaming);
            }
        }
        start += length;
    }
    if streaming {
        fence();
    }
}

/// Aligned to a cache line, so that no vector load crosses one.
#[repr(align(64))]
struct Block([f32; BLOCK]);

/// Compiles a loop for AVX-512, for AVX2 and for the baseline, and selects a version at run time.
macro_rules! vectorized {
    ($(#[$doc:meta])* unsafe fn $name:ident($($argument:ident: $type:ty),*) $body:block) => {
        $(#[$doc])*
        unsafe fn $name($($argument: $type),*) {
            #[inline(always)]
            unsafe fn body($($argument: $type),*) $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
            unsafe fn avx512($($argument: $type),*) {
                // SAFETY: guaranteed by the caller.
                unsafe { body($($argument),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            unsafe fn avx2($($argument: $type),*) {
                // SAFETY: guaranteed by the caller.
                unsafe { body($($argument),*) }
            }
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl") {
                // SAFETY: the processor has AVX-512; the rest is guaranteed by the caller.
                return unsafe { avx512($($argument),*) };
            } else if is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has AVX2; the rest is guaranteed by the caller.
                return unsafe { avx2($($argument),*) };
            }
            // SAFETY: guaranteed by the caller.
            unsafe { body($($argument),*) }
        }
    };
}

vectorized! {
    unsafe fn add_two(values: &mut [f32], first: *const f32, second: *const f32) {
        for (index, value) in values.iter_mut().enumerate() {
            // SAFETY: guaranteed by the caller.
            *value = unsafe { *first.add(index) + *second.add(index) };
        }
    }
}

vectorized! {
    unsafe fn keep_larger(values: &mut [f32], others: &[f32]) {
        for (value, other) in values.iter_mut().zip(others) {
            *value = if *other > *value { *other } else { *value };
        }
    }
}

vectorized! {
    unsafe fn scale(values: &mut [f32], factor: f32) {
        values.iter_mut().for_each(|value| *value *= factor);
    }
}

vectorized! {
    /// Writes `first + second` to both receivers, which may be the sources.
    unsafe fn sum_two(first: *const f32, second: *const f32, to_first: *mut f32, to_second: *mut f32, count: usize) {
        // A group is read before it is written, so that the compiler can vectorize although the arrays may be
        // identical.
        const GROUP: usize = 64;
        let mut start = 0;
        while start + GROUP <= count {
            let mut sums = [0f32; GROUP];
            // SAFETY: guaranteed by the caller.
            unsafe {
                for (index, sum) in sums.iter_mut().enumerate() {
                    *sum = *first.add(start + index) + *second.add(start + index);
                }
                for (index, sum) in sums.iter().enumerate() {
                    *to_first.add(start + index) = *sum;
                }
                for (index, sum) in sums.iter().enumerate() {
                    *to_second.add(start + index) = *sum;
                }
            }
            start += GROUP;
        }
        for index in start..count {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let sum = *first.add(index) + *second.add(index);
                *to_first.add(index) = sum;
                *to_second.add(index) = sum;
            }
        }
    }
}

vectorized! {
    unsafe fn add_floats(values: &mut [f32], source: *const f32) {
        for (index, value) in values.iter_mut().enumerate() {
            // SAFETY: guaranteed by the caller.
            *value += unsafe { *source.add(index) };
        }
    }
}

vectorized! {
    unsafe fn add_bfloats(values: &mut [f32], source: *const bf16) {
        for (index, value) in values.iter_mut().enumerate() {
            // SAFETY: guaranteed by the caller.
            *value += f32::from_bits(u32::from(unsafe { *source.add(index) }.to_bits()) << 16);
        }
    }
}

vectorized! {
    /// Rounds to nearest, ties to even.
    unsafe fn store_bfloats(values: &[f32], receiver: *mut bf16) {
        for (index, value) in values.iter().enumerate() {
            let bits = value.to_bits();
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
            // Rounding up would turn a NaN into an infinity.
            let quiet = bits >> 16 | 0x40;
            let result = if value.is_nan() { quiet } else { rounded };
            // SAFETY: guaranteed by the caller.
            unsafe { *receiver.add(index) = bf16::from_bits(result as u16) };
        }
    }
}

/// # Safety
/// `source` must be valid for `values.len()` elements.
unsafe fn add(values: &mut [f32], source: *const u8, element: Element) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match element {
            Element::Float => add_floats(values, source.cast()),
            Element::BFloat16 => add_bfloats(values, source.cast()),
            Element::Half => halves::<true>(values, source.cast()),
        }
    }
}

/// # Safety
/// `source` must be valid for `values.len()` elements.
unsafe fn widen(values: &mut [f32], source: *const u8, element: Element) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match element {
            Element::Float => std::ptr::copy_nonoverlapping(source.cast(), values.as_mut_ptr(), values.len()),
            Element::BFloat16 => {
                values.fill(0.0);
                add_bfloats(values, source.cast());
            }
            Element::Half => halves::<false>(values, source.cast()),
        }
    }
}

/// Adds the source to the values, or replaces them.
///
/// # Safety
/// `source` must be valid for `values.len()` elements.
unsafe fn halves<const ADD: bool>(values: &mut [f32], source: *const f16) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") {
        // SAFETY: the processor has both; the rest is guaranteed by the caller.
        return unsafe { halves_by_f16c::<ADD>(values, source) };
    }
    // SAFETY: guaranteed by the caller.
    unsafe { halves_one_by_one::<ADD>(values, source) };
}

/// # Safety
/// Same as [`halves`].
unsafe fn halves_one_by_one<const ADD: bool>(values: &mut [f32], source: *const f16) {
    for (index, value) in values.iter_mut().enumerate() {
        // SAFETY: guaranteed by the caller.
        let half = unsafe { *source.add(index) }.to_f32();
        *value = if ADD { *value + half } else { half };
    }
}

/// # Safety
/// Same as [`halves`]; the processor must have AVX2 and F16C.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
unsafe fn halves_by_f16c<const ADD: bool>(values: &mut [f32], source: *const f16) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm256_add_ps, _mm256_cvtph_ps, _mm256_loadu_ps, _mm256_storeu_ps};
    let whole = values.len() / 8 * 8;
    for start in (0..whole).step_by(8) {
        // SAFETY: eight elements from `start` are inside both.
        unsafe {
            let place = values.as_mut_ptr().add(start);
            let wide = _mm256_cvtph_ps(_mm_loadu_si128(source.add(start).cast()));
            _mm256_storeu_ps(place, if ADD { _mm256_add_ps(_mm256_loadu_ps(place), wide) } else { wide });
        }
    }
    // SAFETY: the remainder of both.
    unsafe { halves_one_by_one::<ADD>(&mut values[whole..], source.add(whole)) };
}

/// # Safety
/// `receiver` must be valid for `values.len()` elements of its type.
unsafe fn store(values: &[f32], receiver: *mut u8, element: Element, streaming: bool) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match element {
            Element::Float if streaming => stream(values, receiver.cast()),
            Element::Float => std::ptr::copy_nonoverlapping(values.as_ptr(), receiver.cast(), values.len()),
            Element::BFloat16 => store_bfloats(values, receiver.cast()),
            Element::Half => store_halves(values, receiver.cast()),
        }
    }
}

/// # Safety
/// `receiver` must be valid for `values.len()` elements.
unsafe fn store_halves(values: &[f32], receiver: *mut f16) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") {
        // SAFETY: the processor has both; the rest is guaranteed by the caller.
        return unsafe { store_halves_by_f16c(values, receiver) };
    }
    for (index, value) in values.iter().enumerate() {
        // SAFETY: guaranteed by the caller.
        unsafe { *receiver.add(index) = f16::from_f32(*value) };
    }
}

/// # Safety
/// Same as [`store_halves`]; the processor must have AVX2 and F16C.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
unsafe fn store_halves_by_f16c(values: &[f32], receiver: *mut f16) {
    use std::arch::x86_64::{_MM_FROUND_TO_NEAREST_INT, _mm_storeu_si128, _mm256_cvtps_ph, _mm256_loadu_ps};
    let whole = values.len() / 8 * 8;
    for start in (0..whole).step_by(8) {
        // SAFETY: eight elements from `start` are inside both.
        unsafe {
            let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(values.as_ptr().add(start)));
            _mm_storeu_si128(receiver.add(start).cast(), halves);
        }
    }
    for (index, value) in values.iter().enumerate().skip(whole) {
        // SAFETY: guaranteed by the caller.
        unsafe { *receiver.add(index) = f16::from_f32(*value) };
    }
}

/// A plain loop over memory that measures its bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryLoop {
    /// Adds two arrays and writes the sum over both.
    InPlace,
    /// Copies with non-temporal stores.
    StreamedCopy,
    /// Copies with the C library's `memcpy`.
    Copy,
}

impl MemoryLoop {
    pub const ALL: [MemoryLoop; 3] = [MemoryLoop::InPlace, MemoryLoop::StreamedCopy, MemoryLoop::Copy];

    /// Returns the name in the record.
    pub fn name(self) -> &'static str {
        match self {
            MemoryLoop::InPlace => "sum of two arrays over both",
            MemoryLoop::StreamedCopy => "copy past the caches",
            MemoryLoop::Copy => "copy",
        }
    }
}

vectorized! {
    unsafe fn sum_over_both(first: &mut [f32], second: &mut [f32]) {
        for (first, second) in first.iter_mut().zip(second) {
            let sum = *first + *second;
            // Halved, so that the values stay finite over many rounds.
            (*first, *second) = (sum * 0.5, sum * 0.5);
        }
    }
}

/// Runs a loop over two arrays of the same length; returns the number of bytes read and written.
pub fn run(memory_loop: MemoryLoop, first: &mut [f32], second: &mut [f32]) -> usize {
    assert_eq!(first.len(), second.len(), "lengths differ");
    let bytes = size_of_val(first);
    match memory_loop {
        MemoryLoop::InPlace => {
            // SAFETY: the function is unsafe only because of CPU features, which it checks itself.
            unsafe { sum_over_both(first, second) };
            4 * bytes
        }
        MemoryLoop::StreamedCopy => {
            // SAFETY: both have the same length.
            unsafe { stream(second, first.as_mut_ptr()) };
            fence();
            2 * bytes
        }
        MemoryLoop::Copy => {
            first.copy_from_slice(second);
            2 * bytes
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 2 * BLOCK + 13;

    fn value(index: usize) -> f32 {
        (index % 97) as f32 - 40.0
    }

    /// Returns the combination of `sources` arrays of `COUNT` elements.
    fn combined(
        combination: Combination,
        element: Element,
        receiver: Element,
        sources: usize,
        streaming: bool,
    ) -> Vec<f32> {
        let mut arrays: Vec<Vec<u8>> = (0..sources)
            .map(|source| {
                let values = (0..COUNT).map(|index| value(index) + source as f32);
                match element {
                    Element::Float => values.flat_map(f32::to_ne_bytes).collect(),
                    Element::Half => values.flat_map(|value| f16::from_f32(value).to_ne_bytes()).collect(),
                    Element::BFloat16 => values.flat_map(|value| bf16::from_f32(value).to_ne_bytes()).collect(),
                }
            })
            .collect();
        let mut target = vec![0u8; COUNT * receiver.bytes()];
        let pointers: Vec<*mut u8> = arrays.iter_mut().map(|array| array.as_mut_ptr()).collect();
        // SAFETY: every array has `COUNT` elements, and the target is disjoint from them; the allocator aligns to 16
        // bytes.
        unsafe { combine(combination, &pointers, element, &[target.as_mut_ptr()], receiver, COUNT, streaming) };
        let wide = |bytes: &[u8]| match (receiver, bytes) {
            (Element::Float, &[a, b, c, d]) => f32::from_ne_bytes([a, b, c, d]),
            (Element::Half, &[a, b]) => f16::from_ne_bytes([a, b]).to_f32(),
            (Element::BFloat16, &[a, b]) => bf16::from_ne_bytes([a, b]).to_f32(),
            _ => unreachable!("chunks have an element's size"),
        };
        target.chunks(receiver.bytes()).map(wide).collect()
    }

    #[test]
    fn integers_are_summed_exactly_in_every_type() {
        for element in [Element::Float, Element::Half, Element::BFloat16] {
            for receiver in [element, Element::Float] {
                for (sources, streaming) in [(1, false), (2, false), (2, true), (3, true)] {
                    let extra = (0..sources).sum::<usize>() as f32;
                    let sums = combined(Combination::SUM, element, receiver, sources, streaming);
                    for (index, sum) in sums.iter().enumerate() {
                        let exact = value(index) * sources as f32 + extra;
                        assert_eq!(*sum, exact, "{element:?} to {receiver:?}, {sources} sources, element {index}");
                    }
                }
            }
        }
    }

    #[test]
    fn maximum_and_mean_are_exact_in_every_type() {
        let largest = Combination { is_largest: true, factor: 1.0 };
        let half = Combination { is_largest: false, factor: 0.5 };
        for element in [Element::Float, Element::Half, Element::BFloat16] {
            for sources in [1, 2, 3] {
                let all = |combination| combined(combination, element, element, sources, false);
                let extra = (0..sources).sum::<usize>() as f32;
                for (index, (largest, half)) in all(largest).into_iter().zip(all(half)).enumerate() {
                    assert_eq!(largest, value(index) + (sources - 1) as f32, "{element:?}, {sources}, {index}");
                    assert_eq!(half, (value(index) * sources as f32 + extra) / 2.0, "{element:?}, {sources}, {index}");
                }
            }
        }
    }

    /// Two ranks in single precision: in place, and to two other arrays at any alignment.
    #[test]
    fn two_arrays_are_summed_to_both_destinations() {
        let values = |extra: f32| (0..COUNT + 8).map(|index| value(index) + extra).collect::<Vec<f32>>();
        for (apart, streaming, offsets) in [
            (false, false, [0, 0]),
            (false, false, [1, 3]),
            (true, false, [0, 0]),
            (true, true, [0, 0]),
            (true, true, [3, 3]),
            (true, true, [1, 2]),
        ] {
            let (mut first, mut second) = (values(0.0), values(1.0));
            let (mut to_first, mut to_second) = (vec![f32::NAN; COUNT + 8], vec![f32::NAN; COUNT + 8]);
            let at = |array: &mut Vec<f32>, offset: usize| array[offset..].as_mut_ptr().cast::<u8>();
            let sources = [at(&mut first, offsets[0]), at(&mut second, offsets[0])];
            let receivers =
                if apart { [at(&mut to_first, offsets[0]), at(&mut to_second, offsets[1])] } else { sources };
            // SAFETY: `COUNT` elements from every offset, and the receivers are the sources or other arrays.
            unsafe {
                combine(Combination::SUM, &sources, Element::Float, &receivers, Element::Float, COUNT, streaming);
            }
            let (one, other) = if apart { (&to_first, &to_second) } else { (&first, &second) };
            let other_offset = if apart { offsets[1] } else { offsets[0] };
            for index in 0..COUNT {
                let exact = 2.0 * value(index + offsets[0]) + 1.0;
                assert_eq!(
                    (one[index + offsets[0]], other[index + other_offset]),
                    (exact, exact),
                    "{apart} {streaming} {index}"
                );
            }
            if apart {
                assert!(to_first[COUNT + offsets[0]].is_nan() && to_second[COUNT + other_offset].is_nan());
                assert_eq!(first[offsets[0]], value(offsets[0]));
            }
        }
    }

    #[test]
    fn bf16_rounding_matches_libtorch() {
        // Two ties between adjacent bfloat16 numbers, 1 + 1/256 and 1 + 3/256, and a value just above the first tie.
        let tie = 1.0 + 1.0 / 256.0;
        let above = f32::from_bits(f32::to_bits(tie) + 1);
        let values = [1.0, tie, above, 1.0 + 3.0 / 256.0, f32::MAX, f32::INFINITY, -0.0, 1e-40, f32::NAN];
        let mut rounded = [bf16::ZERO; 9];
        // SAFETY: nine elements each.
        unsafe { store_bfloats(&values, rounded.as_mut_ptr()) };
        for (value, rounded) in values.into_iter().zip(rounded) {
            let expected = bf16::from_f32(value);
            assert!(rounded == expected || (rounded.is_nan() && expected.is_nan()), "{value}: {rounded}, {expected}");
        }
    }
}
