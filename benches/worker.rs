//! Speed of what a rank does per gradient or per span. Arrays exceed the caches: each result has a plain loop to compare with.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use ringmark_worker::hot::{self, Combination, Element, OpenSpan, PackedSums, TwoBit};

fn main() {
    divan::main();
}

/// 100 MB in single precision.
const VALUES: usize = 25_000_000;

fn of_values() -> BytesCount {
    BytesCount::of_many::<f32>(VALUES)
}

#[divan::bench_group(sample_count = 20, sample_size = 1)]
mod two_bit {
    use super::*;

    const CODEC: TwoBit = TwoBit { threshold: 0.1 };

    fn gradient() -> Vec<f32> {
        (0..VALUES).map(|index| 0.3 * ((index * 7919 % 10_007) as f32 / 10_007.0 - 0.5)).collect()
    }

    #[divan::bench]
    fn plain_addition(bencher: Bencher) {
        let (gradient, mut sum) = (gradient(), vec![0.0f32; VALUES]);
        bencher
            .counter(of_values())
            .bench_local(|| sum.iter_mut().zip(&gradient).for_each(|(sum, value)| *sum += value));
    }

    #[divan::bench]
    fn encode(bencher: Bencher) {
        let (gradient, mut residual) = (gradient(), vec![0.0; VALUES]);
        let mut code = vec![0; TwoBit::code_bytes(VALUES)];
        bencher.counter(of_values()).bench_local(|| CODEC.encode(&mut residual, &gradient, &mut code).expect("finite"));
    }

    #[divan::bench]
    fn decode_and_add(bencher: Bencher) {
        let mut code = vec![0; TwoBit::code_bytes(VALUES)];
        CODEC.encode(&mut vec![0.0; VALUES], &gradient(), &mut code).expect("finite");
        let mut sum = vec![0.0; VALUES];
        bencher.counter(of_values()).bench_local(|| CODEC.decode_and_add(&code, &mut sum));
    }
}

#[divan::bench_group(sample_count = 20, sample_size = 1)]
mod packed_sums {
    use super::*;

    fn counts() -> Vec<f32> {
        (0..VALUES).map(|index| (index % 9) as f32 - 4.0).collect()
    }

    #[divan::bench]
    fn plain_copy(bencher: Bencher) {
        let (counts, mut copy) = (counts(), vec![0.0; VALUES]);
        bencher.counter(of_values()).bench_local(|| copy.copy_from_slice(black_box(&counts)));
    }

    #[divan::bench]
    fn pack(bencher: Bencher) {
        let (sums, counts) = (PackedSums::new(0.5, 4), counts());
        let mut packed = vec![0; sums.bytes(VALUES)];
        bencher.counter(of_values()).bench_local(|| sums.pack(&counts, &mut packed));
    }

    #[divan::bench]
    fn unpack(bencher: Bencher) {
        let sums = PackedSums::new(0.5, 4);
        let (mut packed, mut unpacked) = (vec![0; sums.bytes(VALUES)], vec![0.0; VALUES]);
        sums.pack(&counts(), &mut packed);
        bencher.counter(of_values()).bench_local(|| sums.unpack(&packed, &mut unpacked));
    }
}

/// All-reduce of a host's ranks, all of it by one of them: each array is read, and the sum written over it.
#[divan::bench_group(sample_count = 20, sample_size = 1)]
mod all_reduce {
    use super::*;

    #[divan::bench(args = [Element::Float, Element::Half, Element::BFloat16], consts = [2, 4])]
    #[allow(unsafe_code)]
    fn sum<const RANKS: usize>(bencher: Bencher, element: Element) {
        // Sums of zeros stay finite.
        let mut arrays = vec![vec![0u64; VALUES * element.bytes() / 8]; RANKS];
        let pointers: Vec<*mut u8> = arrays.iter_mut().map(|array| array.as_mut_ptr().cast()).collect();
        bencher.counter(BytesCount::new(VALUES * element.bytes() * RANKS)).bench_local(|| {
            // SAFETY: each array has `VALUES` elements and the alignment of u64, and the receivers are the sources.
            unsafe { hot::combine(Combination::SUM, &pointers, element, &pointers, element, VALUES, false) }
        });
    }
}

/// Time per span.
#[divan::bench_group(sample_count = 100, sample_size = 10_000)]
mod recorder {
    use super::*;
    use ringmark_core::trace::span::Lane;
    use tch::Device;

    fn spans(bencher: Bencher, iteration: u32) {
        hot::start(Device::Cpu, 1..=1);
        hot::begin_iteration(iteration);
        bencher.bench_local(|| hot::begin(Lane::Layers, "layer", None).into_iter().for_each(OpenSpan::end));
        assert_eq!(hot::stop().expect("every mark was set").spans.is_empty(), iteration != 1);
    }

    #[divan::bench]
    fn traced(bencher: Bencher) {
        spans(bencher, 1);
    }

    #[divan::bench]
    fn not_traced(bencher: Bencher) {
        spans(bencher, 2);
    }
}
