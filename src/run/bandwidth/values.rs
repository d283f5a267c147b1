//! What the ranks add up, and whether it came out. Values repeat with a period that no power of two divides, so that an
//! element in a wrong place is seen, and that a large array needs no second one to compare with.

use std::ops::Range;

use anyhow::{Result, ensure};
use ringmark_record::bandwidth::record::MessageResult;
use ringmark_record::config::Wire;
use tch::{Device, Kind, Tensor};

/// A prime near 2^20.
const PERIOD: usize = 1_048_573;

/// One rank's values, and their sum over all ranks.
pub struct Values {
    /// `[period]` of the wire's type.
    own: Tensor,
    /// `[period]` of the sums' type.
    expected: Tensor,
}

/// How far the sums are from what is expected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deviation {
    /// Elements that differ.
    pub wrong: u64,
    /// `sum |got - expected| / sum |expected|` (MXNet, tools/bandwidth/measure.py).
    pub error: f64,
}

impl Values {
    /// Whole numbers, whose sums are exact in the type `wire` whatever the order of the additions.
    pub fn whole(elements: usize, (rank, ranks): (u32, u32), wire: Kind, device: Device) -> Result<Values> {
        // Every whole number up to here has a value of its own.
        let exact = match wire {
            Kind::BFloat16 => 256,
            Kind::Half => 2048,
            _ => 1 << 24,
        };
        ensure!(ranks <= exact, "sums over {ranks} ranks are not exact on this wire: choose --check 0, or --wire fp32");
        let step = (exact / ranks + 1).min(8);
        let value = |index: usize, rank: u32| ((mixed(index as u64) % 1000) as u32 + rank) % step;
        let sum = |index| (0..ranks).map(|rank| value(index, rank)).sum::<u32>();
        Values::new(elements, wire, wire, device, |index| value(index, rank) as f32, |index| sum(index) as f32)
    }

    /// Numbers between -1 and 1, summed to fp32.
    pub fn random(elements: usize, (rank, ranks): (u32, u32), wire: Kind, device: Device) -> Result<Values> {
        let value = |index: usize, rank: u32| {
            let bits = mixed((index as u64) << 20 | u64::from(rank)) >> 40;
            bits as f32 / (1u64 << 23) as f32 - 1.0
        };
        let sum = |index| (0..ranks).map(|rank| f64::from(value(index, rank))).sum::<f64>();
        Values::new(elements, wire, Kind::Float, device, |index| value(index, rank), |index| sum(index) as f32)
    }

    fn new(
        elements: usize,
        wire: Kind,
        sums: Kind,
        device: Device,
        value: impl Fn(usize) -> f32,
        sum: impl Fn(usize) -> f32,
    ) -> Result<Values> {
        let period = 0..elements.min(PERIOD);
        let tensor = |values: Vec<f32>, kind| Tensor::from_slice(&values).f_to_kind(kind)?.f_to_device(device);
        Ok(Values {
            own: tensor(period.clone().map(value).collect(), wire)?,
            expected: tensor(period.map(sum).collect(), sums)?,
        })
    }

    /// Writes this rank's values to the first `elements` of `array`.
    pub fn fill(&self, array: &Tensor, elements: usize) -> Result<()> {
        for (place, part) in periods(elements) {
            narrow(array, &place)?.f_copy_(&narrow(&self.own, &part)?)?;
        }
        Ok(())
    }

    /// Compares the first `elements` of `sums`.
    pub fn check(&self, sums: &Tensor, elements: usize) -> Result<Deviation> {
        let (mut wrong, mut distance, mut whole) = (0, 0.0, 0.0);
        for (place, part) in periods(elements) {
            let (got, expected) = (narrow(sums, &place)?, narrow(&self.expected, &part)?);
            wrong += got.f_ne_tensor(&expected)?.f_sum(Kind::Int64)?.f_int64_value(&[])? as u64;
            // Lengths differ in the last period only, so `whole` cannot be kept.
            let expected = expected.f_to_kind(Kind::Float)?;
            distance += (got.f_to_kind(Kind::Float)? - &expected).f_abs()?.f_sum(Kind::Double)?.f_double_value(&[])?;
            whole += expected.f_abs()?.f_sum(Kind::Double)?.f_double_value(&[])?;
        }
        Ok(Deviation { wrong, error: if whole == 0.0 { distance } else { distance / whole } })
    }
}

/// Destroys the first `elements` of `array`: a sum that was never written must not look like the last one.
pub fn poison(array: &Tensor, elements: usize) -> Result<()> {
    let _ = narrow(array, &(0..elements))?.f_fill_(f64::NAN)?;
    Ok(())
}

/// Why the values of a result make the run invalid; sums of whole numbers must be exact, and rounding explains no more
/// than the wire's half unit for each addition on the way.
pub fn failure(result: &MessageResult, wire: Wire) -> Option<String> {
    let allowed = match wire {
        Wire::Fp32 => 1e-5,
        Wire::Fp16 => 5e-3,
        Wire::Bf16 => 4e-2,
    };
    for (side, timing) in result.sides() {
        let Some(timing) = timing else { continue };
        if let Some(wrong) = timing.wrong.filter(|wrong| *wrong > 0) {
            return Some(format!("{wrong} wrong elements in sums of {}, {side}", result.bytes));
        }
        // NaN is above everything.
        if let Some(error) = timing.error.iter().find(|error| error.is_nan() || **error > allowed) {
            return Some(format!("the sums of {} are off by {error:e}, more than {allowed:e} allows", result.bytes));
        }
    }
    None
}

fn narrow(tensor: &Tensor, range: &Range<usize>) -> Result<Tensor> {
    Ok(tensor.f_narrow(0, range.start as i64, range.len() as i64)?)
}

/// Each stretch of `elements` with its part of the period.
fn periods(elements: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    (0..elements).step_by(PERIOD).map(move |start| {
        let length = (elements - start).min(PERIOD);
        (start..start + length, 0..length)
    })
}

/// Bits that look random: the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_summed_right_is_found_right_and_one_wrong_element_is_found() {
        let elements = PERIOD + 1000;
        for kind in [Kind::Float, Kind::Half, Kind::BFloat16] {
            let sums = Tensor::zeros([elements as i64], (kind, Device::Cpu));
            let own = sums.zeros_like();
            for rank in 0..3 {
                Values::whole(elements, (rank, 3), kind, Device::Cpu)
                    .expect("exact")
                    .fill(&own, elements)
                    .expect("filled");
                let _ = sums.shallow_clone().g_add_(&own);
            }
            let values = Values::whole(elements, (0, 3), kind, Device::Cpu).expect("exact");
            assert_eq!(values.check(&sums, elements).expect("compared"), Deviation { wrong: 0, error: 0.0 });
            let _ = sums.narrow(0, PERIOD as i64, 1).fill_(99.0);
            assert_eq!(values.check(&sums, elements).expect("compared").wrong, 1);
            poison(&sums, 10).expect("poisoned");
            let deviation = values.check(&sums, elements).expect("compared");
            assert!(deviation.wrong == 11 && deviation.error.is_nan());
        }
        assert!(Values::whole(1, (0, 300), Kind::BFloat16, Device::Cpu).is_err());
    }

    #[test]
    fn random_values_are_spread_and_differ_by_rank() {
        let values = |rank| Values::random(10_000, (rank, 2), Kind::Float, Device::Cpu).expect("made");
        let (first, second) = (values(0), values(1));
        assert!(first.own.mean(Kind::Float).double_value(&[]).abs() < 0.02);
        assert!((first.own.std(true).double_value(&[]) - 1.0 / 3f64.sqrt()).abs() < 0.02);
        let sum = &first.own + &second.own;
        assert!(first.check(&sum, 10_000).expect("compared").error < 1e-6);
        assert!(first.check(&first.own, 10_000).expect("compared").error > 0.1);
    }
}
