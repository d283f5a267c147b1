//! Mapping of values to coordinates on an axis, with round ticks.

use ringmark_core::number_text::{three_digits, without_trailing_zeros};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleKind {
    Linear,
    Logarithmic,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    kind: ScaleKind,
    /// Values at the two ends.
    domain: [f64; 2],
    /// Coordinates of the two ends.
    range: [f64; 2],
}

impl Scale {
    /// Maps the values of `domain` to the coordinates of `range`. An empty domain is widened to avoid division by zero.
    pub fn new(kind: ScaleKind, domain: [f64; 2], range: [f64; 2]) -> Scale {
        let [low, high] = domain;
        let domain = match kind {
            _ if !(low.is_finite() && high.is_finite()) => [1.0, 2.0],
            ScaleKind::Logarithmic if low <= 0.0 => [1.0, 2.0],
            ScaleKind::Logarithmic if high <= low => [low / 2.0, low * 2.0],
            ScaleKind::Linear if high <= low => [low - 0.5 * low.abs().max(1.0), low + 0.5 * low.abs().max(1.0)],
            _ => domain,
        };
        Scale { kind, domain, range }
    }

    /// Returns a linear axis that includes all values. It starts and ends at `ends` if they are given and include the
    /// values, otherwise at round numbers.
    pub fn linear(values: impl IntoIterator<Item = f64>, ends: [Option<f64>; 2], range: [f64; 2]) -> Scale {
        let values = values.into_iter().chain(ends.into_iter().flatten());
        let [low, high] = extent(values).unwrap_or([0.0, 1.0]);
        let loose = Scale::new(ScaleKind::Linear, [low, high], range);
        let step = loose.step(5);
        let [loose_low, loose_high] = loose.domain;
        let is_end = |end: Option<f64>, value: f64| end.is_some_and(|end| (end - value).abs() <= 1e-9 * end.abs());
        let low = if is_end(ends[0], low) && high > low { low } else { (loose_low / step).floor() * step };
        let high = if is_end(ends[1], high) && high > low { high } else { (loose_high / step).ceil() * step };
        Scale { domain: [low, high], ..loose }
    }

    /// Returns a logarithmic axis that includes all positive values, with a margin.
    pub fn logarithmic(values: impl IntoIterator<Item = f64>, range: [f64; 2]) -> Scale {
        let [low, high] = extent(values.into_iter().filter(|value| *value > 0.0)).unwrap_or([1.0, 2.0]);
        let air = (high / low).powf(0.06).max(1.05);
        Scale::new(ScaleKind::Logarithmic, [low / air, high * air], range)
    }

    pub fn domain(&self) -> [f64; 2] {
        self.domain
    }

    /// Returns the coordinate of a value, clamped to the axis; NaN maps to the lower end.
    pub fn at(&self, value: f64) -> f64 {
        let [low, high] = self.domain;
        let share = match self.kind {
            ScaleKind::Linear => (value - low) / (high - low),
            ScaleKind::Logarithmic => (value / low).ln() / (high / low).ln(),
        };
        // Comparisons with NaN are false, so NaN maps to the lower end.
        let share = if share > 0.0 { share.min(1.0) } else { 0.0 };
        self.range[0] + share * (self.range[1] - self.range[0])
    }

    /// Returns about `count` round values in the domain, ascending.
    pub fn ticks(&self, count: usize) -> Vec<f64> {
        let [low, high] = self.domain;
        match self.kind {
            ScaleKind::Linear => {
                let step = self.step(count);
                let first = (low / step - 1e-9).ceil() as i64;
                let last = (high / step + 1e-9).floor() as i64;
                (first..=last).map(|number| number as f64 * step).collect()
            }
            ScaleKind::Logarithmic => {
                let decades = (high / low).log10();
                let multiples: &[f64] = match decades {
                    ..1.0 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0],
                    1.0..2.5 => &[1.0, 2.0, 5.0],
                    _ => &[1.0],
                };
                let every = (decades / count as f64).ceil().max(1.0) as i32;
                let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
                let powers = (first..=last).filter(|power| power.rem_euclid(every) == 0);
                let values =
                    powers.flat_map(|power| multiples.iter().map(move |multiple| multiple * 10f64.powi(power)));
                values.filter(|value| (low..=high).contains(value)).collect()
            }
        }
    }

    /// Returns the step between about `count` linear ticks: 1, 2, 2.5 or 5 times a power of ten.
    fn step(&self, count: usize) -> f64 {
        let rough = (self.domain[1] - self.domain[0]) / count.max(1) as f64;
        let power = 10f64.powf(rough.log10().floor());
        let multiples = [1.0, 2.0, 2.5, 5.0, 10.0];
        multiples
            .map(|multiple| multiple * power)
            .into_iter()
            .find(|step| *step >= 0.999 * rough)
            .unwrap_or(10.0 * power)
    }
}

/// Formats a round number for an axis.
pub fn number(value: f64) -> String {
    let size = value.abs();
    let text = match size {
        _ if size == 0.0 => "0".to_owned(),
        1e6.. => format!("{value:.1e}"),
        1e4..1e6 => format!("{}k", without_trailing_zeros(&format!("{:.3}", value / 1e3))),
        1e3..1e4 => three_digits(value),
        1e-2..1e3 => without_trailing_zeros(&format!("{value:.3}")).to_owned(),
        1e-4..1e-2 => without_trailing_zeros(&format!("{value:.5}")).to_owned(),
        _ => format!("{value:.0e}"),
    };
    text.replace('-', "\u{2212}")
}

/// Returns the minimum and maximum of the finite values, or `None` if there are none.
pub fn extent(values: impl IntoIterator<Item = f64>) -> Option<[f64; 2]> {
    let finite = values.into_iter().filter(|value| value.is_finite());
    finite.fold(None, |extent, value| {
        let [low, high] = extent.unwrap_or([value, value]);
        Some([value.min(low), value.max(high)])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_scale_has_round_ends_and_ticks() {
        let scale = Scale::linear([3.0, 97.0], [Some(0.0), None], [0.0, 100.0]);
        assert_eq!(scale.domain(), [0.0, 100.0]);
        assert_eq!(scale.ticks(5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!([scale.at(0.0), scale.at(50.0), scale.at(500.0)], [0.0, 50.0, 100.0]);
        let scale = Scale::linear([612.3, 641.0], [None; 2], [100.0, 0.0]);
        assert_eq!(scale.domain(), [610.0, 650.0]);
        assert_eq!(scale.at(630.0), 50.0);
        let ends = [Some(50.0), Some(105.0)];
        assert_eq!(Scale::linear([93.0, 100.0], ends, [0.0, 1.0]).domain(), [50.0, 105.0]);
        assert_eq!(Scale::linear([93.0, 112.0], ends, [0.0, 1.0]).domain(), [50.0, 120.0]);
    }

    #[test]
    fn axis_numbers_are_short() {
        let small = [0.0005, 0.001, 0.0015, 0.002];
        assert_eq!(small.map(number), ["0.0005", "0.001", "0.0015", "0.002"], "ticks differ");
        let values = [0.0, 0.25, 5.0, 1500.0, 20_000.0, 2.5e6, 1e-6, -3.0];
        assert_eq!(values.map(number), ["0", "0.25", "5", "1,500", "20k", "2.5e6", "1e\u{2212}6", "\u{2212}3"]);
    }

    #[test]
    fn logarithmic_scale_spaces_factors_equally() {
        let scale = Scale::new(ScaleKind::Logarithmic, [1.0, 64.0], [0.0, 60.0]);
        assert!((scale.at(8.0) - 30.0).abs() < 1e-9);
        assert_eq!(scale.ticks(4), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(Scale::new(ScaleKind::Logarithmic, [1.0, 1e6], [0.0, 1.0]).ticks(3), [1.0, 1e2, 1e4, 1e6]);
    }

    #[test]
    fn scale_without_numbers_is_finite() {
        for scale in [
            Scale::linear([], [Some(0.0), None], [0.0, 9.0]),
            Scale::linear([f64::NAN, f64::INFINITY], [None; 2], [0.0, 9.0]),
            Scale::linear([5.0], [None; 2], [0.0, 9.0]),
            Scale::linear([0.0, 0.0], [Some(0.0), None], [0.0, 9.0]),
            Scale::logarithmic([], [0.0, 9.0]),
            Scale::logarithmic([0.0, -1.0, f64::NAN], [0.0, 9.0]),
            Scale::logarithmic([5.0], [0.0, 9.0]),
            Scale::new(ScaleKind::Linear, [f64::NAN, 1.0], [0.0, 9.0]),
        ] {
            for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -3.0, 5.0] {
                assert!((0.0..=9.0).contains(&scale.at(value)), "{scale:?} {value}");
            }
            assert!((1..20).contains(&scale.ticks(5).len()), "{scale:?}");
        }
    }
}
