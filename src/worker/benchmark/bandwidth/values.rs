//! The values that ranks reduce, and the check of the results. Values repeat with a period that no power of two
//! divides: an element in a wrong place is detected, and a large array needs no second one to compare with. Each rank
//! has different values.

use std::ops::Range;

use anyhow::{Result, ensure};
use ringmark_core::benchmark::bandwidth::MessageResult;
use ringmark_core::dimension::Reduction;
use tch::{Device, Kind, Tensor};

use crate::exchange::memory::narrow;
use crate::ffi::group::GroupRank;

/// A prime near 2^20.
const PERIOD: usize = 1_048_573;

/// Number of shifts of the values, used by successive iterations in turn, so that a leftover of the previous iteration
/// does not pass as the result of this one.
pub const SHIFTS: usize = 8;

/// One rank's values, and their reduction over all ranks.
pub struct Values {
    /// Shape `[period + shifts]`, of the wire's type.
    own: Tensor,
    /// Shape `[period + shifts]`, fp32.
    expected: Tensor,
    /// Largest difference of an element that rounding explains.
    tolerance: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deviation {
    /// Elements that differ by more than rounding explains.
    pub wrong: u64,
    /// `sum |got - expected| / sum |expected|` (MXNet, tools/bandwidth/measure.py).
    pub error: f64,
}

impl Values {
    /// Returns integers whose sums are exact in the type `wire` in any order of the additions. This limits the number
    /// of ranks if the sums are checked.
    pub fn whole(
        elements: usize,
        GroupRank { rank, ranks }: GroupRank,
        wire: Kind,
        reduction: Reduction,
        device: Device,
        check: bool,
    ) -> Result<Values> {
        // Every integer up to this one is representable.
        let exact = match wire {
            Kind::BFloat16 => 256,
            Kind::Half => 2048,
            _ => 1 << 24,
        };
        ensure!(
            ranks <= exact || !check,
            "sums over {ranks} ranks are not exact with this --wire: use --check 0 or --wire fp32"
        );
        let step = u64::from((exact / ranks + 1).min(8));
        let value = |index, rank| (random_bits(index, rank) % step) as u32;
        let all = |index| (0..ranks).map(move |rank| value(index, rank));
        let expected = |index| match reduction {
            Reduction::Sum => all(index).sum::<u32>() as f32,
            Reduction::Max => all(index).max().unwrap_or(0) as f32,
            Reduction::Avg => all(index).sum::<u32>() as f32 / ranks as f32,
        };
        let own = array(elements, wire, device, |index| value(index, rank) as f32)?;
        // A library may divide before it adds, and round after every step.
        let largest = (step - 1) as f64;
        let tolerance = if reduction == Reduction::Avg { f64::from(ranks + 2) * rounding(wire) * largest } else { 0.0 };
        Ok(Values { own, expected: array(elements, Kind::Float, device, expected)?, tolerance })
    }

    /// Returns numbers between -1 and 1, summed in fp32.
    pub fn random(elements: usize, GroupRank { rank, ranks }: GroupRank, wire: Kind, device: Device) -> Result<Values> {
        let value = |index, rank| (random_bits(index, rank) >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        let sum = |index| (0..ranks).map(|rank| f64::from(value(index, rank))).sum::<f64>();
        Ok(Values {
            own: array(elements, wire, device, |index| value(index, rank))?,
            expected: array(elements, Kind::Float, device, |index| sum(index) as f32)?,
            // Each value is rounded once, and each of the up to `ranks` additions rounds once more.
            tolerance: f64::from(ranks * (ranks + 1)) * rounding(wire),
        })
    }

    pub fn fill(&self, array: &Tensor, elements: usize, iteration: usize) -> Result<()> {
        for (place, part) in periods(0..elements, iteration) {
            narrow(array, &place)?.f_copy_(&narrow(&self.own, &part)?)?;
        }
        Ok(())
    }

    /// Returns the expected first period of an array in `iteration`, or all of a shorter array.
    pub fn period(&self, iteration: usize) -> Result<Tensor> {
        let shift = iteration % SHIFTS;
        narrow(&self.expected, &(shift..shift + self.expected.numel() - SHIFTS))
    }

    pub fn tolerance(&self) -> f64 {
        self.tolerance
    }

    /// Compares these elements of `sums` with those of `iteration`.
    pub fn check(&self, sums: &Tensor, elements: Range<usize>, iteration: usize) -> Result<Comparison> {
        let mut compared = Comparison::default();
        for (place, part) in periods(elements, iteration) {
            compared.add(&narrow(sums, &place)?, &narrow(&self.expected, &part)?, &Tensor::from(self.tolerance))?;
        }
        Ok(compared)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Comparison {
    /// Elements that are out of tolerance.
    pub wrong: u64,
    /// `sum |got - expected|`.
    distance: f64,
    /// `sum |expected|`.
    whole: f64,
}

impl Comparison {
    /// Compares elements; `tolerance` is one for all or one for each.
    pub fn add(&mut self, got: &Tensor, expected: &Tensor, tolerance: &Tensor) -> Result<()> {
        let expected = expected.f_to_kind(Kind::Float)?;
        let apart = (got.f_to_kind(Kind::Float)? - &expected).f_abs()?;
        // NaN is out of tolerance.
        let close = apart.f_le_tensor(tolerance)?.f_sum(Kind::Int64)?.f_int64_value(&[])?;
        self.wrong += expected.numel() as u64 - close as u64;
        self.distance += apart.f_sum(Kind::Double)?.f_double_value(&[])?;
        self.whole += expected.f_abs()?.f_sum(Kind::Double)?.f_double_value(&[])?;
        Ok(())
    }

    pub fn deviation(self) -> Deviation {
        let Comparison { wrong, distance, whole } = self;
        Deviation { wrong, error: if whole == 0.0 { distance } else { distance / whole } }
    }
}

/// Returns half the distance between 1 and the next larger number of `kind`.
fn rounding(kind: Kind) -> f64 {
    match kind {
        Kind::BFloat16 => 2f64.powi(-8),
        Kind::Half => 2f64.powi(-11),
        _ => 2f64.powi(-24),
    }
}

/// Returns one period plus the shifts of `value` by index, or less for a short array.
fn array(elements: usize, kind: Kind, device: Device, value: impl Fn(usize) -> f32) -> Result<Tensor> {
    let values: Vec<f32> = (0..elements.min(PERIOD) + SHIFTS).map(value).collect();
    Ok(Tensor::from_slice(&values).f_to_kind(kind)?.f_to_device(device)?)
}

/// Overwrites the first `elements` of `array` with NaN: a sum that is never written must not look like the previous
/// one.
pub fn poison(array: &Tensor, elements: usize) -> Result<()> {
    let _ = narrow(array, &(0..elements))?.f_fill_(f64::NAN)?;
    Ok(())
}

/// Returns the reason why wrong values make the run invalid.
pub fn failure(result: &MessageResult) -> Option<String> {
    result.sides().into_iter().find_map(|(side, timing)| {
        let wrong = timing?.wrong.filter(|wrong| *wrong > 0)?;
        Some(format!("{wrong} wrong elements in results of {}, {side}", result.bytes))
    })
}

/// Yields each range of `elements` with its range of the period in `iteration`.
pub fn periods(elements: Range<usize>, iteration: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    let shift = iteration % SHIFTS;
    let first = elements.start / PERIOD * PERIOD;
    (first..elements.end).step_by(PERIOD).map(move |start| {
        let place = start.max(elements.start)..elements.end.min(start + PERIOD);
        let part = shift + place.start - start..shift + place.end - start;
        (place, part)
    })
}

/// Returns pseudo-random bits for element `index` of `rank`.
fn random_bits(index: usize, rank: u32) -> u64 {
    mixed((index as u64) << 20 | u64::from(rank))
}

/// Returns bits that look random: the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
pub fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_sum_is_detected() {
        let elements = PERIOD + 1000;
        for kind in [Kind::Float, Kind::Half, Kind::BFloat16] {
            let values = |rank| {
                Values::whole(elements, GroupRank { rank, ranks: 8 }, kind, Reduction::Sum, Device::Cpu, true)
                    .expect("exact")
            };
            let sums = Tensor::zeros([elements as i64], (kind, Device::Cpu));
            let own = sums.zeros_like();
            for rank in 0..8 {
                values(rank).fill(&own, elements, 3).expect("filled");
                let _ = sums.shallow_clone().g_add_(&own);
            }
            let check = |iteration| {
                let compared = values(0).check(&sums, 0..elements, iteration).expect("compared");
                compared.deviation()
            };
            assert_eq!(check(3), Deviation { wrong: 0, error: 0.0 });
            // The sums of another iteration or position are wrong nearly everywhere.
            assert!(check(4).wrong as usize > elements / 2, "{kind:?}");
            let _ = sums.narrow(0, PERIOD as i64, 1).fill_(99.0);
            assert_eq!(check(3).wrong, 1);
            poison(&sums, 10).expect("poisoned");
            assert!(check(3).wrong == 11 && check(3).error.is_nan());
        }
        assert!(
            Values::whole(1, GroupRank { rank: 0, ranks: 300 }, Kind::BFloat16, Reduction::Sum, Device::Cpu, true)
                .is_err()
        );
        assert!(
            Values::whole(1, GroupRank { rank: 0, ranks: 300 }, Kind::BFloat16, Reduction::Sum, Device::Cpu, false)
                .is_ok()
        );
    }

    #[test]
    fn parts_maxima_and_means_are_checked() {
        let elements = PERIOD + 1000;
        for (kind, reduction) in
            [(Kind::Float, Reduction::Max), (Kind::BFloat16, Reduction::Avg), (Kind::Float, Reduction::Avg)]
        {
            let new = |rank| {
                let values = Values::whole(elements, GroupRank { rank, ranks: 3 }, kind, reduction, Device::Cpu, true)
                    .expect("exact");
                let own = Tensor::zeros([elements as i64], (kind, Device::Cpu));
                values.fill(&own, elements, 5).expect("filled");
                own
            };
            let [first, second, third] = [0, 1, 2].map(new);
            let result = match reduction {
                Reduction::Max => first.maximum(&second).maximum(&third),
                _ => (first + second + third) / 3.0,
            };
            let values = Values::whole(elements, GroupRank { rank: 0, ranks: 3 }, kind, reduction, Device::Cpu, true)
                .expect("exact");
            let wrong = |part| values.check(&result, part, 5).expect("compared").wrong;
            assert_eq!(wrong(0..elements), 0, "{kind:?} {reduction}");
            let _ = result.narrow(0, PERIOD as i64 + 2, 1).fill_(99.0);
            assert_eq!([wrong(0..PERIOD), wrong(7..PERIOD + 3), wrong(PERIOD + 3..elements)], [0, 1, 0]);
        }
    }

    #[test]
    fn random_values_are_uniform_and_differ_by_rank() {
        let values =
            |rank| Values::random(10_000, GroupRank { rank, ranks: 2 }, Kind::Float, Device::Cpu).expect("made");
        let (first, second) = (values(0), values(1));
        assert!(first.own.mean(Kind::Float).double_value(&[]).abs() < 0.02);
        assert!((first.own.std(true).double_value(&[]) - 1.0 / 3f64.sqrt()).abs() < 0.02);
        let sum = &first.own + &second.own;
        let sound = first.check(&sum, 0..10_000, 0).expect("compared").deviation();
        assert!(sound.wrong == 0 && sound.error < 1e-6, "{sound:?}");
        assert!(first.check(&first.own, 0..10_000, 0).expect("compared").wrong > 9000);
    }
}
