//! Expected results of operations that move data without reducing it: checks that elements come from the right rank and
//! position. Values repeat with a period that no power of two divides; each rank starts at a different offset in the
//! period.

use std::ops::Range;

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use crate::benchmark::bandwidth::values::{Comparison, SHIFTS, mixed};
use crate::exchange::memory::narrow;

/// A prime near 2^20.
const PERIOD: usize = 1_048_573;

/// Offset in the period between consecutive ranks; larger than the shift between two iterations.
const ITERATION_SHIFT: usize = 7919;

/// Upper bound of the values: integers that every wire type represents exactly.
const VALUES: u64 = 256;

/// Elements received from one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Range in the receiving array.
    pub place: Range<usize>,
    /// Source rank.
    pub rank: u32,
    /// Index of the first element in the source array.
    pub first: usize,
}

pub struct SourceValues {
    /// One period, of the wire's type.
    values: Tensor,
}

impl SourceValues {
    pub fn new(wire: Kind, device: Device) -> Result<SourceValues> {
        let values: Vec<f32> = (0..PERIOD as u64).map(|index| (mixed(index) % VALUES) as f32).collect();
        Ok(SourceValues { values: Tensor::from_slice(&values).f_to_kind(wire)?.f_to_device(device)? })
    }

    pub fn fill(&self, array: &Tensor, range: Range<usize>, rank: u32, iteration: usize) -> Result<()> {
        let origin = Origin { first: range.start, place: range, rank };
        for (place, part) in periods(&origin, iteration) {
            narrow(array, &place)?.f_copy_(&narrow(&self.values, &part)?)?;
        }
        Ok(())
    }

    /// Compares received elements with the values at their origins.
    pub fn check(&self, array: &Tensor, origins: &[Origin], iteration: usize) -> Result<Comparison> {
        let mut compared = Comparison::default();
        for (place, part) in origins.iter().flat_map(|origin| periods(origin, iteration)) {
            compared.add(&narrow(array, &place)?, &narrow(&self.values, &part)?, &Tensor::from(0.0))?;
        }
        Ok(compared)
    }
}

/// Yields each received range with the range of the period that it must contain.
fn periods(origin: &Origin, iteration: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>)> + use<> {
    let (place, from) =
        (origin.place.clone(), origin.first + origin.rank as usize * ITERATION_SHIFT + iteration % SHIFTS);
    let mut done = place.start;
    std::iter::from_fn(move || {
        let start = (from + done - place.start) % PERIOD;
        let length = (place.end - done).min(PERIOD - start);
        let piece = (done..done + length, start..start + length);
        done += length;
        (length > 0).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(place: Range<usize>, rank: u32, first: usize) -> Vec<Origin> {
        vec![Origin { place, rank, first }]
    }

    #[test]
    fn one_wrong_moved_element_is_detected() {
        let elements = PERIOD + 1000;
        for kind in [Kind::Float, Kind::Half, Kind::BFloat16] {
            let moved = SourceValues::new(kind, Device::Cpu).expect("made");
            let array = Tensor::zeros([elements as i64], (kind, Device::Cpu));
            moved.fill(&array, 10..elements, 3, 2).expect("filled");
            let wrong =
                |origins: &[Origin], iteration| moved.check(&array, origins, iteration).expect("compared").wrong;
            assert_eq!(wrong(&origin(10..elements, 3, 10), 2), 0);
            // Elements received at an index other than their source index.
            let other = array.zeros_like();
            other.narrow(0, 0, 500).copy_(&array.narrow(0, 600, 500));
            assert_eq!(moved.check(&other, &origin(0..500, 3, 600), 2).expect("compared").wrong, 0);
            // Values of another rank, index or iteration are wrong nearly everywhere.
            for (rank, first, iteration) in [(2, 10, 2), (3, 11, 2), (3, 10, 3)] {
                assert!(wrong(&origin(10..elements, rank, first), iteration) as usize > elements / 2, "{kind:?}");
            }
            let _ = array.narrow(0, PERIOD as i64, 1).fill_(999.0);
            assert_eq!(wrong(&origin(10..elements, 3, 10), 2), 1);
            let _ = array.narrow(0, 10, 5).fill_(f64::NAN);
            assert_eq!(wrong(&origin(10..elements, 3, 10), 2), 6);
        }
    }
}
